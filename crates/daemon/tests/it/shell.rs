//! Shells over WebSocket: joined, shown, written to, watched, left.

mod rows;

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use crate::{
    exec::{Ground, Wire, mint},
    secrets::listen,
    support::PATIENCE,
};

/// Says nothing by itself, so that what comes is what was asked for.
const QUIET: [&str; 3] = ["/bin/sh", "-c", "PS1= exec sh"];

/// What a client shows that has joined a shell: the screen, and all that came after it.
struct Joined {
    wire: Wire,
    ready: Value,
    screen: Option<Value>,
    /// All output since, and where it began.
    output: String,
    from: u64,
}

impl Joined {
    async fn over(mut wire: Wire, start: Value) -> Self {
        let wants_screen = start["stdout_offset"].is_null();
        wire.send(start).await;
        let ready = wire.until("ready").await;
        let screen = if wants_screen { Some(wire.until("screen").await) } else { None };
        let from = screen.as_ref().and_then(|screen| screen["offset"].as_u64()).unwrap_or_default();
        Self { wire, ready, screen, output: String::new(), from }
    }

    async fn new(ground: &Ground, name: &str) -> Self {
        let start = json!({"type": "start", "name": name, "command": QUIET});
        Self::over(ground.open("/v1/shell/ws").await, start).await
    }

    /// Joins with a token of this scope.
    async fn with(ground: &Ground, scope: &str, start: Value) -> Self {
        let token = mint(ground.daemon(), &ground.id, scope).await;
        let wire = Wire::open(ground.daemon(), &ground.id, "/v1/shell/ws", Some(&token)).await;
        Self::over(wire, start).await
    }

    async fn write(&mut self, text: &str) {
        self.wire.send(json!({"type": "stdin", "data": text})).await;
    }

    /// Reads on until this was said.
    async fn hears(&mut self, text: &str) {
        while !self.output.contains(text) {
            self.until("stdout").await;
        }
    }

    /// Reads up to a frame of this kind. Checks that no byte is missing or there twice.
    async fn until(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.wire.next().await.unwrap();
            if frame["type"] == "stdout" {
                assert_eq!(frame["offset"], self.end(), "{frame}");
                self.output.push_str(frame["data"].as_str().unwrap());
            }
            if frame["type"] == kind {
                return frame;
            }
        }
    }

    fn end(&self) -> u64 {
        self.from + u64::try_from(self.output.len()).unwrap()
    }

    /// Returns what the screen showed, without what is not text.
    fn shown(&self) -> String {
        self.screen.as_ref().unwrap()["data"].as_str().unwrap().to_owned()
    }
}

async fn open(ground: &Ground, path: &str) -> Wire {
    Wire::open(ground.daemon(), &ground.id, path, None).await
}

fn auth(token: &str) -> Value {
    json!({"type": "auth", "token": token})
}

#[tokio::test]
async fn the_flow_of_the_token_exchange_works_as_it_is_written() {
    let ground = Ground::new().await;
    let mut wire = open(&ground, "/ws").await;
    wire.send(auth(&ground.token)).await;
    let let_in = wire.next().await.unwrap();
    assert_eq!(let_in["type"], "auth_ok");
    assert!(!let_in["session_id"].as_str().unwrap().is_empty());
    wire.send(json!({"type": "stdin", "data": "echo $((6*7)) $TERM; tty; stty size\n"})).await;
    let ready = wire.until("ready").await;
    assert_eq!((&ready["name"], &ready["can_write"]), (&json!("default"), &json!(true)));
    assert_eq!((&ready["rows"], &ready["cols"]), (&json!(24), &json!(80)));
    // A client of that protocol knows no other frame with output.
    let mut said = String::new();
    while !said.contains("24 80") {
        said.push_str(wire.until("stdout").await["data"].as_str().unwrap());
    }
    assert!(said.contains("42 xterm-256color") && said.contains("/dev/pts/"), "{said:?}");
    // So a client that comes back is shown the screen as output.
    let mut back = open(&ground, "/ws").await;
    back.send(auth(&ground.token)).await;
    back.send(json!({"type": "stdin", "data": ""})).await;
    let first = loop {
        let frame = back.next().await.unwrap();
        assert_ne!(frame["type"], "screen");
        if frame["type"] == "stdout" {
            break frame["data"].as_str().unwrap().to_owned();
        }
    };
    assert!(first.starts_with("\x1bc") && first.contains("42 xterm-256color"), "{first:?}");
    drop(back);
    // Whoever comes next and names none joins the same one, with a size or without.
    let mut other = ground.open("/v1/shell/ws").await;
    other.send(json!({"type": "resize", "rows": 30, "cols": 90})).await;
    assert_eq!(other.until("ready").await["exec_id"], ready["exec_id"]);
    let resized = wire.until("resize").await;
    assert_eq!((&resized["rows"], &resized["cols"]), (&json!(30), &json!(90)));
    other.send(json!({"type": "stdin", "data": "exit 3\n"})).await;
    for wire in [&mut wire, &mut other] {
        let exit = wire.until("exit").await;
        assert_eq!((&exit["exit_code"], &exit["reason"]), (&json!(3), &json!("exited")));
        assert_eq!(wire.closed().await, Some(1000));
    }
    // Its name is free again.
    let again = Joined::new(&ground, "default").await;
    assert_ne!(again.ready["exec_id"], ready["exec_id"]);
}

