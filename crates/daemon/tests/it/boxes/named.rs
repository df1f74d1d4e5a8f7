//! Snapshots and templates: images under names of a tenant's own.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use store::Store;

use super::{ask, get, refusal, run, send, stranger};
use crate::sandboxed::Sandboxed;

const GIB: u64 = 1 << 30;

#[tokio::test]
async fn a_snapshot_names_an_image_with_its_defaults_and_is_found_by_every_name() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let made = send(
        daemon,
        "POST",
        "/snapshots",
        json!({
            "name": "mine", "docker_image": "host", "fs_capacity_bytes": GIB,
            "labels": {"team": "a"}, "description": "has a shell",
            "run_config": {"work_dir": "/tmp", "env_vars": {"A": "snapshot", "B": "snapshot"}},
        }),
    )
    .await;
    let id = made["id"].as_str().unwrap();
    assert!(id.starts_with("snap_"), "{made}");
    let expected = json!({
        "id": id, "name": "mine", "status": "ready", "status_message": null,
        "fs_capacity_bytes": GIB, "fs_used_bytes": null, "docker_image": "host",
        "image_digest": null, "source_sandbox_id": null, "registry_id": null,
        "created_by": made["created_by"], "created_at": made["created_at"],
        "updated_at": made["updated_at"], "tags": ["latest"], "labels": {"team": "a"},
        "description": "has a shell", "run_config": {"work_dir": "/tmp"},
    });
    assert_eq!(made, expected);
    for reference in [id, "mine", "mine:latest"] {
        assert_eq!(get(daemon, &format!("/snapshots/{reference}")).await, expected);
    }
    for (number, field) in
        ["snapshot_id", "snapshot", "snapshot_name", "template_name"].into_iter().enumerate()
    {
        let name = if field == "snapshot_id" { id } else { "mine" };
        let body = json!({field: name, "name": format!("box-{number}"), "env_vars": {"B": "box"}});
        let shown = send(daemon, "POST", "/boxes", body).await;
        assert_eq!((&shown["snapshot_id"], &shown["status"]), (&json!(id), &json!("ready")));
        assert_eq!(shown["fs_capacity_bytes"], GIB);
        assert_eq!(shown["labels"], json!({"team": "a"}));
        assert_eq!(run(daemon, &shown, "pwd; echo $A $B").await, "/tmp\nsnapshot box\n");
        send(daemon, "DELETE", &format!("/boxes/box-{number}"), Value::Null).await;
    }
    let smaller = json!({"snapshot": "mine", "fs_capacity_bytes": GIB / 2});
    let smaller = ask(daemon, &daemon.key, "POST", "/boxes", &smaller).await;
    let told = "SandboxConfig: the snapshot takes a disk of 1024 MiB at least".to_owned();
    assert_eq!(refusal(&smaller), (422, told));
}

