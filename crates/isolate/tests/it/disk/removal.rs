//! Nothing is left of a volume that was removed.

use std::{
    fs,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use isolate::{
    disk::{DiskKind, Disks, Reason},
    sys::btrfs::create_subvolume,
};
use rustix::{
    fs::{CWD, Mode, OFlags, mkdirat, openat},
    io::Errno,
};

use super::place::{
    LASTING, MIB, fill, is_full, loop_devices, mounts, name, names, on_data_directory, on_each,
    open, promised, put, small_data_directory,
};

#[test]
fn removing_is_done_once_and_asked_for_often() {
    on_each(&LASTING, |data, kind| {
        let disks = open(data, kind);
        put(&disks.make(&name("volume"), promised(32)).unwrap(), "file", "old");
        disks.make(&name("neighbour"), promised(32)).unwrap();
        for _ in 0..2 {
            disks.remove(&name("volume")).unwrap();
            assert_eq!(names(&disks), ["neighbour"], "{kind}");
        }
        assert_eq!(disks.open_volume(&name("volume")).unwrap_err().reason(), Reason::Missing);
        assert_eq!(disks.usage(&name("volume")).unwrap_err().reason(), Reason::Missing);
        // The name can be taken again, and nothing of the old volume is in it.
        let again = disks.make(&name("volume"), promised(32)).unwrap();
        let found = openat(&again, "file", OFlags::RDONLY, Mode::empty());
        assert_eq!(found.unwrap_err(), Errno::NOENT, "{kind}");
        assert_eq!(disks.make(&name("volume"), promised(32)).unwrap_err().reason(), Reason::Exists);
        assert_eq!(names(&disks), ["neighbour", "volume"], "{kind}");
    });
}

/// The data directory has room for two volumes; ten are made and filled one after the other.
#[test]
fn space_comes_back() {
    on_each(&[DiskKind::Btrfs, DiskKind::Image], |outer, kind| {
        let data = small_data_directory(outer, 480 * MIB);
        let disks = open(&data, kind);
        for number in 0..10 {
            let volume = disks.make(&name("volume"), promised(96)).unwrap();
            let wrote = fill(&volume, "file", 64 * MIB);
            assert_eq!(wrote, (64 * MIB, None), "{kind} {number}");
            drop(volume);
            disks.remove(&name("volume")).unwrap();
        }
    });
}

#[test]
fn two_hundred_cycles_leave_nothing() {
    on_each(&LASTING, |data, kind| {
        let disks = open(data, kind);
        let before = traces(data, &disks);
        for number in 0..200 {
            let one = name(&format!("volume_{number}"));
            put(&disks.make(&one, promised(16)).unwrap(), "file", "x");
            disks.remove(&one).unwrap();
        }
        assert_eq!(traces(data, &disks), before, "{kind}");
    });
}

#[derive(Debug, PartialEq, Eq)]
struct Traces {
    names: Vec<String>,
    loops: Vec<String>,
    mounts: Vec<String>,
    files: Vec<String>,
    descriptors: usize,
}

fn traces(data: &Path, disks: &Disks) -> Traces {
    let mut files = Vec::new();
    let mut folders = vec![data.join("disks")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            files.push(entry.path().to_str().unwrap().to_owned());
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    files.sort();
    let own = data.to_str().unwrap();
    // Other tests may run in this process, with files of their own.
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Traces {
        names: names(disks),
        loops: loop_devices(data),
        mounts: mounts(data),
        files,
        descriptors: open.filter(|path| path.starts_with(own)).count(),
    }
}

#[test]
fn subvolumes_made_inside_go_too() {
    on_each(&[DiskKind::Btrfs], |data, kind| {
        let disks = open(data, kind);
        let volume = disks.make(&name("volume"), promised(64)).unwrap();
        let inside = |directory: &OwnedFd, inner: &str| {
            create_subvolume(directory.as_fd(), inner).unwrap();
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            openat(directory, inner, flags, Mode::empty()).unwrap()
        };
        let mut deepest = volume;
        for _ in 0..5 {
            for number in 0..20 {
                inside(&deepest, &format!("leaf-{number}"));
            }
            deepest = inside(&deepest, "branch");
        }
        assert!(is_full(fill(&deepest, "file", 128 * MIB).1));
        drop(deepest);
        disks.remove(&name("volume")).unwrap();
        assert_eq!(names(&disks), Vec::<String>::new());
    });
}

/// Also for an ordinary user: the tree is made and removed as by anybody.
#[test]
fn a_tree_deeper_than_any_path_is_removed() {
    on_own_directory(|data| {
        let disks = open(data, DiskKind::Unlimited);
        let volume = disks.make(&name("volume"), promised(16)).unwrap();
        let mut deepest = volume;
        for _ in 0..1500 {
            put(&deepest, "file", "x");
            let odd: &[u8] = b"odd-\xff";
            mkdirat(&deepest, odd, Mode::RWXU).unwrap();
            mkdirat(&deepest, "moved-1", Mode::RWXU).unwrap();
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            deepest = openat(&deepest, odd, flags, Mode::empty()).unwrap();
        }
        drop(deepest);
        disks.remove(&name("volume")).unwrap();
        assert_eq!(fs::read_dir(data.join("disks/directories")).unwrap().count(), 0);
    });
}

fn on_own_directory(test: impl FnOnce(&Path) + Send) {
    if super::place::is_root() {
        return on_data_directory(test);
    }
    test(tempfile::tempdir().unwrap().path());
}

#[test]
fn a_link_in_a_volume_is_removed_and_not_what_it_leads_to() {
    on_own_directory(|data| {
        fs::create_dir(data.join("outside")).unwrap();
        fs::write(data.join("outside/file"), "kept").unwrap();
        let disks = open(data, DiskKind::Unlimited);
        let volume = disks.make(&name("volume"), promised(16)).unwrap();
        rustix::fs::symlinkat(data.join("outside"), &volume, "link").unwrap();
        mkdirat(&volume, "inner", Mode::RWXU).unwrap();
        let inner = openat(&volume, "inner", OFlags::DIRECTORY, Mode::empty()).unwrap();
        rustix::fs::symlinkat("../../../../outside", &inner, "link").unwrap();
        drop((volume, inner));
        disks.remove(&name("volume")).unwrap();
        let kept = openat(CWD, data.join("outside/file"), OFlags::RDONLY, Mode::empty());
        assert!(kept.is_ok());
    });
}
