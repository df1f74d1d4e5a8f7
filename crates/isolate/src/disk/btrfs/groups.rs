//! What the kernel says about the groups of quota.

use std::{fs, os::fd::BorrowedFd, path::PathBuf};

use rustix::io::Errno;

use crate::{
    disk::{DiskError, ground::failed},
    sys::btrfs::{Group, enable_simple_quota, id, remove_group, subvolume_is_left},
};

/// The folder in which the kernel shows each group as a folder, `1_N` for `1/N`. What it shows is
/// what it counts with, while the tree on disk is behind.
#[derive(Debug)]
pub(super) struct Groups {
    folder: PathBuf,
}

/// What the group of a volume uses, and what it may.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) bytes: u64,
    pub(super) limit: u64,
}

impl Groups {
    /// Begins to count, if that was not done before.
    pub(super) fn open(root: BorrowedFd<'_>) -> Result<Self, DiskError> {
        let fail = failed("count the use of", "the pool");
        match enable_simple_quota(root) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOTTY | Errno::OPNOTSUPP) => {
                return Err(DiskError::OldKernel { what: "simple quotas of btrfs", since: "6.7" });
            }
            Err(errno) => return Err(fail(errno)),
        }
        let folder = format!("/sys/fs/btrfs/{}/qgroups", id(root).map_err(fail)?);
        Ok(Self { folder: folder.into() })
    }

    pub(super) fn usage(&self, volume: u64) -> Result<Used, DiskError> {
        let group = format!("1_{volume}");
        let bytes = self.number(&group, "referenced")?;
        // What was written, but not yet written out.
        let reserved = self.number(&group, "rsv_data")?;
        let limit = self.number(&group, "max_referenced")?;
        Ok(Used { bytes: bytes.saturating_add(reserved), limit })
    }

    /// Returns the sum of all limits, also of those whose subvolumes are still going.
    pub(super) fn promised(&self) -> Result<u64, DiskError> {
        let mut sum = 0_u64;
        for volume in self.above()? {
            sum = sum.saturating_add(self.number(&format!("1_{volume}"), "max_referenced")?);
        }
        Ok(sum)
    }

    /// Removes the groups of subvolumes that are gone.
    pub(super) fn clear(&self, root: BorrowedFd<'_>, alive: &[u64]) -> Result<(), DiskError> {
        let fail = failed("look for", "a subvolume");
        for volume in self.above()? {
            if alive.contains(&volume) || subvolume_is_left(root, volume).map_err(&fail)? {
                continue;
            }
            // The kernel may have removed the first, and may still hold on to either: then another
            // round gets them.
            let _ = remove_group(root, Group::of_subvolume(volume));
            let _ = remove_group(root, Group::above(volume));
        }
        Ok(())
    }

    /// Returns the numbers of the groups that have limits.
    fn above(&self) -> Result<Vec<u64>, DiskError> {
        let found = fs::read_dir(&self.folder).map_err(|error| self.failed(&error))?;
        let number = |name: &str| name.strip_prefix("1_")?.parse().ok();
        let names = found.filter_map(Result::ok).map(|entry| entry.file_name());
        Ok(names.filter_map(|name| number(name.to_str()?)).collect())
    }

    fn number(&self, group: &str, file: &str) -> Result<u64, DiskError> {
        let path = self.folder.join(group).join(file);
        let text = fs::read_to_string(path).map_err(|error| self.failed(&error))?;
        Ok(text.trim().parse().unwrap_or(u64::MAX))
    }

    fn failed(&self, error: &std::io::Error) -> DiskError {
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        failed("read the groups in", &self.folder.to_string_lossy())(errno)
    }
}
