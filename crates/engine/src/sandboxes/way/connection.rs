//! A connection that a caller has to a port inside a sandbox.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rustix::net::Shutdown;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
};

use super::Visit;

/// Bytes to and from whoever listens inside. The sandbox is in use until it is dropped.
///
/// Whoever is inside ends with the sandbox, and so does what he says. When it is cut off before
/// that, reading and writing fail: an end without a word would look as if everything had been said.
pub struct Connection {
    stream: Arc<TcpStream>,
    visit: Visit,
    _room: OwnedSemaphorePermit,
}

impl Connection {
    pub(super) fn new(stream: Arc<TcpStream>, visit: Visit, room: OwnedSemaphorePermit) -> Self {
        Self { stream, visit, _room: room }
    }

    fn unless_cut<T>(&self, done: io::Result<T>) -> io::Result<T> {
        if self.visit.is_cut() { Err(io::ErrorKind::ConnectionAborted.into()) } else { done }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Ok(0) if buffer.remaining() > 0 => return Poll::Ready(self.unless_cut(Ok(()))),
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(self.unless_cut(Err(error))),
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match self.stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(self.unless_cut(Err(error))),
                Ok(count) => return Poll::Ready(Ok(count)),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match rustix::net::shutdown(&*self.stream, Shutdown::Write) {
            // Whoever was inside has gone: that is no failure of saying that this is all.
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}
