//! Rows H01 to H22: bad input at the routes of sessions.

use model::actor::ActorKind;
use serde_json::{Value, json};
use store::keys::Role;

use super::{SESSIONS, ask, ensure, post, post_as, text};
use crate::{
    sandboxed::Sandboxed,
    support::{Answer, Daemon, key, raw},
};

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn ensuring() -> String {
    json!({"thread_id": "thr_1", "mode": "ensure", "image": "host"}).to_string()
}

fn invalid() -> (u16, String) {
    (400, "INVALID_REQUEST".to_owned())
}

/// Sends a body as it is, or the beginning of it if it is longer than anybody reads.
async fn send(daemon: &Daemon, path: &str, body: &[u8]) -> Answer {
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        daemon.address,
        daemon.key,
        body.len()
    )
    .into_bytes();
    let end = if body.len() > BODY { 1 } else { body.len() };
    request.extend(&body[..end]);
    raw(daemon.address, &request).await
}

/// What an answer says in the shape of its route: status, and what it is called.
fn told(answer: &Answer) -> (u16, String) {
    if (200..300).contains(&answer.status) {
        return (answer.status, String::new());
    }
    let body = answer.json();
    let Some(detail) = body.get("detail") else { return answer.problem() };
    assert!(
        detail.is_array() || detail["error_id"].as_str().unwrap().starts_with("req_"),
        "{body}"
    );
    (answer.status, text(&body, "/error_type").to_owned())
}

/// Says the same of a route of ours and of one of LangSmith's.
fn expected(path: &str, status: u16, ours: &str, theirs: &str) -> (u16, String) {
    (status, if path.contains("/v2/") { theirs } else { ours }.to_owned())
}

const UNKNOWN: &str = "ssn_00000000000000000000000000";

/// Every route of sessions and threads, and some of LangSmith's.
fn routes() -> Vec<(&'static str, String)> {
    let session = format!("{SESSIONS}/{UNKNOWN}");
    vec![
        ("POST", SESSIONS.to_owned()),
        ("GET", session.clone()),
        ("DELETE", session.clone()),
        ("POST", format!("{session}/refresh")),
        ("POST", format!("{session}/refresh-token")),
        ("POST", format!("{session}/heartbeat")),
        ("GET", format!("{session}/a2a")),
        ("POST", "/threads/thr_9/sandbox".to_owned()),
        ("DELETE", "/threads/thr_9/sandbox".to_owned()),
        ("POST", "/threads/thr_9/sandbox/refresh".to_owned()),
        ("POST", "/threads/thr_9/sandbox/heartbeat".to_owned()),
        ("POST", "/threads/thr_9/archive".to_owned()),
        ("DELETE", "/threads/thr_9".to_owned()),
        ("POST", "/internal/sandboxes/sb_x/kill".to_owned()),
        ("POST", "/v2/sandboxes/boxes".to_owned()),
        ("GET", "/v2/sandboxes/boxes".to_owned()),
        ("GET", "/api/v2/sandboxes/boxes/no-box".to_owned()),
        ("DELETE", "/v2/sandboxes/boxes/no-box".to_owned()),
    ]
}

/// Those whose body is read as JSON, and the most that is read of it.
fn bodies() -> Vec<(String, usize)> {
    let session = format!("{SESSIONS}/{UNKNOWN}");
    let mut all = vec![
        (SESSIONS.to_owned(), BODY),
        (format!("{session}/refresh"), BODY),
        (format!("{session}/refresh-token"), BODY),
        (format!("{session}/heartbeat"), BODY),
    ];
    for path in ["sandbox", "sandbox/refresh", "sandbox/heartbeat"] {
        all.push((format!("/threads/thr_9/{path}"), BODY));
    }
    for path in ["boxes", "snapshots", "templates"] {
        all.push((format!("/v2/sandboxes/{path}"), BODY));
    }
    all.push(("/v1/admin/keys".to_owned(), 64 << 10));
    all.push(("/v1/admin/tokens".to_owned(), 64 << 10));
    all
}

/// The largest body of a session route.
const BODY: usize = 1 << 20;

