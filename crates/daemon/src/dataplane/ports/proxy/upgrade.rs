//! A `WebSocket` through to a server in a sandbox. After the handshake bytes go both ways as they are.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use axum::{
    body::Body,
    extract::Request,
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version,
        header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, UPGRADE},
    },
    response::Response,
};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional},
    select,
    time::sleep,
};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::{Passage, ProxyError, is_ordinary};
use crate::dataplane::ports::headers::outwards;

/// Tells whether a request wants a WebSocket. Any other protocol it wants is not offered.
pub(super) fn wanted(request: &Request) -> bool {
    request.version() == Version::HTTP_11
        && request.method() == Method::GET
        && wants_websocket(request.headers())
}

/// Tells whether these are the headers of a request for a WebSocket.
pub(crate) fn wants_websocket(headers: &HeaderMap) -> bool {
    has_token(headers, &CONNECTION, "upgrade") && has_token(headers, &UPGRADE, "websocket")
}

/// Asks a server for a WebSocket.
pub(super) fn ask(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|part| part.trim().eq_ignore_ascii_case(token))
}

impl Passage {
    /// Joins a client and a server that has taken its WebSocket.
    pub(super) fn join<H: Send + 'static>(
        &self,
        answer: hyper::Response<Incoming>,
        client: OnUpgrade,
        key: Option<HeaderValue>,
        held: H,
    ) -> Result<Response, ProxyError> {
        // Whoever does not know how to answer has not understood what was asked of him, and what
        // he says after it would be taken for frames.
        let expected = key.map(|key| derive_accept_key(key.as_bytes()));
        let accepted = answer.headers().get(SEC_WEBSOCKET_ACCEPT).and_then(|it| it.to_str().ok());
        if expected.is_none()
            || accepted != expected.as_deref()
            || !has_token(answer.headers(), &UPGRADE, "websocket")
        {
            return Err(ProxyError::BadHandshake);
        }
        let mut headers = outwards(answer.headers(), &self.places, self.ground);
        ask(&mut headers);
        let (cut, quiet) = ((self.cut)(), self.timing.quiet);
        let inside = hyper::upgrade::on(answer);
        self.tasks.start("websocket into a sandbox", async move {
            let _held = held;
            let Ok((client, inside)) = tokio::try_join!(client, inside) else {
                tracing::debug!("an upgrade was not finished");
                return;
            };
            let moved = Arc::new(AtomicU64::new(0));
            let mut client = Moving { inner: TokioIo::new(client), moved: Arc::clone(&moved) };
            let mut inside = TokioIo::new(inside);
            let unmoved = async {
                let mut seen = 0;
                loop {
                    sleep(quiet).await;
                    if moved.load(Ordering::Relaxed) == seen {
                        return;
                    }
                    seen = moved.load(Ordering::Relaxed);
                }
            };
            select! {
                biased;
                () = cut => tracing::debug!("a websocket into a sandbox was cut off"),
                () = unmoved => tracing::debug!("a websocket into a sandbox was quiet for too long"),
                done = copy_bidirectional(&mut client, &mut inside) => match done {
                    Err(error) if !is_ordinary(&error) => {
                        tracing::debug!(%error, "a websocket into a sandbox broke");
                    }
                    Ok(_) | Err(_) => {}
                },
            }
        });
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

/// Counts what goes through a stream in either direction.
struct Moving<S> {
    inner: S,
    moved: Arc<AtomicU64>,
}

impl<S> Moving<S> {
    fn count(&self, bytes: usize) {
        self.moved.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Moving<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        self.count(buffer.filled().len() - before);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Moving<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = &polled {
            self.count(*count);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
