//! LangSmith's control plane: boxes, their URLs, snapshots and templates.

mod bad;
mod links;
mod named;
mod root;

use std::time::Duration;

use engine::sandboxes::Defaults;
use model::{
    actor::ActorKind,
    adjustment::Adjustment,
    life::{EndCause, Phase},
    spec::KeepStopped,
};
use serde_json::{Value, json};
use store::keys::Role;
use tokio::time::timeout;

use crate::{
    sandboxed::Sandboxed,
    support::{self, Answer, Daemon, PATIENCE, key},
};

const BASES: [&str; 2] = ["/v2/sandboxes", "/api/v2/sandboxes"];

/// Asks as the SDKs do.
async fn ask(daemon: &Daemon, key: &str, method: &str, path: &str, body: &Value) -> Answer {
    let headers = [("X-Api-Key", key), ("Content-Type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let path =
        if path.starts_with("/dp/") { path.to_owned() } else { format!("{}{path}", BASES[1]) };
    daemon.ask(method, &path, &headers, &body).await
}

/// Asks with the first key for what has to be there.
async fn get(daemon: &Daemon, path: &str) -> Value {
    let answer = ask(daemon, &daemon.key, "GET", path, &Value::Null).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.json()
}

async fn send(daemon: &Daemon, method: &str, path: &str, body: Value) -> Value {
    let answer = ask(daemon, &daemon.key, method, path, &body).await;
    assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.body);
    if answer.body.is_empty() { Value::Null } else { answer.json() }
}

/// Returns status, and how the clients call what went wrong: the kind, or the field and what is wrong.
fn refusal(answer: &Answer) -> (u16, String) {
    let body = answer.json();
    let detail = &body["detail"];
    assert!(body["message"].is_string() && body["error_type"].is_string(), "{body}");
    let told = if let Value::Array(items) = detail {
        assert_eq!((items.len(), &items[0]["type"]), (1, &json!("value_error")), "{body}");
        assert_eq!(items[0]["msg"], body["message"]);
        format!("{} {}", items[0]["loc"][1].as_str().unwrap(), items[0]["msg"].as_str().unwrap())
    } else {
        assert!(detail["error_id"].as_str().unwrap().starts_with("req_"), "{body}");
        assert_eq!((&detail["error"], &detail["message"]), (&body["error_type"], &body["message"]));
        format!("{}: {}", detail["error"].as_str().unwrap(), detail["message"].as_str().unwrap())
    };
    (answer.status, told)
}

/// Makes a key of another tenant.
async fn stranger(daemon: &Daemon) -> String {
    key(daemon, "other", Role::Admin, (ActorKind::Human, "somebody")).await
}

async fn run(daemon: &Daemon, shown: &Value, command: &str) -> String {
    let path = format!("/dp/{}/execute", shown["id"].as_str().unwrap());
    let done = send(daemon, "POST", &path, json!({"command": command})).await;
    done["stdout"].as_str().unwrap().to_owned()
}

async fn until_stopped(daemon: &Daemon, name: &str) {
    until(daemon, name, "stopped").await;
}

async fn until(daemon: &Daemon, name: &str, status: &str) {
    let reached = async {
        while get(daemon, &format!("/boxes/{name}/status")).await["status"] != status {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, reached).await.unwrap();
}

#[tokio::test]
async fn a_box_is_shown_to_the_field_by_both_prefixes() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let made = send(
        daemon,
        "POST",
        "/boxes",
        json!({
            "name": "a-box", "snapshot": "host", "snapshot_name": "host", "timeout": 30,
            "idle_ttl_seconds": 120, "delete_after_stop_seconds": 0, "cpu_millicores": 500,
            "mem_bytes": 268_435_456, "labels": {"team": "a"}, "persistent": true,
            "preserve_memory_on_stop": false, "proxy_config": {"rules": []}, "mount_config": null,
            "volumes": [], "run_config": {
                "user": "root", "work_dir": "/usr", "env_vars": {"WHO": "config", "ME": "config"},
            }, "env_vars": {"WHO": "env"}, "a_field_of_tomorrow": 1,
        }),
    )
    .await;
    let id = made["id"].as_str().unwrap();
    let expected = json!({
        "id": id, "name": "a-box", "status": "ready", "status_message": null,
        "dataplane_url": format!("http://{}/dp/{id}", daemon.address),
        "created_at": made["created_at"], "updated_at": made["updated_at"], "stopped_at": null,
        "created_by": made["created_by"], "updated_by": null,
        "idle_ttl_seconds": 120, "delete_after_stop_seconds": 0, "snapshot_id": "host",
        "template_name": "host", "vcpus": 1, "cpu_millicores": 500, "mem_bytes": 268_435_456, "fs_capacity_bytes": null,
        "labels": {"team": "a"}, "run_config": {"user": "root", "work_dir": "/usr"},
        "persistent": true, "preserve_memory_on_stop": false, "size_class": null,
        "access_delegation": null, "mount_config": null, "proxy_config": null, "volumes": [],
    });
    assert_eq!(made, expected);
    assert!(made["created_by"].as_str().unwrap().starts_with("human:"), "{made}");
    for base in BASES {
        for name in ["a-box", id] {
            let headers = [("X-Api-Key", daemon.key.as_str())];
            let shown = daemon.ask("GET", &format!("{base}/boxes/{name}"), &headers, "").await;
            assert_eq!(shown.json(), expected);
        }
    }
    assert_eq!(run(daemon, &made, "id -u; pwd; echo $WHO $ME").await, "0\n/usr\nenv config\n");
    // What a command says itself wins.
    let path = format!("/dp/{id}/execute");
    let own = json!({"command": "id -u; pwd", "run_config": {"user": "agbox", "work_dir": "/tmp"}});
    assert_eq!(send(daemon, "POST", &path, own).await["stdout"], "1000\n/tmp\n");
    // What nobody says is as it always was.
    let plain = json!({"name": "plain-box", "template_name": "host", "wait_for_ready": true});
    let plain = send(daemon, "POST", "/boxes", plain).await;
    assert_eq!(
        (&plain["idle_ttl_seconds"], &plain["run_config"]),
        (&json!(600), &json!({"user": "root"}))
    );
    assert_eq!(plain["delete_after_stop_seconds"], 0, "it is kept until somebody deletes it");
    assert_eq!(run(daemon, &plain, "id -u; pwd").await, "0\n/root\n");
}

#[tokio::test]
async fn a_box_is_renamed_and_adjusted_while_it_runs() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let name = |name: &str| json!({"name": name, "snapshot": "host"});
    let made = send(daemon, "POST", "/boxes", name("a-box")).await;
    send(daemon, "POST", "/boxes", name("b-box")).await;
    let patch = async |of: &str, body: Value| {
        ask(daemon, &daemon.key, "PATCH", &format!("/boxes/{of}"), &body).await
    };
    let same = patch("a-box", json!({})).await.json();
    assert_eq!(same, made);
    let changed = patch(
        "a-box",
        json!({
            "name": "c-box", "idle_ttl_seconds": 0, "delete_after_stop_seconds": 3600,
            "run_config": {"work_dir": "/tmp", "env_vars": {"NEW": "one"}},
        }),
    )
    .await
    .json();
    assert_eq!((&changed["id"], &changed["name"]), (&made["id"], &json!("c-box")));
    assert_eq!(changed["idle_ttl_seconds"], 0);
    assert_eq!(changed["delete_after_stop_seconds"], 3600);
    assert_eq!(changed["run_config"], json!({"user": "root", "work_dir": "/tmp"}));
    assert_eq!(changed["updated_by"], changed["created_by"]);
    assert_eq!(run(daemon, &made, "pwd; echo $NEW").await, "/tmp\none\n");
    // Nobody is called as another is, or was.
    let taken = (
        409,
        "Conflict: another sandbox has this name, or had it before it was renamed".to_owned(),
    );
    for name in ["c-box", "a-box"] {
        assert_eq!(refusal(&patch("b-box", json!({"name": name})).await), taken, "{name}");
        let body = json!({"name": name, "snapshot": "host"});
        let made = ask(daemon, &daemon.key, "POST", "/boxes", &body).await;
        assert_eq!(refusal(&made), taken, "{name}");
    }
    let gone = (404, "NotFound: there is no sandbox of this name".to_owned());
    assert_eq!(refusal(&patch("a-box", json!({})).await), gone);
    let theirs = stranger(daemon).await;
    let body = json!({"name": "d-box"});
    assert_eq!(refusal(&ask(daemon, &theirs, "PATCH", "/boxes/c-box", &body).await), gone);
    // It may have its own name back, and be changed while it sleeps.
    send(daemon, "POST", "/boxes/c-box/stop", json!({})).await;
    until_stopped(daemon, "c-box").await;
    let back =
        patch("c-box", json!({"name": "a-box", "run_config": {"user": "root"}})).await.json();
    assert_eq!((&back["name"], &back["status"]), (&json!("a-box"), &json!("stopped")));
    send(daemon, "POST", "/boxes/a-box/start", json!({})).await;
    until(daemon, "a-box", "ready").await;
    assert_eq!(run(daemon, &made, "id -u; pwd; echo $NEW").await, "0\n/tmp\none\n");
    // One that is still stopping is started as soon as it has stopped.
    send(daemon, "POST", "/boxes/a-box/stop", json!({})).await;
    send(daemon, "POST", "/boxes/a-box/start", json!({})).await;
    until(daemon, "a-box", "ready").await;
    assert_eq!(send(daemon, "DELETE", "/boxes/a-box", Value::Null).await, Value::Null);
    assert_eq!(refusal(&patch("a-box", json!({"name": "e-box"})).await), gone);
}

