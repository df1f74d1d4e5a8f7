//! What a server tells of sandboxes, commands and events.

use std::{
    collections::BTreeMap,
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use api::agbox::v1::{self, sandbox_event::Details};

use crate::ClientError;

/// Where a sandbox is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A later server may know more.
    Unknown,
    Pending,
    Ready,
    Failed,
    Stopped,
    Deleting,
    Deleted,
}

impl State {
    /// Returns the word of the protocol.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Pending => "PENDING",
            Self::Ready => "READY",
            Self::Failed => "FAILED",
            Self::Stopped => "STOPPED",
            Self::Deleting => "DELETING",
            Self::Deleted => "DELETED",
        }
    }

    /// Tells whether a sandbox that is here gets to the goal by itself, if that was asked for.
    pub fn is_on_the_way_to(self, goal: Self) -> bool {
        match self {
            Self::Unknown | Self::Pending => goal != self,
            // A stop is complete when it is STOPPED, and not before.
            Self::Ready => goal == Self::Stopped || goal == Self::Deleted,
            Self::Deleting => goal == Self::Deleted,
            Self::Failed | Self::Stopped | Self::Deleted => false,
        }
    }
}

impl From<v1::SandboxState> for State {
    fn from(state: v1::SandboxState) -> Self {
        match state {
            v1::SandboxState::Unspecified => Self::Unknown,
            v1::SandboxState::Pending => Self::Pending,
            v1::SandboxState::Ready => Self::Ready,
            v1::SandboxState::Failed => Self::Failed,
            v1::SandboxState::Stopped => Self::Stopped,
            v1::SandboxState::Deleting => Self::Deleting,
            v1::SandboxState::Deleted => Self::Deleted,
        }
    }
}

/// A sandbox as of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    pub name: String,
    pub state: State,
    /// The last event that this contains.
    pub sequence: u64,
    pub image: String,
    pub labels: BTreeMap<String, String>,
    pub created_at: SystemTime,
    pub state_changed_at: SystemTime,
    /// Why it failed, if it did.
    pub error: Option<Failure>,
}

/// What went wrong, as a code and in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: String,
    pub message: String,
}

impl Failure {
    fn new(code: String, message: String) -> Option<Self> {
        (!code.is_empty() || !message.is_empty()).then_some(Self { code, message })
    }
}

impl Sandbox {
    pub(super) fn read(handle: Option<v1::SandboxHandle>) -> Result<Self, ClientError> {
        let handle = handle.ok_or(ClientError::Incomplete)?;
        Ok(Self {
            state: handle.state().into(),
            name: handle.sandbox_id,
            sequence: handle.last_event_sequence,
            image: handle.image,
            labels: handle.labels.into_iter().collect(),
            created_at: time(handle.created_at),
            state_changed_at: time(handle.state_changed_at),
            error: Failure::new(handle.error_code, handle.error_message),
        })
    }
}

/// How a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecState {
    /// A later server may know more.
    Unknown,
    Running,
    Finished,
    Failed,
    Cancelled,
}

impl ExecState {
    /// Returns the word of the protocol.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Running => "RUNNING",
            Self::Finished => "FINISHED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// Tells whether it has ended.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Unknown | Self::Running => false,
            Self::Finished | Self::Failed | Self::Cancelled => true,
        }
    }

    /// The wire has a zero where there is no exit code; only success makes it one.
    fn exit_code(self, wire: i32) -> Option<i32> {
        match self {
            Self::Finished => Some(wire),
            Self::Failed => (wire != 0).then_some(wire),
            Self::Unknown | Self::Running | Self::Cancelled => None,
        }
    }
}

impl From<v1::ExecState> for ExecState {
    fn from(state: v1::ExecState) -> Self {
        match state {
            v1::ExecState::Unspecified => Self::Unknown,
            v1::ExecState::Running => Self::Running,
            v1::ExecState::Finished => Self::Finished,
            v1::ExecState::Failed => Self::Failed,
            v1::ExecState::Cancelled => Self::Cancelled,
        }
    }
}

