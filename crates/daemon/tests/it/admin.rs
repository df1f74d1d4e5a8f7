//! `/v1/admin/keys`, health and metrics.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Answer, Daemon};

async fn ask(daemon: &Daemon, key: &str, method: &str, path: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    daemon.ask(method, path, &headers, body).await
}

#[tokio::test]
async fn keys_are_created_listed_and_revoked() {
    let daemon = Daemon::start().await;
    let key = daemon.key.clone();
    let body = r#"{"name":"ci","role":"user","actor":{"type":"agent","id":"robot"},"new":1}"#;
    let created = ask(&daemon, &key, "POST", "/v1/admin/keys", body).await;
    assert_eq!(created.status, 201);
    let created = created.json();
    let secret = created["secret"].as_str().unwrap().to_owned();
    let id = created["key"]["id"].as_str().unwrap().to_owned();
    let expected = json!({
        "id": id, "name": "ci", "tenant": "default", "role": "user",
        "actor": {"type": "agent", "id": "robot"},
        "last_four": secret.chars().skip(secret.len() - 4).collect::<String>(), "created_at": created["key"]["created_at"],
        "revoked_at": null,
    });
    assert_eq!(created["key"], expected);
    let listed = ask(&daemon, &key, "GET", "/v1/admin/keys", "").await;
    assert!(!listed.body.contains(&secret));
    assert_eq!(listed.json()["keys"][1], expected);
    // A key that is no admin's may not manage keys.
    let refused = ask(&daemon, &secret, "GET", "/v1/admin/keys", "").await;
    assert_eq!(refused.problem(), (403, "FORBIDDEN".into()));
    let path = format!("/v1/admin/keys/{id}");
    for _ in 0..2 {
        assert_eq!(ask(&daemon, &key, "DELETE", &path, "").await.status, 204);
    }
    let refused = ask(&daemon, &secret, "GET", "/v1/admin/keys", "").await;
    assert_eq!(refused.problem(), (401, "UNAUTHENTICATED".into()));
    let unknown = ask(&daemon, &key, "DELETE", "/v1/admin/keys/key_0", "").await;
    assert_eq!(unknown.problem(), (404, "NOT_FOUND".into()));
}

