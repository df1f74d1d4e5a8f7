//! The exit status of a program that has begun to exit.
//!
//! `wait` reports a process only when its memory is gone, and taking down the memory of a large runtime
//! takes milliseconds. The kernel knows the status before that: it is final once the process has begun
//! to exit, and `/proc/PID/stat` shows it. The filter's listener hangs up at that point (Linux 6.11 and
//! later; before, it hangs up when the process was waited for, and nothing is gained).

use std::os::fd::OwnedFd;

use rustix::{
    fs::{CWD, Mode, OFlags, openat, readlinkat},
    io::Errno,
    process::Pid,
};

use crate::plan::Exit;

/// `PF_EXITING` of `linux/sched.h`.
const EXITING: u64 = 0x4;

/// Where `/proc/PID/stat` has these fields, counted from the one after the name.
const FLAGS: usize = 6;
const EXIT_STATUS: usize = 49;

/// Returns the status that `wait` is going to report for this process, or `None` if that is not yet
/// certain.
pub(super) fn exit_status(pid: Pid) -> Option<Exit> {
    // To a reader without the right to see it, the kernel shows 0. The right can change once on the
    // way, when the process lets go of its memory; a reader that had it before and after had it.
    let may_read = may_inspect(pid);
    let status = status_in(&read_stat(pid).ok()?)?;
    if status == 0 && !(may_read && may_inspect(pid)) {
        return None;
    }
    decode(status)
}

/// Whether the kernel lets us see what it shows only to those that may trace the process.
fn may_inspect(pid: Pid) -> bool {
    readlinkat(CWD, format!("/proc/{pid}/ns/user"), Vec::with_capacity(64)).is_ok()
}

fn read_stat(pid: Pid) -> Result<Vec<u8>, Errno> {
    let path = format!("/proc/{pid}/stat");
    let file: OwnedFd = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = vec![0; 1024];
    let length = rustix::io::read(&file, &mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

/// Reads the wait status of a process that is exiting. Its name may contain anything, also spaces and
/// parentheses.
fn status_in(stat: &[u8]) -> Option<i32> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    let field = |index| fields.split_ascii_whitespace().nth(index);
    let flags: u64 = field(FLAGS)?.parse().ok()?;
    if flags & EXITING == 0 { None } else { field(EXIT_STATUS)?.parse().ok() }
}

fn decode(status: i32) -> Option<Exit> {
    if libc::WIFEXITED(status) {
        Some(Exit::Code(libc::WEXITSTATUS(status)))
    } else if libc::WIFSIGNALED(status) {
        Some(Exit::Signal(libc::WTERMSIG(status)))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of Linux 6.18, with these flags and this status.
    fn stat(flags: u64, status: i32) -> String {
        format!(
            "2 (a) b (c) R 1 2 2 0 -1 {flags} 5 0 0 0 1 2 0 0 20 0 1 0 99 0 0 \
             18446744073709551615 0 0 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 {status}\n"
        )
    }

    #[test]
    fn the_status_is_that_of_an_exiting_process() {
        for status in [0, 7 << 8, libc::SIGKILL] {
            assert_eq!(status_in(stat(0x40_010c, status).as_bytes()), Some(status));
        }
    }

    #[test]
    fn a_process_that_is_not_exiting_has_no_status() {
        assert_eq!(status_in(stat(0x40_0100, 0).as_bytes()), None);
    }

    #[test]
    fn a_line_that_cannot_be_read_has_no_status() {
        for line in ["", "2 (x", "2 (x) R", "2 (x) R 1 2 2 0 -1 4 5"] {
            assert_eq!(status_in(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn exits_and_signals_are_told_apart() {
        assert_eq!(decode(7 << 8), Some(Exit::Code(7)));
        assert_eq!(decode(libc::SIGKILL), Some(Exit::Signal(libc::SIGKILL)));
        assert_eq!(decode(libc::SIGSEGV | 0x80), Some(Exit::Signal(libc::SIGSEGV)));
        assert_eq!(decode(0x137f), None);
    }
}
