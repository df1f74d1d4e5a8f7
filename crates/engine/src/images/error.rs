//! Why an image cannot be had.

use ::images::{
    reference::{ReferenceError, allowed::Refusal},
    worker::wire::{Failure, FailureKind},
};

use model::{life::FailureCause, text::is_deceptive};

use crate::EngineError;

/// An image cannot be had, listed or removed. The text says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error("{0}; the operator says in images.allow what is")]
    NotAllowed(#[from] Refusal),
    #[error("{image} is used in place; there is nothing to pull")]
    InPlace { image: String },
    #[error("{message}; check the name and the tag of {image}")]
    NotFound { image: String, message: String },
    #[error("{message}; the operator sets them in images.registries")]
    Unauthorized { message: String },
    #[error("{message}")]
    RegistryNotAllowed { message: String },
    #[error("{message}; try again")]
    Unreachable { message: String },
    #[error("{image} is refused: {message}")]
    Refused { image: String, message: String },
    #[error("{image} cannot be used here: {message}")]
    Unsupported { image: String, message: String },
    #[error("{image} cannot be read: {message}; its files must be readable to the server")]
    Unreadable { image: String, message: String },
    #[error("there is no room for {image}: {message}; remove images with ringfence image rm")]
    Full { image: String, message: String },
    #[error("the folder of images cannot be used: {message}; look at its disk and its owner")]
    Store { message: String },
    #[error("the work on {image} was cut short when the worker for images ended; try again")]
    Interrupted { image: String },
    #[error("the worker for images cannot be started: {message}")]
    Worker { message: String },
    #[error("too many images are being fetched; try again later")]
    Busy,
    #[error("there is no image {image}; ringfence image list shows those that are")]
    Unknown { image: String },
    #[error("{image} is in use by a sandbox; delete the sandbox first")]
    InUse { image: String },
    #[error("the spawner is gone")]
    SpawnerGone,
}

impl ImageError {
    /// Tells whether the same request may do better later, without anything being changed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Interrupted { .. } | Self::Busy => true,
            Self::Reference(_)
            | Self::NotAllowed(_)
            | Self::InPlace { .. }
            | Self::NotFound { .. }
            | Self::Unauthorized { .. }
            | Self::RegistryNotAllowed { .. }
            | Self::Refused { .. }
            | Self::Unsupported { .. }
            | Self::Unreadable { .. }
            | Self::Full { .. }
            | Self::Store { .. }
            | Self::Worker { .. }
            | Self::Unknown { .. }
            | Self::InUse { .. }
            | Self::SpawnerGone => false,
        }
    }

    /// Returns what a sandbox fails of that was to be made from this image.
    pub fn failure_cause(&self) -> FailureCause {
        match self {
            Self::NotFound { .. } | Self::Unknown { .. } => FailureCause::ImageNotFound,
            Self::NotAllowed(_) | Self::RegistryNotAllowed { .. } => FailureCause::ImageNotAllowed,
            Self::Reference(_)
            | Self::InPlace { .. }
            | Self::Unauthorized { .. }
            | Self::Refused { .. }
            | Self::Unsupported { .. }
            | Self::Unreadable { .. } => FailureCause::ImageUnusable,
            Self::Full { .. } => FailureCause::DiskFull,
            Self::Unreachable { .. }
            | Self::Interrupted { .. }
            | Self::Busy
            | Self::Store { .. }
            | Self::Worker { .. }
            | Self::InUse { .. }
            | Self::SpawnerGone => FailureCause::ImageFailed,
        }
    }

    /// Turns what the worker says about an image into what a caller is told.
    pub(super) fn from_worker(image: &str, failure: &Failure) -> Self {
        let image = image.to_owned();
        let message = plain(&failure.message);
        match failure.kind {
            FailureKind::NotFound => Self::NotFound { image, message },
            FailureKind::Unauthorized => Self::Unauthorized { message },
            FailureKind::NotAllowed => Self::RegistryNotAllowed { message },
            FailureKind::Unreachable => Self::Unreachable { message },
            FailureKind::Refused => Self::Refused { image, message },
            FailureKind::Unsupported => Self::Unsupported { image, message },
            FailureKind::Unreadable => Self::Unreadable { image, message },
            FailureKind::Full => Self::Full { image, message },
            FailureKind::Store => Self::Store { message },
            FailureKind::Stopped => Self::Interrupted { image },
            FailureKind::Busy => Self::Busy,
        }
    }
}

impl From<EngineError> for ImageError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::SpawnerGone | EngineError::Socket(_) => Self::SpawnerGone,
            other => Self::Worker { message: chain(&other) },
        }
    }
}

/// The worker reads what strangers wrote: nothing of it may draw on somebody's terminal.
fn plain(message: &str) -> String {
    const LONGEST: usize = 2000;
    let shown = |it: char| if is_deceptive(it) { '\u{fffd}' } else { it };
    message.chars().take(LONGEST).map(shown).collect()
}

pub(super) fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}
