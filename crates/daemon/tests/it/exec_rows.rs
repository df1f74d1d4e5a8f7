//! Rows N03, N05, N07, N11, N12 and N13: what clients of `WS /v1/exec/ws` send too early, too much or too late, and what is
//! no command.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::{SinkExt as _, StreamExt as _};
use model::units::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    exec::{Ground, Wire, mint, ready},
    support::{PATIENCE, settings},
};

const PATH: &str = "/v1/exec/ws";

impl Ground {
    /// Returns a token that ends so many seconds after it was made.
    pub(crate) fn ending(&self, seconds: i64) -> String {
        let mut claims = self.sandboxed.tokens.read(&self.token).unwrap();
        claims.issued_at = Timestamp::from_millis(claims.issued_at.as_millis() - 100_000);
        // To the second, as tokens have it.
        let now: jiff::Timestamp = daemon::clock::stamp().parse().unwrap();
        claims.expires_at = Timestamp::from_millis((now.as_second() + seconds) * 1000);
        self.sandboxed.tokens.sign(&claims).unwrap().reveal().to_owned()
    }

    async fn nameless(&self) -> Wire {
        Wire::open(self.daemon(), &self.id, PATH, None).await
    }

    /// Starts a command on a connection of its own.
    async fn start(&self, start: Value) -> Wire {
        let mut wire = self.open(PATH).await;
        wire.send(start).await;
        wire.until("ready").await;
        wire
    }
}

#[tokio::test]
async fn n03_what_is_sent_before_the_answer_to_auth_is_done_after_it_or_not_at_all() {
    let ground = Ground::new().await;
    let frames = |token: &str, id: &str| {
        [
            json!({"type": "auth", "token": token}),
            json!({"type": "start", "command": "cat; echo end", "exec_id": id}),
            json!({"type": "stdin", "data": "early\n"}),
            json!({"type": "stdin", "eof": true}),
        ]
    };
    // All of it is on its way before anything was answered.
    let mut wire = ground.nameless().await;
    for frame in frames(&ground.token, "pipelined") {
        wire.0.feed(Message::text(frame.to_string())).await.unwrap();
    }
    wire.0.flush().await.unwrap();
    assert_eq!(wire.next().await.unwrap()["type"], "auth_ok");
    assert_eq!(wire.next().await.unwrap()["type"], "ready");
    let (stdout, _, exit) = wire.rest().await;
    assert_eq!((stdout.as_str(), &exit["exit_code"]), ("early\nend\n", &json!(0)));
    let mut wrong = ground.nameless().await;
    for frame in frames("a.b.c", "never-begun") {
        wrong.0.feed(Message::text(frame.to_string())).await.unwrap();
    }
    wrong.0.flush().await.unwrap();
    assert_eq!(wrong.next().await.unwrap()["type"], "error");
    assert_eq!(wrong.closed().await, Some(4401));
    let asked = ground.ask("GET", "/v1/exec/never-begun", &Value::Null).await;
    assert_eq!(asked.problem(), (404, "NOT_FOUND".into()));
    // Nothing large is kept for who has not said who it is; afterwards it is.
    let large = json!({"type": "auth", "token": "x".repeat(128 << 10)});
    let mut large_first = ground.nameless().await;
    drop(large_first.0.send(Message::text(large.to_string())).await);
    assert_eq!(large_first.closed().await, Some(1009));
    let mut later = ground.nameless().await;
    later.send(json!({"type": "auth", "token": ground.token})).await;
    let command = json!({"type": "start", "command": ["printf", "%s", "y".repeat(100 << 10)]});
    later.send(command).await;
    assert_eq!(later.rest().await.0.len(), 100 << 10);
}

