//! What is refused, and in which way.

use model::{
    actor::ActorKind,
    policy::{Pattern, Policy, Rule, Scopes},
};
use serde_json::{Value, json};
use store::keys::Role;

use super::{ask, call, message, refused, send};
use crate::{
    sandboxed::Sandboxed,
    sessions::{ensure, text},
    support::{Daemon, key},
};

type Headers<'a> = &'a [(&'a str, &'a str)];

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

#[tokio::test]
async fn what_is_no_message_for_us_is_refused_before_it_is_read() {
    let daemon = Daemon::start().await;
    let host = daemon.address.to_string();
    let own = format!("http://{host}");
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let rows: [(Headers<'_>, &str, u16); 16] = [
        (&[], PING, 200),
        (&[("Origin", &own)], PING, 200),
        (&[("Origin", "http://evil.example")], PING, 403),
        (&[("Origin", "null")], PING, 403),
        (&[("MCP-Protocol-Version", "2025-06-18")], PING, 200),
        (&[("MCP-Protocol-Version", "1999-01-01")], PING, 400),
        (&[("MCP-Protocol-Version", "\u{1}")], PING, 400),
        (&[("Mcp-Session-Id", "somebody else's")], PING, 404),
        (&[("Content-Encoding", "gzip")], PING, 415),
        (&[], "[]", 400),
        (&[], "{", 400),
        (&[], r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, 400),
        (&[], &deep, 400),
        (&[], "7", 400),
        (&[], "{}", 400),
        (&[], r#"{"jsonrpc":"1.0","method":7}"#, 400),
    ];
    for (headers, body, status) in rows {
        let answer = send(&daemon, &daemon.key, headers, body).await;
        let shown: String = body.chars().take(40).collect();
        assert_eq!(answer.status, status, "{headers:?} {shown}: {}", answer.body);
    }
    // Nobody waits for the rest of what is too large.
    let large = format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        daemon.key,
        (4 << 20) + 1,
    );
    let answer = crate::support::raw(daemon.address, large.as_bytes()).await;
    assert_eq!(answer.problem(), (413, "PAYLOAD_TOO_LARGE".into()));
    let batch = format!("[{PING},{PING}]");
    let answer = send(&daemon, &daemon.key, &[], &batch).await;
    assert_eq!(message(&answer)["error"]["code"], -32600, "{answer:?}");
    assert_eq!(message(&send(&daemon, &daemon.key, &[], "{").await)["error"]["code"], -32700);
    // Without a credential, with one that is none, and with one where it does not belong.
    let plain =
        [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    let answer = daemon.ask("POST", "/mcp", &plain, PING).await;
    assert_eq!(answer.problem(), (401, "UNAUTHENTICATED".into()));
    assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
    assert_eq!(send(&daemon, "rf_wrong", &[], PING).await.problem().0, 401);
    assert_eq!(send(&daemon, "a.b.c", &[], PING).await.problem().0, 401);
    let path = format!("/mcp?api_key={}", daemon.key);
    assert_eq!(daemon.ask("POST", &path, &plain, PING).await.problem().0, 401);
    for method in ["GET", "DELETE", "PUT"] {
        let answer = daemon.ask(method, "/mcp", &[("X-Api-Key", &daemon.key)], "").await;
        assert_eq!(answer.problem(), (405, "METHOD_NOT_ALLOWED".into()), "{method}");
    }
    let bearer = format!("Bearer {}", daemon.key);
    let rows = [
        ("text/plain", "application/json, text/event-stream", 415),
        ("application/json", "text/html", 406),
    ];
    for (kind, accept, status) in rows {
        let headers =
            [("Authorization", bearer.as_str()), ("Content-Type", kind), ("Accept", accept)];
        assert_eq!(
            daemon.ask("POST", "/mcp", &headers, PING).await.status,
            status,
            "{kind} {accept}"
        );
    }
}

/// U06.
#[tokio::test]
async fn u06_a_host_that_we_are_not_called_by_is_refused() {
    let daemon = Daemon::start().await;
    let rows = [("localhost", 200), ("127.0.0.1", 200), ("evil.example", 421), ("", 400)];
    for (host, status) in rows {
        let text = format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{PING}",
            daemon.key,
            PING.len(),
        );
        let answer = crate::support::raw(daemon.address, text.as_bytes()).await;
        assert_eq!(answer.status, status, "{host}: {}", answer.body);
    }
}

#[tokio::test]
async fn tools_refuse_with_a_code_and_what_to_do_next() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let session = text(&ensure(daemon, "thr_1").await, "/session_id").to_owned();
    let unknown = ask(daemon, &daemon.key, "tools/call", json!({"name": "rm"})).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert_eq!(ask(daemon, &daemon.key, "no/such", json!({})).await["error"]["code"], -32601);
    let with = |more: Value| {
        let mut arguments = json!({"session_id": session});
        for (name, value) in more.as_object().unwrap() {
            arguments[name] = value.clone();
        }
        arguments
    };
    let rows = [
        ("exec", json!({"command": "true"}), "INVALID_REQUEST", "environment_acquire"),
        ("exec", with(json!({})), "INVALID_REQUEST", "/command: is missing"),
        ("exec", with(json!({"command": ["ls"]})), "INVALID_REQUEST", "/command: "),
        ("exec", with(json!({"command": "ls", "x": 1})), "INVALID_REQUEST", "command, cwd"),
        ("exec", with(json!({"command": "ls", "cwd": "a"})), "INVALID_REQUEST", "absolute"),
        (
            "exec",
            with(json!({"command": "ls", "timeout_seconds": 0})),
            "INVALID_REQUEST",
            "1 to 600",
        ),
        ("exec", json!({"session_id": "x", "command": "ls"}), "SESSION_NOT_FOUND", "session"),
        ("read", with(json!({"path": "none"})), "NOT_FOUND", ""),
        ("read", with(json!({"path": "../../etc\0"})), "INVALID_PATH", ""),
        ("read", with(json!({"path": "/workspace"})), "NOT_REGULAR", ""),
        (
            "write",
            with(json!({"path": "a", "content": "%", "encoding": "base64"})),
            "INVALID_REQUEST",
            "base64",
        ),
        (
            "write",
            with(json!({"path": "a", "content": "", "encoding": "rot13"})),
            "INVALID_REQUEST",
            "text, base64",
        ),
        ("write", with(json!({"path": "/usr/bin/x", "content": ""})), "FORBIDDEN", ""),
        (
            "edit",
            with(json!({"path": "none", "old_string": "a", "new_string": "b"})),
            "NOT_FOUND",
            "",
        ),
        ("list", with(json!({"cursor": "?"})), "INVALID_REQUEST", "cursor"),
        ("run_code", json!({"language": "cobol", "code": ""}), "LANGUAGE_NOT_SUPPORTED", "cobol"),
        (
            "run_code",
            json!({"language": "shell", "code": "", "memory_mb": 1}),
            "INVALID_REQUEST",
            "memory_mb",
        ),
        ("environment_acquire", json!({}), "INVALID_REQUEST", "thread_id"),
        (
            "environment_acquire",
            json!({"thread_id": "t", "mode": "x"}),
            "INVALID_REQUEST",
            "ensure, get",
        ),
        ("environment_acquire", json!({"thread_id": "t"}), "IMAGE_REQUIRED", "image"),
        ("environment_heartbeat", json!({"session_id": "ssn_none"}), "BINDING_NOT_FOUND", ""),
        ("environment_release", json!({"session_id": "ssn_none"}), "SESSION_NOT_FOUND", ""),
    ];
    for (tool, arguments, code, says) in rows {
        let [found, message, _] = refused(daemon, &daemon.key, tool, arguments.clone()).await;
        assert_eq!(found, code, "{tool} {arguments}: {message}");
        assert!(message.contains(says), "{tool} {arguments}: {message}");
    }
    // What a command decides itself is no error of the tool.
    let ended = call(daemon, &daemon.key, "exec", with(json!({"command": "kill -9 $$"}))).await;
    assert_eq!(
        (&ended["isError"], text(&ended, "/structuredContent/signal")),
        (&json!(false), "SIGKILL")
    );
}

