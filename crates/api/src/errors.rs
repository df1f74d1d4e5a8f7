//! The tables of error codes: what a client sees when something goes wrong.
#![expect(single_use_lifetimes, reason = "a derived schema names the lifetime of its type once")]

pub mod agbox;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sessions::Coordinates;

/// What went wrong, in a word that programs can act on. Codes are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The execution exceeded its time limit.
    Timeout,
    /// The execution exceeded its memory limit.
    Oom,
    /// The output exceeded `max_output_bytes`.
    OutputLimit,
    /// The language is not available on this server.
    LanguageNotSupported,
    /// The request is malformed or out of range.
    InvalidRequest,
    /// There is no running execution of that id on this connection.
    UnknownExecution,
    /// The server is at capacity.
    SandboxOverloaded,
    /// The server failed in a way that it did not expect.
    InternalError,
    /// The network that was asked for is not to be had.
    NetworkError,
    /// No valid API key came with the request.
    Unauthenticated,
    /// The key is valid and may not do this.
    Forbidden,
    /// There is no such thing, or it is not yours.
    NotFound,
    /// The method does not fit the route.
    MethodNotAllowed,
    /// The protocol version is not spoken here.
    UnsupportedVersion,
    /// The body is not of the expected media type.
    UnsupportedMediaType,
    /// The body is larger than allowed.
    PayloadTooLarge,
    /// The server is starting, stopping or cannot write.
    Unavailable,
    /// The credential is valid and lacks a capability that this takes.
    CapabilityDenied,
    /// The token was valid and has ended.
    TokenExpired,
    /// The token is for a sandbox that was replaced by another.
    BindingSuperseded,
    /// The path is not one that a file can have, or not within reach of the token.
    InvalidPath,
    /// The file is not, or not any more, what the request was made for.
    PreconditionFailed,
    /// It stands in the way of something that is there.
    Conflict,
    /// There is nothing at the asked place.
    RangeNotSatisfiable,
    /// The sandbox's disk is full.
    InsufficientStorage,
    /// It is neither a file nor a folder.
    NotRegular,
    /// The sandbox is stopped or has failed.
    SandboxNotReady,
    /// The sandbox will be ready soon.
    SandboxStarting,
    /// No server in the sandbox answers at this port.
    PortUnreachable,
    /// A server in the sandbox did not answer in time.
    PortTimeout,
    /// There is no room for another connection.
    TooManyConnections,
    /// A symbolic link is there, and nothing is written through one.
    Symlink,
    /// What the command has written was removed after its end.
    OutputGone,
    /// There is no such session, or it is not yours.
    SessionNotFound,
    /// The thread has a session that does not fit the request.
    SessionConflict,
    /// The session has ended by itself.
    SessionExpired,
    /// No sandbox can be had now.
    ProviderUnavailable,
    /// There is no such binding, or it is not yours.
    BindingNotFound,
    /// The scope has a binding that does not fit the request.
    BindingConflict,
    /// The binding has ended by itself.
    BindingExpired,
    /// No sandbox can be had now.
    BackendUnavailable,
    /// Nobody says what the sandbox is to be made of.
    ImageRequired,
    /// The key of the request was used for another request.
    IdempotencyKeyReused,
    /// A request with the same key is being carried out.
    IdempotencyInFlight,
    /// Too many requests, or all that the tenant may have at once.
    RateLimited,
    /// The contract has it, and this server does not yet.
    NotImplemented,
    /// The request is for another host than this server.
    MisdirectedRequest,
    /// The first line and the headers are larger than allowed, or more.
    HeadersTooLarge,
    /// The registry does not have the image.
    ImageNotFound,
    /// The image cannot be used here.
    ImageUnusable,
    /// The operator has not enabled this provider.
    ProviderDisabled,
}

/// Whether the same request may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    Later,
    Never,
}

