//! Standing still, and going on.

use model::{
    life::SuspendReason,
    sandbox::Request,
    transition::{Observation, Transition},
};

use super::Actor;
use crate::sandboxes::SandboxError;

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
        Ok(self.provider().freeze(&self.sandbox).await?)
    }

    pub(super) async fn thaw_bodies(&mut self) -> Result<(), SandboxError> {
        Ok(self.provider().thaw(&self.sandbox).await?)
    }
}