#[tokio::test]
async fn h01_one_good_credential_is_needed_at_every_route() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let key = daemon.key.as_str();
    let good = format!("Bearer {key}");
    let malformed = [
        String::new(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        key.to_owned(),
        format!("Bearer{key}"),
        format!("Bearer:{key}"),
        format!("Token {key}"),
        format!("Basic {key}"),
        format!("Bearer {key} {key}"),
        format!("Bearer {key}, Bearer {key}"),
        format!("Bearer {key},{key}"),
        format!("Bearer \"{key}\""),
        format!("Bearer {key}é"),
        "Bearer rf_wrong".to_owned(),
    ];
    let mut rows: Vec<Vec<(&str, &str)>> =
        malformed.iter().map(|text| vec![("Authorization", text.as_str())]).collect();
    rows.push(vec![]);
    rows.push(vec![("Authorization", &good), ("Authorization", &good)]);
    rows.push(vec![("Authorization", &good), ("Authorization", "Bearer rf_wrong")]);
    rows.push(vec![("X-Api-Key", key), ("X-Api-Key", key)]);
    rows.push(vec![("X-Api-Key", "rf_wrong")]);
    rows.push(vec![("X-Api-Key", "")]);
    for (method, path) in routes() {
        let refused = expected(&path, 401, "UNAUTHENTICATED", "Unauthenticated");
        for row in &rows {
            let headers: Vec<_> = row.iter().copied().chain([JSON]).collect();
            let answer = daemon.ask(method, &path, &headers, "{}").await;
            assert_eq!(told(&answer), refused, "{method} {path} {row:?}");
            assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
        }
        let known = told(&daemon.ask(method, &path, &[("X-Api-Key", key), JSON], "{}").await);
        assert_ne!(known.0, 401, "{method} {path}");
        for scheme in ["Bearer", "bearer", "BEARER", "bEaReR"] {
            let shown = format!("{scheme} {key}");
            let answer = daemon.ask(method, &path, &[("Authorization", &shown), JSON], "{}").await;
            assert_eq!(told(&answer), known, "{method} {path} {scheme}");
        }
    }
}

#[tokio::test]
async fn h02_what_another_tenant_has_is_as_if_it_were_not() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let session = ensure(daemon, "thr_1").await;
    let stranger = key(daemon, "elsewhere", Role::Admin, (ActorKind::Human, "eve")).await;
    let (id, sandbox) = (text(&session, "/session_id"), text(&session, "/sandbox/id"));
    let ask_as = async |method: &str, path: &str| {
        let headers = [("X-Api-Key", stranger.as_str()), JSON];
        let answer = daemon.ask(method, path, &headers, r#"{"current_token": "x"}"#).await;
        let mut told = answer.json();
        told["error"]["request_id"] = Value::Null;
        (answer.status, told)
    };
    let below = [
        ("GET", "", "SESSION_NOT_FOUND"),
        ("DELETE", "", "SESSION_NOT_FOUND"),
        ("GET", "/a2a", "SESSION_NOT_FOUND"),
        ("POST", "/refresh", "SESSION_NOT_FOUND"),
        ("POST", "/refresh-token", "BINDING_NOT_FOUND"),
        ("POST", "/heartbeat", "BINDING_NOT_FOUND"),
    ];
    for (method, rest, code) in below {
        let foreign = ask_as(method, &format!("{SESSIONS}/{id}{rest}")).await;
        assert_eq!((foreign.0, text(&foreign.1, "/error/code")), (404, code), "{method} {rest}");
        for unknown in [UNKNOWN, "x", "ssn_%00", &id.to_uppercase()] {
            let unknown = ask_as(method, &format!("{SESSIONS}/{unknown}{rest}")).await;
            assert_eq!(foreign, unknown, "{method} {rest}");
        }
    }
    for (method, rest) in
        [("DELETE", "sandbox"), ("POST", "sandbox/refresh"), ("POST", "sandbox/heartbeat")]
    {
        let foreign = ask_as(method, &format!("/threads/thr_1/{rest}")).await;
        let unknown = ask_as(method, &format!("/threads/thr_0/{rest}")).await;
        assert_eq!((foreign.0, text(&foreign.1, "/error/code")), (404, "SESSION_NOT_FOUND"));
        assert_eq!(foreign, unknown, "{method} {rest}");
    }
    let get = json!({"thread_id": "thr_1", "mode": "get"});
    let answer = post_as(daemon, &stranger, SESSIONS, &get).await;
    assert_eq!(answer.problem(), (404, "SESSION_NOT_FOUND".into()));
    let foreign = ask_as("POST", &format!("/internal/sandboxes/{sandbox}/kill")).await;
    let unknown = ask_as("POST", "/internal/sandboxes/sb_00000000000000000000000000/kill").await;
    assert_eq!(foreign, unknown);
    assert_eq!(foreign.0, 404);
    let user = key(daemon, "default", Role::User, (ActorKind::Human, "bob")).await;
    let kill = format!("/internal/sandboxes/{sandbox}/kill");
    let answer = post_as(daemon, &user, &kill, &json!({})).await;
    assert_eq!(answer.problem(), (403, "FORBIDDEN".into()));
    assert_eq!(ask(daemon, "GET", &format!("{SESSIONS}/{id}")).await.status, 200);
}

