//! Sessions: a scope is bound to a sandbox, which is kept as long as somebody wants it.
//!
//! What may be done is `model`'s table; what was decided is kept by the store in one step, and only then
//! done. Changes of one scope take turns here; what daemons on one database do at once is met by
//! deciding again. Bindings of this node are known in memory, so that one that is there is found
//! without asking the store, unless that is shared.

mod acquire;
mod clock;
mod error;
mod keeper;
mod known;
mod shown;
mod turns;

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use model::{
    audit::{Action, Entry, Outcome},
    holder::{Holder, OutOfReach},
    ids::{SandboxId, SessionId, Tenant},
    lease::Terms,
    life::Phase,
    scope::Scope,
    session::{Refusal, Request, Session, SessionEnd, State, Step, Verdict, decide},
    spec::Provider,
    token::Generation,
};
use store::{Store, StoreError, sessions::Binding};
use tokio::sync::{Notify, oneshot, watch};

use self::{
    acquire::Flights,
    clock::Steady,
    known::Known,
    turns::{Turn, Turns},
};
pub use self::{
    acquire::{Acquire, Acquired, Hint, Records, Replaced, RequestKey},
    error::SessionError,
    shown::Shown,
};
use crate::sandboxes::{SandboxError, Sandboxes};

/// What an operator gives sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub terms: Terms,
    /// How long nobody may use a sandbox before it is frozen; nothing if it never is.
    pub idle: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { terms: Terms::default(), idle: Some(Duration::from_mins(15)) }
    }
}

/// How long what was opened in a sandbox goes on at most after its time: commands have five seconds.
const PARTING: Duration = Duration::from_secs(15);

/// The sessions of this server. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Sessions {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sandboxes: Sandboxes,
    settings: Settings,
    clock: Steady,
    turns: Turns,
    flights: Flights,
    known: Arc<Mutex<Known>>,
    /// The first deadline has changed.
    earlier: Arc<Notify>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Whoever waits for deadlines sees that there are none.
        self.earlier.notify_one();
    }
}

/// Which session is meant.
#[derive(Clone, Debug)]
pub enum Which {
    Id(SessionId),
    /// The last one of a scope.
    Scope(Scope),
}

/// What a sandbox is to those who hold tokens for it.
#[derive(Clone, Debug)]
pub enum Fence {
    /// No session that is known here has it.
    Unbound,
    Bound {
        generation: Generation,
        /// Turns true when the session is over.
        over: watch::Receiver<bool>,
    },
    /// Its session is over, and no other has begun.
    Over,
}

impl Sessions {
    /// Takes over the sessions of this node. What fell due meanwhile is treated at once.
    pub async fn open(sandboxes: Sandboxes, settings: Settings) -> Result<Self, SandboxError> {
        let kept = sandboxes.store().unfinished_sessions(sandboxes.node()).await?;
        let shared = Arc::new(Shared {
            sandboxes,
            settings,
            clock: Steady::begin(),
            turns: Turns::default(),
            flights: Flights::default(),
            known: Arc::default(),
            earlier: Arc::default(),
        });
        for session in kept {
            let sandbox = shared.store().sandbox(&session.sandbox).await?;
            let spec = sandbox.map(|sandbox| sandbox.spec).unwrap_or_default();
            let released = (!session.is_live()).then(|| session.clone());
            shared.remember(session, spec.image, spec.idle.map(|idle| idle.after));
            if let Some(released) = released {
                shared.rest_later(released);
            }
        }
        shared.end_what_was_left().await?;
        let keeping = keeper::keep(Arc::downgrade(&shared), Arc::clone(&shared.earlier));
        shared.sandboxes.tasks().start("leases", keeping);
        Ok(Self { shared })
    }

    pub fn settings(&self) -> Settings {
        self.shared.settings
    }

    /// Refuses a provider that the operator has not enabled.
    pub fn check_enabled(&self, provider: Provider) -> Result<(), SessionError> {
        Ok(self.shared.sandboxes.check_enabled(provider)?)
    }

    /// Refuses what the operator keeps from the holder of a key. What is not there is for others to say.
    pub async fn reach(
        &self,
        tenant: &Tenant,
        which: &Which,
        holder: Holder<'_>,
    ) -> Result<(), SessionError> {
        if holder.reaches_all() {
            return Ok(());
        }
        let last = self.shared.find(tenant, which).await?;
        let asked = match which {
            Which::Scope(scope) => Some(scope),
            Which::Id(_) => None,
        };
        Ok(holder.reaches_last(asked, last.as_ref())?)
    }

