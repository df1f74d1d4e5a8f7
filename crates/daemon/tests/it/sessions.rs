//! Sessions: a thread gets its sandbox, and whoever may use it a token.

mod again;
mod envelopes;
mod fleet;
mod frozen;
mod idempotency;
mod images;
mod leases;
mod lost;
mod providers;
mod races;
mod renewed;
mod rows;
mod threads;

use harness::{
    imaging::small_system,
    registry::{Fake, honest},
};
use model::actor::ActorKind;
use serde_json::{Value, json};
use store::keys::Role;

use crate::{
    sandboxed::Sandboxed,
    support::{Answer, Daemon, key},
};

pub(crate) const SESSIONS: &str = "/v1/sandbox/sessions";

/// Sends JSON with the first key.
pub(crate) async fn post(daemon: &Daemon, path: &str, body: &Value) -> Answer {
    post_as(daemon, &daemon.key, path, body).await
}

pub(crate) async fn post_as(daemon: &Daemon, key: &str, path: &str, body: &Value) -> Answer {
    let headers = [("X-Api-Key", key), ("Content-Type", "application/json")];
    daemon.ask("POST", path, &headers, &body.to_string()).await
}

/// Asks without a body, with the first key.
pub(crate) async fn ask(daemon: &Daemon, method: &str, path: &str) -> Answer {
    daemon.ask(method, path, &[("X-Api-Key", &daemon.key)], "").await
}

/// Uses a token at the data plane.
pub(crate) async fn access(daemon: &Daemon, sandbox: &str, token: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    let path = format!("/dp/{sandbox}/v1/access");
    daemon.ask("GET", &path, &[("Authorization", &bearer)], "").await
}

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer}: {value}"))
}

/// Ensures the session of a thread.
pub(crate) async fn ensure(daemon: &Daemon, thread: &str) -> Value {
    let body = json!({"thread_id": thread, "mode": "ensure", "image": "host"});
    let answer = post(daemon, SESSIONS, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

#[tokio::test]
async fn tokens_of_sessions_are_valid_for_half_an_hour_and_those_of_threads_for_a_quarter() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let seconds = async |answer: &Value| {
        let path = format!("/internal/tokens/{}", text(answer, "/token"));
        let told = ask(daemon, "GET", &path).await.json();
        told["exp"].as_i64().unwrap() - told["iat"].as_i64().unwrap()
    };
    let ensure = json!({"thread_id": "thr_1", "mode": "ensure", "image": "host"});
    let session = post(daemon, SESSIONS, &ensure).await.json();
    assert_eq!(seconds(&session).await, 1800);
    let path = format!("{SESSIONS}/{}/refresh", text(&session, "/session_id"));
    assert_eq!(seconds(&ask(daemon, "POST", &path).await.json()).await, 1800);
    let thread = "/threads/thr_1/sandbox";
    let given = post(daemon, thread, &json!({"image": "host"})).await.json();
    assert_eq!(seconds(&given).await, 900);
    let short = post(daemon, thread, &json!({"image": "host", "ttl": 300})).await.json();
    assert_eq!(seconds(&short).await, 300);
    for ttl in [299, 901, 1800] {
        let refused = post(daemon, thread, &json!({"image": "host", "ttl": ttl})).await;
        assert_eq!(refused.problem(), (400, "INVALID_REQUEST".into()), "{ttl}");
    }
    let refreshed = json!({"current_token": text(&short, "/token")});
    let refreshed = post(daemon, &format!("{thread}/refresh"), &refreshed).await.json();
    assert_eq!(seconds(&refreshed).await, 900);
}

#[tokio::test]
async fn a_thread_gets_one_sandbox_and_each_actor_a_token_of_his_own() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let ask = json!({
        "scope": {"type": "thread", "id": "thr_1"}, "mode": "ensure", "image": "host",
        "actor": {"type": "human", "id": "ada"},
        "requested_capabilities": ["fs_read", "fs_write", "shell", "exec"],
        "provider_preference": "auto",
    });
    let answer = post(daemon, SESSIONS, &ask).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.head.contains("x-request-id: req_"), "{}", answer.head);
    let human = answer.json();
    let (sandbox, session) = (text(&human, "/sandbox/id"), text(&human, "/session_id"));
    let (http, ws) = (
        format!("http://{}/dp/{sandbox}/v1", daemon.address),
        format!("ws://{}/dp/{sandbox}/v1", daemon.address),
    );
    let granted = ["fs_read", "fs_write", "shell", "exec"];
    let expected = json!({
        "session_id": session, "thread_id": "thr_1",
        "sandbox": {"id": sandbox, "provider": "local", "http_base_url": http, "ws_base_url": ws},
        "token": human["token"], "expires_at": human["expires_at"],
        "binding": {
            "id": session, "scope": {"type": "thread", "id": "thr_1"}, "sandbox_id": sandbox,
            "provider": "local", "state": "active", "generation": 1,
            "lease_expires_at": human["binding"]["lease_expires_at"],
        },
        "dataplane": {"http_base_url": http, "ws_base_url": ws},
        "credentials": {
            "token_type": "Bearer", "access_token": human["token"],
            "expires_at": human["expires_at"], "granted_capabilities": granted,
        },
        "policy": {
            "idle_timeout_seconds": 900, "hard_ttl_seconds": 28800, "lease_seconds": 3600,
        },
        "image": "host",
    });
    assert_eq!(human, expected);
    let robot = key(daemon, "default", Role::User, (ActorKind::Agent, "robot")).await;
    let plain = json!({"thread_id": "thr_1", "mode": "get"});
    let agent = post_as(daemon, &robot, SESSIONS, &plain).await.json();
    assert_eq!(
        (&agent["session_id"], &agent["sandbox"]),
        (&human["session_id"], &human["sandbox"])
    );
    assert_ne!(agent["token"], human["token"]);
    for (answer, actor, scope) in [
        (&human, json!({"type": "human", "id": "ada"}), "fs:rw process shell"),
        (&agent, json!({"type": "agent", "id": "robot"}), "fs:rw process ports"),
    ] {
        let shown = access(daemon, sandbox, text(answer, "/token")).await.json();
        assert_eq!((&shown["actor"], &shown["scope"]), (&actor, &json!(scope)));
    }
    let shown = self::ask(daemon, "GET", &format!("{SESSIONS}/{session}")).await.json();
    assert_eq!(
        (&shown["session_id"], &shown["sandbox"]),
        (&human["session_id"], &human["sandbox"])
    );
    assert_eq!(access(daemon, sandbox, text(&shown, "/token")).await.status, 200);
}

