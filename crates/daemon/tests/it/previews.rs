//! Previews: a server in a sandbox on an origin of its own.

use std::{
    num::NonZeroU16,
    time::{Duration, SystemTime},
};

use daemon::tokens::preview::Preview;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    ends::rotate,
    served::{PORT, Served, sandbox, token},
    support::{Answer, PATIENCE, raw},
};

/// Asks the host of a preview.
async fn ask(served: &Served, host: &str, head: &str, lines: &str) -> Answer {
    let address = served.sandboxed.daemon().address;
    let text = format!("{head} HTTP/1.1\r\nHost: {host}\r\n{lines}Connection: close\r\n\r\n");
    raw(address, text.as_bytes()).await
}

/// Asks for a link; returns its host and the rest of it.
async fn link(served: &Served) -> (String, String) {
    let bearer = format!("Bearer {}", served.token);
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let path = format!("/dp/{}/v1/ports/{PORT}/preview", served.sandbox);
    let body = json!({"path": "/start?x=1"}).to_string();
    let answer = served.sandboxed.daemon().ask("POST", &path, &headers, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let url = answer.json()["url"].as_str().unwrap().to_owned();
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    (host.to_owned(), format!("/{path}"))
}

/// The cookie that opening a link for this port leaves, good for ten minutes.
fn cookie(served: &Served, port: u16) -> String {
    #[expect(clippy::disallowed_methods, reason = "a test has no other clock")]
    let until = SystemTime::now() + Duration::from_mins(10);
    let port = NonZeroU16::new(port).unwrap();
    let key = served.sandboxed.daemon().key_id.clone();
    let preview = Preview { until: until.into(), key };
    served.sandboxed.tokens.sign_preview(&served.sandbox, port, &preview)
}

#[tokio::test]
async fn a_link_is_opened_once_and_leaves_a_cookie_for_its_own_host() {
    let served = Served::start().await;
    let (host, path) = link(&served).await;
    let port = served.sandboxed.daemon().address.port();
    let label = served.sandbox.as_str().replace('_', "-");
    assert_eq!(host, format!("{PORT}--{label}.localhost:{port}"));
    let before = ask(&served, &host, "GET /", "").await;
    assert_eq!(before.problem(), (401, "UNAUTHENTICATED".to_owned()));
    let fetched = ask(&served, &host, &format!("GET {path}"), "Sec-Purpose: prefetch\r\n").await;
    assert_eq!(fetched.status, 403);
    let entered = ask(&served, &host, &format!("GET {path}"), "").await;
    assert_eq!(entered.status, 303, "{}", entered.body);
    assert!(entered.head.contains("location: /start?x=1\r\n"), "{}", entered.head);
    assert!(entered.head.contains("; path=/; max-age="), "{}", entered.head);
    assert!(entered.head.contains("; httponly; samesite=lax\r\n"), "{}", entered.head);
    let again = ask(&served, &host, &format!("GET {path}"), "").await;
    assert_eq!(again.problem(), (401, "UNAUTHENTICATED".to_owned()));
    served.end().await;
}

/// Opens a WebSocket through a preview and hears its own word; returns the connection.
async fn talking(served: &Served, host: &str, cookie: &str) -> TcpStream {
    let mut stream = TcpStream::connect(served.sandboxed.daemon().address).await.unwrap();
    let head = format!(
        "GET /socket HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n\
         Cookie: ringfence_preview={cookie}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\n") {
        said.push(timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap());
    }
    assert!(said.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&said));
    echo(&mut stream).await;
    stream
}

async fn echo(stream: &mut TcpStream) {
    stream.write_all(b"word").await.unwrap();
    let mut heard = [0; 4];
    timeout(PATIENCE, stream.read_exact(&mut heard)).await.unwrap().unwrap();
    assert_eq!(&heard, b"word");
}

