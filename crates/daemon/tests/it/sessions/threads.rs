//! The routes of threads.

use std::collections::BTreeSet;

use serde_json::json;

use super::{SESSIONS, access, ask, ensure, post, text};
use crate::sandboxed::Sandboxed;

#[tokio::test]
async fn a_thread_negotiates_refreshes_and_ends() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let path = "/threads/thr_456/sandbox";
    let body = json!({"scopes": ["fs:rw", "shell"], "ttl": 600, "image": "host"});
    let answer = post(daemon, path, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let first = answer.json();
    let (sandbox, token) = (text(&first, "/sandbox_id"), text(&first, "/token"));
    let base = format!("{}/dp/{sandbox}", daemon.address);
    let expected = json!({
        "sandbox_id": sandbox,
        "endpoints": {"http": format!("http://{base}"), "ws": format!("ws://{base}/ws")},
        "token": token, "expires_at": first["expires_at"], "scopes": ["fs:rw", "shell"],
        "refresh_before": first["refresh_before"], "session_id": first["session_id"],
        "generation": 1, "lease_expires_at": first["lease_expires_at"], "image": "host",
    });
    assert_eq!(first, expected);
    assert!(text(&first, "/refresh_before") < text(&first, "/expires_at"));
    assert_eq!(access(daemon, sandbox, token).await.status, 200);
    // Reconnecting by the name of the sandbox, and by the other door.
    let again = post(daemon, path, &json!({"sandbox_id": sandbox, "image": "host"})).await.json();
    assert_eq!(
        (&again["sandbox_id"], &again["hint_rejected"]),
        (&first["sandbox_id"], &json!(null))
    );
    let session = ensure(daemon, "thr_456").await;
    assert_eq!(session["session_id"], first["session_id"]);

    let refresh = format!("{path}/refresh");
    let shown = json!({"sandbox_id": sandbox, "current_token": token});
    let refreshed = post(daemon, &refresh, &shown).await.json();
    let keys: Vec<&String> = refreshed.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["expires_at", "refresh_before", "scopes", "token"]);
    assert_eq!(refreshed["scopes"], json!(["fs:rw", "shell"]));
    assert_eq!(access(daemon, sandbox, text(&refreshed, "/token")).await.status, 200);
    let rows = [
        (json!({}), (400, "INVALID_REQUEST")),
        (json!({"current_token": "a.b.c"}), (401, "UNAUTHENTICATED")),
        (json!({"current_token": format!("{token}x")}), (401, "UNAUTHENTICATED")),
        (json!({"current_token": token, "sandbox_id": "sb_x"}), (409, "BINDING_SUPERSEDED")),
    ];
    for (body, (status, code)) in rows {
        let answer = post(daemon, &refresh, &body).await;
        assert_eq!(answer.problem(), (status, code.to_owned()), "{body}");
    }
    let beat = ask(daemon, "POST", &format!("{path}/heartbeat")).await.json();
    assert_eq!(beat["binding"]["id"], first["session_id"]);

    assert_eq!(ask(daemon, "DELETE", path).await.status, 204);
    assert_eq!(ask(daemon, "DELETE", path).await.problem(), (404, "SESSION_NOT_FOUND".into()));
    let gone = access(daemon, sandbox, token).await;
    assert!([401, 404].contains(&gone.status), "{}", gone.body);
    let next = post(daemon, path, &json!({"image": "host"})).await.json();
    assert_ne!(next["sandbox_id"], first["sandbox_id"]);
    assert_eq!(next["generation"], 2);
}

#[tokio::test]
async fn ending_a_thread_ends_its_sandbox_and_a_thread_without_one_is_ended_too() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    for (method, path) in [("POST", "/threads/thr_1/archive"), ("DELETE", "/threads/thr_1")] {
        let session = ensure(daemon, "thr_1").await;
        for _ in 0..2 {
            let answer = ask(daemon, method, path).await;
            assert_eq!(answer.status, 204, "{}", answer.body);
        }
        let tenant = "default".parse().unwrap();
        let sandbox =
            sandboxed.sandboxes.get(&tenant, text(&session, "/sandbox/id")).await.unwrap();
        assert!(sandbox.life.end.is_some(), "{sandbox:?}");
        let path = format!("{}/{}", SESSIONS, text(&session, "/session_id"));
        assert_eq!(ask(daemon, "GET", &path).await.problem(), (404, "SESSION_NOT_FOUND".into()));
    }
    let refused = ask(daemon, "DELETE", "/threads/a%2Fb").await;
    assert_eq!(refused.problem(), (400, "INVALID_REQUEST".into()));
}

/// A field is read if a value that it cannot have is refused at its place.
#[tokio::test]
async fn the_document_lists_the_fields_that_sessions_and_threads_are_acquired_by() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let documented = |schema: &str| {
        let schemas = &daemon::openapi::document()["components"]["schemas"];
        let fields = schemas[schema]["properties"].as_object().unwrap();
        fields.keys().cloned().collect::<BTreeSet<String>>()
    };
    let routes = [
        (SESSIONS, "AcquireSession", json!({"thread_id": "thr_1", "mode": "get"})),
        ("/threads/thr_1/sandbox", "AcquireThread", json!({})),
    ];
    let candidates = &documented("AcquireSession") | &documented("AcquireThread");
    for (path, schema, body) in routes {
        let mut read = BTreeSet::new();
        for name in &candidates {
            let mut body = body.clone();
            body[name] = json!([[7]]);
            let error = post(daemon, path, &body).await.json()["error"].clone();
            let is_unknown = text(&error, "/message").contains("does not know");
            if error["pointer"] == format!("/{name}") && !is_unknown {
                read.insert(name.clone());
            }
        }
        assert_eq!(read, documented(schema), "{path}");
    }
}
