//! Sees to it that a request of HTTP/1 can be read in one way only.
//!
//! The library takes some requests that a proxy in front of us may read otherwise: with a length and chunks, with the
//! same length twice, with lines that end without a carriage return. Where two disagree about the end of a request, somebody's bytes
//! become somebody else's request. So this stands between socket and library and follows where heads and bodies end. In
//! the place of the first byte that must not be there it puts one that no head and no size of a chunk can have, and ends the stream: the
//! library then answers 400 after all that came before, and closes. All other bytes go through as they are, and
//! after an upgrade every byte.
//!
//! ```text
//!   Start ─▶ Head ─┬───────────────────────────────▶ Start, or Answer if a WebSocket was asked for
//!                  ├▶ Body ──────────────────────────▶ the same
//!                  └▶ Size ⇄ Chunk, ChunkEnd
//!                       └▶ Trailers ─────────────────▶ the same
//!   Answer ─▶ Start, or Open after a 101            everything ─▶ Refused
//! ```

use std::{
    io, mem,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use memchr::memchr;
use tokio::io::{AsyncRead, ReadBuf};

use crate::forward::forward_writes;

/// The longest line. The library refuses shorter ones before.
const MAX_LINE: usize = 64 << 10;

/// What takes the place of a byte that must not be there, and what comes after it: the library looks at a head when
/// its end is there.
const POISON: u8 = 0;
const END: &[u8] = b"\r\n\r\n";

/// Follows the requests of one connection, in pieces as they come.
#[derive(Debug, Default)]
struct Framing {
    stage: Stage,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// What the head says so far of the body.
    body: Body,
    wants_upgrade: bool,
    /// Requests that have come to their end.
    ended: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Start,
    Head,
    /// So many bytes are left of it.
    Body(u64),
    Size,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    /// What comes next is a request or not, as the answer to this one is.
    Answer,
    Open,
    Refused,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Body {
    #[default]
    Nothing,
    Length(u64),
    Chunks,
}

/// How far bytes may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    All,
    /// The byte at this place must not be there.
    Refused(usize),
    /// What is from this place on has to wait for an answer.
    Waits(usize),
}

/// A line that can be read in more than one way.
#[derive(Debug, PartialEq, Eq)]
struct Ambiguous;

impl Framing {
    fn pass(&mut self, bytes: &[u8]) -> Passed {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match self.stage {
                Stage::Open => return Passed::All,
                Stage::Refused => return Passed::Refused(at),
                Stage::Answer => return Passed::Waits(at),
                Stage::Body(left) => at += self.skip(left, rest.len(), Stage::Body),
                Stage::Chunk(left) => at += self.skip(left, rest.len(), Stage::Chunk),
                Stage::Start | Stage::Head | Stage::Size | Stage::ChunkEnd | Stage::Trailers => {
                    let Some(end) = memchr(b'\n', rest) else { return self.keep(at, rest) };
                    let (line, _) = rest.split_at(end + 1);
                    if self.finish_line(line).is_err() {
                        self.stage = Stage::Refused;
                        return Passed::Refused(at + end);
                    }
                    at += end + 1;
                }
            }
        }
        Passed::All
    }

    /// Goes on within a body, as far as there are bytes; returns how far.
    fn skip(&mut self, left: u64, there: usize, stage: fn(u64) -> Stage) -> usize {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(there);
        let left = left.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
        self.stage = stage(left);
        match self.stage {
            Stage::Body(0) => self.end(),
            Stage::Chunk(0) => self.stage = Stage::ChunkEnd,
            _ => {}
        }
        count
    }

    /// Keeps the beginning of a line, of which only the whole can be judged.
    fn keep(&mut self, at: usize, rest: &[u8]) -> Passed {
        if self.line.len() + rest.len() > MAX_LINE {
            self.stage = Stage::Refused;
            return Passed::Refused(at);
        }
        self.line.extend_from_slice(rest);
        Passed::All
    }

    fn finish_line(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        if self.line.is_empty() {
            return self.judge(line);
        }
        let mut whole = mem::take(&mut self.line);
        whole.extend_from_slice(line);
        self.judge(&whole)
    }

    fn judge(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        let line = line.strip_suffix(b"\r\n").ok_or(Ambiguous)?;
        match self.stage {
            // Empty lines before a request are passed over, also by the library.
            Stage::Start if line.is_empty() => Ok(()),
            Stage::Start => {
                (self.body, self.wants_upgrade) = (Body::Nothing, false);
                self.stage = Stage::Head;
                Ok(())
            }
            Stage::Head if line.is_empty() => {
                match self.body {
                    Body::Nothing | Body::Length(0) => self.end(),
                    Body::Length(length) => self.stage = Stage::Body(length),
                    Body::Chunks => self.stage = Stage::Size,
                }
                Ok(())
            }
            Stage::Head => self.field(line),
            Stage::Size => {
                self.stage = match chunk_size(line).ok_or(Ambiguous)? {
                    0 => Stage::Trailers,
                    size => Stage::Chunk(size),
                };
                Ok(())
            }
            Stage::ChunkEnd if line.is_empty() => {
                self.stage = Stage::Size;
                Ok(())
            }
            Stage::Trailers if line.is_empty() => {
                self.end();
                Ok(())
            }
            Stage::Trailers => Ok(()),
            Stage::ChunkEnd
            | Stage::Body(_)
            | Stage::Chunk(_)
            | Stage::Answer
            | Stage::Open
            | Stage::Refused => Err(Ambiguous),
        }
    }

    /// Takes note of a field that says where the request ends. Others are the library's to judge.
    fn field(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        let Some((name, value)) = memchr(b':', line).and_then(|colon| line.split_at_checked(colon))
        else {
            return Ok(());
        };
        let value = value.get(1..).unwrap_or_default();
        if name.eq_ignore_ascii_case(b"content-length") {
            self.set_body(Body::Length(decimal(trimmed(value)).ok_or(Ambiguous)?))
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let is_chunked = trimmed(value).eq_ignore_ascii_case(b"chunked");
            if is_chunked { self.set_body(Body::Chunks) } else { Err(Ambiguous) }
        } else {
            self.wants_upgrade |= name.eq_ignore_ascii_case(b"upgrade") && has_websocket(value);
            Ok(())
        }
    }

    /// What a request says of its body it says once.
    fn set_body(&mut self, body: Body) -> Result<(), Ambiguous> {
        match self.body {
            Body::Nothing => {
                self.body = body;
                Ok(())
            }
            Body::Length(_) | Body::Chunks => Err(Ambiguous),
        }
    }

    fn end(&mut self) {
        self.ended += 1;
        self.stage = if self.wants_upgrade { Stage::Answer } else { Stage::Start };
    }
}

fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Reads the size of a chunk; what may follow it is nobody's.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let end = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let (digits, more) = line.split_at_checked(end)?;
    if !matches!(more, [] | [b';' | b' ' | b'\t', ..]) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn has_websocket(value: &[u8]) -> bool {
    const NAME: &[u8] = b"websocket";
    value.windows(NAME.len()).any(|part| part.eq_ignore_ascii_case(NAME))
}

/// The answers that were given on one connection, for who has to know whether it still speaks HTTP.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<Given>);

#[derive(Debug, Default)]
struct Given {
    count: u64,
    is_open: bool,
    waits: Option<Waker>,
}

impl Answers {
    /// Takes note of the answer to the next request.
    pub(super) fn give(&self, is_upgrade: bool) {
        let waits = self.with(|given| {
            given.count += 1;
            given.is_open |= is_upgrade;
            given.waits.take()
        });
        if let Some(waits) = waits {
            waits.wake();
        }
    }

    /// Waits until so many were given; tells what comes next.
    fn poll(&self, ended: u64, context: &Context<'_>) -> Poll<Stage> {
        self.with(|given| {
            if given.is_open {
                return Poll::Ready(Stage::Open);
            }
            if given.count >= ended {
                return Poll::Ready(Stage::Start);
            }
            given.waits = Some(context.waker().clone());
            Poll::Pending
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Given) -> T) -> T {
        // No code panics while it holds the lock, so a poisoned one is as good as any.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A stream whose requests can be read in one way only.
#[derive(Debug)]
pub(super) struct Strict<S> {
    stream: S,
    framing: Framing,
    answers: Arc<Answers>,
    /// What came after a request on whose answer it depends what that is.
    held: Vec<u8>,
    /// What is still to come after a byte that must not be there.
    end: &'static [u8],
}

impl<S> Strict<S> {
    pub(super) fn new(stream: S, answers: Arc<Answers>) -> Self {
        Self { stream, framing: Framing::default(), answers, held: Vec::new(), end: END }
    }

    /// Notices if the peer goes while its answer is made, and holds what it sends.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncRead + Unpin,
    {
        let mut early = [0; 512];
        while self.held.is_empty() {
            let mut early = ReadBuf::new(&mut early);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut early))?;
            if early.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.held.extend_from_slice(early.filled());
        }
        Poll::Pending
    }

    /// Takes from what was held, as much as there is room for.
    fn take_held(&mut self, buffer: &mut ReadBuf<'_>) {
        let count = self.held.len().min(buffer.remaining());
        buffer.put_slice(self.held.get(..count).unwrap_or_default());
        self.held.drain(..count);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Strict<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.framing.stage == Stage::Answer {
            match this.answers.poll(this.framing.ended, context) {
                Poll::Ready(stage) => this.framing.stage = stage,
                Poll::Pending => return this.poll_gone(context),
            }
        }
        if this.framing.stage == Stage::Refused {
            let count = this.end.len().min(buffer.remaining());
            let (now, later) = this.end.split_at_checked(count).unwrap_or_default();
            buffer.put_slice(now);
            this.end = later;
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        if this.held.is_empty() {
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        } else {
            this.take_held(buffer);
        }
        let read = buffer.filled_mut().get_mut(before..).unwrap_or_default();
        match this.framing.pass(read) {
            Passed::All => {}
            Passed::Refused(at) => {
                if let Some(byte) = read.get_mut(at) {
                    *byte = POISON;
                }
                buffer.set_filled(before + at + 1);
            }
            Passed::Waits(at) => {
                let mut held = read.get(at..).unwrap_or_default().to_vec();
                held.append(&mut this.held);
                this.held = held;
                buffer.set_filled(before + at);
            }
        }
        Poll::Ready(Ok(()))
    }
}

forward_writes!(Strict, stream);

/// Judges any bytes, for fuzzing: how they are cut makes no difference. The first byte says how.
pub fn fuzz_one(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let (whole, cut) = (pass(bytes, bytes.len().max(1)), pass(bytes, usize::from(*cut) + 1));
    assert_eq!(whole, cut, "it depends on how the bytes are cut");
}

/// Passes bytes in pieces of this length; returns how many were let through, and the stage after them.
fn pass(bytes: &[u8], piece: usize) -> (usize, Stage) {
    let mut framing = Framing::default();
    let mut through = 0;
    for part in bytes.chunks(piece) {
        match framing.pass(part) {
            Passed::All => through += part.len(),
            Passed::Refused(at) | Passed::Waits(at) => {
                through += at;
                break;
            }
        }
    }
    (through, framing.stage)
}

#[cfg(test)]
mod tests;
