//! One connection that speaks HTTP/2.

use std::{convert::Infallible, future::Future, time::Duration};

use axum::body::Body;
use engine::tasks::Tasks;
use hyper::{
    Request, Response,
    body::Incoming,
    rt::Executor,
    server::conn::http2,
    service::{Service, service_fn},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    select,
    sync::watch,
    time::timeout,
};

use super::{Phase, refuse};

/// Calls beyond the limit that a client may begin: they are refused with a status. Without them it would wait for a free
/// stream, and its shortest call with it.
const REFUSED_STREAMS: usize = 64;
/// All headers of a request together, names and values.
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// What a peer may send before we have read it, on one stream and on all.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// What waits to be sent on one stream.
const MAX_SEND_BYTES: usize = 64 << 10;
/// How long a connection may be without a call, after its first.
const IDLE: Duration = Duration::from_mins(5);
/// How often a silent peer is pinged, and how long it has to answer.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer without an open call has to close its connection, after it was told to. The library alone would wait
/// for its answer to a ping.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Limits of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The first call has to be there within this time.
    pub(crate) first_within: Duration,
    /// Calls and streams that are open at once.
    pub(crate) max_streams: usize,
}

impl Limits {
    /// Of a connection that is only told that there is no room for it.
    pub(super) const REFUSED: Self =
        Self { first_within: Duration::from_secs(1), max_streams: REFUSED_STREAMS };
}

const TOO_MANY: &str =
    "too many calls are open on this connection; end some, or use another connection";

/// Talks until the peer goes or has nothing to say, or the server ends. The first call has to be
/// there within a time, as the head of a request has in HTTP/1.
pub(crate) async fn talk<S, F>(
    stream: S,
    service: F,
    limits: Limits,
    tasks: Tasks,
    mut phase: watch::Receiver<Phase>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
    F::Future: Send + 'static,
{
    let open = watch::Sender::new(0);
    let idle = idle(open.subscribe(), limits.first_within);
    let offered = limits.max_streams.saturating_add(REFUSED_STREAMS);
    let others = open.clone();
    let limited = service_fn(move |request: Request<Incoming>| {
        let is_over = *others.borrow() >= limits.max_streams;
        let answer = if is_over {
            Err(refuse::answer(&request, TOO_MANY))
        } else {
            Ok(service.call(request))
        };
        async move {
            match answer {
                Ok(answer) => answer.await,
                Err(refused) => Ok(refused),
            }
        }
    });
    let unused = unused(open.subscribe());
    let connection = http2::Builder::new(Streams { tasks, open: open.clone() })
        .timer(TokioTimer::new())
        .max_concurrent_streams(u32::try_from(offered).unwrap_or(u32::MAX))
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAX_SEND_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .serve_connection(TokioIo::new(stream), limited);
    tokio::pin!(connection, idle, unused);
    let mut is_leaving = false;
    loop {
        let waits_for = if is_leaving { Phase::Closing } else { Phase::Draining };
        select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection broke");
                }
                return;
            }
            () = &mut idle, if !is_leaving => {
                is_leaving = true;
                connection.as_mut().graceful_shutdown();
            }
            () = &mut unused, if is_leaving => return,
            _ = phase.wait_for(|phase| *phase >= waits_for) => {
                if is_leaving {
                    return;
                }
                is_leaving = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Returns once no call has been open for too long.
async fn idle(mut open: watch::Receiver<usize>, first_within: Duration) {
    let mut within = first_within;
    loop {
        if timeout(within, open.wait_for(|count| *count > 0)).await.is_err() {
            return;
        }
        within = IDLE;
        // Whoever counts goes with the connection, and then nobody waits for this.
        if open.wait_for(|count| *count == 0).await.is_err() {
            return;
        }
    }
}

/// Returns once no call has been open for the time that a peer has to close its connection.
async fn unused(mut open: watch::Receiver<usize>) {
    loop {
        if open.wait_for(|count| *count == 0).await.is_err() {
            return;
        }
        if timeout(CLOSE_WITHIN, open.wait_for(|count| *count > 0)).await.is_err() {
            return;
        }
    }
}

/// Runs each call of a connection as a task of its own, and counts those that are open.
#[derive(Clone, Debug)]
struct Streams {
    tasks: Tasks,
    open: watch::Sender<usize>,
}

/// Counts one open call.
struct Open(watch::Sender<usize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, call: F) {
        self.open.send_modify(|count| *count += 1);
        let open = Open(self.open.clone());
        self.tasks.start("http stream", async move {
            call.await;
            drop(open);
        });
    }
}
