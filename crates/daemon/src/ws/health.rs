//! Whether the peer of a WebSocket is there, and takes what it is sent.

use std::time::Duration;

use tokio::time::Instant;

use super::socket::Socket;

/// Whether the peer is there, and takes what it is sent.
#[derive(Debug)]
pub(crate) struct Health {
    last_progress: Instant,
    written: u64,
    last_sign: Instant,
    read: u64,
    pinged: Option<Instant>,
}

/// How long things may take on a connection.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How often the others are looked at.
    pub tick: Duration,
    /// Silence after which the peer is asked for a sign of life.
    pub ping_after: Duration,
    /// Time to give that sign.
    pub pong_within: Duration,
    /// Time to take at least one byte of what waits to be written.
    pub progress_within: Duration,
    /// The same, kept by the kernel for whatever is spoken. Longer, so that whoever can say why goes
    /// first.
    pub stalled_within: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            tick: Duration::from_secs(5),
            ping_after: Duration::from_secs(20),
            pong_within: Duration::from_secs(20),
            progress_within: Duration::from_mins(1),
            stalled_within: Duration::from_secs(70),
        }
    }
}

impl Health {
    pub(crate) fn new(now: Instant) -> Self {
        Self { last_progress: now, written: 0, last_sign: now, read: 0, pinged: None }
    }

    /// Nothing is read from the peer at the moment, so that no sign of it can come. It is asked for
    /// one all the same: if nobody is there to take the question the kernel notices.
    pub(crate) fn excuse(&mut self, timing: &Timing) {
        let now = Instant::now();
        if self.pinged.is_some_and(|pinged| now - pinged >= timing.pong_within) {
            (self.last_sign, self.pinged) = (now, None);
        }
    }

    /// Looks at a socket. Returns why it is to be closed, with the code for time that is up.
    pub(crate) fn check(
        &mut self,
        timing: &Timing,
        socket: &mut Socket,
    ) -> Result<(), &'static str> {
        let now = Instant::now();
        if socket.read() != self.read {
            (self.read, self.last_sign, self.pinged) = (socket.read(), now, None);
        }
        if socket.buffered() == 0 || socket.written() != self.written {
            (self.written, self.last_progress) = (socket.written(), now);
        }
        if now - self.last_progress >= timing.progress_within {
            return Err("slow consumer");
        }
        // A peer that has yet to take our output has not seen the ping: the rule above is its.
        if socket.buffered() > 0 {
            return Ok(());
        }
        match self.pinged {
            Some(pinged) if now - pinged >= timing.pong_within => Err("no sign of life"),
            Some(_) => Ok(()),
            None if now - self.last_sign >= timing.ping_after => {
                self.pinged = Some(now);
                socket.ping();
                Ok(())
            }
            None => Ok(()),
        }
    }
}
