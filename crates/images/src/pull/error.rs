//! Why an image cannot be had.

use std::{io, path::PathBuf};

use crate::{digest::Digest, store::StoreError, unpack::error::UnpackError};

/// An image cannot be brought into the store.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error("{0} is used in place; there is nothing to pull")]
    InPlace(String),
    #[error("cannot reach {host}")]
    Unreachable {
        host: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "{host} cannot be used: it has no public address, and no registry of that name is in \
         images.registries"
    )]
    NotAllowed { host: String },
    #[error(
        "the registry's tokens come from {host}, which is neither its own host nor listed in \
         images.registries"
    )]
    ForeignTokenService { host: String },
    #[error("{host} did not answer in time")]
    Timeout { host: String },
    #[error("the connection to {host} broke")]
    Broken {
        host: String,
        #[source]
        source: hyper::Error,
    },
    #[error("no certificate authorities can be read from {0}")]
    Certificates(String),
    #[error("{host} answered {status} for {what}")]
    Status { host: String, status: u16, what: String },
    #[error("{host} has no {what}")]
    NotFound { host: String, what: String },
    #[error("{host} does not let us have {what}; give the credentials for it")]
    Unauthorized { host: String, what: String },
    #[error("{host} asks for credentials in a way that is not supported")]
    Challenge { host: String },
    #[error("{host} leads from a safe connection to an unsafe one")]
    Downgrade { host: String },
    #[error("{host} leads on and on")]
    Redirects { host: String },
    #[error("{host} gave an address that is none")]
    Address { host: String },
    #[error("{what} is larger than {limit} bytes")]
    TooLarge { what: String, limit: u64 },
    #[error("{what} has {found} bytes, not {expected}")]
    Size { what: String, expected: u64, found: u64 },
    #[error("what should be {expected} is {found}")]
    Digest { expected: Digest, found: Digest },
    #[error("the manifest cannot be read")]
    Manifest(#[source] serde_json::Error),
    #[error("the manifest is of the kind {0:?}, which is not supported")]
    MediaType(String),
    #[error("the configuration of the image cannot be read")]
    Config(#[source] serde_json::Error),
    #[error("the image is not made for {0}")]
    Platform(String),
    #[error("the layers of the image and those that its configuration names are not the same")]
    Layers,
    #[error("{path} is not an image: {why}")]
    NotAnImage { path: PathBuf, why: &'static str },
    #[error("{path} holds several images; name one of them: {tags}")]
    Several { path: PathBuf, tags: String },
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot keep what was fetched")]
    Scratch(#[source] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the layer {layer} is refused")]
    Unpack {
        layer: Digest,
        #[source]
        source: UnpackError,
    },
    #[error("the work was stopped: {0}")]
    Stopped(String),
}

impl PullError {
    /// Tells whether the same request may do better, because the way to the registry failed and not
    /// what came over it.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Broken { .. } => true,
            Self::Status { status, .. } => matches!(status, 500 | 502 | 503 | 504),
            _ => false,
        }
    }
}
