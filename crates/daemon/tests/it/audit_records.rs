//! The audit log answers who changed or destroyed which sandbox, and who read which file, on every surface.

use std::time::Duration;

use api::agbox::v1;
use engine::sessions::Settings;
use model::{actor::ActorKind, lease::Terms, spec::SandboxSpec};
use serde_json::{Value, json};
use store::keys::Role;

use crate::{
    caller::{Connection, refused},
    mcp,
    sandboxed::{Sandboxed, create, until},
    support::{Answer, Daemon, PATIENCE, key},
};

const SESSIONS: &str = "/v1/sandbox/sessions";
const BOXES: &str = "/v2/sandboxes/boxes";

async fn ask(daemon: &Daemon, key: &str, method: &str, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    daemon.ask(method, path, &headers, &body).await
}

async fn log(daemon: &Daemon) -> Vec<Value> {
    let path = "/v1/audit?order=asc&limit=1000";
    let answer = ask(daemon, &daemon.key, "GET", path, &Value::Null).await;
    answer.json()["records"].as_array().unwrap().clone()
}

/// Reads the log step by step.
struct Log<'a> {
    daemon: &'a Daemon,
    read: usize,
}

impl Log<'_> {
    async fn news(&mut self) -> Vec<Value> {
        let all = log(self.daemon).await;
        let news = all.get(self.read..).unwrap_or_default().to_vec();
        self.read = all.len();
        news
    }

    /// Expects one record of this action and outcome, of the same request, that has these fields.
    async fn one(
        &mut self,
        what: &str,
        request: Option<&str>,
        expected: (&str, &str, &[&str]),
    ) -> Value {
        let (action, outcome, fields) = expected;
        let news = self.news().await;
        let [record] = news.as_slice() else { panic!("{what}: {news:#?}") };
        assert_eq!(
            (&record["action"], &record["outcome"]),
            (&json!(action), &json!(outcome)),
            "{what}"
        );
        for field in ["request_id"].iter().chain(fields) {
            assert!(record[field].is_string(), "{what} has no {field}: {record:#}");
        }
        if let Some(request) = request {
            assert_eq!(record["request_id"], request, "{what}");
        }
        record.clone()
    }
}

/// Checks that one of these records is of this action and granted, for this file of this sandbox.
fn one_of_file(what: &str, news: &[Value], action: &str, sandbox: &str) {
    let records: Vec<&Value> = news.iter().filter(|it| it["action"] == action).collect();
    let [record] = records.as_slice() else { panic!("{what}: {news:#?}") };
    for field in ["actor_id", "key_id", "tenant", "request_id"] {
        assert!(record[field].is_string(), "{what} has no {field}: {record:#}");
    }
    let found = ["outcome", "object", "sandbox"].map(|field| record[field].as_str().unwrap());
    assert_eq!(found, ["granted", "/workspace/a.txt", sandbox], "{what}");
}

fn request_of(answer: &Answer) -> &str {
    let line = answer.head.lines().find_map(|line| line.strip_prefix("x-request-id: "));
    line.unwrap_or_else(|| panic!("{}", answer.head))
}

const BY: [&str; 4] = ["actor_id", "key_id", "tenant", "request_id"];
const SESSION: [&str; 6] = ["actor_id", "key_id", "tenant", "session", "scope", "sandbox"];

