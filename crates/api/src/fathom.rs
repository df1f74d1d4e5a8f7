//! The Fathom execution protocol, version 1: one JSON object per WebSocket text message.
//!
//! [`parse::parse`] reads what clients send, strictly; [`server`] is what the server answers.

mod execute;
pub mod parse;
pub mod server;
mod timestamp;
mod value;

use serde::Serialize;

/// The protocol version that this server speaks.
pub const VERSION: u64 = 1;

/// The largest message in either direction.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// The longest id of an execution, in characters.
pub const MAX_ID_CHARACTERS: usize = 128;
/// The largest source text.
pub const MAX_CODE_BYTES: usize = 512 << 10;
/// The largest standard input.
pub const MAX_STDIN_BYTES: usize = 1 << 20;
/// The most environment variables.
pub const MAX_ENV_KEYS: usize = 256;
/// The longest name of an environment variable.
pub const MAX_ENV_KEY_BYTES: usize = 256;
/// The longest value of an environment variable.
pub const MAX_ENV_VALUE_BYTES: usize = 32 << 10;
/// The most bytes in all names and values of environment variables together.
pub const MAX_ENV_BYTES: usize = 128 << 10;
/// Names of environment variables that start so are the server's own.
pub const RESERVED_ENV_PREFIX: &str = "RINGFENCE_";
/// The most output that one `stdout` or `stderr` frame carries, as UTF-8.
pub const MAX_CHUNK_BYTES: usize = 64 << 10;
/// The deepest nesting of a message; the message itself is level one.
pub const MAX_DEPTH: usize = 64;

/// What a client sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ClientFrame {
    Execute(Execute),
    Cancel(Cancel),
    Ping(Ping),
}

/// Asks for one run of source code. Its limits are checked for shape here, for range elsewhere.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Execute {
    pub v: u64,
    pub id: String,
    /// When the client says it sent this. Never trusted.
    pub ts: String,
    pub language: String,
    pub code: String,
    pub stdin: Option<String>,
    #[serde(serialize_with = "execute::env_as_object")]
    pub env: Vec<(String, String)>,
    pub limits: AskedLimits,
    #[serde(skip_serializing_if = "Freshness::is_shared")]
    pub freshness: Freshness,
    /// Whether the result is to say what stands between the code and the machine.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub posture: bool,
}

/// Code, stdin and env are the user's secrets: they never appear in a log line.
impl std::fmt::Debug for Execute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Execute")
            .field("id", &self.id)
            .field("language", &self.language)
            .field("limits", &self.limits)
            .field("freshness", &self.freshness)
            .finish_non_exhaustive()
    }
}

/// The limits as the client wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AskedLimits {
    pub timeout_ms: u64,
    pub memory_mb: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_shares: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
    /// Processes and threads (an addition of ours, as are the next two).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// What files may take together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    /// How many files and folders there may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
}

/// How much the environment may share with others of its language (an addition of ours).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Freshness {
    /// Forked from a warm runtime.
    #[default]
    Shared,
    /// Executed anew.
    Strict,
}

impl Freshness {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
    fn is_shared(&self) -> bool {
        *self == Self::Shared
    }
}

/// Asks for a running or waiting execution to be ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cancel {
    pub v: u64,
    pub id: String,
    pub ts: String,
}

/// Asks for a sign of life, and the load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ping {
    pub v: u64,
    pub ts: String,
}

/// Tells whether a text can be the id of an execution: 1 to 128 printable characters.
pub fn is_id(text: &str) -> bool {
    // No character has more than four bytes: a long text is not counted to its end.
    text.len() <= 4 * MAX_ID_CHARACTERS
        && (1..=MAX_ID_CHARACTERS).contains(&text.chars().count())
        && text.chars().all(is_printable)
}

/// Tells whether a character shows as itself: none that controls, breaks lines, changes the direction of
/// a text, or is not seen.
fn is_printable(character: char) -> bool {
    let is_invisible = matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    !character.is_control() && !is_invisible
}

/// Feeds any bytes to the parser, for fuzzing. Must never panic, and what it accepts must be
/// accepted again after being written out.
pub fn fuzz_one(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse::parse(text) {
        Ok(frame) => {
            let written = serde_json::to_string(&frame).unwrap_or_default();
            let again = parse::parse(&written);
            assert_eq!(again.as_ref(), Ok(&frame), "a frame changes when written out");
        }
        Err(refused) => {
            assert!(!refused.message.is_empty(), "a refusal says nothing");
            assert!(refused.id.is_none_or(|id| is_id(&id)), "a refusal names an invalid id");
        }
    }
}