    /// Decides whether the holder of a key of its tenant reaches a sandbox: one that a session has he does by its
    /// scope, whichever door he comes by. Any other is of the tenant as a whole.
    pub fn reach_sandbox(&self, sandbox: &SandboxId, holder: Holder<'_>) -> Result<(), OutOfReach> {
        if holder.reaches_all() {
            return Ok(());
        }
        holder.reaches_last(None, self.holder(sandbox).as_ref())
    }

    /// Returns the last session that this names, whatever became of it.
    pub async fn find(
        &self,
        tenant: &Tenant,
        which: &Which,
    ) -> Result<Option<Session>, SessionError> {
        self.shared.find(tenant, which).await
    }

    /// Returns a session of this tenant.
    pub async fn show(&self, tenant: &Tenant, which: &Which) -> Result<Shown, SessionError> {
        let session = self.shared.find(tenant, which).await?;
        permit(session.as_ref(), Request::Show)?;
        let shown = self.shared.shown(session.ok_or(Refusal::NotFound)?).await?;
        if shown.failure.is_none() {
            self.shared.touch(&shown.session);
        }
        Ok(shown)
    }

    /// Moves the end of a session, if it has not passed.
    pub async fn heartbeat(&self, tenant: &Tenant, which: &Which) -> Result<Shown, SessionError> {
        let (tenant, which) = (tenant.clone(), which.clone());
        self.shared
            .carry_out(move |shared| async move { shared.heartbeat(&tenant, &which).await })
            .await
    }

    /// Ends a session. Its sandbox is kept for a while, stopped, for whoever ensures the scope again.
    pub async fn release(&self, tenant: &Tenant, which: &Which) -> Result<(), SessionError> {
        let (tenant, which) = (tenant.clone(), which.clone());
        self.shared
            .carry_out(move |shared| async move { shared.release(&tenant, &which).await })
            .await
    }

    /// Ends a session and its sandbox.
    pub async fn destroy(
        &self,
        tenant: &Tenant,
        which: &Which,
        end: SessionEnd,
    ) -> Result<(), SessionError> {
        let (tenant, which) = (tenant.clone(), which.clone());
        self.shared
            .carry_out(move |shared| async move { shared.destroy(&tenant, &which, end).await })
            .await
    }

