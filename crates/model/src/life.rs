//! Where a sandbox is in its life: what its events add up to, and nothing else.
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

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    event::{Event, EventKind, Sequence},
    ids::{ExecId, ShellName},
    image::UsedImages,
    units::Timestamp,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Provisioning,
    Active,
    /// Processes stand still where they are.
    Frozen,
    Stopping,
    /// Processes are gone, files are kept.
    Stopped,
    Resuming,
    Failed,
    Deleting,
    /// The one end: no event comes after it.
    Terminated,
}

/// What a caller who does not care for our reasons sees of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Pending,
    Ready,
    Stopped,
    Failed,
    Deleting,
    Deleted,
}

impl Phase {
    pub const ALL: [Self; 9] = [
        Self::Provisioning,
        Self::Active,
        Self::Frozen,
        Self::Stopping,
        Self::Stopped,
        Self::Resuming,
        Self::Failed,
        Self::Deleting,
        Self::Terminated,
    ];

    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Terminated)
    }

    /// Says whether it is deleted, or about to be: there is no way back.
    pub const fn is_deleted(self) -> bool {
        match self {
            Self::Deleting | Self::Terminated => true,
            Self::Provisioning
            | Self::Active
            | Self::Frozen
            | Self::Stopping
            | Self::Stopped
            | Self::Resuming
            | Self::Failed => false,
        }
    }

    /// Returns the name that is kept and shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Provisioning => "provisioning",
            Self::Active => "active",
            Self::Frozen => "frozen",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Resuming => "resuming",
            Self::Failed => "failed",
            Self::Deleting => "deleting",
            Self::Terminated => "terminated",
        }
    }

    /// A frozen sandbox counts as ready because using it thaws it, and a stopping one until it
    /// has stopped.
    pub const fn standing(self) -> Standing {
        match self {
            Self::Provisioning | Self::Resuming => Standing::Pending,
            Self::Active | Self::Frozen | Self::Stopping => Standing::Ready,
            Self::Stopped => Standing::Stopped,
            Self::Failed => Standing::Failed,
            Self::Deleting => Standing::Deleting,
            Self::Terminated => Standing::Deleted,
        }
    }

    /// Returns the phase once this has happened.
    #[must_use]
    pub const fn after(self, kind: &EventKind) -> Self {
        match kind {
            EventKind::Accepted => Self::Provisioning,
            EventKind::Ready | EventKind::Thawed => Self::Active,
            EventKind::Failed(_) => Self::Failed,
            EventKind::StopRequested(_) => Self::Stopping,
            EventKind::Stopped(_) => Self::Stopped,
            EventKind::ResumeAccepted => Self::Resuming,
            EventKind::DeleteRequested(_) => Self::Deleting,
            EventKind::Deleted(_) => Self::Terminated,
            EventKind::Frozen(_) => Self::Frozen,
            EventKind::ExecStarted { .. } => Self::Active,
            EventKind::Preparing { .. }
            | EventKind::EndsSoon { .. }
            | EventKind::ExecEnded { .. }
            | EventKind::CompanionReady { .. }
            | EventKind::CompanionFailed { .. }
            | EventKind::Adjusted(_) => self,
        }
    }
}

/// Why a sandbox was put to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspendReason {
    Requested,
    /// Nobody used it for its idle time.
    Idle,
    /// Its binding was released; it is kept for a grace period.
    Released,
    /// Its provider ended its processes and kept its files.
    ProviderStopped,
    /// The machine was started again. Its processes are gone, its files are kept.
    HostRebooted,
    /// Its supervisor died, and its processes with it. Its files are kept.
    SupervisorLost,
}

impl SuspendReason {
    /// Returns the name that clients see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requested => "stop_requested",
            Self::Idle => "idle_ttl",
            Self::Released => "released",
            Self::ProviderStopped => "provider_stopped",
            Self::HostRebooted => "host_rebooted",
            Self::SupervisorLost => "supervisor_lost",
        }
    }
}

/// What ended all processes of a sandbox at once, without a request. Files survive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    HostRebooted,
    SupervisorLost,
}

impl From<Crash> for SuspendReason {
    fn from(crash: Crash) -> Self {
        match crash {
            Crash::HostRebooted => Self::HostRebooted,
            Crash::SupervisorLost => Self::SupervisorLost,
        }
    }
}

/// Why a sandbox came to its end. Stays readable after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    Requested,
    DeletedBy {
        actor: String,
    },
    Released,
    LeaseExpired,
    HardTtl,
    /// It was stopped, or failed without files, for longer than such sandboxes are kept.
    CleanupTtl,
    KilledByAdmin,
}

