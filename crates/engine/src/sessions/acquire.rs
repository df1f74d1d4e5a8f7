//! Getting a session for a scope: the one that is there, the sandbox that was kept, or a new one.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use model::{
    audit::Entry,
    ids::{SandboxId, SessionId, Tenant},
    life::{Life, Phase},
    policy::Quotas,
    sandbox::Sandbox,
    scope::Scope,
    session::{New, Refusal, Request, Session, SessionEnd, State, Step, Verdict, decide},
    spec::SandboxSpec,
};
use store::{
    StoreError,
    sessions::{Binding, KeyName, UsedKey},
};
use tokio::time::timeout;

use super::{SessionError, Sessions, Shared, Shown, Which};
use crate::sandboxes::{SandboxError, random};

/// For how long a request of the same key is the same request.
const KEY_LIFE: Duration = Duration::from_hours(24);

/// What the audit log says of a session that begins, and of the one whose place it takes. It is stored in one
/// transaction with the session.
#[derive(Clone)]
pub struct Records(Arc<RecordsOf>);

type RecordsOf = dyn Fn(&Session, Option<Replaced<'_>>) -> Vec<Entry> + Send + Sync;

/// A session that ends, with its sandbox, because another takes its place.
#[derive(Clone, Copy, Debug)]
pub struct Replaced<'a> {
    pub session: &'a Session,
    pub end: SessionEnd,
}

impl Records {
    pub fn new(
        of: impl Fn(&Session, Option<Replaced<'_>>) -> Vec<Entry> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(of))
    }

    pub fn none() -> Self {
        Self::new(|_, _| Vec::new())
    }

    fn of(&self, step: &Step) -> Vec<Entry> {
        let Some(begun) = step.begun() else { return Vec::new() };
        let replaced = step.changed().and_then(|session| match session.state {
            State::Ended(end) if end.cause().is_some() => Some(Replaced { session, end }),
            State::Ended(_) | State::Live | State::Released { .. } => None,
        });
        (self.0)(begun, replaced)
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Records")
    }
}

/// What somebody wants of a scope.
#[derive(Clone, Debug)]
pub struct Acquire {
    pub tenant: Tenant,
    pub scope: Scope,
    /// One of attach, ensure and create-only.
    pub request: Request,
    /// What a new sandbox is made of.
    pub spec: SandboxSpec,
    /// The image that the caller names, if he does.
    pub image: Option<String>,
    /// A sandbox that is to be taken if it can be.
    pub hint: Option<String>,
    /// What the tenant may have.
    pub quotas: Quotas,
    /// The key that asks.
    pub created_by: String,
    /// How long to wait for a sandbox that is on its way.
    pub wait: Duration,
    pub key: Option<RequestKey>,
    /// What is recorded if a session begins by it.
    pub records: Records,
}

/// What a caller calls his request, and what tells it apart.
#[derive(Clone, Debug)]
pub struct RequestKey {
    pub name: KeyName,
    pub request: [u8; 32],
}

/// A session that was acquired.
#[derive(Clone, Debug)]
pub struct Acquired {
    pub shown: Shown,
    pub hint: Hint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// None was given, or it was taken.
    Fine,
    Rejected,
}

/// Requests with a key that are being carried out.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights(Arc<Mutex<HashSet<KeyName>>>);

struct Flight {
    flights: Flights,
    name: KeyName,
}

impl Flights {
    fn begin(&self, name: &KeyName) -> Option<Flight> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = names.insert(name.clone());
        is_first.then(|| Flight { flights: self.clone(), name: name.clone() })
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut names = self.flights.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.remove(&self.name);
    }
}

impl Sessions {
    /// Returns the session of a scope, as the request says: the one that is there, or a new one. Waits for
    /// its sandbox; if that takes too long, a repeat comes to the same one.
    pub async fn acquire(&self, ask: Acquire) -> Result<Acquired, SessionError> {
        Ok(self.acquire_with(ask, async |_| {}).await?.0)
    }

