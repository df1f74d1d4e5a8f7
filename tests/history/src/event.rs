//! Events and states as the agbox door shows them, in words of our own.

use serde::{Deserialize, Serialize};

/// An event as a subscriber got it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub sandbox: String,
    pub sequence: u64,
    pub kind: Kind,
    /// Not set where the wire leaves it unspecified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<String>,
    /// Only what a wait status said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why there is no exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// The companion that it is about, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub companion: Option<String>,
    /// In whatever unit the recorder likes: it is compared, never ordered.
    pub occurred_at: i64,
    /// The rest of the message as one text: reasons, codes, messages.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
    #[serde(default, skip_serializing_if = "is_not_set")]
    pub replay: bool,
    #[serde(default, skip_serializing_if = "is_not_set")]
    pub snapshot: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_not_set(flag: &bool) -> bool {
    !*flag
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Creation or, of a stopped sandbox, resumption.
    Accepted,
    Preparing,
    Ready,
    Failed,
    StopRequested,
    Stopped,
    DeleteRequested,
    Deleted,
    ExecStarted,
    ExecFinished,
    ExecFailed,
    ExecCancelled,
    CompanionReady,
    CompanionFailed,
    Frozen,
    Thawed,
    EndsSoon,
    /// An event of the server's own that the recorder has no word for. It changes no state.
    Note,
}

impl Kind {
    pub const ALL: [Self; 18] = [
        Self::Accepted,
        Self::Preparing,
        Self::Ready,
        Self::Failed,
        Self::StopRequested,
        Self::Stopped,
        Self::DeleteRequested,
        Self::Deleted,
        Self::ExecStarted,
        Self::ExecFinished,
        Self::ExecFailed,
        Self::ExecCancelled,
        Self::CompanionReady,
        Self::CompanionFailed,
        Self::Frozen,
        Self::Thawed,
        Self::EndsSoon,
        Self::Note,
    ];

    /// Reads the number that agbox gives a kind. The closed list has none for events of the
    /// server's own: those are unspecified and named by their phase.
    pub fn from_agbox(number: i32, phase: &str) -> Option<Self> {
        let kind = match number {
            0 => match phase {
                "frozen" => Self::Frozen,
                "thawed" => Self::Thawed,
                "ends_soon" => Self::EndsSoon,
                _ => Self::Note,
            },
            1 => Self::Accepted,
            2 => Self::Preparing,
            3 => Self::Ready,
            4 => Self::Failed,
            5 => Self::StopRequested,
            6 => Self::Stopped,
            7 => Self::DeleteRequested,
            8 => Self::Deleted,
            9 => Self::ExecStarted,
            10 => Self::ExecFinished,
            11 => Self::ExecFailed,
            12 => Self::ExecCancelled,
            13 => Self::CompanionReady,
            14 => Self::CompanionFailed,
            _ => return None,
        };
        Some(kind)
    }

    pub const fn is_exec_end(self) -> bool {
        matches!(self, Self::ExecFinished | Self::ExecFailed | Self::ExecCancelled)
    }

    /// Tells whether the event must say the state that it leads to.
    pub const fn names_its_state(self) -> bool {
        matches!(
            self,
            Self::Accepted
                | Self::Ready
                | Self::Failed
                | Self::Stopped
                | Self::DeleteRequested
                | Self::Deleted
        )
    }
}

/// The state of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Pending,
    Ready,
    Failed,
    Stopped,
    Deleting,
    Deleted,
}

impl State {
    /// Reads the number that agbox gives a state. Zero, unspecified, is none.
    pub const fn from_agbox(number: i32) -> Option<Self> {
        match number {
            1 => Some(Self::Pending),
            2 => Some(Self::Ready),
            3 => Some(Self::Failed),
            4 => Some(Self::Stopped),
            5 => Some(Self::Deleting),
            6 => Some(Self::Deleted),
            _ => None,
        }
    }
}

/// The state of an exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecState {
    Running,
    Finished,
    Failed,
    Cancelled,
}

impl ExecState {
    /// Reads the number that agbox gives a state. Zero, unspecified, is none.
    pub const fn from_agbox(number: i32) -> Option<Self> {
        match number {
            1 => Some(Self::Running),
            2 => Some(Self::Finished),
            3 => Some(Self::Failed),
            4 => Some(Self::Cancelled),
            _ => None,
        }
    }

    /// Returns the exit code that goes with a state. The wire has zero where there is none.
    pub fn exit_code(self, told: i32) -> Option<i32> {
        match self {
            Self::Running | Self::Cancelled => None,
            Self::Finished => Some(told),
            Self::Failed => (told != 0).then_some(told),
        }
    }

    /// Returns the state that an exec has after its last event was of this kind.
    pub const fn after(kind: Kind) -> Self {
        if matches!(kind, Kind::ExecFinished) {
            Self::Finished
        } else if matches!(kind, Kind::ExecFailed) {
            Self::Failed
        } else if matches!(kind, Kind::ExecCancelled) {
            Self::Cancelled
        } else {
            Self::Running
        }
    }
}

/// Why an exec has an end without an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    SandboxStopped,
    SandboxDeleted,
    SandboxFailed,
    SupervisorLost,
    HostRebooted,
    /// No process of it ever ran.
    NotStarted,
    /// The server says that its own restart took the exec, which it promised never to do.
    ServerRestarted,
    /// A cause that the recorder has no word for.
    Unnamed,
}

impl Loss {
    /// Reads an error code of the wire.
    pub fn from_code(code: &str) -> Self {
        match code {
            "SANDBOX_STOPPED" => Self::SandboxStopped,
            "SANDBOX_DELETED" => Self::SandboxDeleted,
            "SANDBOX_FAILED" => Self::SandboxFailed,
            "SUPERVISOR_LOST" => Self::SupervisorLost,
            "HOST_REBOOTED" => Self::HostRebooted,
            "EXEC_RUN_FAILED" => Self::NotStarted,
            "DAEMON_RESTARTED" => Self::ServerRestarted,
            _ => Self::Unnamed,
        }
    }
}