#[tokio::test]
async fn tags_move_and_lists_are_the_tenants_own() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let snapshot = |name: &str, tag: &str| json!({"name": name, "docker_image": "host", "fs_capacity_bytes": GIB, "tag": tag});
    let first = send(daemon, "POST", "/snapshots", snapshot("mine", "v1")).await;
    let second = send(daemon, "POST", "/snapshots", snapshot("mine", "v1")).await;
    let third = send(daemon, "POST", "/snapshots", snapshot("mine", "latest")).await;
    send(daemon, "POST", "/snapshots", snapshot("Other", "latest")).await;
    assert_eq!(get(daemon, "/snapshots/mine:v1").await["id"], second["id"]);
    assert_eq!(get(daemon, "/snapshots/mine").await["id"], third["id"]);
    let id = |shown: &Value| shown["id"].as_str().unwrap().to_owned();
    assert_eq!(get(daemon, &format!("/snapshots/{}", id(&first))).await["tags"], json!([]));
    let tags = get(daemon, "/snapshots-by-name/mine").await;
    let expected = json!({"name": "mine", "tags": [
        {"tag": "latest", "snapshot_id": third["id"]}, {"tag": "v1", "snapshot_id": second["id"]},
    ]});
    assert_eq!(tags, expected);
    let count = async |query: &str| {
        let list = get(daemon, &format!("/snapshots{query}")).await;
        assert_eq!(list["items"], list["snapshots"]);
        list["snapshots"].as_array().unwrap().len()
    };
    for (query, expected) in [
        ("", 4),
        ("?name_contains=MIN", 3),
        ("?name_contains=oth&sort_by=name", 1),
        ("?limit=3", 3),
        ("?limit=3&offset=3", 1),
        ("?status=building", 0),
        ("?created_by=me", 4),
    ] {
        assert_eq!(count(query).await, expected, "{query}");
    }
    let theirs = stranger(daemon).await;
    let missing = (404, "NotFound: there is no snapshot of this name".to_owned());
    let list = ask(daemon, &theirs, "GET", "/snapshots", &Value::Null).await;
    assert_eq!(list.json()["snapshots"], json!([]));
    for (method, path) in [
        ("GET", "/snapshots/mine".to_owned()),
        ("GET", format!("/snapshots/{}", id(&first))),
        ("DELETE", format!("/snapshots/{}", id(&first))),
        ("GET", "/snapshots-by-name/mine".to_owned()),
        ("GET", "/templates/mine".to_owned()),
        ("DELETE", "/templates/mine".to_owned()),
    ] {
        let answer = ask(daemon, &theirs, method, &path, &Value::Null).await;
        assert_eq!(refusal(&answer), missing, "{method} {path}");
    }
    let body = json!({"snapshot_id": first["id"]});
    assert_eq!(refusal(&ask(daemon, &theirs, "POST", "/boxes", &body).await), missing);
    send(daemon, "DELETE", "/snapshots/mine:latest", Value::Null).await;
    // The newest without a tag is what a bare name means then.
    assert_eq!(get(daemon, "/snapshots/mine").await["id"], first["id"]);
}

#[tokio::test]
async fn templates_are_the_same_in_the_words_of_old_clients() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let asked = json!({"name": "python", "image": "host", "cpu": "500m", "memory": "256Mi"});
    let made = send(daemon, "POST", "/templates", asked.clone()).await;
    let expected = json!({
        "id": made["id"], "name": "python", "image": "host",
        "resources": {"cpu": "500m", "memory": "256Mi"}, "volume_mounts": [],
        "created_at": made["created_at"], "updated_at": made["updated_at"],
    });
    assert_eq!(made, expected);
    assert_eq!(get(daemon, "/templates").await, json!({"templates": [expected]}));
    assert_eq!(get(daemon, "/templates/python").await, expected);
    let again = ask(daemon, &daemon.key, "POST", "/templates", &asked).await;
    let told = "Conflict: there is a snapshot of this name already".to_owned();
    assert_eq!(refusal(&again), (409, told));
    let body = json!({"template_name": "python", "name": "a-box"});
    let shown = send(daemon, "POST", "/boxes", body).await;
    assert_eq!((&shown["cpu_millicores"], &shown["mem_bytes"]), (&json!(500), &json!(256 << 20)));
    assert_eq!((&shown["snapshot_id"], &shown["status"]), (&made["id"], &json!("ready")));
    assert_eq!(get(daemon, "/boxes").await["sandboxes"][0]["template_name"], "python");
    send(daemon, "DELETE", "/templates/python", Value::Null).await;
    assert_eq!(get(daemon, "/templates").await, json!({"templates": []}));
    assert_eq!(get(daemon, "/volumes").await, json!({"volumes": []}));
    assert_eq!(get(daemon, "/pools").await, json!({"pools": []}));
    // What was made from it goes on.
    assert_eq!(run(daemon, &shown, "echo here").await, "here\n");
}

/// Packs a root file system of one static program; returns what it is called as an image.
fn packed(folder: &Path) -> String {
    fs::create_dir_all(folder.join("root/bin")).unwrap();
    fs::write(folder.join("root/bin/marker"), "x").unwrap();
    let tar = folder.join("image.tar");
    let root = folder.join("root");
    let packed = Command::new("tar").arg("-cf").arg(&tar).arg("-C").arg(root).arg(".").status();
    assert!(packed.unwrap().success());
    format!("tar:{}", tar.display())
}

