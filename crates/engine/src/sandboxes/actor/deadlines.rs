//! What happens to a sandbox because time has passed.

use model::{
    life::{EndCause, Phase, SuspendReason},
    sandbox::Request,
    spec::{KeepStopped, Suspend},
};
use tokio::time::Instant;

use super::{Actor, Presence, farewell::Farewell};

impl Actor {
    /// Returns when something is to be done although nothing happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.retry.deadline(), self.deadline_of_phase()].into_iter().flatten().min()
    }

    fn deadline_of_phase(&self) -> Option<Instant> {
        match self.phase() {
            Phase::Stopping => self.stop_until,
            Phase::Deleting => self.farewell.deadline(),
            Phase::Stopped => self.end_of_keeping(),
            // It may be in use by commands that nobody here can see.
            _ if matches!(self.presence, Presence::Foreign { .. }) => None,
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
        let after = self.sandbox.spec.idle?.after;
        let unused = self.moments.unused_for(after);
        let ports = self.door.way.unused_for(after);
        let files = self.shared.files.unused_for(&self.sandbox.id, after);
        [ports, files, Some(unused)].into_iter().flatten().max()
    }

    /// Returns until when a stopped one is kept.
    fn end_of_keeping(&self) -> Option<Instant> {
        let kept = match self.sandbox.spec.keep_stopped {
            Some(KeepStopped::Forever) => return None,
            Some(KeepStopped::For(kept)) => kept,
            None => self.shared.settings.defaults.keep_stopped,
        };
        Some(self.moments.in_phase_for(kept))
    }

    pub(super) async fn time_is_up(&mut self) {
        if self.retry.deadline().is_some_and(|at| at <= Instant::now()) {
            return self.retry.at_once();
        }
        if self.phase() == Phase::Deleting {
            return self.farewell = Farewell::Over;
        }
        if self.phase() == Phase::Stopping {
            // Once: what comes then has a time of its own.
            self.stop_until = None;
            tracing::warn!(sandbox = %self.sandbox.id, "did not stop in time, and is ended");
            return self.let_go(Presence::Remains);
        }
        if self.phase() == Phase::Stopped {
            if self.end_of_keeping().is_some_and(|end| end <= Instant::now()) {
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
