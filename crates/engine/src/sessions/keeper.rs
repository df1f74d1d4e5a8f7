//! Leases: one task waits for the first deadline of all, and whatever is due is looked at in its turn.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use model::{
    ids::SessionId,
    lease::{Activity, Due, Lease},
    life::EndCause,
    session::{Session, SessionEnd, State},
    units::Timestamp,
};
use store::StoreError;
use tokio::{
    select,
    sync::Notify,
    time::{Instant, interval, sleep_until},
};

use super::{SessionError, Shared, Which};
use crate::sandboxes::SandboxError;

/// How long before an end whoever follows the sandbox is told, in seconds, the first first.
const WARNINGS: [u32; 2] = [60, 10];
/// The last use is measured anew each time: ends that are closer than this are one.
const SAME_END: Duration = Duration::from_secs(1);
/// When something is looked at again that could not be kept.
const RETRY: Duration = Duration::from_secs(5);
/// How often what is over is looked for.
const TIDY: Duration = Duration::from_mins(10);

/// Waits for deadlines for as long as there are sessions; `earlier` says that the first is another one.
pub(super) async fn keep(shared: Weak<Shared>, earlier: Arc<Notify>) {
    let mut tidy = interval(TIDY);
    loop {
        let Some(first) = shared.upgrade().map(|shared| shared.known().first_deadline()) else {
            return;
        };
        let deadline = async {
            match first {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let is_late = select! {
            () = deadline => false,
            () = earlier.notified() => false,
            _ = tidy.tick() => true,
        };
        let Some(shared) = shared.upgrade() else { return };
        if is_late && shared.tidy().await == Tidied::Closed {
            return;
        }
        let due = shared.known().due(Instant::now());
        for id in due {
            shared.sandboxes.tasks().start("lease", look(Arc::clone(&shared), id));
        }
    }
}

#[derive(PartialEq, Eq)]
enum Tidied {
    Done,
    /// The store is closed: there is nothing more to do.
    Closed,
}

/// Returns when a session that ends then is to be looked at first: at once, if it is to be warned of already.
pub(super) fn first_look(end: Timestamp, now: Timestamp) -> Timestamp {
    let is_near =
        WARNINGS.iter().any(|seconds| end.since(now).as_secs_f64() <= f64::from(*seconds));
    if is_near { now } else { next_look(end, now) }
}

/// Returns when a session with this end is to be looked at: at a warning, or at the end.
fn next_look(end: Timestamp, now: Timestamp) -> Timestamp {
    let before = |seconds: u32| {
        Timestamp::from_millis(end.as_millis().saturating_sub(i64::from(seconds) * 1000))
    };
    WARNINGS.into_iter().map(before).find(|at| *at > now).unwrap_or(end)
}

/// Looks at a session: does what is due, and says when to look again.
pub(super) async fn look(shared: Arc<Shared>, id: SessionId) {
    let Some(session) = shared.known().get(&id).map(|held| held.session.clone()) else { return };
    let _turn = shared.turn(&session.tenant, &session.scope).await;
    // It may have gone on meanwhile, by another daemon too.
    let found = match shared.find(&session.tenant, &Which::Id(id.clone())).await {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => return shared.retry(&id, &error),
    };
    if found != session {
        shared.follow(found.clone());
    }
    match shared.treat(&found).await {
        Ok(()) => {}
        // What it is now has its own deadline.
        Err(SessionError::Sandbox(SandboxError::Store(StoreError::Bound { .. }))) => {}
        Err(error) => shared.retry(&id, &error),
    }
}

impl Shared {
    fn retry(&self, id: &SessionId, error: &SessionError) {
        tracing::warn!(session = %id, %error, "cannot look after a session");
        self.look_again(id, Instant::now() + RETRY);
    }

    /// Forgets what was left of sandboxes that are gone, and keys of requests whose time is over.
    async fn tidy(&self) -> Tidied {
        self.known().tidy(|sandbox| self.sandboxes.look(sandbox, |_| ()).is_some());
        match self.store().forget_used_keys(self.clock.now()).await {
            Err(StoreError::Closed) => return Tidied::Closed,
            Err(error) => tracing::warn!(%error, "cannot forget keys of requests"),
            Ok(()) => {}
        }
        Tidied::Done
    }

    fn look_again(&self, id: &SessionId, at: Instant) {
        if self.known().look_again(id, at) {
            self.earlier.notify_one();
        }
    }

    async fn treat(&self, session: &Session) -> Result<(), SessionError> {
        let now = self.clock.now();
        match session.state {
            State::Ended(_) => Ok(()),
            State::Released { kept_until } if now >= kept_until => {
                self.finish(session, SessionEnd::Released).await
            }
            State::Released { kept_until } => {
                self.look_again(&session.id, self.clock.instant(kept_until));
                Ok(())
            }
            State::Live => {
                let life = self.sandboxes.life(&session.sandbox).await?;
                // A failed creation stays readable until the lease ends.
                if life.is_none_or(|life| life.is_gone() && life.failed_creation().is_none()) {
                    return self.finish(session, SessionEnd::SandboxGone).await;
                }
                self.look_at_lease(session, now).await
            }
        }
    }

    async fn look_at_lease(&self, session: &Session, now: Timestamp) -> Result<(), SessionError> {
        let terms = self.settings.terms;
        let touched = self.known().get_mut(&session.id).and_then(|held| held.touched.take());
        let activity = self.activity(session, touched, now);
        let due = session.lease.due(now, activity, terms);
        let renewed = touched.and_then(|at| session.lease.renew(at.min(now), terms).ok());
        match (due, renewed) {
            (Due::End(over), _) => self.finish(session, over.into()).await,
            (Due::Renew(lease), _) => self.go_on(session, lease).await,
            (Due::NotBefore(_), Some(lease)) if lease.until > session.lease.until => {
                self.go_on(session, lease).await
            }
            (Due::NotBefore(until), _) => {
                let end = session.lease.foreseen(now, activity, terms);
                self.warn(session, end, now);
                let next = next_look(end.until, now).min(until);
                self.look_again(&session.id, self.clock.instant(next));
                Ok(())
            }
        }
    }

    async fn go_on(&self, session: &Session, lease: Lease) -> Result<(), SessionError> {
        self.keep(&session.go_on(lease)).await?;
        Ok(())
    }

    fn activity(&self, session: &Session, touched: Option<Timestamp>, now: Timestamp) -> Activity {
        let used = self.sandboxes.activity(&session.sandbox, now);
        match (used, touched) {
            (Some(Activity::Now), _) => Activity::Now,
            (Some(Activity::Last(at)), touched) => {
                Activity::Last(touched.map_or(at, |it| it.max(at)))
            }
            (None, touched) => Activity::Last(touched.unwrap_or(session.created_at)),
        }
    }

    /// Tells whoever follows the sandbox if it ends soon.
    fn warn(&self, session: &Session, end: Lease, now: Timestamp) {
        let left = end.until.since(now).as_secs_f64();
        let passed = WARNINGS.into_iter().filter(|seconds| left <= f64::from(*seconds));
        let Some(seconds) = passed.min() else { return };
        let is_this = |(until, before): (Timestamp, u32)| {
            let apart = end.until.since(until).max(until.since(end.until));
            before == seconds && apart < SAME_END
        };
        {
            let mut known = self.known();
            let Some(held) = known.get_mut(&session.id) else { return };
            if held.warned.is_some_and(is_this) {
                return;
            }
            held.warned = Some((end.until, seconds));
        }
        let is_hard = end.until == end.hard;
        let cause = if is_hard { EndCause::HardTtl } else { EndCause::LeaseExpired };
        self.sandboxes.warn(&session.sandbox, cause, seconds);
    }
}
