//! The Model Context Protocol, as its messages are: what is done, and what is refused in which way.

mod refused;

use model::actor::ActorKind;
use serde_json::{Value, json};
use store::keys::Role;

use crate::{
    sandboxed::Sandboxed,
    secrets::Lines,
    sessions::{ensure, text},
    support::{Answer, Daemon, key},
};

const ACCEPT: (&str, &str) = ("Accept", "application/json, text/event-stream");
const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Sends a body as it is.
pub(crate) async fn send(
    daemon: &Daemon,
    credential: &str,
    more: &[(&str, &str)],
    body: &str,
) -> Answer {
    let bearer = format!("Bearer {credential}");
    let headers = [&[("Authorization", bearer.as_str()), ACCEPT, JSON], more].concat();
    daemon.ask("POST", "/mcp", &headers, body).await
}

/// Asks for something; returns the message that answers it.
pub(crate) async fn ask(daemon: &Daemon, credential: &str, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    message(&send(daemon, credential, &[], &body.to_string()).await)
}

/// Returns the message of an answer, which may be in a stream of events.
pub(crate) fn message(answer: &Answer) -> Value {
    let data = answer.body.lines().find_map(|line| line.strip_prefix("data: {"));
    let text = data.map_or_else(|| answer.body.clone(), |rest| format!("{{{rest}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// Calls a tool; returns its result.
pub(crate) async fn call(daemon: &Daemon, credential: &str, tool: &str, arguments: Value) -> Value {
    let asked = json!({"name": tool, "arguments": arguments});
    let answer = ask(daemon, credential, "tools/call", asked).await;
    assert!(answer["result"].is_object(), "{answer}");
    answer["result"].clone()
}

/// Returns what a tool says that has done it.
async fn done(daemon: &Daemon, tool: &str, arguments: Value) -> Value {
    let result = call(daemon, &daemon.key, tool, arguments).await;
    assert_eq!(result["isError"], false, "{result}");
    result["structuredContent"].clone()
}

/// Returns the code, the message and the lacking capability of a tool that refuses.
pub(crate) async fn refused(
    daemon: &Daemon,
    credential: &str,
    tool: &str,
    arguments: Value,
) -> [String; 3] {
    let result = call(daemon, credential, tool, arguments).await;
    assert_eq!(result["isError"], true, "{result}");
    let error = &result["structuredContent"]["error"];
    let said = text(&result, "/content/0/text");
    let at = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    assert!(said.starts_with(&format!("{}: ", at("code"))), "{said}");
    assert!(at("request_id").starts_with("req_") && error["retryable"].is_boolean(), "{error}");
    [at("code"), at("message"), at("missing_capability")]
}

#[tokio::test]
async fn an_agent_gets_a_sandbox_and_works_in_it() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let acquire = json!({"thread_id": "thr_1", "image": "host"});
    let acquired = done(daemon, "environment_acquire", acquire.clone()).await;
    let again = done(daemon, "environment_acquire", acquire).await;
    let session = text(&acquired, "/session_id");
    assert_eq!(text(&again, "/session_id"), session);
    assert!(!acquired.to_string().contains("token\":\"ey"), "{acquired}");
    let written = json!({"session_id": session, "path": "a.txt", "content": "eins\nzwei\n"});
    let file = done(daemon, "write", written).await;
    assert_eq!(text(&file, "/file/path"), "/workspace/a.txt");
    let stale = json!({
        "session_id": session, "path": "a.txt", "content": "", "if_match": "\"another\"",
    });
    let [code, ..] = refused(daemon, &daemon.key, "write", stale).await;
    assert_eq!(code, "PRECONDITION_FAILED");
    let bytes = json!({
        "session_id": session, "path": "/workspace/b", "content": "/wA=", "encoding": "base64",
    });
    done(daemon, "write", bytes).await;
    let read = done(daemon, "read", json!({"session_id": session, "path": "b"})).await;
    assert_eq!((text(&read, "/content"), text(&read, "/encoding")), ("/wA=", "base64"));
    let read = json!({"session_id": session, "path": "a.txt", "lines": 1});
    let read = done(daemon, "read", read).await;
    assert_eq!((text(&read, "/content"), &read["truncated"]), ("eins\n", &json!(true)));
    let command = json!({
        "session_id": session, "command": "pwd; cat; echo $A", "stdin": "in\n", "env": {"A": "b"},
    });
    let ran = done(daemon, "exec", command).await;
    assert_eq!((text(&ran, "/stdout"), &ran["exit_code"]), ("/workspace\nin\nb\n", &json!(0)));
    let much = json!({
        "session_id": session, "command": "seq 100000", "max_output_bytes": 256,
    });
    let ran = done(daemon, "exec", much).await;
    let (shown, omitted) = (text(&ran, "/stdout"), ran["stdout_omitted_bytes"].as_u64().unwrap());
    assert!(shown.starts_with("1\n2\n") && shown.ends_with("\n100000\n"), "{shown}");
    assert!(shown.contains(&format!("{omitted} bytes are left out")) && shown.len() < 400);
    let code = json!({"language": "shell", "code": "echo $((6 * 7)); exit 3"});
    let ran = done(daemon, "run_code", code).await;
    assert_eq!((text(&ran, "/stdout"), &ran["exit_code"]), ("42\n", &json!(3)));
    let late = json!({"language": "shell", "code": "echo a; sleep 60", "timeout_seconds": 1});
    let late = call(daemon, &daemon.key, "run_code", late).await;
    assert_eq!(text(&late, "/structuredContent/error/code"), "TIMEOUT");
    assert_eq!(text(&late, "/structuredContent/stdout"), "a\n");
    done(daemon, "environment_release", json!({"session_id": session})).await;
    let [code, ..] = refused(daemon, &daemon.key, "list", json!({"session_id": session})).await;
    assert_eq!(code, "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn a_token_is_given_out_only_when_asked_for_never_in_text_and_on_record_before() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let asked = json!({"thread_id": "thr_1", "image": "host", "include_token": true});
    let result = call(daemon, &daemon.key, "environment_acquire", asked).await;
    let token = text(&result, "/structuredContent/token");
    assert!(!text(&result, "/content/0/text").contains(token));
    let session = text(&result, "/structuredContent/session_id");
    let refreshed = done(daemon, "environment_refresh", json!({"session_id": session})).await;
    let method = json!({"thread_id": "thr_1", "mode": "get"});
    let method = ask(daemon, &daemon.key, "environment/acquire", method).await;
    let path = "/v1/audit?order=asc&limit=1000";
    let log = daemon.ask("GET", path, &[("X-Api-Key", &daemon.key)], "").await.json();
    let records = log["records"].as_array().unwrap();
    for token in [token, text(&refreshed, "/token"), text(&method, "/result/token")] {
        let jti = jti(daemon, token).await;
        let found = records.iter().find(|record| record["jti"] == jti).unwrap();
        assert_eq!(found["outcome"], "granted");
        assert!(text(found, "/request_id").starts_with("req_"), "{found}");
        assert_eq!(found["session"], session);
    }
}

/// Returns what a token is called.
pub(crate) async fn jti(daemon: &Daemon, token: &str) -> String {
    let bearer = format!("Bearer {}", daemon.key);
    let headers =
        [("Authorization", bearer.as_str()), ("Content-Type", "application/x-www-form-urlencoded")];
    let body = format!("token={token}");
    let said = daemon.ask("POST", "/oauth/introspect", &headers, &body).await.json();
    text(&said, "/jti").to_owned()
}

/// What programs that know us use instead of tools.
#[tokio::test]
async fn environments_are_methods_too_with_the_fields_of_the_routes() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let by = async |method: &str, params: Value| ask(daemon, &daemon.key, method, params).await;
    let scope = json!({
        "scope": {"type": "workspace", "id": "w"}, "mode": "ensure", "image": "host",
    });
    let acquired = by("environment/acquire", scope).await;
    let session = json!({"session_id": text(&acquired, "/result/session_id")});
    let token = text(&acquired, "/result/token").to_owned();
    let beat = by("environment/heartbeat", session.clone()).await;
    assert_eq!(beat["result"]["binding"]["id"], session["session_id"]);
    let mut next = session.clone();
    next["current_token"] = token.into();
    let refreshed = by("environment/refresh", next).await;
    assert!(refreshed["result"]["token"].is_string(), "{refreshed}");
    assert_eq!(by("environment/release", session.clone()).await["result"], json!({}));
    let gone = by("environment/heartbeat", session).await;
    let error = &gone["error"];
    assert_eq!(
        (&error["code"], &error["data"]["code"]),
        (&(-32000).into(), &"BINDING_NOT_FOUND".into())
    );
    for (method, params, code) in [
        ("environment/acquire", json!({"mode": "ensure"}), "INVALID_REQUEST"),
        ("environment/refresh", json!({}), "INVALID_REQUEST"),
        ("environment/release", json!({"session_id": 7}), "INVALID_REQUEST"),
    ] {
        assert_eq!(by(method, params).await["error"]["data"]["code"], code, "{method}");
    }
    assert_eq!(by("environment/destroy", json!({})).await["error"]["code"], -32601);
}

/// By the message that says so, and by going away.
#[tokio::test]
async fn a_request_that_is_taken_back_ends_its_command_and_no_other() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let session = text(&ensure(daemon, "thr_1").await, "/session_id").to_owned();
    let first = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }});
    let hello = async || {
        let answer = send(daemon, &daemon.key, &[], &first.to_string()).await;
        let name = answer.head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        name.unwrap().to_owned()
    };
    let (one, other) = (hello().await, hello().await);
    let exec = |command: &str| {
        let arguments = json!({"session_id": session, "command": command});
        let params = json!({"name": "exec", "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).to_string()
    };
    let as_one = [("Mcp-Session-Id", one.as_str())];
    let as_other = [("Mcp-Session-Id", other.as_str())];
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7},
    })
    .to_string();
    let plain = exec("mkfifo a");
    assert_eq!(message(&send(daemon, &daemon.key, &[], &plain).await)["result"]["isError"], false);
    let long = exec("echo $$ > pid; echo > a; sleep 600");
    let begun = exec("cat a");
    let waits = async {
        send(daemon, &daemon.key, &[], &begun).await;
        // Another client has no request of this name, whatever it calls its own.
        assert_eq!(send(daemon, &daemon.key, &as_other, &cancel).await.status, 202);
        assert_eq!(send(daemon, &daemon.key, &as_one, &cancel).await.status, 202);
    };
    let (answer, ()) = tokio::join!(send(daemon, &daemon.key, &as_one, &long), waits);
    assert_eq!(message(&answer)["result"]["isError"], true, "{answer:?}");
    let gone = exec("while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done");
    assert_eq!(message(&send(daemon, &daemon.key, &[], &gone).await)["result"]["isError"], false);
    // Nobody is there for the answer.
    tokio::select! {
        _ = send(daemon, &daemon.key, &[], &long) => panic!("it does not end by itself"),
        _ = send(daemon, &daemon.key, &[], &begun) => {}
    }
    assert_eq!(message(&send(daemon, &daemon.key, &[], &gone).await)["result"]["isError"], false);
}

