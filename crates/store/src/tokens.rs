//! What is kept about tokens of sandboxes: the epochs of keys, which tokens end before their time,
//! and those that say nothing by themselves.

use model::{
    actor::{Actor, ActorKind},
    ids::SandboxId,
    revocation::{Revocation, Standing, Subject, Successor},
    token::Epoch,
    units::Timestamp,
};
use tokio::sync::broadcast;

use crate::{StoreError, keys::KeyHash};

/// A token of which only the hash of its text is kept, and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpaqueToken {
    pub hash: KeyHash,
    pub sandbox: SandboxId,
    /// The epoch of the sandbox's key when it was given out.
    pub epoch: Epoch,
    /// What it says, as its issuer has written it.
    pub claims: String,
    /// When it has ended for everybody.
    pub keep_until: Timestamp,
}

/// About whose tokens there is something new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    Sandbox(SandboxId),
    /// Something may have been missed.
    Everything,
}

/// Follows what happens to tokens, whoever it is done by. To miss nothing: follow, read, then await
/// the change, read again.
#[derive(Debug)]
pub struct Changes(broadcast::Receiver<Changed>);

impl Changes {
    /// Returns after the next commit about tokens. Now and then it returns for nothing.
    pub async fn next(&mut self) -> Result<Changed, StoreError> {
        match self.0.recv().await {
            Ok(changed) => Ok(changed),
            Err(broadcast::error::RecvError::Lagged(_)) => Ok(Changed::Everything),
            Err(broadcast::error::RecvError::Closed) => Err(StoreError::Closed),
        }
    }
}

/// Who follows tokens. One that is slow reads everything once more.
#[derive(Clone, Debug)]
pub(crate) struct Followers(broadcast::Sender<Changed>);

/// Changes that a follower may be behind.
const BEHIND: usize = 256;

impl Default for Followers {
    fn default() -> Self {
        Self(broadcast::channel(BEHIND).0)
    }
}

impl Followers {
    pub(crate) fn follow(&self) -> Changes {
        Changes(self.0.subscribe())
    }

    pub(crate) fn tell(&self, changed: Changed) {
        // Nobody need follow.
        let _ = self.0.send(changed);
    }
}

/// One row about an end, in every backend.
pub(crate) struct Row {
    pub(crate) sandbox: String,
    pub(crate) kind: String,
    pub(crate) subject: String,
    pub(crate) ends_at: i64,
    pub(crate) keep_until: i64,
    pub(crate) successor: Option<String>,
    pub(crate) successor_ends: Option<i64>,
}

pub(crate) const COLUMNS: &str =
    "sandbox_id, kind, subject, ends_at, keep_until, successor, successor_ends";

const TOKEN: &str = "token";

impl Row {
    pub(crate) fn of(revocation: &Revocation) -> Self {
        let (kind, subject) = match &revocation.subject {
            Subject::Token(id) => (TOKEN, id),
            Subject::Actor(actor) => (actor.kind.text(), &actor.id),
        };
        let successor = revocation.successor.as_ref();
        Self {
            sandbox: revocation.sandbox.to_string(),
            kind: kind.to_owned(),
            subject: subject.clone(),
            ends_at: revocation.ends_at.as_millis(),
            keep_until: revocation.keep_until.as_millis(),
            successor: successor.map(|successor| successor.id.clone()),
            successor_ends: successor.map(|successor| successor.expires_at.as_millis()),
        }
    }

    pub(crate) fn read(self) -> Result<Revocation, StoreError> {
        let not_understood = || StoreError::Row { table: "token_revocations" };
        let subject = match ActorKind::read(&self.kind) {
            Some(kind) => Subject::Actor(Actor { kind, id: self.subject }),
            None if self.kind == TOKEN => Subject::Token(self.subject),
            None => return Err(not_understood()),
        };
        let successor = match (self.successor, self.successor_ends) {
            (Some(id), Some(ends)) => {
                Some(Successor { id, expires_at: Timestamp::from_millis(ends) })
            }
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(not_understood()),
        };
        Ok(Revocation {
            sandbox: self.sandbox.parse().map_err(|_not_an_id| not_understood())?,
            subject,
            ends_at: Timestamp::from_millis(self.ends_at),
            keep_until: Timestamp::from_millis(self.keep_until),
            successor,
        })
    }

    /// Returns how two ends of the same are one: a token ends at the first of them, and the last end
    /// of an actor's is about the most tokens.
    pub(crate) fn earlier_or_later(&self) -> &'static str {
        if self.kind == TOKEN { "<" } else { ">" }
    }
}

pub(crate) fn epoch(number: i64) -> Result<Epoch, StoreError> {
    let number = number.try_into().map_err(|_size| StoreError::Row { table: "key_epochs" })?;
    Ok(Epoch(number))
}

/// Puts together what was read about sandboxes.
pub(crate) fn standings(
    epochs: Vec<(String, i64)>,
    rows: Vec<Row>,
) -> Result<Vec<(SandboxId, Standing)>, StoreError> {
    let mut standings = std::collections::HashMap::<SandboxId, Standing>::new();
    for (sandbox, number) in epochs {
        let not_understood = |_not_an_id| StoreError::Row { table: "key_epochs" };
        let sandbox = sandbox.parse().map_err(not_understood)?;
        standings.entry(sandbox).or_default().raise(epoch(number)?);
    }
    for row in rows {
        let revocation = row.read()?;
        standings.entry(revocation.sandbox.clone()).or_default().add(revocation);
    }
    Ok(standings.into_iter().collect())
}
