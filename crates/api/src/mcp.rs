//! Messages of the Model Context Protocol, for the document alone: the library that speaks it has its own. And what
//! tools answer that have no answer of a route.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::{exec::Exit, fathom::server::ResourceUsage, files::FileShown, sessions::Coordinates};

/// One message of JSON-RPC 2.0, as the Model Context Protocol has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(value_type = Object)]
pub struct Message(pub Map<String, Value>);

/// What is shown of what a program wrote. It is never in a log line.
#[derive(Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Streams {
    pub stdout: String,
    pub stderr: String,
    /// Bytes that are left out in the middle of it.
    pub stdout_omitted_bytes: u64,
    pub stderr_omitted_bytes: u64,
    /// Whether bytes that are no text were replaced.
    pub replaced: bool,
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

/// What `run_code` has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RanCode {
    /// `completed`, `failed`, `timeout` or `oom`.
    pub status: &'static str,
    /// Null if a signal ended it.
    pub exit_code: Option<i32>,
    /// The name of the signal that ended it.
    pub signal: Option<String>,
    pub duration_ms: u64,
    pub resource_usage: Option<ResourceUsage>,
    #[serde(flatten)]
    pub streams: Streams,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ToolError>,
}

/// What `exec` has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RanCommand {
    pub exec_id: String,
    #[serde(flatten)]
    pub exit: Exit,
    #[serde(flatten)]
    pub streams: Streams,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ToolError>,
}

/// Lines of a file, as `read` answers them. They are never in a log line.
#[derive(Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ReadLines {
    pub file: FileShown,
    pub first_line: u64,
    /// How many there are here.
    pub lines: u64,
    /// Whether the file goes on after them.
    pub truncated: bool,
    pub content: String,
    /// `text`, or `base64` if it is none.
    pub encoding: &'static str,
}

impl std::fmt::Debug for ReadLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadLines").field("file", &self.file).finish_non_exhaustive()
    }
}

/// What `write` has written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WrittenFile {
    pub file: FileShown,
}

/// The session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Released {
    pub released: bool,
}

/// Why a tool did not do it, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolError {
    pub code: &'static str,
    pub message: String,
    /// Whether the same can go well later.
    pub retryable: bool,
    /// Names the request in the server's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What whoever asked would have to have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_capability: Option<&'static str>,
    /// Where the sandbox is that took the place of the one that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<Box<Coordinates>>,
}
