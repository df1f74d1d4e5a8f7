//! The control groups of a sandbox: standing still, going on, and how much processor time was used.

use std::time::Duration;

use isolate::sandbox::SandboxAnswer;
use model::sandbox::Sandbox;

use super::{Machine, MachineError, companions_of};
use crate::sandboxes::group::Group;

impl Machine {
    /// Returns the processor time that a sandbox and its companions have used; nothing if the kernel does not
    /// count it here.
    pub(in crate::sandboxes) async fn cpu_time(
        &self,
        sandbox: &Sandbox,
    ) -> Result<Option<Duration>, MachineError> {
        if !self.has_limits {
            return Ok(None);
        }
        let groups = self.groups(sandbox).await?;
        let mut used = Duration::ZERO;
        for group in &groups {
            used = used.saturating_add(group.cpu_time().map_err(MachineError::Limits)?);
        }
        Ok(Some(used))
    }

    /// Opens the control group of a sandbox that lives.
    async fn group(&self, name: &str) -> Result<Group, MachineError> {
        match self.look(name).await? {
            (SandboxAnswer::Body { cgroup }, fds) => Ok(Group::new(cgroup, fds)?),
            _ => Err(MachineError::Confused),
        }
    }

    /// Has a sandbox and its companions stand still, or none of them.
    pub(in crate::sandboxes) async fn freeze_all(
        &self,
        sandbox: &Sandbox,
    ) -> Result<(), MachineError> {
        for group in self.groups(sandbox).await? {
            if let Err(error) = group.freeze().await {
                self.thaw_all(sandbox).await?;
                return Err(error.into());
            }
        }
        Ok(())
    }

    pub(in crate::sandboxes) async fn thaw_all(
        &self,
        sandbox: &Sandbox,
    ) -> Result<(), MachineError> {
        let groups = self.groups(sandbox).await?;
        Ok(groups.iter().try_for_each(Group::thaw)?)
    }

    /// Opens the control groups of a sandbox and of its companions that live.
    async fn groups(&self, sandbox: &Sandbox) -> Result<Vec<Group>, MachineError> {
        let mut groups = vec![self.group(sandbox.id.as_str()).await?];
        for name in companions_of(sandbox) {
            match self.group(&name).await {
                Ok(group) => groups.push(group),
                // It is down, and will be started again or not.
                Err(MachineError::Confused) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(groups)
    }
}
