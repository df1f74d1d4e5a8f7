//! What is here: listed, removed, and collected when nobody needs it.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use engine::images::{Collected, Found, ImageError, InUse, Listener, Summary};
use harness::{
    imaging::build,
    packing::file,
    registry::{Fake, honest},
};
use images::digest::Digest;

use super::bench::{Bench, names};
use crate::home::tenant;

#[tokio::test]
async fn images_are_listed_removed_and_collected_but_never_in_use() {
    let shared = file("shared", "shared");
    let (one, other) = (
        build(&[vec![shared.clone()], vec![file("one", "1")]]),
        build(&[vec![shared], vec![file("other", "22")]]),
    );
    let servers =
        [one.clone(), other.clone()].map(|built| Fake::start(move |it| honest(&built, it)));
    let [name, other_name] = servers.each_ref().map(|it| format!("{}/a", it.address));
    let bench = Bench::listing(&servers.each_ref().map(|it| it.address.to_string())).await;
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
    assert_eq!(bench.images.list(&tenant()).await.unwrap(), expected);
    assert_eq!(bench.images.collect(&InUse::default()).await.unwrap(), Collected::default());

    let error = bench
        .images
        .remove(&tenant(), &name, &InUse::default(), &InUse::default())
        .await
        .unwrap_err();
    assert_eq!(error, ImageError::InUse { image: full.clone() }, "somebody is about to use it");
    drop(pulled);
    let images = BTreeSet::from([Digest::of(&one.config)]);
    let in_use = InUse { images, ..InUse::default() };
    let by_id = Digest::of(&one.config).to_string();
    for named in [&name, &by_id] {
        let error = bench.images.remove(&tenant(), named, &in_use, &in_use).await.unwrap_err();
        assert!(matches!(error, ImageError::InUse { .. }), "{error}");
    }
    let removed =
        bench.images.remove(&tenant(), &by_id, &InUse::default(), &InUse::default()).await.unwrap();
    assert_eq!(removed, Collected { images: 1, layers: 1, bytes: 1 });
    assert_eq!(names(&bench.root().join("layers")).len(), 2);
    let error = bench
        .images
        .remove(&tenant(), &name, &InUse::default(), &InUse::default())
        .await
        .unwrap_err();
    assert_eq!(error, ImageError::Unknown { image: full.clone() });
    assert_eq!(
        bench.images.inspect(&tenant(), &name).await.unwrap_err(),
        ImageError::Unknown { image: full }
    );

    // Layers that a sandbox has stay, whatever becomes of their image.
    let layers = BTreeSet::from([Digest::of(&other.archives[1])]);
    let in_use = InUse { layers, ..InUse::default() };
    let removed = bench.images.remove(&tenant(), &other_name, &in_use, &in_use).await.unwrap();
    assert_eq!(removed, Collected { images: 1, layers: 1, bytes: 6 });
    assert_eq!(bench.images.collect(&InUse::default()).await.unwrap().layers, 1);
    bench.assert_empty().await;
    // What was known here was forgotten with it.
    assert_eq!(bench.get(&name).await.unwrap().id, Digest::of(&one.config));
    bench.end();
}

#[tokio::test]
async fn names_belong_to_a_tenant_and_another_neither_sees_nor_removes_nor_gets_them() {
    let (planted, honest_one) =
        (build(&[vec![file("a", "bad")]]), build(&[vec![file("a", "good")]]));
    let is_honest = Arc::new(AtomicBool::new(false));
    let server = Fake::start({
        let is_honest = is_honest.clone();
        let (planted, honest_one) = (planted.clone(), honest_one.clone());
        move |asked| {
            honest(if is_honest.load(Ordering::SeqCst) { &honest_one } else { &planted }, asked)
        }
    });
    let bench = Bench::listing(&[server.address.to_string()]).await;
    let name = format!("{}/app:latest", server.address);
    let (planter, other) = ("planter".parse().unwrap(), "other".parse().unwrap());
    let listener = Listener::default();
    bench.images.pull(&planter, name.parse().unwrap(), &listener).await.unwrap();
    is_honest.store(true, Ordering::SeqCst);

    assert_eq!(bench.images.list(&other).await.unwrap(), []);
    let id = Digest::of(&planted.config).to_string();
    for named in [&name, &id] {
        let unknown = ImageError::Unknown { image: named.clone() };
        assert_eq!(bench.images.inspect(&other, named).await.unwrap_err(), unknown);
        let none = InUse::default();
        let refused = bench.images.remove(&other, named, &none, &none).await.unwrap_err();
        assert_eq!(refused, unknown);
    }
    let got = bench.images.get(&other, name.parse().unwrap(), &listener).await.unwrap();
    let Found::Image(got) = got else { panic!("{got:?}") };
    assert_eq!(got.id, Digest::of(&honest_one.config), "not what the other tenant has planted");
    drop(got);
    assert_eq!(bench.images.list(&planter).await.unwrap().len(), 1);
    // That another tenant uses an image keeps nobody from removing his own name for it.
    let in_use = InUse { images: [Digest::of(&planted.config)].into(), ..InUse::default() };
    bench.images.remove(&planter, &name, &InUse::default(), &in_use).await.unwrap();
    assert_eq!(bench.images.list(&planter).await.unwrap(), []);
    assert_eq!(bench.images.list(&other).await.unwrap().len(), 1);
    bench.end();
}

#[tokio::test]
async fn removing_while_others_pull_leaves_every_image_whole_that_somebody_holds() {
    let built = build(&[vec![file("a", "a")], vec![file("b", "b")]]);
    let server = Fake::start(move |asked| honest(&built, asked));
    let bench = Bench::listing(&[server.address.to_string()]).await;
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
            match bench.images.remove(&tenant(), &name, &InUse::default(), &InUse::default()).await
            {
                Ok(_) | Err(ImageError::InUse { .. } | ImageError::Unknown { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    };
    tokio::join!(pulling, removing);
    bench.end();
}