/// H02: nor does the clock tell. A difference would be there every time, and noise is not.
#[tokio::test]
async fn h02_what_is_anothers_takes_as_long_as_what_is_not_there() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let session = ensure(daemon, "thr_1").await;
    let stranger = key(daemon, "elsewhere", Role::Admin, (ActorKind::Human, "eve")).await;
    let foreign = format!("{SESSIONS}/{}", text(&session, "/session_id"));
    let unknown = format!("{SESSIONS}/{UNKNOWN}");
    let time = async |path: &str| {
        let begun = std::time::Instant::now();
        let answer = daemon.ask("GET", path, &[("X-Api-Key", &stranger)], "").await;
        assert_eq!(answer.status, 404);
        begun.elapsed()
    };
    let mut seen = Vec::new();
    for _ in 0..20 {
        let (mut of_foreign, mut of_unknown) = (Vec::new(), Vec::new());
        for _ in 0..51 {
            of_foreign.push(time(&foreign).await);
            of_unknown.push(time(&unknown).await);
        }
        of_foreign.sort();
        of_unknown.sort();
        let (one, other) = (of_foreign[25], of_unknown[25]);
        if one < other * 11 / 10 && other < one * 11 / 10 {
            return;
        }
        seen.push((one, other));
    }
    panic!("they differ every time: {seen:?}");
}

