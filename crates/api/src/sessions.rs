//! Sessions: what a thread, workspace, assistant or deployment is told of its sandbox.
//!
//! One answer has two shapes: the plain fields, which stay as they are for ever, and `binding`,
//! `dataplane`, `credentials` and `policy` beside them. Fields are only ever added.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Asks for a session: `POST /v1/sandbox/sessions`. Either `thread_id` or `scope` is there. Unknown fields are
/// ignored, but `capabilities`, `mounts` and `env` are refused: they might be meant to confine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcquireSession {
    /// `get` and `attach_only` take what is there, `ensure` makes what is not, `create_only` takes nothing
    /// that is there.
    pub mode: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// On whose behalf; without it, the key's own actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<crate::keys::Actor>,
    /// Without it, all that the actor may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_capabilities: Option<Vec<String>>,
    /// The sandbox that the caller believes the scope has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_hint: Option<String>,
    /// A wish; the answer says where the sandbox is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_preference: Option<String>,
    /// What a new sandbox is made of; without it, what the operator has set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// What a new sandbox may use; without it, the operator's defaults. A sandbox that is there keeps its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<SandboxLimits>,
    /// How long a sandbox is waited for: 0 to 60; 10 without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<u64>,
}

/// What one sandbox may use. `GET /v1/limits` has the least, the default and the most of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxLimits {
    /// Memory in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// Processor time in thousandths of one processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millicores: Option<u64>,
    /// Processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Disk space in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
}

/// Asks for the sandbox of a thread: `POST /threads/{thread_id}/sandbox`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcquireThread {
    /// The thread again; another one than in the path is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Without it, all that the actor may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
    /// On whose behalf; without it, the key's own actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<crate::keys::Actor>,
    /// The sandbox that the caller believes the thread has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// How long the token is good, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    /// What a new sandbox is made of; without it, what the operator has set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Where a new sandbox runs: `local` or `docker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_preference: Option<String>,
    /// What a new sandbox may use; without it, the operator's defaults. A sandbox that is there keeps its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<SandboxLimits>,
    /// How long a sandbox is waited for: 0 to 60; 10 without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<u64>,
}

/// Asks for the next token: `…/refresh` and `…/refresh-token` of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefreshSession {
    /// The token so far, which then ends soon; the next one is as that one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_token: Option<Secret>,
}

/// Asks for the next token: `POST /threads/{thread_id}/sandbox/refresh`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefreshThread {
    /// The token so far.
    pub current_token: Secret,
    /// The sandbox that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
}

/// The body of `…/heartbeat`: nothing is read of it but that it is an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Beat {}

/// The answer to `POST /v1/sandbox/sessions` and `GET /v1/sandbox/sessions/{session_id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionAnswer {
    pub session_id: String,
    /// The thread, if the scope is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    pub sandbox: SessionSandbox,
    pub token: Secret,
    pub expires_at: String,
    pub binding: Binding,
    pub dataplane: Dataplane,
    pub credentials: Credentials,
    pub policy: Policy,
    /// What the sandbox is made of.
    pub image: String,
    /// There and true if `sandbox_hint` names a sandbox that could not be taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint_rejected: Option<bool>,
}

/// Where the sandbox of a session is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionSandbox {
    pub id: String,
    pub provider: String,
    pub http_base_url: String,
    pub ws_base_url: String,
}

/// The association of a scope with a sandbox. Its `id` is the `session_id`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Binding {
    pub id: String,
    pub scope: Scope,
    pub sandbox_id: String,
    pub provider: String,
    /// `provisioning`, `active`, `suspended` or `failed`.
    pub state: String,
    /// Why the sandbox is suspended or has failed, as `idle_ttl`, `host_rebooted`, `supervisor_lost`, `resume_failed` or `image_not_found`. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the sandbox could not be created, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Grows with every binding of the scope.
    pub generation: u64,
    pub lease_expires_at: String,
}

/// What a sandbox is kept for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scope {
    /// `thread`, `workspace`, `assistant` or `deployment`.
    #[serde(rename = "type")]
    pub kind: String,
    pub id: String,
}

/// What the URLs of the sandbox's routes begin with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Dataplane {
    pub http_base_url: String,
    pub ws_base_url: String,
}

/// A token and what it is good for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Credentials {
    /// Always `Bearer`.
    pub token_type: String,
    pub access_token: Secret,
    pub expires_at: String,
    /// In the words that they were asked for in.
    pub granted_capabilities: Vec<String>,
}

/// How long a sandbox is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Policy {
    /// After this time of no use it is put to sleep; 0: never.
    pub idle_timeout_seconds: u64,
    /// After this time it ends, whatever anybody does.
    pub hard_ttl_seconds: u64,
    /// After this time of no use and no heartbeat it ends.
    pub lease_seconds: u64,
}

/// The answer to `…/refresh`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refreshed {
    pub token: Secret,
    pub expires_at: String,
}

/// The answer to `…/refresh-token`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefreshedToken {
    pub token: Secret,
    pub expires_at: String,
    pub credentials: Credentials,
}

/// The answer to `…/heartbeat`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Heartbeat {
    pub binding: Binding,
    pub policy: Policy,
}

/// The answer to `POST /threads/{thread_id}/sandbox`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ThreadSandbox {
    pub sandbox_id: String,
    pub endpoints: Endpoints,
    pub token: Secret,
    pub expires_at: String,
    /// What was granted, in the words that it was asked for in.
    pub scopes: Vec<String>,
    /// When to ask for the next token.
    pub refresh_before: String,
    pub session_id: String,
    pub generation: u64,
    pub lease_expires_at: String,
    pub image: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint_rejected: Option<bool>,
}

/// Where a sandbox is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Endpoints {
    pub http: String,
    pub ws: String,
}

/// The answer to `POST /threads/{thread_id}/sandbox/refresh`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ThreadRefreshed {
    pub token: Secret,
    pub expires_at: String,
    pub refresh_before: String,
    pub scopes: Vec<String>,
}

/// Where the sandbox is that took the place of the one a token is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Coordinates {
    pub session_id: String,
    pub sandbox_id: String,
    pub generation: u64,
    pub http_base_url: String,
    pub ws_base_url: String,
}

/// A token on its way to the one who may see it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
