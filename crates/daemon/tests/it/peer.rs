//! A client of the execution protocol, for tests.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest as _},
};

use crate::support::{Daemon, PATIENCE};

pub(crate) const TS: &str = "2025-12-27T11:30:00.000Z";

pub(crate) struct Peer {
    pub(crate) socket: WebSocketStream<TcpStream>,
}

impl Peer {
    pub(crate) async fn connect(daemon: &Daemon) -> Self {
        Self::connect_with_key(daemon, &daemon.key).await
    }

    pub(crate) async fn connect_with_key(daemon: &Daemon, key: &str) -> Self {
        let stream = TcpStream::connect(daemon.address).await.unwrap();
        let url = format!("ws://{}/ws", daemon.address);
        let mut request = url.into_client_request().unwrap();
        let bearer = format!("Bearer {key}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        request.headers_mut().insert("x-protocol-version", "1".parse().unwrap());
        let (socket, answer) = client_async(request, stream).await.unwrap();
        assert_eq!(answer.headers()["x-protocol-version"], "1");
        Self { socket }
    }

    pub(crate) async fn send(&mut self, frame: impl ToString) {
        self.socket.send(Message::text(frame.to_string())).await.unwrap();
    }

    /// Sends an `execute` of a script.
    pub(crate) async fn run(&mut self, id: &str, script: &str) {
        self.send(execute(id, script)).await;
    }

    /// Returns the next frame, without its time of day, which is checked for its shape.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            match timeout(PATIENCE, self.socket.next()).await.unwrap() {
                Some(Ok(Message::Text(text))) => return without_ts(&text),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("expected a frame, not {other:?}"),
            }
        }
    }

    /// Returns the frames of one execution from here to its end.
    pub(crate) async fn until_end(&mut self, id: &str) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await;
            if frame["id"] != id {
                continue;
            }
            let is_last = frame["type"] == "result"
                || frame["type"] == "error" && frame["code"] != "OUTPUT_LIMIT";
            frames.push(frame);
            if is_last {
                return frames;
            }
        }
    }

    /// Reads until the server closes; returns its code, or nothing if it just hung up.
    pub(crate) async fn close_code(&mut self) -> Option<u16> {
        loop {
            match timeout(PATIENCE, self.socket.next()).await.unwrap() {
                Some(Ok(Message::Close(frame))) => return frame.map(|frame| frame.code.into()),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    }
}

fn without_ts(text: &str) -> Value {
    let mut frame: Value = serde_json::from_str(text).unwrap();
    assert_eq!(frame["v"], 1, "{text}");
    let ts = frame.as_object_mut().unwrap().remove("ts").unwrap();
    let ts = ts.as_str().unwrap();
    assert!(ts.len() == TS.len() && ts.ends_with('Z'), "{ts}");
    frame
}

pub(crate) fn execute(id: &str, script: &str) -> Value {
    json!({
        "v": 1, "type": "execute", "id": id, "ts": TS, "language": "script", "code": script,
        "limits": {"timeout_ms": 1000, "memory_mb": 64},
    })
}

pub(crate) fn cancel(id: &str) -> Value {
    json!({"v": 1, "type": "cancel", "id": id, "ts": TS})
}

pub(crate) fn ping() -> Value {
    json!({"v": 1, "type": "ping", "ts": TS})
}

/// Says a frame in short, so that sequences can be compared: its type and what matters of it.
pub(crate) fn short(frame: &Value) -> String {
    match frame["type"].as_str().unwrap() {
        "status" => format!("status {}", frame["status"].as_str().unwrap()),
        "result" => format!("result {}", frame["exit_code"]),
        "error" => format!("error {}", frame["code"].as_str().unwrap()),
        kind @ ("stdout" | "stderr") => format!("{kind} {}", frame["data"].as_str().unwrap()),
        kind => kind.to_owned(),
    }
}

pub(crate) fn shorts(frames: &[Value]) -> Vec<String> {
    frames.iter().map(short).collect()
}
