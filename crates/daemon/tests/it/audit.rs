//! The audit log: what is in it, who reads it, and what happens without it.

use std::process::Command;

use api::{
    agbox::v1,
    ringfence::v1::{
        PullImageRequest, RemoveImageRequest, image_service_client::ImageServiceClient,
    },
};
use daemon::audit::{Expected, verify};
use harness::{
    imaging::small_system,
    registry::{Fake, honest},
};
use model::{actor::ActorKind, ids::SandboxId, spec::SandboxSpec};
use serde_json::{Value, json};
use store::keys::Role;

use crate::{
    caller::Connection,
    sandboxed::{Sandboxed, create, shell, until},
    support::{Answer, Daemon, key},
};

async fn ask(daemon: &Daemon, key: &str, method: &str, path: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    daemon.ask(method, path, &headers, body).await
}

async fn sandbox(sandboxed: &Sandboxed) -> SandboxId {
    let spec = SandboxSpec { image: "host".to_owned(), ..SandboxSpec::default() };
    let tenant = "default".parse().unwrap();
    let sandbox = sandboxed.sandboxes.create(&tenant, None, spec).await.unwrap();
    sandboxed.sandboxes.settled(sandbox).await.unwrap().id
}

async fn mint(daemon: &Daemon, key: &str, sandbox: &SandboxId, scope: &str) -> Answer {
    let body = json!({"sandbox": sandbox.as_str(), "scope": scope}).to_string();
    ask(daemon, key, "POST", "/v1/admin/tokens", &body).await
}

/// Returns all records, oldest first, after verifying them.
async fn log(daemon: &Daemon) -> Vec<Value> {
    let answer = ask(daemon, &daemon.key, "GET", "/v1/audit?order=asc&limit=1000", "").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let page = answer.json();
    assert_eq!(page["next_cursor"], Value::Null);
    let records = page["records"].as_array().unwrap().clone();
    let typed: Vec<api::audit::AuditRecord> =
        serde_json::from_value(page["records"].clone()).unwrap();
    let lines = typed.iter().map(|record| Ok(serde_json::to_string(record).unwrap()));
    let checkpoint = page["checkpoint"].as_str().unwrap().to_owned();
    let expected = Expected { checkpoints: vec![checkpoint], ..Expected::default() };
    let verified = verify(lines, &expected).unwrap();
    assert_eq!(page["checkpoint"], verified.checkpoint);
    records
}

fn find<'a>(log: &'a [Value], action: &str, outcome: &str) -> &'a Value {
    let mut found = log.iter().filter(|it| it["action"] == action && it["outcome"] == outcome);
    let first = found.next();
    first.unwrap_or_else(|| panic!("no {action} {outcome} in {log:#?}"))
}

fn request_of(answer: &Answer) -> &str {
    let line = answer.head.lines().find_map(|line| line.strip_prefix("x-request-id: "));
    line.unwrap_or_else(|| panic!("{}", answer.head))
}

