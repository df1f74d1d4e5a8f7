//! `ANY /ports/{port}/…`: HTTP and `WebSocket` to a server in a sandbox.

pub(crate) mod body;
pub(crate) mod cookies;
pub(crate) mod headers;
pub(crate) mod location;
pub(crate) mod proxy;

use std::{num::NonZeroU16, time::Duration};

use api::errors::ErrorCode;
use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, Method as HttpMethod, Uri,
        header::{HOST, ORIGIN},
    },
    response::Response,
};
use engine::sandboxes::ConnectError;
use model::{capability::Capability, sandbox::WhenStopped};
use tokio::select;

use super::{
    access::Access,
    routes::{Body, Method, Needs, Route, Routes, Spelling},
};
use crate::{
    http::{App, problem::ApiError},
    openapi::{Doc, Tag, doc::SANDBOX},
    serve::{Peer, Phase, Place},
};
use body::Cut;
use headers::{Asker, Ground, Page};
use location::Places;
use proxy::{Passage, ProxyError, upgrade::wants_websocket};

/// How long a server in a sandbox, and a client of it, may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Until the answer begins, while nothing of the request moves any more.
    pub answer_within: Duration,
    /// Between two pieces of a body.
    pub silence: Duration,
    /// Without a byte in either direction on an upgraded connection.
    pub quiet: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            answer_within: Duration::from_mins(2),
            silence: Duration::from_mins(5),
            quiet: Duration::from_mins(15),
        }
    }
}

pub(super) fn routes() -> Routes {
    let route = |path| Route {
        spelling: Spelling::Service,
        method: Method::Any,
        path,
        needs: Needs::Capability(Capability::Ports),
        body: Body::Streamed,
    };
    Routes::default()
        .with(route("/ports/{port}"), document(), forward)
        .with(route("/ports/{port}/"), document(), forward)
        .with(route("/ports/{port}/{*rest}"), document(), forward)
}

fn document() -> Doc {
    Doc::new(Tag::Ports, "Carries a request to the server at this port, and its answer back")
        // Generators know the second of them.
        .takes_bytes(&["*/*", "application/octet-stream"])
        .answers_anything("Whatever the server in the sandbox answers.")
        .refuses(&SANDBOX)
        .refuses(&[ErrorCode::InvalidRequest, ErrorCode::Forbidden, ErrorCode::MethodNotAllowed])
        .refuses(&[ErrorCode::PortUnreachable, ErrorCode::PortTimeout])
        .refuses(&[ErrorCode::TooManyConnections])
}

/// Carries a request to the server at this port, and its answer back.
async fn forward(
    State(app): State<App>,
    access: Access,
    request: Request,
) -> Result<Response, ApiError> {
    let (port, prefix, path) = split(request.uri().path()).ok_or_else(no_port)?;
    let places = Places::new(prefix.to_owned(), port.get(), path);
    let target = target(path, request.uri().query())?;
    let page = page(&app, request.headers())?;
    let asker = asker(&app, &request, page);
    if matches!(*request.method(), HttpMethod::TRACE | HttpMethod::CONNECT) {
        return Err(ProxyError::Method.into());
    }
    let connection = access
        .sandboxes()
        .connect(access.sandbox(), port, WhenStopped::Resume)
        .await
        .map_err(refuse)?;
    let held = request.extensions().get::<Place>().cloned();
    let passage = Passage {
        asker,
        places,
        ground: Ground::Api,
        target,
        timing: app.settings.ports,
        tasks: app.tasks.clone(),
        cut: Box::new(move || cut(&app, &access)),
    };
    passage.carry(request, connection, held).await.map_err(ApiError::from)
}

/// Takes a path of this route apart, as it was sent: the port, what stands before the path inside,
/// and that path.
pub(super) fn split(path: &str) -> Option<(NonZeroU16, &str, &str)> {
    let (_, rest) = path.strip_prefix("/dp/")?.split_once('/')?;
    let rest = rest.strip_prefix("ports/")?;
    let (port, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let prefix = path.get(..path.len() - rest.len())?;
    Some((read_port(port)?, prefix, if rest.is_empty() { "/" } else { rest }))
}

/// Reads a port: digits alone, and not zero.
pub(crate) fn read_port(text: &str) -> Option<NonZeroU16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    if is_plain { text.parse().ok() } else { None }
}

