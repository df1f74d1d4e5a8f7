//! Sessions and the command line; what a server that is killed has begun, and the next one goes on with: requests with a key,
//! and snapshots.

use std::{
    io::Write as _,
    sync::{
        Mutex,
        mpsc::{self, Receiver, Sender},
    },
    time::{Duration, Instant},
};

use harness::{
    imaging::small_system,
    registry::{Fake, honest},
};
use serde_json::{Value, json};

use crate::{
    command::{Server, read_rest},
    keeper::Keeper,
};

/// Nothing in these tests takes this long unless it is broken.
const PATIENCE: Duration = Duration::from_mins(1);

/// Asks with the first key; returns the status and what is answered.
fn ask(keeper: &Keeper, method: &str, path: &str, more: &str, body: &Value) -> (u16, Value) {
    let mut stream = keeper.connect();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "X-Api-Key: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{more}",
        keeper.key(),
        body.len(),
    );
    let line = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    write!(stream, "{line}{head}\r\n{body}").unwrap();
    let answer = read_rest(stream);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn an_admin_removes_a_sandbox_with_the_session_that_holds_it() {
    let keeper = Keeper::start();
    let asked = json!({"thread_id": "thr_1", "mode": "ensure", "image": "host"});
    let (status, held) = ask(&keeper, "POST", "/v1/sandbox/sessions", "", &asked);
    assert_eq!(status, 200, "{held}");
    let sandbox = held["sandbox"]["id"].as_str().unwrap();
    let removed = keeper.ask(&["rm", "--force", sandbox]);
    assert_eq!((removed.code, removed.out.trim()), (Some(0), sandbox), "{removed:?}");
    let session = format!("/v1/sandbox/sessions/{}", held["session_id"].as_str().unwrap());
    let (status, over) = ask(&keeper, "GET", &session, "", &Value::Null);
    assert_eq!(status, 404, "{over}");
    let told = keeper.ask(&["events", sandbox, "--json"]);
    assert!(told.out.contains("killed_by_admin"), "{told:?}");
    let noted = keeper.ask(&["audit", "list", "--json"]);
    assert!(noted.out.contains("sandbox.kill"), "{noted:?}");
    let again = keeper.ask(&["rm", "--force", "nobody"]);
    assert_eq!(again.code, Some(125), "{again:?}");
    let (_, next) = ask(&keeper, "POST", "/v1/sandbox/sessions", "", &asked);
    assert_ne!(next["sandbox"]["id"], held["sandbox"]["id"]);
}

/// F59, F61: what a key came to is on the disk before it is answered.
#[test]
fn a_request_with_a_key_comes_to_the_same_session_after_the_server_was_killed() {
    let mut keeper = Keeper::start();
    let send = |keeper: &Keeper, key: &str, body: &Value| {
        let key = format!("Idempotency-Key: {key}\r\n");
        ask(keeper, "POST", "/v1/sandbox/sessions", &key, body)
    };
    // Without its key the second would be refused: there is a session.
    let once = json!({"thread_id": "thr_1", "mode": "create_only", "image": "host"});
    let other = json!({"thread_id": "thr_2", "mode": "create_only", "image": "host"});
    let (status, first) = send(&keeper, "5f1d", &once);
    assert_eq!(status, 200, "{first}");
    for _ in 0..2 {
        keeper.kill();
        keeper.start_again();
        let (status, mut again) = send(&keeper, "5f1d", &once);
        assert_eq!(status, 200, "{again}");
        // The session is kept, not what was said of it: its token is new.
        assert_ne!(again["token"], first["token"]);
        for name in ["/token", "/expires_at", "/credentials", "/binding/lease_expires_at"] {
            *again.pointer_mut(name).unwrap() = first.pointer(name).unwrap().clone();
        }
        assert_eq!(again, first);
        let (status, reused) = send(&keeper, "5f1d", &other);
        assert_eq!((status, &reused["error"]["code"]), (422, &"IDEMPOTENCY_KEY_REUSED".into()));
        let (status, none) = send(&keeper, "another", &once);
        assert_eq!((status, &none["error"]["code"]), (409, &"BINDING_CONFLICT".into()));
    }
    let (status, made) = send(&keeper, "another", &other);
    assert_eq!(status, 200, "nothing has come of it before: {made}");
}

/// A registry that says when it is asked, and answers when it is let.
fn slow_registry() -> (Fake, Receiver<()>, Sender<()>) {
    let (asked, is_asked) = mpsc::channel();
    let (closed, open) = mpsc::channel::<()>();
    let (built, open) = (small_system(), Mutex::new(open));
    let registry = Fake::start(move |request| {
        asked.send(()).unwrap_or_default();
        open.lock().unwrap().recv().unwrap_err();
        honest(&built, request)
    });
    (registry, is_asked, closed)
}

#[test]
fn a_snapshot_that_a_server_has_left_half_made_is_made_by_the_next() {
    let (registry, is_asked, closed) = slow_registry();
    let mut keeper = Keeper(Server::start_listing(&registry.address.to_string()));
    let image = format!("{}/team/slow:latest", registry.address);
    let body = json!({"name": "mine", "docker_image": image, "fs_capacity_bytes": 1_u64 << 30});
    let (status, made) = ask(&keeper, "POST", "/v2/sandboxes/snapshots", "", &body);
    assert!((200..300).contains(&status), "{made}");
    let now =
        |keeper: &Keeper| ask(keeper, "GET", "/v2/sandboxes/snapshots/mine", "", &Value::Null).1;
    for is_killed in [true, false] {
        is_asked.recv_timeout(PATIENCE).expect("nobody asks the registry");
        assert_eq!(now(&keeper)["status"], "building");
        if is_killed {
            keeper.kill();
        } else {
            keeper.end();
        }
        keeper.start_again();
    }
    is_asked.recv_timeout(PATIENCE).expect("nobody goes on with it");
    drop(closed);
    let begun = Instant::now();
    let settled = loop {
        let now = now(&keeper);
        if now["status"] != "building" {
            break now;
        }
        assert!(begun.elapsed() < PATIENCE, "{now}");
    };
    assert_eq!((&settled["status"], &settled["id"]), (&"ready".into(), &made["id"]), "{settled}");
    assert!(settled["image_digest"].as_str().unwrap().starts_with("sha256:"), "{settled}");
}