#[tokio::test]
async fn nobody_works_in_a_sandbox_that_is_not_his() {
    let scopes = Scopes::These(vec![Pattern::read("thread:of_users_*").unwrap()]);
    let user = Rule { capabilities: None, scopes };
    let sandboxed = Sandboxed::start_under(Policy { user, ..Policy::default() }).await;
    let daemon = sandboxed.daemon();
    let answer = ensure(daemon, "thr_1").await;
    let session = json!({"session_id": text(&answer, "/session_id")});
    let stranger = key(daemon, "other", Role::Admin, (ActorKind::Human, "eve")).await;
    let user = key(daemon, "default", Role::User, (ActorKind::Human, "ada")).await;
    for tool in ["list", "environment_heartbeat", "environment_refresh", "environment_release"] {
        let [code, ..] = refused(daemon, &stranger, tool, session.clone()).await;
        assert!(code.ends_with("_NOT_FOUND"), "{tool}: {code}");
        let [code, ..] = refused(daemon, &user, tool, session.clone()).await;
        assert_eq!(code, "FORBIDDEN", "{tool}");
    }
}

#[tokio::test]
async fn a_credential_is_good_for_its_capabilities_and_until_it_is_revoked() {
    let agent = model::capability::Asked::scope("fs:ro").unwrap().capabilities();
    let sandboxed = Sandboxed::start_under(Policy { agent, ..Policy::default() }).await;
    let daemon = sandboxed.daemon();
    let asked = json!({
        "thread_id": "thr_1", "mode": "ensure", "image": "host", "requested_capabilities": ["fs_read"],
    });
    let answer = crate::sessions::post(daemon, crate::sessions::SESSIONS, &asked).await.json();
    let (session, token) = (text(&answer, "/session_id"), text(&answer, "/token"));
    let robot = key(daemon, "default", Role::User, (ActorKind::Agent, "robot")).await;
    let needs = [
        ("exec", json!({"command": "true"}), "process"),
        ("write", json!({"path": "a", "content": ""}), "fs:rw"),
        ("edit", json!({"path": "a", "old_string": "a", "new_string": "b"}), "fs:rw"),
    ];
    for (tool, arguments, needed) in needs {
        let mut named = arguments.clone();
        named["session_id"] = session.into();
        for (credential, arguments) in
            [(token, &arguments), (token, &named), (robot.as_str(), &named)]
        {
            let [code, message, lacks] = refused(daemon, credential, tool, arguments.clone()).await;
            assert_eq!((code.as_str(), lacks.as_str()), ("CAPABILITY_DENIED", needed), "{tool}");
            assert!(message.contains(needed), "{message}");
        }
    }
    for tool in ["list", "glob", "grep"] {
        let arguments = json!({"pattern": "*"});
        let arguments = if tool == "list" { json!({}) } else { arguments };
        assert_eq!(call(daemon, token, tool, arguments).await["isError"], false, "{tool}");
    }
    // A token is for one sandbox, and for nothing beside it.
    let other = text(&ensure(daemon, "thr_2").await, "/session_id").to_owned();
    let [code, ..] = refused(daemon, token, "list", json!({"session_id": other})).await;
    assert_eq!(code, "SESSION_NOT_FOUND");
    for (tool, arguments) in [
        ("run_code", json!({"language": "shell", "code": "true"})),
        ("environment_acquire", json!({"thread_id": "thr_1"})),
        ("environment_release", json!({"session_id": session})),
    ] {
        let [code, message, _] = refused(daemon, token, tool, arguments).await;
        assert!(code == "FORBIDDEN" && message.contains("API key"), "{tool}: {code}");
    }
    let bearer = format!("Bearer {}", daemon.key);
    let form =
        [("Authorization", bearer.as_str()), ("Content-Type", "application/x-www-form-urlencoded")];
    let body = format!("token={token}");
    assert_eq!(daemon.ask("POST", "/oauth/revoke", &form, &body).await.status, 200);
    assert_eq!(send(daemon, token, &[], PING).await.problem(), (401, "UNAUTHENTICATED".into()));
}
