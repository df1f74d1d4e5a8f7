//! One stream of a tunnel: first the port that it is for, then the bytes of a connection to it.

use std::{
    io,
    num::NonZeroU16,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::{
    frame::{FIN, WINDOW, write_data, write_flags, write_window},
    held::Held,
};

/// The version of what stands before the bytes.
const VERSION: u8 = 1;
/// What is read at once from whoever is inside.
pub(super) const PIECE: usize = 16 << 10;

/// A connection into the sandbox that is being made.
pub(super) type Dialing<S> = Pin<Box<dyn Future<Output = io::Result<S>> + Send>>;

/// What a client is told of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Connected = 0,
    PortNotAllowed = 1,
    DialFailed = 2,
    UnsupportedVersion = 3,
}

/// What becomes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    GoesOn,
    /// Both sides have said everything.
    Done,
    /// It cannot go on, which the client is to be told.
    Broken,
}

/// Where a stream leads.
enum Inside<S> {
    /// The client has not said yet.
    Unsaid,
    Dialing(Dialing<S>),
    Open {
        connection: S,
        told_all: bool,
    },
}

pub(super) struct Stream<S> {
    inside: Inside<S>,
    /// What came from the client and was not taken inside yet.
    inbound: Held,
    /// What the client may send before it is given more.
    allowed: u32,
    /// What was taken inside since it was last given more.
    owed: u32,
    /// What the client lets us send.
    window: u32,
    heard_all: bool,
    said_all: bool,
    moved_at: Instant,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream<S> {
    pub(super) fn new() -> Self {
        Self {
            inside: Inside::Unsaid,
            inbound: Held::default(),
            allowed: WINDOW,
            owed: 0,
            window: WINDOW,
            heard_all: false,
            said_all: false,
            moved_at: Instant::now(),
        }
    }

    /// Returns how many bytes wait here.
    pub(super) fn held(&self) -> usize {
        self.inbound.len()
    }

    /// Takes note that so much is about to come; `None` if that was not allowed.
    pub(super) fn expect(&mut self, length: u32) -> Option<()> {
        self.allowed = self.allowed.checked_sub(length)?;
        Some(())
    }

    pub(super) fn hear(&mut self, bytes: &[u8]) {
        // What is said after the last word is not heard.
        if !self.heard_all {
            self.inbound.push(bytes);
        }
    }

    pub(super) fn hear_end(&mut self) {
        self.heard_all = true;
    }

    pub(super) fn widen(&mut self, more: u32) {
        self.window = self.window.saturating_add(more);
    }

    /// Tells whether it waits for something that will not come.
    pub(super) fn is_overdue(&self, header_within: Duration, linger: Duration) -> bool {
        let still = self.moved_at.elapsed();
        match self.inside {
            Inside::Unsaid => still > header_within,
            // How long that may take is the engine's to say.
            Inside::Dialing(_) => false,
            // A client that has closed its side may have stopped to listen, too.
            Inside::Open { .. } => (self.heard_all || self.said_all) && still > linger,
        }
    }

    /// Moves what can be moved. Returns whether anything was.
    pub(super) fn advance(
        &mut self,
        context: &mut Context<'_>,
        id: u32,
        out: &mut BytesMut,
        room: usize,
        dial: &mut dyn FnMut(NonZeroU16) -> Dialing<S>,
    ) -> (bool, Fate) {
        let (moved, fate) = match &mut self.inside {
            Inside::Unsaid => match self.inbound.front() {
                [version, high, low, ..] => {
                    let (version, port) = (*version, u16::from_be_bytes([*high, *low]));
                    self.take(3);
                    (true, self.begin(version, port, id, out, dial))
                }
                _ if self.heard_all => (true, Fate::Broken),
                _ => (false, Fate::GoesOn),
            },
            Inside::Dialing(dialing) => match dialing.as_mut().poll(context) {
                Poll::Pending => (false, Fate::GoesOn),
                Poll::Ready(Ok(connection)) => {
                    self.inside = Inside::Open { connection, told_all: false };
                    self.say(id, out, &[Status::Connected as u8]);
                    (true, Fate::GoesOn)
                }
                Poll::Ready(Err(_)) => (true, self.refuse(id, out, Status::DialFailed)),
            },
            Inside::Open { .. } => {
                let inwards = self.carry_inwards(context, id, out);
                match (inwards, self.carry_outwards(context, id, out, room)) {
                    (Ok(one), Ok(other)) => (one || other, self.fate()),
                    (Err(_), _) | (_, Err(_)) => (true, Fate::Broken),
                }
            }
        };
        if moved {
            self.moved_at = Instant::now();
        }
        (moved, fate)
    }

    fn begin(
        &mut self,
        version: u8,
        port: u16,
        id: u32,
        out: &mut BytesMut,
        dial: &mut dyn FnMut(NonZeroU16) -> Dialing<S>,
    ) -> Fate {
        match (version, NonZeroU16::new(port)) {
            (VERSION, Some(port)) => {
                self.inside = Inside::Dialing(dial(port));
                Fate::GoesOn
            }
            (VERSION, None) => self.refuse(id, out, Status::PortNotAllowed),
            (_, _) => self.refuse(id, out, Status::UnsupportedVersion),
        }
    }

    /// Says why there is no connection. That is all there is to say on this stream.
    fn refuse(&mut self, id: u32, out: &mut BytesMut, why: Status) -> Fate {
        self.say(id, out, &[why as u8]);
        write_flags(out, id, FIN);
        Fate::Done
    }

    fn say(&mut self, id: u32, out: &mut BytesMut, bytes: &[u8]) {
        write_data(out, id, bytes);
        self.window = self.window.saturating_sub(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    }

    /// Lets go of bytes that were taken, for which the client may send others.
    fn take(&mut self, count: usize) {
        self.inbound.pop(count);
        self.owed = self.owed.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    }

    fn carry_inwards(
        &mut self,
        context: &mut Context<'_>,
        id: u32,
        out: &mut BytesMut,
    ) -> io::Result<bool> {
        let mut moved = false;
        while self.inbound.len() > 0 {
            let Inside::Open { connection, .. } = &mut self.inside else { break };
            match Pin::new(connection).poll_write(context, self.inbound.front()) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => {
                    self.take(count);
                    moved = true;
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        if self.owed >= WINDOW / 2 && !self.heard_all {
            write_window(out, id, self.owed);
            self.allowed = self.allowed.saturating_add(std::mem::take(&mut self.owed));
        }
        if let Inside::Open { connection, told_all } = &mut self.inside
            && self.heard_all
            && self.inbound.len() == 0
            && !*told_all
            && let Poll::Ready(shut) = Pin::new(connection).poll_shutdown(context)
        {
            shut?;
            (*told_all, moved) = (true, true);
        }
        Ok(moved)
    }

    fn carry_outwards(
        &mut self,
        context: &mut Context<'_>,
        id: u32,
        out: &mut BytesMut,
        room: usize,
    ) -> io::Result<bool> {
        let Inside::Open { connection, .. } = &mut self.inside else { return Ok(false) };
        let window = usize::try_from(self.window).unwrap_or(usize::MAX);
        let most = PIECE.min(room).min(window);
        if self.said_all || most == 0 {
            return Ok(false);
        }
        let mut piece = [0; PIECE];
        let mut buffer = ReadBuf::new(piece.get_mut(..most).unwrap_or_default());
        match Pin::new(connection).poll_read(context, &mut buffer) {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) => {
                if buffer.filled().is_empty() {
                    self.said_all = true;
                    write_flags(out, id, FIN);
                } else {
                    self.say(id, out, buffer.filled());
                }
                Ok(true)
            }
        }
    }

    fn fate(&self) -> Fate {
        match &self.inside {
            Inside::Open { told_all: true, .. } if self.said_all => Fate::Done,
            Inside::Unsaid | Inside::Dialing(_) | Inside::Open { .. } => Fate::GoesOn,
        }
    }
}
