//! What is refused, and the exact answers.

use serde_json::{Value, json};

use super::{ask, refusal, send};
use crate::sandboxed::Sandboxed;

const TTL: &str = "must be a multiple of 60, from 0 to 315360000";

#[tokio::test]
async fn bad_requests_have_their_answers() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    send(daemon, "POST", "/boxes", json!({"name": "a-box", "snapshot": "host"})).await;
    let id_form = "an id has 4 to 200 letters, digits, `-` and `_`, and begins and ends with a letter \
                   or digit";
    let name_form = "the name of a snapshot has 1 to 128 letters, digits, `.`, `-` and `_`, begins \
                     with a letter or digit, and does not look like an id";
    let host = |more: Value| {
        let mut body = json!({"snapshot": "host"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let snapshot = |more: Value| {
        let mut body =
            json!({"name": "mine", "docker_image": "host", "fs_capacity_bytes": 1 << 30});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let wrong = "this is not what the field takes";
    let cannot = |text: &str| format!("SandboxConfig: {text}");
    let at = |field: &str, text: &str| format!("{field} {field}: {text}");
    let rows = [
        // Boxes.
        (
            "POST",
            "/boxes",
            json!({}),
            422,
            cannot(
                "name a snapshot or an image as snapshot, or have the operator set sessions.image",
            ),
        ),
        ("POST", "/boxes", host(json!({"name": "a b"})), 422, at("name", id_form)),
        ("POST", "/boxes", host(json!({"name": 7})), 422, at("name", wrong)),
        (
            "POST",
            "/boxes",
            host(json!({"name": "a-box"})),
            409,
            "Conflict: another sandbox has this name, or had it before it was renamed".into(),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"snapshot_id": "other"})),
            422,
            at("snapshot", "it is named twice, and not the same"),
        ),
        (
            "POST",
            "/boxes",
            json!({"snapshot_id": "snap_00000000000000000000000000"}),
            404,
            "NotFound: there is no snapshot of this name".into(),
        ),
        ("POST", "/boxes", host(json!({"idle_ttl_seconds": 61})), 422, at("idle_ttl_seconds", TTL)),
        (
            "POST",
            "/boxes",
            host(json!({"idle_ttl_seconds": -60})),
            422,
            at("idle_ttl_seconds", wrong),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"idle_ttl_seconds": 1.5})),
            422,
            at("idle_ttl_seconds", wrong),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"delete_after_stop_seconds": 1})),
            422,
            at("delete_after_stop_seconds", TTL),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"delete_after_stop_seconds": 18_446_744_073_709_551_600_u64})),
            422,
            at("delete_after_stop_seconds", TTL),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"vcpus": 0})),
            422,
            at("vcpus", "must be more than 0 and at most 1024"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"cpu_millicores": 0})),
            422,
            at("cpu_millicores", "must be 1 to 1024000"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"mem_bytes": 0})),
            422,
            at("mem_bytes", "must be a number of bytes above 0"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"fs_capacity_bytes": u64::MAX})),
            422,
            at("fs_capacity_bytes", "must be a number of bytes above 0"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"timeout": -1})),
            422,
            at("timeout", "must be a number of seconds"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"labels": {"": "x"}})),
            422,
            at(
                "labels",
                "at most 64, each with a name of 1 to 255 bytes without =, and up to 1024 more",
            ),
        ),
        ("POST", "/boxes", host(json!({"labels": ["x"]})), 422, at("labels", wrong)),
        // A list is no object, although it could be taken for the fields in their order.
        ("POST", "/boxes", host(json!({"run_config": [null]})), 422, at("run_config", wrong)),
        (
            "GET",
            "/boxes?sort_order=asc&sort_direction=x",
            Value::Null,
            422,
            at("sort_direction", "must be asc or desc"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"run_config": {"work_dir": "here"}})),
            422,
            at("run_config", "work_dir must be an absolute path"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"run_config": {"user": "nobody-here"}})),
            422,
            cannot("there is no user \"nobody-here\": use agbox, root or a number"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"env_vars": {"A=B": "x"}})),
            422,
            cannot("a variable has a name without =, and neither holds the character zero"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"proxy_config": {"rules": [{"host": "x"}]}})),
            422,
            cannot("proxy_config: sandboxes have no network"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"mount_config": {"mounts": [{"path": "/x"}]}})),
            422,
            cannot("mount_config: nothing can be mounted here"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"access_delegation": {"mode": "INHERIT"}})),
            422,
            cannot("access_delegation: this server can give no access to another"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"volumes": [{"volume": "v", "mount_path": "/v"}]})),
            422,
            cannot("volumes: there are none here"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"tag_value_ids": ["x"]})),
            422,
            cannot("tag_value_ids: use labels instead"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"persistent": false})),
            422,
            cannot("persistent: files are kept when a sandbox is stopped"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"preserve_memory_on_stop": true})),
            422,
            cannot("preserve_memory_on_stop: processes end when a sandbox is stopped"),
        ),
        (
            "POST",
            "/boxes",
            host(json!({"restore_memory": true})),
            422,
            cannot("restore_memory: snapshots here have no memory"),
        ),
        (
            "POST",
            "/boxes",
            json!([1]),
            400,
            "ValidationError: the body must be a JSON object".into(),
        ),
        (
            "GET",
            "/boxes/no-box",
            Value::Null,
            404,
            "NotFound: there is no sandbox of this name".into(),
        ),
        (
            "GET",
            "/boxes/no-box/status",
            Value::Null,
            404,
            "NotFound: there is no sandbox of this name".into(),
        ),
        (
            "POST",
            "/boxes/no-box/start",
            json!({}),
            404,
            "NotFound: there is no sandbox of this name".into(),
        ),
        (
            "POST",
            "/boxes/no-box/stop",
            json!({}),
            404,
            "NotFound: there is no sandbox of this name".into(),
        ),
        (
            "DELETE",
            "/boxes/no-box",
            Value::Null,
            404,
            "NotFound: there is no sandbox of this name".into(),
        ),
        (
            "POST",
            "/boxes/no-box/snapshot",
            json!({"name": "x"}),
            404,
            "NotFound: there is no sandbox of this name".into(),
        ),
        (
            "POST",
            "/boxes/a-box/snapshot",
            json!({"name": "x"}),
            501,
            "NotImplemented: snapshots are made of images here, and not of sandboxes yet".into(),
        ),
        // Changes.
        (
            "PATCH",
            "/boxes/no-box",
            json!({}),
            404,
            "NotFound: there is no sandbox of this name".into(),
        ),
        ("PATCH", "/boxes/a-box", json!({"name": ""}), 422, at("name", id_form)),
        (
            "PATCH",
            "/boxes/a-box",
            json!({"idle_ttl_seconds": 30}),
            422,
            at("idle_ttl_seconds", TTL),
        ),
        (
            "PATCH",
            "/boxes/a-box",
            json!({"delete_after_stop_seconds": 30}),
            422,
            at("delete_after_stop_seconds", TTL),
        ),
        (
            "PATCH",
            "/boxes/a-box",
            json!({"proxy_config": {"rules": [{"host": "x"}]}}),
            422,
            cannot("proxy_config: sandboxes have no network"),
        ),
        (
            "PATCH",
            "/boxes/a-box",
            json!({"mem_bytes": 1}),
            422,
            cannot("the size of a sandbox is set when it is created"),
        ),
        (
            "PATCH",
            "/boxes/a-box",
            json!({"run_config": {"user": "nobody-here"}}),
            422,
            cannot("there is no user \"nobody-here\": use agbox, root or a number"),
        ),
        ("PATCH", "/boxes/a-box", json!({"run_config": 1}), 422, at("run_config", wrong)),
        // Lists.
        ("GET", "/boxes?limit=0", Value::Null, 422, at("limit", "must be 1 to 500")),
        ("GET", "/boxes?page_size=501", Value::Null, 422, at("page_size", "must be 1 to 500")),
        ("GET", "/boxes?offset=-1", Value::Null, 422, at("offset", "must be 0 to 1000000")),
        (
            "GET",
            "/boxes?status=asleep",
            Value::Null,
            422,
            at("status", "must be one of provisioning, ready, failed, stopped, deleting"),
        ),
        (
            "GET",
            "/boxes?status=ready&status=failed",
            Value::Null,
            422,
            at("status", "it is there more than once"),
        ),
        ("GET", "/boxes?created_by=you", Value::Null, 422, at("created_by", "must be me")),
        (
            "GET",
            "/boxes?cursor=x",
            Value::Null,
            422,
            at("cursor", "this is not a cursor of a list"),
        ),
        (
            "GET",
            "/boxes?sort_by=colour",
            Value::Null,
            422,
            at(
                "sort_by",
                "must be one of created_at, name, status, stopped_at, idle_ttl_seconds, delete_after_stop_seconds",
            ),
        ),
        ("GET", "/boxes?sort_order=up", Value::Null, 422, at("sort_order", "must be asc or desc")),
        ("GET", "/snapshots?limit=501", Value::Null, 422, at("limit", "must be 1 to 500")),
        (
            "GET",
            "/snapshots?sort_by=stopped_at",
            Value::Null,
            422,
            at("sort_by", "must be one of created_at, name, status"),
        ),
        // URLs.
        (
            "POST",
            "/boxes/no-box/service-url",
            json!({"port": 80}),
            404,
            "NotFound: there is no sandbox of this name".into(),
        ),
        ("POST", "/boxes/a-box/service-url", json!({}), 422, at("port", "must be 1 to 65535")),
        (
            "POST",
            "/boxes/a-box/service-url",
            json!({"port": 65536}),
            422,
            at("port", "must be 1 to 65535"),
        ),
        ("POST", "/boxes/a-box/service-url", json!({"port": "80"}), 422, at("port", wrong)),
        (
            "POST",
            "/boxes/a-box/service-url",
            json!({"port": 80, "expires_in_seconds": 0}),
            422,
            at("expires_in_seconds", "must be 1 to 86400"),
        ),
        (
            "POST",
            "/boxes/a-box/service-url",
            json!({"port": 80, "expires_in_seconds": 86401}),
            422,
            at("expires_in_seconds", "must be 1 to 86400"),
        ),
        (
            "POST",
            "/boxes/a-box/service-url",
            json!({"port": 80, "access": "workspace"}),
            422,
            cannot("access: nobody logs in here; leave it out to get a token"),
        ),
        (
            "POST",
            "/boxes/a-box/service-url",
            json!({"port": 80, "access": "all"}),
            422,
            at("access", "must be left out, or off"),
        ),
        (
            "POST",
            "/boxes/a-box/service-url",
            json!({"port": 80, "embed_origins": ["https://a"]}),
            422,
            at("embed_origins", "no other page may show a service in a frame"),
        ),
        (
            "POST",
            "/boxes/no-box/download-url",
            json!({"path": "x"}),
            404,
            "NotFound: there is no sandbox of this name".into(),
        ),
        ("POST", "/boxes/a-box/download-url", json!({}), 422, at("path", "it is missing")),
        (
            "POST",
            "/boxes/a-box/download-url",
            json!({"path": "x", "expires_in_seconds": 0}),
            422,
            at("expires_in_seconds", "must be 1 to 315360000"),
        ),
        (
            "POST",
            "/boxes/a-box/download-url",
            json!({"path": "x", "content_type": "text"}),
            422,
            at("content_type", "must be like text/plain"),
        ),
        (
            "POST",
            "/boxes/a-box/download-url",
            json!({"path": "x", "content_type": "text/html\r\nX: y"}),
            422,
            at("content_type", "must be like text/plain"),
        ),
        (
            "POST",
            "/boxes/a-box/download-url",
            json!({"path": "x", "content_disposition": "form-data"}),
            422,
            at("content_disposition", "must be attachment or inline"),
        ),
        // Snapshots and templates.
        ("POST", "/snapshots", json!({"docker_image": "host"}), 422, at("name", "it is missing")),
        ("POST", "/snapshots", json!({"name": "mine"}), 422, at("docker_image", "it is missing")),
        ("POST", "/snapshots", snapshot(json!({"name": "a:b"})), 422, at("name", name_form)),
        (
            "POST",
            "/snapshots",
            snapshot(json!({"tag": "a b"})),
            422,
            at(
                "tag",
                "a tag has 1 to 128 letters, digits, `.`, `-` and `_`, and begins with a letter, digit or `_`",
            ),
        ),
        (
            "POST",
            "/snapshots",
            snapshot(json!({"fs_capacity_bytes": "1"})),
            422,
            at("fs_capacity_bytes", wrong),
        ),
        (
            "POST",
            "/snapshots",
            snapshot(json!({"registry_id": "x"})),
            422,
            cannot("registry_id: how registries are logged in to is set in images.registries"),
        ),
        (
            "POST",
            "/snapshots",
            snapshot(json!({"description": "x".repeat(1025)})),
            422,
            at("description", "must have 1024 bytes at most"),
        ),
        (
            "GET",
            "/snapshots/mine",
            Value::Null,
            404,
            "NotFound: there is no snapshot of this name".into(),
        ),
        (
            "GET",
            "/snapshots/a%2Fb",
            Value::Null,
            404,
            "NotFound: there is no snapshot of this name".into(),
        ),
        (
            "DELETE",
            "/snapshots/mine:v1",
            Value::Null,
            404,
            "NotFound: there is no snapshot of this name".into(),
        ),
        (
            "GET",
            "/snapshots-by-name/mine",
            Value::Null,
            404,
            "NotFound: there is no snapshot of this name".into(),
        ),
        ("GET", "/snapshots-by-name/mine:v1", Value::Null, 422, at("name", name_form)),
        (
            "POST",
            "/templates",
            json!({"name": "mine", "image": "host", "cpu": "fast"}),
            422,
            at("cpu", "must be like 500m, 2 or 0.5"),
        ),
        (
            "POST",
            "/templates",
            json!({"name": "mine", "image": "host", "memory": "1 GB"}),
            422,
            at("memory", "must be like 512Mi, 1Gi or a number of bytes"),
        ),
        ("POST", "/templates", json!({"name": "mine"}), 422, at("image", "it is missing")),
        (
            "POST",
            "/templates",
            json!({"name": "mine", "image": "host", "volume_mounts": [{}]}),
            422,
            cannot("there are no volumes here: a sandbox keeps its own files when it is stopped"),
        ),
        (
            "GET",
            "/templates/mine",
            Value::Null,
            404,
            "NotFound: there is no snapshot of this name".into(),
        ),
        (
            "DELETE",
            "/templates/mine",
            Value::Null,
            404,
            "NotFound: there is no snapshot of this name".into(),
        ),
        (
            "POST",
            "/volumes",
            json!({"name": "v", "size": "1Gi"}),
            422,
            cannot("there are no volumes here: a sandbox keeps its own files when it is stopped"),
        ),
        (
            "DELETE",
            "/volumes/v",
            Value::Null,
            404,
            "NotFound: there is nothing of this name".into(),
        ),
        (
            "POST",
            "/pools",
            json!({"name": "p", "template_name": "t", "replicas": 1}),
            422,
            cannot(
                "there are no pools here: the operator sets sandboxes.prepared, which is for everybody",
            ),
        ),
        ("DELETE", "/pools/p", Value::Null, 404, "NotFound: there is nothing of this name".into()),
    ];
    for (method, path, body, status, told) in rows {
        let answer = ask(daemon, &daemon.key, method, path, &body).await;
        assert_eq!(refusal(&answer), (status, told), "{method} {path} {body}");
        let wrong = ask(daemon, "rf_wrong", method, path, &body).await;
        assert_eq!(refusal(&wrong).0, 401, "{method} {path}");
    }
    for list in ["volumes", "pools", "templates"] {
        assert_eq!(super::get(daemon, &format!("/{list}")).await, json!({list: []}));
    }
}
