//! The folder below the data directory in which everything is, and that nobody but us can change.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{
        AtFlags, FlockOperation, Mode, OFlags, ResolveFlags, flock, fstat, fstatvfs, mkdirat,
        openat2, renameat, statat, unlinkat,
    },
    io::{Errno, read, write},
    path::Arg,
    process::{Signal, WaitOptions, pidfd_send_signal, set_parent_process_death_signal, waitpid},
};

use super::{DiskError, DiskKind, DiskSettings, VolumeName, tree};
use crate::sys::process::{Fork, exit_now, fork};

/// The folder in the data directory.
const FOLDER: &str = "disks";
/// Says which kind the volumes are of.
const KIND: &str = "kind";
/// Locked while a promise of space is made.
const LOCK: &str = "lock";

/// What is opened lies beneath, and no link is followed on the way: the data directory belongs to
/// the daemon, which may have fallen into wrong hands.
const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// In front of the name of what is not finished. No name of a volume can begin so.
pub(super) const MAKING: &str = "making-";
/// In front of the name of what is being removed.
pub(super) const GOING: &str = "going-";

/// Our folder, held open, and locked for this server.
#[derive(Debug)]
pub(super) struct Ground {
    base: OwnedFd,
    pub(super) settings: DiskSettings,
}

/// A promise of space is being made by this process. Dropping it lets the next one.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "closing it unlocks")] OwnedFd);

pub(super) fn failed(doing: &'static str, what: &str) -> impl Fn(Errno) -> DiskError {
    move |errno| DiskError::System { doing, what: what.to_owned(), errno }
}

impl Ground {
    pub(super) fn open(data: BorrowedFd<'_>, settings: &DiskSettings) -> Result<Self, DiskError> {
        let base = folder(data, FOLDER)?;
        let found = fstat(&base).map_err(failed("look at", FOLDER))?;
        if found.st_uid != rustix::process::geteuid().as_raw() || found.st_mode & 0o077 != 0 {
            return Err(DiskError::NotOurs { owner: found.st_uid, mode: found.st_mode & 0o7777 });
        }
        match flock(&base, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { base, settings: settings.clone() }),
            Err(Errno::WOULDBLOCK) => Err(DiskError::InUse),
            Err(errno) => Err(failed("lock", FOLDER)(errno)),
        }
    }

    pub(super) fn base(&self) -> BorrowedFd<'_> {
        self.base.as_fd()
    }

    /// Opens a folder below ours, made if it is not there.
    pub(super) fn folder(&self, name: &str) -> Result<OwnedFd, DiskError> {
        folder(self.base(), name)
    }

    /// Waits until no other worker of this server makes a promise of space.
    pub(super) fn lock(&self) -> Result<Lock, DiskError> {
        // Opened anew each time: forked workers would share a lock that was open already.
        let flags = OFlags::RDWR | OFlags::CREATE;
        let file = open(self.base(), LOCK, flags).map_err(failed("open", LOCK))?;
        flock(&file, FlockOperation::LockExclusive).map_err(failed("lock", LOCK))?;
        Ok(Lock(file))
    }

    /// Notes that something was done after which a crash must be recovered from.
    pub(super) fn after(&self, step: &'static str) {
        (self.settings.observe)(step);
    }

    /// Returns what is free, less what must stay so.
    pub(super) fn room(&self) -> Result<u64, DiskError> {
        let there = fstatvfs(&self.base).map_err(failed("look at the space of", FOLDER))?;
        let free = there.f_bavail.saturating_mul(there.f_frsize);
        Ok(free.saturating_sub(self.settings.keep_free.0))
    }

    /// Refuses a promise that the data file system could not keep beside those that were made and
    /// are not taken, as far as the operator wants promises to be kept.
    pub(super) fn require_room(&self, wanted: u64, promised: u64) -> Result<(), DiskError> {
        let times = u64::from(self.settings.overcommit.max(1));
        let room = self.room()?.saturating_mul(times).saturating_sub(promised);
        if wanted <= room { Ok(()) } else { Err(DiskError::Full { wanted, room }) }
    }

    pub(super) fn kind(&self) -> Result<Option<DiskKind>, DiskError> {
        let file = match open(self.base(), KIND, OFlags::RDONLY) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed("open", KIND)(errno)),
        };
        let mut bytes = [0; 32];
        let length = read(&file, &mut bytes).map_err(failed("read", KIND))?;
        let text = String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned();
        DiskKind::named(text.trim()).map(Some).ok_or(DiskError::UnknownKind { text })
    }

    pub(super) fn note_kind(&self, kind: DiskKind) -> Result<(), DiskError> {
        let unfinished = format!("{MAKING}{KIND}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let note = || {
            let file = open(self.base(), unfinished.as_str(), flags)?;
            write(&file, kind.name().as_bytes())?;
            rustix::fs::fsync(&file)?;
            renameat(self.base(), unfinished.as_str(), self.base(), KIND)
        };
        note().map_err(failed("write", KIND))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // A process that was just forked may hold a copy of the descriptor for a moment, and the
        // lock with it.
        let _ = flock(&self.base, FlockOperation::Unlock);
    }
}

