//! Waiting for a server that is about to end. The kernel lets go of the locks of a killed one only
//! when the last of its threads is gone, which takes as long as the disk does; whoever starts a
//! server right after that must neither fail nor go on without its socket.

use std::{
    fs::File,
    io,
    os::unix::{fs::OpenOptionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal},
};

use crate::output::complain;

/// How long a server that ends is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Waits until nobody holds this lock, and says so at once if somebody does. Tells whether it is
/// free: a server that lives keeps it.
pub(crate) fn wait_until_free(lock: &Path) -> anyhow::Result<bool> {
    if is_free(lock)? {
        return Ok(true);
    }
    complain(&format!("waiting for the ringfence process that has {}", lock.display()));
    // Another process, because a wait for a lock has no end of its own, and a thread that waits
    // could not be left behind: this process forks.
    let mut waiter = Command::new("/proc/self/exe")
        .arg0("ringfence")
        .args(["serve", "--wait-for-lock"])
        .arg(lock)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot wait for a lock")?;
    let pid = i32::try_from(waiter.id()).ok().and_then(Pid::from_raw).context("no number")?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let at_most = Timespec::try_from(PATIENCE).context("too long")?;
    let ended = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&at_most))?;
    // It has ended already, or is not needed any more.
    let _ = waiter.kill();
    waiter.wait()?;
    Ok(ended > 0 && is_free(lock)?)
}

/// In the process that waits: returns when nobody holds the lock.
pub(crate) fn block_until_free(lock: &Path) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if let Some(file) = open(lock)? {
        flock(&file, FlockOperation::LockShared).context("cannot wait for a lock")?;
    }
    Ok(())
}

fn is_free(lock: &Path) -> anyhow::Result<bool> {
    let Some(file) = open(lock)? else { return Ok(true) };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => bail!("cannot look at the lock {}: {error}", lock.display()),
    }
}

/// The directory may be another user's: nothing there is followed or waited for.
fn open(lock: &Path) -> anyhow::Result<Option<File>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let opened = File::options().read(true).custom_flags(flags.cast_signed()).open(lock);
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot open {}", lock.display())),
    }
}

/// The lock of a data directory.
pub(crate) fn of_data(data: &Path) -> PathBuf {
    data.join("lock")
}

/// The lock beside a socket.
pub(crate) fn of_socket(socket: &Path) -> PathBuf {
    socket.with_extension("lock")
}