#[tokio::test]
async fn h03_h04_a_body_is_one_plain_json_object() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let mut twice = ensuring();
    twice.insert_str(1, r#""mode":"get","#);
    let with = |more: &str| {
        let mut body = ensuring();
        body.insert_str(1, more);
        body.into_bytes()
    };
    let utf16: Vec<u8> = ensuring().encode_utf16().flat_map(u16::to_le_bytes).collect();
    let of_chunks = |count: usize, entry: &dyn Fn(usize) -> String| {
        (0..count).map(entry).collect::<Vec<_>>().join(",")
    };
    let array = |count: usize| with(&format!("\"x\":[{}],", of_chunks(count, &|_| "0".into())));
    let keys = |count: usize| {
        with(&format!("{},", of_chunks(count, &|number| format!("\"k{number}\":0"))))
    };
    let rows: Vec<(&str, Vec<u8>)> = vec![
        ("not JSON", b"canary".to_vec()),
        ("a beginning", b"{".to_vec()),
        ("a blank", b" ".to_vec()),
        ("null", b"null".to_vec()),
        ("an array", b"[]".to_vec()),
        ("an array of one", [b"[", ensuring().as_bytes(), b"]"].concat()),
        ("a number", b"7".to_vec()),
        ("a text", b"\"canary\"".to_vec()),
        ("garbage after it", [ensuring().as_bytes(), b" canary"].concat()),
        ("two", [ensuring().as_bytes(), ensuring().as_bytes()].concat()),
        ("two lines", [ensuring().as_bytes(), b"\n", ensuring().as_bytes()].concat()),
        ("a BOM", [b"\xef\xbb\xbf", ensuring().as_bytes()].concat()),
        ("UTF-16", utf16.clone()),
        ("UTF-16 with a BOM", [b"\xff\xfe".to_vec(), utf16].concat()),
        (
            "no UTF-8",
            b"{\"thread_id\":\"\xff\",\"mode\":\"ensure\",\"current_token\":\"canary\"}".to_vec(),
        ),
        ("half of a surrogate", b"{\"thread_id\":\"\\ud800\",\"mode\":\"canary\"}".to_vec()),
        ("a NUL in it", b"{\"thread_id\":\"a\0b\",\"mode\":\"canary\"}".to_vec()),
        ("a NUL before it", [b"\0", ensuring().as_bytes()].concat()),
        ("a NUL after it", [ensuring().as_bytes(), b"\0"].concat()),
        ("a key twice", twice.into_bytes()),
        ("an unknown key twice", with("\"x\":1,\"x\":1,")),
        ("a key twice further down", with("\"x\":[{\"y\":1,\"y\":2}],")),
        ("65 deep", with(&format!("\"x\":{}{},", "[".repeat(64), "]".repeat(64)))),
        (
            "a thousand deep",
            with(&format!("\"x\":{}1{},", "{\"a\":".repeat(1000), "}".repeat(1000))),
        ),
        ("more than enough elements", array(400_000)),
        ("10^6 elements", array(1_000_000)),
        ("more than enough keys", keys(50_000)),
        ("10^6 keys", keys(1_000_000)),
        ("a key of nearly a megabyte", with(&format!("\"{}\":1,", "k".repeat(BODY - 200)))),
        ("a key of a megabyte", with(&format!("\"{}\":1,", "k".repeat(BODY)))),
    ];
    for (path, most) in bodies() {
        for (name, row) in &rows {
            let answer = send(daemon, &path, row).await;
            // What is larger than anybody reads is not looked at (H14).
            let refused = if row.len() > most {
                expected(&path, 413, "PAYLOAD_TOO_LARGE", "ValidationError")
            } else {
                expected(&path, 400, "INVALID_REQUEST", "ValidationError")
            };
            assert_eq!(told(&answer), refused, "{path}: {name}: {}", answer.body);
            assert!(!answer.body.contains("canary"), "{}", answer.body);
            if answer.status == 400 && !path.contains("/v2/") {
                assert_eq!(answer.json()["error"]["pointer"], "", "{path}: {name}");
            }
        }
    }
    // Where there need not be a body, an empty one is as good as `{}`.
    let answer = send(daemon, SESSIONS, b"").await;
    assert_eq!(answer.problem(), invalid());
    assert_eq!(answer.json()["error"]["pointer"], "");
    assert_eq!(
        post(daemon, SESSIONS, &json!({"thread_id": "thr_1", "mode": "get"})).await.problem(),
        (404, "SESSION_NOT_FOUND".into()),
        "nothing came of them"
    );
    let deep = with(&format!("\"x\":{}{},", "[".repeat(63), "]".repeat(63)));
    assert_eq!(send(daemon, SESSIONS, &deep).await.status, 200, "64 deep");
}

