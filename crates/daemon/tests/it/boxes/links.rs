//! URLs that open one port or one file.

use daemon::serve::Settings;
use serde_json::{Value, json};

use super::{ask, refusal, send};
use crate::{
    ends::rotate,
    sandboxed::Sandboxed,
    served::{PORT, Served},
    support::{self, Answer, raw},
};

const HEADER: &str = "X-Langsmith-Sandbox-Service-Token";

/// Returns the path of a URL of this server.
fn path_of(served: &Sandboxed, url: &str) -> String {
    let base = format!("http://{}", served.daemon().address);
    url.strip_prefix(&base).unwrap_or_else(|| panic!("{url}")).to_owned()
}

#[tokio::test]
async fn a_service_url_opens_one_port_to_programs_and_to_browsers() {
    let served = Served::start().await;
    let daemon = served.sandboxed.daemon();
    let path = format!("/boxes/{}/service-url", served.sandbox);
    let body =
        json!({"port": PORT, "expires_in_seconds": 300, "access": "off", "embed_origins": []});
    let given = send(daemon, "POST", &path, body).await;
    let token = given["token"].as_str().unwrap();
    let service = path_of(&served.sandboxed, given["service_url"].as_str().unwrap());
    assert_eq!(service, format!("/dp/{}/ports/{PORT}", served.sandbox));
    assert_eq!((&given["embed_url"], &given["embed_origins"]), (&json!(""), &json!([])));
    let get = async |path: &str, token: &str| daemon.ask("GET", path, &[(HEADER, token)], "").await;
    let answer = get(&format!("{service}/hello"), token).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(!answer.body.contains(token), "the server inside is not shown the token");
    // It opens nothing else, and nothing else opens it.
    let other_port = format!("/dp/{}/ports/{}/hello", served.sandbox, PORT + 1);
    for (path, token) in [
        (other_port.as_str(), token),
        (service.as_str(), "rfp1.1.x"),
        (service.as_str(), ""),
        (service.as_str(), daemon.key.as_str()),
    ] {
        assert_eq!(get(path, token).await.status, 401, "{path} {token}");
    }
    let bearer = format!("Bearer {token}");
    for path in [
        format!("{service}/hello"),
        format!("/dp/{}/v1/access", served.sandbox),
        format!("/dp/{}/download?path=x", served.sandbox),
    ] {
        let answer = daemon.ask("GET", &path, &[("Authorization", &bearer)], "").await;
        assert_eq!(answer.status, 401, "{path}: {}", answer.body);
    }
    // A browser gets a cookie of the port's own host.
    let url = given["browser_url"].as_str().unwrap().strip_prefix("http://").unwrap();
    let (host, path) = url.split_once('/').unwrap();
    let enter = async || -> Answer {
        let text = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        raw(daemon.address, text.as_bytes()).await
    };
    for _ in 0..2 {
        let entered = enter().await;
        assert_eq!(entered.status, 303, "{}", entered.body);
        assert!(entered.head.contains("set-cookie: ringfence_preview=rfp1."), "{}", entered.head);
    }
    // Another key of the sandbox ends both.
    assert_eq!(rotate(daemon, &served.sandbox).await.status, 200);
    assert_eq!(get(&service, token).await.status, 401);
    assert_eq!(enter().await.status, 401);
    served.end().await;
}

#[tokio::test]
async fn without_an_address_for_previews_a_service_url_is_for_programs_alone() {
    let public_url = Some("https://sandboxes.example".to_owned());
    let settings = Settings { public_url, ..support::settings() };
    let sandboxed = Sandboxed::start_with(None, settings).await;
    let daemon = sandboxed.daemon();
    send(daemon, "POST", "/boxes", json!({"name": "a-box", "snapshot": "host"})).await;
    let given = send(daemon, "POST", "/boxes/a-box/service-url", json!({"port": 8000})).await;
    assert_eq!(given["browser_url"], "");
    assert!(given["expires_at"].is_string() && given["token"].is_string(), "{given}");
}

