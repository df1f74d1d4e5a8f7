//! Images from registries: pulled once, told as they come, and whole whatever happens to the worker.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use engine::images::{ImageError, Listener, Part, Settings};
use harness::{
    imaging::{Built, build, small_system},
    packing::{Item, directory, file, item},
    ports::Port,
    registry::{Fake, Real, honest},
};
use images::digest::Digest;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;

use super::bench::{Bench, is_root};
use crate::home::tenant;

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

#[tokio::test]
async fn an_image_comes_from_a_real_registry_with_its_owners_and_deletions() {
    let place = tempfile::tempdir().unwrap();
    let registry = Real::start(place.path(), "");
    let bench = Bench::listing(std::slice::from_ref(&registry.address)).await;
    assert_eq!(bench.worker(), None, "nobody has asked for an image yet");
    let built = build(&[
        vec![
            Item { mode: 0o2750, uid: 7, gid: 8, ..directory("srv") },
            Item { mode: 0o4600, uid: 1000, gid: 65_535, ..file("srv/a", "a") },
            file("etc/motd", "hello"),
            file("etc/gone", "gone"),
        ],
        vec![item(b'0', "etc/.wh.gone"), item(b'0', "srv/.wh..wh..opq"), file("etc/motd", "new")],
    ]);
    registry.push("team/system", "v1", &built);
    let name = format!("{}/team/system:v1", registry.address);
    let listener = Listener::default();
    let pulled = bench.images.pull(&tenant(), name.parse().unwrap(), &listener).await.unwrap();

    assert_eq!((pulled.name.as_str(), pulled.id), (name.as_str(), Digest::of(&built.config)));
    assert_eq!(pulled.manifest, Some(Digest::of(&built.manifest)));
    assert_eq!(
        (pulled.run.env.as_slice(), pulled.run.working_dir.as_str()),
        (&["PATH=/bin".to_owned()][..], "/srv")
    );
    let archives: Vec<Digest> = built.archives.iter().map(|it| Digest::of(it)).collect();
    assert_eq!(pulled.layers, archives);
    let whole = |it: &Vec<u8>| Part { done: it.len() as u64, total: it.len() as u64 };
    let told: Vec<Part> = pulled.layers.iter().map(|it| listener.borrow().layers[it]).collect();
    assert_eq!(told, built.layers.iter().map(whole).collect::<Vec<_>>());

    let (owner, file_owner) = if is_root() { ("7:8", "1000:65535") } else { ("0:0", "0:0") };
    let expected = [
        vec![
            "etc 0:0 directory 755".to_owned(),
            "etc/gone 0:0 file 644 gone".to_owned(),
            "etc/motd 0:0 file 644 hello".to_owned(),
            format!("srv {owner} directory 2750"),
            format!("srv/a {file_owner} file 600 a"),
        ],
        vec![
            "etc 0:0 directory 755".to_owned(),
            "etc/gone 0:0 device 0".to_owned(),
            "etc/motd 0:0 file 644 new".to_owned(),
            "srv 0:0 directory 755".to_owned(),
        ],
    ];
    assert_eq!(bench.layers(&pulled), expected);
    let srv = bench.layer(&pulled.layer_names()[1]).join("srv");
    let mut value = [0; 8];
    let length = rustix::fs::getxattr(&srv, "user.overlay.opaque", &mut value).unwrap();
    assert_eq!(&value[..length], b"y", "as overlays with userxattr want it");

    let missing = format!("{}/team/system:v2", registry.address);
    let error = bench.get(&missing).await.unwrap_err();
    assert!(matches!(&error, ImageError::NotFound { image, .. } if *image == missing), "{error}");
    bench.end();
}

