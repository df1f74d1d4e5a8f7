//! Calls to the engine, through connections that the spawner makes: the daemon itself has no right to its
//! socket. They are few at a time and none takes long; an engine that does not answer is left in peace for
//! a moment, so that those who ask are told at once.

use std::{
    collections::HashMap,
    io,
    os::unix::net::UnixStream as StdUnixStream,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bollard::{
    API_DEFAULT_VERSION, BollardRequest, ClientVersion, Docker,
    errors::Error,
    models::{ContainerCreateBody, ContainerState, ContainerStateStatusEnum, ImageInspect},
    query_parameters::{
        CreateContainerOptionsBuilder, InspectContainerOptions, ListContainersOptionsBuilder,
        RemoveContainerOptionsBuilder, StartContainerOptions, StatsOptionsBuilder,
        StopContainerOptionsBuilder,
    },
};
use futures_util::StreamExt as _;
use hyper::{
    Request, Response, Uri,
    body::{Body, Incoming},
    client::conn::http1,
    header::{HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use isolate::sandbox::{SandboxAnswer, SandboxOrder};
use tokio::{
    net::UnixStream,
    sync::Semaphore,
    time::{Instant, timeout},
};

use crate::{EngineError, sandboxes::machine::MachineError, spawner::Spawner, tasks::Tasks};

/// Calls that may be under way at once. Others wait for their turn.
const AT_ONCE: usize = 16;

/// How long a call may take, and how long it may wait for its turn.
const LONGEST: Duration = Duration::from_secs(20);

/// How long the engine may take to say that it is there.
const SOON: Duration = Duration::from_secs(5);

/// For how long an engine that did not answer is not asked again.
const PEACE: Duration = Duration::from_secs(1);

/// Why a call came to nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// Nobody answers, or nothing that can be understood.
    Down { why: String },
    /// The engine refuses.
    Answered { status: u16 },
    /// The spawner is gone, and with it this server: nothing is known of the engine.
    OurOwnEnd,
}

impl CallError {
    pub(super) fn while_doing(self, doing: &'static str) -> MachineError {
        match self {
            Self::Down { why } => MachineError::Provider { why },
            Self::Answered { status } => MachineError::Container { doing, status },
            Self::OurOwnEnd => EngineError::SpawnerGone.into(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Calls {
    spawner: Spawner,
    tasks: Tasks,
    room: Semaphore,
    known: Mutex<Known>,
}

/// What is known of the engine.
#[derive(Debug, Default)]
struct Known {
    /// Speaks the newest language that both know, once that was found out.
    client: Option<Docker>,
    /// When it last did not answer, and why.
    down: Option<(Instant, String)>,
}

impl Calls {
    pub(super) fn new(spawner: Spawner, tasks: Tasks) -> Self {
        Self { spawner, tasks, room: Semaphore::new(AT_ONCE), known: Mutex::default() }
    }

    /// Says whether the engine answers.
    pub(super) async fn ping(&self) -> Result<(), CallError> {
        self.spared()?;
        let heard = timeout(SOON, self.version()).await.unwrap_or(Err(Error::RequestTimeoutError));
        heard.map(drop).map_err(|error| self.lost(&error))
    }

    pub(super) async fn image(&self, name: &str) -> Result<ImageInspect, CallError> {
        self.call(async |engine| engine.inspect_image(name).await).await
    }

    pub(super) async fn create(
        &self,
        name: &str,
        body: ContainerCreateBody,
    ) -> Result<(), CallError> {
        let options = CreateContainerOptionsBuilder::default().name(name).build();
        self.call(async |engine| engine.create_container(Some(options), body).await.map(drop)).await
    }

    pub(super) async fn start(&self, name: &str) -> Result<(), CallError> {
        let none = None::<StartContainerOptions>;
        self.call(async |engine| engine.start_container(name, none).await).await
    }

    /// Ends every process of a container, and returns when they are gone.
    pub(super) async fn stop(&self, name: &str) -> Result<(), CallError> {
        let at_once = StopContainerOptionsBuilder::default().t(0).build();
        self.call(async |engine| engine.stop_container(name, Some(at_once)).await).await
    }

    pub(super) async fn pause(&self, name: &str) -> Result<(), CallError> {
        self.call(async |engine| engine.pause_container(name).await).await
    }

    pub(super) async fn unpause(&self, name: &str) -> Result<(), CallError> {
        self.call(async |engine| engine.unpause_container(name).await).await
    }

    pub(super) async fn remove(&self, name: &str) -> Result<(), CallError> {
        let all = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        self.call(async |engine| engine.remove_container(name, Some(all)).await).await
    }

    /// Says what there is of a container.
    pub(super) async fn standing(&self, name: &str) -> Result<Standing, CallError> {
        match self.state(name).await {
            Ok(state) => Ok(standing(&state)),
            Err(CallError::Answered { status: 404 }) => Ok(Standing::Gone),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn is_paused(&self, name: &str) -> Result<bool, CallError> {
        Ok(self.state(name).await?.paused.unwrap_or_default())
    }

    /// Returns the labels of all containers that have this one.
    pub(super) async fn labels(
        &self,
        with: &str,
    ) -> Result<Vec<HashMap<String, String>>, CallError> {
        let filters = HashMap::from([("label", vec![with])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let found = self.call(async |engine| engine.list_containers(Some(options)).await).await?;
        Ok(found.into_iter().filter_map(|container| container.labels).collect())
    }

    /// Returns the processor time that all processes of a container have used; nothing if the engine does not say.
    pub(super) async fn cpu_time(&self, name: &str) -> Result<Option<Duration>, CallError> {
        let once = StatsOptionsBuilder::default().stream(false).one_shot(true).build();
        let stats = self.call(async |engine| {
            let stats = pin!(engine.stats(name, Some(once)));
            stats.into_future().await.0.transpose()
        });
        let usage = stats.await?.and_then(|stats| stats.cpu_stats?.cpu_usage);
        Ok(usage.and_then(|usage| usage.total_usage).map(Duration::from_nanos))
    }

    async fn state(&self, name: &str) -> Result<ContainerState, CallError> {
        let none = None::<InspectContainerOptions>;
        let found = self.call(async |engine| engine.inspect_container(name, none).await).await?;
        Ok(found.state.unwrap_or_default())
    }

    /// Asks the engine for something.
    async fn call<T>(
        &self,
        ask: impl AsyncFnOnce(Docker) -> Result<T, Error>,
    ) -> Result<T, CallError> {
        self.spared()?;
        let in_turn = async {
            // Nobody closes it.
            let _room = self
                .room
                .acquire()
                .await
                .map_err(|closed| Error::IOError { err: io::Error::other(closed) })?;
            let engine = self.client().await?;
            timeout(LONGEST, ask(engine)).await.unwrap_or(Err(Error::RequestTimeoutError))
        };
        let answered = timeout(LONGEST * 2, in_turn).await;
        match answered.unwrap_or(Err(Error::RequestTimeoutError)) {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.lost(&error)),
        }
    }

    /// Refuses to ask an engine that did not answer just now.
    fn spared(&self) -> Result<(), CallError> {
        let known = self.known();
        match &known.down {
            Some((when, why)) if when.elapsed() < PEACE => {
                Err(CallError::Down { why: why.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Tells an engine that refuses from one that does not answer, which is noted.
    fn lost(&self, error: &Error) -> CallError {
        let error = judge(error);
        if let CallError::Down { why } = &error {
            *self.known() = Known { client: None, down: Some((Instant::now(), why.clone())) };
        }
        error
    }

    async fn client(&self) -> Result<Docker, Error> {
        if let Some(client) = self.known().client.clone() {
            return Ok(client);
        }
        let version = timeout(SOON, self.version()).await;
        let version = version.unwrap_or(Err(Error::RequestTimeoutError))?;
        let (spawner, tasks) = (self.spawner.clone(), self.tasks.clone());
        let transport = move |request: BollardRequest| {
            let (spawner, tasks) = (spawner.clone(), tasks.clone());
            async move { send(&spawner, &tasks, request).await }
        };
        let client = Docker::connect_with_custom_transport(
            transport,
            Some("http://docker"),
            LONGEST.as_secs(),
            &version,
        )?;
        *self.known() = Known { client: Some(client.clone()), down: None };
        Ok(client)
    }

    /// Returns the newest language that both know. The engine says its own to whoever pings it.
    async fn version(&self) -> Result<ClientVersion, Error> {
        let request = Request::get("/_ping").body(String::new())?;
        let answer = send(&self.spawner, &self.tasks, request).await?;
        let status = answer.status().as_u16();
        if status != 200 {
            let message = String::new();
            return Err(Error::DockerResponseServerError { status_code: status, message });
        }
        let theirs = answer.headers().get("api-version").and_then(|it| it.to_str().ok());
        let theirs = theirs.and_then(read_version).ok_or(Error::APIVersionParseError {})?;
        Ok(if theirs < *API_DEFAULT_VERSION { theirs } else { *API_DEFAULT_VERSION })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What there is of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Running,
    /// Its processes have ended, and its files are there.
    Ended,
    /// It is not there, or being removed.
    Gone,
}

fn standing(state: &ContainerState) -> Standing {
    use ContainerStateStatusEnum::{DEAD, REMOVING};
    match state.status {
        _ if state.running == Some(true) => Standing::Running,
        Some(REMOVING | DEAD) => Standing::Gone,
        _ => Standing::Ended,
    }
}

fn read_version(text: &str) -> Option<ClientVersion> {
    let (major, minor) = text.split_once('.')?;
    Some(ClientVersion { major_version: major.parse().ok()?, minor_version: minor.parse().ok()? })
}

/// What the engine itself says is for the log: it may name what nobody else is to know.
fn judge(error: &Error) -> CallError {
    let down = |why: &str| CallError::Down { why: format!("the Docker engine {why}") };
    match error {
        Error::DockerResponseServerError { status_code: 429 | 502..=504, .. } => {
            down("has too much to do")
        }
        Error::DockerResponseServerError { status_code, message } => {
            tracing::debug!(status = status_code, said = message, "the Docker engine refused");
            CallError::Answered { status: *status_code }
        }
        Error::RequestTimeoutError => down("did not answer in time"),
        Error::IOError { err } if is_our_own_end(err) => CallError::OurOwnEnd,
        Error::IOError { err } => down(&format!("cannot be reached: {}", err.kind())),
        Error::HyperResponseError { .. } => down("broke off its answer"),
        _ => down("answered something that is not understood"),
    }
}

/// Whether it was the spawner who did not answer.
fn is_our_own_end(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<EngineError>());
    cause.is_some()
}

/// Sends one request over a connection of its own.
async fn send<B>(
    spawner: &Spawner,
    tasks: &Tasks,
    mut request: Request<B>,
) -> Result<Response<Incoming>, Error>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = TokioIo::new(connect(spawner).await?);
    let (mut sender, connection) = http1::handshake(stream).await?;
    tasks.start("connection to an engine", async move {
        // Whoever waits for the answer sees that none comes.
        let _ = connection.await;
    });
    // Over a connection to one host, only the path is said.
    if let Some(path) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = Uri::from(path);
    }
    request.headers_mut().insert(HOST, HeaderValue::from_static("docker"));
    Ok(sender.send_request(request).await?)
}

async fn connect(spawner: &Spawner) -> io::Result<UnixStream> {
    let answered = spawner.sandbox(SandboxOrder::ConnectEngine).await;
    let (answer, fds) = answered.map_err(io::Error::other)?;
    match answer {
        SandboxAnswer::Connected => {
            let stream = fds.into_iter().next().ok_or(io::ErrorKind::NotConnected)?;
            UnixStream::from_std(StdUnixStream::from(stream))
        }
        SandboxAnswer::Failed { broken } => Err(io::Error::from_raw_os_error(broken.errno)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_refuses_is_told_from_one_that_does_not_answer() {
        let server = |status_code| Error::DockerResponseServerError {
            status_code,
            message: "cannot open /secret".to_owned(),
        };
        assert_eq!(judge(&server(404)), CallError::Answered { status: 404 });
        assert_eq!(judge(&server(500)), CallError::Answered { status: 500 });
        let down = [
            server(429),
            server(503),
            Error::RequestTimeoutError,
            Error::APIVersionParseError {},
            Error::IOError { err: io::ErrorKind::ConnectionRefused.into() },
        ];
        for error in down {
            let CallError::Down { why } = judge(&error) else { panic!("{error}") };
            assert!(why.starts_with("the Docker engine ") && !why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn a_server_that_ends_says_nothing_of_the_engine() {
        let error = Error::IOError { err: io::Error::other(EngineError::SpawnerGone) };
        assert_eq!(judge(&error), CallError::OurOwnEnd);
        assert!(CallError::OurOwnEnd.while_doing("answer").is_our_own_end());
    }

    #[test]
    fn the_language_is_read_or_not_believed() {
        let read = |text| read_version(text).map(|it| (it.major_version, it.minor_version));
        assert_eq!(read("1.41"), Some((1, 41)));
        for text in ["", "1", "1.x", "1.2.3", "-1.2"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
