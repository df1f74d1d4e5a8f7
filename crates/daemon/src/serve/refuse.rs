//! Refuses connections beyond a limit, in the protocol that they speak.

use std::{convert::Infallible, future::poll_fn, sync::Arc, time::Duration};

use api::errors::ErrorCode;
use axum::{body::Body, response::IntoResponse as _};
use engine::tasks::Tasks;
use hyper::{Request, Response, body::Incoming, service::service_fn};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::timeout,
};

use super::{
    Phase, http2,
    linger::Linger,
    sniff::{Version, sniff},
};
use crate::{
    grpc,
    http::{problem::ApiError, request},
    tls::Tls,
};

/// Bounds of what is still read of a refused connection, and of how long each step takes.
const MAX_BYTES: usize = 64 << 10;
const STEP: Duration = Duration::from_secs(1);
/// The longest that refusing one connection takes.
const WHOLE: Duration = Duration::from_secs(3);
/// Connections that are being refused at once. Further ones are closed without an answer.
const AT_ONCE: usize = 64;

const MESSAGE: &str = "there is no room for another connection; try again soon";

/// Refuses connections. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Refuser {
    permits: Arc<Semaphore>,
    tasks: Tasks,
    phase: watch::Receiver<Phase>,
}

impl Refuser {
    pub(crate) fn new(tasks: Tasks, phase: watch::Receiver<Phase>) -> Self {
        Self { permits: Arc::new(Semaphore::new(AT_ONCE)), tasks, phase }
    }

    /// Answers a connection with the reason, in its own protocol, and closes it.
    pub(crate) fn refuse<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if let Some(permit) = self.permit() {
            let refused = refuse(stream, self.tasks.clone(), self.phase.clone());
            self.start(permit, refused);
        }
    }

    /// The same for one that speaks TLS.
    pub(super) fn refuse_safely(&self, tls: Tls, stream: TcpStream) {
        let Some(permit) = self.permit() else { return };
        let (tasks, phase) = (self.tasks.clone(), self.phase.clone());
        self.start(permit, async move {
            if let Ok(Ok(stream)) = timeout(STEP, tls.accept(stream)).await {
                refuse(stream, tasks, phase).await;
            }
        });
    }

    fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    fn start(
        &self,
        permit: OwnedSemaphorePermit,
        refused: impl Future<Output = ()> + Send + 'static,
    ) {
        self.tasks.start("refused connection", async move {
            let _ = timeout(WHOLE, refused).await;
            drop(permit);
        });
    }
}

async fn refuse<S>(stream: S, tasks: Tasks, phase: watch::Receiver<Phase>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match sniff(stream, STEP).await {
        None => {}
        Some((Version::One, stream)) => refuse_http1(stream).await,
        Some((Version::Two, stream)) => {
            let service =
                service_fn(async |request| Ok::<_, Infallible>(answer(&request, MESSAGE)));
            http2::talk(stream, service, http2::Limits::REFUSED, tasks, phase).await;
        }
    }
}

async fn refuse_http1<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    if let Ok(Ok(())) = timeout(STEP, stream.write_all(http1_answer().as_bytes())).await {
        let mut linger = Linger::new(MAX_BYTES, STEP);
        let _ = poll_fn(|context| linger.poll_close(&mut stream, context)).await;
    }
}

/// Refuses a connection without waiting for its client: the accept loop has no descriptor for the next one meanwhile.
/// What has arrived is discarded, because closing with unread bytes would reset the connection before the answer is
/// read.
pub(super) fn refuse_at_once(stream: &TcpStream) {
    // A new connection has room for so little; one that is gone needs no answer.
    let _ = stream.try_write(http1_answer().as_bytes());
    let mut arrived = [0; 4096];
    for _ in 0..MAX_BYTES / arrived.len() {
        if !stream.try_read(&mut arrived).is_ok_and(|read| read > 0) {
            break;
        }
    }
}

/// Returns the answer, written by hand: nothing of the request is looked at.
fn http1_answer() -> String {
    let body = ApiError::new(ErrorCode::Unavailable, MESSAGE).body(&request::id_or_new());
    format!(
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Refuses one request because the server has too much to do: with a status of gRPC, or of HTTP.
pub(super) fn answer(request: &Request<Incoming>, message: &'static str) -> Response<Body> {
    if grpc::is_call(request) {
        return grpc::overloaded(message);
    }
    ApiError::new(ErrorCode::Unavailable, message).into_response()
}