#[tokio::test]
async fn a_download_url_opens_one_file_to_whoever_has_it() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let made = send(daemon, "POST", "/boxes", json!({"name": "a-box", "snapshot": "host"})).await;
    let id = made["id"].as_str().unwrap();
    let wrote =
        super::run(daemon, &made, "printf '<b>ten bytes' > 'ä b.html'; echo secret > other");
    assert_eq!(wrote.await, "");
    let link = async |more: Value| {
        let mut body = json!({"path": "ä b.html"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        send(daemon, "POST", "/boxes/a-box/download-url", body).await
    };
    let given = link(json!({})).await;
    assert_eq!(given["expires_at"], Value::Null);
    let path = path_of(&sandboxed, given["download_url"].as_str().unwrap());
    assert!(path.ends_with(given["token"].as_str().unwrap()));
    let got = daemon.ask("GET", &path, &[], "").await;
    assert_eq!((got.status, got.body.as_str()), (200, "<b>ten bytes"));
    for line in [
        "content-type: application/octet-stream\r\n",
        "content-disposition: attachment; filename=\"__ b.html\"; ",
        "content-security-policy: sandbox\r\n",
        "cache-control: private, no-store\r\n",
        "referrer-policy: no-referrer\r\n",
        "x-content-type-options: nosniff\r\n",
    ] {
        assert!(format!("{}\r\n", got.head).contains(line), "{line} in {}", got.head);
    }
    let part = daemon.ask("GET", &path, &[("Range", "bytes=3-5")], "").await;
    assert_eq!((part.status, part.body.as_str()), (206, "ten"));
    let text = format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let head = raw(daemon.address, text.as_bytes()).await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert!(head.head.contains("content-length: 12"), "{}", head.head);
    let shown = link(json!({
        "content_type": "text/html; charset=utf-8", "content_disposition": "inline",
        "expires_in_seconds": 60,
    }))
    .await;
    assert!(shown["expires_at"].is_string(), "{shown}");
    let inline = path_of(&sandboxed, shown["download_url"].as_str().unwrap());
    let got = daemon.ask("GET", &inline, &[], "").await;
    assert!(got.head.contains("content-type: text/html; charset=utf-8\r\n"), "{}", got.head);
    assert!(got.head.contains("content-disposition: inline; "), "{}", got.head);
    assert!(got.head.contains("content-security-policy: sandbox"), "{}", got.head);
    // It is good for nothing else, and nothing of it can be changed.
    let bad = (401, "Unauthenticated".to_owned());
    let told = |answer: &Answer| {
        (answer.status, answer.json()["detail"]["error"].as_str().unwrap().to_owned())
    };
    for wrong in [format!("{path}x"), path.replace("/link/", "/link/x"), format!("/dp/{id}/link/x")]
    {
        assert_eq!(told(&daemon.ask("GET", &wrong, &[], "").await), bad, "{wrong}");
    }
    let token = given["token"].as_str().unwrap();
    let bearer = format!("Bearer {token}");
    for path in [format!("/dp/{id}/download?path=other"), format!("/dp/{id}/v1/access")] {
        let answer = daemon.ask("GET", &path, &[("Authorization", &bearer)], "").await;
        assert_eq!(answer.status, 401, "{path}");
    }
    // It wakes a sandbox that sleeps, and a file that is not there is not there.
    send(daemon, "POST", "/boxes/a-box/stop", json!({})).await;
    super::until_stopped(daemon, "a-box").await;
    assert_eq!(daemon.ask("GET", &path, &[], "").await.status, 200);
    super::run(daemon, &made, "rm 'ä b.html'").await;
    assert_eq!(daemon.ask("GET", &path, &[], "").await.status, 404);
    let theirs = super::stranger(daemon).await;
    let body = json!({"path": "other"});
    let refused = ask(daemon, &theirs, "POST", "/boxes/a-box/download-url", &body).await;
    assert_eq!(refusal(&refused), (404, "NotFound: there is no sandbox of this name".to_owned()));
    let sandbox = id.parse().unwrap();
    assert_eq!(rotate(daemon, &sandbox).await.status, 200);
    assert_eq!(told(&daemon.ask("GET", &path, &[], "").await), bad);
    // The log says who gave it out, and which file was read by it.
    let headers = [("X-Api-Key", daemon.key.as_str())];
    let log = daemon.ask("GET", "/v1/audit?limit=1000", &headers, "").await;
    assert!(log.body.contains("link.mint") && log.body.contains("b.html"), "{}", log.body);
}