    /// Does the same, and this for the session while its sandbox is being waited for.
    pub async fn acquire_with<T>(
        &self,
        ask: Acquire,
        meanwhile: impl AsyncFnOnce(&Session) -> T,
    ) -> Result<(Acquired, T), SessionError> {
        let (tenant, wait, request) = (ask.tenant.clone(), ask.wait, ask.request);
        let image = ask.image.clone();
        let (session, hint) = self.shared.bound(ask).await?;
        let ready = self.shared.ready(&tenant, session.clone(), request, wait);
        let (shown, done) = tokio::join!(ready, meanwhile(&session));
        let shown = shown?;
        if image.is_some_and(|image| image != shown.image) {
            return Err(SessionError::OtherImage);
        }
        Ok((Acquired { shown, hint }, done))
    }
}

impl Shared {
    /// Returns the session that a request comes to.
    async fn bound(self: &Arc<Self>, ask: Acquire) -> Result<(Session, Hint), SessionError> {
        let Some(key) = &ask.key else {
            return match self.found(&ask).await? {
                Some(found) => Ok(found),
                None => self.carry_out(|shared| shared.begin(ask)).await,
            };
        };
        let flight = self.flights.begin(&key.name).ok_or(SessionError::KeyInFlight)?;
        if let Some(session) = self.replayed(&ask, key).await? {
            return Ok((session, Hint::Fine));
        }
        self.carry_out(|shared| async move {
            let _flight = flight;
            shared.begin(ask).await
        })
        .await
    }

    /// Returns the session that a request of this key came to before.
    async fn replayed(
        &self,
        ask: &Acquire,
        key: &RequestKey,
    ) -> Result<Option<Session>, SessionError> {
        let used = self.store().used_key(&key.name, self.clock.now()).await?;
        let Some((request, id)) = used else { return Ok(None) };
        if request != key.request {
            return Err(SessionError::KeyReused);
        }
        let session = self.find(&ask.tenant, &Which::Id(id)).await?;
        decide(session.as_ref().map(|session| session.state), Request::Show)?;
        Ok(session)
    }

    /// Returns the session of a scope if it is there and nothing has to change for it.
    async fn found(&self, ask: &Acquire) -> Result<Option<(Session, Hint)>, SessionError> {
        let which = Which::Scope(ask.scope.clone());
        // A store that is ours alone has none that is live and not known here.
        let found = if self.store().is_shared() {
            self.find(&ask.tenant, &which).await?
        } else {
            self.known().find(&ask.tenant, &which)
        };
        let Some(session) = found else { return Ok(None) };
        if !session.is_live() || decide(Some(session.state), ask.request).is_err() {
            return Ok(None);
        }
        let is_gone = match self.sandboxes.look(&session.sandbox, Life::is_gone) {
            Some(is_gone) => is_gone,
            None => self.is_gone(&session.sandbox).await?,
        };
        if is_gone {
            return Ok(None);
        }
        let hint = ask.verdict_on_hint(&session.sandbox);
        Ok(Some((session, hint)))
    }

    /// Says whether nothing of a sandbox can be used again.
    async fn is_gone(&self, sandbox: &SandboxId) -> Result<bool, SessionError> {
        let life = self.sandboxes.life(sandbox).await?;
        Ok(life.is_none_or(|life| life.is_gone()))
    }

    /// Comes to a session in its turn.
    async fn begin(self: Arc<Self>, ask: Acquire) -> Result<(Session, Hint), SessionError> {
        let _turn = self.turn(&ask.tenant, &ask.scope).await;
        let mut latest = self.latest(&ask).await?;
        loop {
            match self.try_begin(&ask, latest.as_ref()).await {
                Err(SessionError::Sandbox(SandboxError::Store(StoreError::Bound { current }))) => {
                    self.known().note_past(&current);
                    latest = Some(*current);
                }
                Err(SessionError::Sandbox(SandboxError::Store(StoreError::KeyUsed))) => {
                    let key = ask.key.as_ref().ok_or(SessionError::KeyReused)?;
                    let session = self.replayed(&ask, key).await?.ok_or(Refusal::NotFound)?;
                    return Ok((session, Hint::Fine));
                }
                other => return other,
            }
        }
    }

