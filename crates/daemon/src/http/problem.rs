//! What a client is told when something goes wrong over HTTP.

use std::{borrow::Cow, time::Duration};

use api::{
    errors::{ErrorCode, Problem, ProblemDetail},
    sessions::Coordinates,
};
use axum::{
    Json,
    extract::{self, FromRequest, FromRequestParts, Request, rejection::JsonRejection},
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{RETRY_AFTER, WWW_AUTHENTICATE},
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use store::StoreError;
use tokio::time::timeout;

use super::request;
use crate::keys::KeyError;

/// A refusal, as an answer.
#[derive(Debug)]
pub struct ApiError {
    code: ErrorCode,
    message: Cow<'static, str>,
    header: Option<Box<(HeaderName, HeaderValue)>>,
    kind: Option<&'static str>,
    field: Option<Cow<'static, str>>,
    binding: Option<Box<Coordinates>>,
}

/// What an answer says, for surfaces that say it in another shape.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) code: ErrorCode,
    pub(crate) message: Cow<'static, str>,
    pub(crate) request_id: String,
    /// What LangSmith's clients are to call it, if not what its code says.
    pub(crate) kind: Option<&'static str>,
    /// The field of the request that it is about.
    pub(crate) field: Option<Cow<'static, str>>,
}

impl ApiError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        Self { code, message, header: None, kind: None, field: None, binding: None }
    }

    pub(crate) fn code(&self) -> ErrorCode {
        self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn binding(&self) -> Option<&Coordinates> {
        self.binding.as_deref()
    }

    pub(crate) fn with_header(self, name: HeaderName, value: HeaderValue) -> Self {
        Self { header: Some(Box::new((name, value))), ..self }
    }

    /// Says what LangSmith's clients are to call it, where they tell more apart than codes do.
    pub(crate) fn with_kind(self, kind: &'static str) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// Says which field of the request it is about, for clients that are told.
    pub(crate) fn at(self, field: impl Into<Cow<'static, str>>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// Says where the sandbox is that took the place of the one that was asked for.
    pub(crate) fn with_binding(self, binding: Option<Box<Coordinates>>) -> Self {
        Self { binding, ..self }
    }

    /// Our own failure: the cause goes to the log and not to the client.
    pub(crate) fn internal(cause: &dyn std::error::Error) -> Self {
        let source = cause.source();
        tracing::error!(error = %cause, ?source, "a request cannot be answered");
        Self::new(ErrorCode::InternalError, "the server failed; its log says more")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let request_id = request::id_or_new();
        let code = self.code.wire_name();
        tracing::debug!(request_id, code, reason = %self.message, "request refused");
        let status = StatusCode::from_u16(self.code.http_status())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let error = ProblemDetail {
            code: code.into(),
            message: Cow::Borrowed(&*self.message),
            retryable: self.code.is_retryable(),
            request_id: Cow::Borrowed(&*request_id),
            binding: self.binding,
        };
        let mut response = (status, Json(Problem { error })).into_response();
        let (code, message, kind, field) = (self.code, self.message, self.kind, self.field);
        response.extensions_mut().insert(Told { code, message, request_id, kind, field });
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        let passing =
            [StatusCode::SERVICE_UNAVAILABLE, StatusCode::LOCKED, StatusCode::TOO_MANY_REQUESTS];
        if passing.contains(&status) || self.code == ErrorCode::IdempotencyInFlight {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(header) = self.header {
            headers.insert(header.0, header.1);
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            // As the calls of gRPC say it. The store has logged what became of it.
            StoreError::Full
            | StoreError::ReadOnly { .. }
            | StoreError::Commit { .. }
            | StoreError::Audit { .. }
            | StoreError::Unreachable { .. }
            | StoreError::Closed => Self::new(ErrorCode::Unavailable, error.to_string()),
            other => Self::internal(&other),
        }
    }
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Name | KeyError::Role => {
                Self::new(ErrorCode::InvalidRequest, error.to_string())
            }
            KeyError::NoSuchKey => Self::new(ErrorCode::NotFound, error.to_string()),
            KeyError::Store(error) => error.into(),
            KeyError::Random(_)
            | KeyError::File { .. }
            | KeyError::TooOpen { .. }
            | KeyError::Lock(_) => Self::internal(&error),
        }
    }
}

/// Parameters of a URL whose refusals look like all others.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match extract::Query::from_request_parts(parts, state).await {
            Ok(extract::Query(asked)) => Ok(Self(asked)),
            Err(_rejection) => {
                let message = "the parameters of the URL are not what this route takes";
                Err(ApiError::new(ErrorCode::InvalidRequest, message))
            }
        }
    }
}

/// Bodies are small; one that takes longer is held back on purpose.
const BODY_DEADLINE: Duration = Duration::from_secs(15);

/// A JSON body whose refusals look like all others.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        match timeout(BODY_DEADLINE, Json::<Box<RawValue>>::from_request(request, state)).await {
            // A list would be taken for the fields in their order.
            Ok(Ok(Json(body))) if !body.get().starts_with('{') => Err(no_such_object()),
            Ok(Ok(Json(body))) => {
                serde_json::from_str(body.get()).map(Self).map_err(|_misfit| no_such_object())
            }
            Ok(Err(rejection)) => Err(refuse_body(&rejection)),
            Err(_) => Err(ApiError::new(ErrorCode::Timeout, "the body did not come in time")),
        }
    }
}

/// The text never repeats what was sent.
fn refuse_body(rejection: &JsonRejection) -> ApiError {
    match rejection.status() {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ApiError::new(
            ErrorCode::UnsupportedMediaType,
            "the body must be JSON, with Content-Type: application/json",
        ),
        StatusCode::PAYLOAD_TOO_LARGE => {
            ApiError::new(ErrorCode::PayloadTooLarge, "the body is too large")
        }
        _ => no_such_object(),
    }
}

fn no_such_object() -> ApiError {
    let message = "the body is not the JSON object that this route takes";
    ApiError::new(ErrorCode::InvalidRequest, message)
}