    /// Ends a sandbox of this tenant, by its id or alias, and the session that it has. Returns both.
    pub async fn kill(
        &self,
        tenant: &Tenant,
        name: &str,
    ) -> Result<(SandboxId, Option<Session>), SessionError> {
        let sandbox = self.shared.sandboxes.get(tenant, name).await?;
        let end = SessionEnd::KilledByAdmin;
        let session = self.shared.store().session_with(&sandbox.id).await?;
        if let Some(session) = &session
            && !session.has_ended()
        {
            match self.destroy(tenant, &Which::Id(session.id.clone()), end).await {
                Ok(()) | Err(SessionError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let cause = end.cause().unwrap_or(model::life::EndCause::KilledByAdmin);
        self.shared.sandboxes.end(&sandbox.id, cause).await?;
        Ok((sandbox.id, session))
    }

    /// Says what a sandbox is to those who hold tokens for it, from memory.
    pub fn fence(&self, sandbox: &SandboxId) -> Fence {
        let known = self.shared.known();
        match known.with_sandbox(sandbox) {
            None if known.is_left(sandbox) => Fence::Over,
            None => Fence::Unbound,
            Some(held) if held.session.is_live() => {
                Fence::Bound { generation: held.session.generation, over: held.over.subscribe() }
            }
            Some(_) => Fence::Over,
        }
    }

    /// Returns the session that has a sandbox, if one that is known here does.
    pub fn holder(&self, sandbox: &SandboxId) -> Option<Session> {
        self.shared.known().with_sandbox(sandbox).map(|held| held.session.clone())
    }

    /// Returns the generation that new tokens for a sandbox have.
    pub fn generation(&self, sandbox: &SandboxId) -> Generation {
        self.holder(sandbox).map_or(Generation::FIRST, |session| session.generation)
    }

    /// Returns the session that the scope has now for which this sandbox once was.
    pub async fn successor(&self, sandbox: &SandboxId) -> Result<Option<Session>, SessionError> {
        let store = self.shared.store();
        let Some(before) = store.session_with(sandbox).await? else { return Ok(None) };
        let latest = store.session_of(&before.tenant, &before.scope).await?;
        Ok(latest.filter(|latest| latest.is_live() && latest.generation > before.generation))
    }
}

fn permit(latest: Option<&Session>, request: Request) -> Result<Verdict, Refusal> {
    decide(latest.map(|latest| latest.state), request)
}

impl Shared {
    fn store(&self) -> &Store {
        self.sandboxes.store()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to its end, whether whoever asked for it waits or not.
    async fn carry_out<T, F>(
        self: &Arc<Self>,
        work: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<T, SessionError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, SessionError>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let work = work(Arc::clone(self));
        self.sandboxes.tasks().start("change of a session", async move {
            // Whoever has gone away needs no answer.
            let _ = answer.send(work.await);
        });
        let gone = |_| SandboxError::Unavailable("the server ends".to_owned());
        answered.await.map_err(gone)?
    }

    async fn turn(&self, tenant: &Tenant, scope: &Scope) -> Turn {
        self.turns.take(tenant, scope).await
    }

    /// Returns the session that is meant. What another tenant has is not there.
    async fn find(&self, tenant: &Tenant, which: &Which) -> Result<Option<Session>, SessionError> {
        if !self.store().is_shared()
            && let Some(session) = self.known().find(tenant, which)
        {
            return Ok(Some(session));
        }
        let found = match which {
            Which::Id(id) => self.store().session(id).await?,
            Which::Scope(scope) => self.store().session_of(tenant, scope).await?,
        };
        Ok(found.filter(|session| session.tenant == *tenant))
    }

    /// Returns the session that is meant, once it is this one's turn to change it.
    async fn find_in_turn(
        &self,
        tenant: &Tenant,
        which: &Which,
    ) -> Result<(Turn, Option<Session>), SessionError> {
        let found = self.find(tenant, which).await?.ok_or(Refusal::NotFound)?;
        let turn = self.turn(tenant, &found.scope).await;
        Ok((turn, self.find(tenant, which).await?))
    }

    async fn heartbeat(
        self: Arc<Self>,
        tenant: &Tenant,
        which: &Which,
    ) -> Result<Shown, SessionError> {
        let (_turn, mut found) = self.find_in_turn(tenant, which).await?;
        loop {
            permit(found.as_ref(), Request::Heartbeat)?;
            let shown = self.shown(found.ok_or(Refusal::NotFound)?).await?;
            let step = shown.session.renew(self.settings.terms, self.clock.now())?;
            match self.keep(&step).await {
                Ok(session) => return Ok(Shown { session, ..shown }),
                Err(StoreError::Bound { current }) => found = Some(*current),
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn release(self: Arc<Self>, tenant: &Tenant, which: &Which) -> Result<(), SessionError> {
        let (_turn, mut found) = self.find_in_turn(tenant, which).await?;
        loop {
            permit(found.as_ref(), Request::Release)?;
            let session = found.ok_or(Refusal::NotFound)?;
            let life = self.sandboxes.life(&session.sandbox).await?;
            let phase = life.map(|life| life.phase);
            if matches!(phase, Some(Phase::Provisioning | Phase::Resuming)) {
                return Err(SessionError::Starting);
            }
            let step = session.release(self.settings.terms, self.clock.now());
            match self.keep(&step).await {
                Ok(_) => {
                    self.rest_later(session);
                    return Ok(());
                }
                Err(StoreError::Bound { current }) => found = Some(*current),
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn destroy(
        &self,
        tenant: &Tenant,
        which: &Which,
        end: SessionEnd,
    ) -> Result<(), SessionError> {
        let (_turn, mut found) = self.find_in_turn(tenant, which).await?;
        loop {
            permit(found.as_ref(), Request::Destroy)?;
            let session = found.ok_or(Refusal::NotFound)?;
            match self.finish(&session, end).await {
                Ok(()) => return Ok(()),
                Err(SessionError::Sandbox(SandboxError::Store(StoreError::Bound { current }))) => {
                    found = Some(*current);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends a session, and its sandbox with it.
    async fn finish(&self, session: &Session, end: SessionEnd) -> Result<(), SessionError> {
        self.keep(&session.end(end)).await?;
        tracing::info!(session = %session.id, sandbox = %session.sandbox, end = end.name(), "session ended");
        self.record_expiry(session, end).await;
        let Some(cause) = end.cause() else { return Ok(()) };
        if let Err(error) = self.sandboxes.end(&session.sandbox, cause.clone()).await {
            let sandbox = session.sandbox.clone();
            tracing::warn!(%sandbox, %error, "cannot end the sandbox of a session yet");
            self.sandboxes.end_later(sandbox, cause);
        }
        Ok(())
    }

    /// Records that a session has ended without a request. Requests are recorded by the surface that they came to.
    async fn record_expiry(&self, session: &Session, end: SessionEnd) {
        match end {
            SessionEnd::TakenBack | SessionEnd::Destroyed | SessionEnd::KilledByAdmin => return,
            SessionEnd::Released
            | SessionEnd::LeaseExpired
            | SessionEnd::HardTtl
            | SessionEnd::SandboxGone => {}
        }
        let entry = Entry {
            tenant: Some(session.tenant.to_string()),
            scope: Some(session.scope.to_string()),
            session: Some(session.id.to_string()),
            sandbox: Some(session.sandbox.to_string()),
            reason: Some(end.name().to_owned()),
            ..Entry::new(self.clock.now(), Action::SessionExpire, Outcome::Granted)
        };
        if let Err(error) = self.store().record(vec![entry]).await {
            tracing::error!(session = %session.id, %error, "cannot record the end of a session");
        }
    }

    /// Ends what a session has opened whose time is over, once its sandbox is gone or should be.
    fn part_later(&self, sandbox: SandboxId) {
        let (sandboxes, known) = (self.sandboxes.clone(), Arc::clone(&self.known));
        self.sandboxes.tasks().start("parting from a sandbox", async move {
            // Nobody keeps what cannot be removed.
            let _ = tokio::time::timeout(PARTING, sandboxes.until_gone(&sandbox)).await;
            known.lock().unwrap_or_else(PoisonError::into_inner).part(&sandbox);
        });
    }

    /// Ends the sandboxes of sessions that a server before this one has ended, and no more.
    async fn end_what_was_left(&self) -> Result<(), SandboxError> {
        let there = self.store().unfinished_sandboxes(self.sandboxes.node()).await?;
        for sandbox in there.sandboxes {
            let last = self.store().session_with(&sandbox.id).await?;
            if let Some(State::Ended(end)) = last.map(|session| session.state)
                && let Some(cause) = end.cause()
            {
                self.sandboxes.end_later(sandbox.id, cause);
            }
        }
        Ok(())
    }

    /// Keeps a step that changes one session, here and in the store. Returns the session after it.
    async fn keep(&self, step: &Step) -> Result<Session, StoreError> {
        let kept = self.store().bind(Binding::of(step.clone())).await;
        let changed =
            step.changed().cloned().ok_or(StoreError::NotFound { what: "the session" })?;
        match kept {
            Ok(()) => {
                self.follow(changed.clone());
                Ok(changed)
            }
            // It may have been kept: then the store knows what this leads to.
            Err(error @ StoreError::Unclear { .. }) => {
                match self.store().session(&changed.id).await? {
                    Some(now) if now == changed => {
                        self.follow(changed.clone());
                        Ok(changed)
                    }
                    _ => Err(error),
                }
            }
            Err(StoreError::Bound { current }) => {
                self.follow((*current).clone());
                Err(StoreError::Bound { current })
            }
            Err(error) => Err(error),
        }
    }

    /// Takes on what has become of a session that is known here.
    fn follow(&self, session: Session) {
        let (image, idle) = {
            let known = self.known();
            match known.get(&session.id) {
                Some(held) => (held.image.clone(), held.idle),
                None => return,
            }
        };
        self.remember(session, image, idle);
    }

    /// Notes a session of this node.
    fn remember(&self, session: Session, image: String, idle: Option<Duration>) {
        let look_at = self.clock.instant(match session.state {
            State::Live => keeper::first_look(session.lease.until, self.clock.now()),
            State::Released { kept_until } => kept_until,
            State::Ended(_) => self.clock.now(),
        });
        let parting = session.ends_with_its_sandbox().then(|| session.sandbox.clone());
        if self.known().put(session, image, idle, look_at) {
            self.earlier.notify_one();
        }
        if let Some(sandbox) = parting {
            self.part_later(sandbox);
        }
    }

    /// Notes that somebody wants a session. What comes of it is kept when it matters.
    fn touch(&self, session: &Session) {
        let now = self.clock.now();
        let left = session.lease.until.since(now);
        let is_late = left < self.settings.terms.lease / 4 * 3;
        let at = is_late.then(|| self.clock.instant(now));
        if self.known().touch(&session.id, now, at) {
            self.earlier.notify_one();
        }
    }

    /// Stops the sandbox of a session that was released.
    fn rest_later(self: &Arc<Self>, released: Session) {
        let shared = Arc::clone(self);
        self.sandboxes.tasks().start("rest of a sandbox", async move {
            let Session { id, tenant, scope, sandbox, .. } = released;
            // Whoever takes the sandbox back comes before this, and keeps it, or after it, and resumes it.
            let _turn = shared.turn(&tenant, &scope).await;
            let now = shared.find(&tenant, &Which::Id(id)).await.ok().flatten();
            if !now.is_some_and(|now| matches!(now.state, State::Released { .. })) {
                return;
            }
            if let Err(error) = shared.sandboxes.rest(&sandbox).await {
                tracing::debug!(%sandbox, %error, "cannot stop the sandbox of a released session");
            }
        });
    }

    /// Ends a session whose sandbox is gone, when it is its turn.
    fn end_later(self: &Arc<Self>, session: &Session) {
        let (shared, id) = (Arc::clone(self), session.id.clone());
        self.sandboxes.tasks().start("end of a session", keeper::look(shared, id));
    }
}
