//! Output: read in order, counted to the byte, cut exactly at the limit.

use std::{
    os::fd::AsFd,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use model::execution::Stream;
use tokio::{
    io::AsyncReadExt as _,
    net::unix::pipe,
    sync::{Notify, mpsc},
};

use crate::executions::Event;

/// The most that is read at once.
const CHUNK: usize = 64 * 1024;

/// What a waiting event may keep of its buffer beyond its content.
const SMALL: usize = 4 * 1024;

/// How many bytes the two streams may still bring, together.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    /// Everything that was read, also what is beyond the limit.
    read: AtomicU64,
    passed: Notify,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, read: AtomicU64::new(0), passed: Notify::new() }
    }

    /// Takes as many of these bytes as there is room for.
    fn take(&self, wanted: usize) -> usize {
        let wanted_bytes = wanted as u64;
        let before = self.read.fetch_add(wanted_bytes, Ordering::Relaxed);
        let room = self.limit.saturating_sub(before);
        if wanted_bytes <= room {
            return wanted;
        }
        self.passed.notify_one();
        usize::try_from(room).unwrap_or(wanted)
    }

    /// Returns when the limit was passed.
    pub(super) async fn is_spent(&self) {
        while !self.was_passed() {
            self.passed.notified().await;
        }
    }

    pub(super) fn was_passed(&self) -> bool {
        self.read.load(Ordering::Relaxed) > self.limit
    }

    pub(super) fn used(&self) -> u64 {
        self.read.load(Ordering::Relaxed).min(self.limit)
    }
}

/// Whether a program has written everything, although its pipes are still open.
#[derive(Debug, Default)]
pub(super) struct LastWords {
    are_written: AtomicBool,
    notify: Notify,
}

impl LastWords {
    pub(super) fn are_written(&self) {
        self.are_written.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    async fn wait(&self) {
        let notified = self.notify.notified();
        if !self.are_written.load(Ordering::Acquire) {
            notified.await;
        }
    }
}

/// Hands on what comes down one pipe, until its end or the limit. While the client does not take
/// what is there already, nothing is read, and the program waits.
pub(super) async fn pump(
    stream: Stream,
    mut pipe: pipe::Receiver,
    budget: &Budget,
    events: &mpsc::Sender<Event>,
    last_words: &LastWords,
) {
    loop {
        let Ok(room) = events.reserve().await else { return };
        let mut data = Vec::with_capacity(CHUNK);
        let read = tokio::select! {
            biased;
            read = pipe.read_buf(&mut data) => read.unwrap_or_default(),
            // The runtime may not have heard yet of what is in the pipe, so we look ourselves.
            () = last_words.wait() => {
                rustix::io::read(pipe.as_fd(), rustix::buffer::spare_capacity(&mut data))
                    .unwrap_or_default()
            }
        };
        if read == 0 {
            return;
        }
        let taken = budget.take(read);
        data.truncate(taken);
        data.shrink_to(SMALL);
        if !data.is_empty() {
            room.send(Event::Output { stream, data });
        }
        if taken < read {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_cut_at_the_byte() {
        let budget = Budget::new(10);
        assert_eq!((budget.take(4), budget.take(6), budget.was_passed()), (4, 6, false));
        assert_eq!((budget.take(1), budget.was_passed(), budget.used()), (0, true, 10));
    }

    #[test]
    fn what_goes_over_the_limit_is_given_in_part() {
        let budget = Budget::new(10);
        assert_eq!((budget.take(25), budget.used()), (10, 10));
    }
}
