//! One connection that speaks HTTP/2.

use std::{convert::Infallible, future::Future, time::Duration};

use axum::body::Body;
use engine::tasks::Tasks;
use hyper::{body::Incoming, rt::Executor, server::conn::http2, service::HttpService};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    select,
    sync::watch,
    time::timeout,
};

use super::Phase;

/// Calls at once on one connection.
const MAX_STREAMS: u32 = 256;
/// All headers of a request together, names and values.
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// What a peer may send before we have read it, on one stream and on all.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// What waits to be sent on one stream.
const MAX_SEND_BYTES: usize = 256 << 10;
/// How long a connection may be without a call, after its first.
const IDLE: Duration = Duration::from_mins(5);
/// How often a silent peer is asked whether it is there, and how long it has to say so.
const ASK_EVERY: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Talks until the peer goes or has nothing to say, or the server ends. The first call has to be
/// there within a time, as the head of a request has in HTTP/1.
pub(crate) async fn talk<S, F>(
    stream: S,
    service: F,
    first_within: Duration,
    tasks: Tasks,
    mut phase: watch::Receiver<Phase>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: HttpService<Incoming, ResBody = Body, Error = Infallible>,
    F::Future: Send + 'static,
{
    let open = watch::Sender::new(0);
    let idle = idle(open.subscribe(), first_within);
    let connection = http2::Builder::new(Streams { tasks, open: open.clone() })
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAX_SEND_BYTES)
        .keep_alive_interval(ASK_EVERY)
        .keep_alive_timeout(ANSWER_WITHIN)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection, idle);
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
