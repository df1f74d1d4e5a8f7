//! The server's own keys, from which those of sandboxes are derived: the one that signs, and those before
//! it that still verify what was signed with them.
//!
//! Each has a number, which is part of `kid` from the second on. They are together in one file, so that a
//! change of the key is one step. A change leaves the key before in use until all has ended that has an
//! end of at most a day; one in an emergency leaves nothing.

mod file;

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use aws_lc_rs::{
    hkdf::{HKDF_SHA256, Prk, Salt},
    hmac::{self, HMAC_SHA256},
};
use model::{ids::SandboxId, token::Epoch, units::Timestamp};

use super::Tokens;
use crate::{
    clock,
    key_file::{self, KeyFileError},
    keys::{KeyError, random},
};
pub(super) use file::{Kept, open};

/// Keeps these keys apart from all others that may be derived from the same master key.
const PURPOSE: &[u8] = b"ringfence sandbox token";
/// How long the key before is good for: the longest of what is signed with it lasts that long, but for links
/// to files, which may be for ever.
const OVERLAP: Duration = Duration::from_hours(24);
/// How many may be good at once. All of them are tried with what does not say which it is of.
const MOST: usize = 4;

/// Whether what was signed before stays good for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// For a day; everything ends by itself meanwhile.
    Day,
    /// The key before is not to be trusted any more: all ends at once.
    None,
}

/// What a change of the key came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The number of the key that signs from now on.
    pub number: u32,
    /// Until when the key before verifies.
    pub previous_until: Option<Timestamp>,
}

/// Why the key is not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("{MOST} keys are in use; the first of them retires at {}", clock::text((*until).into()))]
    TooMany { until: Timestamp },
    #[error(transparent)]
    File(#[from] KeyFileError),
    #[error(transparent)]
    Random(#[from] KeyError),
    #[error("the task that changes the key broke off")]
    BrokeOff,
}

/// The keys that something was signed with: what was signed with others before is worth nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyAge {
    epoch: Epoch,
    /// The first master key that is good, whatever it is asked for.
    floor: u32,
}

impl KeyAge {
    /// Before anything has changed.
    pub(crate) const FIRST: Self = Self { epoch: Epoch::FIRST, floor: 0 };
}

#[derive(Clone)]
struct Master {
    number: u32,
    key: Prk,
    until: Option<Timestamp>,
}

impl Master {
    fn of(kept: &Kept) -> Self {
        let key = Salt::new(HKDF_SHA256, PURPOSE).extract(&kept.key);
        Self { number: kept.number, key, until: kept.until }
    }

    fn is_good(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    fn derive(&self, info: &[&[u8]]) -> hmac::Key {
        // It fails if more than 255 blocks are asked for, and one is.
        let derived = self.key.expand(info, HMAC_SHA256);
        derived.expect("one block can always be derived").into()
    }
}

/// All keys of the server, in memory; the file behind them.
pub(super) struct Masters {
    known: RwLock<Known>,
    /// Without one, keys are known until the process ends.
    file: Option<PathBuf>,
    /// One change at a time.
    turn: Mutex<()>,
}

#[derive(Clone)]
struct Known {
    /// The one that signs.
    first: Master,
    older: Vec<Master>,
    /// What was signed with one before this has ended in an emergency.
    floor: u32,
}

impl fmt::Debug for Masters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Masters(…)")
    }
}

impl Masters {
    pub(super) fn new(first: &Kept, older: &[Kept], file: Option<PathBuf>) -> Self {
        let older = older.iter().map(Master::of).collect();
        let known = Known { first: Master::of(first), older, floor: 0 };
        Self { known: RwLock::new(known), file, turn: Mutex::default() }
    }

    /// Returns one key, which is known until the process ends.
    pub(super) fn of(key: &[u8; key_file::LENGTH]) -> Self {
        Self::new(&Kept::first(*key), &[], None)
    }

    /// Returns the number of the key that signs.
    pub(super) fn signing(&self) -> u32 {
        self.read(|known| known.first.number)
    }

    /// Returns the key of a sandbox that signs, and the number of the master key that it is derived from.
    pub(super) fn newest_of(&self, sandbox: &SandboxId, epoch: u32) -> (u32, hmac::Key) {
        let info = [sandbox.as_str().as_bytes(), &epoch.to_be_bytes()];
        self.read(|known| (known.first.number, known.first.derive(&info)))
    }