#[tokio::test]
async fn whoever_joins_late_is_shown_the_screen_and_then_every_byte() {
    let ground = Ground::new().await;
    let mut first = Joined::new(&ground, "work").await;
    assert_eq!(first.ready["name"], "work");
    let draw = "stty -echo; printf '\\033[2J\\033[3;5Hdr''awn\\033[31m'\n";
    first.write(draw).await;
    first.hears("drawn").await;
    let mut late = Joined::new(&ground, "work").await;
    assert_eq!(late.ready["exec_id"], first.ready["exec_id"]);
    assert_eq!(late.screen.as_ref().unwrap()["offset"], first.end());
    let shown = late.shown();
    assert!(shown.starts_with("\x1bc") && shown.contains("drawn"), "{shown:?}");
    assert!(shown.ends_with("\x1b[3;10H\x1b[0;31m"), "{shown:?}");
    late.write("echo mo''re\n").await;
    first.hears("more").await;
    late.hears("more").await;
    assert_eq!(first.end(), late.end());
    // The same in the other forms.
    let start = |encoding: &str| json!({"type": "start", "name": "work", "encoding": encoding});
    let mut wire = ground.open("/v1/shell/ws").await;
    wire.send(start("base64")).await;
    let screen = wire.until("screen").await;
    let text = BASE64_STANDARD.decode(screen["data"].as_str().unwrap()).unwrap();
    assert_eq!((&screen["encoding"], &screen["offset"]), (&json!("base64"), &json!(first.end())));
    let mut wire = ground.open("/v1/shell/ws").await;
    wire.send(start("binary")).await;
    wire.until("ready").await;
    let binary: Vec<u8> =
        serde_json::from_value(wire.next().await.unwrap()["binary"].clone()).unwrap();
    let (head, same) = binary.split_at(9);
    assert_eq!((head[0], u64::from_be_bytes(head[1..].try_into().unwrap())), (3, first.end()));
    assert_eq!(same, text);
}

#[tokio::test]
async fn f40_whoever_was_cut_off_goes_on_at_its_byte() {
    let ground = Ground::new().await;
    let mut first = Joined::new(&ground, "work").await;
    // Without a word, in the middle of everything.
    let script = "stty -echo; for i in $(seq 1 2000); do echo line $i; done; read x; echo al''l\n";
    first.write(script).await;
    first.hears("line 3\r\n").await;
    let (exec, end, begun) = (first.ready["exec_id"].clone(), first.end(), first.output.clone());
    drop(first);
    let start = json!({"type": "start", "exec_id": exec, "stdout_offset": end});
    let mut again = Joined::over(ground.open("/v1/shell/ws").await, start.clone()).await;
    again.from = end;
    again.write("\n").await;
    again.hears("all").await;
    let whole = begun + &again.output;
    let expected: String = (1..=2000).map(|i| format!("line {i}\r\n")).collect();
    assert!(whole.contains(&expected), "{whole:?}");
    // By its name as well; and nobody goes on where nothing was written yet.
    let start = json!({"type": "start", "name": "work", "stdout_offset": 0});
    let mut all = Joined::over(ground.open("/ws").await, start).await;
    all.hears("all").await;
    assert!(all.output.contains(&expected));
    let mut beyond = ground.open("/v1/shell/ws").await;
    beyond.send(json!({"type": "start", "exec_id": exec, "stdout_offset": 1_u64 << 40})).await;
    assert_eq!(beyond.until("error").await["code"], "INVALID_REQUEST");
    assert_eq!(beyond.closed().await, Some(4400));
}

