//! What becomes of the commands of one sandbox while they run, for those who watch them.
//!
//! The task of the sandbox tells it as its supervisor does; what was read of it is told to the supervisor,
//! which holds a command up rather than throw away what somebody still reads.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use isolate::supervisor::wire::{Stored, Wanted, Written};
use model::{exec::ExecEnd, ids::ExecId};
use tokio::{sync::watch, time::Instant};

use super::{
    attach::{Extent, Flow, Stream, Usage},
    shells::Keeper,
};

/// The commands of a sandbox that run and are watched, or may be.
#[derive(Debug, Default)]
pub(super) struct Feeds(Mutex<HashMap<ExecId, Arc<Feed>>>);

impl Feeds {
    /// Returns the feed of a command, which is made if it is not there.
    pub(super) fn open(&self, exec: &ExecId) -> Arc<Feed> {
        Arc::clone(self.all().entry(exec.clone()).or_default())
    }

    pub(super) fn find(&self, exec: &ExecId) -> Option<Arc<Feed>> {
        self.all().get(exec).cloned()
    }

    /// Tells how far a command has come.
    pub(super) fn tell(&self, exec: &ExecId, pid: Option<u32>, written: Option<Written>) {
        let Some(feed) = self.find(exec) else { return };
        feed.flow.send_modify(|flow| {
            flow.pid = pid.or(flow.pid);
            if let Some(written) = written {
                flow.extents = [extent(written.stdout), extent(written.stderr)];
            }
        });
    }

    /// Tells what a command has used in all.
    pub(super) fn tell_usage(&self, exec: &ExecId, usage: Usage) {
        if let Some(feed) = self.find(exec) {
            feed.flow.send_modify(|flow| flow.usage = usage);
        }
    }

    /// Tells how a command ended. It is in the store by now, where those find it who come later.
    pub(super) fn end(&self, exec: &ExecId, end: &ExecEnd) {
        let feed = self.all().remove(exec);
        if let Some(feed) = feed {
            feed.flow.send_modify(|flow| flow.end = Some(end.clone()));
        }
    }

    /// Opens the feed of a command that there is.
    pub(super) fn announce(&self, exec: &ExecId) -> Arc<Feed> {
        let feed = self.open(exec);
        feed.readers().is_real = true;
        feed
    }

    /// Forgets a feed that was opened for a command that there is not, once nobody holds it.
    pub(super) fn forget_unreal(&self, exec: &ExecId) {
        let mut all = self.all();
        let is_unreal = |feed: &Feed| !feed.readers().is_real && *feed.attended.borrow() == 0;
        if all.get(exec).is_some_and(|feed| is_unreal(feed)) {
            all.remove(exec);
        }
    }

    /// Returns when no client will have been attached to a running command for so long, if one ever was.
    pub(super) fn unused_for(&self, time: Duration) -> Option<Instant> {
        let last = self.all().values().filter_map(|feed| feed.last_attended()).max();
        last.and_then(|last| last.checked_add(time))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<ExecId, Arc<Feed>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn extent(stored: Stored) -> Extent {
    Extent { start: stored.start, end: stored.end, lost: stored.lost }
}

/// One command that runs.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) flow: watch::Sender<Flow>,
    /// How many watch it.
    pub(super) attended: watch::Sender<usize>,
    /// For how many of them it waits.
    pub(super) awaited: watch::Sender<usize>,
    readers: Mutex<Readers>,
    /// Of a shell, once somebody keeps its screen.
    pub(super) keeper: OnceLock<Arc<Keeper>>,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            flow: watch::Sender::new(Flow::default()),
            attended: watch::Sender::new(0),
            awaited: watch::Sender::new(0),
            readers: Mutex::default(),
            keeper: OnceLock::new(),
        }
    }
}

/// Those for whom a command is held up.
#[derive(Debug, Default)]
struct Readers {
    last: u64,
    wanted: BTreeMap<u64, Wanted>,
    /// What those still wanted who have gone, and may come back.
    left: Option<Wanted>,
    told: Option<Wanted>,
    is_minded: bool,
    is_held: bool,
    /// Whether there is such a command.
    is_real: bool,
    /// When the last client left.
    left_at: Option<Instant>,
}

/// What part of that which is kept has to be read before the supervisor is told.
const PART: u64 = 8;

/// What part of it stays behind what was read: it may be on its way to a client that is cut off and
/// comes back for it.
const ON_ITS_WAY: u64 = 4;

impl Feed {
    /// Counts one more who watches. Returns its number.
    pub(super) fn attend(&self) -> u64 {
        self.attended.send_modify(|attended| *attended += 1);
        self.number()
    }

    /// Returns when a client was last attached: now, if one is.
    fn last_attended(&self) -> Option<Instant> {
        if *self.attended.borrow() > 0 { Some(Instant::now()) } else { self.readers().left_at }
    }

