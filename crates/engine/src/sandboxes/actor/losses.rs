//! What becomes of a sandbox whose body cannot be made, or is not there any more.

use model::{
    life::{Failure, FailureCause, Phase},
    transition::Observation,
};

use super::{Actor, Presence, chain};
use crate::sandboxes::machine::MachineError;

impl Actor {
    pub(super) async fn not_made(&mut self, error: &MachineError) {
        let id = &self.sandbox.id;
        tracing::warn!(sandbox = %id, error = error as &dyn std::error::Error, "not made");
        self.presence = Presence::Remains;
        let cause = match (self.phase(), error) {
            (_, MachineError::Full { .. }) => FailureCause::DiskFull,
            (Phase::Resuming, _) => FailureCause::ResumeFailed,
            _ => FailureCause::CreateFailed,
        };
        self.fail(cause, &chain(error)).await;
    }

    /// No supervisor lives that an earlier daemon may have had.
    pub(super) async fn found_nothing(&mut self, rebooted: bool) {
        // There may be remains: control groups, and files half made.
        self.presence = Presence::Remains;
        let (cause, message) = if rebooted {
            (FailureCause::HostRebooted, "the machine was started anew")
        } else {
            (FailureCause::SupervisorLost, "its processes are gone")
        };
        self.lost(cause, message).await;
    }

    /// Nobody lives who should: says so, after the ends that are known from the journal.
    pub(super) async fn lost(&mut self, cause: FailureCause, message: &str) {
        if matches!(self.phase(), Phase::Active | Phase::Idle | Phase::Frozen) {
            self.see_ends_in_journal().await;
            self.fail(cause, message).await;
        }
    }

    pub(super) async fn fail(&mut self, cause: FailureCause, message: &str) {
        let failure = Failure { cause, message: message.to_owned() };
        self.see(Observation::Failed(failure)).await;
    }
}
