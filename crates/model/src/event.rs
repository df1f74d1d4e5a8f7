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

/// Returns the first event that stays when a log of these is to have so many; nothing while it has hardly more.
/// Deleting is worth it for a hundredth of them.
pub fn first_kept(earliest: Sequence, latest: Sequence, kept: u64) -> Option<Sequence> {
    let first = latest.0.saturating_sub(kept).saturating_add(1);
    let surplus = first.saturating_sub(earliest.0);
    (surplus >= (kept / 100).max(1)).then_some(Sequence(first))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_cut_when_it_has_a_hundredth_more_than_is_kept() {
        // The first event, the last one, how many are kept, and the first one then.
        let rows = [
            (1, 1, 10, None),
            (1, 10, 10, None),
            (1, 11, 10, Some(2)),
            (2, 11, 10, None),
            (1, 30, 10, Some(21)),
            (1, 1009, 1000, None),
            (1, 1010, 1000, Some(11)),
            (1, u64::MAX, 1, Some(u64::MAX)),
        ];
        for (earliest, latest, kept, first) in rows {
            let found = first_kept(Sequence(earliest), Sequence(latest), kept);
            assert_eq!(found, first.map(Sequence), "{earliest} to {latest}, {kept} kept");
        }
    }
}
