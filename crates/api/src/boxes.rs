//! Messages of LangSmith's control plane for sandboxes, as its clients send and read them. Fields that are
//! not known are passed over: their clients grow by themselves. Those that are known and cannot be had
//! are here, so that whoever asks for them is told.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::langsmith::{RunConfig, object};

/// A sandbox to create: the body of `POST …/boxes`.
#[derive(Clone, Default, PartialEq, Deserialize, ToSchema)]
#[serde(default)]
pub struct CreateBox {
    /// Unique among the sandboxes of the key's tenant, for ever.
    pub name: Option<String>,
    /// A snapshot by its id, its name or its name and tag, else an image by its own name. They are four
    /// spellings of one thing.
    pub snapshot_id: Option<String>,
    pub snapshot: Option<String>,
    pub snapshot_name: Option<String>,
    pub template_name: Option<String>,
    /// Whether the answer waits until it is ready; so it does if nobody says.
    pub wait_for_ready: Option<bool>,
    /// For how many seconds it waits.
    pub timeout: Option<f64>,
    /// After so much time without use it is stopped; 0: never.
    pub idle_ttl_seconds: Option<u64>,
    /// So long after it has stopped it is deleted; 0: never.
    pub delete_after_stop_seconds: Option<u64>,
    pub vcpus: Option<f64>,
    pub cpu_millicores: Option<u64>,
    pub mem_bytes: Option<u64>,
    pub fs_capacity_bytes: Option<u64>,
    #[serde(deserialize_with = "object")]
    pub run_config: Option<RunConfig>,
    pub env_vars: Option<BTreeMap<String, String>>,
    pub labels: Option<BTreeMap<String, String>>,
    /// Files are always kept: only `true` can be had.
    pub persistent: Option<bool>,
    /// Processes end when it is stopped: only `false` can be had.
    pub preserve_memory_on_stop: Option<bool>,
    pub restore_memory: Option<bool>,
    /// What cannot be had at all, unless it is empty.
    #[schema(value_type = Option<Object>)]
    pub mount_config: Option<Value>,
    #[schema(value_type = Option<Object>)]
    pub proxy_config: Option<Value>,
    #[schema(value_type = Option<Object>)]
    pub access_delegation: Option<Value>,
    pub volumes: Option<Vec<Value>>,
    pub tag_value_ids: Option<Vec<String>>,
}

/// Env is the user's: it never appears in a log line.
impl fmt::Debug for CreateBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateBox").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What is to be changed of a sandbox: the body of `PATCH …/boxes/{name}`. What is absent stays.
#[derive(Clone, Default, PartialEq, Deserialize, ToSchema)]
#[serde(default)]
pub struct UpdateBox {
    pub name: Option<String>,
    pub idle_ttl_seconds: Option<u64>,
    pub delete_after_stop_seconds: Option<u64>,
    /// User and folder are replaced, variables added; for commands that begin from now on.
    #[serde(deserialize_with = "object")]
    pub run_config: Option<RunConfig>,
    /// What cannot be changed.
    #[schema(value_type = Option<Object>)]
    pub proxy_config: Option<Value>,
    pub vcpus: Option<f64>,
    pub cpu_millicores: Option<u64>,
    pub mem_bytes: Option<u64>,
    pub fs_capacity_bytes: Option<u64>,
    pub tag_value_ids: Option<Vec<String>>,
}

impl fmt::Debug for UpdateBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpdateBox").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A sandbox, as clients see it. The values of variables are never shown.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct SandboxBox {
    pub id: String,
    pub name: String,
    /// What every path of its data plane begins with.
    pub dataplane_url: String,
    /// `provisioning`, `ready`, `failed`, `stopped` or `deleting`.
    pub status: &'static str,
    pub status_message: Option<String>,
    pub created_at: String,
    pub updated_at: String,
    pub created_by: Option<String>,
    pub updated_by: Option<String>,
    pub stopped_at: Option<String>,
    pub idle_ttl_seconds: u64,
    pub delete_after_stop_seconds: u64,
    /// The snapshot that it is made from, or the image.
    pub snapshot_id: String,
    /// The name of that snapshot, or the image.
    pub template_name: String,
    pub vcpus: Option<u64>,
    pub cpu_millicores: Option<u64>,
    pub mem_bytes: Option<u64>,
    pub fs_capacity_bytes: Option<u64>,
    pub labels: BTreeMap<String, String>,
    pub run_config: RunConfig,
    pub persistent: bool,
    pub preserve_memory_on_stop: bool,
    pub size_class: Option<String>,
    #[schema(value_type = Option<Object>)]
    pub access_delegation: Option<Value>,
    #[schema(value_type = Option<Object>)]
    pub mount_config: Option<Value>,
    #[schema(value_type = Option<Object>)]
    pub proxy_config: Option<Value>,
    pub volumes: Vec<Value>,
}

/// What `GET …/boxes/{name}/status` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct BoxStatus {
    pub status: &'static str,
    pub status_message: Option<String>,
}

/// What `GET …/boxes` answers. Clients read the same list under both names.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct BoxList {
    pub sandboxes: Vec<SandboxBox>,
    pub items: Vec<SandboxBox>,
    pub next_cursor: Option<String>,
    /// Where the next page begins; 0 if there is none.
    pub offset: u64,
}