/// I23.
#[tokio::test]
async fn grants_and_refusals_are_recorded_with_who_what_and_until_when() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let id = sandbox(&sandboxed).await;
    let answer = mint(daemon, &daemon.key, &id, "fs:rw exec").await;
    let minted = answer.json();
    let record = find(&log(daemon).await, "token.mint", "granted").clone();
    let expires = record["expires_at"].as_i64().unwrap();
    assert_eq!(daemon::clock::text_of_millis(expires), minted["expires_at"].as_str().unwrap());
    let expected = json!({
        "action": "token.mint", "actor_id": "admin", "actor_type": "human", "audience": id.as_str(),
        "capabilities": "fs:rw process", "expires_at": expires, "hash": record["hash"],
        "jti": minted["jti"], "key_id": record["key_id"], "outcome": "granted",
        "previous": record["previous"], "request_id": request_of(&answer), "sandbox": id.as_str(),
        "sequence": record["sequence"], "subject": "human:admin", "tenant": "default",
        "time": record["time"],
    });
    assert_eq!(record, expected);

    let robot = key(daemon, "default", Role::Admin, (ActorKind::Agent, "somebody")).await;
    let refused = mint(daemon, &robot, &id, "shell").await;
    assert_eq!(refused.problem(), (403, "CAPABILITY_DENIED".into()));
    let denied = find(&log(daemon).await, "token.mint", "denied").clone();
    assert_eq!(
        (&denied["reason"], &denied["actor_id"], &denied["request_id"]),
        (&json!("CAPABILITY_DENIED"), &json!("somebody"), &refused.json()["error"]["request_id"])
    );
    let user = key(daemon, "default", Role::User, (ActorKind::Human, "somebody")).await;
    assert_eq!(mint(daemon, &user, &id, "").await.status, 403);
    for _ in 0..20 {
        assert_eq!(mint(daemon, "rf_wrong", &id, "").await.status, 401);
    }
    let log = log(daemon).await;
    let refusals: Vec<&Value> = log.iter().filter(|it| it["action"] == "access").collect();
    assert!(refusals.iter().any(|it| it["reason"] == "FORBIDDEN"), "{refusals:#?}");
    let strangers = refusals.iter().filter(|it| it["reason"] == "UNAUTHENTICATED");
    let count: u64 = strangers.map(|it| it["count"].as_u64().unwrap_or(1)).sum();
    assert_eq!(count, 20);
}

#[tokio::test]
async fn keys_and_sandboxes_are_recorded_as_they_come_and_go() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let created = ask(daemon, &daemon.key, "POST", "/v1/admin/keys", r#"{"name":"ci"}"#).await;
    let id = created.json()["key"]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/admin/keys/{id}");
    assert_eq!(ask(daemon, &daemon.key, "DELETE", &path, "").await.status, 204);
    assert_eq!(ask(daemon, &daemon.key, "DELETE", "/v1/admin/keys/key_0", "").await.status, 404);
    let body = r#"{"name":"a-box","snapshot_name":"host"}"#;
    let boxes = "/v2/sandboxes/boxes";
    let made = ask(daemon, &daemon.key, "POST", boxes, body).await.json();
    let again = ask(daemon, &daemon.key, "POST", boxes, body).await;
    assert_eq!(again.status, 409, "{}", again.body);
    let path = format!("{boxes}/a-box");
    assert_eq!(ask(daemon, &daemon.key, "DELETE", &path, "").await.status, 204);
    let log = log(daemon).await;
    let told: Vec<_> = log
        .iter()
        .map(|it| {
            let what = if it["sandbox"].is_null() { &it["object"] } else { &it["sandbox"] };
            (it["action"].as_str().unwrap(), it["outcome"].as_str().unwrap(), what.as_str())
        })
        .collect();
    let (key, sandbox) = (Some(id.as_str()), made["id"].as_str());
    for expected in [
        ("key.create", "granted", key),
        ("key.revoke", "granted", key),
        ("key.revoke", "denied", Some("key_0")),
        ("sandbox.create", "granted", sandbox),
        ("sandbox.create", "denied", None),
        ("sandbox.delete", "granted", sandbox),
    ] {
        let count = told.iter().filter(|told| **told == expected).count();
        assert_eq!(count, 1, "{expected:?} in {told:#?}");
    }
    // The first key is made by nobody who has one.
    assert_eq!((told[0].0, &log[0]["reason"]), ("key.create", &json!("on the machine itself")));
}

