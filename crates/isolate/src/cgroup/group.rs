//! The cgroup of one slot, as the spawner holds it.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::{
    event::{EventfdFlags, eventfd},
    fs::{AtFlags, OFlags, unlinkat},
    io::Errno,
};

use super::{Cgroups, FREEZER, Role, make_dir, open_file, write_at};
use crate::wire::CgroupFile;

/// One slot's directory in every hierarchy.
#[derive(Debug)]
pub struct Group {
    pub(super) name: String,
    pub(super) dirs: Vec<(OwnedFd, Role)>,
}

impl Cgroups {
    /// Makes a cgroup that may hold this many processes.
    pub fn make(&self, name: &str, max_processes: u32) -> Result<Group, Errno> {
        let mut group = Group { name: name.to_owned(), dirs: Vec::new() };
        for tree in &self.trees {
            group.dirs.push((make_dir(&tree.dir, name)?, tree.role.clone()));
        }
        group.set_up(max_processes).inspect_err(|_| self.remove(&group).unwrap_or_default())?;
        Ok(group)
    }

    /// Removes a cgroup without processes, and that of its tenant if it was the last.
    pub fn remove(&self, group: &Group) -> Result<(), Errno> {
        for tree in &self.trees {
            match unlinkat(&tree.dir, group.name.as_str(), AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(other) => return Err(other),
            }
            if let Some((tenant, _name)) = group.name.split_once('/') {
                // One that has other cgroups stays.
                let _ = unlinkat(&tree.dir, tenant, AtFlags::REMOVEDIR);
            }
        }
        Ok(())
    }
}

impl Group {
    pub(super) fn set_up(&self, max_processes: u32) -> Result<(), Errno> {
        self.limit_processes(max_processes)?;
        if let Some(unified) = self.unified() {
            // One process too many for the memory ends them all: half a program is no use.
            write_at(unified, "memory.oom.group", "1")?;
        }
        Ok(())
    }

    pub(super) fn limit_processes(&self, most: u32) -> Result<(), Errno> {
        match self.dir("pids") {
            Some(pids) => write_at(pids, "pids.max", &most.to_string()),
            None => Ok(()),
        }
    }

    /// Opens the file that a process writes itself into, in every hierarchy.
    pub fn procs(&self) -> Result<Vec<OwnedFd>, Errno> {
        self.dirs.iter().map(|(dir, _)| open_file(dir, "cgroup.procs", OFlags::WRONLY)).collect()
    }

    /// Opens what the daemon may read and write: limits and counters of this slot alone.
    pub fn files(&self) -> Result<Vec<(CgroupFile, OwnedFd)>, Errno> {
        self.open_all(FILES.iter())
    }

    /// Opens that, and what only sandboxes have: a slot is not worth the descriptors.
    pub(super) fn files_of_sandbox(&self) -> Result<Vec<(CgroupFile, OwnedFd)>, Errno> {
        self.open_all(FILES.iter().chain(FILES_OF_SANDBOX))
    }

