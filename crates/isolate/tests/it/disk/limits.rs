//! A volume holds what it may, and no more.

use std::os::fd::AsFd as _;

use harness::disks::settings;
use isolate::{
    disk::{ByteCount, DiskError, DiskKind, DiskLimit, DiskSettings, Disks, Reason, Usage},
    sys::btrfs::create_subvolume,
};
use rustix::{
    fs::{Mode, OFlags, openat},
    io::write,
    thread::{CapabilitySet, capabilities},
};

use super::place::{
    LASTING, MIB, create, directory, fill, is_full, mib, name, on_each, open, promised,
    small_data_directory,
};

const HELD: [DiskKind; 4] = [DiskKind::Quota, DiskKind::Btrfs, DiskKind::Image, DiskKind::Tmpfs];

#[test]
fn a_write_beyond_the_limit_fails_and_the_neighbour_goes_on() {
    on_each(&HELD, |data, kind| {
        let disks = open(data, kind);
        let full = disks.make(&name("full"), promised(32)).unwrap();
        let neighbour = disks.make(&name("neighbour"), promised(32)).unwrap();
        let (wrote, errno) = fill(&full, "file", 64 * MIB);
        assert!(is_full(errno), "{kind}: {errno:?} after {wrote}");
        assert!((16 * MIB..=32 * MIB).contains(&wrote), "{kind}: {wrote}");
        assert_eq!(fill(&neighbour, "file", 8 * MIB), (8 * MIB, None), "{kind}");
        // Who deletes can go on.
        rustix::fs::unlinkat(&full, "file", rustix::fs::AtFlags::empty()).unwrap();
        rustix::fs::syncfs(&full).unwrap();
        assert_eq!(fill(&full, "another", 8 * MIB), (8 * MIB, None), "{kind}");
    });
}

#[test]
fn many_small_files_are_bounded_too() {
    on_each(&HELD, |data, kind| {
        let volume = open(data, kind).make(&name("many"), promised(16)).unwrap();
        // Near its limit a btrfs is slow, and small files come there slowly.
        let large = if kind == DiskKind::Btrfs { 12 * MIB } else { 0 };
        assert_eq!(fill(&volume, "large", large), (large, None), "{kind}");
        let mut count = 0_u64;
        let errno = loop {
            let made = create(&volume, &format!("file-{count}"));
            match made.and_then(|file| write(file, b"x")) {
                Ok(_) => count += 1,
                Err(errno) => break errno,
            }
            assert!(count < 200_000, "{kind}");
        };
        assert!(is_full(Some(errno)), "{kind}: {errno:?} after {count}");
    });
}

#[test]
fn every_volume_can_be_filled_to_its_limit() {
    on_each(&LASTING, |data, kind| {
        let disks = open(data, kind);
        for number in 0..4 {
            let volume = disks.make(&name(&format!("volume_{number}")), promised(48)).unwrap();
            let (wrote, errno) = fill(&volume, "file", 64 * MIB);
            assert!(is_full(errno), "{kind} {number}: {errno:?} after {wrote}");
            assert!(wrote > 36 * MIB, "{kind} {number}: {wrote}");
        }
    });
}

#[test]
fn a_larger_limit_lets_more_in() {
    on_each(&HELD, |data, kind| {
        let disks = open(data, kind);
        let volume = disks.make(&name("volume"), promised(32)).unwrap();
        assert!(is_full(fill(&volume, "first", 64 * MIB).1), "{kind}");
        // Without a right that root may lack, an image is enlarged only when nobody has it open.
        let mut open = Some(volume);
        if kind == DiskKind::Image {
            open = None;
        }
        disks.set_limit(&name("volume"), mib(96)).unwrap();
        let volume = open.unwrap_or_else(|| disks.open_volume(&name("volume")).unwrap());
        let (wrote, errno) = fill(&volume, "second", 128 * MIB);
        assert!(is_full(errno), "{kind}: {errno:?}");
        assert!((40 * MIB..=80 * MIB).contains(&wrote), "{kind}: {wrote}");
        assert_eq!(disks.usage(&name("volume")).unwrap().limit, Some(mib(96)), "{kind}");
    });
}

#[test]
fn an_image_in_use_grows_or_says_that_it_cannot() {
    on_each(&[DiskKind::Image], |data, kind| {
        let disks = open(data, kind);
        let volume = disks.make(&name("volume"), promised(32)).unwrap();
        let may_grow = capabilities(None).unwrap().effective.contains(CapabilitySet::SYS_RESOURCE);
        let grown = disks.set_limit(&name("volume"), mib(96));
        assert_eq!(grown.is_ok(), may_grow, "{grown:?}");
        let expected = if may_grow { mib(96) } else { mib(32) };
        assert_eq!(disks.usage(&name("volume")).unwrap().limit, Some(expected));
        // It goes on all the same, here and for whoever opens it next.
        let (wrote, errno) = fill(&volume, "file", 128 * MIB);
        assert!(is_full(errno) && wrote <= expected.0, "{errno:?} after {wrote}");
        disks.open_volume(&name("volume")).unwrap();
    });
}

