//! A tunnel from its first frame to its last: many streams over one WebSocket, in bounded memory.
//!
//! The specification gives every stream a window of 256 KiB before anybody can say otherwise. What
//! streams hold together is bounded all the same: at the bound no more is read from the client until
//! somebody inside has taken something; if nobody does, the stream that holds most is broken off.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    num::NonZeroU16,
    task::{Context, Poll},
    time::Duration,
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, Interval, interval},
};
use tokio_tungstenite::tungstenite::Message;

use super::{
    frame::{
        ACK, Decoder, FIN, Farewell, HEAD, Head, Kind, Malformed, Piece, RST, SYN, WINDOW,
        write_farewell, write_flags, write_ping,
    },
    stream::{Dialing, Fate, Stream},
};
use crate::ws::socket::{Gone, Socket, Step};

/// The most streams at once.
pub(super) const STREAMS: usize = 256;
/// The largest message: a whole window in one frame.
pub(super) const MAX_MESSAGE: usize = WINDOW as usize + 64 * HEAD;
/// What streams hold together before no more is read.
const HELD: usize = 512 << 10;
/// What waits to be written before no more is produced.
const OUT: usize = 64 << 10;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) tick: Duration,
    pub(super) ping_after: Duration,
    pub(super) pong_within: Duration,
    /// For the client to take something of what waits for it.
    pub(super) progress_within: Duration,
    /// For a stream to say where it leads.
    pub(super) header_within: Duration,
    /// For somebody inside to take something, while all others wait for that.
    pub(super) stall: Duration,
    /// For a stream of which one side is closed, without anything moving.
    pub(super) linger: Duration,
}