    fn open_all(
        &self,
        wanted: impl Iterator<Item = &'static File>,
    ) -> Result<Vec<(CgroupFile, OwnedFd)>, Errno> {
        let mut files = Vec::new();
        for (controller, name, kind, flags) in wanted {
            let dir = match controller {
                Where::V1(controller) => self.v1(controller),
                Where::V2 => self.unified(),
                Where::AnyV2 => self.any_v2(),
            };
            let Some(dir) = dir else { continue };
            match open_file(dir, name, *flags) {
                Ok(fd) => files.push((*kind, fd)),
                // Some counters came late, and swap may not be counted at all.
                Err(Errno::NOENT) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(files)
    }

    /// Returns a descriptor that becomes readable when a process is killed for lack of memory.
    /// v2 needs none: there the kernel ends the whole group itself.
    pub fn oom_event(&self) -> Result<Option<OwnedFd>, Errno> {
        let Some(memory) = self.v1("memory") else { return Ok(None) };
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let control = open_file(memory, "memory.oom_control", OFlags::RDONLY)?;
        let pair = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
        write_at(memory, "cgroup.event_control", &pair)?;
        Ok(Some(event))
    }

    /// Kills every process in the group, where the kernel can.
    pub fn kill(&self) -> Result<(), Errno> {
        match self.any_v2() {
            Some(dir) => write_at(dir, "cgroup.kill", "1"),
            None => Ok(()),
        }
    }

    /// Lets killed processes die where the freezer of v1 keeps them from it. v2 does not.
    pub fn let_die(&self) -> Result<(), Errno> {
        match self.v1(FREEZER) {
            Some(dir) => write_at(dir, "freezer.state", "THAWED"),
            None => Ok(()),
        }
    }

    fn dir(&self, controller: &str) -> Option<&OwnedFd> {
        self.v1(controller).or_else(|| self.unified())
    }

    fn v1(&self, controller: &str) -> Option<&OwnedFd> {
        self.find(|role| matches!(role, Role::V1(names) if names.iter().any(|n| n == controller)))
    }

    pub(super) fn unified(&self) -> Option<&OwnedFd> {
        self.find(|role| *role == Role::V2)
    }

    /// The v2 directory, with or without controllers.
    pub(super) fn any_v2(&self) -> Option<&OwnedFd> {
        self.find(|role| matches!(role, Role::V2 | Role::V2Beside))
    }

    fn find(&self, is_it: impl Fn(&Role) -> bool) -> Option<&OwnedFd> {
        self.dirs.iter().find(|(_, role)| is_it(role)).map(|(dir, _)| dir)
    }
}

enum Where {
    V1(&'static str),
    V2,
    /// v2 as such, which needs no controllers.
    AnyV2,
}

/// Where a file is, its name, what it is, and how it is opened.
type File = (Where, &'static str, CgroupFile, OFlags);

const FILES_OF_SANDBOX: &[File] = &[
    (Where::V1("cpu"), "cpu.cfs_quota_us", CgroupFile::CpuQuotaV1, OFlags::WRONLY),
    (Where::V2, "cpu.max", CgroupFile::CpuMaxV2, OFlags::WRONLY),
];

const FILES: &[File] = &[
    (Where::V1("memory"), "memory.limit_in_bytes", CgroupFile::MemoryLimit, OFlags::WRONLY),
    (Where::V1("memory"), "memory.memsw.limit_in_bytes", CgroupFile::SwapLimitV1, OFlags::WRONLY),
    (Where::V1("memory"), "memory.max_usage_in_bytes", CgroupFile::MemoryPeak, OFlags::RDONLY),
    (Where::V1("memory"), "memory.oom_control", CgroupFile::OomKills, OFlags::RDONLY),
    (Where::V1("cpu"), "cpu.shares", CgroupFile::CpuShares, OFlags::WRONLY),
    (Where::V1("cpuacct"), "cpuacct.usage", CgroupFile::CpuUsageV1, OFlags::RDONLY),
    (Where::V2, "memory.max", CgroupFile::MemoryLimit, OFlags::WRONLY),
    (Where::V2, "memory.swap.max", CgroupFile::SwapLimitV2, OFlags::WRONLY),
    (Where::V2, "memory.peak", CgroupFile::MemoryPeak, OFlags::RDONLY),
    (Where::V2, "memory.events", CgroupFile::OomKills, OFlags::RDONLY),
    (Where::V2, "cpu.weight", CgroupFile::CpuWeight, OFlags::WRONLY),
    (Where::V2, "cpu.stat", CgroupFile::CpuUsageV2, OFlags::RDONLY),
    (Where::AnyV2, "cgroup.kill", CgroupFile::Kill, OFlags::WRONLY),
    (Where::AnyV2, "cgroup.freeze", CgroupFile::FreezeV2, OFlags::WRONLY),
    (Where::AnyV2, "cgroup.events", CgroupFile::EventsV2, OFlags::RDONLY),
    (Where::V1(FREEZER), "freezer.state", CgroupFile::FreezerStateV1, OFlags::RDWR),
];
