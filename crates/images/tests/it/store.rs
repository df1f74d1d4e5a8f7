//! What the store keeps, what it throws away, and what a crash leaves in it.

use std::{collections::BTreeSet, fs, path::Path};

use images::{
    digest::Digest,
    store::{Collected, Form, Image, InUse, Layer, Pin, Quota, Store, StoreError, TenantName},
    unpack::{Limits, Owners, Whiteouts, unpack},
};

use crate::{
    packing::{file, pack},
    tree::{listing, rules},
};

pub(crate) fn form() -> Form {
    let rules = rules();
    Form { whiteouts: rules.whiteouts, owners: rules.owners }
}

fn open(root: &Path) -> Store {
    Store::open(root, form()).unwrap()
}

fn add_layer(store: &Store, content: &str) -> Digest {
    let archive = pack(&[file(content, content)]);
    let diff_id = Digest::of(&archive);
    let new = store.begin_layer().unwrap();
    let report = unpack(&archive[..], new.target(), &store.rules(Limits::default())).unwrap();
    new.commit(&report, diff_id).unwrap();
    diff_id
}

fn owned(name: &str) -> TenantName {
    TenantName { tenant: "default".to_owned(), name: name.to_owned() }
}

fn add_image(store: &Store, name: &str, layers: &[Digest]) -> (Image, Pin) {
    let config =
        serde_json::json!({"os": "linux", "rootfs": {"type": "layers", "diff_ids": layers}});
    let mut pin = store.pin(layers).unwrap();
    let image = store
        .add_image(&mut pin, config.to_string().as_bytes(), None, &owned(name), Quota::default())
        .unwrap();
    (image, pin)
}

/// Returns how many things are in each folder that should be empty.
pub(crate) fn unfinished(root: &Path) -> (usize, usize) {
    let count = |folder: &Path| fs::read_dir(folder).unwrap().count();
    let sessions = fs::read_dir(root.join("work")).unwrap();
    (sessions.map(|it| count(&it.unwrap().path())).sum(), count(&root.join("trash")))
}

#[test]
fn a_layer_appears_whole_under_the_name_of_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let diff_id = add_layer(&store, "a");
    let Layer { path, report } = store.layer(diff_id).unwrap().unwrap();
    assert_eq!(listing(&path), ["a file 644 1 a"]);
    assert_eq!((report.diff_id, report.bytes), (diff_id, 1));
    // The same layer once more, as by another process that was slower.
    assert_eq!(add_layer(&store, "a"), diff_id);
    assert_eq!(unfinished(folder.path()), (0, 0));
}

#[test]
fn a_layer_that_is_not_what_was_expected_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let archive = pack(&[file("a", "a")]);
    let new = store.begin_layer().unwrap();
    let report = unpack(&archive[..], new.target(), &store.rules(Limits::default())).unwrap();
    let error = new.commit(&report, Digest::of(b"another")).unwrap_err();
    assert!(matches!(error, StoreError::Mismatch { .. }), "{error}");
    assert_eq!(store.layer(report.diff_id).unwrap(), None);
    drop(store.begin_layer().unwrap());
    assert_eq!(unfinished(folder.path()), (0, 0));
}

#[test]
fn images_are_found_by_name_and_listed_with_their_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let (base, top) = (add_layer(&store, "base"), add_layer(&store, "top"));
    let (image, _pin) = add_image(&store, "one", &[base, top]);
    add_image(&store, "another", &[base, top]);
    assert_eq!(image.size, 7);
    assert_eq!(image.layers(), [base, top]);
    assert_eq!(store.named("default", "one").unwrap(), Some(image.clone()));
    assert_eq!(store.named("default", "two").unwrap(), None);
    // A store that is opened later has the same.
    let listed = open(folder.path()).images("default").unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].names, ["another", "one"]);
    assert_eq!(listed[0].image, image);
}

#[test]
fn an_image_without_its_layers_is_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let missing = Digest::of(b"missing");
    let config = serde_json::json!({"rootfs": {"diff_ids": [missing]}}).to_string();
    let mut pin = store.pin(&[missing]).unwrap();
    let error = store
        .add_image(&mut pin, config.as_bytes(), None, &owned("a"), Quota::default())
        .unwrap_err();
    assert!(matches!(error, StoreError::MissingLayer(digest) if digest == missing), "{error}");
    assert_eq!(store.images("default").unwrap(), []);
}

