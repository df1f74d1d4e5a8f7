//! What the engine refuses of sessions, by the two lists of names that clients know.

use api::errors::ErrorCode;
use engine::{images::ImageError, sandboxes::SandboxError, sessions::SessionError};
use model::{life::FailureCause, session::Refusal};

use crate::http::problem::ApiError;

/// Which list of names a route or request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// `SESSION_…` and `PROVIDER_UNAVAILABLE`.
    Session,
    /// `BINDING_…` and `BACKEND_UNAVAILABLE`.
    Binding,
}

impl Names {
    pub(crate) fn refuse(self, error: SessionError) -> ApiError {
        match (self.code(&error), error) {
            (Some(code), error) => ApiError::new(code, error.to_string()),
            (None, SessionError::Sandbox(error)) => error.into(),
            (None, error) => ApiError::internal(&error),
        }
    }

    pub(crate) fn not_found(self) -> ApiError {
        self.refuse(Refusal::NotFound.into())
    }

    /// Returns the code for what the engine says; nothing if it is no business of sessions.
    fn code(self, error: &SessionError) -> Option<ErrorCode> {
        let or = |session, binding| {
            Some(match self {
                Self::Session => session,
                Self::Binding => binding,
            })
        };
        let unavailable = || or(ErrorCode::ProviderUnavailable, ErrorCode::BackendUnavailable);
        match error {
            SessionError::Refused(Refusal::NotFound) => {
                or(ErrorCode::SessionNotFound, ErrorCode::BindingNotFound)
            }
            SessionError::Refused(Refusal::Expired(_)) => {
                or(ErrorCode::SessionExpired, ErrorCode::BindingExpired)
            }
            SessionError::Refused(Refusal::Conflict) | SessionError::OtherImage => {
                or(ErrorCode::SessionConflict, ErrorCode::BindingConflict)
            }
            SessionError::OutOfReach(_) => Some(ErrorCode::Forbidden),
            SessionError::Starting => Some(ErrorCode::SandboxStarting),
            SessionError::KeyReused => Some(ErrorCode::IdempotencyKeyReused),
            SessionError::KeyInFlight => Some(ErrorCode::IdempotencyInFlight),
            SessionError::Failed(failure) => of_image(failure.cause).or_else(unavailable),
            SessionError::Sandbox(error) => match error {
                SandboxError::Unavailable(_) | SandboxError::Provider(_) => unavailable(),
                SandboxError::ProviderDisabled(_) => Some(ErrorCode::ProviderDisabled),
                SandboxError::Image(ImageError::Reference(_) | ImageError::InPlace { .. }) => {
                    Some(ErrorCode::InvalidRequest)
                }
                SandboxError::Image(error) => of_image(error.failure_cause()).or_else(unavailable),
                _ => None,
            },
        }
    }
}

/// Returns the code for an image that another attempt does not make usable; nothing for any other cause.
const fn of_image(cause: FailureCause) -> Option<ErrorCode> {
    match cause {
        FailureCause::ImageNotFound => Some(ErrorCode::ImageNotFound),
        FailureCause::ImageNotAllowed => Some(ErrorCode::Forbidden),
        FailureCause::ImageUnusable => Some(ErrorCode::ImageUnusable),
        FailureCause::ImageFailed
        | FailureCause::CreateFailed
        | FailureCause::ResumeFailed
        | FailureCause::MainProcessCrashed
        | FailureCause::SupervisorLost
        | FailureCause::HostRebooted
        | FailureCause::DiskFull
        | FailureCause::ProviderLost => None,
    }
}

#[cfg(test)]
mod tests {
    use model::{life::Failure, session::SessionEnd};

    use super::*;

    #[test]
    fn each_list_has_its_names() {
        let failed = |cause| SessionError::Failed(Failure { cause, message: "because".to_owned() });
        let rows: [(SessionError, &str, &str); 13] = [
            (Refusal::NotFound.into(), "SESSION_NOT_FOUND", "BINDING_NOT_FOUND"),
            (Refusal::Conflict.into(), "SESSION_CONFLICT", "BINDING_CONFLICT"),
            (SessionError::OtherImage, "SESSION_CONFLICT", "BINDING_CONFLICT"),
            (Refusal::Expired(SessionEnd::HardTtl).into(), "SESSION_EXPIRED", "BINDING_EXPIRED"),
            (SessionError::Starting, "SANDBOX_STARTING", "SANDBOX_STARTING"),
            (
                SandboxError::ProviderDisabled(String::new()).into(),
                "PROVIDER_DISABLED",
                "PROVIDER_DISABLED",
            ),
            (failed(FailureCause::ImageNotFound), "IMAGE_NOT_FOUND", "IMAGE_NOT_FOUND"),
            (failed(FailureCause::ImageNotAllowed), "FORBIDDEN", "FORBIDDEN"),
            (failed(FailureCause::ImageUnusable), "IMAGE_UNUSABLE", "IMAGE_UNUSABLE"),
            (failed(FailureCause::ImageFailed), "PROVIDER_UNAVAILABLE", "BACKEND_UNAVAILABLE"),
            (failed(FailureCause::CreateFailed), "PROVIDER_UNAVAILABLE", "BACKEND_UNAVAILABLE"),
            (failed(FailureCause::ResumeFailed), "PROVIDER_UNAVAILABLE", "BACKEND_UNAVAILABLE"),
            (
                SandboxError::Unavailable(String::new()).into(),
                "PROVIDER_UNAVAILABLE",
                "BACKEND_UNAVAILABLE",
            ),
        ];
        for (error, session, binding) in rows {
            let code = |names: Names| names.code(&error).map(ErrorCode::wire_name);
            assert_eq!(code(Names::Session), Some(session));
            assert_eq!(code(Names::Binding), Some(binding));
        }
    }
}
