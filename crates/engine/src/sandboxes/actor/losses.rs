//! What becomes of a sandbox whose body cannot be made, or is not there any more.

use isolate::failpoint;
use model::{
    life::{Crash, Failure, FailureCause, Phase, SuspendReason},
    sandbox::Request,
    transition::Observation,
};

use super::{Actor, Presence, chain};
use crate::sandboxes::{
    SandboxError,
    machine::{Found, MachineError},
};

impl Actor {
    pub(super) async fn not_made(&mut self, error: &MachineError) {
        if error.is_out_of_reach() && self.phase() == Phase::Resuming {
            // Its files are kept; whoever waits may come back.
            self.refuse_waiting(|| SandboxError::Provider(error.to_string()));
            return self.set_aside("start its processes", error);
        }
        let id = &self.sandbox.id;
        tracing::warn!(sandbox = %id, error = error as &dyn std::error::Error, "not made");
        self.presence = Presence::Remains;
        let cause = match (self.phase(), error) {
            (_, MachineError::Gone) => FailureCause::ProviderLost,
            // Its files are there, whatever is missing now.
            (Phase::Resuming, _) => FailureCause::ResumeFailed,
            (_, MachineError::Full { .. }) => FailureCause::DiskFull,
            _ => FailureCause::CreateFailed,
        };
        self.fail(cause, &chain(error)).await;
    }

    /// It is known again what there is of it.
    pub(super) async fn found(&mut self, found: Found) {
        match found {
            Found::Link(link) => {
                failpoint::pass("c.connected");
                self.let_go(Presence::Link(link));
            }
            Found::Nothing { rebooted } => self.found_nothing(rebooted).await,
            Found::Stopped => self.found_stopped().await,
            Found::Gone => {
                self.presence = Presence::Remains;
                self.provider_lost().await;
            }
        }
    }

    /// Its provider has ended its processes. Nothing is lost but these: it is as if it had been stopped.
    async fn found_stopped(&mut self) {
        self.presence = Presence::Remains;
        if matches!(self.phase(), Phase::Active | Phase::Frozen) {
            self.see_ends_in_journal().await;
            self.ask_ourselves(Request::Stop(SuspendReason::ProviderStopped)).await;
        }
    }

    /// No supervisor lives that an earlier daemon may have had.
    async fn found_nothing(&mut self, rebooted: bool) {
        // There may be remains: control groups, and files half made.
        self.presence = Presence::Remains;
        let crash = if rebooted { Crash::HostRebooted } else { Crash::SupervisorLost };
        self.crashed(crash).await;
    }

    /// Its processes are gone: it is stopped, after the ends of commands that are known from the journal.
    pub(super) async fn crashed(&mut self, crash: Crash) {
        if matches!(self.phase(), Phase::Active | Phase::Frozen) {
            self.see_ends_in_journal().await;
            tracing::warn!(sandbox = %self.sandbox.id, ?crash, "its processes are gone: it is stopped");
            self.see(Observation::Crashed(crash)).await;
        }
    }

    /// Its provider has neither its processes nor its files.
    async fn provider_lost(&mut self) {
        if matches!(self.phase(), Phase::Active | Phase::Frozen) {
            self.see_ends_in_journal().await;
            self.fail(FailureCause::ProviderLost, &MachineError::Gone.to_string()).await;
        }
    }

    pub(super) async fn fail(&mut self, cause: FailureCause, message: &str) {
        let failure = Failure { cause, message: message.to_owned() };
        self.see(Observation::Failed(failure)).await;
    }
}
