//! A daemon over a real engine, and what its clients say and hear.

use daemon::serve;
use engine::{Engine, Settings, languages::Languages};
use harness::{SpawnerProcess, start_spawner};
use model::admission::Capacity;
use serde_json::{Value, json};

use crate::{
    peer::{Peer, TS},
    scripted::Scripted,
    support::{self, Daemon},
};

/// A daemon over a real engine. Dropping it ends the spawner.
pub(crate) struct Real {
    pub(crate) daemon: Daemon,
    engine: Engine,
    spawner: SpawnerProcess,
}

impl Drop for Real {
    fn drop(&mut self) {
        self.engine.close();
        let end = self.spawner.wait();
        assert!(end.is_ok() || std::thread::panicking(), "spawner: {end:?}");
    }
}

impl Real {
    pub(crate) async fn start() -> Self {
        Self::start_with(Capacity::default()).await
    }

    pub(crate) async fn start_with(capacity: Capacity) -> Self {
        let languages = Languages::installed();
        Self::start_on(Settings { capacity, languages, ..Settings::default() }).await
    }

    pub(crate) async fn start_on(settings: Settings) -> Self {
        Self::start_by(settings, support::settings()).await
    }

    pub(crate) async fn start_by(settings: Settings, serving: serve::Settings) -> Self {
        let (socket, spawner) = start_spawner().unwrap();
        let engine = Engine::start(settings, socket.into_fd()).await.unwrap();
        let daemon = Daemon::start_on(engine.clone(), Scripted::default(), serving).await;
        Self { daemon, engine, spawner }
    }

    pub(crate) async fn peer(&self) -> Peer {
        Peer::connect(&self.daemon).await
    }
}

pub(crate) fn execute(id: &str, language: &str, code: &str) -> Value {
    json!({
        "v": 1, "type": "execute", "id": id, "ts": TS, "language": language, "code": code,
        "limits": {"timeout_ms": 20_000, "memory_mb": 128},
    })
}

/// Returns the text of one stream, checking offsets and the order of pieces on the way.
pub(crate) fn output(frames: &[Value], stream: &str) -> String {
    let mut text = String::new();
    for frame in frames.iter().filter(|frame| frame["type"] == stream) {
        assert_eq!(frame["offset"].as_u64(), u64::try_from(text.len()).ok());
        text += frame["data"].as_str().unwrap();
    }
    text
}

/// Returns the last status and the result.
pub(crate) fn end(frames: &[Value]) -> (&str, &Value) {
    let [.., status, result] = frames else { panic!("{frames:?}") };
    assert_eq!(result["type"], "result", "{frames:?}");
    (status["status"].as_str().unwrap(), result)
}