/// Waits until the folder of volumes is locked by nobody. The kernel has no way to wait for that and
/// for a time at once: so a process waits that is killed when the time is up.
pub(crate) fn wait_until_free(data: BorrowedFd<'_>, at_most: &Timespec) -> Result<(), DiskError> {
    let base = open_folder(data, FOLDER).map_err(failed("open", FOLDER))?;
    match fork(0).map_err(failed("wait for", FOLDER))? {
        Fork::Child => {
            // Nobody must get the lock for somebody who is gone.
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            exit_now(i32::from(flock(&base, FlockOperation::LockExclusive).is_err()))
        }
        Fork::Parent { child, pidfd } => {
            let waited = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(at_most));
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
            let _ = waitpid(Some(child), WaitOptions::empty());
            // What it has locked is locked by us too, until our descriptor is dropped.
            match waited {
                Ok(0) => Err(DiskError::InUse),
                Ok(_) => Ok(()),
                Err(errno) => Err(failed("wait for", FOLDER)(errno)),
            }
        }
    }
}

/// Opens what is in a folder.
pub(super) fn open(
    at: BorrowedFd<'_>,
    name: impl Arg + Copy,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    // Opening something that is not what we have put there must not wait, as for a pipe.
    let no_wait = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK };
    let flags = flags | OFlags::CLOEXEC | no_wait;
    let mode = if flags.contains(OFlags::CREATE) { Mode::RUSR | Mode::WUSR } else { Mode::empty() };
    loop {
        match openat2(at, name, flags, mode, BENEATH) {
            // A rename elsewhere on the machine may come between.
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}

pub(super) fn open_folder(at: BorrowedFd<'_>, name: impl Arg + Copy) -> Result<OwnedFd, Errno> {
    open(at, name, OFlags::RDONLY | OFlags::DIRECTORY)
}

fn folder(at: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, DiskError> {
    make_folder(at, name)?;
    open_folder(at, name).map_err(failed("open", name))
}

/// Makes a folder for us alone, unless something is there.
pub(super) fn make_folder(at: BorrowedFd<'_>, name: &str) -> Result<(), DiskError> {
    match mkdirat(at, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(failed("make", name)(errno)),
    }
}

pub(super) fn exists(at: BorrowedFd<'_>, name: &str) -> Result<bool, DiskError> {
    match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(failed("look at", name)(errno)),
    }
}

/// Removes a file, if it is there.
pub(super) fn remove_file(at: BorrowedFd<'_>, name: &str) -> Result<(), DiskError> {
    match unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed("remove", name)(errno)),
    }
}

/// Returns the names in a folder that a volume may have.
pub(super) fn volumes_in(at: BorrowedFd<'_>) -> Result<Vec<VolumeName>, DiskError> {
    let names = tree::names(at).map_err(failed("list", FOLDER))?;
    let mut names: Vec<VolumeName> =
        names.iter().filter_map(|name| VolumeName::new(name.to_str().ok()?).ok()).collect();
    names.sort();
    Ok(names)
}

/// Returns the names in a folder that begin so.
pub(super) fn leftovers_in(at: BorrowedFd<'_>, prefix: &str) -> Result<Vec<String>, DiskError> {
    let names = tree::names(at).map_err(failed("list", FOLDER))?;
    let text = |name: &std::ffi::CString| name.to_str().ok().map(str::to_owned);
    Ok(names.iter().filter_map(text).filter(|name| name.starts_with(prefix)).collect())
}