pub(crate) fn no_port() -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, "a port is a number from 1 to 65535")
}

/// Writes path and query as they were sent.
pub(crate) fn target(path: &str, query: Option<&str>) -> Result<Uri, ApiError> {
    let whole = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    // What begins with a slash is a path, whatever follows it.
    whole.parse().map_err(|_unreadable| {
        ApiError::new(ErrorCode::InvalidRequest, "the path cannot be written anew")
    })
}

/// Finds out which page asks. One that may not use the API opens no WebSocket either.
fn page(app: &App, headers: &HeaderMap) -> Result<Page, ApiError> {
    if !headers.contains_key(ORIGIN) {
        return Ok(Page::Other);
    }
    match app.origins.check(headers) {
        Ok(()) => Ok(Page::Own),
        Err(refused) if wants_websocket(headers) => Err(refused),
        Err(_) => Ok(Page::Other),
    }
}

fn asker(app: &App, request: &Request, page: Page) -> Asker {
    let public = app.settings.public_url.as_deref();
    let is_secure = public.is_some_and(|url| url.starts_with("https://"));
    let authority = public.and_then(|url| url.split_once("://")?.1.split('/').next());
    let host = match authority {
        Some(authority) => HeaderValue::from_str(authority).ok(),
        None => request.headers().get(HOST).cloned(),
    };
    let peer = request.extensions().get::<Peer>().map(|peer| peer.address);
    Asker { peer, scheme: if is_secure { "https" } else { "http" }, host, page }
}

/// Returns what ends with the right to the sandbox, or with the server.
fn cut(app: &App, access: &Access) -> Cut {
    let (access, mut phase) = (access.clone(), app.phase.clone());
    Box::pin(async move {
        select! {
            _ = access.until_ended() => {}
            _ = phase.wait_for(|phase| *phase == Phase::Closing) => {}
        }
    })
}

pub(crate) fn refuse(error: ConnectError) -> ApiError {
    let code = match error {
        ConnectError::Sandbox(error) => return error.into(),
        ConnectError::NobodyListens(_) => ErrorCode::PortUnreachable,
        ConnectError::TimedOut(_) => ErrorCode::PortTimeout,
        ConnectError::TooMany => ErrorCode::TooManyConnections,
        ConnectError::Broken(ref cause) => {
            tracing::warn!(%cause, "a connection into a sandbox could not be made");
            ErrorCode::PortUnreachable
        }
    };
    let help = match code {
        ErrorCode::PortUnreachable => "; start the server in it first",
        ErrorCode::TooManyConnections => "; close some of them first",
        _ => "",
    };
    ApiError::new(code, format!("{error}{help}"))
}

impl From<ProxyError> for ApiError {
    fn from(error: ProxyError) -> Self {
        tracing::debug!(%error, "a request into a sandbox has no answer");
        let code = match &error {
            ProxyError::Method => ErrorCode::MethodNotAllowed,
            ProxyError::TimedOut(_) => ErrorCode::PortTimeout,
            ProxyError::NoHttp(_) | ProxyError::NotAsked | ProxyError::BadHandshake => {
                ErrorCode::PortUnreachable
            }
            ProxyError::Cut => ErrorCode::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_apart_as_it_was_sent() {
        let rows = [
            ("/dp/sb_1/ports/80", Some((80, "/dp/sb_1/ports/80", "/"))),
            ("/dp/sb_1/ports/80/", Some((80, "/dp/sb_1/ports/80", "/"))),
            ("/dp/sb_1/ports/80/a%2Fb/../c", Some((80, "/dp/sb_1/ports/80", "/a%2Fb/../c"))),
            ("/dp/sb_1/ports/65535//x", Some((65535, "/dp/sb_1/ports/65535", "//x"))),
            ("/dp/sb_1/ports/0/", None),
            ("/dp/sb_1/ports/080/", None),
            ("/dp/sb_1/ports/65536/", None),
            ("/dp/sb_1/ports/+80/", None),
            ("/dp/sb_1/ports/%38/", None),
            ("/dp/sb_1/ports/localhost:80/", None),
            ("/dp/sb_1/ports/", None),
        ];
        for (path, expected) in rows {
            let found = split(path).map(|(port, prefix, rest)| (port.get(), prefix, rest));
            assert_eq!(found, expected, "{path}");
        }
    }
}
