//! A WebSocket of which is known how much waits to be written, and whether the peer takes it.

use std::{
    future::poll_fn,
    io, mem,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use api::fathom::MAX_MESSAGE_BYTES;
use bytes::Bytes;
use futures_util::{Sink as _, SinkExt as _, Stream as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message, Utf8Bytes,
        protocol::{CloseFrame, Role, WebSocketConfig},
    },
};

/// Above this no more events are taken from executions, so that their producers wait.
const HIGH_WATER: u64 = 256 << 10;
/// Above this nothing more is read from the peer either: it does not read our answers.
const HARD_LIMIT: u64 = 1 << 20;
/// Frames that are collected before they are written, so that one write carries many.
const BATCH: usize = 64;
/// How long a peer has to take our last frames, and then to hang up.
const FAREWELL: Duration = Duration::from_secs(2);
/// What is read away at most from a peer that goes on talking after we have closed.
const LAST_BYTES: u64 = 16 << 20;

/// What is left of a connection after the upgrade.
pub(crate) type Stream = TokioIo<Upgraded>;

pub(crate) struct Socket<S = Stream> {
    stream: WebSocketStream<Counted<S>>,
    /// Bytes that were ever queued to be written.
    queued: u64,
    /// Whether something was queued since all of it was last written. The bytes do not say so: they are
    /// an estimate, which may happen to be right.
    is_behind: bool,
    /// Frames since the last attempt to write.
    batch: usize,
    /// Bytes read when the last message was whole.
    read_mark: u64,
    /// Bytes of one message on the wire, fragments' heads included.
    max_wire: u64,
}

/// What happened on the socket.
#[derive(Debug)]
pub(crate) enum Step {
    Message(Message),
    /// Everything queued was written.
    Flushed,
    Gone(Gone),
}

/// Why the socket can be used no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// The peer hung up, or the network did.
    Peer,
    Framing,
    NotUtf8,
    TooBig,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// Takes over a socket after the upgrade.
    pub(super) async fn new(stream: S) -> Self {
        Self::with_limit(stream, MAX_MESSAGE_BYTES).await
    }

    /// Takes over a socket whose messages are no larger than this.
    pub(crate) async fn with_limit(stream: S, max_message: usize) -> Self {
        let config = WebSocketConfig::default()
            .max_message_size(Some(max_message))
            .max_frame_size(Some(max_message))
            .read_buffer_size(16 << 10);
        let stream = Counted { inner: stream, read: 0, written: 0, most: u64::MAX };
        let stream = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
        let max_wire = 2 * u64::try_from(max_message).unwrap_or(u64::MAX / 2);
        Self { stream, queued: 0, is_behind: false, batch: 0, read_mark: 0, max_wire }
    }

    /// Takes no more than this from the peer from its first byte on, until [`Self::trust`].
    pub(crate) fn distrust(&mut self, most: u64) {
        self.stream.get_mut().most = most;
    }

    /// Takes messages as large as they may be.
    pub(crate) fn trust(&mut self) {
        self.stream.get_mut().most = u64::MAX;
    }

    /// Queues a frame. It is written with the next [`Self::step`].
    pub(crate) fn queue(&mut self, text: String) {
        // A server's frame has a head of two, four or ten bytes.
        self.queued += u64::try_from(text.len()).unwrap_or(u64::MAX) + 10;
        self.batch += 1;
        self.send(Message::Text(Utf8Bytes::from(text)));
    }

    /// Queues a binary frame.
    pub(crate) fn queue_bytes(&mut self, bytes: Bytes) {
        self.queued += u64::try_from(bytes.len()).unwrap_or(u64::MAX) + 10;
        self.batch += 1;
        self.send(Message::Binary(bytes));
    }

    /// Queues a WebSocket ping.
    pub(crate) fn ping(&mut self) {
        self.queued += 2;
        self.send(Message::Ping(Vec::new().into()));
    }

    /// Hands a message to the codec, which buffers without bound: the bounds are ours. A broken
    /// socket shows itself in the next step.
    fn send(&mut self, message: Message) {
        self.is_behind = true;
        if let Err(error) = Pin::new(&mut self.stream).start_send(message) {
            tracing::debug!(%error, "cannot queue a frame");
        }
    }

    /// Tells whether more events may be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.buffered() < HIGH_WATER && self.batch < BATCH
    }

    /// Returns how many bytes wait to be written. Frames' heads are counted as large as they get.
    pub(crate) fn buffered(&self) -> u64 {
        self.queued.saturating_sub(self.stream.get_ref().written)
    }

    /// Returns how many bytes the peer's side has taken, ever.
    pub(crate) fn written(&self) -> u64 {
        self.stream.get_ref().written
    }

    /// Returns how many bytes came from the peer, ever.
    pub(crate) fn read(&self) -> u64 {
        self.stream.get_ref().read
    }

    /// Waits for the next thing to happen: a message first; if there is none, writes what is
    /// queued. May be dropped and called again.
    pub(crate) async fn step(&mut self) -> Step {
        poll_fn(|context| self.poll_step(context)).await
    }

    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        if self.buffered() < HARD_LIMIT
            && let Poll::Ready(step) = self.poll_message(context)
        {
            return Poll::Ready(step);
        }
        self.poll_written(context)
    }

    /// Waits for the next message alone.
    pub(crate) fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        match Pin::new(&mut self.stream).poll_next(context) {
            Poll::Ready(Some(Ok(message))) => {
                self.read_mark = self.read();
                Poll::Ready(Step::Message(message))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Step::Gone(gone(&error))),
            Poll::Ready(None) => Poll::Ready(Step::Gone(Gone::Peer)),
            // The codec limits the size of a message; fragments without content have none.
            Poll::Pending if self.read() - self.read_mark > self.max_wire => {
                Poll::Ready(Step::Gone(Gone::TooBig))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Waits until what is queued was written, if anything is.
    pub(crate) fn poll_written(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        if self.queued == 0 {
            return Poll::Pending;
        }
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(Ok(())) => {
                // Start counting anew, so that the estimate of heads does not add up.
                self.queued = self.written();
                self.batch = 0;
                let was_behind = mem::replace(&mut self.is_behind, false);
                if was_behind { Poll::Ready(Step::Flushed) } else { Poll::Pending }
            }
            Poll::Ready(Err(_)) => Poll::Ready(Step::Gone(Gone::Peer)),
            Poll::Pending => {
                self.batch = 0;
                Poll::Pending
            }
        }
    }

    /// Says good-bye: writes what is queued and a close frame, then reads the rest away. A socket
    /// that is closed with unread bytes in it is reset, and the peer would miss our reason.
    pub(crate) async fn close(mut self, code: u16, reason: &'static str) {
        let frame = CloseFrame { code: code.into(), reason: Utf8Bytes::from_static(reason) };
        self.finish(Some(frame)).await;
    }

    /// Ends the socket after the peer hung up.
    pub(crate) async fn hang_up(mut self) {
        self.finish(None).await;
    }

    async fn finish(&mut self, frame: Option<CloseFrame>) {
        let farewell = async {
            match frame {
                Some(frame) => self.stream.send(Message::Close(Some(frame))).await,
                None => self.stream.flush().await,
            }
        };
        let told = timeout(FAREWELL, farewell).await;
        tracing::debug!(told = ?matches!(told, Ok(Ok(()))), "closing");
        self.trust();
        let raw = self.stream.get_mut();
        let rest = async {
            raw.shutdown().await?;
            tokio::io::copy(&mut raw.take(LAST_BYTES), &mut tokio::io::sink()).await
        };
        // The peer may be gone, or may not hang up: either way this is the end.
        let _ = timeout(FAREWELL, rest).await;
    }
}

