//! Standing still, and going on.

use model::{
    life::SuspendReason,
    sandbox::Request,
    transition::{Observation, Transition},
};

use super::{Actor, chain};
use crate::sandboxes::{SandboxError, group::Group};

impl Actor {
    pub(super) async fn act(&mut self, request: &Request) -> Result<Transition, SandboxError> {
        match request {
            Request::Freeze(reason) => self.freeze(*reason).await,
            _ => self.thaw().await,
        }
    }

    async fn freeze(&mut self, reason: SuspendReason) -> Result<Transition, SandboxError> {
        self.freeze_bodies().await?;
        self.see_one(Observation::Frozen(reason)).await
    }

    pub(super) async fn thaw(&mut self) -> Result<Transition, SandboxError> {
        self.thaw_bodies().await?;
        self.see_one(Observation::Thawed).await
    }

    /// Has the sandbox and its companions stand still, or none of them.
    pub(super) async fn freeze_bodies(&mut self) -> Result<(), SandboxError> {
        for group in self.shared.machine.groups(&self.sandbox).await.map_err(unavailable)? {
            if let Err(error) = group.freeze().await {
                self.thaw_bodies().await?;
                return Err(unavailable(error));
            }
        }
        Ok(())
    }

    pub(super) async fn thaw_bodies(&mut self) -> Result<(), SandboxError> {
        let groups = self.shared.machine.groups(&self.sandbox).await.map_err(unavailable)?;
        groups.iter().try_for_each(Group::thaw).map_err(unavailable)
    }
}

fn unavailable(error: impl std::error::Error) -> SandboxError {
    SandboxError::Unavailable(chain(&error))
}