    /// Returns the last session of a scope, or nothing if there was hardly ever one: who begins one all
    /// the same is told by the store what there was.
    async fn latest(&self, ask: &Acquire) -> Result<Option<Session>, SessionError> {
        let is_new = !self.store().is_shared()
            && matches!(decide(None, ask.request), Ok(Verdict::Begin))
            && self.known().is_new(&ask.tenant, &ask.scope);
        if is_new {
            return Ok(None);
        }
        self.find(&ask.tenant, &Which::Scope(ask.scope.clone())).await
    }

    async fn try_begin(
        self: &Arc<Self>,
        ask: &Acquire,
        latest: Option<&Session>,
    ) -> Result<(Session, Hint), SessionError> {
        let life = match latest {
            Some(latest) if !latest.has_ended() => self.sandboxes.life(&latest.sandbox).await?,
            Some(_) | None => None,
        };
        if let (Some(latest), Some(life)) = (latest, &life) {
            self.refuse_recent_failure(ask, latest, life).await?;
        }
        let is_there = life.is_some_and(|life| !life.is_gone());
        let state = latest.map(|latest| match latest.state {
            // Whose sandbox is gone has nothing to offer.
            _ if !is_there => State::Ended(SessionEnd::SandboxGone),
            state => state,
        });
        let verdict = decide(state, ask.request);
        match (verdict, latest) {
            (Ok(Verdict::AlreadySo), Some(latest)) => {
                self.use_key(ask, latest).await?;
                Ok((latest.clone(), ask.verdict_on_hint(&latest.sandbox)))
            }
            (Ok(Verdict::TakeBack), Some(released)) => self.take_back(ask, released).await,
            (Ok(_), latest) => self.begin_anew(ask, latest).await,
            (Err(refusal), Some(latest)) if !latest.has_ended() && !is_there => {
                self.finish(latest, SessionEnd::SandboxGone).await?;
                Err(refusal.into())
            }
            (Err(refusal), _) => Err(refusal.into()),
        }
    }

    /// Answers with the failure of the last sandbox of the scope, if the same image has failed just now.
    async fn refuse_recent_failure(
        self: &Arc<Self>,
        ask: &Acquire,
        latest: &Session,
        life: &Life,
    ) -> Result<(), SessionError> {
        let Some(failure) = life.recent_failure(self.clock.now()) else { return Ok(()) };
        let asked = ask.asked_image();
        if asked.is_some() && asked != Some(self.shown(latest.clone()).await?.image.as_str()) {
            return Ok(());
        }
        Err(SessionError::Failed(failure.clone()))
    }

    /// Begins a session with the sandbox that was hinted at, or with a new one.
    async fn begin_anew(
        self: &Arc<Self>,
        ask: &Acquire,
        latest: Option<&Session>,
    ) -> Result<(Session, Hint), SessionError> {
        let hinted = match &ask.hint {
            Some(hint) => self.hinted(ask, hint).await?,
            None => None,
        };
        let hint = match (&ask.hint, &hinted) {
            (Some(_), None) => Hint::Rejected,
            (Some(_), Some(_)) | (None, _) => Hint::Fine,
        };
        if let Some(sandbox) = hinted {
            match self.attach(ask, latest, &sandbox).await {
                // Somebody else has bound it meanwhile.
                Err(SessionError::Sandbox(SandboxError::Store(StoreError::Conflict {
                    ..
                }))) => {}
                Ok(session) => {
                    self.replace(latest);
                    return Ok((session, hint));
                }
                Err(error) => return Err(error),
            }
        }
        let session = self.create(ask, latest).await?;
        self.replace(latest);
        let is_rejected = ask.hint.is_some();
        Ok((session, if is_rejected { Hint::Rejected } else { hint }))
    }

