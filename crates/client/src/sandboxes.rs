//! Long-lived sandboxes: typed calls of the lifecycle protocol, by the main port.
//!
//! Slow calls answer when they are accepted; [`Sandboxes::wait`] tells what became of them.

pub mod events;
pub mod record;

use std::{collections::BTreeMap, fmt, path::Path, time::Duration};

use api::agbox::v1::{self, sandbox_service_client::SandboxServiceClient};
use tonic::Streaming;

use crate::{
    ClientError,
    address::Address,
    grpc::{self, Connection, within},
};
use record::{Exec, Sandbox, Started};

/// The sandboxes of one server. Cheap to clone.
#[derive(Clone)]
pub struct Sandboxes {
    service: SandboxServiceClient<Connection>,
}

impl fmt::Debug for Sandboxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandboxes").finish_non_exhaustive()
    }
}

/// What a sandbox is to be made of.
#[derive(Clone, Default)]
pub struct NewSandbox {
    /// The caller's own name, given once and never again; without one the server gives one.
    pub name: Option<String>,
    pub image: String,
    pub labels: BTreeMap<String, String>,
    pub env: BTreeMap<String, String>,
    /// Bytes, such as `512m`.
    pub memory: Option<String>,
    /// Cores, such as `0.5`.
    pub cpus: Option<String>,
    /// Files and folders of the server's machine that show in it.
    pub mounts: Vec<Mount>,
    /// Files and folders of the server's machine that are copied into it: source and target.
    pub copies: Vec<(String, String)>,
    /// Builtin tools, such as `git`.
    pub tools: Vec<String>,
    /// How much it may write, such as `2g`.
    pub disk: Option<String>,
    /// How long nobody may use it before it is stopped; zero is for ever.
    pub idle: Option<Duration>,
    /// The main process; without one, a process that waits.
    pub command: Vec<String>,
}

/// A file or folder of the server's machine that shows in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub source: String,
    pub target: String,
    pub is_writable: bool,
}

impl Mount {
    fn into_spec(self) -> v1::MountSpec {
        v1::MountSpec { source: self.source, target: self.target, writable: self.is_writable }
    }
}

fn copy_spec((source, target): (String, String)) -> v1::CopySpec {
    v1::CopySpec { source, target, exclude_patterns: Vec::new() }
}

impl fmt::Debug for NewSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewSandbox").field("image", &self.image).finish_non_exhaustive()
    }
}

/// A command that is to be run.
#[derive(Clone, Default)]
pub struct NewExec {
    pub sandbox: String,
    pub command: Vec<String>,
    /// Where it runs; without one, in `/workspace`.
    pub cwd: Option<String>,
    /// Variables over those of the sandbox.
    pub env: BTreeMap<String, String>,
}

impl fmt::Debug for NewExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewExec").field("sandbox", &self.sandbox).finish_non_exhaustive()
    }
}

/// Whether those that were deleted are listed as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    All,
    Undeleted,
}

impl Sandboxes {
    /// Connects. The key is looked at with the first call.
    pub async fn connect(address: &Address, key: &str) -> Result<Self, ClientError> {
        let connection = grpc::connect(address, key).await?;
        Ok(Self { service: SandboxServiceClient::new(connection) })
    }

    /// Connects by the Unix socket of a server on this machine, as the user that one is.
    pub async fn connect_to_socket(path: &Path) -> Result<Self, ClientError> {
        let connection = grpc::connect_to_socket(path).await?;
        Ok(Self { service: SandboxServiceClient::new(connection) })
    }

    /// Accepts a sandbox. It is being made when this returns.
    pub async fn create(&self, new: NewSandbox) -> Result<Sandbox, ClientError> {
        let idle_ttl = new.idle.map(TryInto::try_into).transpose();
        let too_long = |_| ClientError::Duration;
        let spec = v1::CreateSpec {
            image: new.image,
            labels: new.labels.into_iter().collect(),
            envs: new.env.into_iter().collect(),
            idle_ttl: idle_ttl.map_err(too_long)?,
            command: new.command,
            mounts: new.mounts.into_iter().map(Mount::into_spec).collect(),
            copies: new.copies.into_iter().map(copy_spec).collect(),
            builtin_tools: new.tools,
            cpu_limit: new.cpus.unwrap_or_default(),
            disk_limit: new.disk.unwrap_or_default(),
            memory_limit: new.memory.unwrap_or_default(),
            ..v1::CreateSpec::default()
        };
        let request = v1::CreateSandboxRequest {
            create_spec: Some(spec),
            sandbox_id: new.name.unwrap_or_default(),
            ..v1::CreateSandboxRequest::default()
        };
        let answer = self.service.clone().create_sandbox(within(request)).await?;
        Sandbox::read(answer.into_inner().sandbox)
    }

