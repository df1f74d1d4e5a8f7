//! Control groups of the commands in a sandbox.
//!
//! All of them share the limits of the sandbox: they are forked from a process that is in its groups.
//! Where there is a v2 tree each also has a group of its own in it, by which everything that it ever
//! started is found and ended.

use std::{cell::Cell, os::fd::OwnedFd};

use rustix::{
    fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat},
    io::Errno,
    process::{Pid, Signal, kill_process_group},
};

use super::Place;

/// The sandbox's groups, as they were handed over.
#[derive(Debug, Default)]
pub struct Groups {
    /// `cgroup.procs` of every group that commands belong to, but for their own in `leaves`.
    pub procs: Vec<OwnedFd>,
    /// The v2 folder in which every command gets a group of its own.
    pub leaves: Option<OwnedFd>,
    /// The number of the next of those.
    pub next: Cell<u64>,
}

/// A command's own group, or what would be its number where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf(u64);

impl Leaf {
    fn name(self) -> String {
        self.0.to_string()
    }
}

impl Groups {
    /// Puts the calling process into the groups of commands. The kernel waits for every processor
    /// over this, for as long as it takes to run many commands.
    pub fn join(&self) -> Result<(), Errno> {
        join(&self.procs)
    }
}

/// Puts the calling process into groups.
pub fn join(procs: &[OwnedFd]) -> Result<(), Errno> {
    procs.iter().try_for_each(|procs| rustix::io::write(procs, b"0\n").map(drop))
}

impl Place {
    /// Makes the group that the next command has for itself, where there can be one.
    pub(super) fn make_leaf(&self) -> Result<(Leaf, Option<OwnedFd>), Errno> {
        let leaf = Leaf(self.groups.next.get());
        self.groups.next.set(leaf.0 + 1);
        let Some(leaves) = &self.groups.leaves else { return Ok((leaf, None)) };
        let name = leaf.name();
        match mkdirat(leaves, &name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(other) => return Err(other),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(leaves, name, flags, Mode::empty()).map(|group| (leaf, Some(group)))
    }

    /// Takes a command's group away, if nothing of it is left in there.
    pub(super) fn leave(&self, leaf: Leaf) {
        if let Some(leaves) = &self.groups.leaves {
            let _ = unlinkat(leaves, leaf.name(), AtFlags::REMOVEDIR);
        }
    }

    /// Signals everything that a command has started. Without a group of its own only its process
    /// group is known.
    pub(super) fn signal_all(&self, leaf: Leaf, leader: Pid, signal: Signal) -> Result<(), Errno> {
        match &self.groups.leaves {
            Some(leaves) if signal == Signal::KILL => {
                write(leaves, &format!("{}/cgroup.kill", leaf.name()), b"1")
            }
            _ => kill_process_group(leader, signal),
        }
    }
}

fn write(folder: &OwnedFd, path: &str, text: &[u8]) -> Result<(), Errno> {
    let file = openat(folder, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text).map(drop)
}