#[tokio::test]
async fn n05_a_flood_of_sizes_leaves_the_last_one_and_what_is_none_is_refused() {
    const FLOOD: u32 = 20_000;
    let ground = Ground::new().await;
    let tty = json!({"rows": 24, "cols": 80});
    let command = "read line; stty size; read line; stty size";
    let mut wire = ground.start(json!({"type": "start", "command": command, "tty": tty})).await;
    for bad in [
        json!({"type": "resize", "rows": 0, "cols": 0}),
        json!({"type": "resize", "rows": -1, "cols": 80}),
        json!({"type": "resize", "rows": 24, "cols": 65536}),
        json!({"type": "resize", "rows": 1u64 << 63, "cols": 80}),
        json!({"type": "resize", "rows": 24.5, "cols": 80}),
        json!({"type": "resize", "rows": "24", "cols": "80"}),
        json!({"type": "resize", "rows": null, "cols": 80}),
        json!({"type": "resize"}),
    ] {
        wire.send(bad.clone()).await;
        assert_eq!(wire.until("error").await["code"], "INVALID_REQUEST", "{bad}");
    }
    for number in 0..FLOOD {
        let frame = json!({"type": "resize", "rows": 1 + number % 900, "cols": 1 + number % 700});
        wire.0.feed(Message::text(frame.to_string())).await.unwrap();
    }
    wire.send(json!({"type": "resize", "rows": 65535, "cols": 7})).await;
    wire.send(json!({"type": "stdin", "data": "\n"})).await;
    let mut said = String::new();
    while !said.contains("1000 7") {
        said.push_str(wire.until("stdout").await["data"].as_str().unwrap());
    }
    wire.send(json!({"type": "resize", "rows": 1, "cols": 1})).await;
    wire.send(json!({"type": "stdin", "data": "\n"})).await;
    let (stdout, _, exit) = wire.rest().await;
    assert!(stdout.contains("1 1"), "{stdout}");
    assert_eq!(exit["exit_code"], 0);
    // Without a terminal there is nothing to change, and nothing that breaks.
    let mut plain = ground.start(json!({"type": "start", "command": "cat"})).await;
    plain.send(json!({"type": "resize", "rows": 2, "cols": 2})).await;
    plain.send(json!({"type": "stdin", "data": "still read"})).await;
    plain.send(json!({"type": "stdin", "eof": true})).await;
    assert_eq!(plain.rest().await.0, "still read");
}

#[tokio::test]
async fn n07_input_has_a_size_and_an_end_that_is_said() {
    const LARGEST: usize = 1 << 20;
    let ground = Ground::new().await;
    let start = json!({"type": "start", "command": "wc -c", "exec_id": "counting"});
    let mut large = ground.start(start).await;
    let text = json!({"type": "stdin", "data": "x".repeat(LARGEST)}).to_string();
    drop(large.0.send(Message::text(text)).await);
    assert_eq!(large.closed().await, Some(1009));
    // Nothing of it came to the command, which goes on for whoever comes back.
    let mut again = ground.start(json!({"type": "start", "exec_id": "counting"})).await;
    again.0.send(Message::binary(vec![b'y'; LARGEST])).await.unwrap();
    let encoded = BASE64_STANDARD.encode([0, 255, 10]);
    again.send(json!({"type": "stdin", "data": encoded, "encoding": "base64"})).await;
    again.send(json!({"type": "stdin", "data": "!", "eof": true})).await;
    assert_eq!(again.until("error").await["code"], "INVALID_REQUEST");
    again.send(json!({"type": "stdin", "eof": true})).await;
    // After the end nothing is written any more, and saying it twice changes nothing.
    again.send(json!({"type": "stdin", "data": "late"})).await;
    again.send(json!({"type": "stdin", "eof": true})).await;
    assert_eq!(again.rest().await.0, format!("{}\n", LARGEST + 3));
    // ^D is a byte like any other in a pipe, and the end of a line's worth at a terminal.
    let mut pipe = ground.start(json!({"type": "start", "command": "od -An -c"})).await;
    pipe.send(json!({"type": "stdin", "data": "\u{4}"})).await;
    pipe.send(json!({"type": "stdin", "eof": true})).await;
    assert_eq!(pipe.rest().await.0.trim(), "004");
    let tty = json!({"rows": 24, "cols": 80});
    let mut terminal = ground.start(json!({"type": "start", "command": "cat", "tty": tty})).await;
    terminal.send(json!({"type": "stdin", "data": "line\n"})).await;
    terminal.send(json!({"type": "stdin", "data": "\u{4}"})).await;
    let (stdout, _, exit) = terminal.rest().await;
    assert!(stdout.contains("line"), "{stdout}");
    assert_eq!(exit["exit_code"], 0);
}

