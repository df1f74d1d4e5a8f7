//! Which kind a machine gets, and what is refused.

use std::{
    fs,
    os::fd::AsFd as _,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use harness::disks::{End, Script, settings};
use isolate::disk::{ByteCount, DiskError, DiskKind, DiskSettings, Disks, VolumeName};

use super::place::{
    directory, is_root, mounts, name, on_data_directory, on_kind, open, promised, put, read,
    try_open,
};

#[test]
fn names_that_could_be_a_path_or_an_option_are_refused() {
    let long = "a".repeat(65);
    for refused in
        ["", ".", "..", "a/b", "/a", "a.b", "-a", "A", "ä", "a b", "a\0", "making-a", &long]
    {
        assert!(VolumeName::new(refused).is_err(), "{refused:?}");
    }
    let longest = "a".repeat(64);
    for allowed in ["a", "sb_0123abc", "_", &longest] {
        assert_eq!(VolumeName::new(allowed).unwrap().as_str(), allowed);
    }
}

/// With the settings that an operator gets who sets nothing, but on any size of disk.
fn default_settings() -> DiskSettings {
    DiskSettings { keep_free: ByteCount(0), ..DiskSettings::default() }
}

#[test]
fn root_gets_the_best_kind_and_a_user_the_reasons_why_there_is_none() {
    on_own_directory(|data| {
        let opened = Disks::open(directory(data).as_fd(), &default_settings());
        if is_root() {
            let disks = opened.unwrap();
            let refused: Vec<DiskKind> = disks.refused().iter().map(|one| one.kind).collect();
            if has_simple_quotas() {
                assert_eq!((disks.kind(), refused), (DiskKind::Btrfs, vec![DiskKind::Quota]));
            } else {
                let expected = vec![DiskKind::Quota, DiskKind::Btrfs];
                assert_eq!((disks.kind(), refused), (DiskKind::Image, expected));
                assert!(disks.refused()[1].why.contains("since 6.7"), "{:?}", disks.refused());
                assert_eq!(mounts(data), Vec::<String>::new());
                assert!(!data.join("disks/pool.btrfs").exists());
            }
            return;
        }
        let refused = opened.unwrap_err();
        let DiskError::NoKind { tried } = &refused else { panic!("{refused:?}") };
        assert_eq!(tried.iter().map(|one| one.kind).collect::<Vec<_>>(), DiskKind::ALL);
        assert!(refused.to_string().contains("tmpfs: not allowed by the settings"), "{refused}");
    });
}

fn has_simple_quotas() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(7))
}

#[test]
fn project_quota_is_taken_where_the_data_directory_has_it() {
    on_kind(DiskKind::Quota, |data| {
        let disks = Disks::open(directory(data).as_fd(), &default_settings()).unwrap();
        assert_eq!((disks.kind(), disks.refused()), (DiskKind::Quota, &[][..]));
    });
}

fn on_own_directory(test: impl FnOnce(&Path) + Send) {
    if is_root() {
        return on_data_directory(test);
    }
    test(tempfile::tempdir().unwrap().path());
}

#[test]
fn what_is_allowed_by_name_works_for_everybody() {
    let data = tempfile::tempdir().unwrap();
    for kind in [DiskKind::Tmpfs, DiskKind::Unlimited] {
        let words = "make volume 16 remove volume make volume 16 remove volume";
        let script = Script { data: data.path(), kind, words, last_step: None };
        assert_eq!(script.run().unwrap(), End::Done, "{kind}");
    }
}

#[test]
fn volumes_in_memory_are_gone_with_their_server() {
    let data = tempfile::tempdir().unwrap();
    let script =
        |words| Script { data: data.path(), kind: DiskKind::Tmpfs, words, last_step: None };
    assert_eq!(script("make volume 16").run().unwrap(), End::Done);
    // Made again, it is another.
    assert_eq!(script("make volume 16").run().unwrap(), End::Done);
}

#[test]
fn the_kind_stays_while_there_are_volumes() {
    harness::needs::require_root();
    on_data_directory(|data| {
        let disks = open(data, DiskKind::Image);
        put(&disks.make(&name("volume"), promised(16)).unwrap(), "file", "kept");
        drop(disks);
        // Btrfs would be better, but what is there is an image.
        let disks = Disks::open(directory(data).as_fd(), &default_settings()).unwrap();
        assert_eq!(disks.kind(), DiskKind::Image);
        assert_eq!(read(&disks.open_volume(&name("volume")).unwrap(), "file"), "kept");
        drop(disks);
        let other = try_open(data, DiskKind::Btrfs).unwrap_err();
        assert!(matches!(other, DiskError::KindLost { kind: DiskKind::Image, .. }), "{other:?}");
        let disks = open(data, DiskKind::Image);
        disks.remove(&name("volume")).unwrap();
        drop(disks);
        // Without any, the choice is free again.
        let other = if has_simple_quotas() { DiskKind::Btrfs } else { DiskKind::Unlimited };
        assert_eq!(open(data, other).kind(), other);
        assert_eq!(open(data, DiskKind::Image).kind(), DiskKind::Image);
    });
}

/// The data directory belongs to the daemon, which may be in wrong hands.
#[test]
fn a_folder_that_another_has_put_there_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let disks = data.path().join("disks");
    let opened = || Disks::open(directory(data.path()).as_fd(), &settings(DiskKind::Unlimited));

    symlink("/tmp", &disks).unwrap();
    assert!(matches!(opened(), Err(DiskError::System { .. })));
    fs::remove_file(&disks).unwrap();

    fs::create_dir(&disks).unwrap();
    fs::set_permissions(&disks, fs::Permissions::from_mode(0o770)).unwrap();
    assert!(matches!(opened(), Err(DiskError::NotOurs { .. })));
    if is_root() {
        fs::set_permissions(&disks, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&disks, Some(12345), None).unwrap();
        assert!(matches!(opened(), Err(DiskError::NotOurs { owner: 12345, .. })));
    }
}

#[test]
fn the_file_of_the_pool_is_for_root_alone() {
    on_kind(DiskKind::Btrfs, |data| {
        let disks = open(data, DiskKind::Btrfs);
        let file = fs::metadata(data.join("disks/pool.btrfs")).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        drop(disks);
    });
}
