//! Why something cannot be done with a session.

use model::{holder::OutOfReach, life::Failure, session::Refusal};
use store::StoreError;

use crate::sandboxes::SandboxError;

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    OutOfReach(#[from] OutOfReach),
    /// It is on its way. A repeat comes to the same sandbox.
    #[error("the sandbox is starting")]
    Starting,
    #[error("the session has a sandbox of another image")]
    OtherImage,
    #[error("the sandbox cannot be started: {}", .0.message)]
    Failed(Failure),
    #[error("the key of the request was used for another request")]
    KeyReused,
    #[error("a request with this key is being carried out")]
    KeyInFlight,
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

/// For those who are not told of sessions.
impl From<SessionError> for SandboxError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Sandbox(error) => error,
            other => Self::Unavailable(other.to_string()),
        }
    }
}

impl From<StoreError> for SessionError {
    fn from(error: StoreError) -> Self {
        Self::Sandbox(error.into())
    }
}
