//! One command run in a sandbox.
//!
//! ```text
//! running ──▶ ended: exited │ cancelled │ timed out │ not started │ lost
//! ```
//!
//! There is one end, and it stays. An exit code comes from a wait status and from nothing else.

use serde::{Deserialize, Serialize};

use crate::{
    event::Sequence,
    execution::Exit,
    ids::{ExecId, SandboxId, Tenant},
    spec::ExecSpec,
    units::Timestamp,
};

/// An exec as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    pub id: ExecId,
    pub sandbox: SandboxId,
    pub tenant: Tenant,
    pub spec: ExecSpec,
    pub life: ExecLife,
}

/// What changes about an exec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecLife {
    pub state: ExecState,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// The event of the sandbox that told the last change.
    pub sequence: Sequence,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecState {
    Running,
    Ended(ExecEnd),
}

impl ExecState {
    pub const fn is_terminal(&self) -> bool {
        match self {
            Self::Running => false,
            Self::Ended(_) => true,
        }
    }
}

/// How an exec ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecEnd {
    /// By the kernel's word.
    Exited(Exit),
    /// By the kernel's word, but so many bytes of its output could not be kept.
    ExitedCut { exit: Exit, lost: u64 },
    /// Somebody asked for it; its processes are killed after this is told.
    Cancelled,
    /// No process of it ever ran.
    NotStarted { message: String },
    /// It ran, and how it ended cannot be known.
    Lost(Loss),
    /// It was killed at the end of its time. So many bytes of its output could not be kept.
    TimedOut { lost: u64 },
}

impl ExecEnd {
    /// Returns the exit code, which only a wait status has.
    pub const fn exit_code(&self) -> Option<i32> {
        match self {
            Self::Exited(Exit::Code(code)) | Self::ExitedCut { exit: Exit::Code(code), .. } => {
                Some(*code)
            }
            Self::Exited(Exit::Signal(_))
            | Self::ExitedCut { exit: Exit::Signal(_), .. }
            | Self::Cancelled
            | Self::NotStarted { .. }
            | Self::Lost(_)
            | Self::TimedOut { .. } => None,
        }
    }
}

/// What took an exec's end out of sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    SandboxFailed,
    SandboxStopped,
    SandboxDeleted,
    SupervisorLost,
    HostRebooted,
}
