//! What a sandbox was granted, written down where only the spawner can write: a sandbox that is
//! resumed has its mounts again, also when nobody is connected who could be asked.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{Mode, OFlags, fsync, openat, renameat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use crate::{paths::Paths, sandbox::folder};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::spawner) struct Grant {
    pub(in crate::spawner) rights: Rights,
    pub(in crate::spawner) paths: Paths,
}

/// Whose rights paths are opened with, as the spawner found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::spawner) struct Rights {
    /// `None`: the spawner's own, because the whole server is one user's.
    pub(in crate::spawner) person: Option<Person>,
    /// The folders that he may name paths beneath. `None`: any path.
    pub(in crate::spawner) beneath: Option<Vec<String>>,
}

/// A user of the machine, with the groups that he had when he asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::spawner) struct Person {
    pub(in crate::spawner) user: u32,
    pub(in crate::spawner) group: u32,
    pub(in crate::spawner) groups: Vec<u32>,
}

/// More than any grant takes: texts are bounded, and so are groups.
const LONGEST: usize = 1 << 20;

impl Grant {
    /// Writes it down, as a whole or not at all.
    pub(super) fn write(&self, sandbox: &OwnedFd) -> Result<(), Errno> {
        const NEW: &str = "grant.new";
        let bytes = postcard::to_allocvec(self).or(Err(Errno::INVAL))?;
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(sandbox, NEW, flags | OFlags::NOFOLLOW, Mode::from_raw_mode(0o600))?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let written = rustix::io::write(&file, rest)?;
            rest = rest.get(written..).unwrap_or_default();
        }
        fsync(&file)?;
        renameat(sandbox, NEW, sandbox, folder::GRANT)
    }

    /// Reads what was written. What cannot be read is an error: a sandbox does not go on without
    /// what it was given.
    pub(super) fn read(sandbox: &OwnedFd) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(sandbox, folder::GRANT, flags, Mode::empty())?;
        let mut bytes = Vec::with_capacity(4096);
        while rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes))? > 0 {
            if bytes.len() > LONGEST {
                return Err(Errno::FBIG);
            }
            bytes.reserve(4096);
        }
        postcard::from_bytes(&bytes).or(Err(Errno::BADMSG))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_read_as_it_was_written_and_a_damaged_one_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let folder = OwnedFd::from(std::fs::File::open(place.path()).unwrap());
        assert_eq!(Grant::read(&folder), Err(Errno::NOENT));
        let person = Person { user: 7, group: 8, groups: vec![8, 9] };
        let rights = Rights { person: Some(person), beneath: None };
        let grant = Grant { rights, paths: Paths::default() };
        grant.write(&folder).unwrap();
        assert_eq!(Grant::read(&folder), Ok(grant));
        let file = place.path().join(folder::GRANT);
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).unwrap());
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(file, b"\xff").unwrap();
        assert_eq!(Grant::read(&folder), Err(Errno::BADMSG));
    }
}
