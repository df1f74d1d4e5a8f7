//! H17: which host a request is for, at every surface.

use serde_json::json;
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::{
    caller::Connection,
    support::{Answer, Daemon, raw, settings},
};

/// Asks with these lines before all others.
async fn ask(daemon: &Daemon, method: &str, path: &str, hosts: &str) -> Answer {
    let text = format!(
        "{method} {path} HTTP/1.1\r\n{hosts}X-Api-Key: {}\r\nContent-Length: 0\r\n\
         Connection: close\r\n\r\n",
        daemon.key
    );
    raw(daemon.address, text.as_bytes()).await
}

#[tokio::test]
async fn h17_a_request_names_this_server_and_no_other() {
    let mut settings = settings();
    settings.public_url = Some("https://sandboxes.example.com".to_owned());
    settings.allowed_hosts = vec!["tunnel:9000".to_owned()];
    let daemon = Daemon::start_with(settings).await;
    let port = daemon.address.port();
    let good = [
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!("[::1]:{port}"),
        "LocalHost".to_owned(),
        "sandboxes.example.com".to_owned(),
        "sandboxes.example.com:443".to_owned(),
        "tunnel:9000".to_owned(),
    ];
    for host in good {
        let answer = ask(&daemon, "GET", "/healthz", &format!("Host: {host}\r\n")).await;
        assert_eq!(answer.status, 200, "{host}: {}", answer.body);
    }
    let own = format!("Host: {}\r\n", daemon.address);
    let unclear =
        [String::new(), "Host:\r\n".into(), format!("{own}{own}"), "Host: a b\r\n".into()];
    for hosts in unclear.iter().chain([&format!("{own}Host: evil.example\r\n")]) {
        let answer = ask(&daemon, "GET", "/healthz", hosts).await;
        assert_eq!(answer.problem(), (400, "INVALID_REQUEST".into()), "{hosts}");
    }
    let others = ["evil.example", "192.0.2.1", "[2001:db8::1]", "0.0.0.0", "x.localhost", "127.1"];
    let ports = [format!("127.0.0.1:{}", port ^ 1), format!("localhost:{}", port ^ 1)];
    for host in others.into_iter().chain(ports.iter().map(String::as_str)) {
        let answer = ask(&daemon, "GET", "/healthz", &format!("Host: {host}\r\n")).await;
        assert_eq!(answer.problem(), (421, "MISDIRECTED_REQUEST".into()), "{host}");
        // It says what to write in the settings.
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(&format!("allowed_hosts = [\"{host}\"]")), "{message}");
    }
    let long = format!("{}.evil.example:81", "Evil".repeat(500));
    let answer = ask(&daemon, "GET", "/healthz", &format!("Host: {long}\r\n")).await;
    assert_eq!(answer.problem(), (421, "MISDIRECTED_REQUEST".into()));
    assert!(answer.body.contains("evilevil") && answer.body.len() < 1000, "{}", answer.body);
    // What is sent as to a proxy names its host twice.
    let answer = ask(&daemon, "GET", "http://evil.example/healthz", &own).await;
    assert_eq!(answer.problem(), (400, "INVALID_REQUEST".into()));
    daemon.stop().await;
}

/// Each surface refuses in its own shape, whatever else is wrong, and nothing is done.
#[tokio::test]
async fn h17_every_route_refuses_what_is_for_another_host() {
    let daemon = Daemon::start().await;
    let evil = "Host: evil.example\r\n";
    for (path, item) in daemon::openapi::document()["paths"].as_object().unwrap() {
        for (method, said) in item.as_object().unwrap() {
            // Routes of sandboxes are there where sandboxes are.
            if path.starts_with("/dp/") {
                continue;
            }
            let path = path.replace(['{', '}'], "x");
            let answer = ask(&daemon, &method.to_uppercase(), &path, evil).await;
            let status = said["responses"].get(answer.status.to_string());
            assert!(status.is_some(), "{method} {path}: {} is not documented", answer.status);
            let told = answer.json();
            if path.starts_with("/oauth/") {
                assert_eq!((answer.status, &told["error"]), (400, &json!("invalid_request")));
            } else if path.contains("/sandboxes/") && told.get("detail").is_some() {
                assert_eq!((answer.status, &told["error_type"]), (421, &json!("ValidationError")));
            } else {
                let refused = (421, "MISDIRECTED_REQUEST".into());
                assert_eq!(answer.problem(), refused, "{method} {path}");
            }
            assert!(answer.head.contains("x-request-id: req_"), "{method} {path}");
        }
    }
    let refused = ask(&daemon, "GET", "/no/such/route", evil).await;
    assert_eq!(refused.problem(), (421, "MISDIRECTED_REQUEST".into()));
    daemon.stop().await;
}

#[tokio::test]
async fn h17_the_authority_of_http2_is_the_host() {
    let daemon = Daemon::start().await;
    let rows = [("http://localhost", Code::Ok), ("http://evil.example", Code::PermissionDenied)];
    for (origin, expected) in rows {
        let connection = Connection::tcp(daemon.address, &[]).await;
        let mut client = HealthClient::with_origin(connection, origin.parse().unwrap());
        let answer = client.check(HealthCheckRequest { service: String::new() }).await;
        assert_eq!(answer.map_or_else(|status| status.code(), |_| Code::Ok), expected, "{origin}");
    }
    daemon.stop().await;
}
