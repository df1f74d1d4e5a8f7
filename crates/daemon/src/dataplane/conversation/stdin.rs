//! What clients write to a command, as far as it has not read it yet.

use std::collections::VecDeque;

use engine::sandboxes::{
    SandboxError,
    attach::{Attached, InputError, InputPipe},
};
use model::spec::TerminalSize;

/// Above this nothing more is taken from the client.
const HIGH_WATER: usize = 256 << 10;

/// The stdin of a command, opened when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Stdin {
    pipe: Option<InputPipe>,
    pending: VecDeque<u8>,
    /// What happens once everything is written.
    then: Then,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Then {
    #[default]
    Nothing,
    Close,
    Closed,
}

impl Stdin {
    /// Takes what is to be written.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.then == Then::Nothing {
            self.pending.extend(bytes);
        }
    }

    /// Nothing comes after what was taken.
    pub(super) fn close(&mut self) {
        if self.then == Then::Nothing {
            self.then = Then::Close;
        }
    }

    /// Whether the client is to wait.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= HIGH_WATER
    }

    /// Whether there is something to do for [`Self::flush`].
    pub(super) fn is_busy(&self) -> bool {
        !self.pending.is_empty() || self.then == Then::Close
    }

    /// Writes something, as soon as the command takes it. May be dropped and called again.
    pub(super) async fn flush(&mut self, attached: &Attached) -> Result<(), SandboxError> {
        if self.pending.is_empty() {
            self.pipe = None;
            self.then = Then::Closed;
            return attached.close_input().await;
        }
        let pipe = match &self.pipe {
            Some(pipe) => pipe,
            None => self.pipe.insert(attached.input().await?),
        };
        let (first, _) = self.pending.as_slices();
        match pipe.write(first).await {
            Ok(written) => drop(self.pending.drain(..written)),
            // As a pipe of the shell: whoever does not read is not written to.
            Err(InputError::Closed) => self.give_up(),
            Err(InputError::Broken(error)) => {
                self.give_up();
                tracing::debug!(%error, "cannot write to a command");
            }
        }
        Ok(())
    }

    fn give_up(&mut self) {
        self.pipe = None;
        self.pending.clear();
        self.then = Then::Closed;
    }

    /// Says how large the terminal is.
    pub(super) async fn resize(
        &mut self,
        attached: &Attached,
        size: TerminalSize,
    ) -> Result<(), SandboxError> {
        let pipe = match &self.pipe {
            Some(pipe) => pipe,
            None => self.pipe.insert(attached.input().await?),
        };
        pipe.resize(size);
        Ok(())
    }
}
