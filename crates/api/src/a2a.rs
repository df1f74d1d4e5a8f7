//! A session as A2A (version 1) has it: a task whose context is the sandbox, whose
//! metadata say what the environment is, and whose artifacts say where it is used.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sessions::{Binding, Dataplane, Policy, SessionSandbox};

/// The answer to `GET /v1/sandbox/sessions/{id}/a2a`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// The `session_id`.
    pub id: String,
    /// The sandbox's id: agents that have the same have the same files and processes.
    pub context_id: String,
    pub status: TaskStatus,
    pub artifacts: Vec<Artifact>,
    pub metadata: Metadata,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskStatus {
    pub state: TaskState,
    /// When this was so.
    pub timestamp: String,
}

/// How a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum TaskState {
    /// The sandbox is being made.
    #[serde(rename = "TASK_STATE_SUBMITTED")]
    Submitted,
    /// It is there, or will be as soon as it is used.
    #[serde(rename = "TASK_STATE_WORKING")]
    Working,
    /// It could not be made or started.
    #[serde(rename = "TASK_STATE_FAILED")]
    Failed,
}

/// A way to use the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    pub artifact_id: String,
    pub name: String,
    pub description: String,
    pub parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    pub url: String,
    pub media_type: String,
    pub metadata: PartMetadata,
}

/// What it takes to use a URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartMetadata {
    /// What the token must have, sent as `Authorization: Bearer`.
    pub capability: String,
    /// The method, or `WS`.
    pub method: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Metadata {
    #[serde(rename = "urn:ringfence:environment:1")]
    pub environment: Environment,
}

/// The session, as its own routes show it, without what opens it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Environment {
    pub session_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    pub sandbox: SessionSandbox,
    pub binding: Binding,
    pub dataplane: Dataplane,
    pub policy: Policy,
    /// What the sandbox is made of.
    pub image: String,
    /// Where a token can be had: `POST` with an API key.
    pub refresh_url: String,
}
