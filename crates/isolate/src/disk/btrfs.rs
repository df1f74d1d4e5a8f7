//! Volumes as subvolumes of one btrfs, which is a file in the data directory.
//!
//! A subvolume `N` is a member of the group `1/N`, which has the limit. Anybody can make subvolumes
//! in a directory of theirs: one that is made inside becomes a member of the same group, because the
//! kernel is told to count in the simple way. Counted in the older way it would have no limit.
//!
//! If its limit is no promise the group is `2/N`, and a member of `3/1`, which has what is promised to
//! nobody. So the limits of those may add up to more than there is.

mod groups;
mod pool;

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::{
    fs::{AtFlags, Mode, RenameFlags, fchmod, renameat_with, statat},
    io::Errno,
};

use super::{
    ByteCount, DiskError, DiskLimit, Kind, Usage, VolumeName, exists,
    ground::{Ground, MAKING, failed, leftovers_in, open_folder, volumes_in},
    missing,
};
use crate::sys::btrfs::{
    Group, commit, create_group, create_subvolume, destroy_subvolume, destroy_subvolume_by_id,
    join_group, limit_group, subvolume_id, subvolumes_within, wait_for_clearing,
};
use groups::{Groups, Sums, Used, group_above, group_of, limit_others};
use pool::PoolFile;

/// How often the clearing of removed volumes is waited for before a new one is refused.
const ROUNDS: usize = 8;

/// By how much the limit of a volume is raised to remove what is in it.
const FOR_REMOVAL: u64 = 64 << 20;

/// The mounted pool.
#[derive(Debug)]
pub(super) struct Pool {
    root: OwnedFd,
    file: PoolFile,
    groups: Groups,
}

impl Pool {
    /// Makes the pool if there is none, mounts it, and clears what a crash has left.
    pub(super) fn open(ground: &Ground) -> Result<Self, DiskError> {
        let (file, root) = PoolFile::mount(ground)?;
        let groups = match Groups::open(root.as_fd()) {
            Ok(groups) => groups,
            Err(error) => {
                file.give_up(ground)?;
                return Err(error);
            }
        };
        let pool = Self { root, file, groups };
        let _lock = ground.lock()?;
        for name in leftovers_in(pool.root(), MAKING)? {
            pool.destroy(&name)?;
        }
        pool.clear_groups()?;
        pool.share(ground)?;
        Ok(pool)
    }

    pub(super) fn is_there(ground: &Ground) -> Result<bool, DiskError> {
        pool::is_there(ground)
    }

    fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Removes the groups of subvolumes that are gone. Those of subvolumes that are only going stay:
    /// their space is not there yet.
    fn clear_groups(&self) -> Result<(), DiskError> {
        let mut alive = Vec::new();
        for name in volumes_in(self.root())? {
            alive.push(self.id_of(name.as_str())?);
        }
        self.groups.clear(self.root(), &alive)
    }

    /// Sees that there is room for everything that was promised, and for one more.
    fn promise(&self, ground: &Ground, more: DiskLimit) -> Result<(), DiskError> {
        for _ in 0..ROUNDS {
            match self.try_promise(ground, more) {
                Err(DiskError::Full { .. }) => self.wait_for_clearing()?,
                other => return other,
            }
        }
        self.try_promise(ground, more)
    }

    fn try_promise(&self, ground: &Ground, more: DiskLimit) -> Result<(), DiskError> {
        let sums = self.groups.sums()?.and(more);
        // As if all the others had this limit too: they mostly do.
        let wanted = match more {
            DiskLimit::Promised(_) => 0,
            DiskLimit::UpTo(limit) => {
                sums.promised.saturating_add(sums.others.saturating_mul(limit.0))
            }
        };
        self.file.have_room_for(ground, self.root(), sums.needed(), wanted)?;
        self.share_out(ground, sums)
    }

    /// Leaves to the volumes without a promise what the others do not have.
    fn share(&self, ground: &Ground) -> Result<(), DiskError> {
        self.share_out(ground, self.groups.sums()?)
    }

    fn share_out(&self, ground: &Ground, sums: Sums) -> Result<(), DiskError> {
        let in_pool = self.file.capacity()?.saturating_sub(sums.promised);
        // Others than volumes may have taken of the data file system meanwhile.
        let more = ground.room()?.saturating_sub(sums.promised_left);
        let in_file_system = sums.used_by_others.saturating_add(more);
        limit_others(self.root(), in_pool.min(in_file_system))
    }

    /// Waits until the space of volumes that were removed is there again. Those that somebody still
    /// has open are not waited for.
    fn wait_for_clearing(&self) -> Result<(), DiskError> {
        commit(self.root()).map_err(failed("commit", "the pool"))?;
        let waited = wait_for_clearing(self.root());
        self.clear_groups()?;
        match waited {
            // There may be nothing to wait for. A kernel before 6.13 does not know the request: the
            // commit has at least woken up who clears.
            Ok(()) | Err(Errno::NOENT | Errno::NOTTY | Errno::INVAL) => Ok(()),
            Err(errno) => Err(failed("clear", "the pool")(errno)),
        }
    }

    fn open_one(&self, name: &str) -> Result<OwnedFd, DiskError> {
        match open_folder(self.root(), name) {
            Err(Errno::NOENT) => Err(missing(name)),
            other => other.map_err(failed("open", name)),
        }
    }

    fn id_of(&self, name: &str) -> Result<u64, DiskError> {
        subvolume_id(self.open_one(name)?.as_fd()).map_err(failed("read the number of", name))
    }