#[tokio::test]
async fn h05_h07_h08_h09_fields_are_what_they_must_be() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let long = "a".repeat(129);
    let many: Vec<String> = (0..10_000).map(|_| "shell".to_owned()).collect();
    let with = |field: &str, value: Value| {
        let mut body = json!({"thread_id": "thr_1", "mode": "ensure", "image": "host"});
        body[field] = value;
        body
    };
    let mut rows = vec![
        (json!({}), "/mode"),
        (json!({"mode": "ensure"}), "/thread_id"),
        (json!({"thread_id": "thr_1"}), "/mode"),
        (with("mode", json!("canary")), "/mode"),
        (with("mode", Value::Null), "/mode"),
        (with("mode", json!("")), "/mode"),
        (with("mode", json!(["ensure"])), "/mode"),
        (with("mode", json!("ENSURE")), "/mode"),
        (with("mode", json!(7)), "/mode"),
        (with("thread_id", json!(7)), "/thread_id"),
        (with("scope", json!({"type": "thread", "id": "thr_1"})), "/scope"),
        (with("requested_capabilities", json!(["fs:rw", "root"])), "/requested_capabilities"),
        (with("requested_capabilities", json!("fs:rw")), "/requested_capabilities"),
        (with("requested_capabilities", json!([7])), "/requested_capabilities"),
        (with("requested_capabilities", json!(many)), ""),
        (with("requested_capabilities", json!({})), "/requested_capabilities"),
        (with("requested_capabilities", json!(["FS:RW"])), "/requested_capabilities"),
        (with("actor", json!("ada")), "/actor"),
        (with("actor", json!({"type": "root", "id": "x"})), "/actor/type"),
        (with("actor", json!({"type": "human", "id": ""})), "/actor/id"),
        (with("actor", json!({"type": "human", "id": "a\nb"})), "/actor/id"),
        (with("sandbox_hint", json!(7)), "/sandbox_hint"),
        (with("image", json!("")), "/image"),
        (with("image", json!(7)), "/image"),
        (with("wait_seconds", json!(61)), "/wait_seconds"),
        (with("wait_seconds", json!(-1)), "/wait_seconds"),
        (with("wait_seconds", json!(1.5)), "/wait_seconds"),
        // H06: what may be meant to confine, and is not known.
        (with("limits", json!("canary")), "/limits"),
        (with("limits", json!({"gpus": 1})), "/limits/gpus"),
        (with("limits", json!({"memory_mb": "64"})), "/limits/memory_mb"),
        (with("capabilities", json!([])), "/capabilities"),
        (with("capabilities", json!({"canary": true})), "/capabilities"),
        (with("mounts", json!([])), "/mounts"),
        (with("mounts", json!([{"canary": "/"}])), "/mounts"),
        // H07.
        (with("scope", json!({"type": "thread", "id": "thr_2"})), "/scope"),
        (with("scope", json!({"type": "workspace", "id": "thr_1"})), "/scope"),
    ];
    for id in [
        "",
        &long,
        "../x",
        "a/b",
        "%2e%2e",
        "a b",
        "a\u{0}",
        "a\r\nb",
        "\u{1b}[0m",
        "\u{202e}a",
        "😀",
        "аb",
        "canary/%2e%2e%2f",
        "%252e",
    ] {
        rows.push((with("thread_id", json!(id)), "/thread_id"));
        rows.push((json!({"scope": {"type": "thread", "id": id}, "mode": "get"}), "/scope/id"));
    }
    for kind in [json!("user"), json!(7), Value::Null] {
        let body = json!({"scope": {"type": kind, "id": "a"}, "mode": "get"});
        rows.push((body, "/scope/type"));
    }
    for (body, place) in rows {
        let answer = post(daemon, SESSIONS, &body).await;
        assert_eq!(answer.problem(), invalid(), "{body}");
        assert_eq!(answer.json()["error"]["pointer"], place, "{body}: {}", answer.body);
        assert!(!answer.body.contains("canary"), "{}", answer.body);
    }
    // H06: anything else may be there. H08: nothing is granted to whoever asks for nothing.
    let mut more = with("requested_capabilities", json!([]));
    more["from_the_future"] = json!({"a": [1, {"b": null}]});
    let answer = post(daemon, SESSIONS, &more).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["credentials"]["granted_capabilities"], json!([]));
    let twice = with("requested_capabilities", json!(["shell", "shell", "upload"]));
    let answer = post(daemon, SESSIONS, &twice).await.json();
    assert_eq!(answer["credentials"]["granted_capabilities"], json!(["shell", "upload"]));
}

