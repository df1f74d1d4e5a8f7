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
    life::Crash,
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
    ExitedCut {
        exit: Exit,
        lost: u64,
        /// How many of these were written to stderr.
        #[serde(default, skip_serializing_if = "is_zero")]
        lost_stderr: u64,
    },
    /// Somebody asked for it; its processes are killed after this is told.
    Cancelled,
    /// Its program never ran.
    NotStarted {
        message: String,
        /// As a shell says it: 127 if there is no such program, 126 if it cannot be executed. Nothing if the fault
        /// is not the program's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
    },
    /// It ran, and how it ended cannot be known.
    Lost(Loss),
    /// It was killed at the end of its time. So many bytes of its output could not be kept.
    TimedOut {
        lost: u64,
        /// How many of these were written to stderr.
        #[serde(default, skip_serializing_if = "is_zero")]
        lost_stderr: u64,
    },
}

impl ExecEnd {
    /// Returns the exit code: from a wait status, or of a program that could not be executed, as a shell has it.
    pub const fn exit_code(&self) -> Option<i32> {
        match self {
            Self::Exited(Exit::Code(code)) | Self::ExitedCut { exit: Exit::Code(code), .. } => {
                Some(*code)
            }
            Self::Exited(Exit::Signal(_))
            | Self::ExitedCut { exit: Exit::Signal(_), .. }
            | Self::Cancelled
            | Self::Lost(_)
            | Self::TimedOut { .. } => None,
            Self::NotStarted { exit_code, .. } => *exit_code,
        }
    }

    /// Returns how much of its output could not be kept.
    pub const fn lost_output(&self) -> LostOutput {
        match self {
            Self::ExitedCut { lost, lost_stderr, .. } | Self::TimedOut { lost, lost_stderr } => {
                LostOutput { stdout: lost.saturating_sub(*lost_stderr), stderr: *lost_stderr }
            }
            Self::Exited(_) | Self::Cancelled | Self::NotStarted { .. } | Self::Lost(_) => {
                LostOutput { stdout: 0, stderr: 0 }
            }
        }
    }
}

/// Bytes of output that could not be kept, by stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostOutput {
    pub stdout: u64,
    pub stderr: u64,
}

impl LostOutput {
    pub const fn total(self) -> u64 {
        self.stdout.saturating_add(self.stderr)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
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

impl From<Crash> for Loss {
    fn from(crash: Crash) -> Self {
        match crash {
            Crash::HostRebooted => Self::HostRebooted,
            Crash::SupervisorLost => Self::SupervisorLost,
        }
    }
}