#[tokio::test]
async fn what_is_here_is_used_and_a_pull_brings_it_up_to_date() {
    let (old, new) = (build(&[vec![file("a", "old")]]), build(&[vec![file("a", "new")]]));
    let is_new = Arc::new(AtomicBool::new(false));
    let server = Fake::start({
        let (old, new, is_new) = (old.clone(), new.clone(), is_new.clone());
        move |asked| honest(if is_new.load(Ordering::SeqCst) { &new } else { &old }, asked)
    });
    let bench = Bench::listing(&[server.address.to_string()]).await;
    let name = format!("{}/a", server.address);
    assert_eq!(bench.get(&name).await.unwrap().id, Digest::of(&old.config));
    is_new.store(true, Ordering::SeqCst);
    let asked = server.asked().len();
    assert_eq!(bench.get(&name).await.unwrap().id, Digest::of(&old.config));
    // A worker that knows nothing of it yet answers the same.
    kill(bench.worker().unwrap());
    let full = format!("{name}:latest");
    let listed = bench.images.list(&tenant()).await.unwrap();
    assert_eq!(listed.iter().map(|it| &it.names).collect::<Vec<_>>(), [&[full]]);
    let by_id =
        bench.images.inspect(&tenant(), &Digest::of(&old.config).to_string()).await.unwrap();
    assert_eq!((by_id.id, server.asked().len()), (Digest::of(&old.config), asked));
    let pulled = bench.pull(&name).await.unwrap();
    assert_eq!(pulled.id, Digest::of(&new.config));
    assert_eq!(bench.get(&name).await.unwrap().id, Digest::of(&new.config));

    let by_digest = format!("{}/a@{}", server.address, Digest::of(&new.manifest));
    assert_eq!(bench.pull(&by_digest).await.unwrap().id, Digest::of(&new.config));
    let asked = server.asked().len();
    bench.pull(&by_digest).await.unwrap();
    assert_eq!(server.asked().len(), asked, "a digest means the same for ever");
    bench.end();
}

#[tokio::test]
async fn those_who_want_the_same_share_one_pull_and_all_are_told() {
    let built = small_system();
    let server = Fake::start({
        let built = built.clone();
        move |asked| honest(&built, asked)
    });
    let bench = Bench::listing(&[server.address.to_string()]).await;
    let name = format!("{}/a", server.address);
    let listeners: Vec<Listener> = (0..8).map(|_| Listener::default()).collect();
    let own = tenant();
    let pulls = listeners.iter().map(|it| bench.images.pull(&own, name.parse().unwrap(), it));
    let pulled = futures_util::future::join_all(pulls).await;
    for (pulled, listener) in pulled.iter().zip(&listeners) {
        let pulled = pulled.as_ref().unwrap();
        assert_eq!(pulled.id, Digest::of(&built.config));
        let told = listener.borrow().layers.clone();
        assert!(told.len() == 2 && told.values().all(|it| it.done == it.total), "{told:?}");
    }
    assert_eq!(server.count("/manifests/"), 1);
    bench.end();
}

/// A registry that gives the first half of a layer and then nothing, until it is let on. It says
/// when it has.
struct Stuck {
    server: Fake,
    reached: mpsc::Receiver<()>,
    go_on: Arc<AtomicBool>,
}

impl Stuck {
    fn new(built: &Built) -> Self {
        let (said, reached) = mpsc::channel(16);
        let go_on = Arc::new(AtomicBool::new(false));
        let layer = built.layers[0].clone();
        let path = Digest::of(&layer).to_string();
        let (built, may_go_on) = (built.clone(), go_on.clone());
        let server = Fake::start(move |asked| {
            if !asked.path.ends_with(&path) || may_go_on.load(Ordering::SeqCst) {
                return honest(&built, asked);
            }
            said.try_send(()).unwrap();
            // The answer never ends: the worker waits for the rest until it is killed.
            std::thread::park_timeout(Duration::from_mins(10));
            Vec::new()
        });
        Self { server, reached, go_on }
    }

    async fn reached(&mut self) {
        let reached = tokio::time::timeout(Duration::from_mins(1), self.reached.recv());
        reached.await.expect("the layer is asked for").unwrap();
    }
}

#[tokio::test]
async fn a_worker_killed_in_the_middle_is_told_and_the_next_pull_works() {
    let built = build(&[vec![file("a", "a")], vec![file("b", "b")]]);
    let mut stuck = Stuck::new(&built);
    let bench = Bench::listing(&[stuck.server.address.to_string()]).await;
    let name = format!("{}/a", stuck.server.address);
    for _ in 0..5 {
        let killing = async {
            stuck.reached().await;
            kill(bench.worker().unwrap());
        };
        let (pulled, ()) = tokio::join!(bench.pull(&name), killing);
        let error = pulled.unwrap_err();
        assert_eq!(error, ImageError::Interrupted { image: format!("{name}:latest") });
        assert!(error.is_retryable());
    }
    stuck.go_on.store(true, Ordering::SeqCst);
    let pulled = bench.pull(&name).await.unwrap();
    assert_eq!(pulled.id, Digest::of(&built.config));
    // The answer comes after the worker was told that it need not keep the image.
    assert_eq!(bench.images.list(&tenant()).await.unwrap().len(), 1);
    assert_eq!(bench.unfinished(), Vec::<String>::new());
    assert_eq!(super::bench::names(&bench.root().join("layers")).len(), 2);
    bench.end();
}

