//! From the decision to have a sandbox to its task.

use std::{
    future::{Future, pending, ready},
    pin::pin,
    sync::Arc,
};

use isolate::failpoint;
use model::{sandbox::Sandbox, transition::Creation};
use store::{StoreError, sessions::Binding};
use tokio::select;

use super::{
    SandboxError, Shared,
    actor::{Actor, Contact, Work},
    materials,
    stock::Prepared,
};

/// What the record of a sandbox is kept with.
pub(super) enum Record {
    Alone,
    /// The binding that it is made for.
    Bound(Box<dyn FnOnce(&Sandbox) -> Binding + Send>),
}

/// A sandbox that is about to be accepted.
pub(super) struct Creating {
    pub(super) shared: Arc<Shared>,
    pub(super) creation: Creation,
    pub(super) record: Record,
    /// The body that waits for it.
    pub(super) prepared: Option<Prepared>,
    /// Whether it was granted paths of the machine.
    pub(super) has_paths: bool,
}

impl Creating {
    /// Keeps its record, and begins its task.
    pub(super) async fn accept(mut self) -> Result<Sandbox, SandboxError> {
        let (shared, sandbox) = (Arc::clone(&self.shared), self.creation.sandbox().clone());
        let mut body = self.may_be_made_early().then(|| Actor::make(&shared, &sandbox));
        let door = Actor::announce(&shared, &sandbox);
        let (store, creation) = (shared.store.clone(), self.creation.clone());
        let binding = match std::mem::replace(&mut self.record, Record::Alone) {
            Record::Alone => None,
            Record::Bound(binding) => Some(binding(&sandbox)),
        };
        // Large, and polled beside other work.
        let kept = Box::pin(async move {
            match binding {
                None => store.create_sandbox(creation).await,
                Some(bound) => store.bind(Binding { creation: Some(creation), ..bound }).await,
            }
        });
        match beside(kept, &mut body).await {
            Ok(()) => {
                failpoint::pass("c.intent_synced");
                Actor::begin(&shared, sandbox.clone(), door, body);
                Ok(sandbox)
            }
            Err(error) => {
                shared.living().remove(&sandbox.id);
                self.undo(body, &error).await;
                Err(match error {
                    StoreError::Conflict { .. } => SandboxError::AlreadyExists,
                    error => error.into(),
                })
            }
        }
    }

    /// Whether its body may be made while its record is being kept. A body without a record is nobody's: the
    /// next server removes it. It is made early only if little is lost when the record is refused, which
    /// is not to be expected.
    fn may_be_made_early(&self) -> bool {
        let sandbox = self.creation.sandbox();
        self.prepared.is_some()
            && !self.has_paths
            && sandbox.spec.ports.is_empty()
            && sandbox.spec.companions.is_empty()
            && materials::are_noted(sandbox)
            && !self.shared.has_alias(sandbox)
    }

    /// Takes back what was done for a sandbox that there is not.
    async fn undo(self, body: Option<Work>, error: &StoreError) {
        if matches!(error, StoreError::Unclear { .. }) {
            // It may be there after all.
            return;
        }
        let is_begun = body.is_some();
        if let Some(body) = body {
            body.await;
        }
        if is_begun || self.has_paths {
            // If this fails, the next server does it.
            let _ = self.shared.machine.remove(self.creation.sandbox().id.as_str()).await;
        } else {
            self.shared.stock.give_back(self.prepared);
        }
    }
}

impl Shared {
    /// Whether a sandbox of this server has the same alias.
    fn has_alias(&self, sandbox: &Sandbox) -> bool {
        let is_same =
            |contact: &Contact| contact.alias == sandbox.alias && contact.tenant == sandbox.tenant;
        sandbox.alias.is_some() && self.living().values().any(is_same)
    }
}

/// Waits for one thing, and has work go on meanwhile.
async fn beside<T>(first: impl Future<Output = T>, work: &mut Option<Work>) -> T {
    let mut first = pin!(first);
    let mut done = None;
    loop {
        let working = async {
            match work {
                Some(work) => work.await,
                None => pending().await,
            }
        };
        select! {
            biased;
            first = &mut first => {
                if let Some(done) = done {
                    *work = Some(Box::pin(ready(done)));
                }
                return first;
            }
            worked = working, if done.is_none() => done = Some(worked),
        }
    }
}
