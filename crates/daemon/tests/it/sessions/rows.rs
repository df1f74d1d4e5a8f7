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

/// Sends a body as it is.
async fn send(daemon: &Daemon, body: &[u8]) -> Answer {
    let mut request = format!(
        "POST {SESSIONS} HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        daemon.address,
        daemon.key,
        body.len()
    )
    .into_bytes();
    request.extend(body);
    raw(daemon.address, &request).await
}

#[tokio::test]
async fn h01_one_good_credential_is_needed_at_every_route() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let good = format!("bEaReR {}", daemon.key);
    let id = "ssn_00000000000000000000000000";
    let routes = [
        ("POST", SESSIONS.to_owned()),
        ("GET", format!("{SESSIONS}/{id}")),
        ("DELETE", format!("{SESSIONS}/{id}")),
        ("POST", format!("{SESSIONS}/{id}/refresh")),
        ("POST", format!("{SESSIONS}/{id}/refresh-token")),
        ("POST", format!("{SESSIONS}/{id}/heartbeat")),
        ("POST", "/threads/thr_9/sandbox".to_owned()),
        ("DELETE", "/threads/thr_9/sandbox".to_owned()),
        ("POST", "/threads/thr_9/sandbox/refresh".to_owned()),
        ("POST", "/threads/thr_9/sandbox/heartbeat".to_owned()),
        ("POST", "/threads/thr_9/archive".to_owned()),
        ("DELETE", "/threads/thr_9".to_owned()),
        ("POST", "/internal/sandboxes/sb_x/kill".to_owned()),
    ];
    let basic = format!("Basic {}", daemon.key);
    for (method, path) in &routes {
        let rows: [&[(&str, &str)]; 7] = [
            &[],
            &[("Authorization", "")],
            &[("Authorization", "Bearer")],
            &[("Authorization", &basic)],
            &[("Authorization", &good), ("Authorization", &good)],
            &[("Authorization", "Bearer rf_wrong")],
            &[("X-Api-Key", "rf_wrong")],
        ];
        for row in rows {
            let headers: Vec<_> = row.iter().copied().chain([JSON]).collect();
            let answer = daemon.ask(method, path, &headers, "{}").await;
            assert_eq!(
                answer.problem(),
                (401, "UNAUTHENTICATED".into()),
                "{method} {path} {row:?}"
            );
            assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
        }
        let answer = daemon.ask(method, path, &[("Authorization", &good), JSON], "{}").await;
        assert_ne!(answer.status, 401, "{method} {path}: {}", answer.body);
    }
}

#[tokio::test]
async fn h02_what_another_tenant_has_is_as_if_it_were_not() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let session = ensure(daemon, "thr_1").await;
    let stranger = key(daemon, "elsewhere", Role::Admin, (ActorKind::Human, "eve")).await;
    let (id, unknown) = (text(&session, "/session_id"), "ssn_00000000000000000000000000");
    let sandbox = text(&session, "/sandbox/id");
    let routes = [
        ("GET", "", "{}"),
        ("DELETE", "", "{}"),
        ("POST", "/refresh", "{}"),
        ("POST", "/refresh-token", "{}"),
        ("POST", "/heartbeat", "{}"),
    ];
    for (method, rest, body) in routes {
        let mut answers = Vec::new();
        for id in [id, unknown, "x", "../x", "ssn_%00"] {
            let headers = [("X-Api-Key", stranger.as_str()), JSON];
            let answer =
                daemon.ask(method, &format!("{SESSIONS}/{id}{rest}"), &headers, body).await;
            if id == "../x" {
                continue;
            }
            let mut told = answer.json();
            told["error"]["request_id"] = Value::Null;
            answers.push((answer.status, told));
        }
        assert_eq!(answers[0].0, 404);
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{method} {rest}: {answers:?}");
    }
    let get = json!({"thread_id": "thr_1", "mode": "get"});
    let answer = post_as(daemon, &stranger, SESSIONS, &get).await;
    assert_eq!(answer.problem(), (404, "SESSION_NOT_FOUND".into()));
    let kill = format!("/internal/sandboxes/{sandbox}/kill");
    assert_eq!(post_as(daemon, &stranger, &kill, &json!({})).await.status, 404);
    let user = key(daemon, "default", Role::User, (ActorKind::Human, "bob")).await;
    let answer = post_as(daemon, &user, &kill, &json!({})).await;
    assert_eq!(answer.problem(), (403, "FORBIDDEN".into()));
    assert_eq!(ask(daemon, "GET", &format!("{SESSIONS}/{id}")).await.status, 200);
}