fn gone(error: &Error) -> Gone {
    match error {
        Error::Capacity(_) => Gone::TooBig,
        Error::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => Gone::TooBig,
        Error::Utf8(_) => Gone::NotUtf8,
        Error::Protocol(
            tokio_tungstenite::tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
        ) => Gone::Peer,
        Error::Protocol(_) => Gone::Framing,
        _ => Gone::Peer,
    }
}

/// Counts what goes through a stream.
#[derive(Debug)]
struct Counted<S> {
    inner: S,
    read: u64,
    written: u64,
    /// Nothing is read after so many bytes.
    most: u64,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= self.most {
            return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        let count = buffer.filled().len() - before;
        self.read += u64::try_from(count).unwrap_or(u64::MAX);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = &polled {
            self.written += u64::try_from(*count).unwrap_or(u64::MAX);
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// The head of such a frame is as long as a head is taken to be, so that the estimate is right.
    const LARGE: usize = 100_000;

    #[tokio::test]
    async fn whoever_waits_for_room_is_told_when_everything_was_taken() {
        let (ours, mut theirs) = tokio::io::duplex(LARGE / 2);
        let mut socket = Socket::new(ours).await;
        socket.queue_bytes(vec![7; LARGE].into());
        let mut context = Context::from_waker(Waker::noop());
        assert!(socket.poll_step(&mut context).is_pending());
        let mut taken = vec![0; LARGE + 10];
        let both = async { tokio::join!(socket.step(), theirs.read_exact(&mut taken)) };
        let (step, read) = timeout(Duration::from_secs(10), both).await.expect("nobody is told");
        assert!(matches!(step, Step::Flushed), "{step:?}");
        assert_eq!(read.unwrap(), LARGE + 10);
        assert_eq!(socket.buffered(), 0);
        assert!(socket.poll_step(&mut context).is_pending());
    }
}
