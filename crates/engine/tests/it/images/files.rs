//! Images from files of the machine: opened by the daemon, beneath what is allowed, or by the caller.

use std::{fs, os::unix::fs::symlink};

use engine::images::{Found, ImageError, Listener, Refusal, Wanted};
use harness::{
    imaging::{archived, layout, saved, small_system, written},
    packing::{file, pack},
};
use images::digest::Digest;

use super::bench::Bench;
use crate::home::tenant;

#[tokio::test]
async fn archives_and_layouts_come_through_descriptors() {
    let (bench, place) = Bench::of_files().await;
    let built = small_system();
    fs::write(place.join("saved.tar"), archived(&saved(&built))).unwrap();
    fs::write(place.join("root.tar"), pack(&[file("a", "a")])).unwrap();
    written(&layout(&[("v1", &built), ("v2", &built)]), &place.join("layout"));
    let at = |kind: &str, name: &str| format!("{kind}:{}", place.join(name).display());

    let image = bench.get(&at("tar", "saved.tar")).await.unwrap();
    assert_eq!((image.id, image.layers.len()), (Digest::of(&built.config), 2));
    let image = bench.get(&at("oci", "layout:v1")).await.unwrap();
    assert_eq!(image.id, Digest::of(&built.config));
    let image = bench.get(&at("tar", "root.tar")).await.unwrap();
    assert_eq!(bench.layers(&image), [["a 0:0 file 644 a"]]);
    // The same file is not read again, another one under its name is.
    assert_eq!(bench.get(&at("tar", "root.tar")).await.unwrap().id, image.id);
    fs::write(place.join("root.tar"), pack(&[file("a", "b")])).unwrap();
    let changed = bench.get(&at("tar", "root.tar")).await.unwrap();
    assert_eq!(bench.layers(&changed), [["a 0:0 file 644 b"]]);

    let error = bench.get(&at("oci", "layout:v3")).await.unwrap_err();
    assert!(error.to_string().contains("it has no image of that tag"), "{error}");
    let error = bench.get(&at("oci", "layout")).await.unwrap_err();
    assert!(error.to_string().contains("name one of them: v1, v2"), "{error}");
    let error = bench.get(&at("tar", "missing.tar")).await.unwrap_err();
    assert!(matches!(error, ImageError::Unreadable { .. }), "{error}");
    fs::remove_dir_all(&place).unwrap();
    bench.end();
}

#[tokio::test]
async fn paths_lead_nowhere_but_beneath_what_is_allowed() {
    let (bench, place) = Bench::of_files().await;
    let outside = bench.folder.path().join("outside.tar");
    fs::write(&outside, pack(&[file("a", "a")])).unwrap();
    symlink(&outside, place.join("link.tar")).unwrap();
    fs::create_dir(place.join("root")).unwrap();
    let error = bench.get(&format!("tar:{}", outside.display())).await.unwrap_err();
    assert_eq!(error, ImageError::NotAllowed(Refusal::Prefix));
    let error = bench.get("python").await.unwrap_err();
    assert!(matches!(error, ImageError::NotAllowed(Refusal::Kind(_))), "{error}");
    let linked = format!("tar:{}", place.join("link.tar").display());
    let error = bench.get(&linked).await.unwrap_err();
    assert!(matches!(error, ImageError::Unreadable { .. }), "{error}");
    // A folder as an archive would lead the worker to all of the machine.
    let error = bench.get(&format!("tar:{}", place.join("root").display())).await.unwrap_err();
    assert!(matches!(&error, ImageError::Refused { message, .. } if message == "it is not a file"));

    // In place, and without a worker.
    let (root, listener) = (place.join("root"), Listener::default());
    let wanted = format!("dir:{}", root.display()).parse().unwrap();
    let found = bench.images.get(&tenant(), wanted, &listener).await.unwrap();
    assert!(matches!(found, Found::Directory { path, .. } if path == root));
    let found = bench.images.get(&tenant(), "host".parse().unwrap(), &listener).await.unwrap();
    assert!(matches!(found, Found::Host));
    assert_eq!(bench.worker(), None);

    // Whoever has opened a file himself has shown that he may.
    let opened = || Some(fs::File::open(&outside).unwrap().into());
    let wanted = |opened| {
        let reference = format!("tar:{}", outside.display()).parse().unwrap();
        Wanted { reference, opened, policy: engine::images::Policy::default() }
    };
    bench.images.pull(&tenant(), wanted(opened()), &Listener::default()).await.unwrap();
    let writable = fs::File::options().read(true).write(true).open(&outside).unwrap();
    let pulled =
        bench.images.pull(&tenant(), wanted(Some(writable.into())), &Listener::default()).await;
    assert!(matches!(pulled.unwrap_err(), ImageError::Refused { .. }), "the worker could write");
    fs::remove_dir_all(&place).unwrap();
    bench.end();
}