impl ErrorCode {
    /// Every code, in the order of the table.
    pub const ALL: [Self; 51] = [
        Self::Timeout,
        Self::Oom,
        Self::OutputLimit,
        Self::LanguageNotSupported,
        Self::InvalidRequest,
        Self::UnknownExecution,
        Self::SandboxOverloaded,
        Self::InternalError,
        Self::NetworkError,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::UnsupportedVersion,
        Self::UnsupportedMediaType,
        Self::PayloadTooLarge,
        Self::Unavailable,
        Self::CapabilityDenied,
        Self::TokenExpired,
        Self::BindingSuperseded,
        Self::InvalidPath,
        Self::PreconditionFailed,
        Self::Conflict,
        Self::RangeNotSatisfiable,
        Self::InsufficientStorage,
        Self::NotRegular,
        Self::SandboxNotReady,
        Self::SandboxStarting,
        Self::PortUnreachable,
        Self::PortTimeout,
        Self::TooManyConnections,
        Self::Symlink,
        Self::OutputGone,
        Self::SessionNotFound,
        Self::SessionConflict,
        Self::SessionExpired,
        Self::ProviderUnavailable,
        Self::BindingNotFound,
        Self::BindingConflict,
        Self::BindingExpired,
        Self::BackendUnavailable,
        Self::ImageRequired,
        Self::IdempotencyKeyReused,
        Self::IdempotencyInFlight,
        Self::RateLimited,
        Self::NotImplemented,
        Self::MisdirectedRequest,
        Self::HeadersTooLarge,
        Self::ImageNotFound,
        Self::ImageUnusable,
        Self::ProviderDisabled,
    ];

    /// Returns wire name, HTTP status and whether to try again: the whole table.
    pub const fn row(self) -> (&'static str, u16, Retry) {
        match self {
            Self::Timeout => ("TIMEOUT", 408, Retry::Never),
            Self::Oom => ("OOM", 422, Retry::Never),
            Self::OutputLimit => ("OUTPUT_LIMIT", 422, Retry::Never),
            Self::LanguageNotSupported => ("LANGUAGE_NOT_SUPPORTED", 400, Retry::Never),
            Self::InvalidRequest => ("INVALID_REQUEST", 400, Retry::Never),
            Self::UnknownExecution => ("UNKNOWN_EXECUTION", 404, Retry::Never),
            Self::SandboxOverloaded => ("SANDBOX_OVERLOADED", 503, Retry::Later),
            Self::InternalError => ("INTERNAL_ERROR", 500, Retry::Later),
            Self::NetworkError => ("NETWORK_ERROR", 502, Retry::Later),
            Self::Unauthenticated => ("UNAUTHENTICATED", 401, Retry::Never),
            Self::Forbidden => ("FORBIDDEN", 403, Retry::Never),
            Self::NotFound => ("NOT_FOUND", 404, Retry::Never),
            Self::MethodNotAllowed => ("METHOD_NOT_ALLOWED", 405, Retry::Never),
            Self::UnsupportedVersion => ("UNSUPPORTED_VERSION", 426, Retry::Never),
            Self::UnsupportedMediaType => ("UNSUPPORTED_MEDIA_TYPE", 415, Retry::Never),
            Self::PayloadTooLarge => ("PAYLOAD_TOO_LARGE", 413, Retry::Never),
            Self::Unavailable => ("UNAVAILABLE", 503, Retry::Later),
            Self::CapabilityDenied => ("CAPABILITY_DENIED", 403, Retry::Never),
            Self::TokenExpired => ("TOKEN_EXPIRED", 401, Retry::Never),
            Self::BindingSuperseded => ("BINDING_SUPERSEDED", 409, Retry::Never),
            Self::InvalidPath => ("INVALID_PATH", 400, Retry::Never),
            Self::PreconditionFailed => ("PRECONDITION_FAILED", 412, Retry::Never),
            Self::Conflict => ("CONFLICT", 409, Retry::Never),
            Self::RangeNotSatisfiable => ("RANGE_NOT_SATISFIABLE", 416, Retry::Never),
            Self::InsufficientStorage => ("INSUFFICIENT_STORAGE", 507, Retry::Never),
            Self::NotRegular => ("NOT_REGULAR", 400, Retry::Never),
            Self::SandboxNotReady => ("SANDBOX_NOT_READY", 409, Retry::Never),
            Self::SandboxStarting => ("SANDBOX_STARTING", 423, Retry::Later),
            Self::PortUnreachable => ("PORT_UNREACHABLE", 502, Retry::Later),
            Self::PortTimeout => ("PORT_TIMEOUT", 504, Retry::Later),
            Self::TooManyConnections => ("TOO_MANY_CONNECTIONS", 429, Retry::Later),
            Self::Symlink => ("SYMLINK", 403, Retry::Never),
            Self::OutputGone => ("OUTPUT_GONE", 410, Retry::Never),
            Self::SessionNotFound => ("SESSION_NOT_FOUND", 404, Retry::Never),
            Self::SessionConflict => ("SESSION_CONFLICT", 409, Retry::Never),
            Self::SessionExpired => ("SESSION_EXPIRED", 410, Retry::Never),
            Self::ProviderUnavailable => ("PROVIDER_UNAVAILABLE", 503, Retry::Later),
            Self::BindingNotFound => ("BINDING_NOT_FOUND", 404, Retry::Never),
            Self::BindingConflict => ("BINDING_CONFLICT", 409, Retry::Never),
            Self::BindingExpired => ("BINDING_EXPIRED", 410, Retry::Never),
            Self::BackendUnavailable => ("BACKEND_UNAVAILABLE", 503, Retry::Later),
            Self::ImageRequired => ("IMAGE_REQUIRED", 400, Retry::Never),
            Self::IdempotencyKeyReused => ("IDEMPOTENCY_KEY_REUSED", 422, Retry::Never),
            Self::IdempotencyInFlight => ("IDEMPOTENCY_IN_FLIGHT", 409, Retry::Later),
            Self::RateLimited => ("RATE_LIMITED", 429, Retry::Later),
            Self::NotImplemented => ("NOT_IMPLEMENTED", 501, Retry::Never),
            Self::MisdirectedRequest => ("MISDIRECTED_REQUEST", 421, Retry::Never),
            Self::HeadersTooLarge => ("HEADERS_TOO_LARGE", 431, Retry::Never),
            Self::ImageNotFound => ("IMAGE_NOT_FOUND", 404, Retry::Never),
            Self::ImageUnusable => ("IMAGE_UNUSABLE", 422, Retry::Never),
            Self::ProviderDisabled => ("PROVIDER_DISABLED", 400, Retry::Never),
        }
    }

