//! Volumes as projects of the data file system: an ext4 or XFS mounted with `prjquota`.

use std::{
    collections::HashSet,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::io::Errno;

use super::{
    ByteCount, DiskError, DiskLimit, Kind, Usage, VolumeName,
    directory::Directories,
    files,
    ground::{Ground, failed},
};
use crate::sys::quota::{Quota, get, project, set, set_project};

#[derive(Debug)]
pub(super) struct Projects {
    directories: Directories,
}

impl Projects {
    pub(super) fn open(ground: &Ground) -> Result<Self, DiskError> {
        // Asked first, so that nothing is made where there is no quota.
        let first = ground.settings.first_project;
        get(ground.base(), first)
            .map(drop)
            .or_else(|errno| if errno == Errno::NOENT { Ok(()) } else { Err(errno) })
            .map_err(failed("read", "project quota of the data directory"))?;
        Ok(Self { directories: Directories::open(ground)? })
    }

    /// Takes a project that no volume has, and that nothing is left of.
    fn free_project(&self, ground: &Ground) -> Result<u32, DiskError> {
        let taken: HashSet<u32> = self.volumes()?.into_iter().map(|(project, _)| project).collect();
        let fail = failed("read", "project quota");
        let mut candidate = ground.settings.first_project;
        loop {
            if !taken.contains(&candidate) {
                match get(self.directories.folder(), candidate) {
                    // Somebody may still have a file open of the volume that it was.
                    Ok(quota) if quota.used_bytes > 0 || quota.used_files > 0 => {}
                    Ok(_) | Err(Errno::NOENT) => return Ok(candidate),
                    Err(errno) => return Err(fail(errno)),
                }
            }
            candidate = candidate.checked_add(1).ok_or_else(|| fail(Errno::NOSPC))?;
        }
    }

    fn volumes(&self) -> Result<Vec<(u32, Quota)>, DiskError> {
        let read = |name: &VolumeName| self.quota(name.as_str());
        self.directories.list()?.iter().map(read).collect()
    }

    fn quota(&self, name: &str) -> Result<(u32, Quota), DiskError> {
        let volume = self.directories.open_one(name)?;
        let project = project(volume.as_fd()).map_err(failed("read the project of", name))?;
        let quota = get(volume.as_fd(), project).map_err(failed("read the quota of", name))?;
        Ok((project, quota))
    }

    /// What volumes but this one may still take.
    fn promised(&self, but: Option<u32>) -> Result<u64, DiskError> {
        let volumes = self.volumes()?;
        let others = volumes.iter().filter(|(project, _)| Some(*project) != but);
        Ok(others.map(|(_, quota)| quota.most_bytes.saturating_sub(quota.used_bytes)).sum())
    }
}

impl Kind for Projects {
    fn make(&self, ground: &Ground, name: &str, limit: DiskLimit) -> Result<OwnedFd, DiskError> {
        let limit = limit.bytes();
        let _lock = ground.lock()?;
        ground.require_room(limit.0, self.promised(None)?)?;
        let free = self.free_project(ground)?;
        self.directories.make_prepared(ground, name, |made| {
            // The limit is there before anything can be in the project.
            set(made.as_fd(), free, limit.0, files(limit)).map_err(failed("limit", name))?;
            ground.after("project limited");
            set_project(made.as_fd(), free).map_err(failed("set the project of", name))?;
            ground.after("project set");
            Ok(())
        })
    }

    fn open_volume(&self, _ground: &Ground, name: &str) -> Result<OwnedFd, DiskError> {
        self.directories.open_one(name)
    }

    fn set_limit(&self, ground: &Ground, name: &str, limit: ByteCount) -> Result<(), DiskError> {
        let _lock = ground.lock()?;
        let (project, quota) = self.quota(name)?;
        if limit.0 > quota.most_bytes {
            let wanted = limit.0.saturating_sub(quota.used_bytes);
            ground.require_room(wanted, self.promised(Some(project))?)?;
        }
        set(ground.base(), project, limit.0, files(limit)).map_err(failed("limit", name))
    }

    fn usage(&self, _ground: &Ground, name: &str) -> Result<Usage, DiskError> {
        let (_, quota) = self.quota(name)?;
        Ok(Usage { bytes: ByteCount(quota.used_bytes), limit: Some(ByteCount(quota.most_bytes)) })
    }

    fn remove(&self, ground: &Ground, name: &str) -> Result<(), DiskError> {
        self.directories.remove_one(ground, name)
    }

    fn names(&self, _ground: &Ground) -> Result<Vec<VolumeName>, DiskError> {
        self.directories.list()
    }
}
