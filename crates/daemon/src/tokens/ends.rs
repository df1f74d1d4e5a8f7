//! Ends of tokens before their time: kept first, then known, then heard by whoever streams.

use std::time::Duration;

use model::{
    actor::Actor,
    ids::SandboxId,
    revocation::{Revocation, Standing},
    token::{Claims, Epoch},
    units::Timestamp,
};
use store::{Store, StoreError, tokens::Changed};

use super::{Tokens, masters::KeyAge};
use crate::clock;

impl Tokens {
    /// Gives a sandbox another key. When this returns no token of the sandbox opens anything, nor does
    /// a preview, and what they had opened closes. The sandbox stays as it is.
    pub async fn rotate(&self, sandbox: &SandboxId) -> Result<Epoch, StoreError> {
        let epoch = match &self.inner.store {
            Some(store) => store.rotate_key(sandbox).await?,
            None => Epoch(self.epoch_of(sandbox).0.saturating_add(1)),
        };
        self.inner.ledger.raise(sandbox, epoch, clock::timestamp());
        tracing::info!(%sandbox, epoch = epoch.0, "key of a sandbox rotated");
        Ok(epoch)
    }

    /// Ends one token, and those that were made of it.
    pub async fn revoke(&self, sandbox: &SandboxId, id: &str) -> Result<(), StoreError> {
        self.end(Revocation::of_token(sandbox, id, clock::timestamp())).await?;
        tracing::info!(token = id, %sandbox, "token revoked");
        Ok(())
    }

    /// Ends all tokens that an actor has for a sandbox now.
    pub async fn revoke_actor(&self, sandbox: &SandboxId, actor: &Actor) -> Result<(), StoreError> {
        self.end(Revocation::of_actor(sandbox, actor, clock::timestamp())).await?;
        tracing::info!(actor = actor.id, %sandbox, "tokens of an actor revoked");
        Ok(())
    }

    /// Ends a token after a while, because its holder has got another. Its streams go on with that one
    /// at once, if it lets them do as much; else they end with it.
    pub async fn revoke_after(
        &self,
        old: &Claims,
        new: &Claims,
        after: Duration,
    ) -> Result<(), StoreError> {
        self.end(Revocation::of_replaced(old, new, clock::timestamp(), after)).await?;
        tracing::info!(token = old.id, successor = new.id, sandbox = %old.sandbox, "token replaced");
        Ok(())
    }

    /// Ends all that was given out with an API key, which was revoked just now: tokens, those that were
    /// made of them, and what they have opened. That the key is revoked is kept by whoever revokes it.
    pub fn end_key(&self, key: &str) {
        let now = clock::timestamp();
        self.inner.ledger.end_keys(&[(key, now)], now);
        tracing::info!(key, "what was given out with a key has ended");
    }

    async fn end(&self, revocation: Revocation) -> Result<(), StoreError> {
        let now = clock::timestamp();
        if let Some(store) = &self.inner.store {
            store.revoke_tokens(revocation.clone(), now).await?;
        }
        self.inner.ledger.add(revocation, now);
        Ok(())
    }

    /// Returns when a sandbox, or the server, has another key than this.
    pub(crate) async fn until_rotated(&self, sandbox: &SandboxId, age: KeyAge) {
        loop {
            // Before the question, so that what happens after it is heard.
            let mut bell = self.inner.ledger.bell(sandbox);
            if self.age_of(sandbox) != age {
                return;
            }
            if bell.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Takes note of what others do who share the store, for as long as this is polled.
    pub(crate) async fn follow(&self) {
        let Some(store) = &self.inner.store else { return };
        let mut changes = store.follow_tokens();
        // What was done since the start is among it.
        let mut changed = Ok(Changed::Everything);
        loop {
            let read = match changed {
                Ok(Changed::Everything) => self.read_all(store).await,
                Ok(Changed::Sandbox(sandbox)) => {
                    store.standing(&sandbox).await.map(|standing| vec![(sandbox, standing)])
                }
                Err(StoreError::Closed) => return,
                Err(error) => Err(error),
            };
            match read {
                Ok(standings) => self.absorb(standings),
                // The next connection begins with everything.
                Err(error) => tracing::warn!(%error, "cannot read what was done to tokens"),
            }
            changed = changes.next().await;
        }
    }

    /// Returns what is kept about tokens; what is kept about keys is taken note of.
    pub(super) async fn read_all(
        &self,
        store: &Store,
    ) -> Result<Vec<(SandboxId, Standing)>, StoreError> {
        let keys = store.keys().await?;
        let revoked = keys.iter().filter_map(|(key, _)| Some((key, key.revoked_at?)));
        let revoked: Vec<_> =
            revoked.map(|(key, at)| (key.id.0.as_str(), Timestamp::from(at))).collect();
        self.inner.ledger.end_keys(&revoked, clock::timestamp());
        store.standings().await
    }

    pub(super) fn absorb(&self, read: Vec<(SandboxId, Standing)>) {
        let now = clock::timestamp();
        for (sandbox, standing) in read {
            self.inner.ledger.absorb(&sandbox, standing, now);
        }
    }
}
