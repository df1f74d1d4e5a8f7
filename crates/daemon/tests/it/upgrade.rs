//! Rows W01 to W03: who may open a connection, and in which version.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::support::{Answer, Daemon, PATIENCE, raw};

/// Sends an upgrade with these headers; `KEY` stands for a valid key, `HERE` for the server.
async fn upgrade(daemon: &Daemon, path: &str, headers: &[(&str, &str)]) -> Answer {
    let headers: String = headers
        .iter()
        .map(|(name, value)| {
            let value = value.replace("KEY", &daemon.key);
            format!("{name}: {}\r\n", value.replace("HERE", &daemon.address.to_string()))
        })
        .collect();
    let text = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: keep-alive, Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n",
        daemon.address
    );
    raw(daemon.address, text.as_bytes()).await
}

const BEARER: (&str, &str) = ("Authorization", "Bearer KEY");

#[tokio::test]
async fn w01_a_valid_key_in_a_header_is_needed() {
    let daemon = Daemon::start().await;
    let refused: [(&str, &[(&str, &str)]); 12] = [
        ("/ws", &[]),
        ("/ws", &[("Authorization", "Bearer nonsense")]),
        ("/ws", &[("Authorization", "Bearer ")]),
        ("/ws", &[("Authorization", "Bearer")]),
        ("/ws", &[("Authorization", "Basic KEY")]),
        ("/ws", &[("Authorization", "KEY")]),
        ("/ws", &[BEARER, BEARER]),
        ("/ws", &[("X-Api-Key", "KEY"), ("X-Api-Key", "KEY")]),
        ("/ws", &[("X-Api-Key", "KEY"), ("Authorization", "Bearer nonsense")]),
        ("/ws?token=KEY", &[]),
        ("/ws?x=1&Access_Token=KEY", &[BEARER]),
        ("/ws?api_key=KEY", &[BEARER]),
    ];
    for (path, headers) in refused {
        let answer = upgrade(&daemon, &path.replace("KEY", &daemon.key), headers).await;
        assert_eq!(answer.problem(), (401, "UNAUTHENTICATED".into()), "{path} {headers:?}");
        assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
        assert!(!answer.body.contains(&daemon.key), "{}", answer.body);
    }
    let accepted: [&[(&str, &str)]; 4] = [
        &[BEARER],
        &[("authorization", "bEARER KEY")],
        &[("X-Api-Key", "KEY")],
        &[BEARER, ("X-Api-Key", "nonsense")],
    ];
    for headers in accepted {
        let answer = upgrade(&daemon, "/ws", headers).await;
        assert_eq!(answer.status, 101, "{headers:?}");
        let accept = "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=";
        assert!(answer.head.contains(accept), "{}", answer.head);
    }
}

#[tokio::test]
async fn w02_a_web_page_has_to_be_on_the_list() {
    let mut settings = crate::support::settings();
    settings.allowed_origins = vec!["https://console.example".into()];
    settings.public_url = Some("https://ringfence.example/base".into());
    let daemon = Daemon::start_with(settings).await;
    let port = daemon.address.port();
    let localhost = format!("http://localhost:{port}");
    let accepted =
        ["https://console.example", "https://ringfence.example", "http://HERE", localhost.as_str()];
    for origin in accepted {
        let answer = upgrade(&daemon, "/ws", &[BEARER, ("Origin", origin)]).await;
        assert_eq!(answer.status, 101, "{origin}");
    }
    let refused = [
        "null",
        "",
        "https://console.example.evil.example",
        "https://evilconsole.example",
        "http://console.example",
        "https://console.example:8443",
        "https://console.example/",
        "http://127.0.0.1",
        "http://localhost:1",
        "file://",
    ];
    for origin in refused {
        let answer = upgrade(&daemon, "/ws", &[BEARER, ("Origin", origin)]).await;
        assert_eq!(answer.problem(), (403, "FORBIDDEN".into()), "{origin}");
    }
    let twice = ("Origin", "https://console.example");
    assert_eq!(upgrade(&daemon, "/ws", &[BEARER, twice, twice]).await.status, 403);
    assert_eq!(upgrade(&daemon, "/ws", &[twice]).await.status, 401);
}

#[tokio::test]
async fn w03_the_version_is_negotiated() {
    let daemon = Daemon::start().await;
    for headers in [&[BEARER][..], &[BEARER, ("X-Protocol-Version", "1")]] {
        let answer = upgrade(&daemon, "/ws", headers).await;
        assert_eq!(answer.status, 101, "{headers:?}");
        assert!(answer.head.contains("x-protocol-version: 1"), "{}", answer.head);
    }
    let huge = format!("1{}", "0".repeat(400));
    for version in ["0", "2", "abc", "", "1.0", "01", "-1", "1, 2", huge.as_str()] {
        let answer = upgrade(&daemon, "/ws", &[BEARER, ("X-Protocol-Version", version)]).await;
        assert_eq!(answer.problem(), (426, "UNSUPPORTED_VERSION".into()), "{version}");
        assert!(answer.head.contains("x-protocol-version: 1"), "{}", answer.head);
        assert!(answer.body.contains("supported versions: 1"), "{}", answer.body);
        // RFC 9110, 15.5.22.
        let head = answer.head.to_ascii_lowercase();
        assert!(
            head.contains("upgrade: websocket") && head.contains("connection: upgrade"),
            "{head}"
        );
    }
}

#[tokio::test]
async fn what_is_no_websocket_is_told_so() {
    let daemon = Daemon::start().await;
    let bearer = format!("Bearer {}", daemon.key);
    let answer = daemon.ask("GET", "/ws", &[("Authorization", &bearer)], "").await;
    assert_eq!(answer.problem(), (400, "INVALID_REQUEST".into()));
    let answer = daemon.ask("POST", "/ws", &[("Authorization", &bearer)], "").await;
    assert_eq!(answer.problem(), (405, "METHOD_NOT_ALLOWED".into()));
    let answer = daemon.ask("GET", "/nowhere", &[], "").await;
    assert_eq!(answer.problem(), (404, "NOT_FOUND".into()));
}

#[tokio::test]
async fn f44_a_head_that_does_not_come_in_time_is_not_waited_for() {
    let mut settings = crate::support::settings();
    settings.head_deadline = std::time::Duration::from_secs(1);
    let daemon = Daemon::start_with(settings).await;
    for sent in ["", "GET /ws HTT", "GET /ws HTTP/1.1\r\nHost: localhost\r\nX-Slow: "] {
        let mut stream = tokio::net::TcpStream::connect(daemon.address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
        assert!(!rest.starts_with(b"HTTP/1.1 1"), "{sent}");
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let daemon = Daemon::start().await;
    let large = "x".repeat(64 << 10);
    assert_eq!(upgrade(&daemon, "/ws", &[BEARER, ("X-Large", &large)]).await.status, 431);
    let many = vec![("X-Many", "x"); 120];
    assert_eq!(upgrade(&daemon, "/ws", &many).await.status, 431);
}