    pub async fn get(&self, name: &str) -> Result<Sandbox, ClientError> {
        let request = v1::GetSandboxRequest { sandbox_id: name.to_owned() };
        let answer = self.service.clone().get_sandbox(within(request)).await?;
        Sandbox::read(answer.into_inner().sandbox)
    }

    /// Returns the sandboxes that have these labels, newest first.
    pub async fn list(
        &self,
        which: Which,
        labels: BTreeMap<String, String>,
    ) -> Result<Vec<Sandbox>, ClientError> {
        let request = v1::ListSandboxesRequest {
            include_deleted: which == Which::All,
            label_selector: labels.into_iter().collect(),
        };
        let answer = self.service.clone().list_sandboxes(within(request)).await?;
        answer.into_inner().sandboxes.into_iter().map(|it| Sandbox::read(Some(it))).collect()
    }

    /// Accepts to stop a sandbox: its processes end, its files stay.
    pub async fn stop(&self, name: &str) -> Result<(), ClientError> {
        let request = v1::StopSandboxRequest { sandbox_id: name.to_owned() };
        self.service.clone().stop_sandbox(within(request)).await?;
        Ok(())
    }

    /// Accepts to start a stopped sandbox again.
    pub async fn resume(&self, name: &str) -> Result<(), ClientError> {
        let request = v1::ResumeSandboxRequest { sandbox_id: name.to_owned() };
        self.service.clone().resume_sandbox(within(request)).await?;
        Ok(())
    }

    /// Accepts to delete a sandbox, with its files.
    pub async fn delete(&self, name: &str) -> Result<(), ClientError> {
        let request = v1::DeleteSandboxRequest { sandbox_id: name.to_owned() };
        self.service.clone().delete_sandbox(within(request)).await?;
        Ok(())
    }

    /// Accepts to delete all that have these labels; returns their names.
    pub async fn delete_labelled(
        &self,
        labels: BTreeMap<String, String>,
    ) -> Result<Vec<String>, ClientError> {
        let label_selector = labels.into_iter().collect();
        let request = v1::DeleteSandboxesRequest { label_selector };
        let answer = self.service.clone().delete_sandboxes(within(request)).await?;
        Ok(answer.into_inner().deleted_sandbox_ids)
    }

    /// Accepts a command.
    pub async fn exec(&self, new: NewExec) -> Result<Started, ClientError> {
        let request = v1::CreateExecRequest {
            sandbox_id: new.sandbox,
            command: new.command,
            cwd: new.cwd.unwrap_or_default(),
            env_overrides: new.env.into_iter().collect(),
            exec_id: String::new(),
        };
        let answer = self.service.clone().create_exec(within(request)).await?.into_inner();
        Ok(Started {
            id: answer.exec_id,
            stdout: answer.stdout_log_path,
            stderr: answer.stderr_log_path,
        })
    }

    pub async fn get_exec(&self, id: &str) -> Result<Exec, ClientError> {
        let request = v1::GetExecRequest { exec_id: id.to_owned() };
        let answer = self.service.clone().get_exec(within(request)).await?;
        Exec::read(answer.into_inner().exec)
    }

    /// Cancels a command, which is so when this returns.
    pub async fn cancel(&self, id: &str) -> Result<(), ClientError> {
        let request = v1::CancelExecRequest { exec_id: id.to_owned() };
        self.service.clone().cancel_exec(within(request)).await?;
        Ok(())
    }

    async fn subscribe(
        &self,
        name: &str,
        from_sequence: u64,
    ) -> Result<Streaming<v1::SandboxEvent>, ClientError> {
        let request = v1::SubscribeSandboxEventsRequest {
            sandbox_id: name.to_owned(),
            from_sequence,
            include_current_snapshot: false,
        };
        Ok(self.service.clone().subscribe_sandbox_events(request).await?.into_inner())
    }
}
