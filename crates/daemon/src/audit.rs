//! The audit log, as surfaces write it and admins read it.
//!
//! Two ways lead into it. [`Audit::record`] is for whatever gives somebody a right: it returns when
//! the entry is on disk, and whoever calls it answers after that, or not at all. Where the grant also
//! writes something itself, both go together (`tokio::try_join!(audit.record(entry), store.change(…))`): what is
//! asked for at the same time is one transaction, and the disk is awaited once. [`Audit::note`] is for
//! the rest, such as requests to the data plane and refusals: it never waits, and what it is told is
//! on disk about a second later.
//!
//! ```text
//! let entry = audit::by(&caller, Action::TokenMint);
//! let minted = app.audit.refusal(&entry, mint(…))?;          // notes why, if it is refused
//! app.audit.record(audit::granting(entry, &minted.claims)).await?;   // then answer
//! ```

mod forged;
mod keeping;
mod reading;
mod seal;
mod sealing;
mod verifying;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use engine::tasks::Tasks;
use model::{
    actor::Actor,
    audit::{Action, Entry, Grant, Outcome},
    token::Claims,
};
use store::{Store, StoreError};
use tokio::sync::{mpsc, oneshot};

pub use reading::{Offline, Wanted};
pub use seal::{NotAVerificationKey, VerificationKey};
pub use sealing::{SealSettings, Sealer, take_verification_key};
pub use verifying::{BadSeal, Expected, Verified, VerifyError, verify};

use crate::{
    auth::Caller,
    clock,
    http::{problem::ApiError, request},
    tokens::NotGenuine,
};
use forged::Forged;
use keeping::{Keeper, Message};

/// Entries that wait to be kept. Further ones are counted, and the count is recorded.
const QUEUE: usize = 4096;

/// The way to the log. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Audit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    notes: mpsc::Sender<Message>,
    lost: Arc<AtomicU64>,
    forged: Arc<Forged>,
}

impl Audit {
    /// Begins to keep what is noted, and to seal the log if there is a sealer, in a task of this group.
    pub fn open(store: Store, sealer: Option<Sealer>, tasks: &Tasks) -> Self {
        let (notes, queue) = mpsc::channel(QUEUE);
        let (lost, forged) = (Arc::<AtomicU64>::default(), Arc::<Forged>::default());
        let keeper = Keeper::new(store.clone(), sealer, Arc::clone(&lost), Arc::clone(&forged));
        tasks.start("audit", keeper.run(queue));
        Self(Arc::new(Inner { store, notes, lost, forged }))
    }

    /// Records an entry. It is on disk when this returns; if it cannot be, nothing is to be granted.
    pub async fn record(&self, entry: Entry) -> Result<(), StoreError> {
        request::mark_recorded();
        self.0.store.record(vec![entry]).await
    }

    /// Has an entry recorded soon, without waiting for it.
    pub fn note(&self, entry: Entry) {
        request::mark_recorded();
        if self.0.notes.try_send(Message::Note(Box::new(entry))).is_err() {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that somebody has shown a token that nobody gave out. The first is noted as it is, those that
    /// follow soon are counted: whoever sends thousands a second gets little done about each.
    pub(crate) fn note_forged(&self, reason: NotGenuine) {
        if self.0.forged.count(reason) == 0 {
            self.note(forged::entry(reason));
        }
    }

    /// Notes a refusal as what this entry would have been, and hands the answer on.
    pub(crate) fn refusal<T, E>(&self, entry: &Entry, answer: Result<T, E>) -> Result<T, ApiError>
    where
        ApiError: From<E>,
    {
        answer.map_err(|error| {
            let error = ApiError::from(error);
            self.note(refused(entry.clone(), &error));
            error
        })
    }

    /// Returns when all that was noted before is on disk, or cannot be.
    pub async fn settle(&self) {
        let (settled, is_settled) = oneshot::channel();
        if self.0.notes.send(Message::Settle(settled)).await.is_ok() {
            // An error means that the keeper has ended, and kept what it could.
            let _ = is_settled.await;
        }
    }

    /// Keeps what is left and seals it. What is noted after this is lost.
    pub async fn close(&self) {
        let (closed, is_closed) = oneshot::channel();
        if self.0.notes.send(Message::Close(closed)).await.is_ok() {
            // An error means that the keeper has ended.
            let _ = is_closed.await;
        }
    }
}

/// Returns an entry about the request that is being answered.
pub(crate) fn entry(action: Action, outcome: Outcome) -> Entry {
    Entry { request: request::id(), ..Entry::new(clock::timestamp(), action, outcome) }
}

/// Returns an entry about something that the holder of a key does, and may.
pub(crate) fn by(caller: &Caller, action: Action) -> Entry {
    Entry {
        actor: Some(caller.actor().clone()),
        key: Some(caller.key_id().0.clone()),
        tenant: Some(caller.tenant().to_owned()),
        ..entry(action, Outcome::Granted)
    }
}

/// Returns an entry about somebody on the machine itself.
pub(crate) fn local(action: Action, reason: &str) -> Entry {
    Entry { reason: Some(reason.to_owned()), ..entry(action, Outcome::Granted) }
}

/// Returns the entry of a token that is given out.
pub(crate) fn granting(entry: Entry, claims: &Claims) -> Entry {
    let Actor { kind, id } = &claims.actor;
    let sandbox = claims.sandbox.to_string();
    Entry {
        jti: Some(claims.id.clone()),
        sandbox: Some(sandbox.clone()),
        grant: Some(Grant {
            subject: format!("{}:{id}", kind.text()),
            audience: sandbox,
            capabilities: claims.capabilities.to_string(),
            expires_at: claims.expires_at,
        }),
        ..entry
    }
}

/// Returns the entry of something that was not done. Of what was asked for, nothing is repeated.
pub(crate) fn refused(entry: Entry, error: &ApiError) -> Entry {
    let code = error.code();
    let outcome = if code.http_status() < 500 { Outcome::Denied } else { Outcome::Failed };
    Entry { outcome, reason: Some(code.wire_name().to_owned()), ..entry }
}
