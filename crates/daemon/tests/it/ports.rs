//! `ANY /dp/{id}/ports/{port}/…` against a real server in a real sandbox.

use std::{
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use daemon::{dataplane::ports::Timing, serve::Settings};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    sandboxed::Sandboxed,
    served::{PORT, Served, serving, token},
    support::{self, PATIENCE, raw},
};

#[tokio::test]
async fn requests_of_every_method_reach_the_server_and_its_answers_come_back() {
    let served = Served::start().await;
    for (method, body) in
        [("GET", ""), ("POST", "hello"), ("PUT", "x"), ("DELETE", ""), ("FROB", "y")]
    {
        let answer = served.ask(method, "/a%2Fb/c?d=e&token=f", &[], body).await;
        assert_eq!(answer.status, 200, "{method}: {}", answer.body);
        let first = format!("{method} /a%2Fb/c?d=e&token=f HTTP/1.1\n");
        assert!(answer.body.starts_with(&first), "{}", answer.body);
        assert!(answer.body.ends_with(&format!("\n\n{body}")), "{}", answer.body);
    }
    let without_slash = served.ask("GET", "", &[], "").await;
    assert!(without_slash.body.starts_with("GET / HTTP/1.1\n"), "{}", without_slash.body);
    let head = served.ask("HEAD", "/", &[], "").await;
    assert!(head.body.is_empty() && !head.head.contains("content-length: 0"), "{head:?}");
    served.end().await;
}

#[tokio::test]
async fn the_server_learns_no_credential_and_believes_no_stranger() {
    let served = Served::start().await;
    let sent = [
        ("X-Api-Key", "secret-key"),
        ("Cookie", "session=secret"),
        ("X-Forwarded-For", "6.6.6.6"),
        ("X_Forwarded_For", "6.6.6.6"),
        ("Forwarded", "for=6.6.6.6"),
        ("X-Hop", "6.6.6.6"),
        ("Connection", "x-hop"),
        ("X-Mine", "kept"),
    ];
    let answer = served.ask("GET", "/", &sent, "").await;
    for hidden in ["secret", "6.6.6.6", "authorization", &served.token] {
        assert!(!answer.body.to_ascii_lowercase().contains(hidden), "{}", answer.body);
    }
    let prefix = format!("x-forwarded-prefix: /dp/{}/ports/{PORT}\n", served.sandbox);
    let host = format!("x-forwarded-host: {}\n", served.sandboxed.daemon().address);
    let told = ["host: localhost:8000\n", "x-forwarded-for: 127.0.0.1\n", "x-mine: kept\n"];
    for line in
        told.into_iter().chain([prefix.as_str(), host.as_str(), "x-forwarded-proto: http\n"])
    {
        assert!(answer.body.contains(line), "{line} is not in {}", answer.body);
    }
    served.end().await;
}

#[tokio::test]
async fn on_the_origin_of_the_api_an_answer_can_do_nothing() {
    let served = Served::start().await;
    let answer = served.ask("GET", "/", &[], "").await;
    for line in [
        "content-security-policy: sandbox; default-src 'none'; frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
        "x-app: yes",
        "content-type: text/html",
    ] {
        assert!(answer.head.contains(line), "{line} is not in {}", answer.head);
    }
    for name in ["set-cookie", "access-control", "service-worker", "clear-site-data", "server:"] {
        assert!(!answer.head.contains(name), "{name} is in {}", answer.head);
    }
    let moved = served.ask("GET", "/moved?/next", &[], "").await;
    let expected = format!("location: /dp/{}/ports/{PORT}/next\r\n", served.sandbox);
    assert!(moved.status == 302 && moved.head.contains(&expected), "{}", moved.head);
    let led_away = served.ask("GET", "/moved?https://evil.example/", &[], "").await;
    assert!(led_away.status == 302 && !led_away.head.contains("location:"), "{}", led_away.head);
    served.end().await;
}