#[tokio::test]
async fn every_mode_answers_as_it_says_with_the_names_of_its_list() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let thread = |mode: &str| json!({"thread_id": "thr_1", "mode": mode, "image": "host"});
    let scope = |kind: &str, mode: &str| json!({"scope": {"type": kind, "id": "one"}, "mode": mode, "image": "host"});
    let rows = [
        (thread("get"), Err((404, "SESSION_NOT_FOUND"))),
        (thread("attach_only"), Err((404, "BINDING_NOT_FOUND"))),
        (scope("thread", "get"), Err((404, "BINDING_NOT_FOUND"))),
        (thread("create_only"), Ok(())),
        (thread("create_only"), Err((409, "BINDING_CONFLICT"))),
        (thread("ensure"), Ok(())),
        (thread("get"), Ok(())),
        (thread("attach_only"), Ok(())),
        (scope("workspace", "attach_only"), Err((404, "BINDING_NOT_FOUND"))),
        (scope("workspace", "ensure"), Ok(())),
        (scope("assistant", "ensure"), Ok(())),
        (scope("deployment", "ensure"), Ok(())),
        (scope("workspace", "create_only"), Err((409, "BINDING_CONFLICT"))),
        (
            json!({"thread_id": "thr_1", "mode": "ensure", "image": "dir:/x"}),
            Err((409, "SESSION_CONFLICT")),
        ),
        (json!({"thread_id": "thr_2", "mode": "ensure"}), Err((400, "IMAGE_REQUIRED"))),
        (json!({"thread_id": "thr_2", "mode": "get"}), Err((404, "SESSION_NOT_FOUND"))),
    ];
    for (body, expected) in rows {
        let answer = post(daemon, SESSIONS, &body).await;
        match expected {
            Ok(()) => assert_eq!(answer.status, 200, "{body}: {}", answer.body),
            Err((status, code)) => {
                assert_eq!(answer.problem(), (status, code.to_owned()), "{body}");
            }
        }
    }
    // Each scope has its own.
    let all = sandboxed.sandboxes.list(store::sandboxes::Filter {
        tenant: "default".parse().unwrap(),
        labels: std::collections::BTreeMap::default(),
        phases: store::sandboxes::Phases::Undeleted,
        after: None,
        limit: 100,
    });
    assert_eq!(all.await.unwrap().sandboxes.len(), 4);
}

