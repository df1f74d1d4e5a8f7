//! Rights that are shown after a connection was opened.

use axum::{extract::FromRequestParts, http::request::Parts};
use model::{capability::Capability, ids::SandboxId};

use super::{Access, Plane, Refusal, no_gate};
use crate::{
    guesses::Guest,
    http::{App, problem::ApiError},
};

/// A connection whose right is shown by its first frame, if it was not by the request.
#[derive(Clone, Debug)]
pub struct Unproven {
    plane: Plane,
    sandbox: SandboxId,
    least: Capability,
    shown: Option<Access>,
    guest: Option<Guest>,
}

impl Unproven {
    pub(in crate::dataplane) fn new(
        plane: Plane,
        sandbox: SandboxId,
        least: Capability,
        shown: Option<Access>,
    ) -> Self {
        Self { plane, sandbox, least, shown, guest: None }
    }

    /// Says who has opened the connection.
    pub(in crate::dataplane) fn by(self, guest: Option<Guest>) -> Self {
        Self { guest, ..self }
    }

    /// Returns the right that came with the request.
    pub fn shown(&self) -> Option<&Access> {
        self.shown.as_ref()
    }

    /// Checks the token of the first frame.
    pub async fn prove(&self, token: &str) -> Result<Access, Refusal> {
        let proven = Box::pin(self.plane.by_token(token, Some(&self.sandbox), Some(self.least)));
        match &self.guest {
            None => proven.await,
            Some(guest) => guest.judge(proven).await.map_err(Refusal::TooFast)?,
        }
    }

    /// Checks the token of a later frame, which has to be of the same actor.
    pub async fn renew(&self, held: &Access, token: &str) -> Result<Access, Refusal> {
        let access = self.prove(token).await?;
        if access.actor() == held.actor() { Ok(access) } else { Err(Refusal::Invalid) }
    }
}

impl FromRequestParts<App> for Unproven {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, ApiError> {
        parts.extensions.get::<Self>().cloned().ok_or_else(no_gate)
    }
}
