//! Writes whole files: what is written is beside its place until all of it is there and on disk.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::{
    fs::{
        Access, AtFlags, Mode, RenameFlags, accessat, fchmod, fstat, fsync, renameat_with, unlinkat,
    },
    io::Errno,
};

use super::{
    resolve::{DIRECTORY, Parents, Root, Spot, identity, is_made_up, split, sync},
    temporary,
    wire::{At, Condition, Fault, Kind, Stat, Why},
};

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Writing {
    at: At,
    directory: OwnedFd,
    file: OwnedFd,
    /// The name that it has meanwhile, if it has one.
    name: Option<String>,
    condition: Condition,
}

/// What a new file may be used for if nobody says so.
const NEW: u32 = 0o644;

impl Writing {
    /// Begins to write. Returns what is there, too.
    pub(super) fn begin(
        at: At,
        condition: Condition,
        parents: Parents,
    ) -> Result<(Self, Option<Stat>), Fault> {
        let Spot { directory, .. } = Root::open(&at.root)?.spot(&at.path, parents)?;
        if is_made_up(&directory)? {
            return Err(Why::Denied.into());
        }
        let name = split(&at.path).1;
        let spot = Spot { directory, name };
        let there = check(&spot, &condition)?;
        let directory = spot.directory;
        let (file, name) = match temporary::nameless(directory.as_fd()) {
            Ok(file) => (file, None),
            Err(Errno::OPNOTSUPP) => {
                let (file, name) = temporary::named(directory.as_fd())?;
                (file, Some(name))
            }
            Err(other) => return Err(other.into()),
        };
        Ok((Self { at, directory, file, name, condition }, there))
    }

    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Puts it in its place. Whatever goes wrong, the place is as it was.
    pub(super) fn commit(mut self, mode: Option<u32>) -> Result<Stat, Fault> {
        self.is_where_it_was()?;
        let path = std::mem::take(&mut self.at.path);
        let name = split(&path).1;
        let spot = Spot { directory: self.directory.try_clone().or(Err(Errno::MFILE))?, name };
        // Before the last look, so that as little as can be is between it and the end.
        fsync(&self.file)?;
        let there = check(&spot, &self.condition)?;
        let mode = mode.or(there.map(|there| there.mode)).unwrap_or(NEW);
        fchmod(&self.file, Mode::from_raw_mode(mode & 0o777))?;
        match there {
            None if self.name.is_none() => {
                match temporary::link_as(&self.file, self.directory.as_fd(), name) {
                    // Somebody was faster.
                    Err(Errno::EXIST) => {
                        check(&spot, &self.condition)?;
                        self.rename(name, RenameFlags::empty())?;
                    }
                    linked => linked?,
                }
            }
            None => match self.rename(name, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST | Errno::INVAL) => {
                    check(&spot, &self.condition)?;
                    self.rename(name, RenameFlags::empty())?;
                }
                renamed => renamed?,
            },
            Some(_) => self.rename(name, RenameFlags::empty())?,
        }
        sync(&self.directory);
        Ok(Stat::from(&fstat(&self.file)?))
    }

    /// A directory that was moved while it was written to is another place, and may be out of reach.
    fn is_where_it_was(&self) -> Result<(), Fault> {
        let parent = split(&self.at.path).0;
        let now = match Root::open(&self.at.root)?.find(parent, DIRECTORY) {
            Ok(now) => now,
            Err(Fault { why: Why::NotFound | Why::NotADirectory | Why::Outside, .. }) => {
                return Err(Why::Conflict.into());
            }
            Err(other) => return Err(other),
        };
        if identity(&now)? == identity(&self.directory)? {
            Ok(())
        } else {
            Err(Why::Conflict.into())
        }
    }

    fn rename(&mut self, name: &[u8], flags: RenameFlags) -> Result<(), Errno> {
        if self.name.is_none() {
            self.name = Some(temporary::link(&self.file, self.directory.as_fd())?);
        }
        let from = self.name.as_deref().unwrap_or_default();
        renameat_with(&self.directory, from, &self.directory, name, flags)?;
        // It has its own name now.
        self.name = None;
        Ok(())
    }
}

/// What is not in its place goes.
impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // If it cannot be, the next writer in this directory does it.
            let _ = unlinkat(&self.directory, name.as_str(), AtFlags::empty());
        }
    }
}

/// Returns what is there, if it may be replaced by a file.
fn check(spot: &Spot<'_>, condition: &Condition) -> Result<Option<Stat>, Fault> {
    let there = spot.look()?;
    match there.map(|there| there.kind) {
        None | Some(Kind::File) => {}
        Some(Kind::Symlink) => return Err(Why::Symlink.into()),
        Some(Kind::Directory) => return Err(Why::IsDirectory.into()),
        Some(Kind::Fifo | Kind::Socket | Kind::Device | Kind::Unknown) => {
            return Err(Why::NotRegular.into());
        }
    }
    if !condition.holds_for(there.as_ref()) {
        return Err(Fault { why: Why::Precondition, there });
    }
    if there.is_some() {
        // Whoever may not write to a file may not replace it either, although the directory is his.
        // By the user that files are worked on as, which is not the process's own.
        let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EACCESS;
        match accessat(&spot.directory, spot.name, Access::WRITE_OK, how) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Ok(there)
}