    /// Makes a subvolume that has its limit, but not its name.
    fn make_unfinished(
        &self,
        ground: &Ground,
        name: &str,
        limit: DiskLimit,
    ) -> Result<OwnedFd, DiskError> {
        create_subvolume(self.root(), name).map_err(failed("make", name))?;
        ground.after("subvolume made");
        let volume = self.open_one(name)?;
        let id = subvolume_id(volume.as_fd()).map_err(failed("read the number of", name))?;
        let group = group_of(id, limit);
        create_group(self.root(), group).map_err(failed("make a group for", name))?;
        ground.after("group made");
        limit_group(self.root(), group, limit.bytes().0).map_err(failed("limit", name))?;
        ground.after("group limited");
        if let Some(above) = group_above(limit) {
            join_group(self.root(), group, above).map_err(failed("set the group above", name))?;
            ground.after("group above joined");
        }
        join_group(self.root(), Group::of_subvolume(id), group)
            .map_err(failed("set the group of", name))?;
        ground.after("group joined");
        fchmod(&volume, Mode::from_raw_mode(0o755)).map_err(failed("open up", name))?;
        Ok(volume)
    }

    /// Takes a subvolume away with all that were made inside it, if it is there.
    fn destroy(&self, name: &str) -> Result<(), DiskError> {
        match statat(self.root(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            other => other.map_err(failed("look at", name))?,
        };
        let id = self.id_of(name)?;
        let within = self.all_within(id)?;
        if !within.is_empty() {
            // To take one out of a full volume is to write to it. One that was never finished may
            // have no group.
            if let Ok(Used { group, limit, .. }) = self.groups.usage(id) {
                let limit = limit.saturating_add(FOR_REMOVAL);
                limit_group(self.root(), group, limit).map_err(failed("limit", name))?;
                let others = self.groups.sums()?.used_by_others;
                limit_others(self.root(), others.saturating_add(FOR_REMOVAL))?;
            }
        }
        for id in within.into_iter().rev() {
            match destroy_subvolume_by_id(self.root(), id) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed("remove a subvolume of", name)(errno)),
            }
        }
        match destroy_subvolume(self.root(), name) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed("remove", name)(errno)),
        }
    }

    /// Returns all subvolumes below one, those further down behind those that they are in.
    fn all_within(&self, top: u64) -> Result<Vec<u64>, DiskError> {
        let mut all = Vec::new();
        let mut parent = Some(top);
        let mut next = 0;
        while let Some(id) = parent {
            let mut least = 0;
            loop {
                let found = subvolumes_within(self.root(), id, least)
                    .map_err(failed("list", "subvolumes"))?;
                let Some(last) = found.last().copied() else { break };
                all.extend(found);
                least = last + 1;
            }
            parent = all.get(next).copied();
            next += 1;
        }
        Ok(all)
    }
}

impl Kind for Pool {
    fn make(&self, ground: &Ground, name: &str, limit: DiskLimit) -> Result<OwnedFd, DiskError> {
        let _lock = ground.lock()?;
        let unfinished = format!("{MAKING}{name}");
        self.destroy(&unfinished)?;
        self.promise(ground, limit)?;
        let volume = self.make_unfinished(ground, &unfinished, limit)?;
        let (from, to) = (unfinished.as_str(), name);
        match renameat_with(self.root(), from, self.root(), to, RenameFlags::NOREPLACE) {
            Ok(()) => {
                ground.after("subvolume named");
                Ok(volume)
            }
            Err(Errno::EXIST) => {
                self.destroy(&unfinished)?;
                Err(exists(name))
            }
            Err(errno) => Err(failed("name", name)(errno)),
        }
    }

    fn open_volume(&self, _ground: &Ground, name: &str) -> Result<OwnedFd, DiskError> {
        self.open_one(name)
    }

    fn set_limit(&self, ground: &Ground, name: &str, limit: ByteCount) -> Result<(), DiskError> {
        let _lock = ground.lock()?;
        let used = self.groups.usage(self.id_of(name)?)?;
        let more = limit.0.saturating_sub(used.limit);
        if more > 0 && used.is_promised {
            self.promise(ground, DiskLimit::Promised(ByteCount(more)))?;
        }
        limit_group(self.root(), used.group, limit.0).map_err(failed("limit", name))?;
        self.share(ground)
    }

    fn usage(&self, _ground: &Ground, name: &str) -> Result<Usage, DiskError> {
        let usage = self.groups.usage(self.id_of(name)?)?;
        Ok(Usage { bytes: ByteCount(usage.bytes), limit: Some(ByteCount(usage.limit)) })
    }

    fn remove(&self, ground: &Ground, name: &str) -> Result<(), DiskError> {
        let lock = ground.lock()?;
        self.destroy(&format!("{MAKING}{name}"))?;
        self.destroy(name)?;
        ground.after("subvolume destroyed");
        self.clear_groups()?;
        self.share(ground)?;
        drop(lock);
        // The space comes back after a commit. Others need not wait for it; to ask for one without
        // waiting took up to 30 s, until one began.
        commit(self.root()).map_err(failed("commit", "the pool"))
    }

    fn names(&self, _ground: &Ground) -> Result<Vec<VolumeName>, DiskError> {
        volumes_in(self.root())
    }

    fn way_out(&self, volume: &OwnedFd) -> Result<Option<OwnedFd>, DiskError> {
        let name = "inside";
        create_subvolume(volume.as_fd(), name).map_err(failed("make", name))?;
        open_folder(volume.as_fd(), name).map(Some).map_err(failed("open", name))
    }

    fn close(&self, ground: &Ground) -> Result<(), DiskError> {
        pool::unmount(ground)
    }
}
