//! Layers that attack (P20, X08): refused in the worker, which lives on, and nothing is left.

use std::sync::{Arc, Mutex};

use engine::images::{ImageError, InUse, Limits, Settings};
use harness::{
    imaging::{Built, build, gzip, manifest},
    packing::{Item, directory, extended, file, hard, item, pack, symbolic},
    registry::{Asked, Fake, honest, missing},
};
use images::digest::Digest;

use super::bench::{Bench, listing};

type Answer = dyn Fn(&Asked) -> Vec<u8> + Send + Sync;

/// A registry whose one image can be exchanged.
struct Changing {
    server: Fake,
    answer: Arc<Mutex<Box<Answer>>>,
}

impl Changing {
    fn start() -> Self {
        let answer: Arc<Mutex<Box<Answer>>> = Arc::new(Mutex::new(Box::new(|_| missing())));
        let current = answer.clone();
        let server = Fake::start(move |asked| (current.lock().unwrap())(asked));
        Self { server, answer }
    }

    fn address(&self) -> String {
        self.server.address.to_string()
    }

    fn serves(&self, built: &Built) {
        let built = built.clone();
        self.answers(move |asked| honest(&built, asked));
    }

    fn answers(&self, answer: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) {
        *self.answer.lock().unwrap() = Box::new(answer);
    }
}

async fn refusal(bench: &Bench, registry: &Changing, built: &Built) -> String {
    registry.serves(built);
    match bench.get(&format!("{}/a", registry.address())).await.unwrap_err() {
        ImageError::Refused { message, .. } => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn p20_x08_hostile_layers_are_refused_and_the_worker_lives_on() {
    let registry = Changing::start();
    let bench = Bench::listing(&[registry.address()]).await;
    let rows: &[(&[Item], &str)] = &[
        (&[item(b'3', "null")], "has the device"),
        (&[item(b'4', "a/sda")], "has the device"),
        (&[file("../a", "x")], "is not allowed"),
        (&[directory("..")], "is not allowed"),
        (&[symbolic("a", "/etc"), file("a/passwd", "x")], "on the way to"),
        (&[symbolic("a", "../../../.."), directory("a/b")], "on the way to"),
        (&[hard("a", "/etc/passwd")], "to what is no file of it"),
        (&[symbolic("dev", "/tmp")], "is not a directory"),
        (&[symbolic("proc", "etc")], "is not a directory"),
        (&[extended(&[("path", b"a"), ("path", b"b")]), file("c", "x")], "read in two ways"),
        (
            &[extended(&[("SCHILY.xattr.user.a", &vec![b'x'; 70_000])]), file("a", "x")],
            "attributes",
        ),
        (&[Item { uid: 1 << 31, ..file("a", "x") }], "belongs to 2147483648"),
    ];
    let mut worker = None;
    for (items, expected) in rows {
        if !super::bench::is_root() && expected.starts_with("belongs") {
            continue;
        }
        let message = refusal(&bench, &registry, &build(&[items.to_vec()])).await;
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains("/var/"), "where the worker has its folder: {message}");
        let now = bench.worker();
        assert!(now.is_some() && worker.is_none_or(|before| before == now), "it was restarted");
        worker = Some(now);
    }
    bench.assert_empty().await;
    // Absolute names are names inside, whatever stands there on the machine.
    let built = build(&[vec![file("/etc/passwd", "inside")]]);
    registry.serves(&built);
    let image = bench.get(&format!("{}/a", registry.address())).await.unwrap();
    let expected = ["etc 0:0 directory 755", "etc/passwd 0:0 file 644 inside"];
    assert_eq!(bench.layers(&image), [expected]);
    bench.end();
}

#[tokio::test]
async fn a_bomb_and_content_under_a_wrong_digest_are_refused() {
    let limits = Limits { ratio: 20, ratio_from: 64 << 10, ..Limits::default() };
    let registry = Changing::start();
    let bench = Bench::with(Settings { limits, ..listing(&[registry.address()]) }).await;
    let bomb = build(&[vec![file("zeros", vec![0; 4 << 20])]]);
    let message = refusal(&bench, &registry, &bomb).await;
    assert!(message.contains("more than 20 times its compressed size"), "{message}");

    // The blob is what its digest says, but not what the configuration says of its content.
    let honest_one = build(&[vec![file("a", "a")]]);
    let layers = vec![gzip(&pack(&[file("a", "other")]))];
    let manifest = manifest(&honest_one.config, &layers);
    let other_content = Built { layers, manifest, ..honest_one.clone() };
    let message = refusal(&bench, &registry, &other_content).await;
    assert!(message.contains("the layer is sha256:"), "{message}");

    // The blob is not what its digest says.
    let path = Digest::of(&honest_one.layers[0]).to_string();
    let mut damaged = honest_one.layers[0].clone();
    *damaged.last_mut().unwrap() ^= 1;
    registry.answers(move |asked| {
        let mut answer = honest(&honest_one, asked);
        if asked.path.ends_with(&path) {
            let start = answer.len() - damaged.len();
            answer[start..].copy_from_slice(&damaged);
        }
        answer
    });
    let error = bench.get(&format!("{}/a", registry.address())).await.unwrap_err();
    assert!(error.to_string().contains("what should be sha256:"), "{error}");
    assert_eq!(bench.images.collect(&InUse::default()).await.unwrap().images, 0);
    bench.assert_empty().await;
    bench.end();
}