    /// Returns the key of a sandbox, if it is derived from a master key that is good now.
    pub(super) fn of_sandbox(
        &self,
        number: u32,
        sandbox: &SandboxId,
        epoch: u32,
        now: Timestamp,
    ) -> Option<hmac::Key> {
        let info = [sandbox.as_str().as_bytes(), &epoch.to_be_bytes()];
        self.read(|known| known.numbered(number, now).map(|master| master.derive(&info)))
    }

    pub(super) fn is_good(&self, number: u32, now: Timestamp) -> bool {
        self.read(|known| known.numbered(number, now).is_some())
    }

    /// Returns the key that signs what is said here.
    pub(super) fn first(&self, info: &[&[u8]]) -> hmac::Key {
        self.read(|known| known.first.derive(info))
    }

    /// Returns all that may have signed what is said here, the last first.
    pub(super) fn all(&self, info: &[&[u8]], now: Timestamp) -> Vec<hmac::Key> {
        self.read(|known| {
            let older = known.older.iter().filter(|master| master.is_good(now));
            [&known.first].into_iter().chain(older).map(|master| master.derive(info)).collect()
        })
    }

    pub(super) fn floor(&self) -> u32 {
        self.read(|known| known.floor)
    }

    /// Changes the key: on disk first, then in memory.
    fn change(&self, overlap: Overlap, now: Timestamp) -> Result<Changed, ChangeError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.read(Clone::clone);
        let number = known.first.number.saturating_add(1);
        let new = Kept { number, key: random::<{ key_file::LENGTH }>()?, until: None };
        let previous_until = match overlap {
            Overlap::Day => Some(now.plus(OVERLAP)),
            Overlap::None => None,
        };
        let next = known.followed_by(Master::of(&new), previous_until, now)?;
        if let Some(path) = &self.file {
            file::add(path, &new, previous_until, now)?;
        }
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(Changed { number: new.number, previous_until })
    }

    fn read<T>(&self, ask: impl FnOnce(&Known) -> T) -> T {
        // No code panics while it holds the lock, so a poisoned one is as good as any.
        ask(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Known {
    fn numbered(&self, number: u32, now: Timestamp) -> Option<&Master> {
        if self.first.number == number {
            return Some(&self.first);
        }
        self.older.iter().find(|master| master.number == number && master.is_good(now))
    }

    /// Puts another key first.
    fn followed_by(
        self,
        first: Master,
        previous_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Self, ChangeError> {
        let Some(until) = previous_until else {
            return Ok(Self { floor: first.number, first, older: Vec::new() });
        };
        let mut older = vec![Master { until: Some(until), ..self.first }];
        older.extend(self.older.into_iter().filter(|master| master.is_good(now)));
        let first_to_retire = older.iter().filter_map(|master| master.until).min();
        match first_to_retire {
            Some(until) if older.len() >= MOST => Err(ChangeError::TooMany { until }),
            Some(_) | None => Ok(Self { first, older, floor: self.floor }),
        }
    }
}

impl Tokens {
    /// Gives the server another key, by which all is signed from now on. With an overlap, what was signed before
    /// goes on until its end; without one nothing of it opens anything when this returns, and what it had
    /// opened closes. Sandboxes stay as they are.
    pub async fn change_master(&self, overlap: Overlap) -> Result<Changed, ChangeError> {
        let inner = Arc::clone(&self.inner);
        // The file is on disk when it returns, which may take a while.
        let changing =
            tokio::task::spawn_blocking(move || inner.masters.change(overlap, clock::timestamp()));
        let changed = changing.await.map_err(|_panic| ChangeError::BrokeOff)??;
        if overlap == Overlap::None {
            self.forget_keys();
            self.inner.ledger.ring_all();
        }
        tracing::info!(number = changed.number, ?overlap, "the server has another key");
        Ok(changed)
    }

    /// Returns which keys of a sandbox, and of the server, are in use.
    pub(crate) fn age_of(&self, sandbox: &SandboxId) -> KeyAge {
        KeyAge { epoch: self.epoch_of(sandbox), floor: self.inner.masters.floor() }
    }
}

#[cfg(test)]
mod tests;
