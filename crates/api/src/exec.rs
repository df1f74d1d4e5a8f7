//! Commands in a sandbox over HTTP and WebSocket, as the session protocol spells them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema::Maybe;

/// A command to run: the body of `POST /v1/exec`, and the fields of a `start` frame.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = StartExec)]
#[serde(default, deny_unknown_fields)]
pub struct Start {
    /// A text for the shell, or a program and its arguments. Left out to watch one that is there.
    pub command: Option<Command>,
    /// The shell that a text is for; `/bin/sh` if nobody says.
    pub shell: Option<String>,
    /// The caller's own id. Sent again it is the same command, which is never run twice.
    pub exec_id: Option<String>,
    /// An absolute path; `/workspace` if nobody says.
    pub cwd: Option<String>,
    pub env: BTreeMap<String, String>,
    /// `agbox`, `root` or a number.
    pub user: Option<String>,
    /// After this time it is killed.
    pub timeout_seconds: Option<f64>,
    /// After so much time without anybody who watches it is killed.
    pub idle_timeout_seconds: Option<f64>,
    /// For how long it can be read after its end.
    pub ttl_seconds: Option<f64>,
    /// Whether it is killed as soon as this connection is gone.
    pub kill_on_disconnect: bool,
    /// What it reads from stdin, all of it. `POST` only.
    pub input: Option<String>,
    /// Whether stdin stays open for `stdin` frames. WebSocket only.
    pub stdin: Option<Stdin>,
    /// Gives it a terminal.
    pub tty: Option<Size>,
    /// In which form output comes. WebSocket only.
    pub encoding: Option<Encoding>,
    /// What becomes of it when there is no more room for output that was not read.
    pub on_full: Option<OnFull>,
    /// From which byte on output is sent.
    #[serde(deserialize_with = "offset")]
    pub stdout_offset: u64,
    #[serde(deserialize_with = "offset")]
    pub stderr_offset: u64,
}

/// Reads a place in a stream. The document says that it is a signed number of 64 bits, so more is refused.
fn offset<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let offset = u64::deserialize(deserializer)?;
    match i64::try_from(offset) {
        Ok(_) => Ok(offset),
        Err(_) => Err(serde::de::Error::custom("an offset is at most 9223372036854775807")),
    }
}

/// Command, env and input are the user's: they never appear in a log line.
impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").field("exec_id", &self.exec_id).finish_non_exhaustive()
    }
}

/// What to run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Command {
    Text(String),
    Arguments(Vec<String>),
}

/// What is run is the user's: it never appears in a log line.
impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Command")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    Open,
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TerminalSize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    #[schema(format = Int64, maximum = 4_294_967_295_u32)]
    pub rows: u32,
    #[schema(format = Int64, maximum = 4_294_967_295_u32)]
    pub cols: u32,
}

/// In which form output comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// As text; what is no UTF-8 in base64, and marked so.
    #[default]
    Text,
    Base64,
    /// In binary messages: one byte for the stream (1 stdout, 2 stderr), eight for the offset, most
    /// significant first, then the bytes.
    Binary,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFull {
    /// The command waits until it was read.
    #[default]
    Wait,
    /// The oldest output goes, and a `gap` says so.
    Drop,
}

/// What a client says on `WS /v1/exec/ws`, and with another `start` on `WS /v1/shell/ws`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientFrame<S = Start> {
    /// First of all, unless the token came with the upgrade; later with a fresh one.
    Auth {
        token: String,
    },
    Start(Box<S>),
    Stdin {
        #[serde(default)]
        data: String,
        /// `base64` if the data are not text.
        #[serde(default)]
        encoding: Encoding,
        /// Whether nothing comes after this.
        #[serde(default)]
        eof: bool,
    },
    Resize {
        rows: i64,
        cols: i64,
    },
    /// By name, with or without `SIG`.
    Signal {
        signal: String,
    },
    Ping {
        #[serde(default)]
        id: Option<String>,
    },
    /// Watches it no more. It goes on.
    Close,
}

