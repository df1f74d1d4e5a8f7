//! A sandbox, what may be asked of it, and the answers.

use serde::{Deserialize, Serialize};

use crate::{
    activity::Consequence,
    adjustment::Adjustment,
    ids::{Alias, ExecId, NodeId, SandboxId, ShellName, Tenant},
    life::{EndCause, Life, Phase, SuspendReason},
    spec::{ExecSpec, SandboxSpec},
};

/// A sandbox as it is kept: what it was asked to be, and its life so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    pub id: SandboxId,
    pub tenant: Tenant,
    pub alias: Option<Alias>,
    pub node: NodeId,
    pub spec: SandboxSpec,
    pub life: Life,
}

/// What may be asked of a sandbox that exists. Deadlines ask as people do: an idle time that has
/// passed is a [`Request::Stop`] or [`Request::Freeze`] for [`SuspendReason::Idle`], the end of a
/// lease a [`Request::Delete`] for [`EndCause::LeaseExpired`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Stop(SuspendReason),
    Resume,
    Delete(EndCause),
    Freeze(SuspendReason),
    Thaw,
    StartExec {
        exec: ExecId,
        spec: ExecSpec,
        when_stopped: WhenStopped,
    },
    CancelExec(ExecId),
    Adjust(Box<Adjustment>),
    /// A call of the data plane, or an attached client.
    Use(WhenStopped),
}

impl Request {
    /// Says whether it can wait until a sandbox is there that is on its way ([`Refusal::NotYet`]).
    pub const fn may_wait(&self) -> bool {
        match self {
            Self::Resume | Self::StartExec { .. } | Self::Use(WhenStopped::Resume) => true,
            Self::Use(WhenStopped::Refuse)
            | Self::Stop(_)
            | Self::Delete(_)
            | Self::Freeze(_)
            | Self::Thaw
            | Self::CancelExec(_)
            | Self::Adjust(_) => false,
        }
    }
}

/// Whether using a stopped sandbox starts it. The surface's contract says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenStopped {
    Refuse,
    Resume,
}

/// What a request comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Do,
    /// Something else must be done before; then the request is to be asked again.
    First(Wake),
    AlreadySo,
}

/// How a sleeping sandbox is made ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    Thaw,
    Resume,
}

/// Why a request is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is on its way to where the request makes sense.
    #[error("the sandbox is {}: not yet", .0.name())]
    NotYet(Phase),
    #[error("the sandbox is {}", .0.name())]
    WrongPhase(Phase),
    #[error("the sandbox has failed")]
    Failed,
    #[error("the sandbox is deleted")]
    Gone,
    /// Commands run in it, so that it is not idle.
    #[error("the sandbox is in use")]
    InUse,
    #[error("an exec of this id exists already")]
    ExecExists,
    /// No command of this id runs: it has ended, or there was none.
    #[error("the exec does not run")]
    ExecNotRunning,
    #[error("{MOST_SHELLS} shells run in the sandbox, and there is no room for another")]
    TooManyShells,
}

/// The most shells that run in a sandbox at once.
pub const MOST_SHELLS: usize = 32;

impl Life {
    /// Decides what a request comes to. The policy is the table of [`Phase::decide`] and these
    /// rules about commands.
    pub fn decide(&self, request: &Request) -> Result<Verdict, Refusal> {
        match request {
            Request::CancelExec(exec) if !self.running.contains_key(exec) => {
                Err(Refusal::ExecNotRunning)
            }
            Request::StartExec { exec, .. } if self.running.contains_key(exec) => {
                Err(Refusal::ExecExists)
            }
            Request::Stop(SuspendReason::Idle) if self.commands_forbid(Consequence::Stop) => {
                Err(Refusal::InUse)
            }
            Request::Freeze(SuspendReason::Idle) if self.commands_forbid(Consequence::Freeze) => {
                Err(Refusal::InUse)
            }
            // A failed sandbox that has its files is started as a stopped one is.
            Request::Resume | Request::StartExec { .. } | Request::Use(_)
                if self.phase == Phase::Failed && self.can_be_started() =>
            {
                Phase::Stopped.decide(request).or(Err(Refusal::Failed))
            }
            Request::StartExec { spec: ExecSpec { shell: Some(name), .. }, .. } => {
                match self.phase.decide(request)? {
                    Verdict::Do => self.decide_shell(name),
                    verdict @ (Verdict::AlreadySo | Verdict::First(_)) => Ok(verdict),
                }
            }
            Request::Stop(_)
            | Request::Resume
            | Request::Delete(_)
            | Request::Freeze(_)
            | Request::Thaw
            | Request::StartExec { .. }
            | Request::CancelExec(_)
            | Request::Adjust(_)
            | Request::Use(_) => self.phase.decide(request),
        }
    }