/// H05 to H09, where the thread is named by the path.
#[tokio::test]
async fn h05_to_h09_hold_for_threads_too() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let path = "/threads/thr_1/sandbox";
    let many = vec!["shell"; 10_000];
    let mut rows: Vec<(String, &str)> = Vec::new();
    for ttl in [
        "0",
        "-1",
        "1e308",
        "9223372036854775808",
        "18446744073709551616",
        "\"900\"",
        "900.5",
        "900.0",
        "299",
        "901",
        "[]",
        "true",
    ] {
        rows.push((format!("{{\"ttl\": {ttl}}}"), "/ttl"));
    }
    // What is no number is no JSON.
    for ttl in ["NaN", "Infinity", "-Infinity", "1e309", "0x384", "+900", "0900", "900."] {
        rows.push((format!("{{\"ttl\": {ttl}}}"), ""));
    }
    let fields = [
        (json!({"scopes": ["fs:rw", "root"]}), "/scopes"),
        (json!({"scopes": "fs:rw"}), "/scopes"),
        (json!({"scopes": [7]}), "/scopes"),
        (json!({"scopes": many}), ""),
        (json!({"actor": {"type": "canary", "id": "x"}}), "/actor/type"),
        (json!({"actor": {"type": "human", "id": ""}}), "/actor/id"),
        (json!({"sandbox_id": 7}), "/sandbox_id"),
        (json!({"image": ""}), "/image"),
        (json!({"wait_seconds": 61}), "/wait_seconds"),
        (json!({"limits": {"gpus": 1}}), "/limits/gpus"),
        (json!({"capabilities": []}), "/capabilities"),
        (json!({"mounts": []}), "/mounts"),
        (json!({"thread_id": "canary"}), "/thread_id"),
        (json!({"thread_id": 7}), "/thread_id"),
        (json!({"scope": {"type": "thread", "id": "thr_1"}}), "/scope"),
    ];
    rows.extend(fields.into_iter().map(|(body, place)| (body.to_string(), place)));
    for (body, place) in rows {
        let answer = send(daemon, path, body.as_bytes()).await;
        assert_eq!(answer.problem(), invalid(), "{body}: {}", answer.body);
        assert_eq!(answer.json()["error"]["pointer"], place, "{body}: {}", answer.body);
        assert!(!answer.body.contains("canary"), "{}", answer.body);
    }
    let long = "a".repeat(129);
    let ids = [
        &long,
        "..%2fx",
        "a%2Fb",
        "%2e%2e%2f",
        "%252e",
        "a%20b",
        "a%00",
        "a%0d%0ab",
        "%1b%5B0m",
        "%e2%80%aea",
        "%f0%9f%98%80",
        "%d0%b0b",
        "%ff",
    ];
    for id in ids {
        for (method, rest) in [
            ("POST", "/sandbox"),
            ("DELETE", "/sandbox"),
            ("POST", "/sandbox/refresh"),
            ("POST", "/sandbox/heartbeat"),
            ("POST", "/archive"),
            ("DELETE", ""),
        ] {
            let path = format!("/threads/{id}{rest}");
            let headers = [("X-Api-Key", daemon.key.as_str()), JSON];
            let body = r#"{"image": "host", "current_token": "x"}"#;
            let answer = daemon.ask(method, &path, &headers, body).await;
            assert_eq!(answer.problem(), invalid(), "{method} {path}: {}", answer.body);
        }
    }
    let all = json!({
        "image": "host", "thread_id": "thr_1", "scopes": ["shell", "shell", "fs:ro"], "ttl": 300,
        "from_the_future": {"limits": 1},
    });
    let answer = post(daemon, path, &all).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["scopes"], json!(["shell", "fs:ro"]));
    let none = post(daemon, path, &json!({"image": "host", "scopes": []})).await;
    assert_eq!((none.status, &none.json()["scopes"]), (200, &json!([])));
}

#[tokio::test]
async fn h11_who_acts_is_said_by_the_key() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let user = key(daemon, "default", Role::User, (ActorKind::Human, "bob")).await;
    let broker = key(daemon, "default", Role::Broker, (ActorKind::Agent, "broker")).await;
    let acting = |kind: &str, id: &str, wanted: &[&str]| {
        json!({
            "thread_id": "thr_1", "mode": "ensure", "image": "host",
            "actor": {"type": kind, "id": id}, "requested_capabilities": wanted,
        })
    };
    let forbidden = (403, "FORBIDDEN".to_owned());
    for actor in [("human", "eve"), ("agent", "bob")] {
        let answer = post_as(daemon, &user, SESSIONS, &acting(actor.0, actor.1, &["fs:rw"])).await;
        assert_eq!(answer.problem(), forbidden, "{actor:?}");
    }
    let own = post_as(daemon, &user, SESSIONS, &acting("human", "bob", &["shell"])).await;
    assert_eq!(own.status, 200, "{}", own.body);
    // Nobody gains by whom he acts for.
    let denied = post_as(daemon, &broker, SESSIONS, &acting("human", "eve", &["shell"])).await;
    assert_eq!(denied.problem(), (403, "CAPABILITY_DENIED".into()));
    let part =
        post_as(daemon, &broker, SESSIONS, &acting("human", "eve", &["shell", "exec"])).await;
    assert_eq!(part.json()["credentials"]["granted_capabilities"], json!(["exec"]));
    let headers = [
        ("X-Api-Key", user.as_str()),
        JSON,
        ("X-User-Id", "root"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Forwarded-User", "root"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Proto", "evil"),
        ("Forwarded", "for=127.0.0.1;host=evil.example;proto=evil"),
        ("X-Real-Ip", "127.0.0.1"),
        ("X-Request-Id", "mine"),
    ];
    let thread =
        daemon.ask("POST", "/threads/thr_1/sandbox", &headers, r#"{"image":"host"}"#).await;
    assert!(!thread.body.contains("evil") && !thread.head.contains("mine"), "{}", thread.body);
    let thread = thread.json();
    let shown = super::access(daemon, text(&thread, "/sandbox_id"), text(&thread, "/token")).await;
    assert_eq!(shown.json()["actor"], json!({"type": "human", "id": "bob"}));
    let answer = daemon.ask("POST", SESSIONS, &headers, &ensuring()).await;
    assert!(!answer.body.contains("evil") && !answer.head.contains("mine"), "{}", answer.body);
    let answer = answer.json();
    let shown = super::access(daemon, text(&answer, "/sandbox/id"), text(&answer, "/token")).await;
    assert_eq!(shown.json()["actor"], json!({"type": "human", "id": "bob"}));
}

