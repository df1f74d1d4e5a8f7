//! The Rust client: runs code on a Ringfence server, keeps sandboxes there, opens
//! terminals in them, and manages its keys and tokens.
//!
//! Depends on nothing of ours but the wire messages.

pub mod address;
pub mod admin;
mod attachment;
mod away;
pub mod commands;
mod exchange;
pub mod executions;
mod grpc;
pub mod images;
pub mod mcp;
pub mod sandboxes;
pub mod shells;
mod websocket;

use std::io;

/// Why the server could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("\"{url}\" is not a server's URL; one looks like http://127.0.0.1:7700")]
    Url { url: String },
    #[error("refusing to send a key to {host} without TLS; write https://")]
    Plaintext { host: String },
    #[error("cannot use the authorities in {path}")]
    Authorities { path: String, source: io::Error },
    #[error("whatever answers at {url} cannot show that it is this server")]
    Unproven { url: String, source: io::Error },
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

/// Refusals of a server that has just started, is about to end, or has no room.
const PASSING: [&str; 3] = ["UNAVAILABLE", "SANDBOX_STARTING", "HTTP 503"];

impl ClientError {
    /// Tells whether the connection broke, so that nothing is known of what was asked for.
    pub fn is_broken(&self) -> bool {
        matches!(self, Self::Broken { .. })
    }

    /// Returns the same, as a broken connection if it may go better in a while.
    fn into_broken(self) -> Self {
        let cause = match &self {
            Self::Connect { source, .. } => source.to_string(),
            Self::WebSocket(error) => error.to_string(),
            Self::Http(error) => error.to_string(),
            Self::Closed { reason } => reason.clone(),
            Self::Refused { code, message } if PASSING.contains(&code.as_str()) => message.clone(),
            _ => return self,
        };
        Self::Broken { cause }
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
