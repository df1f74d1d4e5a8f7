//! Data directories, each in a mount namespace that ends with its test: whatever happens to the
//! test, mounts go with the namespace and loop devices with the mounts.

use std::{
    fs::{self, File},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    process::Command,
};

use harness::{
    disks::{enter_own_mounts, settings},
    needs::{require, require_root},
};
use isolate::disk::{ByteCount, DiskError, DiskKind, DiskLimit, Disks, VolumeName};
use rustix::{
    fs::{Mode, OFlags, fsync, openat},
    io::{Errno, write},
    thread::{CapabilitySet, capabilities, set_capabilities},
};

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The kinds that hold limits on disk, and survive their server.
pub(crate) const LASTING: [DiskKind; 3] = [DiskKind::Quota, DiskKind::Btrfs, DiskKind::Image];

/// Runs a test on a data directory, for each of these kinds that this stage tests. There must be one.
pub(crate) fn on_each(kinds: &[DiskKind], test: impl Fn(&Path, DiskKind) + Sync) {
    let tested: Vec<DiskKind> = kinds.iter().copied().filter(|kind| is_tested(*kind)).collect();
    require(feature(kinds[0]), !tested.is_empty());
    for kind in tested {
        on_kind(kind, |data| test(data, kind));
    }
}

/// Runs a test on a data directory where volumes of this kind can be.
pub(crate) fn on_kind<T: Send>(kind: DiskKind, test: impl FnOnce(&Path) -> T + Send) -> T {
    // Only real root can mount a file system of a disk.
    require_root();
    require(feature(kind), is_tested(kind));
    on_data_directory(|data| {
        if kind == DiskKind::Quota {
            mount_with_quota(data);
        }
        test(data)
    })
}

/// Whether this stage tests volumes of this kind. The kernel of the machine may have no project quota, and
/// that of the stage `vm`, which has, is too old for our use of btrfs.
fn is_tested(kind: DiskKind) -> bool {
    match std::env::var("RINGFENCE_TEST_DISK_KINDS") {
        Ok(only) => only == kind.name(),
        Err(_) => kind != DiskKind::Quota,
    }
}

/// What `tests/needs` calls a stage that tests this kind.
fn feature(kind: DiskKind) -> &'static str {
    if kind == DiskKind::Quota { "project-quota" } else { "disks-of-the-machine" }
}

/// Runs a test in a mount namespace of its own, with an empty data directory.
pub(crate) fn on_data_directory<T: Send>(test: impl FnOnce(&Path) -> T + Send) -> T {
    let data = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| {
            enter_own_mounts().unwrap();
            test(data.path())
        });
        ended.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Mounts a file system that has project quota on the data directory.
fn mount_with_quota(data: &Path) {
    let features = ["-O", "quota,project", "-E", "quotatype=prjquota"];
    mount_ext4(&data.join("image"), 256 * MIB, &features, "loop,prjquota", data).unwrap();
}

/// Makes a data directory of that size, below another.
pub(crate) fn small_data_directory(outer: &Path, size: u64) -> PathBuf {
    let data = outer.join("data");
    fs::create_dir(&data).unwrap();
    mount_ext4(&outer.join("small"), size, &[], "loop", &data).unwrap();
    data
}

fn mount_ext4(
    image: &Path,
    size: u64,
    features: &[&str],
    options: &str,
    on: &Path,
) -> Result<(), String> {
    File::create(image).unwrap().set_len(size).unwrap();
    let made = Command::new("mkfs.ext4").arg("-qF").args(features).arg(image).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mount = ["-t", "ext4", "-o", options];
    let mounted = Command::new("mount").args(mount).arg(image).arg(on).output().unwrap();
    let said = String::from_utf8_lossy(&mounted.stderr).into_owned();
    mounted.status.success().then_some(()).ok_or(said)
}

pub(crate) fn open(data: &Path, kind: DiskKind) -> Disks {
    try_open(data, kind).unwrap()
}

pub(crate) fn try_open(data: &Path, kind: DiskKind) -> Result<Disks, DiskError> {
    Disks::open(directory(data).as_fd(), &settings(kind))
}

pub(crate) fn directory(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

pub(crate) fn name(name: &str) -> VolumeName {
    VolumeName::new(name).unwrap()
}

pub(crate) fn names(disks: &Disks) -> Vec<String> {
    disks.names().unwrap().iter().map(|name| name.as_str().to_owned()).collect()
}

pub(crate) const fn mib(count: u64) -> ByteCount {
    ByteCount::mib(count)
}

/// A limit that somebody asked for.
pub(crate) const fn promised(count: u64) -> DiskLimit {
    DiskLimit::Promised(mib(count))
}

/// Writes a file until that fails or `most` is reached. Returns how much went in, and the error.
pub(crate) fn fill(volume: &OwnedFd, file: &str, most: u64) -> (u64, Option<Errno>) {
    obey_quotas();
    let file = match create(volume, file) {
        Ok(file) => file,
        Err(errno) => return (0, Some(errno)),
    };
    let chunk = vec![b'x'; 64 * 1024];
    let mut wrote = 0;
    while wrote < most {
        match write(&file, &chunk) {
            Ok(length) => wrote += length as u64,
            Err(errno) => return (wrote, Some(errno)),
        }
    }
    (wrote, fsync(&file).err())
}

pub(crate) fn create(volume: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    openat(volume, name, flags, Mode::RUSR | Mode::WUSR)
}

pub(crate) fn read(volume: &OwnedFd, name: &str) -> String {
    let file = openat(volume, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    std::io::read_to_string(File::from(file)).unwrap()
}

pub(crate) fn put(volume: &OwnedFd, name: &str, text: &str) {
    write(create(volume, name).unwrap(), text.as_bytes()).unwrap();
}

/// Whether a write failed because there is no more space for it.
pub(crate) fn is_full(errno: Option<Errno>) -> bool {
    matches!(errno, Some(Errno::NOSPC | Errno::DQUOT))
}

/// Gives up the right to go beyond quotas, which no sandbox has.
pub(crate) fn obey_quotas() {
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::SYS_RESOURCE);
    set_capabilities(None, sets).unwrap();
}

/// The loop devices over files below a directory, as the machine sees them.
pub(crate) fn loop_devices(data: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for block in fs::read_dir("/sys/block").unwrap().filter_map(Result::ok) {
        let file = block.path().join("loop/backing_file");
        let file = fs::read_to_string(file).unwrap_or_default();
        // In the namespace of another process, the path may begin elsewhere.
        if file.contains(data.file_name().unwrap().to_str().unwrap()) {
            found.push(block.file_name().into_string().unwrap());
        }
    }
    found
}

/// What is mounted below a directory, in the namespace of this thread.
pub(crate) fn mounts(data: &Path) -> Vec<String> {
    let all = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let points = all.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned);
    points.filter(|point| Path::new(point).starts_with(data)).collect()
}
