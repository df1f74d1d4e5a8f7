//! Volumes in memory.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::fstatvfs;

use super::{
    ByteCount, DiskError, DiskLimit, Kind, Usage, VolumeName, exists, files,
    ground::{Ground, failed, open_folder, volumes_in},
    missing,
    mounts::{self, Mount},
};

const FOLDER: &str = "mounts";

/// The folder of mount points. Those of an earlier server have nothing mounted on them.
#[derive(Debug)]
pub(super) struct Memory {
    folder: OwnedFd,
}

impl Memory {
    pub(super) fn open(ground: &Ground) -> Result<Self, DiskError> {
        let folder = ground.folder(FOLDER)?;
        for name in volumes_in(folder.as_fd())? {
            if !mounts::is_mounted(folder.as_fd(), name.as_str())? {
                mounts::remove(folder.as_fd(), name.as_str())?;
            }
        }
        Ok(Self { folder })
    }
}

impl Kind for Memory {
    fn make(&self, ground: &Ground, name: &str, limit: DiskLimit) -> Result<OwnedFd, DiskError> {
        let limit = limit.bytes();
        let _lock = ground.lock()?;
        if mounts::is_mounted(self.folder.as_fd(), name)? {
            return Err(exists(name));
        }
        let (size, inodes) = (limit.0.to_string(), files(limit).to_string());
        let options = [("size", &*size), ("nr_inodes", &*inodes), ("mode", "0755")];
        let mount = Mount { kind: "tmpfs", source: "tmpfs", options: &options };
        let volume = mount.on(self.folder.as_fd(), name)?;
        ground.after("memory mounted");
        Ok(volume)
    }

    fn open_volume(&self, _ground: &Ground, name: &str) -> Result<OwnedFd, DiskError> {
        if !mounts::is_mounted(self.folder.as_fd(), name)? {
            return Err(missing(name));
        }
        open_folder(self.folder.as_fd(), name).map_err(failed("open", name))
    }

    fn set_limit(&self, ground: &Ground, name: &str, limit: ByteCount) -> Result<(), DiskError> {
        let volume = self.open_volume(ground, name)?;
        let (size, inodes) = (limit.0.to_string(), files(limit).to_string());
        mounts::reconfigure(volume.as_fd(), &[("size", &*size), ("nr_inodes", &*inodes)])
            .map_err(failed("resize", name))
    }

    fn usage(&self, ground: &Ground, name: &str) -> Result<Usage, DiskError> {
        let volume = self.open_volume(ground, name)?;
        let there = fstatvfs(&volume).map_err(failed("look at", name))?;
        Ok(Usage {
            bytes: ByteCount((there.f_blocks - there.f_bfree) * there.f_frsize),
            limit: Some(ByteCount(there.f_blocks * there.f_frsize)),
        })
    }

    fn remove(&self, _ground: &Ground, name: &str) -> Result<(), DiskError> {
        mounts::remove(self.folder.as_fd(), name)
    }

    fn names(&self, _ground: &Ground) -> Result<Vec<VolumeName>, DiskError> {
        let mut names = volumes_in(self.folder.as_fd())?;
        names.retain(|name| mounts::is_mounted(self.folder.as_fd(), name.as_str()).unwrap_or(true));
        Ok(names)
    }
}
