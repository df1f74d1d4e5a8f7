//! Two layers under the kernel's own overlay: what the second deletes is gone.

use std::{env, fs, path::Path, process::Command};

use images::unpack::{Limits, Owners, Rules, Whiteouts};

use crate::{
    packing::{Item, directory, file, item, pack},
    tree::unpack_to,
};

/// Where the child of a test finds its work.
const FOLDER: &str = "RINGFENCE_TEST_FOLDER";

fn lower() -> Vec<Item> {
    vec![
        file("kept", "lower"),
        file("gone", "lower"),
        file("replaced", "lower"),
        file("opaque/lower", "lower"),
        file("again/lower", "lower"),
        file("after/lower", "lower"),
    ]
}

fn upper() -> Vec<Item> {
    vec![
        item(b'0', ".wh.gone"),
        file("replaced", "upper"),
        item(b'0', "opaque/.wh..wh..opq"),
        file("opaque/upper", "upper"),
        // A directory that was deleted and made anew, in both orders.
        item(b'0', ".wh.again"),
        directory("again"),
        file("again/upper", "upper"),
        file("after/upper", "upper"),
        item(b'0', ".wh.after"),
    ]
}

const SEEN: &str = "after after/upper again again/upper kept opaque opaque/upper replaced";

fn make_layers(folder: &Path, whiteouts: Whiteouts) {
    for (name, items) in [("lower", lower()), ("upper", upper())] {
        let target = folder.join(name);
        fs::create_dir(&target).unwrap();
        let owners = Owners::Kept { below: 1 };
        let rules = Rules { limits: Limits::default(), whiteouts, owners };
        unpack_to(&pack(&items), &target, &rules).unwrap();
    }
    fs::create_dir(folder.join("merged")).unwrap();
}

/// Mounts in a namespace of its own and lists what is to be seen.
fn seen(unshare: &mut Command, folder: &Path, option: &str) -> String {
    let script = format!(
        "mount -t overlay overlay -o ro,{option}lowerdir=upper:lower merged && \
         cd merged && find . -mindepth 1 -printf '%P\\n' | sort | tr '\\n' ' '"
    );
    let output = unshare.args(["sh", "-c", &script]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn an_overlay_of_real_root_shows_what_the_layers_say() {
    // Only real root can write the attributes of this form.
    harness::needs::require_root();
    let folder = tempfile::tempdir().unwrap();
    make_layers(folder.path(), Whiteouts::Trusted);
    assert_eq!(seen(Command::new("unshare").arg("--mount"), folder.path(), ""), SEEN);
}

#[test]
fn an_overlay_in_a_user_namespace_shows_what_the_layers_say() {
    if let Ok(folder) = env::var(FOLDER) {
        return make_layers(Path::new(&folder), Whiteouts::User);
    }
    let folder = tempfile::tempdir().unwrap();
    let this = env::current_exe().unwrap();
    let name = "overlay::an_overlay_in_a_user_namespace_shows_what_the_layers_say";
    let made = Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .arg(this)
        .args(["--exact", name])
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
    assert!(folder.path().join("merged").is_dir(), "the child of this test did nothing");
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount"]);
    assert_eq!(seen(&mut unshare, folder.path(), "userxattr,"), SEEN);
}
