//! What the engine refuses, as answers of the data plane.

use api::errors::ErrorCode;
use engine::{images::ImageError, sandboxes::SandboxError};
use model::sandbox::Refusal;

use crate::http::problem::ApiError;

impl From<SandboxError> for ApiError {
    fn from(error: SandboxError) -> Self {
        match code(&error) {
            // Whether the request took effect is what the client must know; the text holds nothing else.
            code if matches!(error, SandboxError::BrokenOff) => Self::new(code, error.to_string()),
            ErrorCode::InternalError => Self::internal(&error),
            code => {
                let told = Self::new(code, error.to_string());
                if matches!(error, SandboxError::ExecNotFound) {
                    return told.with_kind("CommandNotFound");
                }
                told
            }
        }
    }
}

/// Returns the code for what the engine says.
pub(super) fn code(error: &SandboxError) -> ErrorCode {
    match error {
        SandboxError::NotFound
        | SandboxError::ExecNotFound
        | SandboxError::ShellNotFound
        | SandboxError::SnapshotNotFound
        | SandboxError::Refused(Refusal::Gone) => ErrorCode::NotFound,
        SandboxError::AlreadyExists
        | SandboxError::SnapshotExists
        | SandboxError::ExecExists
        | SandboxError::ExecEnded => ErrorCode::Conflict,
        SandboxError::Refused(Refusal::NotYet(_)) => ErrorCode::SandboxStarting,
        SandboxError::Refused(
            Refusal::WrongPhase(_)
            | Refusal::Failed
            | Refusal::InUse
            | Refusal::ExecExists
            | Refusal::ExecNotRunning,
        ) => ErrorCode::SandboxNotReady,
        SandboxError::OutputGone => ErrorCode::OutputGone,
        SandboxError::OutOfRange { .. } => ErrorCode::RangeNotSatisfiable,
        SandboxError::Invalid(_)
        | SandboxError::Field { .. }
        | SandboxError::Resource(_)
        | SandboxError::Snapshot(_) => ErrorCode::InvalidRequest,
        SandboxError::Quota(_) | SandboxError::TooMany(_) => ErrorCode::RateLimited,
        SandboxError::Unavailable(_) | SandboxError::Refused(Refusal::TooManyShells) => {
            ErrorCode::Unavailable
        }
        SandboxError::Provider(_) => ErrorCode::ProviderUnavailable,
        SandboxError::ProviderDisabled(_) => ErrorCode::ProviderDisabled,
        SandboxError::Image(ImageError::NotAllowed(_) | ImageError::RegistryNotAllowed { .. }) => {
            ErrorCode::Forbidden
        }
        SandboxError::Image(_) | SandboxError::BrokenOff | SandboxError::Store(_) => {
            ErrorCode::InternalError
        }
    }
}

#[cfg(test)]
mod tests {
    use model::life::Phase;

    use super::*;

    #[test]
    fn a_sandbox_that_will_be_ready_is_told_from_one_that_will_not() {
        let rows = [
            (Refusal::NotYet(Phase::Provisioning), ErrorCode::SandboxStarting),
            (Refusal::WrongPhase(Phase::Stopped), ErrorCode::SandboxNotReady),
            (Refusal::Failed, ErrorCode::SandboxNotReady),
            (Refusal::Gone, ErrorCode::NotFound),
        ];
        for (refusal, expected) in rows {
            assert_eq!(code(&SandboxError::Refused(refusal)), expected, "{refusal:?}");
        }
        assert_eq!(code(&SandboxError::BrokenOff), ErrorCode::InternalError);
    }
}
