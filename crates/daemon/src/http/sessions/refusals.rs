//! What the engine refuses of sessions, by the two lists of names that clients know.

use api::errors::ErrorCode;
use engine::{images::ImageError, sandboxes::SandboxError, sessions::SessionError};
use model::session::Refusal;

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
            SessionError::Failed(_) => unavailable(),
            SessionError::Sandbox(error) => match error {
                SandboxError::Unavailable(_) | SandboxError::Provider(_) => unavailable(),
                SandboxError::Image(error) if error.is_retryable() => unavailable(),
                SandboxError::Image(
                    ImageError::NotAllowed(_) | ImageError::RegistryNotAllowed { .. },
                ) => Some(ErrorCode::Forbidden),
                SandboxError::Image(_) => Some(ErrorCode::InvalidRequest),
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use model::session::SessionEnd;

    use super::*;

    #[test]
    fn each_list_has_its_names() {
        let rows: [(SessionError, &str, &str); 7] = [
            (Refusal::NotFound.into(), "SESSION_NOT_FOUND", "BINDING_NOT_FOUND"),
            (Refusal::Conflict.into(), "SESSION_CONFLICT", "BINDING_CONFLICT"),
            (SessionError::OtherImage, "SESSION_CONFLICT", "BINDING_CONFLICT"),
            (Refusal::Expired(SessionEnd::HardTtl).into(), "SESSION_EXPIRED", "BINDING_EXPIRED"),
            (SessionError::Starting, "SANDBOX_STARTING", "SANDBOX_STARTING"),
            (SessionError::Failed(String::new()), "PROVIDER_UNAVAILABLE", "BACKEND_UNAVAILABLE"),
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