#[tokio::test]
async fn h03_h04_a_body_is_one_plain_json_object() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let mut twice = ensuring();
    twice.insert_str(1, r#""mode":"get","#);
    let deep = format!("{{\"x\":{}1{}}}", "[".repeat(64), "]".repeat(64));
    let many = format!("{{\"x\":[{}0]}}", "0,".repeat(400_000));
    let long = format!("{{\"{}\":1}}", "k".repeat(1_000_000));
    let rows: [&[u8]; 18] = [
        b"",
        b" ",
        b"canary",
        b"null",
        b"[]",
        b"[{}]",
        b"7",
        b"\"canary\"",
        b"{",
        b"{} canary",
        b"{}{}",
        b"\xef\xbb\xbf{}",
        b"\xff\xfe{\0}\0",
        b"{\"thread_id\":\"\xff\",\"mode\":\"ensure\"}",
        b"{\"thread_id\":\"a\0b\",\"mode\":\"ensure\"}",
        twice.as_bytes(),
        deep.as_bytes(),
        many.as_bytes(),
    ];
    for row in rows {
        let answer = send(daemon, row).await;
        assert_eq!(
            answer.problem(),
            invalid(),
            "{}",
            String::from_utf8_lossy(&row[..row.len().min(60)])
        );
        assert!(!answer.body.contains("canary"), "{}", answer.body);
    }
    // A key of a megabyte is nobody's field, and the rest is not there.
    assert_eq!(send(daemon, long.as_bytes()).await.problem(), invalid());
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
        (with("mode", json!("create")), "/mode"),
        (with("mode", json!("ENSURE")), "/mode"),
        (with("mode", json!(7)), "/mode"),
        (with("thread_id", json!(7)), "/thread_id"),
        (with("scope", json!({"type": "thread", "id": "thr_1"})), "/scope"),
        (with("requested_capabilities", json!(["fs:rw", "root"])), "/requested_capabilities"),
        (with("requested_capabilities", json!("fs:rw")), "/requested_capabilities"),
        (with("requested_capabilities", json!([7])), "/requested_capabilities"),
        (with("requested_capabilities", json!(many)), "the body"),
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
        (with("limits", json!({})), "/limits"),
        (with("capabilities", json!([])), "/capabilities"),
        (with("mounts", json!([])), "/mounts"),
    ];
    for id in
        ["", &long, "../x", "a/b", "%2e%2e", "a b", "a\u{0}", "\u{1b}[0m", "\u{202e}a", "😀", "аb"]
    {
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
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(place), "{message} for {place}");
    }
    // H09.
    for ttl in ["0", "-1", "1e308", "9223372036854775808", "\"900\"", "900.5", "299", "901"] {
        let body = format!(r#"{{"ttl": {ttl}, "image": "host"}}"#);
        let headers = [("X-Api-Key", daemon.key.as_str()), JSON];
        let answer = daemon.ask("POST", "/threads/thr_1/sandbox", &headers, &body).await;
        assert_eq!(answer.problem(), invalid(), "{ttl}");
    }
    let headers = [("X-Api-Key", daemon.key.as_str()), JSON];
    let answer = daemon.ask("POST", "/threads/thr_1/sandbox", &headers, r#"{"ttl": NaN}"#).await;
    assert_eq!(answer.problem(), invalid());
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
        ("X-Request-Id", "mine"),
    ];
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
    let unsupported = (415, "UNSUPPORTED_MEDIA_TYPE".to_owned());
    let key = ("X-Api-Key", daemon.key.as_str());
    for kind in
        ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"]
    {
        let headers = [key, ("Content-Type", kind)];
        let answer = daemon.ask("POST", SESSIONS, &headers, &ensuring()).await;
        assert_eq!(answer.problem(), unsupported, "{kind}");
    }
    assert_eq!(daemon.ask("POST", SESSIONS, &[key], &ensuring()).await.problem(), unsupported);
    let headers = [key, JSON, ("Content-Encoding", "gzip")];
    assert_eq!(daemon.ask("POST", SESSIONS, &headers, "x").await.problem(), unsupported);
    let too_large = (413, "PAYLOAD_TOO_LARGE".to_owned());
    let claims = format!(
        "POST {SESSIONS} HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\nContent-Type: application/json\r\n\
         Content-Length: 1048577\r\n\r\n{{",
        daemon.address, daemon.key
    );
    assert_eq!(raw(daemon.address, claims.as_bytes()).await.problem(), too_large);
    let mut chunked = format!(
        "POST {SESSIONS} HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\n\r\n",
        daemon.address, daemon.key
    );
    for _ in 0..17 {
        chunked += "10000\r\n";
        chunked += &" ".repeat(0x10000);
        chunked += "\r\n";
    }
    assert_eq!(raw(daemon.address, chunked.as_bytes()).await.problem(), too_large);
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
    let long = format!("{SESSIONS}/{}", "a".repeat(8000));
    let paths = [
        "//v1/sandbox/sessions",
        "/v1//sandbox/sessions",
        "/v1/sandbox/sessions/",
        "/v1/sandbox/sessions;x=1",
        "/V1/sandbox/sessions",
        "/v1/sandbox/%73essions",
        "/v1/x/../sandbox/sessions",
        "/v1/%2e%2e/v1/sandbox/sessions",
        "/v1/sandbox/sessions%00",
    ];
    for path in paths {
        let answer = daemon.ask("POST", path, &[key, JSON], &ensuring()).await;
        assert!([404, 405].contains(&answer.status), "{path}: {} {}", answer.status, answer.body);
    }
    assert_eq!(ask(daemon, "GET", &long).await.status, 404);
}

/// H21, H22.
#[tokio::test]
async fn h21_h22_every_answer_names_its_request_by_a_name_of_ours() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let hostile = "x\u{1b}[31m";
    let long = "a".repeat(20_000);
    for id in ["mine", hostile, &long] {
        for body in [ensuring(), "{}".to_owned()] {
            let headers = [("X-Api-Key", daemon.key.as_str()), JSON, ("X-Request-Id", id)];
            let answer = daemon.ask("POST", SESSIONS, &headers, &body).await;
            let line = answer.head.lines().find_map(|line| line.strip_prefix("x-request-id: "));
            let Some(name) = line else {
                // A head that nobody can read is answered before any route.
                assert!((400..500).contains(&answer.status), "{}", answer.head);
                continue;
            };
            assert!(name.starts_with("req_") && name.len() < 30, "{name}");
            if answer.status != 200 {
                answer.problem();
                assert_eq!(text(&answer.json(), "/error/request_id"), name);
            }
        }
    }
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
        assert_eq!(answer.status, 400, "{name}: {} {}", answer.head, answer.body);
    }
    let answer = post(daemon, SESSIONS, &json!({"thread_id": "thr_1", "mode": "get"})).await;
    assert_eq!(answer.problem(), (404, "SESSION_NOT_FOUND".into()), "nothing came of them");
}
