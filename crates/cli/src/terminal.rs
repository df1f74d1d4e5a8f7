//! The terminal that a command was started in.

use std::{
    cell::Cell,
    io::{self, IsTerminal as _, Stdin, Write as _},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    signal::unix::{Signal, SignalKind, signal},
};

/// What a program in the shell may have set in a terminal, and does not take back when it is left:
/// mouse, pasting, keypad, the other screen, margins, colours, a hidden cursor. Ends on a line of
/// its own below all.
const TIDY: &str = "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\
    \x1b[?1049l\x1b[?6l\x1b[?7h\x1b[4l\x1b[r\x1b(B\x1b[m\x1b[?25h\x1b[9999H\r\n";

/// A terminal that passes every key on. It is what it was before when this is dropped, and so also
/// after a panic.
#[derive(Debug)]
pub(crate) struct Raw {
    before: Termios,
    is_drawn_on: Cell<bool>,
}

impl Raw {
    /// Takes over the terminal, if we have one at both ends.
    pub(crate) fn enter() -> io::Result<Option<Self>> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Some(Self { before, is_drawn_on: Cell::new(false) }))
    }

    /// Writes to the terminal, at once.
    pub(crate) fn show(&self, bytes: &[u8]) -> io::Result<()> {
        self.is_drawn_on.set(true);
        show(bytes)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that has gone away needs nothing any more.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
        if self.is_drawn_on.get() {
            let _ = show(TIDY.as_bytes());
        }
    }
}

fn show(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Returns rows and columns.
pub(crate) fn size() -> io::Result<(u16, u16)> {
    let size = tcgetwinsize(io::stdout())?;
    // A terminal of nobody has none.
    let or = |length, usual| if length == 0 { usual } else { length };
    Ok((or(size.ws_row, 24), or(size.ws_col, 80)))
}

/// What is typed.
#[derive(Debug)]
pub(crate) struct Keys {
    stdin: AsyncFd<Stdin>,
}

impl Keys {
    pub(crate) fn new() -> io::Result<Self> {
        #[expect(
            deprecated,
            reason = "standard input always returns the same descriptor, which is what the unsafe \
                      successor of this function asks for"
        )]
        let stdin = AsyncFd::with_interest(io::stdin(), Interest::READABLE)?;
        Ok(Self { stdin })
    }

    /// Returns what was typed; nothing once the terminal is gone. May be dropped and called again.
    ///
    /// The descriptor stays a blocking one, because whoever started us has the same. So it is asked
    /// each time whether there is something to read.
    pub(crate) async fn next(&self) -> io::Result<Vec<u8>> {
        loop {
            let mut ready = self.stdin.readable().await?;
            let stdin = self.stdin.get_ref();
            let mut asked = [PollFd::new(stdin, PollFlags::IN)];
            match poll(&mut asked, Some(&Timespec::default())) {
                Ok(0) => ready.clear_ready(),
                Ok(_) => return read(stdin),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn read(stdin: &Stdin) -> io::Result<Vec<u8>> {
    let mut typed = vec![0; 4096];
    let length = match rustix::io::read(stdin, &mut typed) {
        // What a terminal says that was hung up.
        Err(Errno::IO) => 0,
        read => read?,
    };
    typed.truncate(length);
    Ok(typed)
}

/// The signals that matter to whoever has taken over a terminal.
#[derive(Debug)]
pub(crate) struct Signals {
    resized: Signal,
    hangup: Signal,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            resized: signal(SignalKind::window_change())?,
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits until the terminal has another size, or we are to end with this exit code. May be
    /// dropped and called again.
    pub(crate) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.resized.recv() => Told::Resized,
            _ = self.hangup.recv() => Told::End(129),
            _ = self.interrupt.recv() => Told::End(130),
            _ = self.quit.recv() => Told::End(131),
            _ = self.terminate.recv() => Told::End(143),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Resized,
    End(u8),
}
