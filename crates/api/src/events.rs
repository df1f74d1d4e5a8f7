//! What happened to a sandbox, as the event stream of the data plane tells it.

use serde::Serialize;
use utoipa::ToSchema;

/// One event of a sandbox: the data of a server-sent event whose id is the sequence. The names are
/// those of `agbox.v1`, and of `ringfence events --json`. What an event does not have is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SandboxEvent {
    pub sandbox_id: String,
    /// 1, 2, 3, … without gaps.
    pub sequence: u64,
    /// Such as `SANDBOX_READY`; `EVENT_TYPE_UNSPECIFIED` for what the contract has no type for, which
    /// `phase` names.
    pub event_type: &'static str,
    pub occurred_at: String,
    /// The state once this has happened, such as `READY`.
    pub sandbox_state: &'static str,
    pub phase: Option<String>,
    pub reason: Option<String>,
    pub exec_id: Option<String>,
    pub exec_state: Option<&'static str>,
    pub exit_code: Option<i32>,
    pub companion: Option<String>,
    pub error_code: Option<String>,
    pub error_message: Option<String>,
}

/// Why a stream of events ends, as its last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = EventsClosed)]
#[serde(rename_all = "snake_case")]
pub enum Closed {
    /// The token has ended.
    TokenExpired,
    /// Somebody took the credential back.
    Revoked,
    /// The server ends: come back with the last id.
    Restarting,
    /// The sandbox was deleted, or its record is gone.
    Deleted,
    /// The events cannot be read.
    Unavailable,
}
