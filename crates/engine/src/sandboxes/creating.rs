//! From the decision to have a sandbox to its task.

use std::{
    future::{Future, pending, ready},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use isolate::failpoint;
use model::{
    audit::Entry,
    ids::{Alias, SandboxId, Tenant},
    policy::Quotas,
    sandbox::Sandbox,
    spec::SandboxSpec,
    transition::{Creation, Observation},
};
use store::{Condition, Met, Store, StoreError, sessions::Binding};
use tokio::{select, sync::oneshot, time::timeout};

use super::{
    Caller, SandboxError, Sandboxes, Shared,
    actor::{Actor, Contact, Done, Work},
    clock, command, companions, materials, paths,
    places::{Place, Terms},
    random,
    stock::{Prepared, Readiness},
};

/// How long a body that is as good as made is waited for before its record is kept: with it, that it is
/// ready. Several times as long as it takes.
const ALMOST_MADE: Duration = Duration::from_millis(5);

/// What the record of a sandbox is kept with.
pub(super) enum Record {
    Alone,
    /// An entry in the audit log, if the tenant may have it.
    Recorded(Box<Terms>),
    /// The binding that it is made for, if the tenant may have it.
    Bound(Box<dyn FnOnce(&Sandbox) -> Binding + Send>, Quotas),
}

impl Record {
    fn of(self, sandbox: &Sandbox) -> Kept {
        match self {
            Self::Alone => Kept::Nothing,
            Self::Recorded(terms) => {
                let sandbox = Some(sandbox.id.to_string());
                Kept::Entry(Box::new(Entry { sandbox, ..terms.entry }))
            }
            Self::Bound(binding, _) => Kept::Binding(Box::new(binding(sandbox))),
        }
    }
}

impl Sandboxes {
    /// Accepts a new sandbox that has nothing of the machine's files. Events tell what becomes of it.
    pub async fn create(
        &self,
        tenant: &Tenant,
        alias: Option<Alias>,
        spec: SandboxSpec,
    ) -> Result<Sandbox, SandboxError> {
        self.create_for(&Caller::nobody(), tenant, alias, spec).await
    }

    /// The same, if its tenant may have one more. The audit log has the entry if and only if there is
    /// a sandbox.
    pub async fn create_recorded(
        &self,
        tenant: &Tenant,
        alias: Option<Alias>,
        spec: SandboxSpec,
        terms: Terms,
    ) -> Result<Sandbox, SandboxError> {
        self.accept(&Caller::nobody(), tenant, alias, spec, Record::Recorded(Box::new(terms))).await
    }

    /// Accepts a new sandbox, with the paths of the machine that this caller may have.
    pub async fn create_for(
        &self,
        caller: &Caller,
        tenant: &Tenant,
        alias: Option<Alias>,
        spec: SandboxSpec,
    ) -> Result<Sandbox, SandboxError> {
        self.accept(caller, tenant, alias, spec, Record::Alone).await
    }

    /// Accepts a new sandbox, with these paths and on these terms.
    pub async fn create_recorded_for(
        &self,
        caller: &Caller,
        tenant: &Tenant,
        alias: Option<Alias>,
        spec: SandboxSpec,
        terms: Terms,
    ) -> Result<Sandbox, SandboxError> {
        self.accept(caller, tenant, alias, spec, Record::Recorded(Box::new(terms))).await
    }

    /// Accepts a new sandbox, and keeps its record so.
    async fn accept(
        &self,
        caller: &Caller,
        tenant: &Tenant,
        alias: Option<Alias>,
        spec: SandboxSpec,
        record: Record,
    ) -> Result<Sandbox, SandboxError> {
        let (creating, place) = self.intend(caller, tenant, alias, spec, record).await?;
        // Whoever asks may go away: what was begun is not left halfway.
        let (answer, accepted) = oneshot::channel();
        self.shared.tasks.start("creation of a sandbox", async move {
            // Whoever has gone away needs no answer.
            let _ = answer.send(creating.accept(place).await);
        });
        let gone = |_| SandboxError::Unavailable("the server ends".to_owned());
        accepted.await.map_err(gone)?
    }

    /// Does the same for one who is in a task of his own already, and does not go away.
    pub(super) async fn accept_here(
        &self,
        caller: &Caller,
        tenant: &Tenant,
        spec: SandboxSpec,
        record: Record,
    ) -> Result<Sandbox, SandboxError> {
        let (creating, place) = self.intend(caller, tenant, None, spec, record).await?;
        Box::pin(creating.accept(place)).await
    }

    async fn intend(
        &self,
        caller: &Caller,
        tenant: &Tenant,
        alias: Option<Alias>,
        mut spec: SandboxSpec,
        record: Record,
    ) -> Result<(Creating, Place), SandboxError> {
        let shared = &self.shared;
        shared.settings.resources.check(&spec)?;
        shared.provider(&spec).check(&spec).await?;
        command::check_main(&spec)?;
        command::check_run(&spec, shared.provider(&spec).no_root())?;
        companions::check(&spec)?;
        let opened = paths::images_of(caller, &spec);
        materials::check(&shared.images, &spec, &opened)?;
        let quotas = match &record {
            Record::Recorded(terms) => terms.quotas,
            Record::Bound(_, quotas) => *quotas,
            Record::Alone => Quotas::default(),
        };
        let place = Place::take(shared, tenant, quotas)?;
        let prepared =
            shared.provider(&spec).prepared(&spec).and_then(|it| shared.stock.take(tenant, it));
        let id = match &prepared {
            Some(Prepared { id, .. }) => id.clone(),
            None => SandboxId::from_random(random()?),
        };
        let has_paths = paths::has_paths(&spec) || !opened.is_empty();
        if has_paths
            && let Err(error) = paths::grant(shared.machine.spawner(), caller, &id, &mut spec).await
        {
            if let Some(prepared) = prepared {
                shared.stock.put(tenant, prepared);
            }
            return Err(error);
        }
        let node = shared.settings.node.clone();
        let creation = Creation::new(id.clone(), tenant.clone(), alias, node, spec, clock::now());
        let creation = materials::with_nothing_to_gather(creation);
        let shared_too = Arc::clone(shared);
        Ok((Creating { shared: shared_too, creation, record, prepared, has_paths }, place))
    }
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

/// What the store is asked to keep beside a sandbox.
#[derive(Clone)]
enum Kept {
    Nothing,
    Entry(Box<Entry>),
    Binding(Box<Binding>),
}

impl Kept {
    /// Keeps a sandbox as it is if that turns out to be true, or else as it was accepted. Returns which.
    async fn keep(
        self,
        store: Store,
        accepted: Creation,
        whole: Option<(Creation, Condition)>,
    ) -> Result<Creation, StoreError> {
        if let Some((whole, condition)) = whole {
            match self.clone().write(&store, whole.clone(), Some(condition)).await {
                Err(StoreError::Unmet) => {}
                written => return written.map(|()| whole),
            }
        }
        self.write(&store, accepted.clone(), None).await.map(|()| accepted)
    }

    async fn write(
        self,
        store: &Store,
        creation: Creation,
        condition: Option<Condition>,
    ) -> Result<(), StoreError> {
        match self {
            Self::Nothing => store.create_sandbox_if(creation, Vec::new(), condition).await,
            Self::Entry(entry) => store.create_sandbox_if(creation, vec![*entry], condition).await,
            Self::Binding(bound) => {
                store.bind_if(Binding { creation: Some(creation), ..*bound }, condition).await
            }
        }
    }
}

impl Creating {
    /// Keeps its record, and begins its task. Returns the sandbox as it was accepted; what has become of it
    /// since is told by its events, as ever.
    pub(super) async fn accept(mut self, place: Place) -> Result<Sandbox, SandboxError> {
        let (shared, accepted) = (Arc::clone(&self.shared), self.creation.sandbox().clone());
        let early = self.may_be_made_early();
        let body = early.then(|| begun(Actor::make(&shared, &accepted)));
        let door = place.fill(|| Actor::announce(&shared, &accepted));
        let record = std::mem::replace(&mut self.record, Record::Alone).of(&accepted);
        let mut whole = None;
        let mut body = match body {
            Some(body) if self.has_whole() => {
                failpoint::pass("c.made_early");
                let (met, condition) = Condition::new();
                whole = Some((self.ready(), condition));
                Some(meeting(body, met))
            }
            Some(body) => Some(self.be_ready(body).await),
            None => None,
        };
        // Large, and polled beside other work.
        let kept = Box::pin(record.keep(shared.store.clone(), self.creation.clone(), whole));
        match beside(kept, &mut body).await {
            Ok(kept) => {
                failpoint::pass("c.intent_synced");
                Actor::begin(&shared, kept.into_sandbox(), door, body);
                Ok(accepted)
            }
            Err(error) => {
                shared.living().remove(&accepted.id);
                self.undo(body, &error).await;
                Err(match error {
                    StoreError::Conflict { .. } => SandboxError::AlreadyExists,
                    error => error.into(),
                })
            }
        }
    }

    /// Waits a moment for its body. If it is there by then, and nothing else is to be done, the sandbox is
    /// accepted and ready in one step: the disk is awaited once.
    async fn be_ready(&mut self, mut body: Work) -> Work {
        let Ok(done) = timeout(ALMOST_MADE, &mut body).await else { return body };
        failpoint::pass("c.made_early");
        if matches!(done, Done::Made(Ok(_))) && self.creation.sandbox().spec.command.is_empty() {
            self.creation = self.ready();
        }
        Box::pin(ready(done))
    }

    /// Whether it is ready already, but for its being somebody's. Then it is taken while its record is written.
    fn has_whole(&self) -> bool {
        let readiness = self.prepared.as_ref().map(|prepared| prepared.readiness);
        readiness == Some(Readiness::Whole) && self.creation.sandbox().spec.command.is_empty()
    }

    fn ready(&self) -> Creation {
        self.creation.clone().and(Observation::Ready, clock::now())
    }

    /// Whether its body may be made before its record is kept. A body without a record is nobody's: the
    /// next server removes it. It is made early only if little is lost when the record is refused, which
    /// is not to be expected.
    fn may_be_made_early(&self) -> bool {
        let sandbox = self.creation.sandbox();
        self.prepared.is_some()
            && !self.has_paths
            && sandbox.spec.ports.is_empty()
            && sandbox.spec.companions.is_empty()
            && sandbox.life.images_are_known
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
            let sandbox = self.creation.sandbox();
            let _ = self.shared.provider(&sandbox.spec).remove(sandbox).await;
        } else if let Some(prepared) = self.prepared {
            self.shared.stock.put(&self.creation.sandbox().tenant, prepared);
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

/// Begins work at once: others do their part of it while there is more to do here.
fn begun(mut work: Work) -> Work {
    // Whoever waits for it asks again.
    match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Box::pin(ready(done)),
        Poll::Pending => work,
    }
}

/// Says when a body is there, if that is soon. What waits for it has others wait.
fn meeting(mut body: Work, met: Met) -> Work {
    Box::pin(async move {
        let done = timeout(ALMOST_MADE, &mut body).await;
        if let Ok(Done::Made(Ok(_))) = &done {
            met.now();
        } else {
            drop(met);
        }
        match done {
            Ok(done) => done,
            Err(_elapsed) => body.await,
        }
    })
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
