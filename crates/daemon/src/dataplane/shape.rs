//! Refusals in the shape that the clients of a route read.

use api::{
    errors::ErrorCode,
    langsmith::{Refused, RefusedDetail, RefusedField, RefusedReason},
};
use axum::{
    Json,
    http::{HeaderMap, StatusCode, header::CONTENT_LENGTH},
    response::{IntoResponse as _, Response},
};

use crate::http::problem::Told;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `{"error": {"code", "message", "retryable", "request_id"}}`
    Envelope,
    /// `{"detail": {"error", "message", "error_id"}}`, or, of what is wrong in a request,
    /// `{"detail": [{"loc", "msg", "type"}]}`, as LangSmith's clients read it.
    Detail,
    /// `{"error", "error_description"}`, as OAuth has it. Its routes write it themselves.
    OAuth,
}

/// Gives an answer its shape. Only what an [`crate::http::problem::ApiError`] said is changed.
pub(crate) fn of(shape: Shape, answer: Response) -> Response {
    match (shape, answer.extensions().get::<Told>().cloned()) {
        (Shape::Envelope | Shape::OAuth, _) | (Shape::Detail, None) => answer,
        (Shape::Detail, Some(told)) => detail(told, &answer),
    }
}

fn detail(told: Told, answer: &Response) -> Response {
    let (kind, status) = kind(told.code);
    let error = told.kind.unwrap_or(kind);
    let message = told.message.clone().into_owned();
    let (detail, status) = if let Some(field) = &told.field {
        // As their validators say it: what is wrong, and where.
        let loc = vec!["body".to_owned(), field.clone().into_owned()];
        let item = RefusedField { loc, msg: message.clone(), kind: "value_error".to_owned() };
        (RefusedDetail::Fields(vec![item]), Some(StatusCode::UNPROCESSABLE_ENTITY))
    } else {
        let error_id = told.request_id.clone();
        let reason = RefusedReason { error: error.to_owned(), message: message.clone(), error_id };
        let is_creation = CREATION.contains(&error);
        let status = if is_creation { Some(StatusCode::UNPROCESSABLE_ENTITY) } else { status };
        (RefusedDetail::Reason(reason), status)
    };
    // Old clients look for texts beside it.
    let body = Refused { detail, message, error_type: error.to_owned() };
    let status = status.unwrap_or(answer.status());
    let mut headers: HeaderMap = answer.headers().clone();
    headers.remove(CONTENT_LENGTH);
    let mut answer = (status, headers, Json(body)).into_response();
    answer.extensions_mut().insert(told);
    answer
}

/// Why no sandbox came about, as LangSmith's clients tell it apart.
pub(crate) const CREATION: [&str; 3] = ["ImagePull", "CrashLoop", "SandboxConfig"];

/// Returns how LangSmith's clients call it, and under which status they know it, if that differs.
/// They take 502, 503 and 504 for something that passes, and try again.
pub(crate) fn kind(code: ErrorCode) -> (&'static str, Option<StatusCode>) {
    match code {
        ErrorCode::SandboxStarting => ("ServiceUnavailable", Some(StatusCode::SERVICE_UNAVAILABLE)),
        ErrorCode::SandboxNotReady => ("NotReady", Some(StatusCode::BAD_REQUEST)),
        ErrorCode::Unavailable
        | ErrorCode::SandboxOverloaded
        | ErrorCode::ProviderUnavailable
        | ErrorCode::BackendUnavailable => ("ServiceUnavailable", None),
        ErrorCode::Unauthenticated | ErrorCode::TokenExpired | ErrorCode::BindingSuperseded => {
            ("Unauthenticated", None)
        }
        ErrorCode::Forbidden | ErrorCode::CapabilityDenied | ErrorCode::Symlink => {
            ("PermissionDenied", None)
        }
        ErrorCode::NotFound
        | ErrorCode::UnknownExecution
        | ErrorCode::OutputGone
        | ErrorCode::ImageNotFound
        | ErrorCode::SessionNotFound
        | ErrorCode::SessionExpired
        | ErrorCode::BindingNotFound
        | ErrorCode::BindingExpired => ("NotFound", None),
        ErrorCode::InvalidRequest
        | ErrorCode::InvalidPath
        | ErrorCode::NotRegular
        | ErrorCode::LanguageNotSupported
        | ErrorCode::MethodNotAllowed
        | ErrorCode::UnsupportedVersion
        | ErrorCode::UnsupportedMediaType
        | ErrorCode::ImageRequired
        | ErrorCode::ImageUnusable
        | ErrorCode::ProviderDisabled
        | ErrorCode::IdempotencyKeyReused
        | ErrorCode::MisdirectedRequest
        | ErrorCode::HeadersTooLarge
        | ErrorCode::PayloadTooLarge => ("ValidationError", None),
        ErrorCode::Conflict
        | ErrorCode::PreconditionFailed
        | ErrorCode::SessionConflict
        | ErrorCode::BindingConflict
        | ErrorCode::IdempotencyInFlight => ("Conflict", None),
        ErrorCode::RangeNotSatisfiable => ("RangeNotSatisfiable", None),
        ErrorCode::InsufficientStorage => ("WriteError", None),
        ErrorCode::Timeout | ErrorCode::PortTimeout => ("Timeout", None),
        ErrorCode::PortUnreachable => ("ConnectionError", None),
        ErrorCode::TooManyConnections => ("TooManyConnections", None),
        ErrorCode::RateLimited => ("QuotaExceeded", None),
        ErrorCode::NotImplemented => ("NotImplemented", None),
        ErrorCode::Oom
        | ErrorCode::OutputLimit
        | ErrorCode::InternalError
        | ErrorCode::NetworkError => ("InternalError", None),
    }
}
