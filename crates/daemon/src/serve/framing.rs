//! Sees to it that a request of HTTP/1 can be read in one way only.
//!
//! The library takes some requests that a proxy in front of us may read otherwise: with a length and chunks, with the
//! same length twice, with lines that end without a carriage return. Where two disagree about the end of a request, somebody's bytes
//! become somebody else's request. And what it refuses itself it answers without a word. So this stands between socket and
//! library, follows where heads and bodies end, and hands on no line before all of it is there and is well. A head that goes
//! wrong ends before the line that does, and whoever answers it is told by [`Answers`] what is wrong with it; in
//! a body, a byte follows that no size of a chunk can have. After that nothing is read. All other bytes go through as they are, and
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
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker, ready},
};

use axum::http::{Method, Uri};
use httparse::{EMPTY_HEADER, Status};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::linger::{self, Linger};
use crate::forward::forward_writes;

/// Request line and fields together, and the longest line of a body in chunks.
pub(super) const MAX_HEAD_BYTES: usize = 40 << 10;
pub(super) const MAX_FIELDS: usize = 100;

/// What comes after the last line of a head that is well, so that it is one.
const END_OF_HEAD: &[u8] = b"\r\n";
/// What stands for a request whose first line is not well.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
/// What no size of a chunk and no trailer can be.
const BROKEN: &[u8] = b"\0\r\n\r\n";

/// What is wrong with the head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It cannot be read, or can be read in more than one way.
    Malformed(&'static str),
    TooLarge,
}

const LINES: Fault = Fault::Malformed("a line does not end with a carriage return and a line feed");
const FIRST: Fault = Fault::Malformed("its first line is not \"METHOD TARGET HTTP/1.1\"");
const FIELD: Fault = Fault::Malformed("a line is not \"NAME: VALUE\"");
const LENGTH: Fault = Fault::Malformed("Content-Length is not one number");
const ENCODING: Fault =
    Fault::Malformed("Transfer-Encoding is other than \"chunked\", or in HTTP/1.0");
const TWICE: Fault = Fault::Malformed("it says more than once how long its body is");
const CHUNK: Fault = Fault::Malformed("a chunk is not one");

/// Follows the requests of one connection, in pieces as they come.
#[derive(Debug, Default)]
struct Framing {
    stage: Stage,
    /// What the head has so far, in bytes and in fields.
    head: usize,
    fields: usize,
    /// What the head says so far of the body.
    body: Body,
    wants_upgrade: bool,
    /// Whether the request is of the version before chunks.
    is_old: bool,
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

/// What becomes of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    /// So many may go on. Those after them are the beginning of a line, of which only the whole can be judged, or wait for
    /// an answer.
    Upto(usize),
    /// So many may go on and then these; all others are dropped.
    Refused(usize, &'static [u8], Fault),
}

impl Framing {
    fn pass(&mut self, bytes: &[u8]) -> Passed {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match self.stage {
                Stage::Open => return Passed::Upto(bytes.len()),
                Stage::Answer | Stage::Refused => return Passed::Upto(at),
                Stage::Body(left) => at += self.skip(left, rest.len(), Stage::Body),
                Stage::Chunk(left) => at += self.skip(left, rest.len(), Stage::Chunk),
                Stage::Start | Stage::Head | Stage::Size | Stage::ChunkEnd | Stage::Trailers => {
                    let end = memchr(b'\n', rest);
                    let line = end.and_then(|end| rest.get(..=end)).unwrap_or(rest);
                    let judged = self.fits(line.len()).and_then(|()| match end {
                        Some(_) => self.judge(line),
                        None => Ok(()),
                    });
                    if let Err(fault) = judged {
                        return self.refuse(at, fault);
                    }
                    if end.is_none() {
                        return Passed::Upto(at);
                    }
                    at += line.len();
                }
            }
        }
        Passed::Upto(at)
    }