/// The canary: what is secret or content is in no record, wherever a caller has put it.
#[tokio::test]
async fn the_data_plane_is_recorded_by_jti_and_never_by_content() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let id = sandbox(&sandboxed).await;
    let minted = mint(daemon, &daemon.key, &id, "fs:rw process").await.json();
    let reading = mint(daemon, &daemon.key, &id, "fs:ro").await.json();
    let (token, jti) = (minted["token"].as_str().unwrap(), &minted["jti"]);
    let at = |path: &str| format!("/dp/{id}{path}");
    let body = r#"{"command":["echo","canary-command"],"env":{"A":"canary-env"}}"#;
    let ran = ask(daemon, token, "POST", &at("/v1/exec"), body).await;
    assert_eq!(ran.status, 200, "{}", ran.body);
    let put = ask(daemon, token, "PUT", &at("/files/workspace/a-path"), "canary-text").await;
    assert!(put.status < 300, "{} {}", put.status, put.body);
    let weak = reading["token"].as_str().unwrap();
    let refused = ask(daemon, weak, "PUT", &at("/files/workspace/a-path"), "x").await;
    assert_eq!(refused.status, 403);
    let user = key(daemon, "default", Role::User, (ActorKind::Human, "somebody")).await;
    let by_key = ask(daemon, &user, "POST", &at("/execute"), r#"{"command":"echo canary"}"#).await;
    assert_eq!(by_key.status, 200, "{}", by_key.body);
    // Secrets where names belong.
    for stray in [token, &user] {
        ask(daemon, &daemon.key, "DELETE", &format!("/v1/admin/keys/{stray}"), "").await;
        let body = json!({"sandbox": stray, "actor": {"type": "agent", "id": stray}}).to_string();
        ask(daemon, &daemon.key, "POST", "/v1/admin/tokens", &body).await;
        ask(daemon, stray, "GET", &at(&format!("/{stray}")), "").await;
    }
    let log = log(daemon).await;
    let exec = find(&log, "exec.start", "granted");
    assert_eq!((&exec["jti"], &exec["sandbox"]), (jti, &json!(id.as_str())));
    assert_eq!(exec["object"], ran.json()["exec_id"]);
    assert_eq!(exec["request_id"], request_of(&ran));
    let write = find(&log, "file.write", "granted");
    assert_eq!(&write["jti"], jti);
    let denied = log.iter().find(|it| it["jti"] == reading["jti"] && it["outcome"] == "denied");
    assert_eq!(denied.unwrap()["reason"], "without fs:rw");
    let used = log.iter().find(|it| it["action"] == "access" && it["object"] == "/execute");
    assert_eq!(used.unwrap()["actor_id"], "somebody");
    let text = serde_json::to_string(&log).unwrap();
    let signature = token.rsplit('.').next().unwrap();
    for canary in ["canary", token, signature, user.as_str(), daemon.key.as_str(), weak] {
        assert!(!text.contains(canary), "{canary} is in the log");
    }
}

fn tamper(sandboxed: &Sandboxed, sql: &str) {
    let script = "import sqlite3,sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
    let store = sandboxed.store();
    let done = Command::new("python3").args(["-c", script]).arg(store).arg(sql).status();
    assert!(done.unwrap().success());
}

