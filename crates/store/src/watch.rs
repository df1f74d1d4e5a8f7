//! Wake-ups: who follows a sandbox is told that there is more, after it was committed. What there
//! is, he reads from the store, so that a wake-up that is lost or doubled loses and doubles nothing.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use model::{event::Sequence, ids::SandboxId};
use tokio::sync::watch;

use crate::StoreError;

/// Follows one sandbox. To miss nothing: watch, read events, then await the change, read again.
#[derive(Debug)]
pub struct Watch {
    sandbox: SandboxId,
    receiver: watch::Receiver<Sequence>,
    wakeups: Wakeups,
}

impl Watch {
    /// Returns after the next commit about the sandbox, at once if there was one since the last
    /// call. Now and then it returns for nothing.
    pub async fn changed(&mut self) -> Result<(), StoreError> {
        self.receiver.changed().await.map_err(|_closed| StoreError::Closed)
    }

    /// Returns the last event that was told of; zero if none was since the watch began.
    pub fn latest(&self) -> Sequence {
        *self.receiver.borrow()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.wakeups.leave(&self.sandbox);
    }
}

/// Who follows what. One slot for each sandbox that is followed, whatever the number of followers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wakeups(Arc<Mutex<Followed>>);

#[derive(Debug, Default)]
struct Followed {
    senders: HashMap<SandboxId, watch::Sender<Sequence>>,
    closed: bool,
}

impl Wakeups {
    pub(crate) fn watch(&self, sandbox: SandboxId) -> Watch {
        let mut followed = self.lock();
        let receiver = if followed.closed {
            // Its sender is gone already, which is what tells that the store is closed.
            watch::channel(Sequence::ZERO).1
        } else {
            let sender = followed.senders.entry(sandbox.clone()).or_default();
            sender.subscribe()
        };
        drop(followed);
        Watch { sandbox, receiver, wakeups: self.clone() }
    }

    pub(crate) fn wake(&self, sandbox: &SandboxId, latest: Sequence) {
        if let Some(sender) = self.lock().senders.get(sandbox) {
            sender.send_modify(|known| *known = latest.max(*known));
        }
    }

    /// Wakes everybody: something may have been missed.
    pub(crate) fn wake_all(&self) {
        for sender in self.lock().senders.values() {
            sender.send_modify(|_known| {});
        }
    }

    pub(crate) fn close(&self) {
        let mut followed = self.lock();
        followed.closed = true;
        followed.senders.clear();
    }

    fn leave(&self, sandbox: &SandboxId) {
        let mut followed = self.lock();
        // The one that leaves is still counted.
        if followed.senders.get(sandbox).is_some_and(|sender| sender.receiver_count() <= 1) {
            followed.senders.remove(sandbox);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Followed> {
        // The map is whole after every step, so a panic elsewhere does not make it wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn followers_are_waked_and_leave_nothing_behind() {
        let wakeups = Wakeups::default();
        let (one, other) = (SandboxId::from_random([1; 16]), SandboxId::from_random([2; 16]));
        let mut first = wakeups.watch(one.clone());
        let mut second = wakeups.watch(one.clone());
        wakeups.wake(&other, Sequence(9));
        wakeups.wake(&one, Sequence(3));
        wakeups.wake(&one, Sequence(2));
        first.changed().await.unwrap();
        second.changed().await.unwrap();
        assert_eq!((first.latest(), second.latest()), (Sequence(3), Sequence(3)));
        drop(first);
        assert_eq!(wakeups.lock().senders.len(), 1);
        wakeups.wake_all();
        second.changed().await.unwrap();
        drop(second);
        assert_eq!(wakeups.lock().senders.len(), 0);
    }

    #[tokio::test]
    async fn a_closed_store_ends_every_watch() {
        let wakeups = Wakeups::default();
        let mut before = wakeups.watch(SandboxId::from_random([1; 16]));
        wakeups.close();
        let mut after = wakeups.watch(SandboxId::from_random([1; 16]));
        assert!(matches!(before.changed().await, Err(StoreError::Closed)));
        assert!(matches!(after.changed().await, Err(StoreError::Closed)));
    }
}