    fn refuse(&mut self, at: usize, fault: Fault) -> Passed {
        let then = match self.stage {
            Stage::Start => STAND_IN,
            Stage::Head => END_OF_HEAD,
            _ => BROKEN,
        };
        self.stage = Stage::Refused;
        Passed::Refused(at, then, fault)
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

    /// Refuses a line, or the beginning of one, that there is no room for.
    fn fits(&self, line: usize) -> Result<(), Fault> {
        match self.stage {
            Stage::Start | Stage::Head if self.head + line > MAX_HEAD_BYTES => Err(Fault::TooLarge),
            _ if line > MAX_HEAD_BYTES => Err(CHUNK),
            _ => Ok(()),
        }
    }

    /// Judges a line, with its end.
    fn judge(&mut self, whole: &[u8]) -> Result<(), Fault> {
        let line = whole.strip_suffix(b"\r\n").ok_or(LINES)?;
        match self.stage {
            // Empty lines before a request are passed over, also by the library.
            Stage::Start if line.is_empty() => self.head += whole.len(),
            Stage::Start => {
                self.is_old = begins(whole)?;
                (self.body, self.wants_upgrade, self.fields) = (Body::Nothing, false, 0);
                self.head += whole.len();
                self.stage = Stage::Head;
            }
            Stage::Head if line.is_empty() => {
                self.head = 0;
                match self.body {
                    Body::Nothing | Body::Length(0) => self.end(),
                    Body::Length(length) => self.stage = Stage::Body(length),
                    Body::Chunks => self.stage = Stage::Size,
                }
            }
            Stage::Head => {
                self.field(whole, line)?;
                self.head += whole.len();
            }
            Stage::Size => {
                self.stage = match chunk_size(line).ok_or(CHUNK)? {
                    0 => Stage::Trailers,
                    size => Stage::Chunk(size),
                };
            }
            Stage::ChunkEnd if line.is_empty() => self.stage = Stage::Size,
            Stage::Trailers if line.is_empty() => self.end(),
            Stage::Trailers => {}
            Stage::ChunkEnd
            | Stage::Body(_)
            | Stage::Chunk(_)
            | Stage::Answer
            | Stage::Open
            | Stage::Refused => return Err(CHUNK),
        }
        Ok(())
    }

    /// Takes a field as the library would, and takes note of one that says where the request ends.
    fn field(&mut self, whole: &[u8], line: &[u8]) -> Result<(), Fault> {
        self.fields += 1;
        if self.fields > MAX_FIELDS {
            return Err(Fault::TooLarge);
        }
        httparse::parse_headers(whole, &mut [EMPTY_HEADER]).map_err(|_what| FIELD)?;
        let colon = memchr(b':', line).and_then(|colon| line.split_at_checked(colon));
        let (name, value) = colon.ok_or(FIELD)?;
        let value = value.get(1..).unwrap_or_default();
        if name.eq_ignore_ascii_case(b"content-length") {
            self.set_body(Body::Length(decimal(trimmed(value)).ok_or(LENGTH)?))
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let is_chunked = trimmed(value).eq_ignore_ascii_case(b"chunked") && !self.is_old;
            if is_chunked { self.set_body(Body::Chunks) } else { Err(ENCODING) }
        } else {
            self.wants_upgrade |= name.eq_ignore_ascii_case(b"upgrade") && has_websocket(value);
            Ok(())
        }
    }

    /// What a request says of its body it says once.
    fn set_body(&mut self, body: Body) -> Result<(), Fault> {
        match self.body {
            Body::Nothing => {
                self.body = body;
                Ok(())
            }
            Body::Length(_) | Body::Chunks => Err(TWICE),
        }
    }

    /// Tells whether the client may still be sending a request that has begun.
    fn is_within_request(&self) -> bool {
        match self.stage {
            Stage::Start | Stage::Answer | Stage::Open => false,
            Stage::Head
            | Stage::Body(_)
            | Stage::Size
            | Stage::Chunk(_)
            | Stage::ChunkEnd
            | Stage::Trailers
            | Stage::Refused => true,
        }
    }

    fn end(&mut self) {
        self.ended += 1;
        self.stage = if self.wants_upgrade { Stage::Answer } else { Stage::Start };
    }
}

/// Reads the first line of a request as the library would; tells whether it is of HTTP/1.0.
fn begins(line: &[u8]) -> Result<bool, Fault> {
    let mut request = httparse::Request::new(&mut []);
    let Ok(Status::Partial) = request.parse(line) else { return Err(FIRST) };
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Err(FIRST);
    };
    if Method::from_bytes(method.as_bytes()).is_err() || Uri::try_from(target).is_err() {
        return Err(FIRST);
    }
    Ok(version == 0)
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
    // The library has uses of its own for the largest numbers.
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|length| *length <= u64::MAX >> 1)
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

/// The requests and answers of one connection, for who has to know whether it still speaks HTTP, and what is wrong
/// with the last of them.
#[derive(Debug, Default)]
pub(super) struct Answers {
    given: Mutex<Given>,
    /// Requests that have arrived to their last byte.
    arrived: AtomicU64,
}

#[derive(Debug, Default)]
struct Given {
    /// Requests that somebody has begun to answer.
    begun: u64,
    count: u64,
    is_open: bool,
    waits: Option<Waker>,
    /// Which of the requests must not be answered as it stands.
    fault: Option<(u64, Fault)>,
}

impl Answers {
    /// Takes note of the next request; returns its number and what is wrong with its head.
    pub(super) fn begin(&self) -> (u64, Option<Fault>) {
        self.with(|given| {
            given.begun += 1;
            let fault = given.fault.filter(|(number, _)| *number == given.begun);
            (given.begun, fault.map(|(_, fault)| fault))
        })
    }

    /// Tells whether the request of this number has arrived to its last byte.
    pub(super) fn has_arrived(&self, number: u64) -> bool {
        self.arrived.load(Ordering::Relaxed) >= number
    }

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

