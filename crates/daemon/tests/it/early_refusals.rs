//! Requests that are refused before their body is read: the client always gets the answer, not a reset.

use std::{process::Command, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::spawn_blocking,
    time::timeout,
};

use crate::support::{Daemon, PATIENCE, raw};

/// More than sockets hold, so that a client is still sending when it is refused.
const LARGE: usize = 8 << 20;

/// Sends requests with Node's `fetch`, eight at a time; prints how often each status or error was seen.
const FETCH: &str = r#"
const [url, requests, length, attempts] = process.argv.slice(1);
const body = Buffer.alloc(Number(length), 120);
function* pieces() { for (let at = 0; at < body.length; at += 65536) yield body.subarray(at, at + 65536); }
const tally = {};
const count = (name) => { tally[name] = (tally[name] ?? 0) + 1; };
for (const { name, path, method, headers, streamed } of JSON.parse(requests)) {
  const one = async () => {
    const sent = streamed ? { body: ReadableStream.from(pieces()), duplex: "half" } : { body };
    try {
      const answer = await fetch(url + path, { method, headers, ...sent });
      const text = await answer.text();
      count(`${name} ${answer.status} ${JSON.parse(text).error.code}`);
    } catch (error) {
      count(`${name} ${error.cause?.code ?? error.cause?.message ?? error.message}`);
    }
  };
  for (let done = 0; done < Number(attempts); done += 8) {
    await Promise.all(Array.from({ length: 8 }, one));
  }
}
console.log(JSON.stringify(tally));
"#;

async fn fetch(daemon: &Daemon, requests: &Value, length: usize, attempts: usize) -> Value {
    let url = format!("http://{}", daemon.address);
    let (length, attempts) = (length.to_string(), attempts.to_string());
    let mut node = Command::new("node");
    node.args([
        "--input-type=module",
        "-e",
        FETCH,
        &url,
        &requests.to_string(),
        &length,
        &attempts,
    ]);
    let output = spawn_blocking(move || node.output().expect("node cannot be started"));
    let output = output.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_fetch_reads_every_refusal_of_a_body_that_the_server_does_not_read() {
    const ATTEMPTS: usize = 40;
    let daemon = Daemon::start().await;
    let good = json!({"x-api-key": daemon.key, "content-type": "application/json"});
    let bad = json!({"x-api-key": "rf_nobody", "content-type": "application/json"});
    let request = |name: &str, method: &str, path: &str, headers: &Value, streamed: bool| json!({"name": name, "method": method, "path": path, "headers": headers, "streamed": streamed});
    let requests = json!([
        request("wrong key", "POST", "/v1/admin/keys", &bad, false),
        request("wrong key, streamed", "POST", "/v1/admin/keys", &bad, true),
        request("too large", "POST", "/v1/admin/keys", &good, false),
        request("too large, streamed", "POST", "/v1/admin/keys", &good, true),
        request("no route", "PUT", "/nowhere", &good, false),
        request("no method", "PUT", "/v1/admin/keys", &good, true),
    ]);
    for length in [100_000, LARGE] {
        let seen = fetch(&daemon, &requests, length, ATTEMPTS).await;
        let expected = json!({
            "wrong key 401 UNAUTHENTICATED": ATTEMPTS,
            "wrong key, streamed 401 UNAUTHENTICATED": ATTEMPTS,
            "too large 413 PAYLOAD_TOO_LARGE": ATTEMPTS,
            "too large, streamed 413 PAYLOAD_TOO_LARGE": ATTEMPTS,
            "no route 404 NOT_FOUND": ATTEMPTS,
            "no method 405 METHOD_NOT_ALLOWED": ATTEMPTS,
        });
        assert_eq!(seen, expected, "{length} bytes");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_client_that_writes_all_of_its_request_first_reads_the_refusal() {
    let daemon = Daemon::start().await;
    let head = |line: &str, more: &str| {
        let address = daemon.address;
        format!("{line} HTTP/1.1\r\nHost: {address}\r\n{more}Content-Length: {LARGE}\r\n\r\n")
    };
    let rows = [
        (head("POST /v1/admin/keys", ""), 401),
        (head("POST /nowhere", ""), 404),
        // Before routing: the server has another name, and a head that cannot be read.
        (format!("POST / HTTP/1.1\r\nHost: elsewhere\r\nContent-Length: {LARGE}\r\n\r\n"), 421),
        (head("POST /v1/admin/keys", "No colon\r\n"), 400),
    ];
    for (head, status) in rows {
        let whole = [head.as_bytes(), &vec![b'x'; LARGE]].concat();
        for _ in 0..20 {
            let answer = raw(daemon.address, &whole).await;
            assert_eq!(answer.status, status, "{head}");
            assert!(answer.head.contains("\r\nconnection: close"), "{}", answer.head);
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_connection_stays_open_after_the_refusal_of_a_request_that_has_arrived() {
    let daemon = Daemon::start().await;
    let mut stream = TcpStream::connect(daemon.address).await.unwrap();
    let address = daemon.address;
    let request = format!(
        "POST /v1/admin/keys HTTP/1.1\r\nHost: {address}\r\nContent-Length: 4\r\n\r\n{{}}\r\n"
    );
    for _ in 0..3 {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"}}") {
            answer.push(timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap());
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
    }
}

#[tokio::test]
async fn a_refused_client_that_never_stops_sending_is_cut() {
    let daemon = Daemon::start().await;
    let mut stream = TcpStream::connect(daemon.address).await.unwrap();
    let head = format!(
        "POST /v1/admin/keys HTTP/1.1\r\nHost: {}\r\nContent-Length: 99999999999\r\n\r\n",
        daemon.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let endless = async {
        let (piece, mut sent) = (vec![b'x'; 64 << 10], 0_u64);
        while stream.write_all(&piece).await.is_ok() {
            sent += 64 << 10;
        }
        sent
    };
    let sent = timeout(PATIENCE, endless).await.expect("it is never cut");
    // The bound, and what the sockets hold.
    assert!(sent < 128 << 20, "{sent} bytes were taken");
    // One that sends slowly instead is cut by the time.
    let mut slow = TcpStream::connect(daemon.address).await.unwrap();
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    timeout(PATIENCE, slow.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 401"));
    let dribble = async {
        let mut every = tokio::time::interval(Duration::from_millis(50));
        while slow.write_all(b"x").await.is_ok() {
            every.tick().await;
        }
    };
    timeout(Duration::from_secs(20), dribble).await.expect("it is never cut");
}
