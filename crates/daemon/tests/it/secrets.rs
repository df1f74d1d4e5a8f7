//! I18: what clients entrust to us is in no log line, at any level.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
};

use api::agbox::v1;
use serde_json::json;
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

use crate::{
    caller::refused,
    peer::{Peer, execute},
    sandboxed::{Sandboxed, create, run, shell, until},
    support::Daemon,
};

/// What is logged.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Collects every line that this thread logs.
pub(crate) fn listen() -> (Lines, tracing::subscriber::DefaultGuard) {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_writer(lines.clone())
        .with_ansi(false)
        .finish();
    // The runtime of a test has one thread.
    (lines, tracing::subscriber::set_default(subscriber))
}

#[tokio::test]
async fn env_commands_and_keys_of_calls_are_in_no_log_line() {
    let (lines, _guard) = listen();
    let server = Sandboxed::start().await;
    let mut local = server.local().await;
    let mut request = create("my-box");
    let env = BTreeMap::from([("CANARY_NAME".to_owned(), "canary-value".to_owned())]);
    request.create_spec.as_mut().unwrap().envs = env.clone();
    request.config_yaml = b"envs: {YAML_CANARY: canary}".to_vec();
    local.create_sandbox(request.clone()).await.unwrap();
    until(&mut local, "my-box", v1::SandboxState::Ready).await;
    let command = shell("my-box", "echo canary-out; echo canary-err >&2", "");
    run(&mut local, v1::CreateExecRequest { env_overrides: env, ..command }).await;
    // Refused ones too.
    request.config_yaml = b"ports: canary".to_vec();
    refused(local.create_sandbox(request).await);
    let key = server.daemon().key.clone();
    run(&mut server.remote(&key).await, shell("my-box", "true canary", "")).await;
    let mut stranger = server.remote("canary-key").await;
    refused(stranger.ping(v1::PingRequest {}).await);
    drop((local, stranger));
    drop(server);
    let log = lines.text().to_lowercase();
    assert!(log.contains("h2::"), "the library's own lines are not there");
    let shown: Vec<&str> = log.lines().filter(|line| line.contains("canary")).collect();
    assert!(shown.is_empty(), "{shown:#?}");
    assert!(!log.contains(&key));
}

#[tokio::test]
async fn code_env_stdin_and_keys_are_in_no_log_line() {
    let (lines, _guard) = listen();
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    let mut frame = execute("a", "start\nout canary-code\nbreak");
    frame["stdin"] = "canary-stdin".into();
    frame["env"] = json!({"CANARY_NAME": "canary-value"});
    peer.send(&frame).await;
    peer.until_end("a").await;
    // Refused ones too, with the same in other places.
    frame["limits"] = json!({"canary": "canary"});
    peer.send(&frame).await;
    peer.send("canary, and no JSON").await;
    for _ in 0..2 {
        assert_eq!(peer.next().await["code"], "INVALID_REQUEST");
    }
    let answer =
        daemon.ask("GET", "/ws?token=canary-token", &[("X-Api-Key", "canary-key")], "").await;
    assert_eq!(answer.status, 401);
    drop(peer);
    let key = daemon.key.clone();
    daemon.stop().await;
    let log = lines.text();
    assert!(log.contains("an execution broke id=\"a\" cause=\"the engine's words\""), "{log}");
    let log = log.to_lowercase();
    assert!(!log.contains("canary"), "{log}");
    assert!(!log.contains(&key), "{log}");
}
