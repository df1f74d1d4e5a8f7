//! Signals as something to read, and the way back to the defaults before an exec.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::{check, last_errno};

/// Blocks every signal and returns a descriptor that becomes readable when one of these comes.
pub fn as_descriptor(signals: &[libc::c_int]) -> Result<OwnedFd, Errno> {
    let mut set = empty_set();
    for signal in signals {
        // SAFETY: `set` is an initialised signal set.
        unsafe { libc::sigaddset(&raw mut set, *signal) };
    }
    set_mask(&full_set())?;
    // SAFETY: `set` is an initialised signal set; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    check(fd.into())?;
    // SAFETY: the kernel just made this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads one pending signal's number from such a descriptor, or `None` if there is none.
pub fn next(descriptor: &OwnedFd) -> Result<Option<libc::c_int>, Errno> {
    // SAFETY: all-zero bytes are a valid `signalfd_siginfo`.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    // SAFETY: the buffer is one whole `signalfd_siginfo`, of the size passed.
    let read = unsafe {
        libc::read(
            descriptor.as_raw_fd(),
            (&raw mut info).cast(),
            size_of::<libc::signalfd_siginfo>(),
        )
    };
    if read > 0 {
        return Ok(i32::try_from(info.ssi_signo).ok());
    }
    match last_errno() {
        Errno::AGAIN => Ok(None),
        other => Err(other),
    }
}

/// Blocks every signal that can be.
pub fn block_all() -> Result<(), Errno> {
    set_mask(&full_set())
}

/// Unblocks every signal and gives each its default action, as a new program expects it.
pub fn restore_defaults() -> Result<(), Errno> {
    give_defaults();
    unblock_all()
}

/// Gives each signal its default action.
pub fn give_defaults() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL installs no code of ours. Signals that cannot be changed are skipped
        // by the kernel with EINVAL.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Unblocks every signal.
pub fn unblock_all() -> Result<(), Errno> {
    set_mask(&empty_set())
}

/// Has the kernel clear away children on its own.
pub fn ignore_children() {
    // SAFETY: SIG_IGN installs no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Has children wait to be asked how they ended, as it is by default.
pub fn attend_children() {
    // SAFETY: SIG_DFL installs no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

fn set_mask(set: &libc::sigset_t) -> Result<(), Errno> {
    // SAFETY: `set` is an initialised signal set; the old one is not asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, set, std::ptr::null_mut()) }.into())
        .map(drop)
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: all-zero bytes are a valid `sigset_t`.
    let mut set = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a `sigset_t` to be initialised.
    unsafe { libc::sigemptyset(&raw mut set) };
    set
}

fn full_set() -> libc::sigset_t {
    let mut set = empty_set();
    // SAFETY: `set` is a `sigset_t` to be initialised.
    unsafe { libc::sigfillset(&raw mut set) };
    set
}
