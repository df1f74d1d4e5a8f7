//! The Rust client: runs code on a Ringfence server, keeps sandboxes there, and manages its
//! keys and tokens.
//!
//! Depends on nothing of ours but the wire messages.

pub mod address;
pub mod admin;
pub mod executions;
mod grpc;
pub mod images;
pub mod sandboxes;

use std::io;

/// Why the server could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("\"{url}\" is not a server's URL; one looks like http://127.0.0.1:7700")]
    Url { url: String },
    #[error("refusing to send a key to {host} without TLS")]
    Plaintext { host: String },
    #[error("https is not supported yet; reach the server through a tunnel to loopback")]
    Tls,
    #[error("the key contains characters that no key has")]
    Key,
    #[error("a role is one of admin, broker and user")]
    Role,
    #[error("nothing answers at {url}")]
    Connect { url: String, source: io::Error },
    #[error("the server refused: {message} ({code})")]
    Refused { code: String, message: String },
    #[error("the server's answer is not understood")]
    Answer(#[source] serde_json::Error),
    #[error("the connection broke")]
    WebSocket(#[source] Box<tokio_tungstenite::tungstenite::Error>),
    #[error("the connection broke")]
    Http(#[from] hyper::Error),
    #[error("the request cannot be written")]
    Request(#[from] hyper::http::Error),
    #[error("the server closed the connection before the end: {reason}")]
    Closed { reason: String },
    #[error("the connection broke: {cause}")]
    Broken { cause: String },
    #[error("the server's answer lacks what was asked for")]
    Incomplete,
    #[error("the duration is longer than can be said")]
    Duration,
}

impl ClientError {
    /// Tells whether the connection broke, so that nothing is known of what was asked for.
    pub fn is_broken(&self) -> bool {
        matches!(self, Self::Broken { .. })
    }

    /// Returns the server's code, if it refused.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Makes an error of an answer that is not a success.
    fn refused(status: u16, body: &[u8]) -> Self {
        match serde_json::from_slice::<api::errors::Problem<'_>>(body) {
            Ok(problem) => Self::Refused {
                code: problem.error.code.into_owned(),
                message: problem.error.message.into_owned(),
            },
            Err(_) => Self::Refused {
                code: format!("HTTP {status}"),
                message: "this does not look like a Ringfence server".to_owned(),
            },
        }
    }
}