impl EndCause {
    /// Tells whether it ends because its time is over, so that its commands are given a while for their own ends.
    pub const fn is_by_time(&self) -> bool {
        match self {
            Self::LeaseExpired | Self::HardTtl => true,
            // Nothing runs in one that was stopped or has failed.
            Self::Released | Self::CleanupTtl => false,
            Self::Requested | Self::DeletedBy { .. } | Self::KilledByAdmin => false,
        }
    }
}

/// What broke a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub cause: FailureCause,
    /// For people. Never holds code, env or tokens.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    CreateFailed,
    /// The image could not be fetched; a later attempt may succeed.
    ImageFailed,
    /// The registry has no such image.
    ImageNotFound,
    /// The operator does not allow the image or its registry.
    ImageNotAllowed,
    /// The image is there and cannot be used: malformed, of another platform, or private.
    ImageUnusable,
    ResumeFailed,
    MainProcessCrashed,
    /// Only in records of earlier versions: such a sandbox is stopped now ([`Crash`]).
    SupervisorLost,
    /// Only in records of earlier versions: such a sandbox is stopped now ([`Crash`]).
    HostRebooted,
    /// The node had no room for its files when it was created.
    DiskFull,
    /// Its provider has it no more.
    ProviderLost,
}

impl FailureCause {
    /// Returns the name that clients see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CreateFailed => "create_failed",
            Self::ImageFailed => "image_failed",
            Self::ImageNotFound => "image_not_found",
            Self::ImageNotAllowed => "image_not_allowed",
            Self::ImageUnusable => "image_unusable",
            Self::ResumeFailed => "resume_failed",
            Self::MainProcessCrashed => "main_process_crashed",
            Self::SupervisorLost => "supervisor_lost",
            Self::HostRebooted => "host_rebooted",
            Self::DiskFull => "disk_full",
            Self::ProviderLost => "provider_lost",
        }
    }

    /// Says whether a sandbox that failed so still has its files, so that it can be started again.
    pub const fn keeps_files(self) -> bool {
        match self {
            Self::ResumeFailed
            | Self::MainProcessCrashed
            | Self::SupervisorLost
            | Self::HostRebooted => true,
            Self::CreateFailed
            | Self::ImageFailed
            | Self::ImageNotFound
            | Self::ImageNotAllowed
            | Self::ImageUnusable
            | Self::DiskFull
            | Self::ProviderLost => false,
        }
    }
}

/// The state of a sandbox as of [`Life::sequence`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// The last event that is in here.
    pub sequence: Sequence,
    pub phase: Phase,
    pub created_at: Timestamp,
    pub phase_since: Timestamp,
    /// When [`Phase::standing`] last changed.
    pub standing_since: Timestamp,
    /// When it was made ready or waked, or a command last began or ended.
    pub last_used_at: Timestamp,
    /// The commands that run, and since when.
    pub running: BTreeMap<ExecId, Timestamp>,
    /// Those of them that are shells, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shells: BTreeMap<ShellName, ExecId>,
    /// Those of them that end by themselves after some time.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub with_timeout: BTreeSet<ExecId>,
    /// Why it sleeps or goes to sleep.
    pub suspended_for: Option<SuspendReason>,
    /// What broke it last. Stays after it is deleted.
    pub failure: Option<Failure>,
    pub end: Option<EndCause>,
    /// What it is made from, but for the machine itself.
    #[serde(default, skip_serializing_if = "UsedImages::is_empty")]
    pub images: UsedImages,
    /// Whether it is known what it is made from, also if that is no image at all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub images_are_known: bool,
    /// What was told of each companion since the sandbox was last started.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub companions: BTreeMap<String, CompanionState>,
    /// When its settings were last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjusted_at: Option<Timestamp>,
}

/// What a companion has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompanionState {
    Ready,
    Failed,
}

/// A history that cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    #[error("the first event is not the acceptance of the sandbox")]
    Beginning,
    #[error("event {found} follows event {last}")]
    Gap { last: Sequence, found: Sequence },
    #[error("event {found} follows the end")]
    AfterTheEnd { found: Sequence },
}

impl Life {
    /// Returns what has broken it, as long as it is broken.
    pub fn broken_by(&self) -> Option<&Failure> {
        self.failure.as_ref().filter(|_| self.phase == Phase::Failed)
    }

