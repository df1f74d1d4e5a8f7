//! What happens to a sandbox because time has passed.

use std::time::Duration;

use model::{
    audit::{Action, Entry, Outcome},
    life::{EndCause, Phase},
    sandbox::Request,
    spec::KeepStopped,
    transition::Observation,
};
use tokio::time::Instant;

use super::{Actor, Presence, farewell::Farewell};

/// How long before a sandbox is deleted its followers are warned: a day, or half of the time if that is less.
fn warned_before(kept: Duration) -> Duration {
    Duration::from_hours(24).min(kept / 2)
}

impl Actor {
    /// Returns when something is to be done although nothing happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let all = [self.retry.deadline(), self.end_of_waiting(), self.deadline_of_phase()];
        all.into_iter().flatten().min()
    }

    fn deadline_of_phase(&self) -> Option<Instant> {
        match self.phase() {
            Phase::Stopping => self.stop_until,
            Phase::Deleting => self.farewell.deadline(),
            Phase::Stopped | Phase::Failed => self.warning_of_cleanup().or(self.end_of_keeping()),
            // It may be in use by commands that nobody here can see.
            _ if matches!(self.presence, Presence::Foreign { .. }) => None,
            Phase::Active => {
                let more = [self.main.deadline(), self.beside.deadline()];
                more.into_iter().flatten().chain([self.next_look()]).min()
            }
            Phase::Provisioning | Phase::Resuming => self.beside.deadline(),
            _ => None,
        }
    }

    /// Returns until when a sandbox that has stopped or failed is kept.
    fn end_of_keeping(&self) -> Option<Instant> {
        self.keeping().map(|kept| self.moments.in_phase_for(kept))
    }

    /// Returns how long a sandbox that has stopped or failed is kept; nothing if until a request deletes it.
    fn keeping(&self) -> Option<Duration> {
        if self.phase() == Phase::Failed {
            // One with files is kept: it can be resumed.
            let is_gone = self.sandbox.life.is_gone();
            return self.shared.settings.defaults.keep_failed.filter(|_| is_gone);
        }
        match self.sandbox.spec.keep_stopped {
            Some(KeepStopped::Forever) => None,
            Some(KeepStopped::For(kept)) => Some(kept),
            None => self.shared.settings.defaults.keep_stopped,
        }
    }

    /// Returns when to warn that it is deleted soon, unless that was done.
    fn warning_of_cleanup(&self) -> Option<Instant> {
        let kept = self.keeping().filter(|_| !self.is_warned_of_cleanup)?;
        Some(self.moments.in_phase_for(kept.saturating_sub(warned_before(kept))))
    }

    /// Warns its followers that it is deleted soon.
    async fn warn_of_cleanup(&mut self) {
        self.is_warned_of_cleanup = true;
        let Some(end) = self.end_of_keeping() else { return };
        let left = end.saturating_duration_since(Instant::now());
        let seconds = u32::try_from(left.as_secs()).unwrap_or(u32::MAX);
        self.see(Observation::EndsSoon { cause: EndCause::CleanupTtl, seconds }).await;
    }

    /// Records that a sandbox is deleted because its time is over: no request is recorded for it.
    async fn record_cleanup(&mut self) {
        let entry = Entry {
            tenant: Some(self.sandbox.tenant.to_string()),
            sandbox: Some(self.sandbox.id.to_string()),
            reason: Some("cleanup_ttl".to_owned()),
            ..Entry::new(self.now(), Action::SandboxDelete, Outcome::Granted)
        };
        if let Err(error) = self.shared.store.record(vec![entry]).await {
            tracing::error!(sandbox = %self.sandbox.id, %error, "cannot record the end of a sandbox");
        }
    }

    pub(super) async fn time_is_up(&mut self) {
        self.refuse_late();
        if self.retry.deadline().is_some_and(|at| at <= Instant::now()) {
            return self.retry.at_once();
        }
        let is_over = |at: Option<Instant>| at.is_some_and(|at| at <= Instant::now());
        if self.phase() == Phase::Deleting {
            if is_over(self.farewell.deadline()) {
                self.farewell = Farewell::Over;
            }
            return;
        }
        if self.phase() == Phase::Stopping {
            if !is_over(self.stop_until) {
                return;
            }
            // Once: what comes then has a time of its own.
            self.stop_until = None;
            tracing::warn!(sandbox = %self.sandbox.id, "did not stop in time, and is ended");
            return self.let_go(Presence::Remains);
        }
        if matches!(self.phase(), Phase::Stopped | Phase::Failed) {
            if is_over(self.warning_of_cleanup()) {
                return self.warn_of_cleanup().await;
            }
            if is_over(self.end_of_keeping()) {
                self.ask_ourselves(Request::Delete(EndCause::CleanupTtl)).await;
                self.record_cleanup().await;
            }
            return;
        }
        self.start_main_again().await;
        self.companions_are_late().await;
        self.look().await;
    }
}