#[tokio::test]
async fn every_change_of_a_session_or_sandbox_over_http_has_one_record_that_names_it() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let mut log = Log { daemon, read: 0 };
    log.news().await;
    let ensure = |thread: &str| json!({"thread_id": thread, "mode": "ensure", "image": "host"});
    let first = ask(daemon, &daemon.key, "POST", SESSIONS, &ensure("one")).await;
    log.one("acquire", Some(request_of(&first)), ("session.acquire", "granted", &SESSION)).await;
    let (first, empty) = (first.json(), json!({}));
    let at = format!("{SESSIONS}/{}", first["session_id"].as_str().unwrap());
    let killed = ask(daemon, &daemon.key, "POST", SESSIONS, &ensure("killed")).await.json();
    let killed = format!("/internal/sandboxes/{}/kill", killed["sandbox"]["id"].as_str().unwrap());
    for thread in ["destroyed", "archived", "ended"] {
        let path = format!("/threads/{thread}/sandbox");
        let body = json!({"image": "host"});
        assert_eq!(ask(daemon, &daemon.key, "POST", &path, &body).await.status, 200);
    }
    log.news().await;
    let snapshot = json!({"name": "a-box", "snapshot_name": "host", "wait_for_ready": true});
    let named = json!({"name": "ci"});
    let box_fields: &[&str] = &["actor_id", "key_id", "tenant", "sandbox"];
    let rows: [(&str, String, &Value, &str, &[&str]); 14] = [
        ("POST", format!("{at}/heartbeat"), &empty, "session.heartbeat", &SESSION),
        ("POST", format!("{at}/refresh-token"), &empty, "session.refresh", &SESSION),
        ("DELETE", at.clone(), &Value::Null, "session.release", &SESSION),
        ("DELETE", "/threads/destroyed/sandbox".into(), &Value::Null, "session.release", &SESSION),
        ("POST", "/threads/archived/archive".into(), &empty, "session.release", &SESSION),
        ("DELETE", "/threads/ended".into(), &Value::Null, "session.release", &SESSION),
        ("POST", killed, &Value::Null, "sandbox.kill", &SESSION),
        ("POST", BOXES.into(), &snapshot, "sandbox.create", box_fields),
        ("POST", format!("{BOXES}/a-box/stop"), &empty, "sandbox.stop", box_fields),
        ("POST", format!("{BOXES}/a-box/start"), &empty, "sandbox.resume", box_fields),
        ("DELETE", format!("{BOXES}/a-box"), &Value::Null, "sandbox.delete", box_fields),
        ("POST", "/v1/admin/keys".into(), &named, "key.create", &["actor_id", "key_id", "object"]),
        ("DELETE", format!("{SESSIONS}/ses_nobody"), &Value::Null, "", &BY),
        ("DELETE", format!("{BOXES}/nothing"), &Value::Null, "", &BY),
    ];
    for (method, path, body, action, fields) in rows {
        let answer = ask(daemon, &daemon.key, method, &path, body).await;
        let what = format!("{method} {path}: {} {}", answer.status, answer.body);
        if action.is_empty() {
            // What is refused is recorded as well, and never as granted.
            let news = log.news().await;
            assert!(answer.status >= 400 && news.len() == 1, "{what}: {news:#?}");
            assert_ne!(news[0]["outcome"], "granted", "{what}");
            assert_eq!(news[0]["request_id"], request_of(&answer), "{what}");
            continue;
        }
        assert!(answer.status < 300, "{what}");
        log.one(&what, Some(request_of(&answer)), (action, "granted", fields)).await;
    }
}

#[tokio::test]
async fn every_use_of_a_file_has_one_record_with_its_path_and_its_outcome() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let spec = SandboxSpec { image: "host".to_owned(), ..SandboxSpec::default() };
    let tenant = "default".parse().unwrap();
    let made = sandboxed.sandboxes.create(&tenant, None, spec).await.unwrap();
    let id = sandboxed.sandboxes.settled(made).await.unwrap().id;
    let body = json!({"sandbox": id.as_str(), "scope": "fs:rw process"});
    let minted = ask(daemon, &daemon.key, "POST", "/v1/admin/tokens", &body).await.json();
    let token = minted["token"].as_str().unwrap();
    let mut log = Log { daemon, read: 0 };
    log.news().await;
    let file = "/workspace/a.txt";
    let in_workspace = json!({"path": "/workspace", "pattern": "*"});
    let made = json!({"path": "/workspace/d"});
    let edited = json!({"path": file, "old_string": "text", "new_string": "word"});
    let moved = json!({"from": file, "to": "/workspace/b.txt"});
    let text = json!("text");
    let rows: [(&str, &str, &Value, &str, &str); 14] = [
        ("PUT", "/files/workspace/a.txt", &text, "file.write", file),
        ("GET", "/files/workspace/a.txt", &Value::Null, "file.read", file),
        ("HEAD", "/files/workspace/a.txt", &Value::Null, "file.list", file),
        ("GET", "/v1/files/download?path=/workspace/a.txt", &Value::Null, "file.read", file),
        ("GET", "/v1/files/list?path=/workspace", &Value::Null, "file.list", "/workspace"),
        ("GET", "/v1/files/stat?path=/workspace/a.txt", &Value::Null, "file.list", file),
        ("POST", "/v1/files/glob", &in_workspace, "file.list", "/workspace"),
        ("POST", "/v1/files/grep", &in_workspace, "file.read", "/workspace"),
        ("POST", "/v1/files/mkdir", &made, "file.write", "/workspace/d"),
        ("POST", "/v1/files/edit", &edited, "file.write", file),
        ("GET", "/v1/download?path=/workspace/a.txt", &Value::Null, "file.read", file),
        ("POST", "/v1/files/move", &moved, "file.write", "/workspace/a.txt to /workspace/b.txt"),
        ("DELETE", "/files/workspace/b.txt", &Value::Null, "file.write", "/workspace/b.txt"),
        ("GET", "/files/workspace/b.txt", &Value::Null, "denied", "/workspace/b.txt"),
    ];
    let fields = ["actor_id", "key_id", "tenant", "sandbox", "jti", "object", "reason"];
    for (method, path, body, action, object) in rows {
        let answer = ask(daemon, token, method, &format!("/dp/{id}{path}"), body).await;
        let what = format!("{method} {path}: {} {}", answer.status, answer.body);
        let (action, outcome) =
            if action == "denied" { ("file.read", "denied") } else { (action, "granted") };
        let record = log.one(&what, Some(request_of(&answer)), (action, outcome, &fields)).await;
        assert_eq!((&record["object"], &record["jti"]), (&json!(object), &minted["jti"]), "{what}");
        assert_eq!(record["sandbox"], id.as_str());
    }
    // What has no record of its own is recorded by its route.
    let answer = ask(daemon, token, "GET", &format!("/dp/{id}/v1/access"), &Value::Null).await;
    let record = log
        .one("access", Some(request_of(&answer)), ("access", "granted", &["jti", "object"]))
        .await;
    assert_eq!(record["object"], "/dp/{sandbox_id}/v1/access");
}