#[tokio::test]
async fn h12_h14_bodies_are_json_not_compressed_and_not_large() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let key = ("X-Api-Key", daemon.key.as_str());
    let kinds = [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "json",
        "application/jsonx",
        "text/json",
        "application/octet-stream",
    ];
    for (path, _) in bodies() {
        let unsupported = expected(&path, 415, "UNSUPPORTED_MEDIA_TYPE", "ValidationError");
        let body = ensuring();
        for kind in kinds {
            let answer = daemon.ask("POST", &path, &[key, ("Content-Type", kind)], &body).await;
            assert_eq!(told(&answer), unsupported, "{path}: {kind}");
        }
        for headers in [
            vec![key],
            vec![key, JSON, ("Content-Type", "text/plain")],
            vec![key, ("Content-Type", "text/plain"), JSON],
            vec![key, JSON, ("Content-Encoding", "gzip")],
            vec![key, JSON, ("Content-Encoding", "identity")],
            vec![key, JSON, ("Content-Encoding", "br, zstd")],
        ] {
            let answer = daemon.ask("POST", &path, &headers, &body).await;
            assert_eq!(told(&answer), unsupported, "{path}: {headers:?}");
        }
    }
    for (path, most) in bodies() {
        let too_large = expected(&path, 413, "PAYLOAD_TOO_LARGE", "ValidationError");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\nContent-Type: application/json\r\n",
            daemon.address, daemon.key
        );
        // Nothing more than this ever comes, so that nobody has waited for it.
        for length in [most + 1, usize::MAX >> 1] {
            let claims = format!("{head}Content-Length: {length}\r\n\r\n{{");
            let answer = raw(daemon.address, claims.as_bytes()).await;
            assert_eq!(told(&answer), too_large, "{path}: {length}");
        }
        let mut chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
        for _ in 0..=most / 0x8000 {
            chunked += "8000\r\n";
            chunked += &" ".repeat(0x8000);
            chunked += "\r\n";
        }
        assert_eq!(told(&raw(daemon.address, chunked.as_bytes()).await), too_large, "{path}");
    }
    let headers = [key, ("Content-Type", "Application/JSON; charset=utf-8")];
    assert_eq!(daemon.ask("POST", SESSIONS, &headers, &ensuring()).await.status, 200);
}

