//! A program that was forked from a zygote has locked itself in by its own code. Init does not
//! take its word for it: it looks, before the slot can get a request.

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};

use crate::plan::{Broken, INSIDE_USER, Step};

/// Looks at PID 2 through `/proc`, by the kernel's word.
pub(super) fn main_has_given_up_its_rights() -> Result<(), Broken> {
    let at = Broken::at(Step::Verify);
    let status = read("/proc/2/status").map_err(&at)?;
    if is_locked_in(&status) { Ok(()) } else { Err(at(Errno::PERM)) }
}

fn read(path: &str) -> Result<String, Errno> {
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = vec![0; 8192];
    let length = rustix::io::read(&file, &mut bytes)?;
    bytes.truncate(length);
    String::from_utf8(bytes).or(Err(Errno::ILSEQ))
}

/// Whether a process with this status is the slot's user, has no capability in any set, cannot
/// get one, and has the filter on its only thread.
fn is_locked_in(status: &str) -> bool {
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let user = INSIDE_USER.to_string();
    let is_user = |name| field(name).is_some_and(|ids| ids.split_whitespace().all(|id| id == user));
    let is_empty = |name| {
        field(name).is_some_and(|set| !set.is_empty() && set.chars().all(|digit| digit == '0'))
    };
    let is = |name, value: &str| field(name) == Some(value);
    is_user("Uid")
        && is_user("Gid")
        && ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].into_iter().all(is_empty)
        && is("NoNewPrivs", "1")
        && is("Seccomp", "2")
        && is("Seccomp_filters", "1")
        && is("Threads", "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKED_IN: &str = "Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\n\
        Gid:\t1000\t1000\t1000\t1000\nThreads:\t1\nCapInh:\t0000\nCapPrm:\t0000\n\
        CapEff:\t0000\nCapBnd:\t0000\nCapAmb:\t0000\nNoNewPrivs:\t1\nSeccomp:\t2\n\
        Seccomp_filters:\t1\n";

    #[test]
    fn a_process_without_rights_passes() {
        assert!(is_locked_in(LOCKED_IN));
    }

    #[test]
    fn any_right_that_is_left_is_seen() {
        for (has, instead) in [
            ("Uid:\t1000\t1000", "Uid:\t1000\t0"),
            ("Gid:\t1000", "Gid:\t0"),
            ("CapInh:\t0000", "CapInh:\t0001"),
            ("CapPrm:\t0000", "CapPrm:\t2000"),
            ("CapEff:\t0000", "CapEff:\t0400"),
            ("CapBnd:\t0000", "CapBnd:\tffff"),
            ("CapAmb:\t0000", ""),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("Seccomp:\t2", "Seccomp:\t0"),
            ("Seccomp_filters:\t1", "Seccomp_filters:\t0"),
            ("Threads:\t1", "Threads:\t2"),
        ] {
            assert!(LOCKED_IN.contains(has), "{has}");
            assert!(!is_locked_in(&LOCKED_IN.replace(has, instead)), "{instead}");
        }
    }
}