/// F68, H20.
#[tokio::test]
async fn a_released_session_is_over_for_its_holders_and_its_sandbox_is_taken_back() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let first = ensure(daemon, "thr_1").await;
    let (sandbox, token) = (text(&first, "/sandbox/id"), text(&first, "/token"));
    let bearer = format!("Bearer {token}");
    let file = format!("/dp/{sandbox}/files/workspace/kept");
    let put = daemon.ask("PUT", &file, &[("Authorization", &bearer)], "work").await;
    assert!((200..300).contains(&put.status), "{}", put.body);
    let path = format!("{SESSIONS}/{}", text(&first, "/session_id"));
    assert_eq!(ask(daemon, "DELETE", &path).await.status, 204);
    assert_eq!(access(daemon, sandbox, token).await.problem(), (401, "UNAUTHENTICATED".into()));
    let not_found = (404, "SESSION_NOT_FOUND".to_owned());
    assert_eq!(ask(daemon, "DELETE", &path).await.problem(), not_found);
    assert_eq!(ask(daemon, "GET", &path).await.problem(), not_found);
    assert_eq!(ask(daemon, "POST", &format!("{path}/refresh")).await.problem(), not_found);
    let binding = (404, "BINDING_NOT_FOUND".to_owned());
    assert_eq!(ask(daemon, "POST", &format!("{path}/refresh-token")).await.problem(), binding);
    assert_eq!(ask(daemon, "POST", &format!("{path}/heartbeat")).await.problem(), binding);

    let second = ensure(daemon, "thr_1").await;
    assert_eq!(second["sandbox"], first["sandbox"]);
    assert_ne!(second["session_id"], first["session_id"]);
    assert_eq!(second["binding"]["generation"], 2);
    let stale = access(daemon, sandbox, token).await;
    assert_eq!(stale.problem(), (409, "BINDING_SUPERSEDED".into()));
    let now = &stale.json()["error"]["binding"];
    assert_eq!((&now["session_id"], &now["generation"]), (&second["session_id"], &json!(2)));
    let bearer = format!("Bearer {}", text(&second, "/token"));
    let kept = daemon.ask("GET", &file, &[("Authorization", &bearer)], "").await;
    assert_eq!((kept.status, kept.body.as_str()), (200, "work"));
}

#[tokio::test]
async fn a_token_is_renewed_and_a_heartbeat_answered() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let first = ensure(daemon, "thr_1").await;
    let (sandbox, path) =
        (text(&first, "/sandbox/id"), format!("{SESSIONS}/{}", text(&first, "/session_id")));
    let plain = ask(daemon, "POST", &format!("{path}/refresh")).await.json();
    let keys: Vec<&String> = plain.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["expires_at", "token"]);
    let full = post(daemon, &format!("{path}/refresh-token"), &json!({})).await.json();
    assert_eq!(full["credentials"]["access_token"], full["token"]);
    for answer in [&first, &plain, &full] {
        assert_eq!(access(daemon, sandbox, text(answer, "/token")).await.status, 200);
    }
    let beat = ask(daemon, "POST", &format!("{path}/heartbeat")).await.json();
    assert_eq!((&beat["binding"]["id"], &beat["policy"]), (&first["session_id"], &first["policy"]));
    assert!(text(&beat, "/binding/lease_expires_at") >= text(&first, "/binding/lease_expires_at"));
    // Whoever shows a token gets what that one had, and no more.
    let narrow = json!({"thread_id": "thr_1", "mode": "get", "requested_capabilities": ["fs:ro"]});
    let narrow = post(daemon, SESSIONS, &narrow).await.json();
    let shown = json!({"current_token": narrow["token"]});
    let again = post(daemon, &format!("{path}/refresh-token"), &shown).await.json();
    assert_eq!(again["credentials"]["granted_capabilities"], json!(["fs:ro"]));
    let other = ensure(daemon, "thr_2").await;
    let foreign = json!({"current_token": other["token"]});
    let refused = post(daemon, &format!("{path}/refresh"), &foreign).await;
    assert_eq!(refused.problem(), (401, "UNAUTHENTICATED".into()));
}

