//! Standing still, and going on.

use model::{
    life::SuspendReason,
    sandbox::Request,
    transition::{Observation, Transition},
};

use super::{Actor, chain};
use crate::sandboxes::SandboxError;

impl Actor {
    pub(super) async fn act(&mut self, request: &Request) -> Result<Transition, SandboxError> {
        match request {
            Request::Freeze(reason) => self.freeze(*reason).await,
            _ => self.thaw().await,
        }
    }

    async fn freeze(&mut self, reason: SuspendReason) -> Result<Transition, SandboxError> {
        let group = self.shared.machine.group(&self.sandbox.id).await.map_err(unavailable)?;
        group.freeze().await.map_err(unavailable)?;
        self.see_one(Observation::Frozen(reason)).await
    }

    pub(super) async fn thaw(&mut self) -> Result<Transition, SandboxError> {
        let group = self.shared.machine.group(&self.sandbox.id).await.map_err(unavailable)?;
        group.thaw().map_err(unavailable)?;
        self.see_one(Observation::Thawed).await
    }
}

fn unavailable(error: impl std::error::Error) -> SandboxError {
    SandboxError::Unavailable(chain(&error))
}