/// F78.
#[tokio::test]
async fn f78_without_the_log_nothing_is_granted_and_the_data_plane_goes_on() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let id = sandbox(&sandboxed).await;
    let minted = mint(daemon, &daemon.key, &id, "fs:rw process").await.json();
    let token = minted["token"].as_str().unwrap();
    let created = ask(daemon, &daemon.key, "POST", "/v1/admin/keys", r#"{"name":"ci"}"#).await;
    let created = created.json();
    tamper(&sandboxed, "ALTER TABLE audit RENAME TO away");
    let rows = [
        ("/v1/admin/tokens", json!({"sandbox": id.as_str()})),
        ("/v1/admin/keys", json!({"name": "late"})),
        ("/v2/sandboxes/boxes", json!({"name": "late", "snapshot_name": "host"})),
    ];
    for (path, body) in &rows {
        let refused = ask(daemon, &daemon.key, "POST", path, &body.to_string()).await;
        assert_eq!(refused.status, 503, "{path}: {}", refused.body);
        assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    }
    let (exec, body) = (format!("/dp/{id}/v1/exec"), r#"{"command":["echo","on"]}"#);
    let ran = ask(daemon, token, "POST", &exec, body).await;
    assert_eq!((ran.status, &ran.json()["stdout"]), (200, &json!("on\n")));
    // What takes a right away is done all the same.
    let path = format!("/v1/admin/keys/{}", created["key"]["id"].as_str().unwrap());
    assert_eq!(ask(daemon, &daemon.key, "DELETE", &path, "").await.status, 204);
    let secret = created["secret"].as_str().unwrap();
    assert_eq!(ask(daemon, secret, "GET", "/v1/audit", "").await.status, 401);
    tamper(&sandboxed, "ALTER TABLE away RENAME TO audit");
    let (path, body) = &rows[0];
    assert_eq!(ask(daemon, &daemon.key, "POST", path, &body.to_string()).await.status, 201);
    // What was noted meanwhile is there.
    find(&log(daemon).await, "exec.start", "granted");
}

#[tokio::test]
async fn the_log_is_read_by_admins_in_pages_and_by_what_they_look_for() {
    let daemon = Daemon::start().await;
    let admin = daemon.key.clone();
    for number in 0..30 {
        let body = json!({"name": format!("key {number}")}).to_string();
        assert_eq!(ask(&daemon, &admin, "POST", "/v1/admin/keys", &body).await.status, 201);
    }
    for (order, expected) in
        [("asc", (1..=31).collect::<Vec<u64>>()), ("desc", (1..=31).rev().collect())]
    {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/audit?order={order}&limit=7{cursor}");
            let page = ask(&daemon, &admin, "GET", &path, "").await.json();
            let records = page["records"].as_array().unwrap();
            assert!(records.len() <= 7);
            found.extend(records.iter().map(|it| it["sequence"].as_u64().unwrap()));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(found, expected, "{order}");
    }
    let object = log(&daemon).await[9]["request_id"].as_str().unwrap().to_owned();
    for (query, expected) in [
        (format!("request_id={object}"), 1),
        ("action=key.create&actor=admin".to_owned(), 30),
        ("action=key.create&outcome=denied".to_owned(), 0),
        ("tenant=other".to_owned(), 0),
        ("limit=100000".to_owned(), 31),
    ] {
        let page = ask(&daemon, &admin, "GET", &format!("/v1/audit?{query}"), "").await.json();
        assert_eq!(page["records"].as_array().unwrap().len(), expected, "{query}");
    }
    for bad in
        ["order=up", "cursor=up.1", "cursor=x", "action=nothing", "limit=-1", "no=1", "outcome=ok"]
    {
        let refused = ask(&daemon, &admin, "GET", &format!("/v1/audit?{bad}"), "").await;
        assert_eq!(refused.problem(), (400, "INVALID_REQUEST".into()), "{bad}");
    }
    let user = key(&daemon, "default", Role::User, (ActorKind::Human, "somebody")).await;
    let broker = key(&daemon, "default", Role::Broker, (ActorKind::Human, "somebody")).await;
    for (key, expected) in [(user, 403), (broker, 403), ("rf_x".to_owned(), 401)] {
        assert_eq!(ask(&daemon, &key, "GET", "/v1/audit", "").await.status, expected);
    }
}

/// H22.
#[tokio::test]
async fn h22_an_id_that_a_client_sends_is_replaced() {
    let daemon = Daemon::start().await;
    let headers = [("X-Request-Id", "req_mine\u{1b}[2J")];
    let answer = daemon.ask("GET", "/v1/audit", &headers, "").await;
    assert_eq!(answer.problem(), (400, "INVALID_REQUEST".into()));
    assert!(!answer.head.contains("req_mine") && !answer.body.contains("req_mine"));
    let answer = daemon.ask("GET", "/v1/audit", &[("X-Request-Id", "req_mine")], "").await;
    assert_eq!(answer.json()["error"]["request_id"], request_of(&answer));
    assert!(!answer.head.contains("req_mine"), "{}", answer.head);
}

/// I23, for whoever gets a token by a session or for another token.
#[tokio::test]
async fn tokens_of_sessions_and_exchanged_ones_are_recorded_before_they_are_answered() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let post = async |path: &str, body: Value| {
        let answer = ask(daemon, &daemon.key, "POST", path, &body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer
    };
    let wanted = json!({"thread_id": "thr_1", "mode": "ensure", "image": "host"});
    let acquired = post("/v1/sandbox/sessions", wanted).await;
    let session = acquired.json();
    let id = session["session_id"].as_str().unwrap();
    let recorded = find(&log(daemon).await, "session.acquire", "granted").clone();
    assert_eq!(
        (&recorded["session"], &recorded["sandbox"], &recorded["scope"], &recorded["request_id"]),
        (
            &json!(id),
            &session["sandbox"]["id"],
            &json!("thread:thr_1"),
            &json!(request_of(&acquired))
        )
    );
    let opened = async |token: &Value| {
        let told = ask(
            daemon,
            &daemon.key,
            "GET",
            &format!("/internal/tokens/{}", token.as_str().unwrap()),
            "",
        )
        .await;
        told.json()["jti"].clone()
    };
    assert_eq!(recorded["jti"], opened(&session["token"]).await);

    let shown = json!({"current_token": session["token"]});
    let refreshed = post(&format!("/v1/sandbox/sessions/{id}/refresh"), shown).await.json();
    let recorded = find(&log(daemon).await, "session.refresh", "granted").clone();
    assert_eq!(recorded["jti"], opened(&refreshed["token"]).await);

    let form = format!(
        "grant_type=urn:ietf:params:oauth:grant-type:token-exchange&scope=fs:ro&subject_token={}\
         &subject_token_type=urn:ietf:params:oauth:token-type:access_token",
        refreshed["token"].as_str().unwrap()
    );
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    let exchanged = daemon.ask("POST", "/oauth/token", &headers, &form).await.json();
    let recorded = find(&log(daemon).await, "token.exchange", "granted").clone();
    assert_eq!(recorded["jti"], opened(&exchanged["access_token"]).await);
    assert_eq!(recorded["capabilities"], "fs:ro");

    let refused = json!({"thread_id": "thr_2", "mode": "get"}).to_string();
    let refused = ask(daemon, &daemon.key, "POST", "/v1/sandbox/sessions", &refused).await;
    assert_eq!(refused.problem(), (404, "SESSION_NOT_FOUND".into()));
    let denied = find(&log(daemon).await, "session.acquire", "denied").clone();
    assert_eq!(denied["reason"], "SESSION_NOT_FOUND");

    // Whoever ends a thread has ended its session; so is who would have.
    let ended = ask(daemon, &daemon.key, "DELETE", "/threads/thr_1/sandbox", "").await;
    assert_eq!(ended.status, 204, "{}", ended.body);
    let late = ask(daemon, &daemon.key, "DELETE", "/threads/thr_1/sandbox", "").await;
    assert_eq!(late.status, 404, "{}", late.body);
    for (method, path) in [("POST", "/threads/thr_1/archive"), ("DELETE", "/threads/thr_1")] {
        let again = ask(daemon, &daemon.key, method, path, "").await;
        assert_eq!(again.status, 204, "{}", again.body);
    }
    let log = log(daemon).await;
    let ends = log.iter().filter(|record| record["action"] == "session.release");
    let ends: Vec<_> =
        ends.map(|it| (&it["outcome"], &it["scope"], it["request_id"].as_str().unwrap())).collect();
    let scope = json!("thread:thr_1");
    let expected = [
        (&json!("granted"), &scope, request_of(&ended)),
        (&json!("denied"), &scope, request_of(&late)),
    ];
    assert_eq!(ends, expected);
}

/// What is done over gRPC is recorded as it is over HTTP, and so is who was refused.
#[tokio::test]
async fn what_is_done_over_grpc_is_recorded_too() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let mut client = sandboxed.remote(&daemon.key).await;
    client.create_sandbox(create("a-box")).await.unwrap();
    until(&mut client, "a-box", v1::SandboxState::Ready).await;
    client.create_exec(shell("a-box", "sleep 1000", "ex-1")).await.unwrap();
    client.cancel_exec(v1::CancelExecRequest { exec_id: "ex-1".to_owned() }).await.unwrap();
    let sandbox_id = "a-box".to_owned();
    let stop = v1::StopSandboxRequest { sandbox_id: sandbox_id.clone() };
    client.stop_sandbox(stop).await.unwrap();
    until(&mut client, "a-box", v1::SandboxState::Stopped).await;
    client.create_exec(shell("a-box", "true", "ex-2")).await.unwrap_err();
    let resume = v1::ResumeSandboxRequest { sandbox_id: sandbox_id.clone() };
    client.resume_sandbox(resume).await.unwrap();
    until(&mut client, "a-box", v1::SandboxState::Ready).await;
    client.delete_sandbox(v1::DeleteSandboxRequest { sandbox_id }).await.unwrap();
    client.stop_sandbox(v1::StopSandboxRequest { sandbox_id: "none".into() }).await.unwrap_err();
    let tenant = "default".parse().unwrap();
    let id = sandboxed.sandboxes.get(&tenant, "a-box").await.unwrap().id.to_string();
    let log = log(daemon).await;
    let told: Vec<_> = log
        .iter()
        .filter(|it| !it["key_id"].is_null())
        .map(|it| {
            let text = |name: &str| it[name].as_str();
            (text("action").unwrap(), text("outcome").unwrap(), text("sandbox"), text("object"))
        })
        .collect();
    let (ours, first) = (Some(id.as_str()), Some("ex-1"));
    for expected in [
        ("exec.start", "granted", ours, first),
        ("exec.cancel", "granted", ours, first),
        ("sandbox.stop", "granted", ours, None),
        ("exec.start", "denied", ours, None),
        ("sandbox.resume", "granted", ours, None),
        ("sandbox.delete", "granted", ours, None),
        ("sandbox.stop", "denied", None, None),
    ] {
        let count = told.iter().filter(|told| **told == expected).count();
        assert_eq!(count, 1, "{expected:?} in {told:#?}");
    }
}