#[tokio::test]
async fn a_sandbox_that_is_gone_is_replaced_and_its_tokens_say_by_which() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let first = ensure(daemon, "thr_1").await;
    let sandbox = text(&first, "/sandbox/id");
    let killed = ask(daemon, "POST", &format!("/internal/sandboxes/{sandbox}/kill")).await;
    assert_eq!(killed.status, 202, "{}", killed.body);
    let path = format!("{SESSIONS}/{}", text(&first, "/session_id"));
    assert_eq!(ask(daemon, "GET", &path).await.problem(), (404, "SESSION_NOT_FOUND".into()));
    let second = ensure(daemon, "thr_1").await;
    assert_ne!(second["sandbox"]["id"], first["sandbox"]["id"]);
    assert_eq!(second["binding"]["generation"], 2);
    let stale = access(daemon, sandbox, text(&first, "/token")).await;
    assert_eq!(stale.problem(), (409, "BINDING_SUPERSEDED".into()));
    let now = &stale.json()["error"]["binding"];
    assert_eq!(now["sandbox_id"], second["sandbox"]["id"]);
    assert_eq!(now["http_base_url"], second["sandbox"]["http_base_url"]);
    // A stranger learns nothing.
    let forged = format!("{}x", text(&first, "/token"));
    assert_eq!(access(daemon, sandbox, &forged).await.problem(), (401, "UNAUTHENTICATED".into()));
    // Deleted behind the session's back.
    let tenant = "default".parse().unwrap();
    let id = text(&second, "/sandbox/id");
    let cause = model::life::EndCause::Requested;
    sandboxed.sandboxes.delete(&tenant, id, cause).await.unwrap();
    let path = format!("{SESSIONS}/{}", text(&second, "/session_id"));
    assert_eq!(ask(daemon, "GET", &path).await.problem(), (410, "SESSION_EXPIRED".into()));
    let third = ensure(daemon, "thr_1").await;
    assert_eq!(third["binding"]["generation"], 3);
}

/// H02, H10.
#[tokio::test]
async fn h10_a_hint_is_taken_if_it_can_be_and_tells_nothing_if_not() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let spec = || model::spec::SandboxSpec { image: "host".into(), ..Default::default() };
    let (ours, theirs) = ("default".parse().unwrap(), "elsewhere".parse().unwrap());
    let foreign = sandboxed.sandboxes.create(&theirs, None, spec()).await.unwrap().id;
    let ended = sandboxed.sandboxes.create(&ours, None, spec()).await.unwrap();
    let id = sandboxed.sandboxes.settled(ended).await.unwrap().id;
    sandboxed.delete("default", id.as_str()).await;
    let bound = ensure(daemon, "thr_0").await;
    let unknown = "sb_00000000000000000000000000";
    let long = "x".repeat(10_000);
    let hints = [
        unknown,
        foreign.as_str(),
        id.as_str(),
        text(&bound, "/sandbox/id"),
        "",
        "../x",
        "\u{202e}",
        "a\0b",
        "' OR 1=1",
        &long,
    ];
    let mut number = 0;
    for door in [Door::Sessions, Door::Threads] {
        let free = sandboxed.sandboxes.create(&ours, None, spec()).await.unwrap().id;
        number += 1;
        let first = format!("thr_{number}");
        let taken = door.hint(daemon, &first, free.as_str()).await;
        assert_eq!(door.sandbox(&taken), &json!(free.as_str()));
        assert_eq!(taken["hint_rejected"], Value::Null);
        // Whatever is wrong with it, the answer has the same fields, and a sandbox of its own.
        let mut fields = None;
        for hint in hints {
            number += 1;
            let answer = door.hint(daemon, &format!("thr_{number}"), hint).await;
            assert_eq!(answer["hint_rejected"], json!(true), "{hint:?}: {answer}");
            assert_ne!(door.sandbox(&answer), &json!(hint));
            let names: Vec<String> = answer.as_object().unwrap().keys().cloned().collect();
            assert_eq!(fields.get_or_insert_with(|| names.clone()), &names, "{hint:?}");
        }
        // The one that is there wins.
        let again = door.hint(daemon, &first, text(&bound, "/sandbox/id")).await;
        assert_eq!(door.sandbox(&again), door.sandbox(&taken));
        assert_eq!(again["hint_rejected"], json!(true));
    }
}

/// Where a thread gets its sandbox.
#[derive(Clone, Copy)]
enum Door {
    Sessions,
    Threads,
}

