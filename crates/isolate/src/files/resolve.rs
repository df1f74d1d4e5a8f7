//! From a path to a descriptor, without leaving the root, whatever others do to the path meanwhile.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::{
    fs::{
        AtFlags, CWD, Mode, OFlags, ResolveFlags, StatFs, fstat, fstatfs, mkdirat, open, openat,
        openat2, statat,
    },
    io::Errno,
};

use super::wire::{At, Fault, Kind, Stat, Why};

/// How often a path is looked up anew that changes while it is looked up.
const TRIES: usize = 128;

/// What to look up without opening it, which has no effect on what it is.
pub(super) const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// A directory to be stood on.
pub(super) const DIRECTORY: OFlags = LOOK.union(OFlags::DIRECTORY);

/// From a directory that was reached, to a name in it and nowhere else.
pub(super) const JUST_HERE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// What must not be left.
#[derive(Debug)]
pub(super) struct Root {
    top: OwnedFd,
    how: ResolveFlags,
}

/// A directory and a name in it.
#[derive(Debug)]
pub(super) struct Spot<'path> {
    pub(super) directory: OwnedFd,
    pub(super) name: &'path [u8],
}

impl Root {
    pub(super) fn open(root: &[u8]) -> Result<Self, Fault> {
        let top = open("/", DIRECTORY, Mode::empty())?;
        if matches!(root, b"/" | b"") {
            let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            return Ok(Self { top, how });
        }
        // A confinement is no confinement if whoever is in it can make it a link.
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let confined = retry(|| openat2(&top, root, DIRECTORY, Mode::empty(), how))?;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        Ok(Self { top: confined, how })
    }

    /// Looks a path up.
    pub(super) fn find(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Fault> {
        let path = if path.is_empty() { b".".as_slice() } else { path };
        match retry(|| openat2(&self.top, path, flags, Mode::empty(), self.how)) {
            // Seen again and again: it is the path that leads out, and nobody who moves it.
            Err(Errno::XDEV) => Err(Why::Outside.into()),
            other => Ok(other?),
        }
    }

    /// Looks up the directory that a path is in, and makes what is missing on the way if asked to.
    pub(super) fn spot<'path>(
        &self,
        path: &'path [u8],
        parents: Parents,
    ) -> Result<Spot<'path>, Fault> {
        let (parent, name) = split(path);
        if matches!(name, b"" | b"." | b"..") {
            return Err(Why::InvalidPath.into());
        }
        let directory = match (self.find(parent, DIRECTORY), parents) {
            (Err(Fault { why: Why::NotFound, .. }), Parents::Make) => self.make_all(parent)?,
            (found, _) => found?,
        };
        Ok(Spot { directory, name })
    }

    /// Makes a directory and what it is in. Each is looked up from the root: links that are there lead
    /// where they lead, and never out.
    pub(super) fn make_all(&self, path: &[u8]) -> Result<OwnedFd, Fault> {
        let mut above = self.find(b"", DIRECTORY)?;
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in ends.chain([path.len()]) {
            let part = path.get(..end).unwrap_or_default();
            above = match self.find(part, DIRECTORY) {
                Err(Fault { why: Why::NotFound, .. }) => {
                    match mkdirat(&above, split(part).1, Mode::from_raw_mode(0o755)) {
                        Ok(()) => sync(&above),
                        Err(Errno::EXIST) => {}
                        Err(other) => return Err(other.into()),
                    }
                    self.find(part, DIRECTORY)?
                }
                found => found?,
            };
        }
        Ok(above)
    }
}

/// Whether directories on the way are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parents {
    Make,
    Need,
}

impl From<bool> for Parents {
    fn from(make: bool) -> Self {
        if make { Self::Make } else { Self::Need }
    }
}

impl Spot<'_> {
    /// Returns what is there, itself and not what it leads to.
    pub(super) fn look(&self) -> Result<Option<Stat>, Errno> {
        match statat(&self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(raw) => Ok(Some(Stat::from(&raw))),
            Err(Errno::NOENT) => Ok(None),
            Err(other) => Err(other),
        }
    }
}

/// Looks up a place, and what it is.
pub(super) fn look_up(at: &At, follow: bool) -> Result<(OwnedFd, Stat), Fault> {
    let flags = if follow { LOOK } else { LOOK | OFlags::NOFOLLOW };
    let found = Root::open(&at.root)?.find(&at.path, flags)?;
    let stat = Stat::from(&fstat(&found)?);
    Ok((found, stat))
}

/// Opens a regular file for reading. Nothing else is opened, not even for a moment: to open a device
/// or a pipe has effects.
pub(super) fn open_file(at: &At) -> Result<(OwnedFd, Stat), Fault> {
    let (found, stat) = look_up(at, true)?;
    match stat.kind {
        Kind::File if is_made_up(&found)? => return Err(Why::NotRegular.into()),
        Kind::File => {}
        Kind::Directory => return Err(Why::IsDirectory.into()),
        Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::Device | Kind::Unknown => {
            return Err(Why::NotRegular.into());
        }
    }
    let opened = reopen(&found, OFlags::RDONLY)?;
    let stat = Stat::from(&fstat(&opened)?);
    Ok((opened, stat))
}

/// Opens what was looked up, whatever its path means by now.
pub(super) fn reopen(found: &OwnedFd, how: OFlags) -> Result<OwnedFd, Errno> {
    let flags = how | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    openat(CWD, own(found), flags, Mode::empty())
}

/// Names a descriptor of ours. Only the kernel decides what that is.
pub(super) fn own(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Whether what is there is made up by the kernel: it has no size, and reading it may have effects.
pub(super) fn is_made_up(found: &OwnedFd) -> Result<bool, Errno> {
    // As in `linux/magic.h`: proc, sysfs, both kinds of cgroups, devpts, mqueue, debugfs, tracefs,
    // securityfs, bpf, configfs, efivarfs, pstore, nsfs, binfmt_misc, FUSE's control files.
    const MADE_UP: [i64; 16] = [
        0x9fa0,
        0x6265_6572,
        0x0027_e0eb,
        0x6367_7270,
        0x1cd1,
        0x1980_0202,
        0x6462_6720,
        0x7472_6163,
        0x7363_6673,
        0xcafe_4a11,
        0x6265_6570,
        0xde5e_81e4,
        0x6165_676c,
        0x6e73_6673,
        0x4249_4e4d,
        0x6573_5543,
    ];
    let StatFs { f_type, .. } = fstatfs(found)?;
    Ok(MADE_UP.contains(&f_type))
}

/// Has the names in a directory be on disk. One that may not be read cannot be, and is not waited for.
pub(super) fn sync(directory: impl AsFd) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(open) = openat(directory, ".", flags, Mode::empty()) {
        // File systems that cannot do it say so, and there is nothing else that could be done.
        let _ = rustix::fs::fsync(open);
    }
}

/// Says which file it is, for as long as it is open.
pub(super) fn identity(fd: impl AsFd) -> Result<(u64, u64), Errno> {
    let raw = fstat(fd)?;
    Ok((raw.st_dev, raw.st_ino))
}

/// Splits a path into that of the directory and the name in it.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => {
            let (parent, name) = path.split_at(at);
            (parent, name.get(1..).unwrap_or_default())
        }
        None => (b"", path),
    }
}

/// The kernel gives up a walk when something is moved meanwhile.
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut last = Errno::AGAIN;
    for _ in 0..TRIES {
        match call() {
            Err(errno @ (Errno::AGAIN | Errno::XDEV)) => last = errno,
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
    Err(last)
}
