//! A stream of which only so much is read until somebody says that it is worth it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A server may announce its answer as often as it likes before it gives one. Up to this bound.
#[derive(Debug)]
pub(super) struct Bound<S> {
    inner: S,
    left: usize,
    lifted: Arc<AtomicBool>,
}

/// Takes the bound away.
#[derive(Debug)]
pub(super) struct Lift(Arc<AtomicBool>);

impl Lift {
    pub(super) fn lift(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<S> Bound<S> {
    pub(super) fn new(inner: S, bytes: usize) -> (Self, Lift) {
        let lifted = Arc::new(AtomicBool::new(false));
        (Self { inner, left: bytes, lifted: Arc::clone(&lifted) }, Lift(lifted))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 && !self.lifted.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::Error::other("too much is said before the answer")));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        self.left = self.left.saturating_sub(buffer.filled().len() - before);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bound<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