#[tokio::test]
async fn h15_h16_a_route_has_one_spelling_and_its_methods() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let key = ("X-Api-Key", daemon.key.as_str());
    let rows = [
        ("GET", SESSIONS.to_owned(), "post"),
        ("PUT", SESSIONS.to_owned(), "post"),
        ("TRACE", SESSIONS.to_owned(), "post"),
        ("POST", format!("{SESSIONS}/ssn_x"), "get"),
        ("GET", format!("{SESSIONS}/ssn_x/refresh"), "post"),
        ("GET", "/threads/thr_1/sandbox".to_owned(), "post"),
        ("GET", "/threads/thr_1/archive".to_owned(), "post"),
        ("POST", "/threads/thr_1".to_owned(), "delete"),
    ];
    for (method, path, allowed) in rows {
        let headers =
            [key, JSON, ("X-HTTP-Method-Override", "POST"), ("X-Method-Override", "POST")];
        let answer = daemon.ask(method, &path, &headers, &ensuring()).await;
        assert_eq!(answer.problem(), (405, "METHOD_NOT_ALLOWED".into()), "{method} {path}");
        let allow =
            answer.head.lines().find(|line| line.starts_with("allow: ")).unwrap_or_default();
        assert!(allow.contains(allowed), "{method} {path}: {}", answer.head);
    }
    let put = async |method: &str, path: &str, body: &str| {
        told(&daemon.ask(method, path, &[key, JSON], body).await)
    };
    let good = [
        ("POST", SESSIONS.to_owned(), ensuring()),
        ("POST", "/threads/thr_1/sandbox".to_owned(), json!({"image": "host"}).to_string()),
        ("GET", "/v2/sandboxes/boxes".to_owned(), String::new()),
    ];
    for (method, path, body) in good {
        assert_eq!(put(method, &path, &body).await.0, 200, "{path}");
        let (start, last) = path.rsplit_once('/').unwrap();
        let (first, rest) = path.strip_prefix('/').unwrap().split_once('/').unwrap();
        let others = [
            format!("/{path}"),
            format!("{start}//{last}"),
            format!("/{first}//{rest}"),
            format!("{path}/"),
            format!("{path}//"),
            format!("{path};x=1"),
            format!("/{first};x=1/{rest}"),
            path.to_uppercase(),
            format!("/{}/{rest}", first.to_uppercase()),
            format!("{start}/%{:02x}{}", last.as_bytes()[0], last.get(1..).unwrap()),
            format!("/{first}%2f{rest}"),
            format!("/{first}\\{rest}"),
            format!("/x/..{path}"),
            format!("/./{first}/{rest}"),
            format!("/x/%2e%2e{path}"),
            format!("/%2e{path}"),
            format!("{path}%00"),
            format!("{start}/%00{last}"),
            format!("{path}%20"),
            format!("{path}%ff"),
            format!("{path}/x/x/x/x"),
            format!("/{}{path}", "a".repeat(8 << 10)),
            format!("{path}{}", "a".repeat(8 << 10)),
        ];
        for other in others {
            let (status, code) = put(method, &other, &body).await;
            let shown: String = other.chars().take(80).collect();
            assert_eq!((status, code.as_str()), (404, "NOT_FOUND"), "{shown}");
        }
    }
    // A name of that length is nobody's.
    let long = "a".repeat(8 << 10);
    let (status, code) = put("GET", &format!("{SESSIONS}/{long}"), "").await;
    assert_eq!((status, code.as_str()), (404, "SESSION_NOT_FOUND"));
    let (status, code) = put("DELETE", &format!("/threads/{long}"), "").await;
    assert_eq!((status, code.as_str()), (400, "INVALID_REQUEST"));
    let (status, code) = put("GET", &format!("/v2/sandboxes/boxes/{long}"), "").await;
    assert_eq!((status, code.as_str()), (404, "NotFound"));
}

/// H13: whoever reads a request in another way than we do is not given the chance.
#[tokio::test]
async fn h13_a_request_that_can_be_read_in_two_ways_is_refused() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let body = ensuring();
    let length = body.len();
    let rows = [
        ("two lengths", format!("Content-Length: {length}\r\nContent-Length: 3\r\n\r\n{body}")),
        ("a length that is none", format!("Content-Length: x\r\n\r\n{body}")),
        ("a negative length", format!("Content-Length: -1\r\n\r\n{body}")),
        (
            "an encoding that is not the last",
            "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n".into(),
        ),
        ("a blank before the colon", format!("Content-Length : {length}\r\n\r\n{body}")),
        ("a folded line", format!("X-A: a\r\n b\r\nContent-Length: {length}\r\n\r\n{body}")),
        ("a huge chunk", "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}".into()),
    ];
    for (name, rest) in rows {
        let head = format!(
            "POST {SESSIONS} HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\nContent-Type: application/json\r\n",
            daemon.address, daemon.key
        );
        let answer = raw(daemon.address, format!("{head}{rest}").as_bytes()).await;
        assert_eq!(answer.problem(), invalid(), "{name}: {} {}", answer.head, answer.body);
    }
    let answer = post(daemon, SESSIONS, &json!({"thread_id": "thr_1", "mode": "get"})).await;
    assert_eq!(answer.problem(), (404, "SESSION_NOT_FOUND".into()), "nothing came of them");
}
