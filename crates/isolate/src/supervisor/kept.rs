//! The files that output is kept in: made before there is a command, named after it when it begins. Output of a
//! caller's commands stays with the sandbox, that of the server's own goes.

use std::{collections::BTreeSet, os::fd::OwnedFd};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, fstat, openat, renameat, statat, unlinkat},
    io::Errno,
};

use super::{Place, wire::UNKEPT};
use crate::sandbox::folder::{NEXT, STREAMS};

/// So many of each kind keep their output when they are forgotten: a command that is started again
/// for ever must not fill the disk, and of one that crashed somebody wants to see why.
const LAST: usize = 3;

/// The files for the output of the next command. There is one such pair at a time: to make a file takes as long as
/// the disk has other things to do, and a command would wait for it.
#[derive(Debug)]
pub(super) struct Unnamed {
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

impl Unnamed {
    /// Returns those that are there, if nobody has written to them, and else makes them.
    pub(super) fn create(place: &Place) -> Result<Self, Errno> {
        let [stdout, stderr] =
            STREAMS.map(|stream| empty(&place.outputs, &format!("{NEXT}{stream}")));
        Ok(Self { stdout: stdout?, stderr: stderr? })
    }
}

fn empty(folder: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    if let Ok(file) = openat(folder, name, flags, Mode::empty())
        && fstat(&file)?.st_size == 0
    {
        return Ok(file);
    }
    let _ = unlinkat(folder, name, AtFlags::empty());
    let (flags, mode) = (flags | OFlags::CREATE | OFlags::EXCL, Mode::from_raw_mode(0o640));
    openat(folder, name, flags, mode)
}

impl Place {
    /// Fails if there is output of a command with this id: then it has run, whoever may have forgotten it.
    pub(super) fn has_no_output(&self, exec: &str) -> Result<(), Errno> {
        for stream in STREAMS {
            match statat(&self.outputs, format!("{exec}{stream}"), AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {}
                Ok(_) => return Err(Errno::EXIST),
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Names the files that were made for the next command after the one that has begun.
    pub(super) fn name_output(&self, exec: &str) -> Result<(), Errno> {
        let folder = &self.outputs;
        STREAMS.iter().try_for_each(|stream| {
            let (from, to) = (format!("{NEXT}{stream}"), format!("{exec}{stream}"));
            renameat(folder, from, folder, to)
        })
    }

    /// Removes what nobody looks at, now that this command is forgotten.
    pub(super) fn clear_output(&self, exec: &str) {
        if exec.starts_with(UNKEPT) {
            return self.remove_output(exec);
        }
        let Some((kind, _)) = numbered(exec) else { return };
        // What cannot be listed is looked at again the next time.
        let entries = Dir::read_from(&self.outputs).into_iter().flatten().filter_map(Result::ok);
        let names = entries.filter_map(|entry| entry.file_name().to_str().map(str::to_owned).ok());
        for number in surplus(names, kind) {
            self.remove_output(&format!("{kind}-{number}"));
        }
    }

    pub(super) fn remove_output(&self, exec: &str) {
        for stream in STREAMS {
            let _ = unlinkat(&self.outputs, format!("{exec}{stream}"), AtFlags::empty());
        }
    }
}

/// Returns the kind and the number of a command that is the server's own. Later ones have higher
/// numbers, so that the one that runs is among the last.
fn numbered(exec: &str) -> Option<(&str, u64)> {
    let (kind, number) = exec.rsplit_once('-').filter(|(kind, _)| kind.starts_with('_'))?;
    Some((kind, number.parse().ok()?))
}

/// Returns the numbers of all files of this kind but of the last few.
fn surplus(names: impl Iterator<Item = String>, kind: &str) -> Vec<u64> {
    let mut numbers = BTreeSet::new();
    for name in names {
        let exec = STREAMS.iter().find_map(|stream| name.strip_suffix(stream));
        if let Some((_, number)) = exec.and_then(numbered).filter(|(other, _)| *other == kind) {
            numbers.insert(number);
        }
    }
    let surplus = numbers.len().saturating_sub(LAST);
    numbers.into_iter().take(surplus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_of_the_same_kind_and_older_is_too_much() {
        let kinds = ["_main-", "_post-", "main-", "ex-_main-"];
        let names = kinds.iter().flat_map(|kind| {
            [9, 10, 2, 1, 30].iter().flat_map(move |number| {
                STREAMS.iter().map(move |stream| format!("{kind}{number}{stream}"))
            })
        });
        assert_eq!(surplus(names.clone(), "_main"), [1, 2]);
        assert_eq!(surplus(names.chain(["_main-0.stdout.log".to_owned()]), "_main"), [0, 1, 2]);
        assert_eq!(numbered("ex_1"), None);
        assert_eq!(numbered("_main-"), None);
        assert_eq!(numbered("_main--5"), Some(("_main-", 5)));
    }
}