/// A command and how it stands.
#[derive(Clone, PartialEq, Eq)]
pub struct Exec {
    pub id: String,
    pub sandbox: String,
    pub state: ExecState,
    pub command: Vec<String>,
    pub cwd: String,
    /// Known if it ended by itself or by a signal (128 and its number).
    pub exit_code: Option<i32>,
    /// Says why it failed; else empty.
    pub error: String,
    /// The last event of its sandbox at the moment of this answer.
    pub sequence: u64,
}

impl fmt::Debug for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Exec");
        shown.field("id", &self.id).field("state", &self.state).finish_non_exhaustive()
    }
}

impl Exec {
    pub(super) fn read(exec: Option<v1::ExecStatus>) -> Result<Self, ClientError> {
        let exec = exec.ok_or(ClientError::Incomplete)?;
        let state = ExecState::from(exec.state());
        Ok(Self {
            state,
            id: exec.exec_id,
            sandbox: exec.sandbox_id,
            command: exec.command,
            cwd: exec.cwd,
            exit_code: state.exit_code(exec.exit_code),
            error: exec.error,
            sequence: exec.last_event_sequence,
        })
    }
}

/// A command that was accepted, and where its output is on the server's machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    pub id: String,
    pub stdout: String,
    pub stderr: String,
}

/// A recorded change of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub sandbox: String,
    pub sequence: u64,
    /// The type's name in the protocol, such as `SANDBOX_READY`.
    pub kind: &'static str,
    pub occurred_at: SystemTime,
    /// The state once this has happened.
    pub state: State,
    /// What is being done, or the name of an event that the protocol has no type for.
    pub phase: String,
    pub reason: String,
    pub exec: Option<ExecChange>,
    /// The companion that it is about, if it is about one.
    pub companion: Option<String>,
    pub error: Option<Failure>,
}

/// What an event says of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecChange {
    pub id: String,
    pub state: ExecState,
    pub exit_code: Option<i32>,
}

impl From<v1::SandboxEvent> for Event {
    fn from(event: v1::SandboxEvent) -> Self {
        let (kind, state) = (event.event_type().as_str_name(), event.sandbox_state().into());
        let mut read = Self {
            sandbox: event.sandbox_id,
            sequence: event.sequence,
            kind,
            occurred_at: time(event.occurred_at),
            state,
            phase: String::new(),
            reason: String::new(),
            exec: None,
            companion: None,
            error: None,
        };
        match event.details {
            None => {}
            Some(Details::SandboxPhase(told)) => {
                (read.phase, read.reason) = (told.phase, told.reason);
                read.error = Failure::new(told.error_code, told.error_message);
            }
            Some(Details::Exec(told)) => {
                let state = ExecState::from(told.exec_state());
                let exit_code = state.exit_code(told.exit_code);
                read.exec = Some(ExecChange { id: told.exec_id, state, exit_code });
                read.error = Failure::new(told.error_code, told.error_message);
            }
            Some(Details::CompanionContainer(told)) => {
                read.companion = Some(told.name);
                read.error = Failure::new(told.error_code, told.error_message);
            }
        }
        read
    }
}

fn time(stamp: Option<impl TryInto<SystemTime>>) -> SystemTime {
    stamp.and_then(|stamp| stamp.try_into().ok()).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_is_an_exit_code_only_of_what_succeeded() {
        let rows = [
            (ExecState::Running, 0, None),
            (ExecState::Finished, 0, Some(0)),
            (ExecState::Failed, 7, Some(7)),
            (ExecState::Failed, 0, None),
            (ExecState::Cancelled, 0, None),
        ];
        for (state, wire, expected) in rows {
            assert_eq!(state.exit_code(wire), expected, "{state:?}");
        }
    }

    #[test]
    fn whoever_waits_goes_on_only_where_the_goal_can_still_come() {
        let ways = |goal: State| {
            let all = [State::Pending, State::Ready, State::Failed, State::Stopped];
            let all = all.into_iter().chain([State::Deleting, State::Deleted]);
            all.filter(|state| state.is_on_the_way_to(goal)).collect::<Vec<_>>()
        };
        assert_eq!(ways(State::Ready), [State::Pending]);
        assert_eq!(ways(State::Stopped), [State::Pending, State::Ready]);
        assert_eq!(ways(State::Deleted), [State::Pending, State::Ready, State::Deleting]);
    }
}
