//! What the kernel says about the groups of quota.

use std::{fs, os::fd::BorrowedFd, path::PathBuf};

use rustix::io::Errno;

use crate::{
    disk::{DiskError, DiskLimit, LEAST, ground::failed},
    sys::btrfs::{
        Group, create_group, enable_simple_quota, id, limit_group, remove_group, subvolume_is_left,
    },
};

/// The level of groups whose limits are promises.
const PROMISED: u16 = 1;
/// The level of groups that may have so much if it is there.
const UP_TO: u16 = 2;
/// The one group that all of those are members of: what was promised to others is not theirs.
const COMMON: Group = Group::new(3, 1);
const COMMON_FOLDER: &str = "3_1";

/// The folder in which the kernel shows each group as a folder, `1_N` for `1/N`. What it shows is
/// what it counts with, while the tree on disk is behind.
#[derive(Debug)]
pub(super) struct Groups {
    folder: PathBuf,
}

/// What the group of a volume uses, and what it may.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) group: Group,
    pub(super) is_promised: bool,
    pub(super) bytes: u64,
    pub(super) limit: u64,
}

/// What all volumes together may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// The limits that are promises, and what of them is not used yet.
    pub(super) promised: u64,
    pub(super) promised_left: u64,
    /// How many volumes there are without a promise, and what they use together.
    pub(super) others: u64,
    pub(super) used_by_others: u64,
}

impl Sums {
    /// Returns what must be there: the promises, and what the others have or need at least.
    pub(super) fn needed(self) -> u64 {
        let least = self.others.saturating_mul(LEAST.0);
        self.promised.saturating_add(self.used_by_others.max(least))
    }

    pub(super) fn and(self, limit: DiskLimit) -> Self {
        match limit {
            DiskLimit::Promised(bytes) => Self {
                promised: self.promised.saturating_add(bytes.0),
                promised_left: self.promised_left.saturating_add(bytes.0),
                ..self
            },
            DiskLimit::UpTo(_) => Self { others: self.others.saturating_add(1), ..self },
        }
    }
}

/// Returns the group that holds the limit of a subvolume.
pub(super) fn group_of(volume: u64, limit: DiskLimit) -> Group {
    match limit {
        DiskLimit::Promised(_) => Group::new(PROMISED, volume),
        DiskLimit::UpTo(_) => Group::new(UP_TO, volume),
    }
}

/// Returns the group that such a group is a member of, if of any.
pub(super) fn group_above(limit: DiskLimit) -> Option<Group> {
    match limit {
        DiskLimit::Promised(_) => None,
        DiskLimit::UpTo(_) => Some(COMMON),
    }
}

/// Sets what all volumes without a promise may use together.
pub(super) fn limit_others(root: BorrowedFd<'_>, bytes: u64) -> Result<(), DiskError> {
    limit_group(root, COMMON, bytes).map_err(failed("limit", "the volumes together"))
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
        match create_group(root, COMMON) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(fail(errno)),
        }
        let folder = format!("/sys/fs/btrfs/{}/qgroups", id(root).map_err(fail)?);
        Ok(Self { folder: folder.into() })
    }

    pub(super) fn usage(&self, volume: u64) -> Result<Used, DiskError> {
        let is_promised = self.folder.join(format!("{PROMISED}_{volume}")).exists();
        let level = if is_promised { PROMISED } else { UP_TO };
        let folder = format!("{level}_{volume}");
        let limit = self.number(&folder, "max_referenced")?;
        let group = Group::new(level, volume);
        Ok(Used { group, is_promised, bytes: self.used(&folder)?, limit })
    }

    /// Returns what is promised and used, also by those whose subvolumes are still going.
    pub(super) fn sums(&self) -> Result<Sums, DiskError> {
        let mut sums = Sums { used_by_others: self.used(COMMON_FOLDER)?, ..Sums::default() };
        for (level, volume) in self.with_limits()? {
            if level == UP_TO {
                sums.others = sums.others.saturating_add(1);
                continue;
            }
            let used = self.usage(volume)?;
            sums.promised = sums.promised.saturating_add(used.limit);
            let left = used.limit.saturating_sub(used.bytes);
            sums.promised_left = sums.promised_left.saturating_add(left);
        }
        Ok(sums)
    }

    /// Removes the groups of subvolumes that are gone.
    pub(super) fn clear(&self, root: BorrowedFd<'_>, alive: &[u64]) -> Result<(), DiskError> {
        let fail = failed("look for", "a subvolume");
        for (level, volume) in self.with_limits()? {
            if alive.contains(&volume) || subvolume_is_left(root, volume).map_err(&fail)? {
                continue;
            }
            // The kernel may have removed the first, and may still hold on to either: then another
            // round gets them.
            let _ = remove_group(root, Group::of_subvolume(volume));
            let _ = remove_group(root, Group::new(level, volume));
        }
        Ok(())
    }

    /// Returns the level and the number of each group that holds the limit of a volume.
    fn with_limits(&self) -> Result<Vec<(u16, u64)>, DiskError> {
        let found = fs::read_dir(&self.folder).map_err(|error| self.failed(&error))?;
        let read = |name: &str| {
            let (level, volume) = name.split_once('_')?;
            Some((level.parse().ok()?, volume.parse().ok()?))
        };
        let names = found.filter_map(Result::ok).map(|entry| entry.file_name());
        let groups = names.filter_map(|name| read(name.to_str()?));
        Ok(groups.filter(|(level, _)| matches!(*level, PROMISED | UP_TO)).collect())
    }

    fn used(&self, group: &str) -> Result<u64, DiskError> {
        // What was written, but not yet written out.
        let reserved = self.number(group, "rsv_data")?;
        Ok(self.number(group, "referenced")?.saturating_add(reserved))
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
