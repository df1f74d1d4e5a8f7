//! Bodies that wait for their sandbox.
//!
//! To put a process into new namespaces and into its control groups takes longer than all else that
//! the making of a sandbox takes, and is the same for every sandbox but for its name. So it is done before
//! anybody asks, for a name that the next sandbox gets.

use std::os::fd::OwnedFd;

use rustix::{
    io::Errno,
    process::{Signal, pidfd_send_signal},
};

use super::identity::Marks;
use crate::{
    cgroup::Cgroups,
    plan::{Broken, Step},
    sandbox::{SandboxAnswer, is_good_name, sandbox_of},
    spawner::{Spawner, wait_for},
};

/// How many may wait. The daemon wants fewer.
const MOST: usize = 16;

impl Spawner {
    /// Starts a body for a sandbox of this name, which nobody has asked for yet.
    pub(super) fn prepare_body(
        &mut self,
        name: &str,
        max_processes: u32,
    ) -> Result<(SandboxAnswer, Vec<OwnedFd>), Broken> {
        let at = Broken::at(Step::Plan);
        let sandboxes = self.sandboxes.as_ref().ok_or_else(|| at(Errno::NOSYS))?;
        if !is_good_name(name) || sandbox_of(name) != name {
            return Err(at(Errno::INVAL));
        }
        if sandboxes.living.contains_key(name) {
            return Err(at(Errno::EXIST));
        }
        if sandboxes.waiting.len() >= MOST {
            return Err(at(Errno::BUSY));
        }
        let body = self.fork_body(name, max_processes, None)?;
        if let Some(sandboxes) = &mut self.sandboxes {
            sandboxes.waiting.insert(name.to_owned(), body);
        }
        Ok((SandboxAnswer::Done, Vec::new()))
    }

    /// Ends every body that waits, and removes what it had. Those of another server may be among them,
    /// which was killed: they end with it by themselves, if they have had the time.
    pub(in crate::spawner) fn clear_waiting(&mut self) -> Result<(), Errno> {
        let Some(sandboxes) = &mut self.sandboxes else { return Ok(()) };
        sandboxes.waiting.clear();
        for name in sandboxes.folder.waiting().into_iter().filter(|name| is_good_name(name)) {
            let marks = Marks::read_waiting(&sandboxes.folder, &name);
            if let Some(process) = marks.as_ref().and_then(Marks::process) {
                let _ = pidfd_send_signal(&process, Signal::KILL);
                wait_for(&process)?;
            }
            let places = marks.and_then(|marks| marks.places);
            let ours = sandboxes.cgroups.as_ref().map(Cgroups::places);
            for places in places.iter().chain(&ours) {
                places.remove(&name)?;
            }
            sandboxes.folder.forget_waiting(&name)?;
        }
        Ok(())
    }
}