    /// Has it known that there is something wrong with the head of a request.
    fn refuse(&self, number: u64, fault: Fault) {
        self.with(|given| given.fault = Some((number, fault)));
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
        act(&mut self.given.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A stream whose requests can be read in one way only.
#[derive(Debug)]
pub(super) struct Strict<S> {
    stream: S,
    framing: Framing,
    answers: Arc<Answers>,
    /// What came and may not go on yet: the beginning of a line, or what depends on an answer.
    held: Vec<u8>,
    /// What may go on and has found no room yet.
    due: Vec<u8>,
    /// Present while the connection is being closed in the middle of a request.
    linger: Option<Linger>,
}

impl<S> Strict<S> {
    pub(super) fn new(stream: S, answers: Arc<Answers>) -> Self {
        let (held, due) = (Vec::new(), Vec::new());
        Self { stream, framing: Framing::default(), answers, held, due, linger: None }
    }

    /// Judges bytes; returns how many of them may go on. The rest is held, or dropped.
    fn judge(&mut self, bytes: &[u8]) -> usize {
        let passed = self.framing.pass(bytes);
        self.answers.arrived.store(self.framing.ended, Ordering::Relaxed);
        match passed {
            Passed::Upto(end) => {
                self.held.extend_from_slice(bytes.get(end..).unwrap_or_default());
                end
            }
            Passed::Refused(end, then, fault) => {
                if then != BROKEN {
                    self.answers.refuse(self.framing.ended + 1, fault);
                }
                self.due.extend_from_slice(then);
                end
            }
        }
    }

    /// Judges what was held, together with what has come.
    fn judge_held(&mut self, more: &[u8]) {
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(more);
        let end = self.judge(&held);
        held.truncate(end);
        // What follows a refusal is due after what came before it.
        held.append(&mut self.due);
        self.due = held;
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

    /// Takes what is sent after a refusal, so that the answer is not lost with it when the connection is closed. The
    /// stream has no end: the library would take one for a client that does not want its answer.
    fn poll_drop(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncRead + Unpin,
    {
        let mut dropped = [0; 512];
        loop {
            let mut dropped = ReadBuf::new(&mut dropped);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut dropped))?;
            if dropped.filled().is_empty() {
                return Poll::Pending;
            }
        }
    }

    /// Closes the connection. If the client is still sending a request, what it sends is discarded first, so that it can
    /// read the answer.
    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if !self.framing.is_within_request() {
            return Pin::new(&mut self.stream).poll_shutdown(context);
        }
        let new = || Linger::new(linger::MAX_BYTES, linger::MAX_TIME);
        self.linger.get_or_insert_with(new).poll_close(&mut self.stream, context)
    }

    /// Gives what is due, as much as there is room for.
    fn give_due(&mut self, buffer: &mut ReadBuf<'_>) {
        let count = self.due.len().min(buffer.remaining());
        buffer.put_slice(self.due.get(..count).unwrap_or_default());
        self.due.drain(..count);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Strict<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        loop {
            if !this.due.is_empty() {
                this.give_due(buffer);
                return Poll::Ready(Ok(()));
            }
            match this.framing.stage {
                Stage::Refused => return this.poll_drop(context),
                Stage::Answer => {
                    let Poll::Ready(stage) = this.answers.poll(this.framing.ended, context) else {
                        return this.poll_gone(context);
                    };
                    this.framing.stage = stage;
                    this.judge_held(&[]);
                    continue;
                }
                _ => {}
            }
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
            let read = buffer.filled().get(before..).unwrap_or_default();
            if read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let end = if this.held.is_empty() {
                this.judge(read)
            } else {
                this.judge_held(read);
                0
            };
            buffer.set_filled(before + end);
            if end > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

forward_writes!(Strict, stream, poll_close);

/// Judges any bytes, for fuzzing: how they are cut makes no difference. The first byte says how.
pub fn fuzz_one(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let (whole, cut) = (pass(bytes, bytes.len().max(1)), pass(bytes, usize::from(*cut) + 1));
    assert_eq!(whole, cut, "it depends on how the bytes are cut");
}

/// Passes bytes in pieces of this length; returns how many were let through, the stage after them, and what is wrong
/// with those that follow.
fn pass(bytes: &[u8], piece: usize) -> (usize, Stage, Option<Fault>) {
    let (mut framing, mut held, mut through) = (Framing::default(), Vec::new(), 0);
    for part in bytes.chunks(piece) {
        held.extend_from_slice(part);
        match framing.pass(&held) {
            Passed::Upto(end) => {
                through += end;
                held.drain(..end);
            }
            Passed::Refused(end, _, fault) => return (through + end, framing.stage, Some(fault)),
        }
    }
    (through, framing.stage, None)
}

#[cfg(test)]
mod tests;
