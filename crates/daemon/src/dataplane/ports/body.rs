//! Bodies on their way through: data alone, in time, and no longer than whoever asked may have it.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// Ends when what goes through is to be cut off.
pub(crate) type Cut = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Why a body was not carried to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("nothing came for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the right to it has ended, or the server is shutting down")]
    Cut,
    #[error("it broke off")]
    Source(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// How many pieces have gone through, for those who wait for something else.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<AtomicU64>);

impl Progress {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A body that goes through without its trailers.
pub(super) struct Through<B> {
    body: B,
    silence: Duration,
    /// Runs while the next piece is waited for, and at no other time.
    patience: Option<Pin<Box<Sleep>>>,
    cut: Cut,
    progress: Progress,
}

impl<B> Through<B> {
    pub(super) fn new(body: B, silence: Duration, cut: Cut) -> Self {
        Self { body, silence, patience: None, cut, progress: Progress::default() }
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }
}

impl<B> Body for Through<B>
where
    B: Body + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = B::Data;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Broken>>> {
        let this = &mut *self;
        if this.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(Broken::Cut)));
        }
        loop {
            match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) if frame.is_data() => {
                    this.patience = None;
                    this.progress.0.fetch_add(1, Ordering::Relaxed);
                    return Poll::Ready(Some(Ok(frame)));
                }
                // What is said after the end is for nobody who is not asked for it.
                Poll::Ready(Some(Ok(_trailers))) => {}
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Some(Err(Broken::Source(error.into()))));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    let silence = this.silence;
                    let patience = this.patience.get_or_insert_with(|| Box::pin(sleep(silence)));
                    return match patience.as_mut().poll(context) {
                        Poll::Ready(()) => Poll::Ready(Some(Err(Broken::Silent(silence)))),
                        Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns a cut at this time and no other.
#[cfg(test)]
pub(super) fn cut_at(time: Option<tokio::time::Instant>) -> Cut {
    Box::pin(async move {
        match time {
            Some(time) => tokio::time::sleep_until(time).await,
            None => std::future::pending().await,
        }
    })
}