/// Images are of all who use the server: whoever brings or removes one is recorded.
#[tokio::test]
async fn what_is_done_with_images_is_recorded_too() {
    let built = small_system();
    let registry = Fake::start(move |asked| honest(&built, asked));
    let registries = [registry.address.to_string(), "127.0.0.1:1".to_owned()];
    let sandboxed = Sandboxed::start_listing(&registries).await;
    let daemon = sandboxed.daemon();
    let image = format!("{}/team/app:latest", registry.address);
    let client = async |key: &str| {
        let bearer = format!("Bearer {key}");
        let connection = Connection::tcp(daemon.address, &[("authorization", &bearer)]).await;
        ImageServiceClient::with_origin(connection, "http://localhost".parse().unwrap())
    };
    let mut admin = client(&daemon.key).await;
    let pulls = admin.clone();
    let pull = async |name: &str| {
        let mut pulls = pulls.clone();
        let mut told = pulls.pull_image(PullImageRequest { name: name.to_owned() }).await?;
        while told.get_mut().message().await?.is_some() {}
        Ok::<_, tonic::Status>(())
    };
    pull(&image).await.unwrap();
    pull("tar:/canary/x.tar").await.unwrap_err();
    pull("no image of a canary").await.unwrap_err();
    let user = key(daemon, "default", Role::User, (ActorKind::Human, "somebody")).await;
    let remove = |name: &str| RemoveImageRequest { name: name.to_owned() };
    // What another tenant has is not there for him.
    let stranger = key(daemon, "elsewhere", Role::User, (ActorKind::Human, "stranger")).await;
    client(&stranger).await.remove_image(remove(&image)).await.unwrap_err();
    admin.remove_image(remove("docker.io/library/canary:1")).await.unwrap_err();
    client(&user).await.remove_image(remove(&image)).await.unwrap();
    // A registry that is not there: it was allowed, and came to nothing.
    let gone = "127.0.0.1:1/team/gone:latest";
    pull(gone).await.unwrap_err();
    // One that the operator does not list, on this machine: where it is was found out by asking.
    let inner = "127.0.0.1:2/team/inner:latest";
    pull(inner).await.unwrap_err();
    let log = log(daemon).await;
    let told: Vec<_> = log
        .iter()
        .filter(|it| it["action"].as_str().unwrap().starts_with("image."))
        .filter(|it| it["tenant"] == "default")
        .map(|it| {
            let text = |name: &str| it[name].as_str().unwrap_or_default();
            assert_eq!((text("tenant"), text("actor_type")), ("default", "human"), "{it}");
            assert!(!text("key_id").is_empty() && !it.to_string().contains("canary"), "{it}");
            (text("action"), text("outcome"), text("object"), text("reason"))
        })
        .collect();
    let expected = [
        ("image.pull", "granted", image.as_str(), ""),
        ("image.pull", "denied", "", "PERMISSION_DENIED"),
        ("image.pull", "denied", "", "INVALID_ARGUMENT"),
        ("image.remove", "denied", "", "IMAGE_NOT_FOUND"),
        ("image.remove", "granted", image.as_str(), ""),
        ("image.pull", "failed", gone, "UNAVAILABLE"),
        ("image.pull", "denied", inner, "PERMISSION_DENIED"),
    ];
    assert_eq!(told, expected);
}

