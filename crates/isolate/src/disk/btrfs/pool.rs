//! The file of the pool: made, put under a loop device, mounted, enlarged.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::{
    fs::{OFlags, fstat, fsync, ftruncate, renameat},
    io::Errno,
};

use crate::{
    disk::{
        DiskError,
        ground::{Ground, MAKING, exists, failed, open, remove_file},
        loops::Device,
        mounts::{self, Mount},
        programs::MKFS_BTRFS,
    },
    sys::btrfs::grow,
};

const FILE: &str = "pool.btrfs";
const MOUNT_POINT: &str = "pool";

/// What the file system needs for itself, whatever is in it.
const OWN: u64 = 256 << 20;
/// The file grows by this much at least.
const STEP: u64 = 64 << 20;

/// The file and the device over it.
#[derive(Debug)]
pub(super) struct PoolFile {
    file: OwnedFd,
    device: Device,
    is_new: bool,
}

pub(super) fn is_there(ground: &Ground) -> Result<bool, DiskError> {
    exists(ground.base(), FILE)
}

/// Lets go of the pool.
pub(super) fn unmount(ground: &Ground) -> Result<(), DiskError> {
    mounts::detach(ground.base(), MOUNT_POINT)
}

impl PoolFile {
    /// Makes the pool if there is none, and mounts it. It may be mounted elsewhere already, by what
    /// an earlier server has left running: then this is the same file system once more.
    pub(super) fn mount(ground: &Ground) -> Result<(Self, OwnedFd), DiskError> {
        let (file, is_new) = match open(ground.base(), FILE, OFlags::RDWR) {
            Err(Errno::NOENT) => (make(ground)?, true),
            other => (other.map_err(failed("open", FILE))?, false),
        };
        let device = Device::over(file.as_fd())?;
        ground.after("pool attached");
        unmount(ground)?;
        let mount = Mount { kind: "btrfs", source: &device.path, options: &OPTIONS };
        let root = mount.on(ground.base(), MOUNT_POINT)?;
        ground.after("pool mounted");
        // The file may have grown without the file system.
        grow(root.as_fd()).map_err(failed("enlarge", FILE))?;
        Ok((Self { file, device, is_new }, root))
    }

    /// Lets go of a pool that is of no use, and removes one that was made for nothing.
    pub(super) fn give_up(&self, ground: &Ground) -> Result<(), DiskError> {
        unmount(ground)?;
        if self.is_new { remove_file(ground.base(), FILE) } else { Ok(()) }
    }

    /// Enlarges the pool to hold what is needed, if the data file system has it to give, and as much
    /// of what is wanted as it has.
    pub(super) fn have_room_for(
        &self,
        ground: &Ground,
        root: BorrowedFd<'_>,
        needed: u64,
        wanted: u64,
    ) -> Result<(), DiskError> {
        let found = fstat(&self.file).map_err(failed("look at", FILE))?;
        let size = found.st_size.unsigned_abs();
        let needed = size_for(needed);
        // The file has holes: what it takes now is no longer free, the rest must still be.
        let taken = found.st_blocks.unsigned_abs().saturating_mul(512);
        let room = ground.room()?;
        let missing = needed.saturating_sub(taken);
        if missing > room {
            return Err(DiskError::Full { wanted: missing, room });
        }
        let most = taken.saturating_add(room) / STEP * STEP;
        let wanted = size_for(wanted).min(most).max(needed);
        if wanted <= size {
            return Ok(());
        }
        ftruncate(&self.file, wanted).map_err(failed("enlarge", FILE))?;
        ground.after("pool file enlarged");
        self.device.take_size_of_file()?;
        ground.after("pool device enlarged");
        grow(root).map_err(failed("enlarge", FILE))
    }

    /// Returns what volumes can hold in a pool of this size.
    pub(super) fn capacity(&self) -> Result<u64, DiskError> {
        let size = fstat(&self.file).map_err(failed("look at", FILE))?.st_size.unsigned_abs();
        Ok(capacity_of(size))
    }
}

/// What is deleted is given back to the data file system.
const OPTIONS: [(&str, &str); 1] = [("discard", "async")];

/// Metadata may take up to an eighth more than what is counted for volumes.
fn size_for(promised: u64) -> u64 {
    let needed = OWN.saturating_add(promised).saturating_add(promised / 8);
    needed.div_ceil(STEP).saturating_mul(STEP)
}

/// What is left of a size for volumes, as [`size_for`] counts.
fn capacity_of(size: u64) -> u64 {
    size.saturating_sub(OWN) / 9 * 8
}

fn make(ground: &Ground) -> Result<OwnedFd, DiskError> {
    MKFS_BTRFS.find()?;
    let size = size_for(0);
    let room = ground.room()?;
    if size > room {
        return Err(DiskError::Full { wanted: size, room });
    }
    let unfinished = format!("{MAKING}{FILE}");
    remove_file(ground.base(), &unfinished)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let file = open(ground.base(), unfinished.as_str(), flags).map_err(failed("make", FILE))?;
    ground.after("pool file made");
    ftruncate(&file, size).map_err(failed("enlarge", FILE))?;
    // One copy of the metadata: a second one in the same file would protect from nothing.
    MKFS_BTRFS.run(&["--quiet", "--metadata", "single", "--data", "single"], file.as_fd())?;
    ground.after("pool formatted");
    fsync(&file).map_err(failed("write out", FILE))?;
    let base = ground.base();
    renameat(base, unfinished.as_str(), base, FILE).map_err(failed("name", FILE))?;
    ground.after("pool file named");
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_larger_than_what_is_promised() {
        assert_eq!(size_for(0), OWN);
        assert_eq!(size_for(1), OWN + STEP);
        assert_eq!(size_for(8 << 30), OWN + (9 << 30));
        assert_eq!(size_for(u64::MAX), u64::MAX);
        assert_eq!((capacity_of(0), capacity_of(OWN + (9 << 30))), (0, 8 << 30));
        assert!((0..100).all(|mib| capacity_of(size_for(mib << 20)) >= mib << 20));
    }
}