#[tokio::test]
async fn where_nobody_listens_and_what_is_no_port_is_said_in_our_own_words() {
    let served = Served::start().await;
    let daemon = served.sandboxed.daemon();
    let bearer = format!("Bearer {}", served.token);
    let headers = [("Authorization", bearer.as_str())];
    // A server of the machine at the same port is none of the sandbox's.
    let outside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    outside.set_nonblocking(true).unwrap();
    let port = outside.local_addr().unwrap().port();
    let path = |port: &str| format!("/dp/{}/ports/{port}/", served.sandbox);
    let answer = daemon.ask("GET", &path(&port.to_string()), &headers, "").await;
    assert_eq!(answer.problem(), (502, "PORT_UNREACHABLE".to_owned()));
    assert!(outside.accept().is_err());
    for bad in ["0", "65536", "x", "-1", "80@host", "localhost:80"] {
        let answer = daemon.ask("GET", &path(bad), &headers, "").await;
        assert_eq!(answer.problem(), (400, "INVALID_REQUEST".to_owned()), "{bad}");
    }
    let trace = served.ask("TRACE", "/", &[], "").await;
    assert_eq!(trace.problem(), (405, "METHOD_NOT_ALLOWED".to_owned()));
    served.end().await;
}

#[tokio::test]
async fn ports_take_a_token_with_that_capability_and_no_key() {
    let served = Served::start().await;
    let daemon = served.sandboxed.daemon();
    let path = format!("/dp/{}/ports/{PORT}/", served.sandbox);
    let other = token(&served.sandboxed, &served.sandbox, "fs:rw process").await;
    let rows = [
        (None, (401, "UNAUTHENTICATED")),
        (Some(daemon.key.clone()), (401, "UNAUTHENTICATED")),
        (Some(other), (403, "CAPABILITY_DENIED")),
    ];
    for (credential, (status, code)) in rows {
        let bearer = credential.map(|it| format!("Bearer {it}"));
        let headers: Vec<_> = bearer.iter().map(|it| ("Authorization", it.as_str())).collect();
        let answer = daemon.ask("GET", &path, &headers, "").await;
        assert_eq!(answer.problem(), (status, code.to_owned()));
    }
    served.end().await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let ports = Timing { answer_within: Duration::from_secs(1), ..Timing::default() };
    let settings = Settings { ports, ..support::settings() };
    let served = Served::over(Sandboxed::start_with(None, settings).await).await;
    let answer = served.ask("GET", "/silent", &[], "").await;
    assert_eq!(answer.problem(), (504, "PORT_TIMEOUT".to_owned()));
    served.end().await;
}

#[tokio::test]
async fn a_request_that_could_be_read_in_two_ways_reaches_nobody() {
    let served = Served::start().await;
    let address = served.sandboxed.daemon().address;
    let head = format!(
        "POST /dp/{}/ports/{PORT}/ HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n",
        served.sandbox, served.token
    );
    let rows = [
        "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "Transfer-Encoding: gzip, identity\r\n\r\nabc",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    ];
    for row in rows {
        let answer = raw(address, format!("{head}{row}").as_bytes()).await;
        assert_eq!(answer.status, 400, "{row:?}: {answer:?}");
    }
    // With both, the chunks count, and the server inside is told of them alone.
    let both = "Content-Length: 99\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
                3\r\nabc\r\n0\r\nX-End: 1\r\n\r\n";
    let answer = raw(address, format!("{head}{both}").as_bytes()).await;
    if answer.status != 400 {
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body.contains("transfer-encoding: chunked\n"), "{}", answer.body);
        assert!(!answer.body.contains("content-length") && !answer.body.contains("x-end"));
        assert!(answer.body.ends_with("\n\nabc"), "{}", answer.body);
    }
    served.end().await;
}

/// Opens a WebSocket by hand; returns the head of the answer and the connection.
pub(crate) async fn upgraded(served: &Served, path: &str, more: &str) -> (String, TcpStream) {
    let address = served.sandboxed.daemon().address;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /dp/{}/ports/{PORT}{path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer {}\r\n{more}\r\n",
        served.sandbox, served.token
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap());
    }
    (String::from_utf8(head).unwrap(), stream)
}