#[tokio::test]
async fn lists_are_narrowed_ordered_and_taken_page_by_page() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    for (name, team, idle) in [("Box-1", "a", 60), ("box-2", "b", 180), ("other-3", "a", 120)] {
        let body = json!({
            "name": name, "snapshot": "host", "labels": {"team": team}, "idle_ttl_seconds": idle,
        });
        send(daemon, "POST", "/boxes", body).await;
    }
    send(daemon, "POST", "/boxes/box-2/stop", json!({})).await;
    until_stopped(daemon, "box-2").await;
    let names = |list: &Value| -> String {
        assert_eq!(list["items"], list["sandboxes"]);
        let names = list["sandboxes"].as_array().unwrap().iter();
        names.map(|it| it["name"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
    };
    for (query, expected) in [
        ("", "other-3 box-2 Box-1"),
        ("?name_contains=BOX", "box-2 Box-1"),
        ("?status=stopped", "box-2"),
        ("?status=ready", "other-3 Box-1"),
        ("?status=deleting", ""),
        ("?label=team%3Da", "other-3 Box-1"),
        ("?label=team&label=team=b", "box-2"),
        ("?label=nothing", ""),
        ("?created_by=me&sort_by=created_at&sort_order=asc", "Box-1 box-2 other-3"),
        ("?sort_by=name&sort_direction=asc", "Box-1 box-2 other-3"),
        ("?sort_by=idle_ttl_seconds", "box-2 other-3 Box-1"),
        ("?sort_by=stopped_at&limit=1", "box-2"),
        ("?limit=1&offset=1", "box-2"),
        ("?unknown=1", "other-3 box-2 Box-1"),
    ] {
        assert_eq!(names(&get(daemon, &format!("/boxes{query}")).await), expected, "{query}");
    }
    for sort in ["", "&sort_by=name&sort_order=asc", "&sort_by=status", "&sort_by=stopped_at"] {
        let whole = names(&get(daemon, &format!("/boxes?{sort}")).await);
        let (mut cursor, mut shown) = (String::new(), Vec::new());
        loop {
            let page = get(daemon, &format!("/boxes?page_size=1{sort}{cursor}")).await;
            shown.push(names(&page));
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(shown.join(" "), whole, "{sort}");
    }
    let page = get(daemon, "/boxes?limit=2").await;
    assert_eq!(page["offset"], 2);
    assert_eq!(get(daemon, "/boxes?limit=2&offset=2").await["offset"], 0);
    let theirs = ask(daemon, &stranger(daemon).await, "GET", "/boxes", &Value::Null).await;
    assert_eq!(theirs.json()["sandboxes"], json!([]));
    // What is being deleted is listed to nobody who does not ask for it.
    send(daemon, "DELETE", "/boxes/box-2", Value::Null).await;
    assert_eq!(names(&get(daemon, "/boxes").await), "other-3 Box-1");
}

#[tokio::test]
async fn a_stopped_box_is_deleted_when_its_own_time_is_over_and_not_before() {
    // Whoever stops it is shown it, before it goes.
    let keep_stopped = Some(Duration::from_secs(3));
    let defaults = Defaults { keep_stopped, ..Defaults::default() };
    let sandboxed = Sandboxed::start_by(None, support::settings(), defaults).await;
    let daemon = sandboxed.daemon();
    let tenant = "default".parse().unwrap();
    for (name, kept) in [("for-ever", json!(0)), ("as-usual", Value::Null), ("own-time", json!(0))]
    {
        let body = json!({"name": name, "snapshot": "host", "delete_after_stop_seconds": kept});
        send(daemon, "POST", "/boxes", body).await;
        send(daemon, "POST", &format!("/boxes/{name}/stop"), json!({})).await;
    }
    let gone = async |name: &str| {
        let mut events =
            sandboxed.sandboxes.events(&tenant, name, model::event::Sequence::ZERO).await.unwrap();
        while timeout(PATIENCE, events.next()).await.unwrap().unwrap().is_some() {
            let now = sandboxed.sandboxes.get(&tenant, name).await.unwrap();
            if now.life.phase == Phase::Terminated {
                return now.life.end;
            }
        }
        None
    };
    assert_eq!(gone("as-usual").await, Some(EndCause::CleanupTtl));
    until_stopped(daemon, "own-time").await;
    until_stopped(daemon, "for-ever").await;
    // A time that is set while it is stopped counts from when it was.
    let keep_stopped = Some(KeepStopped::For(Duration::from_millis(1)));
    let adjustment = Adjustment { keep_stopped, ..Adjustment::default() };
    sandboxed.sandboxes.adjust(&tenant, "own-time", adjustment).await.unwrap();
    assert_eq!(gone("own-time").await, Some(EndCause::CleanupTtl));
    assert_eq!(get(daemon, "/boxes/for-ever").await["status"], "stopped");
}