#[test]
fn a_smaller_limit_lets_nothing_more_in_or_is_refused() {
    on_each(&HELD, |data, kind| {
        let disks = open(data, kind);
        let volume = disks.make(&name("volume"), promised(64)).unwrap();
        assert_eq!(fill(&volume, "first", 40 * MIB), (40 * MIB, None));
        let smaller = disks.set_limit(&name("volume"), mib(32));
        match kind {
            DiskKind::Image => {
                assert!(matches!(smaller, Err(DiskError::CannotShrink { .. })), "{smaller:?}");
                assert_eq!(fill(&volume, "second", 8 * MIB), (8 * MIB, None));
            }
            // A file system in memory cannot be smaller than what is in it.
            DiskKind::Tmpfs => assert!(smaller.is_err(), "{smaller:?}"),
            DiskKind::Quota | DiskKind::Btrfs | DiskKind::Unlimited => {
                smaller.unwrap();
                assert!(is_full(fill(&volume, "second", 8 * MIB).1), "{kind}");
            }
        }
    });
}

#[test]
fn usage_says_what_is_held() {
    on_each(&HELD, |data, kind| {
        let disks = open(data, kind);
        let volume = disks.make(&name("volume"), promised(64)).unwrap();
        let before = disks.usage(&name("volume")).unwrap();
        assert_eq!(fill(&volume, "file", 20 * MIB), (20 * MIB, None));
        rustix::fs::syncfs(&volume).unwrap();
        let Usage { bytes, limit } = disks.usage(&name("volume")).unwrap();
        let grown = bytes.0 - before.bytes.0;
        assert!((20 * MIB..22 * MIB).contains(&grown), "{kind}: {grown}");
        assert_eq!(limit, Some(mib(64)), "{kind}");
    });
}

#[test]
fn a_limit_below_the_least_is_refused() {
    on_each(&HELD, |data, kind| {
        let disks = open(data, kind);
        let refused = disks.make(&name("volume"), promised(15)).unwrap_err();
        assert_eq!(refused.reason(), Reason::Refused, "{kind}");
        assert_eq!(disks.names().unwrap(), [], "{kind}");
    });
}

#[test]
fn more_than_the_data_directory_has_is_not_promised() {
    on_each(&LASTING, |outer, kind| {
        let data = match kind {
            DiskKind::Quota => outer.to_owned(),
            _ => small_data_directory(outer, 1024 * MIB),
        };
        let disks = open(&data, kind);
        let there = rustix::fs::statvfs(&data).unwrap();
        let half = ByteCount(there.f_bavail * there.f_frsize / 100 * 55);
        disks.make(&name("first"), DiskLimit::Promised(half)).unwrap();
        let refused = disks.make(&name("second"), DiskLimit::Promised(half)).unwrap_err();
        assert_eq!(refused.reason(), Reason::Full, "{kind}: {refused}");
        assert!(disks.make(&name("third"), promised(16)).is_ok(), "{kind}");
    });
}

#[test]
fn limits_without_a_promise_add_up_to_more_than_there_is_and_a_promise_is_kept_beside_them() {
    on_each(&[DiskKind::Btrfs], |outer, kind| {
        const KEPT: u64 = 128 * MIB;
        let data = small_data_directory(outer, 1024 * MIB);
        let settings = DiskSettings { keep_free: ByteCount(KEPT), ..settings(kind) };
        let disks = Disks::open(directory(&data).as_fd(), &settings).unwrap();
        let up_to = DiskLimit::UpTo(mib(4096));
        let make = |number| disks.make(&name(&format!("volume_{number}")), up_to).unwrap();
        let volumes: Vec<_> = (0..4).map(make).collect();
        let promised = disks.make(&name("promised"), promised(192)).unwrap();
        for volume in &volumes {
            let (wrote, errno) = fill(volume, "file", 2048 * MIB);
            assert!(is_full(errno), "{errno:?} after {wrote}");
        }
        assert_eq!(fill(&promised, "file", 176 * MIB), (176 * MIB, None));
        let there = rustix::fs::statvfs(&data).unwrap();
        let free = there.f_bavail * there.f_frsize;
        assert!(free >= KEPT / 4 * 3, "{free} bytes are left to others");
        // What one gives back, another can have.
        drop(volumes);
        disks.remove(&name("volume_0")).unwrap();
        let another = disks.make(&name("another"), up_to).unwrap();
        assert_eq!(fill(&another, "file", 4 * MIB), (4 * MIB, None));
    });
}

#[test]
fn a_subvolume_made_inside_counts_as_well() {
    on_each(&[DiskKind::Btrfs], |data, kind| {
        let disks = open(data, kind);
        let volume = disks.make(&name("volume"), promised(32)).unwrap();
        create_subvolume(volume.as_fd(), "inner").unwrap();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let inner = openat(&volume, "inner", flags, Mode::empty()).unwrap();
        let (wrote, errno) = fill(&inner, "file", 64 * MIB);
        assert!(is_full(errno) && wrote <= 32 * MIB, "{errno:?} after {wrote}");
    });
}
