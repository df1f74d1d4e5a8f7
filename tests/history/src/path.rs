//! Which events may follow which: the life of a sandbox as its events show it.
//!
//! ```text
//!               ┌───────── resuming ◀────────┐
//!               ▼                            │
//! provisioning ─▶ active ⇄ frozen ─▶ stopping ─▶ stopped
//!
//! active                       ─▶ stopping
//! active, frozen               ─▶ stopped    its processes were lost (a reboot, a lost supervisor)
//! any but deleting, terminated ─▶ failed
//! failed, with its files kept  ─▶ resuming
//! any but terminated           ─▶ deleting ─▶ terminated
//! ```
//!
//! The table is written out anew and not taken from `model`, which is on trial here too. A test
//! compares the two.

use crate::event::{Kind, State};

/// Where a sandbox is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Provisioning,
    Active,
    Frozen,
    Stopping,
    Stopped,
    Resuming,
    Failed,
    Deleting,
    Terminated,
}

/// Whether commands run when an event comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commands {
    Run,
    None,
}

impl Phase {
    /// Returns the phase after an event, or nothing if the event may not come there. Before the
    /// first event there is no phase.
    pub fn after(phase: Option<Self>, kind: Kind, commands: Commands) -> Option<Self> {
        let Some(phase) = phase else {
            return (kind == Kind::Accepted).then_some(Self::Provisioning);
        };
        let next = phase.next(kind)?;
        // Every command gets its end before the sandbox gets to where none can run.
        let ends_commands = matches!(kind, Kind::Failed | Kind::Stopped | Kind::Deleted);
        (!ends_commands || commands == Commands::None).then_some(next)
    }

    fn next(self, kind: Kind) -> Option<Self> {
        use Phase::{Active, Deleting, Failed, Frozen, Provisioning, Resuming};
        use Phase::{Stopped, Stopping, Terminated};
        let lives = !matches!(self, Failed | Deleting | Terminated);
        let (may_come, next) = match kind {
            Kind::Accepted => (matches!(self, Stopped | Failed), Resuming),
            Kind::Preparing => (matches!(self, Provisioning | Resuming), self),
            Kind::Ready => (matches!(self, Provisioning | Resuming), Active),
            Kind::Failed => (lives, Failed),
            Kind::StopRequested => (matches!(self, Active | Frozen), Stopping),
            Kind::Stopped => (matches!(self, Active | Frozen | Stopping), Stopped),
            Kind::DeleteRequested => (!matches!(self, Deleting | Terminated), Deleting),
            Kind::Deleted => (self == Deleting, Terminated),
            Kind::ExecStarted => (matches!(self, Active), Active),
            Kind::ExecFinished | Kind::ExecFailed | Kind::ExecCancelled => {
                (self != Terminated, self)
            }
            Kind::CompanionReady | Kind::CompanionFailed => (lives && self != Stopped, self),
            Kind::Frozen => (matches!(self, Active), Frozen),
            Kind::Thawed => (self == Frozen, Active),
            // Those that failed without files are deleted after a while.
            Kind::EndsSoon => (!matches!(self, Deleting | Terminated), self),
            Kind::Note => (self != Terminated, self),
        };
        may_come.then_some(next)
    }

    /// Returns what a client is shown. A frozen sandbox is ready because using it thaws it, and a
    /// stopping one until it has stopped.
    pub const fn state(self) -> State {
        match self {
            Self::Provisioning | Self::Resuming => State::Pending,
            Self::Active | Self::Frozen | Self::Stopping => State::Ready,
            Self::Stopped => State::Stopped,
            Self::Failed => State::Failed,
            Self::Deleting => State::Deleting,
            Self::Terminated => State::Deleted,
        }
    }

    /// Tells whether a sandbox may stay there.
    pub const fn is_settled(self) -> bool {
        match self {
            Self::Active | Self::Frozen | Self::Stopped | Self::Failed | Self::Terminated => true,
            Self::Provisioning | Self::Resuming | Self::Stopping | Self::Deleting => false,
        }
    }

    /// Tells whether a command would be taken, if need be after a thaw.
    pub const fn takes_commands(self) -> bool {
        matches!(self, Self::Active | Self::Frozen)
    }
}
