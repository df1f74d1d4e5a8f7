//! Rows F36, F38, F41 to F44 for clients that watch a command in a sandbox: they do not read, vanish, are
//! cut off anywhere, send their bytes in any pieces, and come in crowds.

use std::time::Duration;

use futures_util::{StreamExt as _, future::join_all};
use model::{event::Sequence, exec::ExecEnd, ids::ExecId};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, timeout},
};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    exec::{Ground, Wire},
    framing::{CLOSE, CONTINUATION, FIN, TEXT, frame, read},
    support::{PATIENCE, hasty, settings},
};

const PATH: &str = "/v1/exec/ws";

/// What is on its way to a client that does not read: the sockets' buffers, and our own bound.
const UNDERWAY: usize = 16 << 20;

impl Ground {
    /// Waits until a command has ended, without watching it.
    async fn ended(&self, exec: &str) -> ExecEnd {
        let (all, tenant) = (&self.sandboxed.sandboxes, "default".parse().unwrap());
        let exec: ExecId = exec.parse().unwrap();
        let mut events = all.events(&tenant, self.id.as_str(), Sequence::ZERO).await.unwrap();
        loop {
            let found = all.exec(&tenant, &exec).await.unwrap().exec;
            if let model::exec::ExecState::Ended(end) = found.life.state {
                return end;
            }
            timeout(PATIENCE, events.next()).await.expect("no event in time").unwrap();
        }
    }