/// I13: whoever may not any more has nothing running, whichever credential it came with.
#[tokio::test]
async fn a_credential_that_is_revoked_ends_the_command_that_it_runs() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let session = ensure(daemon, "thr_1").await;
    let named = json!({"session_id": text(&session, "/session_id")});
    let exec = |command: &str| {
        let mut arguments = named.clone();
        arguments["command"] = command.into();
        arguments
    };
    let robot = key(daemon, "default", Role::User, (ActorKind::Agent, "robot")).await;
    let keys = daemon.ask("GET", "/v1/admin/keys", &[("X-Api-Key", &daemon.key)], "").await.json();
    let found = |key: &&Value| key["actor"]["id"] == "robot";
    let id = text(keys["keys"].as_array().unwrap().iter().find(found).unwrap(), "/id").to_owned();
    done(daemon, "exec", exec("mkfifo a")).await;
    for (credential, is_key) in [(robot.as_str(), true), (text(&session, "/token"), false)] {
        let long = call(daemon, credential, "exec", exec("echo $$ > pid; echo > a; sleep 600"));
        let ended = async {
            // It runs when this has been read.
            done(daemon, "exec", exec("cat a")).await;
            let answer = if is_key {
                let path = format!("/v1/admin/keys/{id}");
                daemon.ask("DELETE", &path, &[("X-Api-Key", &daemon.key)], "").await
            } else {
                let form = [("Content-Type", "application/x-www-form-urlencoded")];
                let body = format!("token={credential}");
                daemon.ask("POST", "/oauth/revoke", &form, &body).await
            };
            assert!((200..300).contains(&answer.status), "{}", answer.body);
        };
        let (result, ()) = tokio::join!(long, ended);
        assert_eq!(result["isError"], true, "{result}");
        assert_eq!(text(&result, "/structuredContent/error/code"), "UNAUTHENTICATED");
        let gone = "while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done";
        done(daemon, "exec", exec(gone)).await;
        assert_eq!(send(daemon, credential, &[], "{}").await.problem().0, 401);
    }
}