/// A URL to a server in a sandbox: the body of `POST …/boxes/{name}/service-url`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, ToSchema)]
#[serde(default)]
pub struct CreateServiceUrl {
    pub port: Option<u64>,
    /// 1 to 86400; 600 if nobody says.
    pub expires_in_seconds: Option<u64>,
    /// Only `off`, which is as if it were absent: nobody logs in here.
    pub access: Option<String>,
    /// Nobody else may show it in a frame: it has to be empty.
    pub embed_origins: Option<Vec<String>>,
}

/// What it answers.
#[derive(Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ServiceUrl {
    /// For a browser, which gets a cookie there. Empty if previews have no address on this server.
    pub browser_url: String,
    /// For programs, which send the token as `X-Langsmith-Sandbox-Service-Token`.
    pub service_url: String,
    pub token: String,
    pub expires_at: String,
    pub embed_url: String,
    pub embed_origins: Vec<String>,
}

impl fmt::Debug for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceUrl").field("service_url", &self.service_url).finish_non_exhaustive()
    }
}

/// A URL that downloads one file: the body of `POST …/boxes/{name}/download-url`.
#[derive(Clone, Default, PartialEq, Deserialize, ToSchema)]
#[serde(default)]
pub struct CreateDownloadUrl {
    pub path: Option<String>,
    /// Without it the URL is good until the sandbox is gone or its key is rotated.
    pub expires_in_seconds: Option<u64>,
    pub content_type: Option<String>,
    /// `attachment` or `inline`.
    pub content_disposition: Option<String>,
}

/// The path is the user's: it never appears in a log line.
impl fmt::Debug for CreateDownloadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateDownloadUrl").finish_non_exhaustive()
    }
}

/// What it answers.
#[derive(Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct DownloadUrl {
    pub download_url: String,
    pub token: String,
    pub expires_at: Option<String>,
}

impl fmt::Debug for DownloadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DownloadUrl").finish_non_exhaustive()
    }
}

/// A snapshot to make of an image: the body of `POST …/snapshots`.
#[derive(Clone, Default, PartialEq, Deserialize, ToSchema)]
#[serde(default)]
pub struct CreateSnapshot {
    pub name: Option<String>,
    pub docker_image: Option<String>,
    pub fs_capacity_bytes: Option<u64>,
    /// `latest` if nobody says. It is taken from the snapshot that had it.
    pub tag: Option<String>,
    #[serde(deserialize_with = "object")]
    pub run_config: Option<RunConfig>,
    pub labels: Option<BTreeMap<String, String>>,
    pub description: Option<String>,
    /// Cannot be had: what registries are logged in to with is the operator's.
    pub registry_id: Option<String>,
}

impl fmt::Debug for CreateSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateSnapshot").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A snapshot, as clients see it. The values of variables are never shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ShownSnapshot {
    pub id: String,
    pub name: String,
    /// `building`, `ready` or `failed`.
    pub status: &'static str,
    pub status_message: Option<String>,
    pub fs_capacity_bytes: u64,
    pub fs_used_bytes: Option<u64>,
    pub docker_image: String,
    pub image_digest: Option<String>,
    pub source_sandbox_id: Option<String>,
    pub registry_id: Option<String>,
    pub created_by: Option<String>,
    pub created_at: String,
    pub updated_at: String,
    pub tags: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub description: Option<String>,
    pub run_config: RunConfig,
}

/// What `GET …/snapshots` answers. Clients read the same list under both names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SnapshotList {
    pub snapshots: Vec<ShownSnapshot>,
    pub items: Vec<ShownSnapshot>,
    pub next_cursor: Option<String>,
    /// Where the next page begins; 0 if there is none.
    pub offset: u64,
}

/// What `GET …/snapshots-by-name/{name}` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SnapshotTags {
    pub name: String,
    pub tags: Vec<SnapshotTag>,
}

/// A tag, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SnapshotTag {
    pub tag: String,
    pub snapshot_id: String,
}

/// A snapshot as old clients make it: the body of `POST …/templates`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, ToSchema)]
#[serde(default)]
pub struct CreateTemplate {
    pub name: Option<String>,
    pub image: Option<String>,
    /// `500m`, `2`, `0.5`.
    pub cpu: Option<String>,
    /// `512Mi`, `1Gi`, `1000000`.
    pub memory: Option<String>,
    pub storage: Option<String>,
    /// There are no volumes: it has to be empty.
    pub volume_mounts: Option<Vec<Value>>,
}

/// A snapshot as old clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Template {
    pub id: String,
    pub name: String,
    pub image: String,
    pub resources: TemplateResources,
    pub volume_mounts: Vec<Value>,
    pub created_at: String,
    pub updated_at: String,
}

/// What `GET …/templates` answers.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TemplateList {
    pub templates: Vec<Template>,
}

/// What `GET …/volumes` answers: there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct VolumeList {
    pub volumes: Vec<Value>,
}

/// What `GET …/pools` answers: there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct PoolList {
    pub pools: Vec<Value>,
}

/// What sandboxes get that are made from it; what is absent is the operator's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct TemplateResources {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}