    /// Waits until the server has seen off every WebSocket.
    async fn until_nobody_is_connected(&self) {
        let nobody = async {
            let ask = || self.daemon().ask("GET", "/metrics", &[], "");
            while !ask().await.body.contains("\nringfence_connections 0\n") {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, nobody).await.expect("somebody is connected");
    }

    async fn show(&self, exec: &str) -> Value {
        self.ask("GET", &format!("/v1/exec/{exec}"), &Value::Null).await.json()
    }
}

/// Reads everything that still comes: how many bytes of output there are, and how it was closed.
async fn drain(wire: &mut Wire) -> (usize, Option<u16>) {
    let mut bytes = 0;
    loop {
        match timeout(PATIENCE, wire.0.next()).await.expect("it is not closed") {
            Some(Ok(Message::Binary(frame))) => bytes += frame.len() - 9,
            Some(Ok(Message::Close(frame))) => {
                return (bytes, frame.map(|frame| frame.code.into()));
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return (bytes, None),
        }
    }
}

#[tokio::test]
async fn f36_a_client_that_does_not_read_is_closed_and_its_command_is_what_was_asked_for() {
    let ground = Ground::with(hasty()).await;
    let flood = |id: &str, ends: bool| {
        json!({
            "type": "start", "command": "yes", "exec_id": id, "encoding": "binary",
            "kill_on_disconnect": ends,
        })
    };
    let mut ending = ground.open(PATH).await;
    ending.send(flood("ends-with-it", true)).await;
    ending.until("ready").await;
    assert_eq!(ground.ended("ends-with-it").await, ExecEnd::Cancelled);
    let (bytes, code) = drain(&mut ending).await;
    assert!(bytes < UNDERWAY, "{bytes}");
    assert!(matches!(code, None | Some(4408)), "{code:?}");
    // Another one goes on, and whoever comes back within a minute misses nothing.
    let mut staying = ground.open(PATH).await;
    staying.send(flood("goes-on", false)).await;
    staying.until("ready").await;
    drop(ending);
    // Whoever read before it is closed would be served for ever.
    ground.until_nobody_is_connected().await;
    let (bytes, code) = drain(&mut staying).await;
    assert!(matches!(code, None | Some(4408)), "{code:?}");
    let mut back = ground.open(PATH).await;
    let from = json!({
        "type": "start", "exec_id": "goes-on", "encoding": "binary", "stdout_offset": bytes,
    });
    back.send(from).await;
    back.until("ready").await;
    let first = back.next().await.unwrap();
    let head: Vec<u8> = serde_json::from_value(first["binary"].clone()).unwrap();
    assert_eq!(head[1..9], u64::try_from(bytes).unwrap().to_be_bytes());
    assert_eq!(ground.show("goes-on").await["state"], "running");
}

#[tokio::test]
async fn f36_an_event_stream_that_nobody_reads_is_cut_off_by_the_kernel() {
    let mut settings = settings();
    settings.timing.stalled_within = Duration::from_millis(500);
    let ground = Ground::with(settings).await;
    let mut stream = TcpStream::connect(ground.daemon().address).await.unwrap();
    let body = json!({
        "command": "yes", "command_id": "unread", "kill_on_disconnect": true,
        "timeout_seconds": 100,
    });
    let (body, token, id) = (body.to_string(), &ground.token, &ground.id);
    let request = format!(
        "POST /dp/{id}/execute/stream/start HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.read_u8().await.unwrap();
    assert_eq!(ground.ended("unread").await, ExecEnd::Cancelled);
}

#[tokio::test]
async fn f38_a_client_that_gives_no_sign_of_life_is_closed_and_one_that_does_stays() {
    let mut settings = settings();
    settings.timing.ping_after = Duration::from_millis(100);
    settings.timing.pong_within = Duration::from_secs(5);
    let ground = Ground::with(settings).await;
    let start = |id: &str, ends: bool| {
        let command = "echo up; sleep 100";
        json!({"type": "start", "command": command, "exec_id": id, "kill_on_disconnect": ends})
    };
    let mut silent = ground.open(PATH).await;
    silent.send(start("vanished", true)).await;
    silent.until("stdout").await;
    let mut alive = ground.open(PATH).await;
    alive.send(start("alive", false)).await;
    alive.until("stdout").await;
    // It answers pings while it reads, and reads for longer than the other is waited for.
    let mut pings = 0;
    let staying = async {
        while let Ok(message) = timeout(PATIENCE, alive.0.next()).await {
            let message = message.unwrap().unwrap();
            assert!(matches!(message, Message::Ping(_)), "{message:?}");
            pings += 1;
        }
    };
    let end = tokio::select! {
        end = ground.ended("vanished") => end,
        () = staying => panic!("it is not asked for any sign of life"),
    };
    assert_eq!(end, ExecEnd::Cancelled);
    assert!(pings > 1, "{pings}");
    assert_eq!(silent.closed().await, Some(4408));
    alive.send(json!({"type": "ping", "id": "1"})).await;
    assert_eq!(alive.until("pong").await["id"], "1");
}

/// Whatever frame was the last that a client has seen, another connection tells the rest, and how it
/// ended can be asked for by its id.
#[tokio::test]
async fn f41_a_client_that_is_cut_off_after_any_frame_learns_the_rest() {
    let ground = Ground::new().await;
    let command = "echo one; echo two >&2; printf '\\303'; printf '\\274'; echo three; exit 5";
    for cut in 0.. {
        let id = format!("cut-{cut}");
        let (mut stdout, mut stderr, mut ended) = (Vec::new(), Vec::new(), false);
        let start =
            json!({"type": "start", "command": command, "exec_id": id, "encoding": "base64"});
        let mut wire = ground.open(PATH).await;
        wire.send(start.clone()).await;
        let mut last = None;
        for _ in 0..cut {
            let Ok(frame) = wire.next().await else { break };
            take(&frame, &mut stdout, &mut stderr);
            ended |= frame["type"] == "exit";
            last = Some(frame);
        }
        drop(wire);
        let mut back = ground.open(PATH).await;
        let mut again = start;
        again["stdout_offset"] = stdout.len().into();
        again["stderr_offset"] = stderr.len().into();
        back.send(again).await;
        let mut exit = Value::Null;
        while let Ok(frame) = back.next().await {
            take(&frame, &mut stdout, &mut stderr);
            if frame["type"] == "exit" {
                exit = frame;
            }
        }
        assert_eq!(
            (&stdout[..], &stderr[..]),
            ("one\nüthree\n".as_bytes(), &b"two\n"[..]),
            "{cut}"
        );
        assert_eq!((&exit["exit_code"], &exit["reason"]), (&json!(5), &json!("exited")), "{cut}");
        let shown = ground.show(&id).await;
        assert_eq!((&shown["state"], &shown["exit_code"]), (&json!("ended"), &json!(5)), "{cut}");
        if ended {
            assert_eq!(last.unwrap()["type"], "exit");
            return;
        }
    }
}

/// Adds what a frame carries to the stream that it is of, where it belongs.
fn take(frame: &Value, stdout: &mut Vec<u8>, stderr: &mut Vec<u8>) {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let stream = match frame["type"].as_str() {
        Some("stdout") => stdout,
        Some("stderr") => stderr,
        _ => return,
    };
    assert_eq!(frame["offset"], stream.len());
    stream.extend(BASE64_STANDARD.decode(frame["data"].as_str().unwrap()).unwrap());
}

/// What a server said: the kinds of its frames, chunks of a stream as one, and all of stdout.
async fn history(stream: &mut TcpStream) -> (Vec<String>, String, u16) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    let (mut kinds, mut stdout) = (Vec::<String>::new(), String::new());
    loop {
        let (kind, payload) = timeout(PATIENCE, read(stream)).await.unwrap();
        match kind {
            TEXT => {
                let frame: Value = serde_json::from_slice(&payload).unwrap();
                let kind = frame["type"].as_str().unwrap();
                if kind == "stdout" {
                    assert_eq!(frame["offset"], stdout.len());
                    stdout.push_str(frame["data"].as_str().unwrap());
                }
                if kinds.last().is_none_or(|last| last != kind) {
                    kinds.push(kind.to_owned());
                }
            }
            CLOSE => return (kinds, stdout, u16::from_be_bytes([payload[0], payload[1]])),
            _ => {}
        }
    }
}

#[tokio::test]
async fn f42_however_the_bytes_of_a_client_are_cut_they_mean_the_same() {
    let ground = Ground::new().await;
    let said = |id: &str| {
        let frames = [
            json!({"type": "auth", "token": ground.token}),
            json!({"type": "start", "command": "cat; echo end", "exec_id": id}),
            json!({"type": "stdin", "data": "grüße\n"}),
            json!({"type": "ping", "id": "p"}),
            json!({"type": "stdin", "eof": true}),
        ];
        frames.map(|frame| frame.to_string())
    };
    let upgrade = format!(
        "GET /dp/{}{PATH} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        ground.id,
        ground.daemon().address
    );
    let whole = |text: &String| frame(FIN | TEXT, text.as_bytes());
    // One character after the other, each in a fragment of its own, some with nothing between them.
    let fragments = |text: &String| {
        let mut bytes = frame(TEXT, b"");
        for byte in text.bytes() {
            bytes.extend(frame(CONTINUATION, &[byte]));
            bytes.extend(frame(CONTINUATION, b""));
        }
        bytes.extend(frame(FIN | CONTINUATION, b""));
        bytes
    };
    let all = |id: &str, form: &dyn Fn(&String) -> Vec<u8>| {
        let frames: Vec<u8> = said(id).iter().flat_map(form).collect();
        [upgrade.as_bytes(), &frames].concat()
    };
    // How many bytes go at once; nothing: all of them, the request for the upgrade included.
    let mut histories = Vec::new();
    for (id, bytes, at_once) in [
        ("coalesced", all("coalesced", &whole), usize::MAX),
        ("bytes", all("bytes", &whole), 1),
        ("pieces", all("pieces", &whole), 7),
        ("fragments", all("fragments", &fragments), usize::MAX),
        ("both", all("both", &fragments), 3),
    ] {
        let mut stream = TcpStream::connect(ground.daemon().address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for piece in bytes.chunks(at_once.min(bytes.len())) {
            stream.write_all(piece).await.unwrap();
            stream.flush().await.unwrap();
        }
        let mut history = history(&mut stream).await;
        // Where a pong comes among the output is chance.
        assert!(history.0.iter().any(|kind| kind == "pong"), "{id}: {history:?}");
        history.0.retain(|kind| kind != "pong");
        history.0.dedup();
        histories.push(history);
    }
    let kinds = ["auth_ok", "ready", "stdout", "exit"].map(str::to_owned).to_vec();
    for history in histories {
        assert_eq!(history, (kinds.clone(), "grüße\nend\n".to_owned(), 1000));
    }
}

#[tokio::test]
async fn f43_a_thousand_clients_that_come_back_at_once_are_told_the_same() {
    const CLIENTS: usize = 1000;
    let mut settings = settings();
    settings.timing.ping_after = Duration::from_mins(1);
    let ground = Ground::with(settings).await;
    let mut owner = ground.open(PATH).await;
    let command = "seq 1 100; read line; echo bye";
    owner.send(json!({"type": "start", "command": command, "exec_id": "crowded"})).await;
    let expected: String = (1..=100).map(|number| format!("{number}\n")).collect();
    let mut said = String::new();
    while said != expected {
        said.push_str(owner.until("stdout").await["data"].as_str().unwrap());
    }
    let come = async |from: usize| {
        let begun = Instant::now();
        let mut wire = ground.open(PATH).await;
        wire.send(json!({"type": "start", "exec_id": "crowded", "stdout_offset": from})).await;
        wire.until("ready").await;
        let within = begun.elapsed();
        let mut said = String::new();
        while from + said.len() < expected.len() {
            said.push_str(wire.until("stdout").await["data"].as_str().unwrap());
        }
        assert_eq!(Some(said.as_str()), expected.get(from..));
        (wire, within)
    };
    // Some come twice, and all of them anew from another place.
    drop(join_all((0..CLIENTS).map(|_| come(0))).await);
    let crowd = join_all((0..CLIENTS).map(|number| come(number % expected.len()))).await;
    let (wires, mut times): (Vec<_>, Vec<_>) = crowd.into_iter().unzip();
    times.sort();
    let p99 = times[CLIENTS * 99 / 100];
    // A second is for a measurement on a quiet machine.
    assert!(p99 < PATIENCE, "{p99:?}");
    owner.send(json!({"type": "stdin", "data": "\n"})).await;
    let ends = join_all(wires.into_iter().map(async |mut wire| wire.rest().await)).await;
    for (stdout, _, exit) in ends {
        assert_eq!((stdout.as_str(), &exit["exit_code"]), ("bye\n", &json!(0)));
    }
}

#[tokio::test]
async fn f44_clients_that_say_nothing_or_hardly_anything_are_sent_away_and_hold_up_nobody() {
    const CLIENTS: usize = 500;
    let ground = Ground::new().await;
    let begun = Instant::now();
    let silent = join_all((0..CLIENTS).map(async |_| {
        let mut wire = Wire::open(ground.daemon(), &ground.id, PATH, None).await;
        (wire.closed().await, begun.elapsed())
    }));
    // A body that comes a byte at a time has its time as well.
    let dripping = async {
        let mut stream = TcpStream::connect(ground.daemon().address).await.unwrap();
        let (token, id) = (&ground.token, &ground.id);
        let head = format!(
            "POST /dp/{id}/v1/exec HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let (mut reader, mut writer) = stream.into_split();
        let drip = async {
            while writer.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            std::future::pending::<()>().await;
        };
        let mut first = [0; 12];
        tokio::select! {
            () = drip => {}
            answer = timeout(PATIENCE, reader.read_exact(&mut first)) => drop(answer.unwrap()),
        }
        assert_eq!(String::from_utf8_lossy(&first), "HTTP/1.1 408");
    };
    let served = async {
        for _ in 0..20 {
            let answer = ground.ask("POST", "/v1/exec", &json!({"command": "echo served"})).await;
            assert_eq!(answer.json()["stdout"], "served\n");
        }
        begun.elapsed()
    };
    let (silent, served, ()) = tokio::join!(silent, served, dripping);
    for (code, after) in silent {
        assert_eq!(code, Some(4408));
        assert!(after >= Duration::from_secs(5), "{after:?}");
    }
    assert!(served < PATIENCE, "{served:?}");
}