/// I18.
#[tokio::test]
async fn messages_are_in_no_log_line_at_any_level() {
    use tracing_subscriber::{filter::filter_fn, fmt, layer::SubscriberExt as _};
    let lines = Lines::default();
    let layer = fmt::layer().with_writer(lines.clone()).with_ansi(false);
    let discreet = filter_fn(daemon::logging::is_discreet);
    let subscriber = tracing_subscriber::registry().with(discreet).with(layer);
    let _listening = tracing::subscriber::set_default(subscriber);
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let asked = json!({"thread_id": "thr_1", "image": "host", "include_token": true});
    let acquired = done(daemon, "environment_acquire", asked).await;
    let session = text(&acquired, "/session_id");
    let command = json!({"session_id": session, "command": "echo canary", "stdin": "canary"});
    done(daemon, "exec", command).await;
    let write = json!({"session_id": session, "path": "canary", "content": "canary"});
    done(daemon, "write", write).await;
    call(daemon, &daemon.key, "exec", json!({"canary": "canary"})).await;
    ask(daemon, &daemon.key, "canary/canary", json!({"canary": 1})).await;
    let log = lines.text();
    let token = text(&acquired, "/token");
    let shown: Vec<&str> =
        log.lines().filter(|line| line.contains("canary") || line.contains(token)).collect();
    assert!(shown.is_empty() && log.contains("files changed"), "{shown:#?}");
}

