//! A session as clients see it, with what became of its sandbox.

use std::time::Duration;

use model::{
    lease::Terms,
    life::{Failure, Life, Phase},
    session::Session,
    spec::Provider,
};

use super::{SessionError, Shared};

#[derive(Clone, Debug)]
pub struct Shown {
    pub session: Session,
    pub phase: Phase,
    /// Why the sandbox is suspended or has failed.
    pub reason: Option<&'static str>,
    /// Why the sandbox could not be created.
    pub failure: Option<Failure>,
    pub(super) is_gone: bool,
    /// Where the sandbox runs.
    pub provider: Provider,
    pub image: String,
    /// After which time of no use the sandbox goes to sleep.
    pub idle: Option<Duration>,
    pub terms: Terms,
}

/// What is shown of a sandbox besides its settings.
struct State {
    phase: Phase,
    reason: Option<&'static str>,
    failure: Option<Failure>,
    is_gone: bool,
}

impl State {
    const UNKNOWN: Self =
        Self { phase: Phase::Terminated, reason: None, failure: None, is_gone: true };

    fn of(life: &Life) -> Self {
        let (phase, reason, is_gone) = (life.phase, life.reason(), life.is_gone());
        Self { phase, reason, failure: life.failed_creation().cloned(), is_gone }
    }
}

impl Shared {
    pub(super) async fn shown(&self, session: Session) -> Result<Shown, SessionError> {
        let here = self.known().get(&session.id).map(|held| (held.image.clone(), held.idle));
        if let Some((image, idle)) = here
            && let Some(state) = self.sandboxes.look(&session.sandbox, State::of)
            && let Some(provider) = self.sandboxes.provider(&session.sandbox)
        {
            return Ok(self.with_sandbox(session, state, provider, image, idle));
        }
        let found = self.store().sandbox(&session.sandbox).await?;
        let state = found.as_ref().map_or(State::UNKNOWN, |sandbox| State::of(&sandbox.life));
        let spec = found.map(|sandbox| sandbox.spec).unwrap_or_default();
        let idle = spec.idle.map(|idle| idle.after);
        Ok(self.with_sandbox(session, state, spec.provider, spec.image, idle))
    }

    fn with_sandbox(
        &self,
        session: Session,
        state: State,
        provider: Provider,
        image: String,
        idle: Option<Duration>,
    ) -> Shown {
        let (State { phase, reason, failure, is_gone }, terms) = (state, self.settings.terms);
        Shown { session, phase, reason, failure, is_gone, provider, image, idle, terms }
    }
}
