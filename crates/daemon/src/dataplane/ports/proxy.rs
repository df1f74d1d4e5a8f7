//! Carries one request to a server in a sandbox, and its answer back.
//!
//! Both sides speak to us, never to each other: what a request or answer is, where it ends and what
//! belongs to it is decided by our own parser twice, once on each side, and written anew. One
//! connection into the sandbox carries one request.

mod bound;
pub(crate) mod upgrade;

use std::{fmt, io, time::Duration};

use axum::{
    body::Body,
    extract::Request,
    http::{
        HeaderMap, HeaderValue, Method, StatusCode, Uri, Version,
        header::{CONTENT_LENGTH, SEC_WEBSOCKET_KEY},
    },
    response::Response,
};
use engine::tasks::Tasks;
use hyper::{
    body::{Body as _, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    select,
    time::sleep,
};

use super::{
    Timing,
    body::{Cut, Through},
    headers::{Asker, Ground, inwards, outwards},
    location::Places,
};
use bound::Bound;

/// The head of an answer, and so the most that is buffered of a server that writes without end.
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 100;
/// What a server may say before its answer has begun: heads of its own that announce the answer.
const BEFORE_THE_ANSWER: usize = 4 * MAX_HEAD_BYTES;

/// Why there is no answer from the sandbox.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxyError {
    #[error("the method is not carried into sandboxes")]
    Method,
    #[error("the server in the sandbox did not answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("the server in the sandbox closed the connection or did not answer in HTTP")]
    NoHttp(#[source] hyper::Error),
    #[error("the server in the sandbox changed the protocol without being asked to")]
    NotAsked,
    #[error("the server in the sandbox did not take the WebSocket as it should")]
    BadHandshake,
    #[error("the right to it has ended, or the server is shutting down")]
    Cut,
}

/// A request on its way, and how it may be carried.
pub(crate) struct Passage {
    pub(crate) asker: Asker,
    pub(crate) places: Places,
    pub(crate) ground: Ground,
    /// Path and query, as they are inside.
    pub(crate) target: Uri,
    pub(crate) timing: Timing,
    pub(crate) tasks: Tasks,
    /// Makes what ends when everything is to be cut off.
    pub(crate) cut: Box<dyn Fn() -> Cut + Send + Sync>,
}

impl fmt::Debug for Passage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passage").field("ground", &self.ground).finish_non_exhaustive()
    }
}

impl Passage {
    /// Carries the request over this connection. What the client holds of the server, such as its
    /// place among the connections, goes along with an upgraded connection as `held`.
    pub(crate) async fn carry<S, H>(
        &self,
        mut request: Request,
        inside: S,
        held: H,
    ) -> Result<Response, ProxyError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        H: Send + 'static,
    {
        // The one asks a server to repeat what it was sent, the other is about other hosts.
        if matches!(*request.method(), Method::TRACE | Method::CONNECT) {
            return Err(ProxyError::Method);
        }
        let upgrade = upgrade::wanted(&request).then(|| {
            let key = request.headers().get(SEC_WEBSOCKET_KEY).cloned();
            (hyper::upgrade::on(&mut request), key)
        });
        let is_head = request.method() == Method::HEAD;
        let request = self.outgoing(request, upgrade.is_some());
        let (inside, bound) = Bound::new(inside, BEFORE_THE_ANSWER);
        let answer = self.send(request, inside).await?;
        // Whatever comes now is the answer itself.
        bound.lift();
        match (answer.status(), upgrade) {
            (StatusCode::SWITCHING_PROTOCOLS, Some((client, key))) => {
                self.join(answer, client, key, held)
            }
            (StatusCode::SWITCHING_PROTOCOLS, None) => Err(ProxyError::NotAsked),
            (_, _) => Ok(self.incoming(answer, is_head)),
        }
    }

    /// Sends a request; returns the head of the answer.
    async fn send<S>(
        &self,
        request: hyper::Request<Through<Body>>,
        inside: S,
    ) -> Result<hyper::Response<Incoming>, ProxyError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(inside))
            .await
            .map_err(ProxyError::NoHttp)?;
        self.tasks.start("request into a sandbox", async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection into a sandbox broke");
            }
        });
        let progress = request.body().progress();
        let mut cut = (self.cut)();
        let answer = sender.send_request(request);
        tokio::pin!(answer);
        let mut seen = progress.count();
        loop {
            select! {
                biased;
                answer = &mut answer => return answer.map_err(ProxyError::NoHttp),
                () = &mut cut => return Err(ProxyError::Cut),
                () = sleep(self.timing.answer_within) => {
                    // A request that takes long to send is not an answer that takes long to come.
                    if progress.count() == seen {
                        return Err(ProxyError::TimedOut(self.timing.answer_within));
                    }
                    seen = progress.count();
                }
            }
        }
    }

    /// Writes the request anew. Its length is what its body has, and is never said twice.
    fn outgoing(&self, request: Request, is_upgrade: bool) -> hyper::Request<Through<Body>> {
        let (head, body) = request.into_parts();
        let mut headers = inwards(&head.headers, &self.asker, &self.places, self.ground);
        if is_upgrade {
            upgrade::ask(&mut headers);
        }
        let length = body.size_hint().exact();
        if let Some(length) = length
            && (length > 0 || head.headers.contains_key(CONTENT_LENGTH))
        {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let body = Through::new(body, self.timing.silence, (self.cut)());
        let mut outgoing = hyper::Request::new(body);
        *outgoing.method_mut() = head.method;
        *outgoing.uri_mut() = self.target.clone();
        *outgoing.version_mut() = Version::HTTP_11;
        *outgoing.headers_mut() = headers;
        outgoing
    }

    /// Writes the answer anew.
    fn incoming(&self, answer: hyper::Response<Incoming>, is_head: bool) -> Response {
        let (head, body) = answer.into_parts();
        let mut headers = outwards(&head.headers, &self.places, self.ground);
        let has_no_body = is_head || head.status == StatusCode::NOT_MODIFIED;
        let length =
            if has_no_body { said_length(&head.headers) } else { body.size_hint().exact() };
        if let Some(length) = length {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let body = Through::new(body, self.timing.silence, (self.cut)());
        let mut response = Response::new(Body::new(body));
        *response.status_mut() = head.status;
        *response.headers_mut() = headers;
        response
    }
}

/// Returns the length of which an answer without a body speaks, if it speaks of one.
fn said_length(headers: &HeaderMap) -> Option<u64> {
    let mut said = headers.get_all(CONTENT_LENGTH).iter();
    match (said.next(), said.next()) {
        (Some(length), None) => length.to_str().ok()?.parse().ok(),
        (_, _) => None,
    }
}

/// An end of a connection that both sides know of is nobody's failure.
fn is_ordinary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::NotConnected
    )
}

#[cfg(test)]
mod tests;