#[tokio::test]
async fn after_bytes_that_are_gone_the_screen_is_shown_anew() {
    let ground = Ground::new().await;
    let mut first = Joined::new(&ground, "work").await;
    first.write("stty -echo; head -c 70000000 /dev/zero | tr '\\0' a; echo; echo en''d\n").await;
    let screen = async {
        loop {
            let late = Joined::new(&ground, "work").await;
            if late.shown().contains("end") {
                return late.screen.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let screen = timeout(3 * PATIENCE, screen).await.unwrap();
    assert_eq!(screen["lost"], Value::Null);
    assert!(screen["offset"].as_u64().unwrap() > 70_000_000, "{screen}");
    let mut wire = ground.open("/v1/shell/ws").await;
    wire.send(json!({"type": "start", "name": "work", "stdout_offset": 5})).await;
    let gap = wire.until("gap").await;
    assert_eq!((&gap["stream"], &gap["offset"]), (&json!("stdout"), &json!(5)));
    assert_eq!(wire.next().await.unwrap(), screen);
}

#[tokio::test]
async fn n08_who_may_only_watch_is_sent_away_when_it_writes_and_nothing_has_changed() {
    let ground = Ground::new().await;
    let mut first = Joined::new(&ground, "work").await;
    first.write("stty -echo; trap \"echo h''it\" INT TERM WINCH; echo rea''dy\n").await;
    first.hears("ready").await;
    let start = json!({"type": "start", "name": "work"});
    let attempts = [
        json!({"type": "stdin", "data": "echo written\n"}),
        json!({"type": "stdin", "eof": true}),
        json!({"type": "resize", "rows": 3, "cols": 3}),
        json!({"type": "signal", "signal": "INT"}),
    ];
    let watcher = Joined::with(&ground, "shell:ro", start.clone()).await;
    assert_eq!(watcher.ready["can_write"], false);
    for attempt in attempts {
        let mut bold = Joined::with(&ground, "shell:ro", start.clone()).await;
        assert_eq!(bold.screen, watcher.screen);
        bold.wire.send(attempt.clone()).await;
        assert_eq!(bold.until("error").await["code"], "CAPABILITY_DENIED", "{attempt}");
        assert_eq!(bold.wire.closed().await, Some(4403), "{attempt}");
        // Nor without `start`, nor in a binary message.
        let token = mint(ground.daemon(), &ground.id, "shell:ro").await;
        let mut wire = Wire::open(ground.daemon(), &ground.id, "/ws", Some(&token)).await;
        wire.0.send(Message::binary(b"echo written\n".to_vec())).await.unwrap();
        assert_eq!(wire.closed().await, Some(4403));
        if attempt["type"] != "signal" {
            let mut wire = Wire::open(ground.daemon(), &ground.id, "/ws", Some(&token)).await;
            wire.send(attempt).await;
            assert_eq!(wire.closed().await, Some(4403));
        }
    }
    let mut binary = Joined::with(&ground, "shell:ro", start.clone()).await;
    binary.wire.0.send(Message::binary(b"echo written\n".to_vec())).await.unwrap();
    assert_eq!(binary.wire.closed().await, Some(4403));
    let after = Joined::with(&ground, "shell:ro", start).await;
    assert_eq!(after.screen, watcher.screen);
    // Those who may are not disturbed.
    first.write("echo go''es on\n").await;
    first.hears("goes on").await;
    assert!(!first.output.contains("hit") && !first.output.contains("written"));
}

#[tokio::test]
async fn what_was_written_is_told_under_the_name_of_who_did_and_not_what_it_was() {
    let (lines, _guard) = listen();
    let ground = Ground::new().await;
    let mut first = Joined::new(&ground, "work").await;
    first.write("stty -echo; : canary\n").await;
    first.wire.0.send(Message::binary(b"echo do''ne\n".to_vec())).await.unwrap();
    first.hears("done").await;
    let exec = first.ready["exec_id"].as_str().unwrap().to_owned();
    first.wire.send(json!({"type": "close"})).await;
    assert_eq!(first.wire.closed().await, Some(1000));
    let told = || {
        lines
            .text()
            .lines()
            .find(|line| line.contains("INFO") && line.contains(" input "))
            .map(str::to_owned)
    };
    let told = timeout(PATIENCE, async {
        loop {
            if let Some(told) = told() {
                return told;
            }
            tokio::task::yield_now().await;
        }
    });
    let told = told.await.unwrap();
    assert!(told.contains(&exec) && told.contains("bytes=33"), "{told}");
    assert!(told.contains("kind=\"human\"") && told.contains("credential=\"tok_"), "{told}");
    assert!(!lines.text().contains("canary"));
}

/// Reads whatever comes until nothing has for a while.
async fn drain(wire: &mut Wire) -> usize {
    let mut count = 0;
    while let Ok(Some(Ok(_))) = timeout(Duration::from_millis(200), wire.0.next()).await {
        count += 1;
    }
    count
}

#[tokio::test]
async fn what_a_client_writes_last_is_written_although_it_leaves_at_once() {
    let ground = Ground::new().await;
    let mut watcher = Joined::new(&ground, "work").await;
    let mut leaver = Joined::new(&ground, "work").await;
    leaver.write("echo la''st words\n").await;
    leaver.wire.send(json!({"type": "close"})).await;
    watcher.hears("last words").await;
}
