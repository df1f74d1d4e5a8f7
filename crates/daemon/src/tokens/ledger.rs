//! What is known about the ends of tokens, in memory: it is asked with every request, and by every
//! stream when it changes.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{PoisonError, RwLock, RwLockWriteGuard},
};

use model::{
    actor::Actor,
    ids::SandboxId,
    revocation::{EndedKeys, Revocation, Standing, Successor},
    token::{Claims, Epoch},
    units::Timestamp,
};
use tokio::sync::watch;

/// Streams of so many groups of sandboxes are woken apart from each other.
const BELLS: usize = 64;
/// Below this many sandboxes nothing is gained by forgetting.
const FEW: usize = 1024;

#[derive(Debug)]
pub(super) struct Ledger {
    known: RwLock<Known>,
    bells: [watch::Sender<()>; BELLS],
}

#[derive(Debug)]
struct Known {
    standings: HashMap<SandboxId, Standing>,
    keys: EndedKeys,
    /// When so many are known, those are looked for of which nothing is left.
    tidy_at: usize,
}

impl Default for Ledger {
    fn default() -> Self {
        let known = Known { standings: HashMap::new(), keys: EndedKeys::default(), tidy_at: FEW };
        Self { known: RwLock::new(known), bells: [(); BELLS].map(|()| watch::Sender::new(())) }
    }
}

impl Ledger {
    pub(super) fn epoch_of(&self, sandbox: &SandboxId) -> Epoch {
        self.with(sandbox, |standing| standing.map_or(Epoch::FIRST, |standing| standing.epoch))
    }

    /// Returns from when on a token is worth nothing, if that is before its end.
    pub(super) fn ends_at(&self, id: &str, claims: &Claims) -> Option<Timestamp> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.keys.contains(&claims.key) {
            return Some(Timestamp::from_millis(i64::MIN));
        }
        known.standings.get(&claims.sandbox)?.ends_at(id, claims)
    }

    pub(super) fn successor(&self, sandbox: &SandboxId, id: &str) -> Option<Successor> {
        self.with(sandbox, |standing| standing?.successor(id).cloned())
    }

    /// Returns from when on a token for this actor is not among those that were ended.
    pub(super) fn first_after(&self, sandbox: &SandboxId, actor: &Actor) -> Option<Timestamp> {
        self.with(sandbox, |standing| standing?.first_after(actor))
    }

    pub(super) fn raise(&self, sandbox: &SandboxId, epoch: Epoch, now: Timestamp) {
        self.change(sandbox, now, |standing| standing.raise(epoch));
    }

    pub(super) fn add(&self, revocation: Revocation, now: Timestamp) {
        let sandbox = revocation.sandbox.clone();
        self.change(&sandbox, now, |standing| standing.add(revocation));
    }

    /// Takes note that these keys were revoked, and when.
    pub(super) fn end_keys(&self, keys: &[(&str, Timestamp)], now: Timestamp) {
        let mut known = self.write();
        for (key, revoked_at) in keys {
            known.keys.add(key, *revoked_at);
        }
        known.keys.tidy(now);
        drop(known);
        self.ring_all();
    }

    /// Wakes everybody: what has happened is about no one sandbox.
    pub(super) fn ring_all(&self) {
        for bell in &self.bells {
            bell.send_replace(());
        }
    }

    /// Takes over what was read from the store.
    pub(super) fn absorb(&self, sandbox: &SandboxId, read: Standing, now: Timestamp) {
        self.change(sandbox, now, |standing| standing.absorb(read));
    }

    /// Returns what is rung when something happens to the tokens of a sandbox, and now and then when
    /// it happens to others. What happened before this call is not rung.
    pub(super) fn bell(&self, sandbox: &SandboxId) -> watch::Receiver<()> {
        self.sender(sandbox).subscribe()
    }

    fn with<T>(&self, sandbox: &SandboxId, ask: impl FnOnce(Option<&Standing>) -> T) -> T {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        ask(known.standings.get(sandbox))
    }

    fn change(&self, sandbox: &SandboxId, now: Timestamp, act: impl FnOnce(&mut Standing)) {
        let mut known = self.write();
        let standing = known.standings.entry(sandbox.clone()).or_default();
        standing.tidy(now);
        act(standing);
        if known.standings.len() >= known.tidy_at {
            known.standings.retain(|_, standing| {
                standing.tidy(now);
                !standing.is_plain()
            });
            known.tidy_at = (2 * known.standings.len()).max(FEW);
        }
        drop(known);
        self.sender(sandbox).send_replace(());
    }

    fn sender(&self, sandbox: &SandboxId) -> &watch::Sender<()> {
        let mut hasher = DefaultHasher::new();
        sandbox.hash(&mut hasher);
        let count = u64::try_from(BELLS).unwrap_or(1);
        let index = usize::try_from(hasher.finish() % count).unwrap_or_default();
        let [first, ..] = &self.bells;
        self.bells.get(index).unwrap_or(first)
    }

    /// No code panics while it holds the lock, so a poisoned one is as good as any.
    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn sandbox(number: u32) -> SandboxId {
        let mut random = [0; 16];
        random[..4].copy_from_slice(&number.to_be_bytes());
        SandboxId::from_random(random)
    }

    #[test]
    fn what_is_over_is_forgotten_and_epochs_are_not() {
        let ledger = Ledger::default();
        let count = || ledger.known.read().unwrap().standings.len();
        ledger.raise(&sandbox(0), Epoch(2), at(0));
        for number in 1..=20_000 {
            // Four seconds apart: no token lives for longer than an hour.
            let now = at(4 * i64::from(number));
            ledger.add(Revocation::of_token(&sandbox(number), "tok_1", now), now);
            assert!(count() <= 3 * FEW, "{}", count());
        }
        assert_eq!(ledger.epoch_of(&sandbox(0)), Epoch(2));
        assert_eq!(ledger.epoch_of(&sandbox(20_000)), Epoch::FIRST);
    }

    #[tokio::test]
    async fn whoever_waits_is_told() {
        let ledger = Ledger::default();
        let mut bell = ledger.bell(&sandbox(1));
        ledger.raise(&sandbox(1), Epoch(2), at(0));
        bell.changed().await.unwrap();
        ledger.raise(&sandbox(1), Epoch(1), at(0));
        assert_eq!(ledger.epoch_of(&sandbox(1)), Epoch(2));
    }
}