#[tokio::test]
async fn every_change_over_grpc_has_one_record_with_its_request_and_its_real_outcome() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let mut log = Log { daemon, read: 0 };
    let connection = Connection::tcp(daemon.address, &[("x-api-key", &daemon.key)]).await;
    let mut client = connection.client();
    log.news().await;
    let fields: &[&str] = &["actor_id", "key_id", "tenant", "sandbox"];
    client.create_sandbox(create("one-box")).await.unwrap();
    log.one("create", None, ("sandbox.create", "granted", fields)).await;
    until(&mut client, "one-box", v1::SandboxState::Ready).await;
    let sandbox_id = "one-box".to_owned();
    let command = vec!["sleep".to_owned(), "100".to_owned()];
    let exec =
        v1::CreateExecRequest { sandbox_id: sandbox_id.clone(), command, ..Default::default() };
    let started = client.create_exec(exec).await.unwrap().into_inner();
    let with_object: &[&str] = &["actor_id", "key_id", "tenant", "sandbox", "object"];
    log.one("exec", None, ("exec.start", "granted", with_object)).await;
    let exec_id = started.exec_id;
    client.cancel_exec(v1::CancelExecRequest { exec_id }).await.unwrap();
    log.one("cancel", None, ("exec.cancel", "granted", with_object)).await;
    client.stop_sandbox(v1::StopSandboxRequest { sandbox_id: sandbox_id.clone() }).await.unwrap();
    log.one("stop", None, ("sandbox.stop", "granted", fields)).await;
    client.delete_sandbox(v1::DeleteSandboxRequest { sandbox_id }).await.unwrap();
    log.one("delete", None, ("sandbox.delete", "granted", fields)).await;
    let missing = "nothing-here".to_owned();
    refused(client.stop_sandbox(v1::StopSandboxRequest { sandbox_id: missing.clone() }).await);
    log.one("stop of nothing", None, ("sandbox.stop", "denied", &BY)).await;
    let empty = v1::DeleteSandboxesRequest::default();
    refused(client.delete_sandboxes(empty).await);
    log.one("delete without a selector", None, ("access", "denied", &BY)).await;
    // A key that nobody has, and one that may not.
    let wrong = Connection::tcp(daemon.address, &[("x-api-key", "rf_nobody")]).await;
    refused(wrong.client().delete_sandbox(v1::DeleteSandboxRequest { sandbox_id: missing }).await);
    let record = log.one("wrong key", None, ("access", "denied", &["reason"])).await;
    assert_eq!(record["reason"], "UNAUTHENTICATED");
    let other = key(daemon, "other", Role::User, (ActorKind::Human, "eve")).await;
    log.news().await;
    let foreign = Connection::tcp(daemon.address, &[("x-api-key", &other)]).await;
    let theirs = v1::DeleteSandboxRequest { sandbox_id: "one-box".to_owned() };
    refused(foreign.client().delete_sandbox(theirs).await);
    let record = log.one("another tenant", None, ("sandbox.delete", "denied", &BY)).await;
    assert_eq!(record["tenant"], "other");
}

