//! Volumes that are directories of the data file system: without a limit, or under a project quota.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::{
    fs::{Mode, RenameFlags, fchmod, mkdirat, renameat_with},
    io::Errno,
};

use super::{
    ByteCount, DiskError, DiskKind, DiskLimit, Kind, Usage, VolumeName, exists,
    ground::{GOING, Ground, MAKING, failed, leftovers_in, open_folder, volumes_in},
    missing, tree,
};

const FOLDER: &str = "directories";

/// The folder that they are in.
#[derive(Debug)]
pub(super) struct Directories {
    folder: OwnedFd,
}

impl Directories {
    /// Opens the folder and clears what a crash has left.
    pub(super) fn open(ground: &Ground) -> Result<Self, DiskError> {
        let folder = ground.folder(FOLDER)?;
        for prefix in [MAKING, GOING] {
            for name in leftovers_in(folder.as_fd(), prefix)? {
                tree::remove(folder.as_fd(), &name).map_err(failed("remove", &name))?;
            }
        }
        Ok(Self { folder })
    }

    pub(super) fn are_there(ground: &Ground) -> Result<bool, DiskError> {
        Ok(!volumes_in(ground.folder(FOLDER)?.as_fd())?.is_empty())
    }

    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Makes a directory, which gets its name after `prepare` has seen it.
    pub(super) fn make_prepared(
        &self,
        ground: &Ground,
        name: &str,
        prepare: impl FnOnce(&OwnedFd) -> Result<(), DiskError>,
    ) -> Result<OwnedFd, DiskError> {
        let unfinished = format!("{MAKING}{name}");
        let at = self.folder();
        tree::remove(at, &unfinished).map_err(failed("remove", &unfinished))?;
        mkdirat(at, &unfinished, Mode::RWXU).map_err(failed("make", &unfinished))?;
        ground.after("directory made");
        let made = open_folder(at, unfinished.as_str()).map_err(failed("open", &unfinished))?;
        prepare(&made)?;
        fchmod(&made, Mode::from_raw_mode(0o755)).map_err(failed("open up", name))?;
        match renameat_with(at, unfinished.as_str(), at, name, RenameFlags::NOREPLACE) {
            Ok(()) => {
                ground.after("directory named");
                Ok(made)
            }
            Err(Errno::EXIST) => {
                tree::remove(at, &unfinished).map_err(failed("remove", &unfinished))?;
                Err(exists(name))
            }
            Err(errno) => Err(failed("name", name)(errno)),
        }
    }

    pub(super) fn open_one(&self, name: &str) -> Result<OwnedFd, DiskError> {
        match open_folder(self.folder(), name) {
            Err(Errno::NOENT) => Err(missing(name)),
            other => other.map_err(failed("open", name)),
        }
    }

    /// Removes a directory. It loses its name first: what takes long must not look whole.
    pub(super) fn remove_one(&self, ground: &Ground, name: &str) -> Result<(), DiskError> {
        let (unfinished, going) = (format!("{MAKING}{name}"), format!("{GOING}{name}"));
        let at = self.folder();
        for left in [&unfinished, &going] {
            tree::remove(at, left).map_err(failed("remove", left))?;
        }
        match renameat_with(at, name, at, going.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => ground.after("directory renamed"),
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(failed("rename", name)(errno)),
        }
        tree::remove(at, &going).map_err(failed("remove", &going))
    }

    pub(super) fn list(&self) -> Result<Vec<VolumeName>, DiskError> {
        volumes_in(self.folder())
    }
}

/// Without a limit.
impl Kind for Directories {
    fn make(&self, ground: &Ground, name: &str, _limit: DiskLimit) -> Result<OwnedFd, DiskError> {
        // Nothing holds it, so that what must stay free is looked at now at least.
        ground.require_room(1, 0)?;
        self.make_prepared(ground, name, |_| Ok(()))
    }

    fn open_volume(&self, _ground: &Ground, name: &str) -> Result<OwnedFd, DiskError> {
        self.open_one(name)
    }

    fn set_limit(&self, _ground: &Ground, name: &str, _: ByteCount) -> Result<(), DiskError> {
        self.open_one(name).map(drop)
    }

    fn usage(&self, _ground: &Ground, name: &str) -> Result<Usage, DiskError> {
        self.open_one(name)?;
        // To count would be to walk the whole tree.
        Err(DiskError::NotCounted { kind: DiskKind::Unlimited })
    }

    fn remove(&self, ground: &Ground, name: &str) -> Result<(), DiskError> {
        self.remove_one(ground, name)
    }

    fn names(&self, _ground: &Ground) -> Result<Vec<VolumeName>, DiskError> {
        self.list()
    }
}
