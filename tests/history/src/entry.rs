//! What a run records: one entry for each thing that a client did or was told.
//!
//! Entries stand in the order of their ends. All times of a history come from one clock.

use std::io::{BufRead, Read as _};

use serde::{Deserialize, Serialize};

use crate::event::{Event, ExecState, State};

/// Microseconds on the clock of the recorder, which never goes back.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub client: u32,
    /// Which start of the server answered, where that is known: 1, 2, 3, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<u32>,
    pub start: Time,
    pub end: Time,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Call {
        call: Call,
        outcome: Outcome,
    },
    Subscribed(Subscribed),
    Event {
        subscription: u64,
        event: Event,
    },
    Ended {
        subscription: u64,
        how: Ending,
    },
    /// The server was killed at the start, and is ready again at the end.
    Killed,
    /// The run broke this sandbox on purpose, or asked for one that must fail.
    Harmed {
        sandbox: String,
    },
    Output(Output),
    Processes(Processes),
    Machine(Machine),
    /// Everything that the final audit read of one sandbox, from the first event.
    Replay {
        sandbox: String,
        events: Vec<Event>,
    },
    /// The run came to its end in good order: all sandboxes were replayed, nothing runs.
    Closed,
}

/// What a client asked for. Ids of the caller's own are given; without one the server names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    Create { sandbox: Option<String> },
    Exec { sandbox: String, exec: Option<String>, expect: Option<Expectation> },
    Cancel { exec: String },
    Stop { sandbox: String },
    Resume { sandbox: String },
    Delete { sandbox: String },
    Get { sandbox: String },
    List { which: Which },
    GetExec { exec: String },
    ListActive { sandbox: Option<String> },
}

impl Call {
    /// Returns the word for it in a report.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Exec { .. } => "exec",
            Self::Cancel { .. } => "cancel",
            Self::Stop { .. } => "stop",
            Self::Resume { .. } => "resume",
            Self::Delete { .. } => "delete",
            Self::Get { .. } => "get",
            Self::List { .. } => "list",
            Self::GetExec { .. } => "get_exec",
            Self::ListActive { .. } => "list_active",
        }
    }
}

/// Which sandboxes a list is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// All but deleted ones.
    Live,
    /// Deleted ones too.
    All,
    /// Those with some label. That one is not among them says nothing.
    Chosen,
}

/// What the run knows of a command before it is run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Expectation {
    pub exit_code: i32,
    /// It prints the numbers from one to this, a line each.
    pub lines: Option<u64>,
    /// Of all that it prints, by whatever function the recorder uses for [`Output::digest`].
    pub digest: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Acknowledged(Answer),
    /// The server said that it did nothing.
    Refused(Refusal),
    /// It may have happened or not.
    Unknown(Doubt),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    ConnectionBroke,
    DeadlinePassed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To stop, resume, delete and cancel.
    Accepted,
    /// To exec.
    Started { exec: String },
    /// To create and get.
    Sandbox(SandboxView),
    /// To list.
    Sandboxes(Vec<SandboxView>),
    /// To `get_exec`.
    Exec(ExecView),
    /// To `list_active`.
    Execs(Vec<ExecView>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxView {
    pub sandbox: String,
    pub state: State,
    pub last_event_sequence: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecView {
    pub exec: String,
    pub sandbox: String,
    pub state: ExecState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    pub last_event_sequence: u64,
}

/// Why the server did nothing. Each but the last says something about the sandbox, which is held
/// against its events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    NotFound,
    AlreadyExists,
    NotReady,
    InvalidState,
    AlreadyTerminal,
    Other(String),
}

impl Refusal {
    /// Reads the reason that agbox gives.
    pub fn from_reason(reason: &str) -> Self {
        match reason {
            "SANDBOX_NOT_FOUND" | "EXEC_NOT_FOUND" => Self::NotFound,
            "SANDBOX_ID_ALREADY_EXISTS" | "EXEC_ID_ALREADY_EXISTS" => Self::AlreadyExists,
            "SANDBOX_NOT_READY" => Self::NotReady,
            "SANDBOX_INVALID_STATE" => Self::InvalidState,
            "EXEC_ALREADY_TERMINAL" => Self::AlreadyTerminal,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// A subscription was asked for. Its number is the recorder's own and used once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribed {
    pub subscription: u64,
    pub sandbox: String,
    pub from_sequence: u64,
    #[serde(default)]
    pub snapshot: bool,
}

/// How a subscription ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The server closed it without an error.
    Clean,
    ConnectionBroke,
    OutOfRange,
    Refused(Refusal),
    /// The client had enough.
    Dropped,
    /// The client waited since then, longer than an event may take, and none came.
    Silent {
        since: Time,
    },
}

/// What was found in the output of an exec, after its end was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Output {
    pub exec: String,
    /// How many lines are the numbers from one on.
    pub lines: u64,
    /// The first line that is not the number it should be.
    pub wrong_line: Option<u64>,
    pub digest: Option<String>,
}

impl Output {
    /// Counts the lines of an output that should be the numbers from one on. The last one may be
    /// cut short: a command can be killed while it writes.
    pub fn of_numbers(exec: &str, mut output: impl BufRead) -> std::io::Result<Self> {
        let mut found = Self { exec: exec.to_owned(), ..Self::default() };
        let mut line = Vec::new();
        loop {
            line.clear();
            // No number is longer, and what is longer is wrong.
            if output.by_ref().take(32).read_until(b'\n', &mut line)? == 0 {
                return Ok(found);
            }
            let expected = format!("{}\n", found.lines + 1);
            if line == expected.as_bytes() {
                found.lines += 1;
            } else if line.ends_with(b"\n") || !expected.as_bytes().starts_with(&line) {
                found.wrong_line = Some(found.lines + 1);
                return Ok(found);
            }
        }
    }
}

/// The processes of one sandbox. To be recorded only if the sandbox had the same
/// `last_event_sequence` before and after they were looked up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    pub sandbox: String,
    pub last_event_sequence: u64,
    pub processes: Vec<Process>,
}

/// The first process of a sandbox, or of one exec. A bare pid is no identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<String>,
    pub pid: u32,
    /// In ticks since the machine started.
    pub started: u64,
}

/// What the API says is there and what the machine has, taken together while nothing was asked of
/// the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Microseconds since the server said it was ready.
    pub since_ready: u64,
    pub says: Vec<Says>,
    pub has: Vec<Has>,
}

/// A sandbox that the API knows of, and its execs that run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Says {
    pub sandbox: String,
    pub state: State,
    #[serde(default)]
    pub execs: Vec<String>,
}

/// A thing of ours that the machine has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Has {
    pub resource: Resource,
    /// As a person would look it up: a pid, a path.
    pub name: String,
    /// Whose it is, by its own mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    Process,
    Cgroup,
    Mount,
    Namespace,
    Directory,
}
