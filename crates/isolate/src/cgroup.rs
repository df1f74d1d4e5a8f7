//! Control groups: the limits that hold, whatever the code does.
//!
//! Supports the unified tree (v2), the older one tree per controller (v1), and both side by side
//! (hybrid: limits by v1, killing and freezing by the v2 tree). Nothing is ever written above the
//! cgroup that the spawner itself was started in.

mod find;
mod group;
pub mod handles;
mod lasting;
mod tenant;
mod total;

pub use group::Group;
pub use lasting::{Lasting, Places};
pub use total::TotalLimits;

use std::{
    ffi::{CStr, CString},
    os::fd::OwnedFd,
};

use rustix::{
    fs::{Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, accessat, unlinkat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use crate::posture::CgroupVersion as Version;
use find::Mounted;

/// The controllers that a slot needs.
const NEEDED: [&str; 3] = ["memory", "pids", "cpu"];

/// The v1 controller that stops processes.
const FREEZER: &str = "freezer";

/// The cgroups of this server: the place where slots get theirs.
#[derive(Debug)]
pub struct Cgroups {
    name: String,
    trees: Vec<Tree>,
    version: Version,
    /// What everything in here may use together.
    total: Option<TotalLimits>,
}

/// One mounted hierarchy, and our directory in it.
#[derive(Debug)]
struct Tree {
    /// Where our directory is.
    path: String,
    dir: OwnedFd,
    parent: OwnedFd,
    role: Role,
}

/// What a hierarchy is used for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Role {
    /// v1: the controllers that are mounted together here.
    V1(Vec<String>),
    /// v2 with the controllers.
    V2,
    /// v2 beside v1: no controllers, but `cgroup.kill` and `cgroup.freeze`.
    V2Beside,
}

/// Why there are no cgroups for slots.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("no cgroup file system has the {0} controller")]
    NoController(&'static str),
    #[error("cannot use the cgroup at {path}")]
    NotOurs {
        path: String,
        #[source]
        errno: Errno,
    },
    #[error("cannot read what cgroups there are")]
    Unreadable(#[source] std::io::Error),
}

impl Cgroups {
    /// Finds the cgroups of this process and makes the server's own below them. `name` tells
    /// servers on one machine apart.
    pub fn open(name: &str) -> Result<Self, CgroupError> {
        let read = |path| std::fs::read_to_string(path).map_err(CgroupError::Unreadable);
        let mounted = find::mounted(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?);
        let unified = mounted.iter().find(|mounted| mounted.controllers.is_none());
        if let Some(unified) = unified
            && let Ok(tree) = open_v2(unified, name)
        {
            let (name, trees) = (name.to_owned(), vec![tree]);
            return Ok(Self { name, trees, version: Version::V2, total: None });
        }
        let mut trees = open_v1(&mounted, name)?;
        // Killing and freezing through the v2 tree is better than without, but not needed.
        trees.extend(unified.and_then(|unified| open(unified, name, Role::V2Beside).ok()));
        // One more directory for every slot, so only where nothing else can freeze.
        if !trees.iter().any(Tree::can_freeze) {
            trees.extend(open_freezer(&mounted, name));
        }
        Ok(Self { name: name.to_owned(), trees, version: Version::V1, total: None })
    }

    /// Makes a further place beside this one, for what outlives the server. Its name is the same
    /// at every start. It has the same total limits.
    pub fn beside(&self, name: &str) -> Result<Self, Errno> {
        let mut trees = Vec::new();
        for tree in &self.trees {
            let parent = tree.parent.try_clone().map_err(|_no_descriptor| Errno::MFILE)?;
            let dir = make_dir(&parent, name)?;
            hand_controllers_down(&dir, &tree.role)?;
            let above = tree.path.rsplit_once('/').map_or("", |(above, _)| above);
            trees.push(Tree {
                path: format!("{above}/{name}"),
                dir,
                parent,
                role: tree.role.clone(),
            });
        }
        let total = self.total;
        let place = Self { name: name.to_owned(), trees, version: self.version, total };
        place.set_total_limits()?;
        Ok(place)
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether a whole slot can be killed by one write.
    pub fn has_kill(&self) -> bool {
        self.trees.iter().any(|tree| tree.has("cgroup.kill"))
    }
}

impl Tree {
    fn can_freeze(&self) -> bool {
        self.has("cgroup.freeze") || self.has("freezer.state")
    }

    fn has(&self, file: &str) -> bool {
        accessat(&self.dir, file, Access::EXISTS, AtFlags::empty()).is_ok()
    }
}

fn open_v2(mounted: &Mounted, name: &str) -> Result<Tree, CgroupError> {
    let not_ours = |errno| CgroupError::NotOurs { path: mounted.path.clone(), errno };
    let parent = open_dir(CWD, &mounted.path).map_err(not_ours)?;
    let available = read_at(&parent, "cgroup.controllers").map_err(not_ours)?;
    for needed in NEEDED {
        if !available.split_whitespace().any(|name| name == needed) {
            return Err(CgroupError::NoController(needed));
        }
    }
    // A cgroup with processes of its own cannot hand controllers down, unless it is the root:
    // ours go into a leaf beside the slots.
    if read_at(&parent, "cgroup.type").is_ok() {
        let own = make_dir(&parent, &format!("{name}-server")).map_err(not_ours)?;
        write_at(&own, "cgroup.procs", "0").map_err(not_ours)?;
    }
    write_at(&parent, "cgroup.subtree_control", "+memory +pids +cpu").map_err(not_ours)?;
    let dir = make_dir(&parent, name).map_err(not_ours)?;
    clear(&parent);
    write_at(&dir, "cgroup.subtree_control", "+memory +pids +cpu").map_err(not_ours)?;
    Ok(Tree { path: format!("{}/{name}", mounted.path), dir, parent, role: Role::V2 })
}

fn open_v1(mounted: &[Mounted], name: &str) -> Result<Vec<Tree>, CgroupError> {
    let mut trees = Vec::new();
    for needed in NEEDED {
        let has = |mounted: &&Mounted| {
            mounted.controllers.iter().flatten().any(|controller| controller == needed)
        };
        if !mounted.iter().any(|mounted| has(&mounted)) {
            return Err(CgroupError::NoController(needed));
        }
    }
    for mounted in mounted {
        let controllers = mounted.controllers.clone().unwrap_or_default();
        if controllers.iter().any(|name| NEEDED.contains(&name.as_str()) || name == "cpuacct") {
            trees.push(open(mounted, name, Role::V1(controllers))?);
        }
    }
    Ok(trees)
}

/// Opens the hierarchy of the v1 freezer. Slots can do without.
fn open_freezer(mounted: &[Mounted], name: &str) -> Option<Tree> {
    let is_freezer = |controller: &String| controller == FREEZER;
    let freezer = mounted.iter().find(|m| m.controllers.iter().flatten().any(is_freezer))?;
    open(freezer, name, Role::V1(vec![FREEZER.to_owned()])).ok()
}

fn open(mounted: &Mounted, name: &str, role: Role) -> Result<Tree, CgroupError> {
    let not_ours = |errno| CgroupError::NotOurs { path: mounted.path.clone(), errno };
    let parent = open_dir(CWD, &mounted.path).map_err(not_ours)?;
    let dir = make_dir(&parent, name).map_err(not_ours)?;
    clear(&parent);
    Ok(Tree { path: format!("{}/{name}", mounted.path), dir, parent, role })
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for tree in &self.trees {
            // A slot that is still being torn down keeps it; the next start finds it again.
            let _ = unlinkat(&tree.parent, self.name.as_str(), AtFlags::REMOVEDIR);
        }
    }
}

/// Whether this is the name of a server whose process is gone: `ringfence-PID`.
pub fn is_of_the_dead(name: &str) -> bool {
    let pid = name.strip_prefix("ringfence-").and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
}

/// Lets the groups in this one have limits. v1 needs no word for that.
fn hand_controllers_down(dir: &OwnedFd, role: &Role) -> Result<(), Errno> {
    match role {
        Role::V2 => write_at(dir, "cgroup.subtree_control", "+memory +pids +cpu"),
        Role::V1(_) | Role::V2Beside => Ok(()),
    }
}

/// Removes what servers left behind that were killed.
fn clear(parent: &OwnedFd) {
    for name in folders(parent) {
        if name.to_str().is_ok_and(is_of_the_dead)
            && let Ok(dead) = rustix::fs::openat(parent, &*name, DIRECTORY, Mode::empty())
        {
            for tenant in folders(&dead) {
                if let Ok(slots) = rustix::fs::openat(&dead, &*tenant, DIRECTORY, Mode::empty()) {
                    clear_slots(&slots);
                }
                let _ = unlinkat(&dead, &*tenant, AtFlags::REMOVEDIR);
            }
            let _ = unlinkat(parent, &*name, AtFlags::REMOVEDIR);
        }
    }
}

fn clear_slots(tenant: &OwnedFd) {
    for slot in folders(tenant) {
        // One with a process in it stays, and its limits with it.
        if unlinkat(tenant, &*slot, AtFlags::REMOVEDIR).is_err() {
            let_die(tenant, &slot);
        }
    }
}

/// Thaws a slot: on v1 what is frozen stays for ever, killed or not.
fn let_die(tenant: &OwnedFd, slot: &CStr) {
    if let Ok(dir) = rustix::fs::openat(tenant, slot, DIRECTORY, Mode::empty()) {
        // Only the directories of the v1 freezer have the file.
        let _ = write_at(&dir, "freezer.state", "THAWED");
    }
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

fn folders(dir: &OwnedFd) -> Vec<CString> {
    Dir::read_from(dir)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type() == FileType::Directory)
        .map(|entry| entry.file_name().to_owned())
        .filter(|name| !matches!(name.to_bytes(), b"." | b".."))
        .collect()
}

fn open_dir(at: impl std::os::fd::AsFd, path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

fn make_dir(at: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => open_dir(at, name),
        Err(other) => Err(other),
    }
}

fn open_file(dir: &OwnedFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC, Mode::empty())
}

fn write_at(dir: &OwnedFd, name: &str, text: &str) -> Result<(), Errno> {
    rustix::io::write(open_file(dir, name, OFlags::WRONLY)?, text.as_bytes()).map(drop)
}

fn read_at(dir: &OwnedFd, name: &str) -> Result<String, Errno> {
    let mut bytes = vec![0; 4096];
    let length = rustix::io::read(open_file(dir, name, OFlags::RDONLY)?, &mut bytes)?;
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pid that no process has: the kernel's largest is 2^22.
    const DEAD: &str = "ringfence-4194305";

    #[test]
    fn what_a_dead_server_left_frozen_is_thawed() {
        let parent = tempfile::tempdir().unwrap();
        let slot = parent.path().join(DEAD).join("t1/s1");
        std::fs::create_dir_all(&slot).unwrap();
        std::fs::write(slot.join("freezer.state"), "FROZEN").unwrap();
        clear(&open_dir(CWD, parent.path().to_str().unwrap()).unwrap());
        assert_eq!(std::fs::read_to_string(slot.join("freezer.state")).unwrap(), "THAWED");
    }
}