    /// Returns the number of somebody who reads and does not count among those who watch.
    pub(super) fn number(&self) -> u64 {
        let mut readers = self.readers();
        readers.last += 1;
        readers.last
    }

    /// Whoever watched by this number does so no more. What it wanted is kept for a while.
    pub(super) fn leave(&self, reader: u64) {
        let mut readers = self.readers();
        if let Some(wanted) = readers.wanted.remove(&reader) {
            readers.left = Some(readers.left.map_or(wanted, |left| least(left, wanted)));
        }
        self.awaited.send_replace(readers.wanted.len());
        readers.left_at = Some(Instant::now());
        drop(readers);
        self.attended.send_modify(|attended| *attended = attended.saturating_sub(1));
    }

    /// Notes from where on a reader wants a stream, and has the supervisor told if that makes a
    /// difference. Returns whether it knows: what could not be told now has to be told again.
    pub(super) fn want(
        &self,
        reader: u64,
        (stream, from): (Stream, u64),
        kept: u64,
        tell: impl FnOnce(Wanted) -> bool,
    ) -> bool {
        let mut readers = self.readers();
        let from = from.saturating_sub(kept / ON_ITS_WAY);
        let wanted = readers.wanted.entry(reader).or_default();
        match stream {
            Stream::Stdout => wanted.stdout = from,
            Stream::Stderr => wanted.stderr = from,
        }
        // Who has gone is taken to be this one again.
        readers.left = None;
        let awaited = readers.wanted.len();
        self.awaited.send_if_modified(|before| std::mem::replace(before, awaited) != awaited);
        let Some(all) = readers.wanted.values().copied().reduce(least) else { return true };
        let is_news = readers.told.is_none_or(|told| {
            let step = kept / PART;
            all.stdout.abs_diff(told.stdout) >= step || all.stderr.abs_diff(told.stderr) >= step
        });
        let is_known = !is_news || tell(all);
        if is_news && is_known {
            readers.told = Some(all);
        }
        is_known
    }

    /// Whether the supervisor may hold the command up for somebody.
    pub(super) fn is_held(&self) -> bool {
        let readers = self.readers();
        readers.told.is_some() || readers.is_held
    }

    /// The supervisor holds the command up, from its beginning or because another server has said so.
    pub(super) fn hold(&self) {
        self.readers().is_held = true;
    }

    /// Nobody who has gone comes back. Returns whether the supervisor is to be told that nobody wants
    /// anything.
    pub(super) fn forget_the_gone(&self) -> bool {
        let mut readers = self.readers();
        readers.left = None;
        if !readers.wanted.is_empty() {
            return false;
        }
        readers.told = None;
        readers.is_held = false;
        true
    }

    /// Returns whether somebody minds it from now on who was not there before.
    pub(super) fn mind(&self) -> bool {
        !std::mem::replace(&mut self.readers().is_minded, true)
    }

    fn readers(&self) -> MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn least(one: Wanted, other: Wanted) -> Wanted {
    Wanted { stdout: one.stdout.min(other.stdout), stderr: one.stderr.min(other.stderr) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 1000;
    const KEPT: u64 = STEP * PART;
    const BEHIND: u64 = KEPT / ON_ITS_WAY;

    #[test]
    fn the_slowest_reader_counts_until_it_has_been_gone_for_good() {
        let feed = Feed::default();
        let (slow, fast) = (feed.attend(), feed.attend());
        let told = std::cell::Cell::new(None);
        let want = |reader, from| {
            told.set(None);
            feed.want(reader, (Stream::Stdout, from + BEHIND), KEPT, |wanted| {
                told.set(Some(wanted.stdout));
                true
            });
            told.get()
        };
        assert_eq!(want(slow, 0), Some(0));
        assert_eq!(want(fast, 3 * STEP), None);
        assert_eq!(want(slow, STEP), Some(STEP));
        assert_eq!(want(slow, STEP + 1), None);
        feed.leave(slow);
        assert!(!feed.forget_the_gone());
        assert_eq!(want(fast, 3 * STEP), Some(3 * STEP));
        feed.leave(fast);
        assert_eq!(*feed.attended.borrow(), 0);
        assert!(feed.is_held());
        assert!(feed.forget_the_gone());
        assert!(!feed.is_held());
    }

    #[test]
    fn what_could_not_be_told_is_told_the_next_time() {
        let feed = Feed::default();
        let reader = feed.attend();
        assert!(!feed.want(reader, (Stream::Stderr, 0), KEPT, |_| false));
        let mut wanted = None;
        let at = (Stream::Stderr, BEHIND + 5);
        assert!(feed.want(reader, at, KEPT, |all| wanted.replace(all).is_none()));
        assert_eq!(wanted, Some(Wanted { stdout: 0, stderr: 5 }));
    }
}
