//! Commands in a sandbox over HTTP, WebSocket and event streams, in both spellings.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::{SinkExt as _, StreamExt as _};
use model::{ids::SandboxId, life::Phase, spec::SandboxSpec};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest as _, http::HeaderValue},
};

use crate::{
    sandboxed::Sandboxed,
    support::{Answer, Daemon, PATIENCE},
};

/// A sandbox that is ready, and a token for it.
pub(crate) struct Ground {
    pub(crate) sandboxed: Sandboxed,
    pub(crate) id: SandboxId,
    pub(crate) token: String,
}

impl Ground {
    pub(crate) async fn new() -> Self {
        Self::with(crate::support::settings()).await
    }

    pub(crate) async fn with(settings: daemon::serve::Settings) -> Self {
        let sandboxed = Sandboxed::start_with(None, settings).await;
        let id = ready(&sandboxed).await;
        let token = mint(sandboxed.daemon(), &id, "fs:rw process shell ports").await;
        Self { sandboxed, id, token }
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        self.sandboxed.daemon()
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.daemon().ask(method, &format!("/dp/{}{path}", self.id), &headers, &body).await
    }

    /// Asks, and reads the answer until the server hangs up.
    pub(crate) async fn stream(&self, path: &str, body: &Value) -> String {
        let mut stream = TcpStream::connect(self.daemon().address).await.unwrap();
        let (body, token) = (body.to_string(), &self.token);
        let request = format!(
            "POST /dp/{}{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.id,
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        answer
    }

    /// Opens a WebSocket with the token in its upgrade.
    pub(crate) async fn open(&self, path: &str) -> Wire {
        Wire::open(self.daemon(), &self.id, path, Some(&self.token)).await
    }
}

pub(crate) async fn ready(sandboxed: &Sandboxed) -> SandboxId {
    let spec = SandboxSpec { image: "host".to_owned(), ..SandboxSpec::default() };
    let tenant = "default".parse().unwrap();
    let id = sandboxed.sandboxes.create(&tenant, None, spec).await.unwrap().id;
    let events = sandboxed.sandboxes.events(&tenant, id.as_str(), model::event::Sequence::ZERO);
    let mut events = events.await.unwrap();
    while timeout(PATIENCE, events.next()).await.unwrap().unwrap().unwrap().phase != Phase::Active {
    }
    id
}

pub(crate) async fn mint(daemon: &Daemon, id: &SandboxId, scope: &str) -> String {
    let bearer = format!("Bearer {}", daemon.key);
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let body = json!({"sandbox": id.as_str(), "scope": scope}).to_string();
    let answer = daemon.ask("POST", "/v1/admin/tokens", &headers, &body).await;
    answer.json()["token"].as_str().unwrap().to_owned()
}

/// A WebSocket of the data plane.
pub(crate) struct Wire(pub(crate) WebSocketStream<TcpStream>);

impl Wire {
    pub(crate) async fn open(
        daemon: &Daemon,
        id: &SandboxId,
        path: &str,
        token: Option<&str>,
    ) -> Self {
        let bearer = token.map(|token| ("authorization", format!("Bearer {token}")));
        Self::open_with(daemon, id, path, bearer).await
    }

