//! Several processes on one store, processes that are killed, and disks that are full.

use std::{
    env, fs,
    io::{self, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use images::{
    digest::Digest,
    pull::{Listener, Puller, Settings},
    store::{InUse, Store},
    unpack::{Limits, unpack},
};

use crate::{
    imaging::build,
    packing::{Item, file, pack},
    server::{Fake, honest, unchecked_connector},
    store::{form, unfinished},
    tree::chain,
};

/// Where the child of a test finds its store, and what it shall pull.
const STORE: &str = "RINGFENCE_TEST_STORE";
const IMAGE: &str = "RINGFENCE_TEST_IMAGE";

fn child(test: &str, store: &Path, image: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test])
        .env(STORE, store)
        .env(IMAGE, image)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn unpack_input(root: &str) {
    let store = Store::open(Path::new(root), form()).unwrap();
    let new = store.begin_layer().unwrap();
    let report = unpack(io::stdin(), new.target(), &store.rules(Limits::default())).unwrap();
    new.commit(&report, report.diff_id).unwrap();
}

#[test]
fn a_kill_while_unpacking_leaves_nothing_that_looks_whole() {
    if let Ok(root) = env::var(STORE) {
        return unpack_input(&root);
    }
    let name = "killing::a_kill_while_unpacking_leaves_nothing_that_looks_whole";
    let items: Vec<Item> =
        (0..400).map(|number| file(format!("d{number}/file"), vec![b'x'; 2000])).collect();
    let archive = pack(&items);
    let diff_id = Digest::of(&archive);
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    for part in [2, 3, 4, 5, 6, 7, 8] {
        let mut child = child(name, &root, "");
        // A pipe holds 64 KiB: once this is written, the child has read the rest of it.
        let written = &archive[..archive.len() * part / 8 - 1024];
        child.stdin.as_mut().unwrap().write_all(written).unwrap();
        let work = root.join("work");
        assert_ne!(unfinished(&root), (0, 0), "the child had nothing unfinished");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_ne!(fs::read_dir(&work).unwrap().count(), 0);
        let store = Store::open(&root, form()).unwrap();
        assert_eq!(store.layer(diff_id).unwrap(), None);
        assert_eq!(unfinished(&root), (0, 0));
    }
    let mut child = child(name, &root, "");
    child.stdin.take().unwrap().write_all(&archive).unwrap();
    assert!(child.wait().unwrap().success());
    let layer = Store::open(&root, form()).unwrap().layer(diff_id).unwrap().unwrap();
    assert_eq!(layer.report.bytes, 800_000);
}

#[test]
fn processes_that_want_the_same_layer_fetch_it_once() {
    if let (Ok(root), Ok(image)) = (env::var(STORE), env::var(IMAGE)) {
        let store = Store::open(Path::new(&root), form()).unwrap();
        let puller = Puller::new(store, Settings::default());
        let listener = Listener::default();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let reference = image.parse().unwrap();
        runtime
            .block_on(puller.pull("default", &reference, &unchecked_connector(), &listener))
            .unwrap();
        return;
    }
    let built = build(&[vec![file("a", vec![b'a'; 300_000])], vec![file("b", "b")]]);
    let layers: Vec<String> = built.layers.iter().map(|it| Digest::of(it).to_string()).collect();
    let server = Fake::start(move |asked| honest(&built, asked));
    let folder = tempfile::tempdir().unwrap();
    let name = "killing::processes_that_want_the_same_layer_fetch_it_once";
    let image = format!("{}/a", server.address);
    let children: Vec<Child> = (0..4).map(|_| child(name, folder.path(), &image)).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(server.count("/manifests/"), 4);
    for layer in layers {
        assert_eq!(server.count(&layer), 1);
    }
    assert_eq!(unfinished(folder.path()), (0, 0));
}

fn pull_onto_a_full_disk(root: &str, image: &str) {
    let store = Store::open(Path::new(root), form()).unwrap();
    let puller = Puller::new(store, Settings::default());
    let listener = Listener::default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let pulled = runtime.block_on(puller.pull(
        "default",
        &image.parse().unwrap(),
        &unchecked_connector(),
        &listener,
    ));
    let error = chain(&pulled.unwrap_err());
    // While it is fetched, or before it is unpacked.
    let told = ["No space left on device", "no room for more images"];
    assert!(told.iter().any(|it| error.contains(it)), "{error}");
    assert_eq!(unfinished(Path::new(root)), (0, 0));
    assert_eq!(puller.store().collect(&InUse::default()).unwrap().layers, 0);
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    if let (Ok(root), Ok(image)) = (env::var(STORE), env::var(IMAGE)) {
        return pull_onto_a_full_disk(&root, &image);
    }
    // One does not fit while it is fetched, and the other when it is unpacked.
    let noise = (0..50_000_u32).flat_map(|it| Digest::of(&it.to_be_bytes()).hex().into_bytes());
    let noise: Vec<u8> = noise.collect();
    let mut sizes = Vec::new();
    for content in [noise, vec![0; 3_000_000]] {
        let built = build(&[vec![file("a", content)]]);
        sizes.push(built.layers[0].len());
        let server = Fake::start(move |asked| honest(&built, asked));
        let folder = tempfile::tempdir().unwrap();
        let script =
            "mount -t tmpfs -o size=1m,mode=700 tmpfs \"$1\" && exec \"$2\" --exact \"$3\"";
        let name = "killing::a_full_disk_is_told_and_leaves_nothing";
        let output = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
            .arg(folder.path())
            .arg(env::current_exe().unwrap())
            .arg(name)
            .env(STORE, folder.path())
            .env(IMAGE, format!("{}/a", server.address))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(server.count("/manifests/"), 1, "the child of this test did nothing");
    }
    assert!(sizes[0] > 1 << 20 && sizes[1] < 1 << 19, "{sizes:?}");
}
