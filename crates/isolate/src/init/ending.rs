//! Ending what is left of a program.

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    process::{Pid, Signal, kill_process},
};

use crate::sys;

/// Ends every process of the slot but ourselves.
///
/// To signal everybody the kernel looks at every process of the machine, and there may be thousands
/// in sandboxes. A program that never started another is ended by its number alone.
pub(super) fn end_all(main: Pid) -> Result<(), Errno> {
    match kill_process(main, Signal::KILL) {
        // From here on it starts no other: nobody forks who is being killed.
        Ok(()) | Err(Errno::SRCH) => {}
        Err(other) => return Err(other),
    }
    if last_number() == Ok(main.as_raw_nonzero().get()) {
        return Ok(());
    }
    match sys::process::kill_all_others() {
        // Nobody is left to be killed.
        Err(Errno::SRCH) | Ok(()) => Ok(()),
        Err(other) => Err(other),
    }
}

/// Returns the number that was last given to a process or thread of this namespace. They are given in
/// order, and low ones never again.
fn last_number() -> Result<i32, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(CWD, "/proc/loadavg", flags, Mode::empty())?;
    let mut text = [0; 128];
    let length = rustix::io::read(&file, &mut text)?;
    let text = text.get(..length).and_then(|text| str::from_utf8(text).ok());
    let last = text.and_then(|text| text.split_whitespace().nth(4));
    last.and_then(|last| last.parse().ok()).ok_or(Errno::INVAL)
}
