//! `WS /ws`: the Fathom execution protocol. Here is the upgrade; [`connection`] does the rest.

mod book;
pub mod connection;
pub(crate) mod end;
pub mod health;
mod limits;
pub(crate) mod socket;
mod telling;
mod utf8;

use std::sync::Arc;

use api::{errors::ErrorCode, fathom::VERSION};
use axum::{
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{
            CONNECTION, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
            UPGRADE,
        },
    },
    response::Response,
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::{
    auth::Caller,
    dataplane::shape::Shape,
    http::{App, problem::ApiError, routes::Routes},
    openapi::{Doc, Opens, Tag},
    serve::{Phase, Place},
};
use socket::Stream;

const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("x-protocol-version");

pub(crate) fn routes() -> Routes {
    let doc = Doc::new(Tag::Executions, "Opens a connection that runs source code")
        .header(
            "X-Protocol-Version",
            &json!({"type": "string", "enum": ["1"]}),
            "What the client speaks.",
        )
        .upgrades();
    Routes::new(Shape::Envelope).get("/ws", Opens::Key, doc, upgrade)
}

/// Turns the request into a WebSocket connection of the caller.
async fn upgrade(
    State(app): State<App>,
    caller: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    check_protocol_version(request.headers())?;
    let mut response = upgrade_to(&app.clone(), request, async move |stream| {
        tracing::debug!(key = %caller.key_id(), "connection opened");
        connection::run(stream, app.given(caller)).await;
    })?;
    response.headers_mut().insert(PROTOCOL_VERSION, HeaderValue::from(VERSION));
    Ok(response)
}

/// Turns a request into a WebSocket that is served by this. Whoever asks has been let in.
pub(crate) fn upgrade_to<F, S>(
    app: &App,
    mut request: Request,
    serve: F,
) -> Result<Response, ApiError>
where
    F: FnOnce(Stream) -> S + Send + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    app.origins.check(request.headers())?;
    let accept = accept_key(request.headers())?;
    if *app.phase.borrow() != Phase::Serving {
        return Err(ApiError::new(ErrorCode::Unavailable, "the server is shutting down"));
    }
    // Goes along with the socket.
    let place = request.extensions_mut().remove::<Place>();
    let (upgraded, metrics) = (hyper::upgrade::on(&mut request), Arc::clone(&app.metrics));
    app.tasks.start("websocket", async move {
        match upgraded.await {
            Ok(upgraded) => {
                let _open = metrics.connection();
                serve(TokioIo::new(upgraded)).await;
            }
            Err(error) => tracing::debug!(%error, "an upgrade was not finished"),
        }
        drop(place);
    });
    switching(&accept)
}

/// A missing header means the first version; any other than ours is refused with what we speak.
fn check_protocol_version(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut asked = headers.get_all(PROTOCOL_VERSION).iter();
    match (asked.next(), asked.next()) {
        (None, _) => Ok(()),
        (Some(version), None) if version.as_bytes() == VERSION.to_string().as_bytes() => Ok(()),
        _ => Err(ApiError::new(
            ErrorCode::UnsupportedVersion,
            format!("this protocol version is not supported; supported versions: {VERSION}"),
        )
        .with_header(PROTOCOL_VERSION, HeaderValue::from(VERSION))),
    }
}

/// Checks that this is an upgrade to a WebSocket; returns the answer to its key.
fn accept_key(headers: &HeaderMap) -> Result<String, ApiError> {
    if !has_token(headers, &CONNECTION, "upgrade") || !has_token(headers, &UPGRADE, "websocket") {
        return Err(ApiError::new(ErrorCode::InvalidRequest, "this route is for WebSockets only"));
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(ApiError::new(ErrorCode::UnsupportedVersion, "WebSocket version 13 is needed")
            .with_header(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13")));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or_else(|| {
        ApiError::new(ErrorCode::InvalidRequest, "the header Sec-WebSocket-Key is missing")
    })?;
    Ok(derive_accept_key(key.as_bytes()))
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|part| part.trim().eq_ignore_ascii_case(token))
}

/// Answers an upgrade to a WebSocket.
fn switching(accept: &str) -> Result<Response, ApiError> {
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_ACCEPT, accept)
        .body(Body::empty())
        .map_err(|error| {
            tracing::error!(%error, "cannot write the answer to an upgrade");
            ApiError::new(ErrorCode::InternalError, "cannot answer the upgrade")
        })
}

/// The web pages that may open a connection.
#[derive(Debug)]
pub(crate) struct Origins(Vec<String>);

impl Origins {
    pub(crate) fn new(allowed: Vec<String>) -> Self {
        Self(allowed)
    }

    /// Refuses a browser's page that is not on the list. Programs send no origin; they are let
    /// in, because by now they have shown a key in a header, which no page can make a browser do.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let mut origins = headers.get_all(ORIGIN).iter();
        let allowed = match (origins.next(), origins.next()) {
            (None, _) => true,
            (Some(origin), None) => self.0.iter().any(|allowed| allowed.as_bytes() == origin),
            (Some(_), Some(_)) => false,
        };
        if allowed {
            Ok(())
        } else {
            Err(ApiError::new(ErrorCode::Forbidden, "this origin is not allowed"))
        }
    }
}
