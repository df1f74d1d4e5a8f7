//! One run of source code in a fresh environment: what is asked for, and how it can end.
//!
//! ```text
//! submitted ──▶ queued ──▶ running ──▶ completed │ failed │ cancelled │ timeout │ oom
//!      └─▶ refused            └──────▶ broken (our fault: an error, never a made-up result)
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{limits::Limits, units::ByteSize};

/// What a caller asks to be run, after every field was checked.
#[derive(Clone, PartialEq, Eq)]
pub struct Execution {
    pub language: String,
    pub code: String,
    pub stdin: Vec<u8>,
    pub env: Vec<(String, String)>,
    pub limits: Limits,
    pub freshness: Freshness,
}

/// What a variable takes besides its text: two strings and their places on the heap. Without it a
/// great many short variables would weigh next to nothing.
const PER_VARIABLE: usize = 128;

impl Execution {
    /// Returns how much memory its code, stdin and env take.
    pub fn size(&self) -> ByteSize {
        let env: usize =
            self.env.iter().map(|(name, value)| name.len() + value.len() + PER_VARIABLE).sum();
        let bytes = self.code.len() + self.stdin.len() + env;
        ByteSize::bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// Code, stdin and env are the user's secrets: they never appear in a log line.
impl std::fmt::Debug for Execution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Execution")
            .field("language", &self.language)
            .field("limits", &self.limits)
            .field("freshness", &self.freshness)
            .finish_non_exhaustive()
    }
}

/// How much a slot may share with others of its language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Freshness {
    /// Forked from a zygote where the language has one: hash seed and memory layout are the zygote's.
    #[default]
    Shared,
    /// Executed anew: nothing but read-only files is common with another slot.
    Strict,
}

impl Freshness {
    /// Decides what an execution gets that asks for this on a server that gives at least that: a
    /// request may be stricter than the operator, never laxer.
    #[must_use]
    pub fn at_least(self, operators: Self) -> Self {
        match (self, operators) {
            (Self::Shared, Self::Shared) => Self::Shared,
            (Self::Strict, Self::Shared | Self::Strict) | (Self::Shared, Self::Strict) => {
                Self::Strict
            }
        }
    }
}

/// Which of the two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// How the main process of an execution ended, by the kernel's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// What is known when an execution is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Why we ended it, if we did. The first reason wins and is never overwritten.
    pub stopped_for: Option<StopReason>,
    /// How many processes the kernel killed in this cgroup for lack of memory.
    pub oom_kills: u64,
    pub exit: Option<Exit>,
}

/// Why the server ended an execution before its own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    Cancelled,
    /// The connection went away and did not come back within the grace period.
    ClientGone,
    Deadline,
    /// The memory watcher of the fallback without cgroups saw the limit passed.
    MemoryWatcher,
    OutputLimit,
    ShuttingDown,
}

/// The terminal status of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Completed,
    Failed,
    Cancelled,
    Timeout,
    Oom,
}

impl Facts {
    /// Decides the terminal status. The cause that made us kill comes first, then the kernel's
    /// own counter, then the exit status; a signal number alone proves nothing.
    pub fn status(&self) -> Status {
        match (self.stopped_for, self.oom_kills, self.exit) {
            (
                Some(StopReason::Cancelled | StopReason::ClientGone | StopReason::ShuttingDown),
                _,
                _,
            ) => Status::Cancelled,
            (Some(StopReason::Deadline), _, _) => Status::Timeout,
            (Some(StopReason::MemoryWatcher), _, _) => Status::Oom,
            (Some(StopReason::OutputLimit) | None, 1.., _) => Status::Oom,
            (Some(StopReason::OutputLimit), 0, _) => Status::Failed,
            (None, 0, Some(Exit::Code(0))) => Status::Completed,
            (None, 0, Some(Exit::Code(_) | Exit::Signal(_)) | None) => Status::Failed,
        }
    }
}

/// What an execution used, as measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub peak_memory: ByteSize,
    pub cpu_time: Duration,
}

/// How an execution ended: everything that can be said of it afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub status: Status,
    pub exit: Option<Exit>,
    pub stopped_for: Option<StopReason>,
    pub duration: Duration,
    pub usage: Usage,
    /// Bytes of output that were handed on; less than was written if it was cut at the limit.
    pub output_bytes: u64,
    pub truncated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(stopped_for: Option<StopReason>, oom_kills: u64, exit: Option<Exit>) -> Status {
        Facts { stopped_for, oom_kills, exit }.status()
    }

    #[test]
    fn the_status_is_the_first_cause_that_holds() {
        use StopReason::{Cancelled, ClientGone, Deadline, MemoryWatcher, OutputLimit};
        let killed = Some(Exit::Signal(9));
        let rows = [
            (Some(Cancelled), 0, killed, Status::Cancelled),
            (Some(Cancelled), 3, killed, Status::Cancelled),
            (Some(ClientGone), 0, None, Status::Cancelled),
            (Some(Deadline), 0, killed, Status::Timeout),
            (Some(Deadline), 1, Some(Exit::Code(0)), Status::Timeout),
            (Some(MemoryWatcher), 0, killed, Status::Oom),
            (Some(OutputLimit), 0, killed, Status::Failed),
            (Some(OutputLimit), 1, killed, Status::Oom),
            (None, 1, Some(Exit::Code(0)), Status::Oom),
            (None, 25, killed, Status::Oom),
            (None, 0, Some(Exit::Code(0)), Status::Completed),
            (None, 0, Some(Exit::Code(1)), Status::Failed),
            (None, 0, killed, Status::Failed),
            (None, 0, None, Status::Failed),
        ];
        for (reason, oom_kills, exit, expected) in rows {
            assert_eq!(
                status(reason, oom_kills, exit),
                expected,
                "{reason:?} {oom_kills} {exit:?}"
            );
        }
    }

    #[test]
    fn a_request_may_be_stricter_than_the_server_and_never_laxer() {
        use Freshness::{Shared, Strict};
        let rows = [
            (Shared, Shared, Shared),
            (Strict, Shared, Strict),
            (Shared, Strict, Strict),
            (Strict, Strict, Strict),
        ];
        for (asked, operators, given) in rows {
            assert_eq!(asked.at_least(operators), given, "{asked:?} of {operators:?}");
        }
    }

    #[test]
    fn many_short_variables_weigh_more_than_their_text() {
        let execution = Execution {
            language: "python".into(),
            code: "12345".into(),
            stdin: "67".into(),
            env: vec![("A".into(), "bc".into()); 256],
            limits: Limits::default(),
            freshness: Freshness::Shared,
        };
        assert_eq!(execution.size(), ByteSize::bytes(7 + 256 * (3 + 128)));
    }

    #[test]
    fn code_stdin_and_env_are_not_in_the_debug_text() {
        let execution = Execution {
            language: "python".into(),
            code: "canary-code".into(),
            stdin: "canary-stdin".into(),
            env: vec![("canary-key".into(), "canary-value".into())],
            limits: Limits::default(),
            freshness: Freshness::Shared,
        };
        let text = format!("{execution:?}");
        assert!(text.contains("python") && !text.contains("canary"), "{text}");
    }
}