#[tokio::test]
async fn a_snapshot_of_what_cannot_be_had_is_refused_or_fails_and_says_why() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let folder = tempfile::tempdir().unwrap();
    let image = packed(folder.path());
    let snapshot =
        |image: &str| json!({"name": "mine", "docker_image": image, "fs_capacity_bytes": GIB});
    // The network may name no path of the machine.
    let rows = [(image.as_str(), 403, "PermissionDenied: "), ("A Bad Name", 422, "ImagePull: ")];
    for (image, expected, beginning) in rows {
        let refused = ask(daemon, &daemon.key, "POST", "/snapshots", &snapshot(image)).await;
        let (status, told) = refusal(&refused);
        assert_eq!((status, told.starts_with(beginning)), (expected, true), "{told}");
    }
    // A registry that is not there.
    let made = send(daemon, "POST", "/snapshots", snapshot("127.0.0.1:1/nothing:1")).await;
    assert_eq!((&made["status"], &made["image_digest"]), (&json!("building"), &Value::Null));
    let path = format!("/snapshots/{}", made["id"].as_str().unwrap());
    let failed = async {
        loop {
            let now = get(daemon, &path).await;
            if now["status"] != "building" {
                return now;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let failed = tokio::time::timeout(crate::support::PATIENCE, failed).await.unwrap();
    assert_eq!(failed["status"], "failed", "{failed}");
    assert!(failed["status_message"].as_str().unwrap().contains("127.0.0.1:1"), "{failed}");
    let refused = ask(daemon, &daemon.key, "POST", "/boxes", &json!({"snapshot": "mine"})).await;
    let (status, told) = refusal(&refused);
    let expected = "SandboxConfig: the snapshot has failed: ";
    assert_eq!((status, told.starts_with(expected)), (422, true), "{told}");
}

#[tokio::test]
async fn an_unknown_snapshot_is_not_found_and_never_pulled() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let missing = (404, "NotFound: there is no snapshot of this name".to_owned());
    for name in ["alpine", "no-such-snapshot", "2f6c9a52-6a0f-4c86-9d8a-1f3f7c1f7a11"] {
        for field in ["snapshot", "snapshot_id", "snapshot_name", "template_name"] {
            let refused = ask(daemon, &daemon.key, "POST", "/boxes", &json!({field: name})).await;
            assert_eq!(refusal(&refused), missing, "{field}: {name}");
        }
    }
    assert_eq!(get(daemon, "/boxes").await["sandboxes"], json!([]));
}

#[tokio::test]
async fn a_bare_name_that_the_operator_configured_is_an_image() {
    let settings = daemon::serve::Settings {
        sessions_image: Some("nothing-here".to_owned()),
        ..crate::support::settings()
    };
    let sandboxed = Sandboxed::start_with(None, settings).await;
    let daemon = sandboxed.daemon();
    for body in [json!({}), json!({"snapshot": "nothing-here"})] {
        let mut body = body;
        body["wait_for_ready"] = json!(false);
        let made = send(daemon, "POST", "/boxes", body).await;
        assert_eq!(made["snapshot_id"], "nothing-here");
    }
}

#[tokio::test]
async fn a_failed_create_names_the_box_and_an_explicit_image_reference_is_pulled() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    // A registry that is not there.
    let body = json!({"name": "my-box", "snapshot": "127.0.0.1:1/nothing:1"});
    let refused = ask(daemon, &daemon.key, "POST", "/boxes", &body).await;
    let (status, told) = refusal(&refused);
    assert_eq!((status, told.starts_with("ImagePull: box my-box failed: ")), (422, true), "{told}");
    assert_eq!(get(daemon, "/boxes/my-box").await["status"], "failed");
}

#[tokio::test]
async fn snapshots_are_there_for_the_next_server() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("shared.db")).unwrap();
    let first = Sandboxed::start_over(store.clone(), "node_1").await;
    let body = json!({"name": "mine", "docker_image": "host", "fs_capacity_bytes": GIB});
    let made = send(first.daemon(), "POST", "/snapshots", body).await;
    drop(first);
    let second = Sandboxed::start_over(store, "node_1").await;
    assert_eq!(get(second.daemon(), "/snapshots/mine").await, made);
}
