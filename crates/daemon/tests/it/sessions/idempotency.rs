//! Rows F59 to F62 and H18: the key of a request.

use futures_util::future::join_all;
use model::actor::ActorKind;
use serde_json::{Value, json};
use store::keys::Role;

use super::{SESSIONS, ask, text};
use crate::{
    sandboxed::Sandboxed,
    support::{Answer, Daemon, key},
};

async fn send(daemon: &Daemon, caller: &str, name: &str, body: &Value) -> Answer {
    let headers =
        [("X-Api-Key", caller), ("Content-Type", "application/json"), ("Idempotency-Key", name)];
    daemon.ask("POST", SESSIONS, &headers, &body.to_string()).await
}

fn body(thread: &str, mode: &str) -> Value {
    json!({"thread_id": thread, "mode": mode, "image": "host"})
}

#[tokio::test]
async fn f59_f61_f62_a_key_is_one_request_of_one_caller() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let (one, name) = (daemon.key.as_str(), "5f1d");
    let first = send(daemon, one, name, &body("thr_1", "create_only")).await;
    assert_eq!(first.status, 200, "{}", first.body);
    let first = first.json();
    // The same again is the same session with a new token, although it could not be created twice.
    let again = send(daemon, one, name, &body("thr_1", "create_only")).await.json();
    assert_eq!(again["session_id"], first["session_id"]);
    assert_ne!(again["token"], first["token"]);
    let reused = (422, "IDEMPOTENCY_KEY_REUSED".to_owned());
    assert_eq!(send(daemon, one, name, &body("thr_2", "ensure")).await.problem(), reused);
    assert_eq!(send(daemon, one, name, &body("thr_2", "get")).await.problem(), reused);
    // Nothing came of those.
    let none = super::post(daemon, SESSIONS, &body("thr_2", "get")).await;
    assert_eq!(none.problem(), (404, "SESSION_NOT_FOUND".into()));
    // Others have their own keys.
    let colleague = key(daemon, "default", Role::User, (ActorKind::Human, "bob")).await;
    let stranger = key(daemon, "elsewhere", Role::User, (ActorKind::Human, "eve")).await;
    let theirs = send(daemon, &colleague, name, &body("thr_1", "ensure")).await.json();
    assert_eq!(theirs["session_id"], first["session_id"]);
    let other = send(daemon, &stranger, name, &body("thr_1", "ensure")).await.json();
    assert_ne!(other["session_id"], first["session_id"]);
    // What failed before it did anything may be tried again.
    let failed = send(daemon, one, "later", &body("thr_3", "get")).await;
    assert_eq!(failed.problem(), (404, "SESSION_NOT_FOUND".into()));
    assert_eq!(send(daemon, one, "later", &body("thr_3", "ensure")).await.status, 200);
    // A session that is over is not made again by its key.
    let path = format!("{SESSIONS}/{}", text(&first, "/session_id"));
    assert_eq!(ask(daemon, "DELETE", &path).await.status, 204);
    let replay = send(daemon, one, name, &body("thr_1", "create_only")).await;
    assert_eq!(replay.status, 404, "{}", replay.body);
}

#[tokio::test]
async fn f60_a_key_in_flight_is_told_to_come_back() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let asked = body("thr_1", "ensure");
    let answers = join_all((0..50).map(|_| send(daemon, &daemon.key, "same", &asked))).await;
    let mut sessions = Vec::new();
    for answer in answers {
        if answer.status == 200 {
            sessions.push(text(&answer.json(), "/session_id").to_owned());
            continue;
        }
        assert_eq!(answer.problem(), (409, "IDEMPOTENCY_IN_FLIGHT".into()));
        assert!(answer.head.contains("retry-after: "), "{}", answer.head);
        assert_eq!(answer.json()["error"]["retryable"], true);
    }
    sessions.dedup();
    assert_eq!(sessions.len(), 1);
}

#[tokio::test]
async fn h18_a_key_is_short_visible_and_there_once() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let (long, longer) = ("x".repeat(256), "x".repeat(5000));
    let key = ("X-Api-Key", daemon.key.as_str());
    let json = ("Content-Type", "application/json");
    let body = body("thr_1", "ensure").to_string();
    for path in [SESSIONS, "/threads/thr_1/sandbox"] {
        let send = async |names: &[&str]| {
            let names = names.iter().map(|name| ("Idempotency-Key", *name));
            let headers: Vec<_> = [key, json].into_iter().chain(names).collect();
            daemon.ask("POST", path, &headers, &body).await
        };
        let bad = ["", " ", "a b", "é", "日本", "a\tb", &long, &longer];
        for row in bad.iter().map(|name| vec![*name]).chain([
            vec!["a", "a"],
            vec!["a", "b"],
            vec!["a", ""],
        ]) {
            let answer = send(&row).await;
            assert_eq!(answer.problem(), (400, "INVALID_REQUEST".into()), "{path}: {row:?}");
        }
        let long = if path == SESSIONS { "x" } else { "y" }.repeat(255);
        for name in [long, format!("!{path}"), format!("~,;=\"{path}")] {
            let answer = send(&[&name]).await;
            assert_eq!(answer.status, 200, "{path}: {name}: {}", answer.body);
        }
    }
    // Where nothing is changed it says nothing.
    let session = super::ensure(daemon, "thr_1").await;
    let path = format!("{SESSIONS}/{}", text(&session, "/session_id"));
    for names in [vec![long.as_str()], vec![""], vec!["é"], vec!["a", "a"], vec!["a"]] {
        let names = names.iter().map(|name| ("Idempotency-Key", *name));
        let headers: Vec<_> = [key].into_iter().chain(names).collect();
        for path in [path.as_str(), "/v2/sandboxes/boxes", "/v1/audit"] {
            assert_eq!(daemon.ask("GET", path, &headers, "").await.status, 200, "{path}");
        }
    }
}