impl Door {
    async fn hint(self, daemon: &Daemon, thread: &str, hint: &str) -> Value {
        let answer = match self {
            Self::Sessions => {
                let body = json!({"thread_id": thread, "mode": "ensure", "image": "host", "sandbox_hint": hint});
                post(daemon, SESSIONS, &body).await
            }
            Self::Threads => {
                let body = json!({"image": "host", "sandbox_id": hint});
                post(daemon, &format!("/threads/{thread}/sandbox"), &body).await
            }
        };
        assert_eq!(answer.status, 200, "{hint:?}: {}", answer.body);
        answer.json()
    }

    fn sandbox(self, answer: &Value) -> &Value {
        match self {
            Self::Sessions => &answer["sandbox"]["id"],
            Self::Threads => &answer["sandbox_id"],
        }
    }
}

/// `ensure` answers when it is accepted, and a repeat comes to the same sandbox (H20).
#[tokio::test]
async fn a_sandbox_that_takes_longer_is_waited_for_by_asking_again() {
    let (closed, image) = slow_image();
    let (next_closed, next_image) = slow_image();
    let registries = [&image, &next_image].map(|it| it.split_once('/').unwrap().0.to_owned());
    let sandboxed = Sandboxed::start_listing(&registries).await;
    let daemon = sandboxed.daemon();
    let at_once =
        json!({"thread_id": "thr_1", "mode": "ensure", "image": image, "wait_seconds": 0});
    let starting = (423, "SANDBOX_STARTING".to_owned());
    for _ in 0..2 {
        let answer = post(daemon, SESSIONS, &at_once).await;
        assert_eq!(answer.problem(), starting);
        assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
        assert_eq!(answer.json()["error"]["retryable"], true);
    }
    let a_second =
        json!({"thread_id": "thr_1", "mode": "ensure", "image": image, "wait_seconds": 1});
    let begun = tokio::time::Instant::now();
    assert_eq!(post(daemon, SESSIONS, &a_second).await.problem(), starting);
    assert!(begun.elapsed() >= std::time::Duration::from_secs(1), "{:?}", begun.elapsed());
    let only = async || {
        let all = sandboxed.sandboxes.list(store::sandboxes::Filter {
            tenant: "default".parse().unwrap(),
            labels: std::collections::BTreeMap::default(),
            phases: store::sandboxes::Phases::Undeleted,
            after: None,
            limit: 100,
        });
        let all = all.await.unwrap().sandboxes;
        assert_eq!(all.len(), 1);
        all[0].id.to_string()
    };
    let sandbox = only().await;
    // H20: what is starting is not released, and nobody gets a token for it.
    let session = sandboxed.sessions.holder(&sandbox.parse().unwrap()).unwrap();
    let session = format!("{SESSIONS}/{}", session.id);
    let released = ask(daemon, "DELETE", &session).await;
    assert_eq!(released.problem(), starting);
    assert!(released.head.contains("retry-after: 1"), "{}", released.head);
    assert_eq!(only().await, sandbox);
    drop(closed);
    let patient =
        json!({"thread_id": "thr_1", "mode": "ensure", "image": image, "wait_seconds": 60});
    let then = post(daemon, SESSIONS, &patient).await;
    assert_eq!(then.status, 200, "{}", then.body);
    let then = then.json();
    assert_eq!((text(&then, "/sandbox/id"), only().await), (sandbox.as_str(), sandbox.clone()));
    assert_eq!(then["binding"]["generation"], 1);
    assert_eq!(then["binding"]["state"], "active");
    // A thread gives up what is starting for it.
    let at_once = json!({"image": next_image, "wait_seconds": 0});
    assert_eq!(post(daemon, "/threads/thr_2/sandbox", &at_once).await.problem(), starting);
    assert_eq!(ask(daemon, "DELETE", "/threads/thr_2/sandbox").await.status, 204);
    let gone = ask(daemon, "DELETE", "/threads/thr_2/sandbox").await;
    assert_eq!(gone.problem(), (404, "SESSION_NOT_FOUND".into()));
    drop(next_closed);
}

/// An image of which nothing comes until the first of these is dropped.
pub(crate) fn slow_image() -> (std::sync::mpsc::Sender<()>, String) {
    let (closed, open) = std::sync::mpsc::channel::<()>();
    let (built, open) = (small_system(), std::sync::Mutex::new(open));
    let registry = Fake::start(move |asked| {
        open.lock().unwrap().recv().unwrap_err();
        honest(&built, asked)
    });
    (closed, format!("{}/team/slow:latest", registry.address))
}
