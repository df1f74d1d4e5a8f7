//! Which process is the supervisor of a sandbox: never by its number alone, which another may have
//! by now.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use serde::{Deserialize, Serialize};

use super::files::Folder;
use crate::{cgroup::Places, identity::SANDBOX_USERS, sandbox::folder};

/// What is written down of a supervisor, where only a spawner can write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marks {
    /// Since when the machine runs, by a number that every start has anew.
    boot: String,
    pid: i32,
    /// When the process was started, in ticks since the machine was.
    started: u64,
    pub(super) places: Option<Places>,
}

/// What is found by these.
#[derive(Debug)]
pub(super) enum Identified {
    Alive { pidfd: OwnedFd, marks: Marks, block: Option<u32> },
    Gone,
}

const LONGEST: usize = 64 * 1024;

impl Marks {
    /// Notes a process that lives.
    pub(super) fn of(pid: Pid, places: Option<Places>) -> Result<Self, Errno> {
        let number = pid.as_raw_nonzero().get();
        Ok(Self { boot: boot()?, pid: number, started: started(number)?, places })
    }

    /// Writes them down for one that waits. They are a sandbox's when they are there as a whole.
    pub(super) fn write(&self, folder: &Folder, name: &str) -> Result<(), Errno> {
        let bytes = postcard::to_allocvec(self).or(Err(Errno::INVAL))?;
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let waiting = folder.begin_waiting(name)?;
        let file = openat(&waiting, folder::BODY, flags, Mode::from_raw_mode(0o600))?;
        match rustix::io::write(&file, &bytes)? {
            written if written == bytes.len() => Ok(()),
            _ => Err(Errno::NOSPC),
        }
    }

    /// Reads what was written; nothing if there is nothing that can be read.
    pub(super) fn read(folder: &Folder, name: &str) -> Option<Self> {
        let sandbox = folder.sandbox(name).ok()?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&sandbox, folder::BODY, flags, Mode::empty()).ok()?;
        postcard::from_bytes(&read_all(&file).ok()?).ok()
    }

    /// Reads what was written of one that waits.
    pub(super) fn read_waiting(folder: &Folder, name: &str) -> Option<Self> {
        let file = folder.open_waiting(name).ok()?;
        postcard::from_bytes(&read_all(&file).ok()?).ok()
    }

    pub(super) fn is_of_this_boot(&self) -> bool {
        // A boot that cannot be read is taken for the same: nothing is given up for it.
        boot().map_or(true, |boot| boot == self.boot)
    }

    /// Opens the process that they mark, if it lives.
    pub(super) fn process(&self) -> Option<OwnedFd> {
        alive(self).ok().flatten().map(|(pidfd, _)| pidfd)
    }
}

/// Finds the supervisor of a sandbox.
pub(super) fn find(folder: &Folder, name: &str) -> Identified {
    let Some(marks) = Marks::read(folder, name) else { return Identified::Gone };
    match alive(&marks) {
        Ok(Some((pidfd, block))) => Identified::Alive { pidfd, marks, block },
        Ok(None) | Err(_) => Identified::Gone,
    }
}

/// Whether the machine was started since the supervisor of a sandbox was. What is written down of it may be
/// missing or incomplete after a loss of power: then it is decided by whether this is the first server of this boot.
pub(super) fn is_of_another_boot(folder: &Folder, name: &str, is_first_of_boot: bool) -> bool {
    match Marks::read(folder, name) {
        Some(marks) => !marks.is_of_this_boot(),
        None => is_first_of_boot,
    }
}

/// Whether no other server has used this folder since the machine was started.
pub(super) fn is_first_of_boot(folder: &Folder) -> Result<bool, Errno> {
    folder.note_boot(boot()?.as_bytes())
}

fn alive(marks: &Marks) -> Result<Option<(OwnedFd, Option<u32>)>, Errno> {
    if boot()? != marks.boot {
        return Ok(None);
    }
    let Some(pid) = Pid::from_raw(marks.pid) else { return Ok(None) };
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(Errno::SRCH) => return Ok(None),
        Err(other) => return Err(other),
    };
    // The number may have been another's by the time it was opened: but not with this start.
    if started(marks.pid) != Ok(marks.started) {
        return Ok(None);
    }
    Ok(Some((pidfd, block(marks.pid)?)))
}

fn boot() -> Result<String, Errno> {
    Ok(read_text("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Returns when a process was started: the 22nd field of its `stat`.
fn started(pid: i32) -> Result<u64, Errno> {
    let stat = read_text(&format!("/proc/{pid}/stat"))?;
    // Its name may hold anything, closing brackets too.
    let (_, after_name) = stat.rsplit_once(')').ok_or(Errno::INVAL)?;
    let mut fields = after_name.split_whitespace();
    let is_dead = matches!(fields.next(), Some("Z" | "X"));
    let field = fields.nth(18).filter(|_| !is_dead).ok_or(Errno::SRCH)?;
    field.parse().or(Err(Errno::INVAL))
}

/// Returns the first of the users that a process has been given on the machine.
fn block(pid: i32) -> Result<Option<u32>, Errno> {
    let map = read_text(&format!("/proc/{pid}/uid_map"))?;
    let fields: Vec<u32> = map.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    match fields.as_slice() {
        [0, first, SANDBOX_USERS] => Ok(Some(*first)),
        _ => Ok(None),
    }
}

fn read_text(path: &str) -> Result<String, Errno> {
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(String::from_utf8_lossy(&read_all(&file)?).into_owned())
}

fn read_all(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::with_capacity(4096);
    while rustix::io::read(file, rustix::buffer::spare_capacity(&mut bytes))? > 0 {
        if bytes.len() > LONGEST {
            return Err(Errno::FBIG);
        }
        bytes.reserve(4096);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start_and_not_by_its_number() {
        let marks = Marks::of(rustix::process::getpid(), None).unwrap();
        assert!(alive(&marks).unwrap().is_some());
        let other = Marks { started: marks.started + 1, ..marks.clone() };
        assert!(alive(&other).unwrap().is_none());
        let earlier = Marks { boot: "another".to_owned(), ..marks };
        assert!(alive(&earlier).unwrap().is_none());
    }

    #[test]
    fn what_was_written_down_is_read_and_anything_else_is_nothing() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(&place.path().join("sandboxes"), None).unwrap();
        drop(folder.begin("sb_1").unwrap());
        assert!(Marks::read(&folder, "sb_1").is_none());
        let marks = Marks::of(rustix::process::getpid(), None).unwrap();
        marks.write(&folder, "sb_1").unwrap();
        assert!(Marks::read(&folder, "sb_1").is_none());
        assert_eq!(Marks::read_waiting(&folder, "sb_1").as_ref(), Some(&marks));
        folder.take_marks("sb_1").unwrap();
        assert_eq!(Marks::read(&folder, "sb_1"), Some(marks));
        assert!(folder.waiting().is_empty());
        std::fs::write(place.path().join("sandboxes/sb_1/body"), b"\xff\xff").unwrap();
        assert!(Marks::read(&folder, "sb_1").is_none());
    }
}
