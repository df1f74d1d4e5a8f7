//! What happens to a sandbox because time has passed.

use std::time::Duration;

use model::{
    life::{EndCause, Phase, SuspendReason},
    sandbox::Request,
    spec::Suspend,
    units::Timestamp,
};
use tokio::time::Instant;

use super::{Actor, Presence};

impl Actor {
    /// Returns when something is to be done although nothing happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.phase() {
            Phase::Stopping => self.stop_until,
            Phase::Stopped => {
                Some(Instant::now() + self.left_of(self.shared.settings.defaults.keep_stopped))
            }
            Phase::Active | Phase::Idle => {
                let is_unused = self.sandbox.life.running.is_empty();
                let idle_end = if is_unused { self.idle_end() } else { None };
                let more = [self.main.deadline(), self.beside.deadline()];
                [idle_end].into_iter().chain(more).flatten().min()
            }
            _ => None,
        }
    }

    fn idle_end(&self) -> Option<Instant> {
        let idle = self.sandbox.spec.idle?;
        let unused = self.since(self.sandbox.life.last_used_at).min(self.ports.unused_for());
        Some(Instant::now() + idle.after.saturating_sub(unused))
    }

    /// Returns what is left of the time that it may be in its phase.
    fn left_of(&self, time: Duration) -> Duration {
        time.saturating_sub(self.since(self.sandbox.life.phase_since))
    }

    fn since(&self, then: Timestamp) -> Duration {
        let passed = self.now().as_millis() - then.as_millis();
        Duration::from_millis(u64::try_from(passed).unwrap_or(0))
    }

    pub(super) async fn time_is_up(&mut self) {
        if self.phase() == Phase::Stopping {
            tracing::warn!(sandbox = %self.sandbox.id, "did not stop in time, and is ended");
            return self.let_go(Presence::Remains);
        }
        if self.phase() == Phase::Stopped {
            if self.left_of(self.shared.settings.defaults.keep_stopped).is_zero() {
                self.ask_ourselves(Request::Delete(EndCause::CleanupTtl)).await;
            }
            return;
        }
        self.start_main_again().await;
        self.end_late_post_starts().await;
        let Some(idle) = self.sandbox.spec.idle else { return };
        if !self.sandbox.life.running.is_empty()
            || self.idle_end().is_some_and(|end| end > Instant::now())
        {
            return;
        }
        let request = match idle.then {
            Suspend::Stop => Request::Stop(SuspendReason::Idle),
            Suspend::Freeze => Request::Freeze(SuspendReason::Idle),
        };
        self.ask_ourselves(request).await;
    }
}