/// Nobody gets at another tenant by making a key for it.
#[tokio::test]
async fn admins_of_a_tenant_manage_its_keys_alone() {
    let daemon = Daemon::start().await;
    let own = daemon.key.clone();
    let create =
        async |key: &str, body: &str| ask(&daemon, key, "POST", "/v1/admin/keys", body).await;
    let made =
        create(&own, r#"{"name":"theirs","tenant":"elsewhere","role":"admin"}"#).await.json();
    let theirs = made["secret"].as_str().unwrap();
    let ours = create(&own, r#"{"name":"ours"}"#).await.json();
    let another = create(theirs, r#"{"name":"another"}"#).await.json();
    assert_eq!(another["key"]["tenant"], "elsewhere");
    for tenant in ["default", "others"] {
        let body = json!({"name": "eve", "tenant": tenant, "role": "admin"}).to_string();
        assert_eq!(create(theirs, &body).await.problem(), (403, "FORBIDDEN".into()), "{tenant}");
    }
    let listed = ask(&daemon, theirs, "GET", "/v1/admin/keys", "").await.json();
    assert_eq!(listed["keys"], json!([made["key"], another["key"]]));
    let revoke = async |key: &str, of: &Value| {
        let path = format!("/v1/admin/keys/{}", of["key"]["id"].as_str().unwrap());
        ask(&daemon, key, "DELETE", &path, "").await
    };
    assert_eq!(revoke(theirs, &ours).await.problem(), (404, "NOT_FOUND".into()));
    assert_eq!(create(ours["secret"].as_str().unwrap(), "{}").await.status, 403);
    assert_eq!(revoke(theirs, &another).await.status, 204);
    assert_eq!(revoke(&own, &made).await.status, 204);
}

#[tokio::test]
async fn keys_that_the_store_cannot_keep_are_refused_until_later() {
    let daemon = Daemon::start().await;
    let key = daemon.key.clone();
    let other = ask(&daemon, &key, "POST", "/v1/admin/keys", r#"{"name":"ci"}"#).await.json();
    // What is written to a file that nobody finds again is not kept.
    let store = daemon.store();
    fs::rename(&store, store.with_extension("moved")).unwrap();
    fs::write(&store, b"").unwrap();
    let revoked = format!("/v1/admin/keys/{}", other["key"]["id"].as_str().unwrap());
    let rows = [("POST", "/v1/admin/keys", r#"{"name":"late"}"#), ("DELETE", &revoked, "")];
    for (method, path, body) in rows {
        let refused = ask(&daemon, &key, method, path, body).await;
        assert_eq!(refused.problem(), (503, "UNAVAILABLE".into()), "{method}");
        assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
        assert!(refused.json()["error"]["retryable"].as_bool().unwrap());
    }
    // Keys that were there are as valid as before.
    let secret = other["secret"].as_str().unwrap();
    let known = ask(&daemon, secret, "GET", "/v1/admin/keys", "").await;
    assert_eq!(known.problem(), (403, "FORBIDDEN".into()));
    assert_eq!(ask(&daemon, &key, "GET", "/v1/admin/keys", "").await.status, 200);
}

#[tokio::test]
async fn bad_requests_for_keys_are_refused() {
    let daemon = Daemon::start().await;
    let key = daemon.key.clone();
    let long = format!("{{\"name\":\"{}\"}}", "x".repeat(129));
    for body in [
        "",
        "null",
        "[]",
        "{}",
        "{\"name\":7}",
        "{\"name\":\"\"}",
        &long,
        "{\"name\":\"a\\nb\"}",
        "{\"name\":\"\\u202enimda\"}",
        "{\"name\":\"a\\u2028b\"}",
        "{\"name\":\"a\",\"tenant\":\"t\\u200b\"}",
        "{\"name\":\"a\",\"actor\":{\"type\":\"agent\",\"id\":\"\\u2066x\"}}",
        "{\"name\":\"a\",\"role\":\"root\"}",
        "{\"name\":\"a\"} x",
    ] {
        let answer = ask(&daemon, &key, "POST", "/v1/admin/keys", body).await;
        assert_eq!(answer.problem(), (400, "INVALID_REQUEST".into()), "{body}");
    }
    let large = format!("{{\"name\":\"a\",\"x\":\"{}\"}}", "x".repeat(65 << 10));
    let answer = ask(&daemon, &key, "POST", "/v1/admin/keys", &large).await;
    assert_eq!(answer.problem(), (413, "PAYLOAD_TOO_LARGE".into()));
    let bearer = format!("Bearer {key}");
    let plain = [("Authorization", bearer.as_str()), ("Content-Type", "text/plain")];
    let answer = daemon.ask("POST", "/v1/admin/keys", &plain, "{\"name\":\"a\"}").await;
    assert_eq!(answer.problem(), (415, "UNSUPPORTED_MEDIA_TYPE".into()));
    let answer = daemon.ask("GET", "/v1/admin/keys", &[], "").await;
    assert_eq!(answer.problem(), (401, "UNAUTHENTICATED".into()));
}

#[tokio::test]
async fn health_and_metrics_are_answered() {
    let daemon = Daemon::start().await;
    let rows: [(&str, Value); 2] =
        [("/healthz", json!({"status": "ok"})), ("/readyz", json!({"status": "ready"}))];
    for (path, expected) in rows {
        let answer = daemon.ask("GET", path, &[], "").await;
        assert_eq!((answer.status, answer.json()), (200, expected));
    }
    let mut peer = crate::peer::Peer::connect(&daemon).await;
    peer.run("a", "start\nout hello").await;
    peer.until_end("a").await;
    let metrics = daemon.ask("GET", "/metrics", &[], "").await;
    assert_eq!(metrics.status, 200);
    for line in [
        "ringfence_executions_total{status=\"completed\"}",
        "ringfence_executions_running 3",
        "ringfence_execution_seconds_bucket",
        "ringfence_connections ",
    ] {
        assert!(metrics.body.contains(line), "{line} is not in {}", metrics.body);
    }
}
