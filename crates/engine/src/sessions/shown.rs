//! A session as clients see it, with what became of its sandbox.

use std::{sync::Arc, time::Duration};

use model::{
    lease::Terms,
    life::{Failure, Life},
    session::{Refusal, Session, SessionEnd, Shows},
    spec::Provider,
};

use super::{SessionError, Shared};

#[derive(Clone, Debug)]
pub struct Shown {
    pub session: Session,
    pub shows: Shows,
    /// Why the sandbox is suspended or has failed.
    pub reason: Option<&'static str>,
    /// Why the sandbox could not be created.
    pub failure: Option<Failure>,
    /// Where the sandbox runs.
    pub provider: Provider,
    pub image: String,
    /// After which time of no use the sandbox goes to sleep.
    pub idle: Option<Duration>,
    pub terms: Terms,
}

/// What a sandbox is now, besides its settings.
struct Now {
    shows: Option<Shows>,
    reason: Option<&'static str>,
    failure: Option<Failure>,
}

impl Now {
    fn of(life: &Life) -> Self {
        let failure = life.failed_creation().cloned();
        Self { shows: Shows::of(life), reason: life.reason(), failure }
    }
}

impl Shared {
    /// Shows a session. One whose sandbox is gone ends by it.
    pub(super) async fn shown(self: &Arc<Self>, session: Session) -> Result<Shown, SessionError> {
        let here = self.known().get(&session.id).map(|held| (held.image.clone(), held.idle));
        if let Some((image, idle)) = here
            && let Some(now) = self.sandboxes.look(&session.sandbox, Now::of)
            && let Some(provider) = self.sandboxes.provider(&session.sandbox)
        {
            return self.with_sandbox(session, now, provider, image, idle);
        }
        let found = self.store().sandbox(&session.sandbox).await?;
        let Some(sandbox) = found else { return self.without_sandbox(&session) };
        let (now, spec) = (Now::of(&sandbox.life), sandbox.spec);
        let idle = spec.idle.map(|idle| idle.after);
        self.with_sandbox(session, now, spec.provider, spec.image, idle)
    }

    fn with_sandbox(
        self: &Arc<Self>,
        session: Session,
        now: Now,
        provider: Provider,
        image: String,
        idle: Option<Duration>,
    ) -> Result<Shown, SessionError> {
        let Now { shows, reason, failure } = now;
        let Some(shows) = shows else { return self.without_sandbox(&session) };
        let terms = self.settings.terms;
        Ok(Shown { session, shows, reason, failure, provider, image, idle, terms })
    }

    fn without_sandbox(self: &Arc<Self>, session: &Session) -> Result<Shown, SessionError> {
        self.end_later(session);
        Err(Refusal::Expired(SessionEnd::SandboxGone).into())
    }
}
