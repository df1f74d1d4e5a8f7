//! An engine and what an execution looks like to its client.

use std::time::Duration;

use engine::{
    Engine, Settings,
    executions::{Client, Event, Submitted},
    languages::Languages,
};
use harness::{SpawnerProcess, start_spawner};
use model::{
    execution::{Execution, Freshness, Outcome, Stream},
    limits::Limits,
    units::ByteSize,
};

/// An engine with its spawner. Dropping it ends both.
pub(crate) struct Node {
    pub(crate) engine: Engine,
    spawner: SpawnerProcess,
}

/// Everything that a client saw of one execution.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) started: bool,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) outcome: Outcome,
}

impl Seen {
    pub(crate) fn out(&self) -> &str {
        str::from_utf8(&self.stdout).unwrap()
    }

    pub(crate) fn err(&self) -> &str {
        str::from_utf8(&self.stderr).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.engine.close();
        let end = self.spawner.wait();
        assert!(end.is_ok() || std::thread::panicking(), "spawner: {end:?}");
    }
}

impl Node {
    /// Starts one with the languages that most tests need: slots of the others take long to make.
    pub(crate) async fn start() -> Self {
        Self::with(&["python", "shell"]).await
    }

    pub(crate) async fn with(languages: &[&str]) -> Self {
        let languages = Languages::installed().only(languages);
        Self::start_with(Settings { languages, ..Settings::default() }).await
    }

    pub(crate) async fn start_with(settings: Settings) -> Self {
        let (socket, spawner) = start_spawner().unwrap();
        Self { engine: Engine::start(settings, socket.into_fd()).await.unwrap(), spawner }
    }

    pub(crate) async fn run(&self, execution: Execution) -> Seen {
        see(submit(&self.engine.client("default"), execution)).await
    }
}

pub(crate) fn submit(client: &Client, execution: Execution) -> Submitted {
    client.submit(execution).unwrap()
}

/// Follows an execution to its end.
pub(crate) async fn see(mut submitted: Submitted) -> Seen {
    let (mut started, mut stdout, mut stderr) = (false, Vec::new(), Vec::new());
    while let Some(event) = submitted.events.recv().await {
        match event {
            Event::Started => started = true,
            Event::Output { stream: Stream::Stdout, data } => stdout.extend(data),
            Event::Output { stream: Stream::Stderr, data } => stderr.extend(data),
            Event::Ended(outcome) => return Seen { started, stdout, stderr, outcome },
            Event::Broken { message } => panic!("broken: {message}"),
        }
    }
    panic!("events stopped without an end")
}

pub(crate) fn python(code: &str) -> Execution {
    Execution {
        language: "python".into(),
        code: code.into(),
        stdin: Vec::new(),
        env: Vec::new(),
        limits: Limits {
            timeout: Duration::from_mins(1),
            memory: ByteSize::mib(128),
            ..Limits::default()
        },
        freshness: Freshness::Shared,
    }
}

pub(crate) fn shell(code: &str) -> Execution {
    Execution { language: "shell".into(), ..python(code) }
}
