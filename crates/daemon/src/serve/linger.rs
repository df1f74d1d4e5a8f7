//! Closes a connection without losing the answer that was sent last.
//!
//! If the server closes a socket that holds bytes it has not read, the kernel resets the connection. The client then fails to
//! write the rest of its request, or loses the answer that it has not read yet. Therefore the server first says that it sends
//! no more, and then discards what the client still sends, up to a number of bytes and a time.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// The most that is discarded of a request that was answered before it was read.
pub(super) const MAX_BYTES: usize = 64 << 20;
/// The longest time that a client has to finish its request or to close.
pub(super) const MAX_TIME: Duration = Duration::from_secs(5);

const BUFFER: usize = 8 << 10;

/// The state of a connection that is being closed.
#[derive(Debug)]
pub(super) struct Linger {
    bytes_left: usize,
    deadline: Pin<Box<Sleep>>,
    is_shut_down: bool,
}

impl Linger {
    pub(super) fn new(max_bytes: usize, max_time: Duration) -> Self {
        let deadline = Box::pin(sleep(max_time));
        Self { bytes_left: max_bytes, deadline, is_shut_down: false }
    }

    /// Ends the sending side and discards what arrives, until the peer closes or a bound is reached.
    pub(super) fn poll_close<S>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if self.deadline.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if !self.is_shut_down {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
            self.is_shut_down = true;
        }
        let mut discarded = [0; BUFFER];
        while self.bytes_left > 0 {
            let mut discarded = ReadBuf::new(&mut discarded);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut discarded))?;
            if discarded.filled().is_empty() {
                break;
            }
            self.bytes_left = self.bytes_left.saturating_sub(discarded.filled().len());
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Instant};

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
        join,
    };

    use super::*;

    const MAX: usize = 100_000;

    async fn close(linger: &mut Linger, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        poll_fn(|context| linger.poll_close(&mut stream, context)).await.unwrap();
    }

    #[tokio::test]
    async fn a_request_that_ends_within_the_bounds_is_discarded_to_its_end() {
        let (near, mut far) = duplex(512);
        let mut linger = Linger::new(MAX, MAX_TIME);
        let client = async {
            far.write_all(&vec![7; MAX - 1]).await.unwrap();
            // The server has said that it sends no more.
            assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
            drop(far);
        };
        join!(close(&mut linger, near), client);
        assert_eq!(linger.bytes_left, 1);
    }

    #[tokio::test]
    async fn a_client_that_never_stops_sending_is_cut_at_the_bound() {
        let (near, mut far) = duplex(512);
        let mut linger = Linger::new(MAX, MAX_TIME);
        let client = async { while far.write_all(&[7; 1000]).await.is_ok() {} };
        join!(close(&mut linger, near), client);
        assert_eq!(linger.bytes_left, 0);
    }

    #[tokio::test]
    async fn a_client_that_keeps_silent_is_cut_when_the_time_is_over() {
        let (near, far) = duplex(512);
        let began = Instant::now();
        let time = Duration::from_millis(30);
        close(&mut Linger::new(MAX, time), near).await;
        assert!(began.elapsed() >= time);
        drop(far);
    }
}
