//! Long-lived sandboxes: typed calls of the lifecycle protocol, by the main port.
//!
//! Slow calls answer when they are accepted; [`Sandboxes::wait`] tells what became of them.

pub mod events;
pub mod record;

use std::{collections::BTreeMap, error::Error as _, fmt, io, time::Duration};

use api::agbox::v1::{self, sandbox_service_client::SandboxServiceClient};
use tonic::{
    Code, Request, Status, Streaming,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{self, Channel, Endpoint},
};
use tonic_types::StatusExt as _;

use crate::{ClientError, address::Address};
use record::{Exec, Sandbox, Started};

/// No answer takes longer. The server has the same bound.
const DEADLINE: Duration = Duration::from_mins(1);

const CONNECT: Duration = Duration::from_secs(10);

/// A peer that does not answer for so long is gone.
const ALIVE: Duration = Duration::from_secs(20);

/// The sandboxes of one server. Cheap to clone.
#[derive(Clone)]
pub struct Sandboxes {
    service: SandboxServiceClient<InterceptedService<Channel, Bearer>>,
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
    /// How long nobody may use it before it is stopped; zero is for ever.
    pub idle: Option<Duration>,
    /// The main process; without one, a process that waits.
    pub command: Vec<String>,
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
        let url = format!("http://{}", address.authority());
        let not_a_url = |_| ClientError::Url { url: url.clone() };
        let endpoint = Endpoint::from_shared(url.clone()).map_err(not_a_url)?;
        let endpoint = endpoint.connect_timeout(CONNECT);
        let endpoint = endpoint.http2_keep_alive_interval(ALIVE).keep_alive_timeout(ALIVE);
        let bearer = Bearer::new(key)?;
        let channel = endpoint.connect().await;
        let channel = channel.map_err(|error| unreachable(url, &error))?;
        Ok(Self { service: SandboxServiceClient::with_interceptor(channel, bearer) })
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
            cpu_limit: new.cpus.unwrap_or_default(),
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

fn within<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(DEADLINE);
    request
}

/// Adds the key to every call.
#[derive(Clone)]
struct Bearer(MetadataValue<Ascii>);

impl Bearer {
    fn new(key: &str) -> Result<Self, ClientError> {
        let value = MetadataValue::try_from(format!("Bearer {key}"));
        let mut value = value.map_err(|_not_visible| ClientError::Key)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// Says why there is no connection in the kernel's words, if it was the kernel who said no.
fn unreachable(url: String, error: &transport::Error) -> ClientError {
    let mut cause = error.source();
    while let Some(next) = cause {
        if let Some(error) = next.downcast_ref::<io::Error>() {
            let source = error
                .raw_os_error()
                .map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
            return ClientError::Connect { url, source };
        }
        cause = next.source();
    }
    ClientError::Connect { url, source: io::Error::other("it does not speak HTTP/2") }
}

impl From<Status> for ClientError {
    /// A status with a reason is the server's word; one without says nothing of what was done.
    fn from(status: Status) -> Self {
        match status.get_details_error_info() {
            Some(info) if status.code() != Code::Unavailable => {
                Self::Refused { code: info.reason, message: status.message().to_owned() }
            }
            _ => Self::Broken { cause: root_cause(&status) },
        }
    }
}

/// The outer errors say no more than that there is an inner one.
fn root_cause(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut next = status.source();
    while let Some(cause) = next {
        text = cause.to_string();
        next = cause.source();
    }
    text
}
