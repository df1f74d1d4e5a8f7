//! The events of one sandbox, from any of them on.

use std::collections::VecDeque;

use model::{
    event::{Event, Sequence},
    ids::SandboxId,
};
use store::{Store, StoreError, watch::Watch};

use super::SandboxError;

/// Events are read in parts of this many.
const PART: u32 = 256;

/// Tells every event after the one it was asked from, in order, and waits for more.
#[derive(Debug)]
pub struct EventStream {
    store: Store,
    sandbox: SandboxId,
    watch: Watch,
    last: Sequence,
    read: VecDeque<Event>,
}

impl EventStream {
    /// Follows a sandbox. What is no longer or not yet there is refused at once.
    pub(super) async fn open(
        store: Store,
        sandbox: SandboxId,
        after: Sequence,
    ) -> Result<Self, SandboxError> {
        // Before the first look, so that nothing falls between the two.
        let watch = store.watch(&sandbox);
        let mut stream = Self { store, sandbox, watch, last: after, read: VecDeque::new() };
        stream.read_more().await?;
        Ok(stream)
    }

    /// Returns the next event, when there is one; `None` once the sandbox was forgotten.
    pub async fn next(&mut self) -> Result<Option<Event>, SandboxError> {
        loop {
            if let Some(event) = self.read.pop_front() {
                self.last = event.sequence;
                return Ok(Some(event));
            }
            self.watch.changed().await?;
            match self.read_more().await {
                Err(SandboxError::NotFound) => return Ok(None),
                other => other?,
            }
        }
    }

    /// Returns the next event if it is there already.
    pub async fn next_known(&mut self) -> Result<Option<Event>, SandboxError> {
        if self.read.is_empty() {
            self.read_more().await?;
        }
        Ok(self.read.pop_front().inspect(|event| self.last = event.sequence))
    }

    async fn read_more(&mut self) -> Result<(), SandboxError> {
        let read: Result<_, StoreError> = self.store.events(&self.sandbox, self.last, PART).await;
        self.read.extend(read?.events);
        Ok(())
    }
}
