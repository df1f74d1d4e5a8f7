//! What a client is told when something goes wrong over HTTP.

use std::borrow::Cow;

use api::{
    errors::{ErrorCode, Problem, ProblemDetail},
    sessions::Coordinates,
};
use axum::{
    Json,
    extract::{self, FromRequest, FromRequestParts, Request},
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{CONNECTION, RETRY_AFTER, UPGRADE, WWW_AUTHENTICATE},
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use model::text::NameError;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use store::StoreError;

use super::{
    request,
    strict::{self, MostBytes},
};
use crate::keys::KeyError;

/// A refusal, as an answer.
#[derive(Debug)]
pub struct ApiError {
    code: ErrorCode,
    message: Cow<'static, str>,
    header: Option<Box<(HeaderName, HeaderValue)>>,
    kind: Option<&'static str>,
    field: Option<Cow<'static, str>>,
    pointer: Option<Cow<'static, str>>,
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
        Self { code, message, header: None, kind: None, field: None, pointer: None, binding: None }
    }

    pub(crate) fn code(&self) -> ErrorCode {
        self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn header(&self, name: &HeaderName) -> Option<&HeaderValue> {
        self.header.as_deref().filter(|(own, _)| own == name).map(|(_, value)| value)
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

    /// Says where in the body it is.
    pub(crate) fn pointing(self, pointer: impl Into<Cow<'static, str>>) -> Self {
        Self { pointer: Some(pointer.into()), ..self }
    }

    /// Returns what the answer says, for who writes it himself.
    pub(crate) fn body(&self, request_id: &str) -> String {
        serde_json::to_string(&self.problem(request_id)).unwrap_or_default()
    }

    fn problem<'a>(&'a self, request_id: &'a str) -> Problem<'a> {
        let error = ProblemDetail {
            code: self.code.wire_name().into(),
            message: Cow::Borrowed(&*self.message),
            retryable: self.code.is_retryable(),
            request_id: request_id.into(),
            pointer: self.pointer.as_deref().map(Cow::Borrowed),
            binding: self.binding.clone(),
        };
        Problem { error }
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
        let mut response = (status, Json(self.problem(&request_id))).into_response();
        let (code, message, kind, field) = (self.code, self.message, self.kind, self.field);
        response.extensions_mut().insert(Told { code, message, request_id, kind, field });
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // RFC 9110, 15.5.22: it names the protocol that is needed.
        if status == StatusCode::UPGRADE_REQUIRED {
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
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

impl From<NameError> for ApiError {
    fn from(error: NameError) -> Self {
        Self::new(ErrorCode::InvalidRequest, error.to_string())
    }
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Name(_) | KeyError::Role => {
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

/// Names out of a path, whose refusals look like all others.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match extract::Path::from_request_parts(parts, state).await {
            Ok(extract::Path(names)) => Ok(Self(names)),
            Err(_rejection) => {
                let message = "the path is not UTF-8";
                Err(ApiError::new(ErrorCode::InvalidRequest, message))
            }
        }
    }
}

/// A JSON body whose refusals look like all others.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let most = request.extensions().get::<MostBytes>().copied().unwrap_or_default();
        strict::check_type(request.headers())?;
        let (_, bytes) = strict::read(request, most.0).await?;
        let body: &RawValue = serde_json::from_slice(&bytes).map_err(|_text| no_such_object())?;
        // A list would be taken for the fields in their order.
        if !body.get().starts_with('{') {
            return Err(no_such_object());
        }
        serde_json::from_str(body.get()).map(Self).map_err(|_misfit| no_such_object())
    }
}

/// The text never repeats what was sent.
fn no_such_object() -> ApiError {
    let message = "the body is not the JSON object that this route takes";
    ApiError::new(ErrorCode::InvalidRequest, message).pointing("")
}