#[tokio::test]
async fn a_session_that_ends_by_its_hard_ttl_has_a_record() {
    let terms = Terms {
        lease: PATIENCE,
        hard_ttl: Duration::from_secs(2),
        release_grace: Duration::from_secs(1),
    };
    let sandboxed = Sandboxed::start_on(Settings { terms, idle: None }).await;
    let daemon = sandboxed.daemon();
    let ensure = json!({"thread_id": "one", "mode": "ensure", "image": "host"});
    let session = ask(daemon, &daemon.key, "POST", SESSIONS, &ensure).await.json();
    let path = format!("{SESSIONS}/{}", session["session_id"].as_str().unwrap());
    while ask(daemon, &daemon.key, "GET", &path, &Value::Null).await.status == 200 {}
    let record = loop {
        let path = "/v1/audit?action=session.expire";
        let found = ask(daemon, &daemon.key, "GET", path, &Value::Null).await.json();
        if let Some(record) = found["records"].get(0) {
            break record.clone();
        }
    };
    assert_eq!(record["reason"], "hard_ttl");
    assert_eq!(record["scope"], "thread:one");
    assert_eq!(
        (&record["session"], &record["sandbox"]),
        (&session["session_id"], &session["sandbox"]["id"])
    );
}

#[tokio::test]
async fn a_session_whose_place_another_takes_has_a_record_that_names_its_sandbox() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let mut log = Log { daemon, read: 0 };
    let body = |mode: &str| json!({"thread_id": "one", "mode": mode, "image": "host"});
    let first = ask(daemon, &daemon.key, "POST", SESSIONS, &body("ensure")).await.json();
    let path = format!("{SESSIONS}/{}", first["session_id"].as_str().unwrap());
    assert_eq!(ask(daemon, &daemon.key, "DELETE", &path, &Value::Null).await.status, 204);
    log.news().await;
    // The released sandbox is not taken back: it is deleted.
    let answer = ask(daemon, &daemon.key, "POST", SESSIONS, &body("create_only")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let (second, news) = (answer.json(), log.news().await);
    let [expired, acquired] = news.as_slice() else { panic!("{news:#?}") };
    assert_eq!(
        (&expired["action"], &expired["reason"]),
        (&json!("session.expire"), &json!("released"))
    );
    assert_eq!(acquired["action"], "session.acquire");
    for (record, session) in [(expired, &first), (acquired, &second)] {
        assert_eq!(record["outcome"], "granted");
        assert_eq!(record["session"], session["session_id"]);
        assert_eq!(record["sandbox"], session["sandbox"]["id"]);
        assert_eq!(record["request_id"], request_of(&answer));
        for field in SESSION {
            assert!(record[field].is_string(), "{field}: {record:#}");
        }
    }
}

#[tokio::test]
async fn files_read_by_tools_of_agents_and_by_links_have_a_record_with_their_path() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let mut log = Log { daemon, read: 0 };
    let ensure = json!({"thread_id": "one", "mode": "ensure", "image": "host"});
    let session = ask(daemon, &daemon.key, "POST", SESSIONS, &ensure).await.json();
    let sandbox = session["sandbox"]["id"].as_str().unwrap();
    let tools = [
        ("write", json!({"path": "/workspace/a.txt", "content": "text"}), "file.write"),
        ("read", json!({"path": "/workspace/a.txt"}), "file.read"),
    ];
    for (tool, mut arguments, action) in tools {
        arguments["session_id"] = session["session_id"].clone();
        log.news().await;
        let result = mcp::call(daemon, &daemon.key, tool, arguments).await;
        assert_eq!(result["isError"], false, "{result}");
        one_of_file(tool, &log.news().await, action, sandbox);
    }
    let path = format!("{BOXES}/{sandbox}/download-url");
    let wanted = json!({"path": "/workspace/a.txt"});
    let given = ask(daemon, &daemon.key, "POST", &path, &wanted).await;
    one_of_file("a link is given out", &log.news().await, "link.mint", sandbox);
    let url = given.json()["download_url"].as_str().unwrap().to_owned();
    let (_, path) = url.split_once(&daemon.address.to_string()).unwrap();
    let read = daemon.ask("GET", path, &[], "").await;
    assert_eq!((read.status, read.body.as_str()), (200, "text"));
    one_of_file("a link is used", &log.news().await, "file.read", sandbox);
}
