//! The cgroups of a sandbox, which outlive the server: one for its commands, with the limits, and
//! one beside it for its supervisor, without.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{AtFlags, CWD, Gid, Uid, fchown, unlinkat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::{Cgroups, Group, Role, Tree, folders, open_dir, tenant::is_tenant};
use crate::wire::CgroupFile;

/// Where the cgroups of sandboxes are. Written down with each of them: a later server may be
/// started elsewhere in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places(Vec<(String, Role)>);

/// The two cgroups of a sandbox.
#[derive(Debug)]
pub struct Lasting {
    sandbox: String,
    commands: Group,
    supervisor: Group,
    places: Places,
}

fn supervisor_name(name: &str) -> String {
    format!("{name}.init")
}

impl Cgroups {
    /// Says where cgroups are that are in this one of ours.
    pub(super) fn places_below(&self, name: &str) -> Places {
        let below = |tree: &Tree| (format!("{}/{name}", tree.path), tree.role.clone());
        Places(self.trees.iter().map(below).collect())
    }

    /// Makes the groups of a sandbox below that of its tenant. `owner` is the supervisor's user, who makes a group
    /// for each command in there.
    pub fn make_lasting(
        &self,
        tenant: u64,
        name: &str,
        max_processes: u32,
        owner: Option<u32>,
    ) -> Result<Lasting, Errno> {
        let places = self.places_of(tenant);
        let tenant = self.make_tenant(tenant)?;
        let commands = self.make(&format!("{tenant}/{name}"), max_processes)?;
        let beside = format!("{tenant}/{}", supervisor_name(name));
        let supervisor = match self.make(&beside, SUPERVISOR_PROCESSES) {
            Ok(supervisor) => supervisor,
            Err(errno) => {
                let _ = self.remove(&commands);
                return Err(errno);
            }
        };
        let lasting = Lasting { sandbox: name.to_owned(), commands, supervisor, places };
        let set_up = lasting.spare_the_others().and_then(|()| match owner {
            Some(owner) => lasting.give_to(owner),
            None => Ok(()),
        });
        match set_up {
            Ok(()) => Ok(lasting),
            Err(errno) => {
                let _ = lasting.remove();
                Err(errno)
            }
        }
    }
}

/// The supervisor, and what it has forked and not let into the commands' group yet.
const SUPERVISOR_PROCESSES: u32 = 64;

impl Places {
    /// Opens the groups of a sandbox that was made before.
    pub fn open(&self, name: &str) -> Result<Lasting, Errno> {
        let open = |name: &str| -> Result<Group, Errno> {
            let mut dirs = Vec::new();
            for (path, role) in &self.0 {
                dirs.push((open_dir(CWD, &format!("{path}/{name}"))?, role.clone()));
            }
            Ok(Group { name: name.to_owned(), dirs })
        };
        let (commands, supervisor) = (open(name)?, open(&supervisor_name(name))?);
        Ok(Lasting { sandbox: name.to_owned(), commands, supervisor, places: self.clone() })
    }

    /// Removes what is left of a sandbox's groups, and that of its tenant if it was the last. Nothing runs in them
    /// any more.
    pub fn remove(&self, name: &str) -> Result<(), Errno> {
        for (path, _) in &self.0 {
            for name in [name, &supervisor_name(name)] {
                remove_tree(path, name)?;
            }
            if path.rsplit('/').next().is_some_and(is_tenant) {
                // One that has other sandboxes stays.
                let _ = unlinkat(CWD, path.as_str(), AtFlags::REMOVEDIR);
            }
        }
        Ok(())
    }

    /// Names every sandbox that has a group.
    pub fn names(&self) -> Vec<String> {
        let dirs = self.0.iter().filter_map(|(path, _)| open_dir(CWD, path).ok());
        let names = dirs.flat_map(|dir| folders(&dir));
        let names = names.filter_map(|name| name.into_string().ok());
        names.map(|name| name.trim_end_matches(".init").to_owned()).collect()
    }
}

/// Removes a group with the groups of commands in it.
fn remove_tree(path: &str, name: &str) -> Result<(), Errno> {
    let (parent, group) = match (open_dir(CWD, path), open_dir(CWD, &format!("{path}/{name}"))) {
        (Ok(parent), Ok(group)) => (parent, group),
        (Err(Errno::NOENT), _) | (_, Err(Errno::NOENT)) => return Ok(()),
        (Err(errno), _) | (_, Err(errno)) => return Err(errno),
    };
    for leaf in folders(&group) {
        unlinkat(&group, &*leaf, AtFlags::REMOVEDIR)?;
    }
    match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(other) => Err(other),
    }
}

impl Lasting {
    /// One command that needs too much memory is not to take the others along.
    fn spare_the_others(&self) -> Result<(), Errno> {
        match self.commands.unified() {
            Some(dir) => super::write_at(dir, "memory.oom.group", "0"),
            None => Ok(()),
        }
    }

    /// Lets the supervisor make groups of commands, and move them there.
    fn give_to(&self, owner: u32) -> Result<(), Errno> {
        let Some(dir) = self.commands.any_v2() else { return Ok(()) };
        let (user, group) = (Uid::from_raw(owner), Gid::from_raw(owner));
        fchown(dir, Some(user), Some(group))?;
        let procs = super::open_file(dir, "cgroup.procs", rustix::fs::OFlags::RDONLY)?;
        fchown(&procs, Some(user), Some(group))
    }

    /// Opens `cgroup.procs` of the commands' groups, and then as many of the supervisor's.
    pub fn procs(&self) -> Result<[Vec<OwnedFd>; 2], Errno> {
        Ok([self.commands.procs()?, self.supervisor.procs()?])
    }

    /// Opens the folder in which each command gets a group of its own.
    pub fn leaves(&self) -> Result<Option<OwnedFd>, Errno> {
        let dir = self.commands.any_v2();
        dir.map(|dir| dir.try_clone().map_err(|_no_descriptor| Errno::MFILE)).transpose()
    }

    /// Sets how many processes commands may have together.
    pub fn limit_processes(&self, most: u32) -> Result<(), Errno> {
        self.commands.limit_processes(most)
    }

    /// Opens what the daemon may read and write.
    pub fn files(&self) -> Result<Vec<(CgroupFile, OwnedFd)>, Errno> {
        self.commands.files_of_sandbox()
    }

    /// Kills every process but the supervisor, where the kernel can do so by one write, and lets
    /// die what stands still.
    pub fn kill(&self) -> Result<(), Errno> {
        self.commands.kill()?;
        self.commands.let_die()
    }

    /// Removes the groups. Nothing runs in them any more.
    pub fn remove(&self) -> Result<(), Errno> {
        self.places.remove(&self.sandbox)
    }

    pub fn places(&self) -> &Places {
        &self.places
    }
}
