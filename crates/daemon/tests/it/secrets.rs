//! I18: what clients entrust to us is in no log line, at any level.

use std::{
    io,
    sync::{Arc, Mutex},
};

use serde_json::json;
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

use crate::{
    peer::{Peer, execute},
    support::Daemon,
};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

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

#[tokio::test]
async fn code_env_stdin_and_keys_are_in_no_log_line() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_writer(lines.clone())
        .with_ansi(false)
        .finish();
    // The runtime of this test has this one thread.
    let _guard = tracing::subscriber::set_default(subscriber);
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
    let log = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("an execution broke id=\"a\" cause=\"the engine's words\""), "{log}");
    let log = log.to_lowercase();
    assert!(!log.contains("canary"), "{log}");
    assert!(!log.contains(&key), "{log}");
}
