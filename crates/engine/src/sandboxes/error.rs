//! Why something cannot be done with a sandbox.

use model::{
    event::Sequence, policy::QuotaError, resources::ResourceRefusal, sandbox::Refusal,
    snapshot::SnapshotRefusal,
};
use store::StoreError;

use crate::images::ImageError;

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Nobody has it, or somebody else: both look the same.
    #[error("there is no sandbox of this name")]
    NotFound,
    #[error("another sandbox has this name, or had it before it was renamed")]
    AlreadyExists,
    #[error("there is no exec of this id")]
    ExecNotFound,
    #[error("this id of an exec was used before")]
    ExecExists,
    #[error("the exec has ended")]
    ExecEnded,
    #[error("the output of the exec is not kept any more")]
    OutputGone,
    #[error("no shell of this name runs in the sandbox")]
    ShellNotFound,
    #[error("there is no snapshot of this name")]
    SnapshotNotFound,
    #[error("there is a snapshot of this name already")]
    SnapshotExists,
    #[error(transparent)]
    Snapshot(#[from] SnapshotRefusal),
    /// Its tenant has as many as it may.
    #[error("{0}")]
    TooMany(String),
    #[error(transparent)]
    Refused(Refusal),
    #[error("event {asked} is out of range: there are events {earliest} to {latest}")]
    OutOfRange { asked: Sequence, earliest: Sequence, latest: Sequence },
    /// What is asked for can never be.
    #[error("{0}")]
    Invalid(String),
    /// What one field asks for can never be. The field is named as in the spec of a sandbox.
    #[error("{message}")]
    Field { field: String, problem: FieldProblem, message: String },
    /// It asks for more, or less, of something than one sandbox may have.
    #[error(transparent)]
    Resource(#[from] ResourceRefusal),
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// It may be possible later.
    #[error("{0}")]
    Unavailable(String),
    /// Where the sandbox runs, or is to run, nobody answers. Nothing of it has changed.
    #[error("{0}")]
    Provider(String),
    /// The operator has not enabled the provider that is asked for.
    #[error("{0}")]
    ProviderDisabled(String),
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The fault is the server's own. Whoever asks what became of it is told the truth.
    #[error("the task of the sandbox broke off, so that it is not known whether this was done")]
    BrokenOff,
    #[error("the store does not answer as it should")]
    Store(#[source] StoreError),
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldProblem {
    Invalid,
    /// It is a good value, and this server does not do it.
    NotSupported,
}

impl SandboxError {
    pub(super) fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        let (field, message) = (field.into(), message.into());
        Self::Field { field, problem: FieldProblem::Invalid, message }
    }

    pub(super) fn not_supported(field: impl Into<String>, message: impl Into<String>) -> Self {
        let (field, message) = (field.into(), message.into());
        Self::Field { field, problem: FieldProblem::NotSupported, message }
    }
}

impl From<StoreError> for SandboxError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::OutOfRange { asked, earliest, latest } => {
                Self::OutOfRange { asked, earliest, latest }
            }
            StoreError::NotFound { .. } => Self::NotFound,
            StoreError::Full
            | StoreError::ReadOnly { .. }
            | StoreError::Commit { .. }
            | StoreError::Audit { .. }
            | StoreError::Unreachable { .. }
            | StoreError::Closed => Self::Unavailable(error.to_string()),
            StoreError::Label | StoreError::Cursor => Self::Invalid(error.to_string()),
            StoreError::TooMany { .. } => Self::TooMany(error.to_string()),
            other => Self::Store(other),
        }
    }
}

impl From<Refusal> for SandboxError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::ExecExists => Self::ExecExists,
            Refusal::ExecNotRunning => Self::ExecEnded,
            Refusal::NotYet(_)
            | Refusal::WrongPhase(_)
            | Refusal::Failed
            | Refusal::Gone
            | Refusal::InUse
            | Refusal::TooManyShells => Self::Refused(refusal),
        }
    }
}
