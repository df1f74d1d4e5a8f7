//! Images from files.

use std::fs;

use images::{digest::Digest, pull::PullError, store::InUse};

use crate::{
    imaging::{Built, archived, build, gzip, layout, saved, written},
    packing::{directory, file, pack},
    pulling::Bench,
    tree::chain,
};

fn small() -> Built {
    build(&[vec![file("a", "a")], vec![file("b", "b")]])
}

const LAYERS: [[&str; 1]; 2] = [["a file 644 1 a"], ["b file 644 1 b"]];

#[tokio::test]
async fn saved_images_and_layouts_give_the_same_image() {
    let built = small();
    let bench = Bench::new();
    let folder = bench.folder.path().join("layout");
    written(&layout(&[("v1", &built)]), &folder);
    let docker = archived(&saved(&built));
    let oci = archived(&layout(&[("v1", &built)]));
    let archives = [
        ("docker", docker.clone()),
        ("docker-gzip", gzip(&docker)),
        ("oci", oci.clone()),
        ("oci-zstd", zstd::encode_all(&oci[..], 1).unwrap()),
    ];
    let mut names =
        vec![format!("oci:{}", folder.display()), format!("oci:{}:v1", folder.display())];
    for (name, bytes) in archives {
        let path = bench.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        names.push(format!("tar:{}", path.display()));
    }
    for name in &names {
        let pulled = bench.pull(name).await.unwrap();
        assert_eq!(pulled.image.id, Digest::of(&built.config), "{name}");
        assert_eq!(bench.layers(&pulled), LAYERS, "{name}");
        drop(pulled);
        bench.puller.store().remove_name("default", name).unwrap();
        let collected = bench.puller.store().collect(&InUse::default()).unwrap();
        assert_eq!((collected.images, collected.layers), (1, 2), "{name}");
    }
}

#[tokio::test]
async fn a_root_file_system_is_an_image_of_one_layer() {
    let bench = Bench::new();
    // What an image archive has may be in a system as well; what else is there tells them apart.
    let archive = pack(&[directory("./"), file("./manifest.json", "{}"), file("./bin/tool", "x")]);
    for (name, bytes) in [("plain", archive.clone()), ("packed", gzip(&archive))] {
        let path = bench.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let pulled = bench.pull(&format!("tar:{}", path.display())).await.unwrap();
        let expected =
            ["bin directory 755", "bin/tool file 644 1 x", "manifest.json file 644 1 {}"];
        assert_eq!(bench.layers(&pulled), [expected]);
        assert_eq!(pulled.image.layers(), [Digest::of(&archive)]);
    }
    assert_eq!(bench.puller.store().images("default").unwrap().len(), 1);
}

#[tokio::test]
async fn one_of_several_images_must_be_named() {
    let bench = Bench::new();
    let folder = bench.folder.path().join("layout");
    let other = build(&[vec![file("c", "c")]]);
    written(&layout(&[("v1", &small()), ("registry.example.com/a:v2", &other)]), &folder);
    let name = format!("oci:{}", folder.display());
    let error = bench.pull(&name).await.unwrap_err();
    let expected = format!(
        "oci:{} holds several images; name one of them: registry.example.com/a:v2, v1",
        folder.display()
    );
    assert_eq!(chain(&error), expected);
    let pulled = bench.pull(&format!("{name}:v2")).await.unwrap();
    assert_eq!(pulled.image.id, Digest::of(&other.config));
    let error = bench.pull(&format!("{name}:v3")).await.unwrap_err();
    assert!(chain(&error).ends_with("is not an image: it has no image of that tag"), "{error}");
}

#[tokio::test]
async fn layouts_that_lie_or_lead_out_are_refused() {
    let built = small();
    let layer = format!("blobs/sha256/{}", Digest::of(&built.layers[0]).hex());
    let bench = Bench::new();
    let folder = bench.folder.path().join("layout");
    let name = format!("oci:{}", folder.display());
    written(&layout(&[("v1", &built)]), &folder);
    fs::write(folder.join(&layer), &built.layers[1]).unwrap();
    let error = bench.pull(&name).await.unwrap_err();
    assert!(matches!(error, PullError::Size { .. } | PullError::Digest { .. }), "{error}");

    let outside = bench.folder.path().join("outside");
    fs::write(&outside, &built.layers[0]).unwrap();
    fs::remove_file(folder.join(&layer)).unwrap();
    std::os::unix::fs::symlink(&outside, folder.join(&layer)).unwrap();
    let error = bench.pull(&name).await.unwrap_err();
    assert!(matches!(error, PullError::Read { .. }), "{error}");
}

#[tokio::test]
async fn what_is_no_archive_is_said_to_be_none() {
    let bench = Bench::new();
    let path = bench.folder.path().join("text");
    fs::write(&path, "this is a text").unwrap();
    let error = bench.pull(&format!("tar:{}", path.display())).await.unwrap_err();
    assert_eq!(
        chain(&error),
        format!(
            "cannot read tar:{}: the layer is not a sound archive: the archive ends in the middle of an entry",
            path.display()
        )
    );
    let folder = bench.folder.path();
    let error = bench.pull(&format!("tar:{}", folder.display())).await.unwrap_err();
    assert!(chain(&error).ends_with("is not an image: it is not a file"), "{error}");
    for name in ["host", "dir:/srv"] {
        let error = bench.pull(name).await.unwrap_err();
        assert!(matches!(error, PullError::InPlace(_)), "{error}");
    }
    bench.assert_empty();
}
