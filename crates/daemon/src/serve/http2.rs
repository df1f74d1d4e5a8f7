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
};

use super::Phase;

/// Calls at once on one connection.
const MAX_STREAMS: u32 = 100;
/// All headers of a request together, names and values.
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// What a peer may send before we have read it, on one stream and on all.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// What waits to be sent on one stream.
const MAX_SEND_BYTES: usize = 256 << 10;
/// How often a silent peer is asked whether it is there, and how long it has to say so.
const ASK_EVERY: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// Talks until the peer goes or the server ends.
pub(crate) async fn talk<S, F>(
    stream: S,
    service: F,
    tasks: Tasks,
    mut phase: watch::Receiver<Phase>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: HttpService<Incoming, ResBody = Body, Error = Infallible>,
    F::Future: Send + 'static,
{
    let connection = http2::Builder::new(Streams(tasks))
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAX_SEND_BYTES)
        .keep_alive_interval(ASK_EVERY)
        .keep_alive_timeout(ANSWER_WITHIN)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
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

/// Runs each call of a connection as a task of its own.
#[derive(Clone, Debug)]
struct Streams(Tasks);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, call: F) {
        self.0.start("http stream", call);
    }
}
