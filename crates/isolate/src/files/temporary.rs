//! Names for what is not in its place yet.
//!
//! Where the file system can, a file has no name until it is whole, and nothing is left of it if its
//! agent is killed. Elsewhere, and for the moment in which it takes the place of another, it has one
//! of a few names. Whoever has such a file holds a lock on it, so that one without a lock was left by
//! somebody who is gone: the next writer in that directory takes it away and takes its name.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::{
    fs::{
        AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, linkat, openat, openat2, statat,
        unlinkat,
    },
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};

use super::resolve::{JUST_HERE, own};

/// Names that are tried one after the other before one is made up.
const NAMES: usize = 16;

/// Makes a file that has no name, or returns `OPNOTSUPP`.
pub(super) fn nameless(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match openat(directory, ".", flags, Mode::from_raw_mode(0o600)) {
        // What kernels say that do not know it.
        Err(Errno::ISDIR | Errno::INVAL) => Err(Errno::OPNOTSUPP),
        made => {
            let made = made?;
            lock(&made)?;
            Ok(made)
        }
    }
}

/// Makes a file under a temporary name.
pub(super) fn named(directory: BorrowedFd<'_>) -> Result<(OwnedFd, String), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    under_a_name(directory, |name| {
        let made = openat(directory, name, flags | OFlags::NOFOLLOW, mode)?;
        lock(&made)?;
        Ok(made)
    })
}

/// Gives a nameless file a temporary name.
pub(super) fn link(file: &OwnedFd, directory: BorrowedFd<'_>) -> Result<String, Errno> {
    under_a_name(directory, |name| link_as(file, directory, name.as_bytes())).map(|((), name)| name)
}

/// Gives a nameless file this name, which nobody may have.
pub(super) fn link_as(file: &OwnedFd, directory: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    linkat(CWD, own(file), directory, name, AtFlags::SYMLINK_FOLLOW)
}

fn under_a_name<T>(
    directory: BorrowedFd<'_>,
    mut make: impl FnMut(&str) -> Result<T, Errno>,
) -> Result<(T, String), Errno> {
    for number in 0..NAMES {
        let name = format!(".ringfence-{number}~");
        // A second time if the first has found one that was left.
        for _ in 0..2 {
            match make(&name) {
                Ok(made) => return Ok((made, name)),
                Err(Errno::EXIST) => {}
                Err(other) => return Err(other),
            }
            if !clear(directory, &name) {
                break;
            }
        }
    }
    let mut random = [0; 16];
    getrandom(&mut random, GetRandomFlags::empty())?;
    let name = format!(".ringfence-{:032x}~", u128::from_ne_bytes(random));
    make(&name).map(|made| (made, name))
}

/// Takes away what somebody has left who is gone. Returns whether it was taken away.
fn clear(directory: BorrowedFd<'_>, name: &str) -> bool {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // What cannot be opened is somebody else's.
    let Ok(left) = openat2(directory, name, flags, Mode::empty(), JUST_HERE) else { return false };
    if lock(&left).is_err() {
        return false;
    }
    // With the lock nobody else takes it away; but it may have been taken before we had the lock.
    let is_it = match (fstat(&left), statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)) {
        (Ok(left), Ok(there)) => (left.st_dev, left.st_ino) == (there.st_dev, there.st_ino),
        _ => false,
    };
    is_it && unlinkat(directory, name, AtFlags::empty()).is_ok()
}

fn lock(file: &OwnedFd) -> Result<(), Errno> {
    flock(file, FlockOperation::NonBlockingLockExclusive)
}
