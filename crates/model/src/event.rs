//! What happened to a sandbox, as data. The events of a sandbox are its truth: its state is what
//! they add up to (see [`crate::life`]).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    adjustment::Setting,
    exec::ExecEnd,
    ids::{ExecId, ShellName},
    image::UsedImages,
    life::{EndCause, Failure, Phase, SuspendReason},
    units::Timestamp,
};

/// The place of an event in its sandbox: 1, 2, 3, … without gaps. Zero is before the first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Sequence(pub u64);

impl Sequence {
    pub const ZERO: Self = Self(0);

    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One recorded change of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub sequence: Sequence,
    pub occurred_at: Timestamp,
    /// The phase of the sandbox once this has happened.
    pub phase: Phase,
    pub kind: EventKind,
}

/// What happened. Kinds are only ever added: stored ones are read by every later version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Creation was accepted. Always the first.
    Accepted,
    /// Everything that it is made from is here.
    Preparing {
        step: String,
        #[serde(default, skip_serializing_if = "UsedImages::is_empty")]
        images: UsedImages,
    },
    Ready,
    Failed(Failure),
    StopRequested(SuspendReason),
    Stopped(SuspendReason),
    ResumeAccepted,
    DeleteRequested(EndCause),
    /// Always the last.
    Deleted(EndCause),
    Frozen(SuspendReason),
    Thawed,
    /// It ends soon unless somebody prolongs it.
    EndsSoon {
        cause: EndCause,
        seconds: u32,
    },
    ExecStarted {
        exec: ExecId,
        /// What it is called if it is a shell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shell: Option<ShellName>,
        /// Whether it ends by itself after some time. Shells do not.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        has_timeout: bool,
    },
    ExecEnded {
        exec: ExecId,
        end: ExecEnd,
    },
    CompanionReady {
        name: String,
    },
    CompanionFailed {
        name: String,
        message: String,
    },
    /// Somebody changed these of its settings.
    Adjusted(Vec<Setting>),
}

impl EventKind {
    /// Says whether somebody used the sandbox by this.
    pub const fn is_use(&self) -> bool {
        match self {
            Self::Ready | Self::Thawed | Self::ExecStarted { .. } | Self::ExecEnded { .. } => true,
            Self::Accepted
            | Self::Preparing { .. }
            | Self::Failed(_)
            | Self::StopRequested(_)
            | Self::Stopped(_)
            | Self::ResumeAccepted
            | Self::DeleteRequested(_)
            | Self::Deleted(_)
            | Self::Frozen(_)
            | Self::EndsSoon { .. }
            | Self::CompanionReady { .. }
            | Self::CompanionFailed { .. }
            | Self::Adjusted(_) => false,
        }
    }
}