#[tokio::test]
async fn a_session_is_shown_to_agents_as_a_task_that_opens_nothing() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let session = ensure(daemon, "thr_1").await;
    let path = format!("/v1/sandbox/sessions/{}/a2a", text(&session, "/session_id"));
    let task = crate::sessions::ask(daemon, "GET", &path).await.json();
    let endpoint = format!("http://{}/dp/{}", daemon.address, text(&session, "/sandbox/id"));
    assert_eq!(
        (&task["id"], &task["contextId"], text(&task, "/status/state")),
        (&session["session_id"], &session["sandbox"]["id"], "TASK_STATE_WORKING")
    );
    let environment = &task["metadata"]["urn:ringfence:environment:1"];
    for name in ["session_id", "thread_id", "sandbox", "binding", "dataplane", "policy", "image"] {
        assert_eq!(environment[name], session[name], "{name}");
    }
    assert_eq!(text(&task, "/artifacts/0/parts/0/url"), format!("{endpoint}/files/"));
    assert_eq!(text(&task, "/artifacts/1/parts/0/url"), format!("{endpoint}/v1/exec"));
    assert!(!task.to_string().contains("token"), "{task}");
    let stranger = key(daemon, "other", Role::Admin, (ActorKind::Human, "eve")).await;
    let not_found = (404, "SESSION_NOT_FOUND".to_owned());
    let asked =
        async |key: &str, path: &str| daemon.ask("GET", path, &[("X-Api-Key", key)], "").await;
    assert_eq!(asked(&stranger, &path).await.problem(), not_found);
    let unknown = path.replace("ssn_", "ssn_0");
    assert_eq!(asked(&daemon.key, &unknown).await.problem(), not_found);
    assert_eq!(daemon.ask("GET", &path, &[], "").await.problem().0, 401);
}
