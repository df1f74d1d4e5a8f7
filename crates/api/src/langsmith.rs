//! Messages of LangSmith's sandbox API, as its clients send and read them. Fields that are not known are
//! passed over: their clients grow by themselves.

use std::collections::BTreeMap;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error as _},
};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A command: the body of `POST /execute` and `/execute/stream/start`, and of the frame `execute`.
#[derive(Clone, Default, PartialEq, Deserialize, ToSchema)]
#[serde(default)]
pub struct Execute {
    pub command: String,
    pub shell: Option<String>,
    pub command_id: Option<String>,
    /// None, or at most 0: it may take any time.
    pub timeout_seconds: Option<f64>,
    /// Other spellings of the same.
    pub timeout: Option<f64>,
    pub timeout_secs: Option<f64>,
    /// Below 0: it may be left alone for any time.
    pub idle_timeout_seconds: Option<f64>,
    /// Below 0: it stays readable as long as its sandbox.
    pub ttl_seconds: Option<f64>,
    pub kill_on_disconnect: bool,
    pub env: Option<BTreeMap<String, String>>,
    pub cwd: Option<String>,
    #[serde(deserialize_with = "object")]
    pub run_config: Option<RunConfig>,
    pub close_stdin: bool,
    pub pty: bool,
}

/// Command and env are the user's: they never appear in a log line.
impl std::fmt::Debug for Execute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Execute").field("command_id", &self.command_id).finish_non_exhaustive()
    }
}

/// How commands are run.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RunConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_dir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
}

impl std::fmt::Debug for RunConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunConfig").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Reads an object or nothing. A list would be taken for the fields in their order.
pub(crate) fn object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let fields: Option<Map<String, Value>> = Deserialize::deserialize(deserializer)?;
    let read = |fields| serde_json::from_value(Value::Object(fields)).map_err(D::Error::custom);
    fields.map(read).transpose()
}

/// From where on output is wanted: the body of `POST /execute/stream/resume` and the frame
/// `reconnect`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(default)]
pub struct Reconnect {
    pub command_id: String,
    pub stdout_offset: u64,
    pub stderr_offset: u64,
}

/// What a client says on `WS /execute/ws`.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientFrame {
    Execute(Box<Execute>),
    Reconnect(Reconnect),
    Input {
        #[serde(default)]
        data: String,
    },
    CloseStdin,
    Kill,
    /// Something that is not known here.
    #[serde(other)]
    Other,
}

impl std::fmt::Debug for ClientFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Execute(_) => "Execute",
            Self::Reconnect(_) => "Reconnect",
            Self::Input { .. } => "Input",
            Self::CloseStdin => "CloseStdin",
            Self::Kill => "Kill",
            Self::Other => "Other",
        })
    }
}

/// What the server says on `WS /execute/ws`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerFrame<'a> {
    Started {
        command_id: &'a str,
        pid: u32,
    },
    Stdout(Chunk<'a>),
    Stderr(Chunk<'a>),
    /// Always the last, unless an error is.
    Exit {
        exit_code: i32,
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: Option<String>,
        /// Why a command could not be started that has the exit code 126 or 127 for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    Error {
        error_type: &'a str,
        error: &'a str,
    },
}

/// A part of a stream. Clients go on at `offset` and as many bytes as `data` has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chunk<'a> {
    /// Has a question mark for every byte that is no UTF-8.
    pub data: &'a str,
    pub offset: u64,
    /// The bytes themselves, in base64, where `data` has such question marks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_b64: Option<String>,
}

/// What `POST /execute` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Executed {
    pub stdout: String,
    pub stderr: String,
    pub exit_code: i32,
    /// The bytes themselves, in base64, where a stream is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_b64: Option<String>,
    /// Whether a part of the output is missing at its end.
    #[serde(skip_serializing_if = "is_false")]
    pub truncated: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The data of an event of `POST /execute/stream/start` and `/resume`, whose name says which it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum StreamEvent {
    /// `started`
    Started { command_id: String, pid: u32 },
    /// `stdout` and `stderr`: bytes in base64, and the place of the first.
    Output { offset: u64, data: String },
    /// `stream_end`: nothing more comes of this stream.
    StreamEnd { stream: String, offset: u64 },
    /// `ack_required`: the stream ends here; ask for the rest.
    AckRequired { stdout_offset: u64, stderr_offset: u64 },
    /// `exit`: always the last, unless an error is.
    Exit {
        exit_code: i32,
        /// Why a command could not be started that has the exit code 126 or 127 for it.
        message: Option<String>,
    },
    /// `error`
    Error { error_type: String, error: String },
}

/// A refusal, as these clients read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Refused {
    pub detail: RefusedDetail,
    /// The same again, where old clients look for it.
    pub message: String,
    pub error_type: String,
}

/// What went wrong: in one piece, or field by field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum RefusedDetail {
    Reason(RefusedReason),
    Fields(Vec<RefusedField>),
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RefusedReason {
    /// Such as `NotFound`; clients tell refusals apart by it.
    pub error: String,
    pub message: String,
    /// Names this request in the server's log.
    pub error_id: String,
}

/// What is wrong with a field of a request, as validators say it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RefusedField {
    /// Where it stands.
    pub loc: Vec<String>,
    pub msg: String,
    #[serde(rename = "type")]
    pub kind: String,
}