    async fn create(
        self: &Arc<Self>,
        ask: &Acquire,
        latest: Option<&Session>,
    ) -> Result<Session, SessionError> {
        let (id, now, terms) = (new_id()?, self.clock.now(), self.settings.terms);
        let (ask_new, before) = (ask.clone(), latest.cloned());
        let key_of = ask.key.clone();
        let (sender, begun) = tokio::sync::oneshot::channel();
        let binding = move |sandbox: &Sandbox| {
            let new = ask_new.new_session(id, &sandbox.id, &sandbox.node);
            let end = before.as_ref().map_or(SessionEnd::SandboxGone, end_of_replaced);
            let step = Step::begin(before.as_ref(), new, end, terms, now);
            let used = key_of.zip(step.begun()).map(|(key, begun)| used(key, begun, now));
            // Whoever made this waits for it.
            let _ = sender.send(step.begun().cloned());
            let records = ask_new.records.of(&step);
            Binding { step: Some(step), creation: None, used, records }
        };
        let spec = ask.spec.clone();
        let (image, idle) = (spec.image.clone(), spec.idle.map(|idle| idle.after));
        self.sandboxes.create_bound(&ask.tenant, spec, ask.quotas, binding).await?;
        let session = begun.await.ok().flatten().ok_or(Refusal::NotFound)?;
        tracing::debug!(session = %session.id, sandbox = %session.sandbox, generation = session.generation.0, "session begun");
        self.remember(session.clone(), image, idle);
        Ok(session)
    }

    async fn attach(
        &self,
        ask: &Acquire,
        latest: Option<&Session>,
        sandbox: &Sandbox,
    ) -> Result<Session, SessionError> {
        let new = ask.new_session(new_id()?, &sandbox.id, &sandbox.node);
        let end = latest.map_or(SessionEnd::SandboxGone, end_of_replaced);
        let step = Step::begin(latest, new, end, self.settings.terms, self.clock.now());
        let idle = sandbox.spec.idle.map(|idle| idle.after);
        self.keep_begun(ask, step, sandbox.spec.image.clone(), idle).await
    }

    async fn take_back(
        self: &Arc<Self>,
        ask: &Acquire,
        released: &Session,
    ) -> Result<(Session, Hint), SessionError> {
        let new = ask.new_session(new_id()?, &released.sandbox, &released.node);
        let step = Step::take_back(released, new, self.settings.terms, self.clock.now());
        let held = self.known().get(&released.id).map(|held| (held.image.clone(), held.idle));
        let (image, idle) = if let Some(held) = held {
            held
        } else {
            let shown = self.shown(released.clone()).await?;
            (shown.image, shown.idle)
        };
        let session = self.keep_begun(ask, step, image, idle).await?;
        let hint = ask.verdict_on_hint(&session.sandbox);
        Ok((session, hint))
    }

    /// Keeps a step that begins a session with a sandbox that is there.
    async fn keep_begun(
        &self,
        ask: &Acquire,
        step: Step,
        image: String,
        idle: Option<Duration>,
    ) -> Result<Session, SessionError> {
        let begun = step.begun().cloned().ok_or(Refusal::NotFound)?;
        let used = ask.key.clone().map(|key| used(key, &begun, self.clock.now()));
        let changed = step.changed().cloned();
        let records = ask.records.of(&step);
        self.store().bind(Binding { step: Some(step), creation: None, used, records }).await?;
        if let Some(changed) = changed {
            self.follow(changed);
        }
        if begun.node == *self.sandboxes.node() {
            self.remember(begun.clone(), image, idle);
        }
        Ok(begun)
    }

    /// Notes that a request with a key came to a session that was there.
    async fn use_key(&self, ask: &Acquire, session: &Session) -> Result<(), SessionError> {
        let Some(key) = ask.key.clone() else { return Ok(()) };
        let used = Some(used(key, session, self.clock.now()));
        let binding = Binding { step: None, creation: None, used, records: Vec::new() };
        Ok(self.store().bind(binding).await?)
    }