#[tokio::test]
async fn another_key_of_its_sandbox_ends_a_preview_and_no_other() {
    let mut ours = Served::start().await;
    let first = ours.sandbox.clone();
    let (other_host, _) = link(&ours).await;
    let mut other_stream = talking(&ours, &other_host, &cookie(&ours, PORT)).await;
    ours.sandbox = sandbox(&ours.sandboxed).await;
    ours.token = token(&ours.sandboxed, &ours.sandbox, "ports").await;
    assert_ne!(ours.sandbox, first);
    let (host, unopened) = link(&ours).await;
    let seen = cookie(&ours, PORT);
    let mut stream = talking(&ours, &host, &seen).await;
    let rotated = rotate(ours.sandboxed.daemon(), &ours.sandbox).await;
    assert_eq!(rotated.status, 200, "{}", rotated.body);
    assert_eq!(timeout(PATIENCE, stream.read(&mut [0; 1])).await.unwrap().unwrap_or(0), 0);
    for lines in [format!("Cookie: ringfence_preview={seen}\r\n"), String::new()] {
        let refused = ask(&ours, &host, "GET /", &lines).await;
        assert_eq!(refused.problem(), (401, "UNAUTHENTICATED".to_owned()), "{lines}");
    }
    let refused = ask(&ours, &host, &format!("GET {unopened}"), "").await;
    assert_eq!(refused.problem(), (401, "UNAUTHENTICATED".to_owned()));
    talking(&ours, &host, &cookie(&ours, PORT)).await;
    echo(&mut other_stream).await;
    drop(other_stream);
    ours.end().await;
}

#[tokio::test]
async fn on_its_own_host_a_server_has_its_cookies_and_policies_and_never_ours() {
    let served = Served::start().await;
    let (host, _) = link(&served).await;
    let cookie = cookie(&served, PORT);
    let lines = format!("Cookie: a=1; ringfence_preview={cookie}\r\nAuthorization: Basic app\r\n");
    let answer = ask(&served, &host, "GET /x?y", &lines).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.body.starts_with("GET /x?y HTTP/1.1\n"), "{}", answer.body);
    for line in ["cookie: a=1\n", "authorization: Basic app\n", "host: localhost:8000\n"] {
        assert!(answer.body.contains(line), "{line} is not in {}", answer.body);
    }
    assert!(!answer.body.contains(&cookie), "{}", answer.body);
    for line in
        ["set-cookie: mine=1; path=/\r\n", "content-security-policy: default-src 'self'\r\n"]
    {
        assert!(answer.head.contains(line), "{line} is not in {}", answer.head);
    }
    assert!(!answer.head.contains("clear-site-data"), "{}", answer.head);
    served.end().await;
}

#[tokio::test]
async fn a_cookie_lets_in_at_its_own_host_and_nowhere_else() {
    let served = Served::start().await;
    let (host, _) = link(&served).await;
    let good = cookie(&served, PORT);
    let other_port = format!("Cookie: ringfence_preview={}\r\n", cookie(&served, 8001));
    let answer = ask(&served, &host, "GET /", &other_port).await;
    assert_eq!(answer.problem(), (401, "UNAUTHENTICATED".to_owned()));
    let bearer = format!("Authorization: Bearer {}\r\n", served.token);
    let answer = ask(&served, &host, "GET /", &bearer).await;
    assert_eq!(answer.problem(), (401, "UNAUTHENTICATED".to_owned()));
    // It is neither a token nor a key for the API, whose host shows no page of a sandbox.
    let api = served.sandboxed.daemon().address.to_string();
    let path = format!("GET /dp/{}/ports/{PORT}/", served.sandbox);
    for lines in [
        format!("Cookie: ringfence_preview={good}\r\n"),
        format!("Authorization: Bearer {good}\r\n"),
        format!("X-Api-Key: {good}\r\n"),
    ] {
        let answer = ask(&served, &api, &path, &lines).await;
        assert_eq!(answer.problem(), (401, "UNAUTHENTICATED".to_owned()), "{lines}");
    }
    let nobody = ask(&served, "x--y.localhost", "GET /healthz", "").await;
    assert_eq!(nobody.problem(), (404, "NOT_FOUND".to_owned()));
    served.end().await;
}

#[tokio::test]
async fn pages_of_other_origins_cannot_use_a_preview() {
    let served = Served::start().await;
    let (host, _) = link(&served).await;
    let cookie = format!("Cookie: ringfence_preview={}\r\n", cookie(&served, PORT));
    let upgrade = "Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   Sec-WebSocket-Version: 13\r\nConnection: Upgrade\r\n";
    let sibling = "Origin: http://8000--sb-other.localhost\r\n";
    let own = format!("Origin: http://{host}\r\n");
    let rows = [
        (format!("{cookie}{sibling}"), "POST /", 403),
        (format!("{cookie}Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors\r\n"), "GET /", 403),
        (format!("{cookie}{upgrade}{sibling}"), "GET /", 403),
        (format!("{cookie}{upgrade}{own}"), "GET /", 101),
        (format!("{cookie}{own}Content-Length: 0\r\n"), "POST /", 200),
    ];
    for (lines, head, status) in rows {
        let answer = ask(&served, &host, head, &lines).await;
        assert_eq!(answer.status, status, "{head} {lines}: {}", answer.body);
    }
    served.end().await;
}
