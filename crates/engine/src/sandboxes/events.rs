//! The events of one sandbox, from any of them on.

use std::{collections::VecDeque, time::Duration};

use model::{
    event::{Event, Sequence},
    ids::SandboxId,
};
use store::{Store, StoreError, watch::Watch};
use tokio::{
    select,
    sync::watch,
    time::{Instant, sleep_until},
};

use super::SandboxError;
use crate::images::Progress;

/// Events are read in parts of this many.
const PART: u32 = 256;

/// How often progress is told at most.
const SELDOM: Duration = Duration::from_millis(250);

/// What a stream tells.
#[derive(Debug)]
pub enum News {
    Event(Event),
    /// How far the images of the sandbox have come, of which nothing is kept.
    Progress(Progress),
}

/// Tells every event after the one it was asked from, in order, and waits for more.
#[derive(Debug)]
pub struct EventStream {
    store: Store,
    sandbox: SandboxId,
    watch: Watch,
    last: Sequence,
    read: VecDeque<Event>,
    /// Whether the part that was read last was full, so that there may be more without another change.
    has_more: bool,
    /// Nothing more is to be expected of a sandbox that has come to its end.
    progress: Option<watch::Receiver<Progress>>,
    progress_from: Instant,
}

impl EventStream {
    /// Follows a sandbox. What is no longer or not yet there is refused at once.
    pub(super) async fn open(
        store: Store,
        sandbox: SandboxId,
        after: Sequence,
        progress: Option<watch::Receiver<Progress>>,
    ) -> Result<Self, SandboxError> {
        // Before the first look, so that nothing falls between the two.
        let watch = store.watch(&sandbox);
        let (read, progress_from) = (VecDeque::new(), Instant::now());
        let has_more = false;
        let mut stream =
            Self { store, sandbox, watch, last: after, read, has_more, progress, progress_from };
        stream.read_more().await?;
        Ok(stream)
    }

    /// Returns the next event, when there is one; `None` once the sandbox was forgotten.
    pub async fn next(&mut self) -> Result<Option<Event>, SandboxError> {
        loop {
            match self.next_news().await? {
                Some(News::Event(event)) => return Ok(Some(event)),
                Some(News::Progress(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// Returns the next event, or how far the images have come if that changes before.
    pub async fn next_news(&mut self) -> Result<Option<News>, SandboxError> {
        loop {
            if let Some(event) = self.read.pop_front() {
                self.last = event.sequence;
                return Ok(Some(News::Event(event)));
            }
            // What was read is not lost if this is dropped: nothing is read in here.
            select! {
                biased;
                changed = self.watch.changed(), if !self.has_more => changed?,
                () = std::future::ready(()), if self.has_more => {}
                progress = changed(&mut self.progress, self.progress_from) => {
                    self.progress_from = Instant::now() + SELDOM;
                    return Ok(Some(News::Progress(progress)));
                }
            }
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
        let events = read?.events;
        self.has_more = events.len() >= PART as usize;
        self.read.extend(events);
        Ok(())
    }
}

/// Returns the progress once it has changed, but not before a time.
async fn changed(progress: &mut Option<watch::Receiver<Progress>>, from: Instant) -> Progress {
    if let Some(progress) = progress
        && progress.changed().await.is_ok()
    {
        sleep_until(from).await;
        return progress.borrow_and_update().clone();
    }
    std::future::pending().await
}