/// A snapshot or a sandbox that waits for the image must not be failed by a server that is stopping: the next one
/// continues.
#[tokio::test]
async fn a_pull_that_is_cut_short_by_the_end_of_the_server_reports_that_end() {
    let built = build(&[vec![file("a", "a")]]);
    let mut stuck = Stuck::new(&built);
    let bench = Bench::listing(&[stuck.server.address.to_string()]).await;
    let name = format!("{}/a", stuck.server.address);
    let ending = async {
        stuck.reached().await;
        bench.engine.close();
    };
    let (pulled, ()) = tokio::join!(bench.pull(&name), ending);
    assert_eq!(pulled.unwrap_err(), ImageError::SpawnerGone);
    assert_eq!(bench.get(&name).await.unwrap_err(), ImageError::SpawnerGone);
    bench.end();
}

#[tokio::test]
async fn a_pull_that_nobody_wants_any_more_is_stopped_and_leaves_nothing() {
    let built = build(&[vec![file("a", "a")]]);
    let mut stuck = Stuck::new(&built);
    let bench = Bench::listing(&[stuck.server.address.to_string()]).await;
    let name = format!("{}/a", stuck.server.address);
    let (one, other) = (bench.pull(&name), bench.pull(&name));
    let mut both = Box::pin(futures_util::future::join(one, other));
    tokio::select! {
        biased;
        () = stuck.reached() => {}
        ended = &mut both => panic!("{ended:?}"),
    }
    drop(both);
    // The answer comes after the worker was told to stop.
    assert_eq!(bench.images.list(&tenant()).await.unwrap(), []);
    stuck.go_on.store(true, Ordering::SeqCst);
    let soon = tokio::time::timeout(Duration::from_mins(1), bench.pull(&name));
    let pulled = soon.await.expect("nobody holds what the stopped pull held").unwrap();
    assert_eq!(pulled.id, Digest::of(&built.config));
    drop(pulled);
    bench
        .images
        .remove(
            &tenant(),
            &name,
            &engine::images::InUse::default(),
            &engine::images::InUse::default(),
        )
        .await
        .unwrap();
    bench.assert_empty().await;
    bench.end();
}

#[tokio::test]
async fn a_registry_that_cannot_be_reached_is_told_as_something_that_may_pass() {
    let silent = Port::take();
    let address = format!("127.0.0.1:{}", silent.number);
    let bench = Bench::listing(std::slice::from_ref(&address)).await;
    let error = bench.get(&format!("{address}/a")).await.unwrap_err();
    assert!(matches!(error, ImageError::Unreachable { .. }) && error.is_retryable(), "{error}");
    bench.end();
}

#[tokio::test]
async fn a_name_of_the_machines_own_hosts_file_is_found() {
    let built = build(&[vec![file("a", "a")]]);
    let server = Fake::start({
        let built = built.clone();
        move |asked| honest(&built, asked)
    });
    let registry = format!("localhost:{}", server.address.port());
    let bench = Bench::listing(std::slice::from_ref(&registry)).await;
    let name = format!("{registry}/a");
    assert_eq!(bench.get(&name).await.unwrap().id, Digest::of(&built.config));
    bench.end();
}

#[tokio::test]
async fn a_worker_that_nobody_needs_is_let_go() {
    // It has to be seen before it goes.
    let idle = Duration::from_secs(2);
    let bench = Bench::with(Settings { idle, ..Settings::default() }).await;
    assert_eq!(bench.images.list(&tenant()).await.unwrap(), []);
    let first = bench.worker().expect("it is there for a moment");
    let first = Pid::from_raw(first.cast_signed()).unwrap();
    let flags = rustix::process::PidfdFlags::NONBLOCK;
    if let Ok(process) = rustix::process::pidfd_open(first, flags) {
        let end = tokio::task::spawn_blocking(move || {
            let mut fds = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
            let late = rustix::time::Timespec { tv_sec: 60, tv_nsec: 0 };
            rustix::event::poll(&mut fds, Some(&late))
        });
        assert_eq!(end.await.unwrap(), Ok(1));
    }
    assert_eq!(bench.images.list(&tenant()).await.unwrap(), [], "and another one starts");
    bench.end();
}

#[tokio::test]
async fn an_image_with_more_layers_than_a_sandbox_takes_is_told_as_such() {
    let layers: Vec<Vec<Item>> = (0..129).map(|it| vec![file(format!("{it}"), "x")]).collect();
    let built = build(&layers);
    let server = Fake::start(move |asked| honest(&built, asked));
    let bench = Bench::listing(&[server.address.to_string()]).await;
    let error = bench.get(&format!("{}/a", server.address)).await.unwrap_err();
    assert!(error.to_string().contains("it has 129 layers"), "{error}");
    assert!(matches!(error, ImageError::Unsupported { .. }) && !error.is_retryable());
    bench.end();
}