    pub const fn wire_name(self) -> &'static str {
        self.row().0
    }

    pub const fn http_status(self) -> u16 {
        self.row().1
    }

    pub const fn is_retryable(self) -> bool {
        matches!(self.row().2, Retry::Later)
    }
}

/// The body of every HTTP answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem<'a> {
    pub error: ProblemDetail<'a>,
}

/// What went wrong, for programs (`code`, `retryable`) and for people (`message`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemDetail<'a> {
    pub code: Cow<'a, str>,
    pub message: Cow<'a, str>,
    pub retryable: bool,
    /// Names this request in the server's log.
    pub request_id: Cow<'a, str>,
    /// Where in the body it is: a JSON pointer (RFC 6901), empty for the body as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<Cow<'a, str>>,
    /// Where the sandbox is that took the place of the one that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Box<Coordinates>>,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_code_has_its_own_name() {
        let names: HashSet<_> = ErrorCode::ALL.iter().map(|code| code.wire_name()).collect();
        assert_eq!(names.len(), ErrorCode::ALL.len());
    }

    #[test]
    fn the_codes_of_the_execution_protocol_are_retryable_as_it_says() {
        let rows = [
            ("TIMEOUT", false),
            ("OOM", false),
            ("OUTPUT_LIMIT", false),
            ("LANGUAGE_NOT_SUPPORTED", false),
            ("INVALID_REQUEST", false),
            ("UNKNOWN_EXECUTION", false),
            ("SANDBOX_OVERLOADED", true),
            ("INTERNAL_ERROR", true),
            ("NETWORK_ERROR", true),
        ];
        let table: Vec<_> = ErrorCode::ALL
            .iter()
            .take(rows.len())
            .map(|code| (code.wire_name(), code.is_retryable()))
            .collect();
        assert_eq!(table, rows);
    }
}