#[tokio::test]
async fn a_websocket_goes_through_with_every_byte_as_it_is() {
    let served = Served::start().await;
    let (head, mut stream) = upgraded(&served, "/", "").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
    let sent: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let (mut reading, mut writing) = stream.split();
    let mut heard = vec![0; sent.len()];
    let (wrote, read) =
        tokio::join!(writing.write_all(&sent), timeout(PATIENCE, reading.read_exact(&mut heard)));
    wrote.unwrap();
    read.unwrap().unwrap();
    assert!(heard == sent, "bytes were changed");
    drop(stream);
    served.end().await;
}

#[tokio::test]
async fn a_websocket_that_is_not_taken_as_it_should_be_is_refused() {
    let served = Served::start().await;
    let (head, _) = upgraded(&served, "/wrong", "").await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    let (head, _) = upgraded(&served, "/", "Origin: https://evil.example\r\n").await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    served.end().await;
}

#[tokio::test]
async fn a_websocket_without_a_byte_is_not_kept_for_ever_and_none_outlives_the_server() {
    let ports = Timing { quiet: Duration::from_millis(200), ..Timing::default() };
    let settings = Settings { ports, ..support::settings() };
    let served = Served::over(Sandboxed::start_with(None, settings).await).await;
    let (head, mut stream) = upgraded(&served, "/", "").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(timeout(PATIENCE, stream.read(&mut [0; 1])).await.unwrap().unwrap_or(0), 0);
    let (_, mut stream) = upgraded(&served, "/", "").await;
    served.end().await;
    assert_eq!(timeout(PATIENCE, stream.read(&mut [0; 1])).await.unwrap().unwrap_or(0), 0);
}

/// Says this to whoever connects, whatever he asks, and hangs up.
fn saying(script: &str, port: u16) -> Vec<String> {
    let server = format!(
        "import socket\n\
         listener = socket.create_server(('127.0.0.1', {port}), backlog=64)\n\
         while True:\n\
         \x20   client, _ = listener.accept()\n\
         \x20   client.recv(65536)\n\
         \x20   try:\n\
         \x20       {script}\n\
         \x20   except OSError:\n\
         \x20       pass\n\
         \x20   client.close()\n"
    );
    ["/usr/bin/python3", "-c", &server].map(str::to_owned).to_vec()
}

#[tokio::test]
async fn hostile_servers_make_an_answer_of_ours_or_an_answer_that_breaks_off() {
    let sandboxed = Sandboxed::start().await;
    let rows = [
        (
            "[client.sendall(b'HTTP/1.1 103 Early Hints\\r\\n\\r\\n' * 1000) for _ in range(100000)]",
            Some(502),
        ),
        ("client.sendall(b'HTTP/1.1 200 OK\\r\\nX: ' + b'a' * 200000)", Some(502)),
        ("client.sendall(b'\\0' * 100000)", Some(502)),
        ("pass", Some(502)),
        (
            "client.sendall(b'HTTP/1.1 101 X\\r\\nUpgrade: x\\r\\nConnection: upgrade\\r\\n\\r\\n')",
            Some(502),
        ),
        (
            "client.sendall(b'HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\nZZ\\r\\n')",
            None,
        ),
    ];
    for (index, (script, status)) in rows.iter().enumerate() {
        let port = 9000 + u16::try_from(index).unwrap();
        let id = serving(&sandboxed, saying(script, port), port).await;
        let token = token(&sandboxed, &id, "ports").await;
        let request = format!(
            "GET /dp/{id}/ports/{port}/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        let mut stream = TcpStream::connect(sandboxed.daemon().address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        if let Some(status) = status {
            let mut first = [0; 12];
            timeout(PATIENCE, stream.read_exact(&mut first)).await.unwrap().unwrap();
            assert_eq!(first, format!("HTTP/1.1 {status}").as_bytes(), "{script}");
        } else {
            let mut answer = Vec::new();
            let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
            let text = String::from_utf8(answer).unwrap();
            assert!(!text.ends_with("0\r\n\r\n"), "it looks whole: {text}");
        }
    }
    let mut sandboxed = sandboxed;
    sandboxed.daemon.take().unwrap().stop().await;
}
