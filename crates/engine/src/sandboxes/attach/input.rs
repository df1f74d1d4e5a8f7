//! The stdin of a command, or the end of its terminal that people sit at.

use std::{io, os::fd::OwnedFd};

use model::spec::TerminalSize;
use rustix::{
    io::Errno,
    termios::{Winsize, tcsetwinsize},
};
use tokio::io::{Interest, unix::AsyncFd};

use crate::sandboxes::SandboxError;

/// Where a command reads from. It is closed for the command by [`super::Attached::close_input`] and
/// once this is dropped.
#[derive(Debug)]
pub struct InputPipe(AsyncFd<OwnedFd>);

/// Why something did not reach a command.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("the command does not read its stdin any more")]
    Closed,
    #[error("cannot write to the command")]
    Broken(#[source] io::Error),
}

impl InputPipe {
    pub(super) fn new(fd: OwnedFd) -> Result<Self, SandboxError> {
        #[expect(
            deprecated,
            reason = "an OwnedFd always returns the same descriptor, which is what the unsafe \
                      successor of this function asks for"
        )]
        let fd = AsyncFd::with_interest(fd, Interest::WRITABLE);
        fd.map(Self).map_err(|error| SandboxError::Unavailable(error.to_string()))
    }

    /// Writes as much as there is room for, at least one byte. Waits until there is some.
    pub async fn write(&self, bytes: &[u8]) -> Result<usize, InputError> {
        let write = |fd: &OwnedFd| Ok(rustix::io::write(fd, bytes)?);
        self.0.async_io(Interest::WRITABLE, write).await.map_err(
            |error| match Errno::from_io_error(&error) {
                Some(Errno::PIPE | Errno::IO) => InputError::Closed,
                _ => InputError::Broken(error),
            },
        )
    }

    /// Writes all of it, however long the command takes to read.
    pub async fn write_all(&self, mut bytes: &[u8]) -> Result<(), InputError> {
        while !bytes.is_empty() {
            let written = self.write(bytes).await?;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// Says how large the terminal is. A command without one is not changed.
    pub fn resize(&self, size: TerminalSize) {
        let window =
            Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        // Only a terminal has a size.
        let _ = tcsetwinsize(self.0.get_ref(), window);
    }
}
