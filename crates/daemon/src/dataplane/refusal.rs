//! Why somebody is not let into a sandbox, as an answer and as the end of a WebSocket.

use std::{borrow::Cow, time::Duration};

use api::{errors::ErrorCode, sessions::Coordinates};
use engine::sandboxes::SandboxError;
use model::{capability::Capability, holder::OutOfReach, token::TokenRefusal};

use super::errors;
use crate::{
    auth::{self, KeyRefusal},
    http::problem::ApiError,
};

/// Why a right to a sandbox is not there.
#[derive(Debug)]
pub enum Refusal {
    /// No credential came, or more than one.
    Missing,
    /// It is not genuine, or not good here and now. Nobody is told which of these.
    Invalid,
    /// A genuine token of another sandbox: an answer says no more than [`Self::Invalid`] does.
    OtherSandbox,
    /// A genuine token that has ended.
    Expired,
    /// A good token for a sandbox that was replaced by another, which is here if it is known.
    Superseded(Option<Box<Coordinates>>),
    Denied(Capability),
    /// A good key, from which the operator keeps the scope that the sandbox is of.
    OutOfReach(OutOfReach),
    /// Too many requests with the key: wait so long.
    TooFast(Duration),
    /// Nobody has such a sandbox, or somebody else has.
    NotFound,
    /// It cannot be told.
    Unclear(SandboxError),
}

impl From<TokenRefusal> for Refusal {
    fn from(refusal: TokenRefusal) -> Self {
        match refusal {
            TokenRefusal::OtherSandbox => Self::OtherSandbox,
            TokenRefusal::Expired => Self::Expired,
            TokenRefusal::NotYet | TokenRefusal::TooLong => Self::Invalid,
            TokenRefusal::StaleGeneration => Self::Superseded(None),
        }
    }
}

impl From<KeyRefusal> for Refusal {
    fn from(refusal: KeyRefusal) -> Self {
        match refusal {
            KeyRefusal::Invalid(_) => Self::Invalid,
            KeyRefusal::TooFast(wait) => Self::TooFast(wait),
        }
    }
}

impl Refusal {
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Missing | Self::Invalid | Self::OtherSandbox => ErrorCode::Unauthenticated,
            Self::Expired => ErrorCode::TokenExpired,
            Self::Superseded(_) => ErrorCode::BindingSuperseded,
            Self::Denied(_) => ErrorCode::CapabilityDenied,
            Self::OutOfReach(_) => ErrorCode::Forbidden,
            Self::TooFast(_) => ErrorCode::RateLimited,
            Self::NotFound => ErrorCode::NotFound,
            Self::Unclear(error) => errors::code(error),
        }
    }

    /// Returns what a person is told, with what to do next.
    pub fn message(&self) -> Cow<'static, str> {
        match self {
            Self::Missing => {
                "send one credential as \"Authorization: Bearer TOKEN\" or \"X-Api-Key: TOKEN\""
                    .into()
            }
            Self::Invalid | Self::OtherSandbox => {
                "the credential is not valid for this sandbox; ask for a new token".into()
            }
            Self::Expired => "the token has expired; ask for a new one".into(),
            Self::Superseded(_) => {
                "the sandbox was replaced by another; ask for a new token".into()
            }
            Self::Denied(capability) => {
                format!("{capability} is not granted; ask for a token with it").into()
            }
            Self::OutOfReach(out) => out.to_string().into(),
            Self::TooFast(_) => "too many requests with this key; wait".into(),
            Self::NotFound => "there is no such sandbox".into(),
            Self::Unclear(_) => "whose sandbox this is cannot be told now; try again".into(),
        }
    }

    /// Returns what the audit log says, which may be more than whoever is refused is told.
    pub(super) fn reason(&self) -> Cow<'static, str> {
        match self {
            Self::Missing => "no credential".into(),
            Self::Invalid => "not valid".into(),
            Self::OtherSandbox => "of another sandbox".into(),
            Self::Expired => "expired".into(),
            Self::Superseded(_) => "of a sandbox that was replaced".into(),
            Self::Denied(capability) => format!("without {capability}").into(),
            Self::OutOfReach(_) => "out of reach".into(),
            Self::TooFast(_) => "too fast".into(),
            Self::NotFound => "no such sandbox".into(),
            Self::Unclear(_) => "cannot be told".into(),
        }
    }

    /// Returns the code with which a WebSocket is closed that has been opened already.
    pub fn close_code(&self) -> u16 {
        match self {
            Self::Missing | Self::Invalid | Self::Expired => 4401,
            Self::OtherSandbox | Self::Denied(_) | Self::OutOfReach(_) => 4403,
            Self::TooFast(_) => 4429,
            Self::NotFound => 4404,
            Self::Superseded(_) => 4409,
            Self::Unclear(_) => 1011,
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unclear(error) => error.into(),
            Refusal::Superseded(ref binding) => {
                let told = Self::new(refusal.code(), refusal.message());
                told.with_binding(binding.clone())
            }
            Refusal::TooFast(wait) => auth::too_fast(wait),
            refusal => Self::new(refusal.code(), refusal.message()),
        }
    }
}