/// While a command does not read, its client is held up, not cut off, and nothing is lost.
#[tokio::test]
async fn n07_input_that_is_not_read_holds_up_its_client_and_nobody_else() {
    const PIECE: usize = 64 << 10;
    const PIECES: usize = 512;
    /// Pipe, our own bound, one message, and what both sockets hold.
    const MOST: usize = 20 << 20;
    let mut settings = settings();
    settings.timing.ping_after = Duration::from_millis(200);
    settings.timing.pong_within = Duration::from_secs(2);
    let ground = Ground::with(settings).await;
    let command = "trap 'go=1' USR1; echo armed; while [ -z \"$go\" ]; do sleep 0.05; done; wc -c";
    let start = json!({"type": "start", "command": command, "exec_id": "unread"});
    let mut wire = ground.start(start).await;
    wire.until("stdout").await;
    let (mut sink, mut stream) = wire.0.split();
    let sent = std::sync::atomic::AtomicUsize::new(0);
    let order = std::sync::atomic::Ordering::Relaxed;
    let sending = async {
        for _ in 0..PIECES {
            sink.send(Message::binary(vec![b'x'; PIECE])).await.unwrap();
            sent.fetch_add(PIECE, order);
        }
        let eof = json!({"type": "stdin", "eof": true});
        sink.send(Message::text(eof.to_string())).await.unwrap();
    };
    // The frames between are pings, which the reading side answers.
    let reading = async {
        let mut said = String::new();
        loop {
            match timeout(PATIENCE, stream.next()).await.unwrap() {
                Some(Ok(Message::Text(text))) => {
                    let frame: Value = serde_json::from_str(&text).unwrap();
                    match frame["type"].as_str().unwrap() {
                        "stdout" => said.push_str(frame["data"].as_str().unwrap()),
                        "exit" => return said,
                        _ => {}
                    }
                }
                Some(Ok(Message::Close(frame))) => panic!("closed: {frame:?}"),
                Some(Ok(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    let others = async {
        let mut before = None;
        // Other commands of the sandbox are served meanwhile, and are the clock.
        while before.replace(sent.load(order)) != Some(sent.load(order)) {
            let other = json!({"command": "sleep 0.5; echo other"});
            assert_eq!(ground.ask("POST", "/v1/exec", &other).await.json()["stdout"], "other\n");
        }
        // Longer than any sign of life is waited for.
        let other = json!({"command": "sleep 3; echo other"});
        assert_eq!(ground.ask("POST", "/v1/exec", &other).await.json()["stdout"], "other\n");
        let stalled = sent.load(order);
        assert!(stalled < MOST, "{stalled} bytes were taken");
        let mut second = ground.start(json!({"type": "start", "exec_id": "unread"})).await;
        second.send(json!({"type": "signal", "signal": "USR1"})).await;
        second.until("exit").await;
    };
    let ((), said, ()) = tokio::join!(sending, reading, others);
    assert_eq!(said, format!("{}\n", PIECE * PIECES));
}

#[tokio::test]
async fn n13_a_stream_is_warned_a_minute_before_its_token_ends() {
    let ground = Ground::new().await;
    let begun = Instant::now();
    let token = ground.ending(63);
    let mut wire = Wire::open(ground.daemon(), &ground.id, PATH, Some(&token)).await;
    wire.send(json!({"type": "start", "command": "echo now; cat"})).await;
    // On a slow machine the command may begin after the warning.
    let mut has_begun = false;
    let warning = loop {
        let frame = wire.next().await.unwrap();
        if frame["type"] == "token_expiring" {
            break frame;
        }
        has_begun |= frame["type"] == "stdout";
    };
    if !has_begun {
        wire.until("stdout").await;
    }
    // To the second, and never earlier.
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    let end: jiff::Timestamp = warning["expires_at"].as_str().unwrap().parse().unwrap();
    let claims = ground.sandboxed.tokens.read(&token).unwrap();
    assert_eq!(end.as_millisecond(), claims.expires_at.as_millis());
    // It is said once, and the stream goes on.
    wire.send(json!({"type": "stdin", "data": "on"})).await;
    wire.send(json!({"type": "stdin", "eof": true})).await;
    let mut kinds = Vec::new();
    while let Ok(frame) = wire.next().await {
        kinds.push(frame["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(kinds, ["stdout", "exit"]);
}

#[tokio::test]
async fn n13_a_stream_ends_with_its_token_unless_another_is_shown() {
    let ground = Ground::new().await;
    let (daemon, id) = (ground.daemon(), &ground.id);
    let elsewhere = mint(daemon, &ready(&ground.sandboxed).await, "process").await;
    let begun = Instant::now();
    let token = ground.ending(6);
    let open = || Wire::open(daemon, id, PATH, Some(&token));
    let (mut idle, mut cut, mut renewed) = (open().await, open().await, open().await);
    cut.send(json!({"type": "start", "command": "sleep 100", "exec_id": "goes-on"})).await;
    let lasts = "trap 'exit 3' TERM; echo up; while :; do sleep 0.1; done";
    renewed.send(json!({"type": "start", "command": lasts, "exec_id": "renewed"})).await;
    renewed.until("token_expiring").await;
    // Only for the same actor and the same sandbox.
    let mut other_actor = open().await;
    let body = json!({"sandbox": id.as_str(), "scope": "process", "actor": {"type": "agent", "id": "other"}});
    let bearer = format!("Bearer {}", daemon.key);
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let other = daemon.ask("POST", "/v1/admin/tokens", &headers, &body.to_string()).await.json();
    other_actor.send(json!({"type": "auth", "token": other["token"]})).await;
    assert_eq!(other_actor.closed().await, Some(4401));
    let mut other_sandbox = open().await;
    other_sandbox.send(json!({"type": "auth", "token": elsewhere})).await;
    assert_eq!(other_sandbox.closed().await, Some(4401));
    renewed.send(json!({"type": "auth", "token": ground.token})).await;
    renewed.until("auth_ok").await;
    assert_eq!(cut.closed().await, Some(4401));
    let elapsed = begun.elapsed();
    assert!(
        elapsed >= Duration::from_secs(10),
        "the five seconds after it are not over: {elapsed:?}"
    );
    // Also while nothing was started yet.
    assert_eq!(idle.closed().await, Some(4401));
    // The command is the sandbox's, not the stream's.
    let shown = ground.ask("GET", "/v1/exec/goes-on", &Value::Null).await.json();
    assert_eq!(shown["state"], "running");
    renewed.send(json!({"type": "signal", "signal": "TERM"})).await;
    assert_eq!(renewed.until("exit").await["exit_code"], 3);
    let mut late = Wire::open(daemon, id, PATH, None).await;
    late.send(json!({"type": "auth", "token": token})).await;
    assert_eq!(late.closed().await, Some(4401));
}

/// What a command may be, where it runs and as whom is looked at before anything is started.
#[tokio::test]
async fn n11_n12_what_is_no_command_place_or_user_is_refused() {
    let ground = Ground::new().await;
    let invalid = (400, "INVALID_REQUEST".to_owned());
    for asked in [
        json!({"command": ["/bin/true", "a\u{0}b"]}),
        json!({"command": "true", "cwd": "/tmp\u{0}"}),
        json!({"command": "true", "cwd": "../tmp"}),
        json!({"command": "true", "env": {"A": "\u{0}"}}),
        json!({"command": ["/bin/echo", "x".repeat(200_000)]}),
        json!({"command": "true", "user": ""}),
        json!({"command": "true", "user": "nobody-here"}),
        json!({"command": "true", "user": "root:root"}),
        json!({"command": "true", "user": "00"}),
        json!({"command": "true", "user": "+0"}),
        json!({"command": "true", "user": "-1"}),
        json!({"command": "true", "user": "65536"}),
        json!({"command": "true", "user": "4294967295"}),
        json!({"command": "true", "user": "4294967296"}),
        json!({"command": "true", "user": "18446744073709551616"}),
        json!({"command": "true", "user": "../../root"}),
        json!({"command": "true", "user": 0}),
        json!({"command": "true", "user": -1}),
    ] {
        let answer = ground.ask("POST", "/v1/exec", &asked).await;
        let shown: String = asked.to_string().chars().take(80).collect();
        assert_eq!(answer.status, 400, "{shown}: {}", answer.body);
        assert_eq!(answer.problem(), invalid, "{shown}");
    }
    let (many, long) = (vec!["x"; 1_000_000], vec!["x".repeat(100_000); 25]);
    for asked in [json!({"command": many}), json!({"command": long})] {
        let answer = ground.ask("POST", "/v1/exec", &asked).await;
        assert_eq!(answer.problem(), (413, "PAYLOAD_TOO_LARGE".into()));
    }
    // A folder that a descriptor of ours would lead to is none, whichever it is.
    let mut places: Vec<String> = (0..64).map(|fd| format!("/proc/self/fd/{fd}")).collect();
    places.extend(["/proc/1/root", "/proc/1/cwd", "/proc/self/root/proc/1/root"].map(Into::into));
    for place in places {
        let asked = json!({"command": ["/bin/readlink", "/proc/self/cwd"], "cwd": place});
        let ran = ground.ask("POST", "/v1/exec", &asked).await.json();
        let is_inside = ran["stdout"].as_str().is_some_and(|at| at.starts_with('/'));
        assert!(ran["reason"] == "not_started" || is_inside, "{place}: {ran}");
    }
}