/// Who manages a tenant reads what was done there, and nothing of others.
#[tokio::test]
async fn admins_of_a_tenant_read_its_own_records_alone() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let body = r#"{"name":"theirs","tenant":"elsewhere","role":"admin"}"#;
    let made = ask(daemon, &daemon.key, "POST", "/v1/admin/keys", body).await.json();
    let theirs = made["secret"].as_str().unwrap();
    for key in [theirs, &daemon.key] {
        let body = r#"{"name":"a-box","snapshot_name":"host"}"#;
        assert_eq!(ask(daemon, key, "POST", "/v2/sandboxes/boxes", body).await.status, 201);
    }
    let all = log(daemon).await;
    let is_theirs = |it: &&Value| it["tenant"] == "elsewhere";
    assert!(all.iter().any(|it| it["tenant"] == "default"));
    for filter in ["", "&tenant=elsewhere", "&action=sandbox.create"] {
        let path = format!("/v1/audit?order=asc{filter}");
        let page = ask(daemon, theirs, "GET", &path, "").await.json();
        let told = page["records"].as_array().unwrap();
        assert!(!told.is_empty() && told.iter().all(|it| is_theirs(&it)), "{page}");
    }
    // Nor does he miss who was refused with a token of his own.
    let list = ask(daemon, theirs, "GET", "/v2/sandboxes/boxes", "").await.json();
    let own: SandboxId = list["sandboxes"][0]["id"].as_str().unwrap().parse().unwrap();
    let minted = mint(daemon, theirs, &own, "fs:ro").await.json();
    let token = minted["token"].as_str().unwrap();
    let list = ask(daemon, &daemon.key, "GET", "/v2/sandboxes/boxes", "").await.json();
    let other = list["sandboxes"][0]["id"].as_str().unwrap();
    for (path, status) in [
        (format!("/dp/{own}/files/tmp/x"), 403),
        (format!("/dp/{other}/files/tmp/x"), 401),
        ("/dp/sb_none/files/tmp/x".to_owned(), 401),
    ] {
        assert_eq!(ask(daemon, token, "PUT", &path, "x").await.status, status, "{path}");
    }
    let path = "/v1/audit?order=asc&action=access&outcome=denied";
    let page = ask(daemon, theirs, "GET", path, "").await.json();
    let told = page["records"].as_array().unwrap().iter();
    let told: Vec<_> = told
        .map(|it| {
            assert_eq!((&it["tenant"], &it["jti"]), (&json!("elsewhere"), &minted["jti"]));
            assert_eq!(it["sandbox"], own.as_str());
            (it["reason"].as_str().unwrap(), it["count"].as_u64().unwrap_or(1))
        })
        .collect();
    let count = |reason| told.iter().filter(|it| it.0 == reason).map(|it| it.1).sum::<u64>();
    assert_eq!((count("without fs:rw"), count("of another sandbox")), (1, 2), "{told:?}");
    for filter in ["tenant=default".to_owned(), format!("key_id={}", all[1]["key_id"])] {
        let path = format!("/v1/audit?{}", filter.replace('"', ""));
        let page = ask(daemon, theirs, "GET", &path, "").await.json();
        assert_eq!(page["records"], json!([]), "{path}");
    }
}