    /// Returns the sandbox that is hinted at, if it can be had. Whose it is otherwise, nobody is told.
    async fn hinted(&self, ask: &Acquire, hint: &str) -> Result<Option<Sandbox>, SessionError> {
        let sandbox = match self.sandboxes.get(&ask.tenant, hint).await {
            Ok(sandbox) => sandbox,
            Err(SandboxError::NotFound) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let is_other = ask.image.as_ref().is_some_and(|image| *image != sandbox.spec.image);
        if sandbox.life.is_gone() || is_other {
            return Ok(None);
        }
        let bound = self.store().session_with(&sandbox.id).await?;
        let is_bound = bound.is_some_and(|session| !session.has_ended());
        Ok((!is_bound).then_some(sandbox))
    }

    /// Gives up the sandbox of a session that another has taken the place of.
    fn replace(&self, latest: Option<&Session>) {
        let Some(before) = latest.filter(|before| !before.has_ended()) else { return };
        let end = end_of_replaced(before);
        let step = before.end(end);
        if let Some(ended) = step.changed() {
            self.follow(ended.clone());
        }
        if let Some(cause) = end.cause() {
            self.sandboxes.end_later(before.sandbox.clone(), cause);
        }
    }

    /// Waits until the sandbox of a session is of use.
    async fn ready(
        self: &Arc<Self>,
        tenant: &Tenant,
        session: Session,
        request: Request,
        wait: Duration,
    ) -> Result<Shown, SessionError> {
        let here = self.sandboxes.look(&session.sandbox, |life| life.phase);
        let is_still = matches!(
            (here, request),
            (Some(Phase::Active | Phase::Frozen), _)
                | (Some(Phase::Stopped | Phase::Stopping), Request::Attach)
        );
        if !is_still {
            let awake = timeout(wait, self.sandboxes.awake(&session.sandbox)).await;
            match awake.map_err(|_elapsed| SessionError::Starting)?? {
                Phase::Provisioning | Phase::Resuming => return Err(SessionError::Starting),
                Phase::Failed | Phase::Deleting | Phase::Terminated => {
                    return Err(self.failed(&session).await);
                }
                Phase::Active | Phase::Frozen | Phase::Stopping | Phase::Stopped => {}
            }
        }
        // It may have been renewed or ended meanwhile.
        let now = self.find(tenant, &Which::Id(session.id.clone())).await?;
        let session = now.filter(Session::is_live).ok_or(Refusal::NotFound)?;
        self.touch(&session);
        self.shown(session).await
    }

    async fn failed(&self, session: &Session) -> SessionError {
        let failure = match self.store().sandbox(&session.sandbox).await {
            Ok(sandbox) => sandbox.and_then(|sandbox| sandbox.life.failure),
            Err(error) => return error.into(),
        };
        match failure {
            Some(failure) => SessionError::Failed(failure),
            None => Refusal::Expired(SessionEnd::SandboxGone).into(),
        }
    }
}

impl Acquire {
    fn new_session(&self, id: SessionId, sandbox: &SandboxId, node: &model::ids::NodeId) -> New {
        New {
            id,
            tenant: self.tenant.clone(),
            scope: self.scope.clone(),
            sandbox: sandbox.clone(),
            node: node.clone(),
            created_by: self.created_by.clone(),
        }
    }

    /// Returns the image that a new sandbox would have; nothing if none is to be made.
    fn asked_image(&self) -> Option<&str> {
        (self.request != Request::Attach).then_some(self.spec.image.as_str())
    }

    /// A session that is there wins over a hint.
    fn verdict_on_hint(&self, sandbox: &SandboxId) -> Hint {
        match &self.hint {
            Some(hint) if hint != sandbox.as_str() => Hint::Rejected,
            Some(_) | None => Hint::Fine,
        }
    }
}

/// Returns why a session ends whose place another takes.
fn end_of_replaced(before: &Session) -> SessionEnd {
    match before.state {
        State::Released { .. } => SessionEnd::Released,
        State::Live | State::Ended(_) => SessionEnd::SandboxGone,
    }
}

fn used(key: RequestKey, session: &Session, now: model::units::Timestamp) -> UsedKey {
    let RequestKey { name, request } = key;
    let expires_at = now.plus(KEY_LIFE);
    UsedKey { name, request, session: session.id.clone(), used_at: now, expires_at }
}

fn new_id() -> Result<SessionId, SandboxError> {
    Ok(SessionId::from_random(random()?))
}