    /// Whoever wants a shell that is there gets that one, in a sandbox that is awake.
    fn decide_shell(&self, name: &ShellName) -> Result<Verdict, Refusal> {
        if self.shells.contains_key(name) {
            Ok(Verdict::AlreadySo)
        } else if self.shells.len() >= MOST_SHELLS {
            Err(Refusal::TooManyShells)
        } else {
            Ok(Verdict::Do)
        }
    }
}

impl Phase {
    /// Decides what a request comes to in this phase. The whole policy is this one table.
    ///
    /// [`Verdict::AlreadySo`] means that nothing is left to do, as for a second stop. Every surface answers it as success.
    pub fn decide(self, request: &Request) -> Result<Verdict, Refusal> {
        use Phase::{
            Active, Deleting, Failed, Frozen, Provisioning, Resuming, Stopped, Stopping, Terminated,
        };
        use Verdict::{AlreadySo, Do, First};

        match (request, self) {
            (Request::Stop(_), Active | Frozen) => Ok(Do),
            (Request::Stop(_), Stopping | Stopped) => Ok(AlreadySo),
            (Request::Stop(_), Provisioning | Resuming) => Err(Refusal::NotYet(self)),

            (Request::Resume, Stopped) => Ok(Do),
            (Request::Resume, Frozen) => Ok(First(Wake::Thaw)),
            (Request::Resume, Resuming | Active) => Ok(AlreadySo),
            (Request::Resume, Stopping) => Err(Refusal::NotYet(self)),
            (Request::Resume, Provisioning) => Err(Refusal::WrongPhase(self)),

            (Request::Delete(_), Deleting | Terminated) => Ok(AlreadySo),
            (
                Request::Delete(_),
                Provisioning | Active | Frozen | Stopping | Stopped | Resuming | Failed,
            ) => Ok(Do),

            (Request::Freeze(_), Active) => Ok(Do),
            (Request::Freeze(_), Frozen) => Ok(AlreadySo),
            (Request::Freeze(_), Provisioning | Resuming) => Err(Refusal::NotYet(self)),
            (Request::Freeze(_), Stopping | Stopped) => Err(Refusal::WrongPhase(self)),

            (Request::Thaw, Frozen) => Ok(Do),
            (Request::Thaw, Active) => Ok(AlreadySo),
            (Request::Thaw, Provisioning | Resuming | Stopping | Stopped) => {
                Err(Refusal::WrongPhase(self))
            }

            (Request::StartExec { .. }, Active) => Ok(Do),
            (Request::Use(_), Active) => Ok(AlreadySo),
            (Request::StartExec { .. } | Request::Use(_), Frozen) => Ok(First(Wake::Thaw)),
            (Request::StartExec { when_stopped, .. } | Request::Use(when_stopped), Stopped) => {
                match when_stopped {
                    WhenStopped::Refuse => Err(Refusal::WrongPhase(self)),
                    WhenStopped::Resume => Ok(First(Wake::Resume)),
                }
            }
            (Request::StartExec { .. } | Request::Use(_), Provisioning | Resuming | Stopping) => {
                Err(Refusal::NotYet(self))
            }

            // A command that runs can be cancelled wherever it runs, in a dying sandbox too.
            (
                Request::CancelExec(_),
                Provisioning | Active | Frozen | Stopping | Stopped | Resuming | Failed | Deleting,
            ) => Ok(Do),
            (Request::CancelExec(_), Terminated) => Err(Refusal::Gone),

            // Settings are of no interest to what runs; whoever has failed may be called otherwise.
            (
                Request::Adjust(_),
                Provisioning | Active | Frozen | Stopping | Stopped | Resuming | Failed,
            ) => Ok(Do),
            (Request::Adjust(_), Deleting | Terminated) => Err(Refusal::Gone),

            (
                Request::Stop(_)
                | Request::Resume
                | Request::Freeze(_)
                | Request::Thaw
                | Request::StartExec { .. }
                | Request::Use(_),
                Failed,
            ) => Err(Refusal::Failed),
            (
                Request::Stop(_)
                | Request::Resume
                | Request::Freeze(_)
                | Request::Thaw
                | Request::StartExec { .. }
                | Request::Use(_),
                Deleting | Terminated,
            ) => Err(Refusal::Gone),
        }
    }
}
