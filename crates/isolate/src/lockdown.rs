//! What our own processes give up at their start. Each reads what clients, sandboxes or disks contain: an intruder in
//! one of them is to find as little as possible.

use std::{os::fd::AsFd as _, path::PathBuf};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    thread::set_no_new_privs,
};

use crate::{seccomp, sys};

/// Locks the daemon down: it starts no program, gains no right, and changes files beneath these paths only. Called
/// while it has one thread.
pub fn of_daemon(writable: &[PathBuf]) -> Result<(), Errno> {
    set_no_new_privs(true)?;
    confine_changes(writable)?;
    sys::seccomp::load(&seccomp::for_daemon())
}

/// Locks the process down that works on volumes.
pub(crate) fn of_keeper() -> Result<(), Errno> {
    set_no_new_privs(true)?;
    sys::seccomp::load(&seccomp::for_keeper())
}

/// Without Landlock in the kernel, the rights of the daemon's user are all that confines it.
fn confine_changes(writable: &[PathBuf]) -> Result<(), Errno> {
    use sys::landlock::{EXECUTE, WRITE_FILE, allow, new_ruleset, restrict_self, rights_to_change};
    let Some(rights) = rights_to_change() else { return Ok(()) };
    let ruleset = new_ruleset(rights | EXECUTE)?;
    for path in writable {
        allow(&ruleset, openat(CWD, path, PATH, Mode::empty())?.as_fd(), rights)?;
    }
    let null = openat(CWD, "/dev/null", PATH, Mode::empty())?;
    allow(&ruleset, null.as_fd(), WRITE_FILE)?;
    restrict_self(&ruleset)
}

const PATH: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
