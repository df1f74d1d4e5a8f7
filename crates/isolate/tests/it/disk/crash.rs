//! A server that is killed at any moment leaves what the next one can go on with.

use std::{fs, os::fd::OwnedFd, path::Path, process::Command};

use harness::disks::{End, Script};
use isolate::disk::{DiskError, DiskKind};
use rustix::fs::fstat;

use super::place::{
    LASTING, MIB, directory, fill, is_full, loop_devices, name, names, on_each, on_kind, open,
    promised, put, read, try_open,
};

/// Everything that is ever done, so that each step comes up at least once.
const WORDS: &str =
    "make first 16 limit first 64 remove first allow third 16 remove third make second 16";

#[test]
fn whatever_step_project_quota_is_killed_after_the_next_server_goes_on() {
    whatever_step_it_dies_after_the_next_one_goes_on(DiskKind::Quota);
}

#[test]
fn whatever_step_btrfs_is_killed_after_the_next_server_goes_on() {
    whatever_step_it_dies_after_the_next_one_goes_on(DiskKind::Btrfs);
}

#[test]
fn whatever_step_an_image_is_killed_after_the_next_server_goes_on() {
    whatever_step_it_dies_after_the_next_one_goes_on(DiskKind::Image);
}

fn whatever_step_it_dies_after_the_next_one_goes_on(kind: DiskKind) {
    let mut step = 1;
    while on_kind(kind, |data| dies_and_goes_on(data, kind, step)) == End::Died {
        step += 1;
        assert!(step < 200, "the script never ends");
    }
    eprintln!("{kind}: {step} steps");
}

fn dies_and_goes_on(data: &Path, kind: DiskKind, step: usize) -> End {
    let script = Script { data, kind, words: WORDS, last_step: Some(step) };
    let end = script.run().unwrap();
    let disks = open(data, kind);
    let found = disks.names().unwrap();
    assert!(end == End::Died || found == [name("second")], "{kind} {step}: {found:?}");
    for found in found {
        let volume = disks.open_volume(&found).unwrap();
        let (wrote, errno) = fill(&volume, "file", 128 * MIB);
        assert!(is_full(errno), "{kind} {step} {found:?}: {errno:?} after {wrote}");
        drop(volume);
        disks.remove(&found).unwrap();
    }
    let volume = disks.make(&name("first"), promised(16)).unwrap();
    assert!(is_full(fill(&volume, "file", 64 * MIB).1), "{kind} {step}");
    assert_eq!(names(&disks), ["first"], "{kind} {step}");
    // That of the pool, of the image, or of the data directory with its quota.
    assert_eq!(loop_devices(data).len(), 1, "{kind} {step}");
    assert_eq!(unfinished(data), Vec::<String>::new(), "{kind} {step}");
    end
}

/// What is left that was being made or removed.
fn unfinished(data: &Path) -> Vec<String> {
    let folders = ["", "pool", "images", "mounts", "directories"];
    let folders = folders.iter().map(|folder| data.join("disks").join(folder));
    let entries = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains('-')).collect()
}

/// The sandboxes of a killed server go on, in their own namespaces, with the mounts that they have.
#[test]
fn what_a_killed_server_left_running_and_the_next_server_share_the_volumes() {
    on_each(&[DiskKind::Btrfs, DiskKind::Image], |data, kind| {
        let script = Script { data, kind, words: "make volume 64 hold", last_step: None };
        let mut worker = script.begin().unwrap();
        worker.wait_until_done().unwrap();
        let old = seen_by(worker.id(), data, kind);
        put(&old, "before", "the kill");
        worker.kill().unwrap();

        let disks = open(data, kind);
        let new = disks.open_volume(&name("volume")).unwrap();
        assert_eq!(loop_devices(data).len(), 1, "{kind}");
        let number = |volume: &OwnedFd| {
            let found = fstat(volume).unwrap();
            (found.st_dev, found.st_ino)
        };
        assert_eq!(number(&old), number(&new), "{kind}");
        assert_eq!(read(&new, "before"), "the kill");
        put(&new, "new", "from the new one");
        put(&old, "old", "from the old one");
        assert_eq!((read(&old, "new"), read(&new, "old")).0, "from the new one");
        assert_eq!(read(&new, "old"), "from the old one");
        assert!(is_full(fill(&old, "file", 128 * MIB).1), "{kind}");
        let other = disks.make(&name("other"), promised(32)).unwrap();
        assert_eq!(fill(&other, "file", 8 * MIB), (8 * MIB, None), "{kind}");

        // When all are gone the device is gone too, and the file system is whole.
        drop((old, new, other, disks));
        worker.end_held().unwrap();
        for point in super::place::mounts(data) {
            rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH).unwrap();
        }
        assert_eq!(loop_devices(data), Vec::<String>::new(), "{kind}");
        check(data, kind);
    });
}

/// The volume as a process sees it, which has it mounted.
fn seen_by(pid: u32, data: &Path, kind: DiskKind) -> OwnedFd {
    let folder = if kind == DiskKind::Btrfs { "pool" } else { "mounts" };
    let data = data.strip_prefix("/").unwrap();
    let root = Path::new("/proc").join(pid.to_string()).join("root").join(data);
    directory(&root.join("disks").join(folder).join("volume"))
}

fn check(data: &Path, kind: DiskKind) {
    let disks = data.join("disks");
    let output = if kind == DiskKind::Btrfs {
        let _mounted = open(data, kind);
        Command::new("btrfs").args(["scrub", "start", "-B", "-R"]).arg(disks.join("pool")).output()
    } else {
        Command::new("e2fsck").args(["-f", "-n"]).arg(disks.join("images/volume")).output()
    };
    let output = output.unwrap();
    assert!(output.status.success(), "{kind}: {output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    let is_error = |line: &&str| line.contains("errors:") && !line.trim().ends_with(": 0");
    assert_eq!(said.lines().find(is_error), None, "{kind}");
}

#[test]
fn a_volume_is_as_it_was_when_everything_was_killed() {
    on_each(&LASTING, |data, kind| {
        let script = Script { data, kind, words: "make volume 64", last_step: None };
        let mut worker = script.begin().unwrap();
        worker.wait_until_done().unwrap();
        if kind != DiskKind::Quota {
            put(&seen_by(worker.id(), data, kind), "file", "written");
        }
        worker.kill().unwrap();
        let disks = open(data, kind);
        assert_eq!(names(&disks), ["volume"]);
        let volume = disks.open_volume(&name("volume")).unwrap();
        if kind != DiskKind::Quota {
            assert_eq!(read(&volume, "file"), "written");
        }
        assert!(is_full(fill(&volume, "more", 128 * MIB).1), "{kind}");
    });
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    on_each(&LASTING, |data, kind| {
        let first = open(data, kind);
        assert!(matches!(try_open(data, kind), Err(DiskError::InUse)), "{kind}");
        drop(first);
        assert!(try_open(data, kind).is_ok(), "{kind}");
    });
}

/// As the spawner works: each job in a process of its own.
#[test]
fn what_a_forked_worker_does_is_seen_by_all() {
    let words = "fork make first 32 make second 32 limit first 64 remove second usage first";
    on_each(&LASTING, |data, kind| {
        let end = Script { data, kind, words, last_step: None }.run().unwrap();
        assert_eq!(end, End::Done, "{kind}");
        assert_eq!(names(&open(data, kind)), ["first"], "{kind}");
    });
}