/// Tokens, commands and input are secrets: only the kind of frame is shown.
impl<S> std::fmt::Debug for ClientFrame<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auth { .. } => "Auth",
            Self::Start(_) => "Start",
            Self::Stdin { .. } => "Stdin",
            Self::Resize { .. } => "Resize",
            Self::Signal { .. } => "Signal",
            Self::Ping { .. } => "Ping",
            Self::Close => "Close",
        })
    }
}

/// What the server says on `WS /v1/exec/ws` and `WS /v1/shell/ws`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerFrame<'a> {
    AuthOk {
        session_id: &'a str,
    },
    Ready {
        exec_id: &'a str,
        pid: Option<u32>,
        #[serde(flatten)]
        shell: Option<ShellReady<'a>>,
    },
    /// What the terminal of a shell shows, for whoever has just joined it.
    Screen(Screen<'a>),
    /// The terminal of a shell has another size, from this byte of its output on.
    Resize {
        rows: u16,
        cols: u16,
        offset: u64,
    },
    Stdout(Chunk<'a>),
    Stderr(Chunk<'a>),
    /// So many bytes of a stream are not kept any more.
    Gap {
        stream: &'a str,
        offset: u64,
        length: u64,
    },
    /// Always the last.
    Exit(Exit),
    Pong {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    Error {
        code: &'a str,
        message: &'a str,
        retryable: bool,
    },
    /// Send `auth` with a fresh token before this time, or the connection is closed.
    TokenExpiring {
        expires_at: String,
    },
}

/// What `ready` says of a shell besides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShellReady<'a> {
    pub name: &'a str,
    pub rows: u16,
    pub cols: u16,
    /// Whether this connection may write to it.
    pub can_write: bool,
}

/// What a terminal shows. It is the user's: it never appears in a log line.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Screen<'a> {
    /// Makes any terminal of this size show the same.
    pub data: std::borrow::Cow<'a, str>,
    /// The place of the first byte that comes after it.
    pub offset: u64,
    pub rows: u16,
    pub cols: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// So many bytes before it were not kept, so that it may not be what a terminal would show.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost: u64,
}

impl std::fmt::Debug for Screen<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").field("offset", &self.offset).finish_non_exhaustive()
    }
}

/// A part of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chunk<'a> {
    pub data: std::borrow::Cow<'a, str>,
    /// The place of its first byte in the stream.
    pub offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ExecExit)]
pub struct Exit {
    /// By the kernel's word; none if a signal ended it, or nobody can know.
    pub exit_code: Option<i32>,
    /// The name of the signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// `exited`, `signaled`, `cancelled`, `timed_out`, `not_started` or `lost`.
    pub reason: &'static str,
    /// Says more of what did not go well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ExecUsage)]
pub struct Usage {
    pub cpu_time_ms: u64,
    /// Of the largest of its processes.
    pub peak_memory_bytes: u64,
}

/// What `POST /v1/exec` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ExecRan)]
pub struct Ran {
    pub exec_id: String,
    #[serde(flatten)]
    pub exit: Exit,
    pub stdout: String,
    pub stderr: String,
    /// `base64` where a stream is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_encoding: Option<Encoding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_encoding: Option<Encoding>,
    /// Bytes that are missing at the end of a stream here; they can be had one by one.
    #[serde(skip_serializing_if = "is_zero")]
    pub stdout_omitted: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub stderr_omitted: u64,
}

/// The schema of how a command ended, if it has.
type MaybeExit = Maybe<Exit>;

/// What `GET /v1/exec/{exec_id}` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ExecShown)]
pub struct Shown {
    pub exec_id: String,
    /// `running` or `ended`.
    pub state: &'static str,
    pub started_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    #[schema(value_type = MaybeExit, inline)]
    pub exit: Option<Exit>,
    /// Not there once it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Extent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Extent>,
}

/// How much of a stream there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = OutputExtent)]
pub struct Extent {
    /// The first byte that is still kept.
    pub start: u64,
    /// One past the last byte that was kept.
    pub end: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
