//! What the server sends. Fields beyond the protocol document are additions; clients that do not
//! know them ignore them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Any frame of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ServerFrame<'a> {
    Ack(Ack<'a>),
    Status(Status<'a>),
    Stdout(Output<'a>),
    Stderr(Output<'a>),
    Result(ExecutionResult<'a>),
    Error(Error<'a>),
    Pong(Pong<'a>),
}

/// The request was received and queued; the execution has not started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack<'a> {
    pub v: u64,
    pub id: Cow<'a, str>,
    pub ts: Cow<'a, str>,
    /// Addition: how long the execution goes on after the connection is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// Addition: how far the client's clock is behind ours, where that is more than a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skew_ms: Option<i64>,
}

/// The execution changed its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status<'a> {
    pub v: u64,
    pub id: Cow<'a, str>,
    pub ts: Cow<'a, str>,
    pub status: State,
}

/// The states of an execution. The set is closed: clients break on an unknown one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Running,
    Completed,
    Failed,
    Cancelled,
    Timeout,
    Oom,
}

impl State {
    /// Returns the word on the wire.
    pub const fn wire_name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::Oom => "oom",
        }
    }

    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Running => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Timeout | Self::Oom => true,
        }
    }
}

/// A piece of output: whole characters, in order within its stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output<'a> {
    pub v: u64,
    pub id: Cow<'a, str>,
    pub ts: Cow<'a, str>,
    pub data: Cow<'a, str>,
    /// Addition: where in its stream the first byte of this piece stood, counted in bytes.
    #[serde(default)]
    pub offset: u64,
    /// Addition: counts the pieces of both streams in the order in which we read them.
    #[serde(default)]
    pub n: u64,
}

/// The execution is over; follows its terminal status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionResult<'a> {
    pub v: u64,
    pub id: Cow<'a, str>,
    pub ts: Cow<'a, str>,
    /// Null if it was killed by a signal, or never started.
    pub exit_code: Option<i32>,
    pub duration_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_usage: Option<ResourceUsage>,
    /// Addition: the name of the signal that killed it, without `SIG`.
    #[serde(default)]
    pub signal: Option<Cow<'a, str>>,
    /// Addition: whether output was cut at the limit.
    #[serde(default)]
    pub truncated: bool,
    /// Addition: `TIMEOUT`, `OOM` or `OUTPUT_LIMIT` if a limit ended it.
    #[serde(default)]
    pub error_code: Option<Cow<'a, str>>,
    /// Addition: bytes of output as the program wrote them, before any replacement.
    #[serde(default)]
    pub output_bytes: u64,
    /// Addition: how many of those were not UTF-8 and are shown as U+FFFD.
    #[serde(default)]
    pub replaced_bytes: u64,
    /// Addition: there only if a limit was held less strictly than it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<WeakLimits>,
    /// Addition: there only if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posture: Option<Posture>,
}

/// What stands between the code and the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posture {
    pub kernel: String,
    pub users: Users,
    pub limits: LimitsBy,
}

/// Whose user code has on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Users {
    /// One that no other execution has at the time, and init another.
    Own,
    /// That of whoever runs the server, as all executions and their inits have.
    Shared,
}

/// What holds memory, processes and cpu.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitsBy {
    #[serde(rename = "cgroup v1")]
    CgroupV1,
    #[serde(rename = "cgroup v2")]
    CgroupV2,
    /// Limits of each process, and a look at the memory now and then.
    #[serde(rename = "soft")]
    Soft,
}

/// Limits that the kernel of this machine does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeakLimits {
    pub memory: Hold,
}

/// How strictly a limit is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    /// It is looked at now and then; in between, more can be used.
    Soft,
}

/// Signals on Linux, from one on.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// Returns how a signal is called in a `result`; real-time ones have no name but their number.
pub fn signal_name(number: i32) -> Cow<'static, str> {
    let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    match index.and_then(|index| SIGNALS.get(index)) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(number.to_string()),
    }
}