/// How a tunnel ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The client hung up.
    Gone,
    /// Closed by us, or by the client in order.
    Closed(u16, &'static str),
    /// Closed by us because of what the client sent.
    Wrong(u16, &'static str),
}

impl From<Malformed> for End {
    fn from(malformed: Malformed) -> Self {
        tracing::debug!(%malformed, "a tunnel is closed");
        Self::Wrong(1002, "not yamux")
    }
}

pub(super) struct Session<S, D> {
    streams: BTreeMap<u32, Stream<S>>,
    dial: D,
    decoder: Decoder,
    out: BytesMut,
    /// What the tunnel is closed with when the last stream has ended: there are to be no more.
    last_word: Option<End>,
    timing: Timing,
    tick: Interval,
    health: Health,
}

/// What is known of how the two sides are doing.
#[derive(Debug)]
struct Health {
    read: u64,
    heard_at: Instant,
    pinged_at: Option<Instant>,
    pings: u32,
    written: u64,
    written_at: Instant,
    /// When somebody inside last took something, or could have had nothing to take.
    taken_at: Instant,
}

impl<S, D> Session<S, D>
where
    S: AsyncRead + AsyncWrite + Unpin,
    D: FnMut(NonZeroU16) -> Dialing<S>,
{
    pub(super) fn new(dial: D, timing: Timing) -> Self {
        let now = Instant::now();
        Self {
            streams: BTreeMap::new(),
            dial,
            decoder: Decoder::default(),
            out: BytesMut::new(),
            last_word: None,
            timing,
            tick: interval(timing.tick),
            health: Health {
                read: 0,
                heard_at: now,
                pinged_at: None,
                pings: 0,
                written: 0,
                written_at: now,
                taken_at: now,
            },
        }
    }

    /// Carries everything until there is a reason to end. May be dropped at any time.
    pub(super) async fn run(&mut self, socket: &mut Socket) -> End {
        poll_fn(|context| self.poll(socket, context)).await
    }

    /// Takes no more streams, and ends like this when those that are there have ended.
    pub(super) fn leave(&mut self, end: End) {
        self.last_word.get_or_insert(end);
    }

    /// Leaves the last frame with the socket. Streams that are there are broken off by it.
    pub(super) fn farewell(&mut self, socket: &mut Socket, end: End) {
        let why = match end {
            End::Wrong(_, _) => Farewell::ProtocolError,
            End::Gone | End::Closed(_, _) => Farewell::Normal,
        };
        self.streams.clear();
        write_farewell(&mut self.out, why);
        socket.queue_bytes(self.out.split().freeze());
    }

    fn poll(&mut self, socket: &mut Socket, context: &mut Context<'_>) -> Poll<End> {
        loop {
            let heard = match self.listen(socket, context) {
                Ok(heard) => heard,
                Err(end) => return Poll::Ready(end),
            };
            let moved = self.advance(context);
            let said = match self.speak(socket, context) {
                Ok(said) => said,
                Err(end) => return Poll::Ready(end),
            };
            if let Some(end) = self.last_word
                && self.streams.is_empty()
                && self.out.is_empty()
            {
                return Poll::Ready(end);
            }
            if self.tick.poll_tick(context).is_ready() {
                if let Err(end) = self.look_around(socket) {
                    return Poll::Ready(end);
                }
            } else if !heard && !moved && !said {
                return Poll::Pending;
            }
        }
    }

    /// Takes one message from the client, if there is room for what is in it.
    fn listen(&mut self, socket: &mut Socket, context: &mut Context<'_>) -> Result<bool, End> {
        if self.out.len() >= OUT || self.held() >= HELD {
            return Ok(false);
        }
        let Poll::Ready(step) = socket.poll_message(context) else { return Ok(false) };
        match step {
            Step::Message(Message::Binary(bytes)) => {
                let mut input = &bytes[..];
                while let Some(piece) = self.decoder.next(&mut input)? {
                    self.hear(&piece)?;
                }
                Ok(true)
            }
            Step::Message(Message::Text(_)) => Err(End::Wrong(1003, "binary frames only")),
            Step::Message(Message::Close(_)) => Err(End::Gone),
            // Pings were answered by the codec.
            Step::Message(_) | Step::Flushed => Ok(true),
            Step::Gone(Gone::Peer) => Err(End::Gone),
            Step::Gone(Gone::TooBig) => Err(End::Wrong(1009, "message too big")),
            Step::Gone(Gone::Framing | Gone::NotUtf8) => Err(End::Wrong(1002, "bad framing")),
        }
    }

    fn hear(&mut self, piece: &Piece<'_>) -> Result<(), End> {
        match piece {
            Piece::Data(id, bytes) => {
                if let Some(stream) = self.streams.get_mut(id) {
                    stream.hear(bytes);
                }
                Ok(())
            }
            Piece::Begin(head) => match head.kind {
                Kind::Data | Kind::Window => self.begin(head),
                Kind::Ping => {
                    if head.has(SYN) {
                        write_ping(&mut self.out, ACK, head.value);
                    }
                    Ok(())
                }
                Kind::GoAway => {
                    self.leave(End::Closed(1000, "all is said"));
                    Ok(())
                }
            },
            Piece::End(head) => {
                if matches!(head.kind, Kind::Data | Kind::Window) {
                    self.finish(head);
                }
                Ok(())
            }
        }
    }

    /// Sees to what a frame says about its stream before what is in it.
    fn begin(&mut self, head: &Head) -> Result<(), End> {
        if head.has(SYN) {
            self.open(head.stream)?;
        }
        let Some(stream) = self.streams.get_mut(&head.stream) else {
            // It was closed by us while this was on its way, or never was. Neither does any harm.
            return Ok(());
        };
        match head.kind {
            Kind::Data => {
                stream.expect(head.value).ok_or(End::Wrong(1002, "more data than the window"))
            }
            Kind::Window | Kind::Ping | Kind::GoAway => {
                stream.widen(head.value);
                Ok(())
            }
        }
    }

    fn open(&mut self, id: u32) -> Result<(), End> {
        // A client opens odd ones. They need not come in order: a client with threads may give out
        // its ids in one order and send them in another.
        if id.is_multiple_of(2) || self.streams.contains_key(&id) {
            return Err(End::Wrong(1002, "bad stream id"));
        }
        if self.streams.len() >= STREAMS || self.last_word.is_some() {
            write_flags(&mut self.out, id, RST);
            return Ok(());
        }
        self.streams.insert(id, Stream::new());
        write_flags(&mut self.out, id, ACK);
        Ok(())
    }

    /// Sees to what it says about its stream after that.
    fn finish(&mut self, head: &Head) {
        if head.has(RST) {
            self.streams.remove(&head.stream);
        } else if head.has(FIN)
            && let Some(stream) = self.streams.get_mut(&head.stream)
        {
            stream.hear_end();
        }
    }

    /// Moves the bytes of every stream. Returns whether anything was moved.
    fn advance(&mut self, context: &mut Context<'_>) -> bool {
        let (mut any, before) = (false, self.held());
        let (out, dial) = (&mut self.out, &mut self.dial);
        self.streams.retain(|id, stream| {
            let room = OUT.saturating_sub(out.len());
            let (moved, fate) = stream.advance(context, *id, out, room, dial);
            any |= moved;
            match fate {
                Fate::GoesOn => true,
                Fate::Done => false,
                Fate::Broken => {
                    write_flags(out, *id, RST);
                    false
                }
            }
        });
        let after = self.held();
        if after < before || after < HELD {
            self.health.taken_at = Instant::now();
        }
        any
    }

    /// Hands to the socket what waits, once the last of it was taken.
    fn speak(&mut self, socket: &mut Socket, context: &mut Context<'_>) -> Result<bool, End> {
        let is_new = !self.out.is_empty() && socket.buffered() == 0;
        if is_new {
            socket.queue_bytes(self.out.split().freeze());
        }
        match socket.poll_written(context) {
            Poll::Ready(Step::Gone(_)) => Err(End::Gone),
            Poll::Ready(_) => Ok(true),
            Poll::Pending => Ok(is_new),
        }
    }

    /// Looks now and then whether both sides are well.
    fn look_around(&mut self, socket: &Socket) -> Result<(), End> {
        let (now, timing) = (Instant::now(), self.timing);
        let health = &mut self.health;
        if socket.read() != health.read {
            (health.read, health.heard_at, health.pinged_at) = (socket.read(), now, None);
        }
        if socket.buffered() == 0 || socket.written() != health.written {
            (health.written, health.written_at) = (socket.written(), now);
        }
        if now - health.written_at >= timing.progress_within {
            return Err(End::Closed(4408, "slow consumer"));
        }
        // While nothing is read on purpose nobody can be expected to be heard.
        let is_listening = self.streams.values().map(Stream::held).sum::<usize>() < HELD;
        match health.pinged_at {
            _ if !is_listening => (health.heard_at, health.pinged_at) = (now, None),
            Some(then) if now - then >= timing.pong_within => {
                return Err(End::Closed(4408, "no sign of life"));
            }
            None if now - health.heard_at >= timing.ping_after => {
                health.pings = health.pings.wrapping_add(1);
                health.pinged_at = Some(now);
                write_ping(&mut self.out, SYN, health.pings);
            }
            Some(_) | None => {}
        }
        let out = &mut self.out;
        self.streams.retain(|id, stream| {
            let is_overdue = stream.is_overdue(timing.header_within, timing.linger);
            if is_overdue {
                write_flags(out, *id, RST);
            }
            !is_overdue
        });
        if self.held() >= HELD && now - self.health.taken_at >= timing.stall {
            self.break_largest();
        }
        Ok(())
    }

    fn break_largest(&mut self) {
        let largest = self.streams.iter().max_by_key(|(_, stream)| stream.held());
        if let Some(id) = largest.map(|(id, _)| *id) {
            tracing::debug!("a stream that nobody reads was broken off for the others' sake");
            self.streams.remove(&id);
            write_flags(&mut self.out, id, RST);
        }
    }

    fn held(&self) -> usize {
        self.streams.values().map(Stream::held).sum()
    }
}