    /// Returns why it is suspended or has failed, while it is or has.
    pub fn reason(&self) -> Option<&'static str> {
        match self.phase {
            Phase::Frozen | Phase::Stopping | Phase::Stopped => {
                self.suspended_for.map(SuspendReason::name)
            }
            Phase::Failed => self.failure.as_ref().map(|failure| failure.cause.name()),
            Phase::Provisioning
            | Phase::Active
            | Phase::Resuming
            | Phase::Deleting
            | Phase::Terminated => None,
        }
    }

    /// Says whether nothing of it can be used again: it is deleted or about to be, or it failed without files.
    pub fn is_gone(&self) -> bool {
        self.phase.is_deleted()
            || self.broken_by().is_some_and(|failure| !failure.cause.keeps_files())
    }

    /// Says whether it has no processes but its files, so that it can be started.
    pub fn can_be_started(&self) -> bool {
        self.phase == Phase::Stopped
            || self.broken_by().is_some_and(|failure| failure.cause.keeps_files())
    }

    /// Adds events up, from the first.
    pub fn replay(events: &[Event]) -> Result<Self, HistoryError> {
        let (first, rest) = events.split_first().ok_or(HistoryError::Beginning)?;
        rest.iter().try_fold(Self::begin(first)?, Self::after)
    }

    /// Returns the state after the first event.
    pub fn begin(event: &Event) -> Result<Self, HistoryError> {
        if event.sequence != Sequence(1) || event.kind != EventKind::Accepted {
            return Err(HistoryError::Beginning);
        }
        Ok(Self::accepted(event.occurred_at))
    }

    pub(crate) fn accepted(at: Timestamp) -> Self {
        Self {
            sequence: Sequence(1),
            phase: Phase::Provisioning,
            created_at: at,
            phase_since: at,
            standing_since: at,
            last_used_at: at,
            running: BTreeMap::new(),
            shells: BTreeMap::new(),
            with_timeout: BTreeSet::new(),
            suspended_for: None,
            failure: None,
            end: None,
            images: UsedImages::new(),
            images_are_known: false,
            companions: BTreeMap::new(),
            adjusted_at: None,
        }
    }

    /// Returns the state after one more event.
    pub fn after(mut self, event: &Event) -> Result<Self, HistoryError> {
        let found = event.sequence;
        if self.phase.is_terminal() {
            return Err(HistoryError::AfterTheEnd { found });
        }
        if found != self.sequence.next() {
            return Err(HistoryError::Gap { last: self.sequence, found });
        }
        self.add(event);
        Ok(self)
    }

    /// Adds an event that is known to be the next.
    pub(crate) fn add(&mut self, event: &Event) {
        self.sequence = event.sequence;
        self.move_to(self.phase.after(&event.kind), event.occurred_at);
        self.note(event);
    }

    fn move_to(&mut self, phase: Phase, at: Timestamp) {
        if phase.standing() != self.phase.standing() {
            self.standing_since = at;
        }
        if phase != self.phase {
            self.phase_since = at;
        }
        self.phase = phase;
    }

    /// Takes over what an event says besides the phase.
    fn note(&mut self, event: &Event) {
        let at = event.occurred_at;
        if event.kind.is_use() {
            self.last_used_at = at;
        }
        match &event.kind {
            EventKind::Ready | EventKind::Thawed => {
                self.suspended_for = None;
            }
            EventKind::StopRequested(reason)
            | EventKind::Stopped(reason)
            | EventKind::Frozen(reason) => self.suspended_for = Some(*reason),
            EventKind::Failed(failure) => self.failure = Some(failure.clone()),
            EventKind::DeleteRequested(cause) | EventKind::Deleted(cause) => {
                self.end = Some(cause.clone());
            }
            EventKind::ExecStarted { exec, shell, has_timeout } => {
                self.running.insert(exec.clone(), at);
                if let Some(shell) = shell {
                    self.shells.insert(shell.clone(), exec.clone());
                }
                if *has_timeout {
                    self.with_timeout.insert(exec.clone());
                }
            }
            EventKind::ExecEnded { exec, .. } => {
                self.running.remove(exec);
                self.shells.retain(|_, shell| shell != exec);
                self.with_timeout.remove(exec);
            }
            EventKind::Preparing { images, .. } => {
                self.images.extend(images.clone());
                self.images_are_known = true;
            }
            EventKind::CompanionReady { name } => {
                self.companions.insert(name.clone(), CompanionState::Ready);
            }
            EventKind::CompanionFailed { name, .. } => {
                self.companions.insert(name.clone(), CompanionState::Failed);
            }
            EventKind::Accepted | EventKind::ResumeAccepted => self.companions.clear(),
            EventKind::Adjusted(_) => self.adjusted_at = Some(at),
            EventKind::EndsSoon { .. } => {}
        }
    }
}