/// Returns the number of a signal on Linux, from what a `result` calls it.
pub fn signal_number(name: &str) -> Option<i32> {
    let named = (1..).zip(SIGNALS).find(|(_, signal)| *signal == name);
    named.map(|(number, _)| number).or_else(|| name.parse().ok())
}

/// What an execution used, as measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceUsage {
    pub peak_memory_mb: u64,
    pub cpu_time_ms: u64,
}

/// The request is refused, or we broke. No `result` follows, but for `OUTPUT_LIMIT`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error<'a> {
    pub v: u64,
    /// Null if the frame that this answers had no readable id.
    pub id: Option<Cow<'a, str>>,
    pub ts: Cow<'a, str>,
    pub code: Cow<'a, str>,
    pub message: Cow<'a, str>,
    pub retryable: bool,
}

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong<'a> {
    pub v: u64,
    pub ts: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
}

/// How busy the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    pub active_executions: usize,
    pub queue_depth: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_fields_of_the_protocol() {
        let (id, ts) = (Cow::from("exec_1"), Cow::from("2025-12-27T11:30:00.001Z"));
        let rows = [
            (
                ServerFrame::Ack(Ack {
                    v: 1,
                    id: id.clone(),
                    ts: ts.clone(),
                    grace_ms: None,
                    skew_ms: None,
                }),
                r#"{"type":"ack","v":1,"id":"exec_1","ts":"2025-12-27T11:30:00.001Z"}"#,
            ),
            (
                ServerFrame::Stderr(Output {
                    v: 1,
                    id: id.clone(),
                    ts: ts.clone(),
                    data: "a\n\u{1b}".into(),
                    offset: 7,
                    n: 2,
                }),
                r#"{"type":"stderr","v":1,"id":"exec_1","ts":"2025-12-27T11:30:00.001Z","data":"a\n\u001b","offset":7,"n":2}"#,
            ),
            (
                ServerFrame::Status(Status {
                    v: 1,
                    id: id.clone(),
                    ts: ts.clone(),
                    status: State::Oom,
                }),
                r#"{"type":"status","v":1,"id":"exec_1","ts":"2025-12-27T11:30:00.001Z","status":"oom"}"#,
            ),
            (
                ServerFrame::Error(Error {
                    v: 1,
                    id: None,
                    ts: ts.clone(),
                    code: "INVALID_REQUEST".into(),
                    message: "v is missing".into(),
                    retryable: false,
                }),
                r#"{"type":"error","v":1,"id":null,"ts":"2025-12-27T11:30:00.001Z","code":"INVALID_REQUEST","message":"v is missing","retryable":false}"#,
            ),
            (
                ServerFrame::Pong(Pong {
                    v: 1,
                    ts,
                    load: Some(Load { active_executions: 3, queue_depth: 0 }),
                }),
                r#"{"type":"pong","v":1,"ts":"2025-12-27T11:30:00.001Z","load":{"active_executions":3,"queue_depth":0}}"#,
            ),
        ];
        for (frame, text) in rows {
            assert_eq!(serde_json::to_string(&frame).unwrap(), text);
            assert_eq!(serde_json::from_str::<ServerFrame<'_>>(text).unwrap(), frame);
        }
    }

    #[test]
    fn signals_have_names_and_real_time_ones_numbers() {
        let names = [1, 9, 11, 31, 34, 0, -1].map(signal_name);
        assert_eq!(names, ["HUP", "KILL", "SEGV", "SYS", "34", "0", "-1"]);
        for number in 1..64 {
            assert_eq!(signal_number(&signal_name(number)), Some(number));
        }
        assert_eq!(signal_number("SIGKILL"), None);
    }

    #[test]
    fn a_result_without_our_additions_is_understood() {
        let text = r#"{"v":1,"type":"result","id":"a","ts":"t","exit_code":null,"duration_ms":5}"#;
        let ServerFrame::Result(result) = serde_json::from_str(text).unwrap() else {
            panic!("not a result")
        };
        assert_eq!((result.exit_code, result.duration_ms, result.truncated), (None, 5, false));
    }
}
