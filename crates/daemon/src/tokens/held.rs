//! A genuine token in somebody's hand, as long as it lasts.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use model::{
    token::{Claims, Epoch, LEEWAY},
    units::Timestamp,
};
use tokio::select;

use super::Tokens;
use crate::clock;

/// A genuine token, and what became of it since it was shown.
pub struct Held {
    tokens: Tokens,
    claims: Claims,
    epoch: Epoch,
    /// The first master key that was good when it was shown.
    floor: u32,
    /// The token whose life counts now: this one, or the one that took over its streams.
    counts: Mutex<Counts>,
}

#[derive(Clone)]
struct Counts {
    id: String,
    expires_at: Timestamp,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.claims.id).finish()
    }
}

impl Held {
    pub(super) fn new(tokens: Tokens, claims: Claims, epoch: Epoch, floor: u32) -> Self {
        let counts = Counts { id: claims.id.clone(), expires_at: claims.expires_at };
        Self { tokens, claims, epoch, floor, counts: Mutex::new(counts) }
    }

    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Returns when it ends by itself.
    pub fn expires_at(&self) -> Timestamp {
        self.counts().expires_at
    }

    /// Tells whether it has ended by itself.
    pub fn is_over(&self) -> bool {
        self.claims.expires_at.plus(LEEWAY) < clock::timestamp()
    }

    /// Tells whether somebody has put an end to it.
    pub fn is_revoked(&self) -> bool {
        self.revoked_at().is_some_and(|end| end <= clock::timestamp())
    }

    /// Returns when somebody has put an end to it.
    pub async fn until_revoked(&self) {
        loop {
            // Before the question, so that what happens after it is heard.
            let mut bell = self.tokens.inner.ledger.bell(&self.claims.sandbox);
            self.follow();
            let rung = async {
                if bell.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            match self.revoked_at() {
                Some(end) => select! {
                    () = clock::until(|| end) => return,
                    () = rung => {}
                },
                None => rung.await,
            }
        }
    }

    fn revoked_at(&self) -> Option<Timestamp> {
        let ledger = &self.tokens.inner.ledger;
        let is_of_old_keys = ledger.epoch_of(&self.claims.sandbox) != self.epoch
            || self.tokens.inner.masters.floor() != self.floor;
        if is_of_old_keys {
            return Some(Timestamp::from_millis(i64::MIN));
        }
        ledger.ends_at(&self.counts().id, &self.claims)
    }

    /// Goes on with the token that took over, as often as there was one.
    fn follow(&self) {
        let mut counts = self.counts();
        while let Some(next) = self.tokens.inner.ledger.successor(&self.claims.sandbox, &counts.id)
        {
            // Nothing takes over from what has ended already.
            let end = self.tokens.inner.ledger.ends_at(&counts.id, &self.claims);
            if end.is_some_and(|end| end <= clock::timestamp()) || next.id == counts.id {
                break;
            }
            counts = Counts { id: next.id, expires_at: next.expires_at };
        }
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
