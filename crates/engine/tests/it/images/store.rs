//! What is here: listed, removed, and collected when nobody needs it.

use std::collections::BTreeSet;

use engine::images::{Collected, ImageError, InUse, Summary};
use harness::{
    imaging::build,
    packing::file,
    registry::{Fake, honest},
};
use images::digest::Digest;

use super::bench::{Bench, names};

#[tokio::test]
async fn images_are_listed_removed_and_collected_but_never_in_use() {
    let bench = Bench::new().await;
    let shared = file("shared", "shared");
    let (one, other) = (
        build(&[vec![shared.clone()], vec![file("one", "1")]]),
        build(&[vec![shared], vec![file("other", "22")]]),
    );
    let servers =
        [one.clone(), other.clone()].map(|built| Fake::start(move |it| honest(&built, it)));
    let [name, other_name] = servers.each_ref().map(|it| format!("{}/a", it.address));
    let full = format!("{name}:latest");
    let pulled = bench.get(&name).await.unwrap();
    drop(bench.get(&other_name).await.unwrap());

    let summary = |built: &harness::imaging::Built, name: &str, size| Summary {
        id: Digest::of(&built.config),
        manifest: Some(Digest::of(&built.manifest)),
        names: vec![format!("{name}:latest")],
        size,
    };
    let mut expected = vec![summary(&one, &name, 7), summary(&other, &other_name, 8)];
    expected.sort_by(|a, b| a.names.cmp(&b.names));
    assert_eq!(bench.images.list().await.unwrap(), expected);
    assert_eq!(bench.images.collect(&InUse::default()).await.unwrap(), Collected::default());

    let error = bench.images.remove(&name, &InUse::default()).await.unwrap_err();
    assert_eq!(error, ImageError::InUse { image: full.clone() }, "somebody is about to use it");
    drop(pulled);
    let images = BTreeSet::from([Digest::of(&one.config)]);
    let in_use = InUse { images, ..InUse::default() };
    let by_id = Digest::of(&one.config).to_string();
    for named in [&name, &by_id] {
        let error = bench.images.remove(named, &in_use).await.unwrap_err();
        assert!(matches!(error, ImageError::InUse { .. }), "{error}");
    }
    let removed = bench.images.remove(&by_id, &InUse::default()).await.unwrap();
    assert_eq!(removed, Collected { images: 1, layers: 1, bytes: 1 });
    assert_eq!(names(&bench.root().join("layers")).len(), 2);
    let error = bench.images.remove(&name, &InUse::default()).await.unwrap_err();
    assert_eq!(error, ImageError::Unknown { image: full.clone() });
    assert_eq!(bench.images.inspect(&name).await.unwrap_err(), ImageError::Unknown { image: full });

    // Layers that a sandbox has stay, whatever becomes of their image.
    let layers = BTreeSet::from([Digest::of(&other.archives[1])]);
    let in_use = InUse { layers, ..InUse::default() };
    let removed = bench.images.remove(&other_name, &in_use).await.unwrap();
    assert_eq!(removed, Collected { images: 1, layers: 1, bytes: 6 });
    assert_eq!(bench.images.collect(&InUse::default()).await.unwrap().layers, 1);
    bench.assert_empty().await;
    // What was known here was forgotten with it.
    assert_eq!(bench.get(&name).await.unwrap().id, Digest::of(&one.config));
    bench.end();
}

#[tokio::test]
async fn removing_while_others_pull_leaves_every_image_whole_that_somebody_holds() {
    let bench = Bench::new().await;
    let built = build(&[vec![file("a", "a")], vec![file("b", "b")]]);
    let server = Fake::start(move |asked| honest(&built, asked));
    let name = format!("{}/a", server.address);
    let pulling = async {
        for _ in 0..20 {
            let image = bench.get(&name).await.unwrap();
            for layer in image.layer_names() {
                assert_eq!(names(&bench.layer(&layer)).len(), 1);
            }
        }
    };
    let removing = async {
        for _ in 0..40 {
            match bench.images.remove(&name, &InUse::default()).await {
                Ok(_) | Err(ImageError::InUse { .. } | ImageError::Unknown { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    };
    tokio::join!(pulling, removing);
    bench.end();
}