#[test]
fn what_names_pins_and_users_reach_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let [shared, one, two, loose] =
        ["shared", "one", "two", "loose"].map(|it| add_layer(&store, it));
    let (first, pin) = add_image(&store, "first", &[shared, one]);
    drop(add_image(&store, "second", &[shared, two]));
    drop(pin);
    let has = |layer| store.layer(layer).unwrap().is_some();

    let in_use = InUse { images: BTreeSet::new(), layers: BTreeSet::from([loose]) };
    assert_eq!(store.collect(&in_use).unwrap(), Collected::default());

    assert!(store.remove_name("default", "first").unwrap());
    assert!(!store.remove_name("default", "first").unwrap());
    let in_use = InUse { images: BTreeSet::from([first.id]), layers: BTreeSet::new() };
    let collected = store.collect(&in_use).unwrap();
    assert_eq!(collected, Collected { images: 0, layers: 1, bytes: 5 });
    assert!(has(shared) && has(one) && has(two) && !has(loose));

    // Another process, as far as the store can tell, holds a layer alone.
    let other = open(folder.path());
    let pin = other.pin(&[one]).unwrap();
    let collected = store.collect(&InUse::default()).unwrap();
    assert_eq!(collected, Collected { images: 1, layers: 0, bytes: 0 });
    assert!(has(one));
    drop(pin);
    let collected = store.collect(&InUse::default()).unwrap();
    assert_eq!(collected, Collected { images: 0, layers: 1, bytes: 3 });
    assert!(has(shared) && !has(one) && has(two));
    assert_eq!(unfinished(folder.path()), (0, 0));
}

#[test]
fn what_a_dead_process_left_is_deleted_and_never_seen() {
    let folder = tempfile::tempdir().unwrap();
    let diff_id = add_layer(&open(folder.path()), "a");
    // As after a kill in the middle of unpacking: a session that nobody holds, with a half layer, a
    // pin, and something half deleted.
    let dead = folder.path().join("work/dead");
    fs::create_dir_all(dead.join("layer-0/fs/deep/tree")).unwrap();
    fs::write(dead.join("pin-0.json"), format!(r#"{{"layers":["{diff_id}"],"image":null}}"#))
        .unwrap();
    fs::create_dir_all(folder.path().join("trash/x/y")).unwrap();
    let store = open(folder.path());
    assert_eq!(unfinished(folder.path()), (0, 0));
    assert!(!dead.exists());
    assert_eq!(store.collect(&InUse::default()).unwrap().layers, 1);
    assert_eq!(store.layer(diff_id).unwrap(), None);
}

#[test]
fn a_damaged_record_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let layer = add_layer(&store, "a");
    fs::write(folder.path().join("tags/x.json"), "{").unwrap();
    let error = store.collect(&InUse::default()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(store.layer(layer).unwrap().is_some());
}

#[test]
fn a_store_keeps_its_form_and_refuses_a_newer_version() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let other = Form { whiteouts: Whiteouts::Trusted, owners: Owners::Kept { below: 7 } };
    let error = Store::open(folder.path(), other).unwrap_err();
    assert!(matches!(error, StoreError::Form(_)), "{error}");
    let header = folder.path().join("store.json");
    let newer = fs::read_to_string(&header).unwrap().replace("\"version\": 1", "\"version\": 2");
    fs::write(&header, newer).unwrap();
    let error = Store::open(folder.path(), form()).unwrap_err();
    assert!(matches!(error, StoreError::Version { found: 2, .. }), "{error}");
}

#[test]
fn names_of_a_store_without_tenants_are_the_first_tenants() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let base = add_layer(&store, "a");
    let (image, _pin) = add_image(&store, "one", &[base]);
    // As the version before wrote it: a name and an image.
    let tags = folder.path().join("tags");
    let path = tags.join(format!("{}.json", Digest::of(b"one").hex()));
    fs::write(&path, format!(r#"{{"name":"one","image":"{}"}}"#, image.id)).unwrap();
    assert_eq!(store.named("default", "one").unwrap(), Some(image.clone()));
    assert_eq!(store.images("default").unwrap().len(), 1);
    assert_eq!(store.named("other", "one").unwrap(), None);
    assert_eq!(store.images("other").unwrap(), []);
    assert_eq!(store.image_of("default", image.id).unwrap(), Some(image.clone()));
    assert_eq!(store.image_of("other", image.id).unwrap(), None);
}