    /// Opens one with such a header, if any.
    pub(crate) async fn open_with(
        daemon: &Daemon,
        id: &SandboxId,
        path: &str,
        header: Option<(&'static str, String)>,
    ) -> Self {
        let stream = TcpStream::connect(daemon.address).await.unwrap();
        let url = format!("ws://{}/dp/{id}{path}", daemon.address);
        let mut request = url.into_client_request().unwrap();
        if let Some((name, value)) = header {
            request.headers_mut().insert(name, HeaderValue::from_str(&value).unwrap());
        }
        Self(client_async(request, stream).await.unwrap().0)
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        self.0.send(Message::text(frame.to_string())).await.unwrap();
    }

    /// Returns the next frame; nothing but a code once the server has closed.
    pub(crate) async fn next(&mut self) -> Result<Value, Option<u16>> {
        loop {
            match timeout(PATIENCE, self.0.next()).await.expect("nothing comes") {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Binary(bytes))) => return Ok(json!({"binary": bytes.to_vec()})),
                Some(Ok(Message::Close(frame))) => return Err(frame.map(|frame| frame.code.into())),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    pub(crate) async fn until(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.next().await.unwrap();
            if frame["type"] == kind {
                return frame;
            }
        }
    }

    /// Returns the code that the server closes with.
    pub(crate) async fn closed(&mut self) -> Option<u16> {
        loop {
            if let Err(code) = self.next().await {
                return code;
            }
        }
    }

    /// Returns everything up to the end: the text of both streams, and the last frame.
    pub(crate) async fn rest(&mut self) -> (String, String, Value) {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        loop {
            let frame = self.next().await.unwrap();
            let data = frame["data"].as_str().unwrap_or_default();
            match frame["type"].as_str().unwrap() {
                "stdout" => stdout.push_str(data),
                "stderr" => stderr.push_str(data),
                "exit" | "error" => return (stdout, stderr, frame),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn a_command_is_run_and_answered_in_both_spellings() {
    let ground = Ground::new().await;
    let asked = json!({
        "command": "echo out; echo err >&2; cat; exit 3", "input": "in", "exec_id": "my-command",
        "env": {"A": "1"}, "cwd": "/tmp",
    });
    let answer = ground.ask("POST", "/v1/exec", &asked).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let mut ran = answer.json();
    assert!(ran["usage"]["peak_memory_bytes"].as_u64().unwrap() > 0);
    ran.as_object_mut().unwrap().remove("usage");
    let expected = json!({
        "exec_id": "my-command", "exit_code": 3, "reason": "exited", "stdout": "out\nin",
        "stderr": "err\n",
    });
    assert_eq!(ran, expected);
    let again = ground.ask("POST", "/v1/exec", &asked).await.json();
    assert_eq!((&again["stdout"], &again["exit_code"]), (&json!("out\nin"), &json!(3)));
    let other = json!({"command": "echo other", "exec_id": "my-command"});
    assert_eq!(ground.ask("POST", "/v1/exec", &other).await.problem(), (409, "CONFLICT".into()));
    let shown = ground.ask("GET", "/v1/exec/my-command", &Value::Null).await.json();
    assert_eq!((&shown["state"], &shown["exit_code"]), (&json!("ended"), &json!(3)));
    assert_eq!(shown["stdout"], json!({"start": 0, "end": 6}));
    let output = ground.ask("GET", "/v1/exec/my-command/stdout?offset=2", &Value::Null).await;
    assert_eq!((output.status, output.body == "t\nin"), (200, true));
    let asked = json!({"command": "echo $0; pwd; printf '\\377'; kill -9 $$", "timeout": 60});
    let executed = ground.ask("POST", "/execute", &asked).await.json();
    let expected = json!({
        "stdout": "/bin/bash\n/home/agbox\n\u{fffd}", "stderr": "", "exit_code": 137,
        "stdout_b64": "L2Jpbi9iYXNoCi9ob21lL2FnYm94Cv8=",
    });
    assert_eq!(executed, expected);
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_in_the_words_of_its_spelling() {
    let ground = Ground::new().await;
    let invalid = (400, "INVALID_REQUEST".to_owned());
    for asked in [
        json!({}),
        json!({"command": "ls", "unknown": 1}),
        json!({"command": "ls", "cwd": "here"}),
        json!({"command": [], "exec_id": "good-id"}),
        json!({"command": "ls", "exec_id": "no/path"}),
        json!({"command": "ls", "user": "nobody-here"}),
        json!({"command": ["ls", "a\u{0}b"]}),
        json!({"command": ["echo", "x".repeat(200_000)]}),
    ] {
        let answer = ground.ask("POST", "/v1/exec", &asked).await;
        assert_eq!(answer.problem(), invalid, "{asked}");
    }
    let missing = ground.ask("GET", "/v1/exec/nothing-here", &Value::Null).await;
    assert_eq!(missing.problem(), (404, "NOT_FOUND".into()));
    let answer = ground.ask("POST", "/execute", &json!({"command": ""})).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["detail"]["error"], "ValidationError");
    let directory = json!({"command": ["true"], "cwd": "/nowhere"});
    let answer = ground.ask("POST", "/v1/exec", &directory).await.json();
    assert_eq!((&answer["reason"], &answer["exit_code"]), (&json!("not_started"), &json!(126)));
}

#[tokio::test]
async fn a_command_is_watched_written_to_and_signalled_over_a_websocket() {
    let ground = Ground::new().await;
    let mut wire = ground.open("/v1/exec/ws").await;
    let code = "echo ready; read line; echo got $line; trap 'echo caught; exit 7' USR1; \
        echo armed; while :; do sleep 0.05; done";
    wire.send(json!({"type": "start", "command": code, "exec_id": "watched"})).await;
    let started = wire.until("ready").await;
    assert_eq!(started["exec_id"], "watched");
    assert!(started["pid"].as_u64().unwrap() > 1);
    assert_eq!(wire.until("stdout").await["data"], "ready\n");
    for bad in [
        json!({"type": "resize", "rows": 0, "cols": 80}),
        json!({"type": "resize", "rows": "a", "cols": 80}),
        json!({"type": "signal", "signal": "SIGSTOP"}),
        json!({"type": "signal", "signal": "KILL; rm"}),
        json!({"type": "nonsense"}),
        json!([1]),
    ] {
        wire.send(bad.clone()).await;
        assert_eq!(wire.until("error").await["code"], "INVALID_REQUEST", "{bad}");
    }
    wire.send(json!({"type": "ping", "id": "1"})).await;
    assert_eq!(wire.until("pong").await["id"], "1");
    wire.send(json!({"type": "stdin", "data": "this\n"})).await;
    let mut said = String::new();
    while !said.contains("armed") {
        let frame = wire.until("stdout").await;
        assert_eq!(frame["offset"], 6 + said.len());
        said.push_str(frame["data"].as_str().unwrap());
    }
    assert!(said.starts_with("got this\n"), "{said}");
    wire.send(json!({"type": "signal", "signal": "SIGUSR1"})).await;
    let (stdout, _, exit) = wire.rest().await;
    assert_eq!((stdout.as_str(), &exit["exit_code"]), ("caught\n", &json!(7)));
    assert_eq!(wire.closed().await, Some(1000));
    // Whoever comes later sees the same.
    let mut late = ground.open("/v1/exec/ws").await;
    let start = json!({"type": "start", "exec_id": "watched", "stdout_offset": 6});
    late.send(start).await;
    assert_eq!(late.rest().await.0, "got this\narmed\ncaught\n");
}

#[tokio::test]
async fn n01_n02_n04_whoever_does_not_say_who_it_is_or_says_too_much_is_sent_away() {
    let ground = Ground::new().await;
    let (daemon, id) = (ground.daemon(), &ground.id);
    let open = || Wire::open(daemon, id, "/v1/exec/ws", None);
    let mut silent = open().await;
    let mut eager = open().await;
    eager.send(json!({"type": "start", "command": "echo no"})).await;
    assert_eq!(eager.closed().await, Some(4401));
    let mut wrong = open().await;
    wrong.send(json!({"type": "auth", "token": "a.b.c"})).await;
    assert_eq!(wrong.closed().await, Some(4401));
    let elsewhere = ready(&ground.sandboxed).await;
    let mut other = open().await;
    let token = mint(daemon, &elsewhere, "process").await;
    other.send(json!({"type": "auth", "token": token})).await;
    assert_eq!(other.closed().await, Some(4403));
    let mut weak = open().await;
    weak.send(json!({"type": "auth", "token": mint(daemon, id, "fs:rw").await})).await;
    assert_eq!(weak.closed().await, Some(4403));
    let mut twice = open().await;
    twice.send(json!({"type": "auth", "token": ground.token})).await;
    assert_eq!(twice.next().await.unwrap()["type"], "auth_ok");
    twice.send(json!({"type": "auth", "token": mint(daemon, id, "process").await})).await;
    assert_eq!(twice.next().await.unwrap()["type"], "auth_ok");
    twice.send(json!({"type": "start", "command": "sleep 100"})).await;
    twice.until("ready").await;
    twice.send(json!({"type": "start", "command": "echo no"})).await;
    assert_eq!(twice.closed().await, Some(4409));
    let mut unknown = ground.open("/v1/exec/ws").await;
    unknown.send(json!({"type": "start", "exec_id": "never-was"})).await;
    assert_eq!(unknown.closed().await, Some(4404));
    assert_eq!(silent.closed().await, Some(4408));
}

#[tokio::test]
async fn langsmiths_frames_are_spoken_as_its_clients_do() {
    let ground = Ground::new().await;
    let mut wire = ground.open("/execute/ws").await;
    let asked = json!({
        "type": "execute", "command": "read a; echo $a; read b; printf 'a\\377b\\n'; cat", "command_id": "0123abcd",
        "timeout_seconds": 30, "shell": "/bin/bash", "idle_timeout_seconds": -1, "ttl_seconds": 600,
        "kill_on_disconnect": false,
    });
    wire.send(asked.clone()).await;
    let started = wire.next().await.unwrap();
    assert_eq!((&started["type"], &started["command_id"]), (&json!("started"), &json!("0123abcd")));
    wire.send(json!({"type": "unheard of"})).await;
    wire.send(json!({"type": "input", "data": "grüße\n"})).await;
    assert_eq!(wire.until("stdout").await["data"], "grüße\n");
    wire.send(json!({"type": "input", "data": "\n"})).await;
    let odd = wire.until("stdout").await;
    let expected = json!({"type": "stdout", "data": "a?b\n", "offset": 8, "data_b64": "Yf9iCg=="});
    assert_eq!(odd, expected);
    drop(wire);
    // Sent again it is the same command; asked for from a byte on it goes on there.
    let mut again = ground.open("/v1/execute/ws").await;
    again.send(asked).await;
    assert_eq!(again.next().await.unwrap(), started);
    let mut later = ground.open("/execute/ws").await;
    let from = json!({
        "type": "reconnect", "command_id": "0123abcd", "stdout_offset": 12, "stderr_offset": 0,
    });
    later.send(from).await;
    assert_eq!(later.next().await.unwrap(), started);
    again.send(json!({"type": "input", "data": "more\n"})).await;
    again.send(json!({"type": "close_stdin"})).await;
    let (stdout, _, exit) = later.rest().await;
    assert_eq!((stdout.as_str(), exit), ("more\n", json!({"type": "exit", "exit_code": 0})));
    let mut unknown = ground.open("/execute/ws").await;
    unknown.send(json!({"type": "reconnect", "command_id": "nothing-of-this"})).await;
    let error = unknown.next().await.unwrap();
    assert_eq!(
        (&error["type"], &error["error_type"]),
        (&json!("error"), &json!("CommandNotFound"))
    );
    let mut killed = ground.open("/execute/ws").await;
    killed
        .send(json!({"type": "execute", "command": "sleep 100", "kill_on_disconnect": true}))
        .await;
    killed.until("started").await;
    killed.send(json!({"type": "kill"})).await;
    assert_eq!(killed.rest().await.2["error_type"], "CommandError");
    let mut late = ground.open("/execute/ws").await;
    late.send(json!({"type": "execute", "command": "sleep 100", "timeout_seconds": 0.2})).await;
    assert_eq!(late.rest().await.2["error_type"], "CommandTimeout");
}

#[tokio::test]
async fn an_api_key_opens_only_what_langsmiths_clients_use() {
    let ground = Ground::new().await;
    let daemon = ground.daemon();
    let key = daemon.key.clone();
    let headers = [("X-Api-Key", key.as_str()), ("Content-Type", "application/json")];
    let body = json!({"command": "echo hello"}).to_string();
    let ask = async |path: &str| {
        daemon.ask("POST", &format!("/dp/{}{path}", ground.id), &headers, &body).await.status
    };
    assert_eq!(ask("/execute").await, 200);
    assert_eq!(ask("/v1/execute").await, 401);
    assert_eq!(ask("/v1/exec").await, 401);
}

/// The events of a stream, each with its data.
pub(crate) fn events(answer: &str) -> Vec<(String, Value)> {
    let mut lines = answer.lines();
    let mut events = Vec::new();
    while let Some(line) = lines.next() {
        if let Some(event) = line.strip_prefix("event: ") {
            let data = lines.next().and_then(|line| line.strip_prefix("data: ")).unwrap();
            events.push((event.to_owned(), serde_json::from_str(data).unwrap()));
        }
    }
    events
}

/// The bytes of one stream from an offset, in however many pieces they came, each where the one
/// before it ended.
fn streamed(events: &[(String, Value)], stream: &str, from: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (_, data) in events.iter().filter(|(event, _)| event == stream) {
        assert_eq!(data["offset"], from + bytes.len());
        bytes.extend(BASE64_STANDARD.decode(data["data"].as_str().unwrap()).unwrap());
    }
    bytes
}

#[tokio::test]
async fn an_event_stream_has_every_byte_and_goes_on_where_it_was() {
    let ground = Ground::new().await;
    let asked = json!({
        "command": "echo one; printf '\\377'; echo two >&2", "command_id": "streamed",
        "shell": "/bin/bash", "timeout_seconds": 30, "idle_timeout_seconds": 300, "ttl_seconds": 600,
    });
    let answer = ground.stream("/execute/stream/start", &asked).await;
    assert!(answer.contains("content-type: text/event-stream"), "{answer}");
    let events = events(&answer);
    assert_eq!(events[0].0, "started");
    assert_eq!(events[0].1["command_id"], "streamed");
    assert_eq!(streamed(&events, "stdout", 0), b"one\n\xff");
    assert_eq!(streamed(&events, "stderr", 0), b"two\n");
    let end = json!({"offset": 5, "stream": "stdout"});
    assert!(events.contains(&("stream_end".into(), end)), "{events:?}");
    assert_eq!(events.last().unwrap(), &("exit".into(), json!({"exit_code": 0})));
    let from = json!({"command_id": "streamed", "stdout_offset": 4, "stderr_offset": 4});
    let rest = ground.stream("/execute/stream/resume", &from).await;
    let rest = self::events(&rest);
    assert_eq!(streamed(&rest, "stdout", 4), b"\xff");
    assert_eq!(streamed(&rest, "stderr", 4), b"");
    let none = json!({"command_id": "none-such"});
    let missing = ground.ask("POST", "/execute/stream/resume", &none).await;
    assert_eq!(missing.status, 404);
    assert_eq!(missing.json()["detail"]["error"], "CommandNotFound");
}

#[tokio::test]
async fn an_event_stream_asks_for_an_acknowledgement_after_each_mebibyte() {
    const LENGTH: usize = 5 << 19;
    let ground = Ground::new().await;
    let asked = json!({
        "command": format!("head -c {LENGTH} /dev/zero"), "command_id": "acknowledged", "ttl_seconds": 600,
    });
    let mut told = events(&ground.stream("/execute/stream/start", &asked).await);
    let (mut at, mut streams) = (0, 1);
    loop {
        let piece = streamed(&told, "stdout", at).len();
        at += piece;
        let (last, data) = told.last().unwrap();
        if last == "exit" {
            break;
        }
        assert_eq!((last.as_str(), &data["stdout_offset"]), ("ack_required", &json!(at)));
        // It is asked for after the piece that makes it a mebibyte.
        assert!((1 << 20..2 << 20).contains(&piece), "{piece}");
        let from = json!({"command_id": "acknowledged", "stdout_offset": at, "stderr_offset": 0});
        told = events(&ground.stream("/execute/stream/resume", &from).await);
        streams += 1;
    }
    assert_eq!((at, streams), (LENGTH, 3));
}

#[tokio::test]
async fn an_answer_without_all_output_says_so_in_its_last_line() {
    let execute_output = model::units::ByteSize::mib(1);
    let ground =
        Ground::with(daemon::serve::Settings { execute_output, ..crate::support::settings() })
            .await;
    let run = async |command: &str| {
        ground.ask("POST", "/execute", &json!({"command": command})).await.json()
    };
    let whole = run("head -c 1048576 /dev/zero; echo end >&2").await;
    assert_eq!(whole["stdout"].as_str().unwrap().len(), 1 << 20);
    assert_eq!((&whole["stderr"], &whole["truncated"]), (&json!("end\n"), &Value::Null));
    let cut = run("head -c 1048579 /dev/zero; echo end >&2; head -c 1048576 /dev/zero >&2").await;
    assert_eq!(cut["stdout"].as_str().unwrap().len(), 1 << 20);
    assert_eq!(cut["truncated"], true);
    let last = cut["stderr"].as_str().unwrap().lines().last().unwrap();
    let expected = "[ringfence: output truncated, 3 bytes of stdout and 4 bytes of stderr omitted]";
    assert_eq!(last, expected);
}

#[tokio::test]
async fn a_command_of_400_kib_is_run() {
    let ground = Ground::new().await;
    let command = format!(": '{}'; echo $# done", "x".repeat(400 << 10));
    let ran = ground.ask("POST", "/execute", &json!({"command": command})).await.json();
    assert_eq!((&ran["stdout"], &ran["exit_code"]), (&json!("0 done\n"), &json!(0)));
    let ran = ground.ask("POST", "/v1/exec", &json!({"command": command})).await.json();
    assert_eq!((&ran["stdout"], &ran["exit_code"]), (&json!("0 done\n"), &json!(0)));
}

/// The bytes of a stream of numbered lines, as they were written.
fn numbers(last: u64) -> Vec<u8> {
    (1..=last).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

/// Cut at random a hundred times, the client goes on at the byte where it was, and has all of them.
#[tokio::test]
async fn a_client_that_is_cut_off_again_and_again_misses_no_byte() {
    let ground = Ground::new().await;
    // 100 MB and a little.
    let last = 12_600_000;
    let expected = numbers(last);
    let start = json!({
        "type": "start", "command": ["seq", "1", last.to_string()], "exec_id": "numbers",
        "encoding": "binary",
    });
    let (mut got, mut cuts, mut seed) = (Vec::with_capacity(expected.len()), 0, 0x2545_f491_u64);
    loop {
        let mut wire = ground.open("/v1/exec/ws").await;
        let mut start = start.clone();
        start["stdout_offset"] = json!(got.len());
        wire.send(start).await;
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let frames = 1 + (seed >> 33) % 12;
        let is_last = cuts >= 100;
        let mut count = 0;
        let ended = loop {
            match timeout(PATIENCE, wire.0.next()).await.expect("nothing comes") {
                Some(Ok(Message::Binary(frame))) => {
                    let (head, bytes) = frame.split_at(9);
                    assert_eq!(head[0], 1);
                    let at = u64::from_be_bytes(head[1..].try_into().unwrap());
                    assert_eq!(at, u64::try_from(got.len()).unwrap());
                    got.extend_from_slice(bytes);
                    count += 1;
                    if count >= frames && !is_last {
                        break false;
                    }
                }
                Some(Ok(Message::Text(text))) => {
                    let frame: Value = serde_json::from_str(&text).unwrap();
                    if frame["type"] == "exit" {
                        assert_eq!(frame["exit_code"], 0);
                        break true;
                    }
                }
                Some(Ok(_)) => {}
                other => panic!("{other:?}"),
            }
        };
        if ended {
            break;
        }
        cuts += 1;
    }
    assert!(cuts >= 100, "{cuts}");
    assert!(got == expected, "{} bytes of {}", got.len(), expected.len());
}

#[tokio::test]
async fn boxes_are_created_used_stopped_and_deleted_as_langsmiths_clients_do() {
    let ground = Ground::new().await;
    let daemon = ground.daemon();
    let key = daemon.key.clone();
    let ask = async |method: &str, path: &str, body: Value| {
        let headers = [("X-Api-Key", key.as_str()), ("Content-Type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        daemon.ask(method, &format!("/api/v2/sandboxes{path}"), &headers, &body).await
    };
    let created = ask(
        "POST",
        "/boxes",
        json!({
            "name": "my-box", "snapshot_name": "host", "wait_for_ready": true, "timeout": 30,
            "run_config": {"env_vars": {"WHO": "me"}}, "labels": {"team": "a"},
        }),
    )
    .await;
    assert_eq!(created.status, 201, "{}", created.body);
    let created = created.json();
    assert_eq!((&created["status"], &created["name"]), (&json!("ready"), &json!("my-box")));
    let url = created["dataplane_url"].as_str().unwrap();
    let path = url.strip_prefix(&format!("http://{}", daemon.address)).unwrap();
    let headers = [("X-Api-Key", key.as_str()), ("Content-Type", "application/json")];
    let run = async |command: &str| {
        let body = json!({"command": command}).to_string();
        daemon.ask("POST", &format!("{path}/execute"), &headers, &body).await.json()
    };
    assert_eq!(run("echo $WHO; echo kept > file").await["stdout"], "me\n");
    assert_eq!(
        ask("POST", "/boxes", json!({"name": "my-box", "snapshot_name": "host"})).await.status,
        409
    );
    let none = ask("POST", "/boxes", json!({})).await;
    assert_eq!((none.status, &none.json()["detail"]["error"]), (422, &json!("SandboxConfig")));
    assert_eq!(ask("POST", "/boxes/my-box/stop", json!({})).await.status, 200);
    let stopped = async {
        while ask("GET", "/boxes/my-box/status", Value::Null).await.json()["status"] != "stopped" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, stopped).await.unwrap();
    // Whoever uses it starts it.
    assert_eq!(run("cat file").await["stdout"], "kept\n");
    let listed = ask("GET", "/boxes?name_contains=my-", Value::Null).await.json();
    assert_eq!(listed["sandboxes"].as_array().unwrap().len(), 1);
    assert_eq!(ask("DELETE", "/boxes/my-box", Value::Null).await.status, 204);
    let gone = ask("GET", "/boxes/my-box", Value::Null).await;
    assert_eq!((gone.status, &gone.json()["detail"]["error"]), (404, &json!("NotFound")));
}
