//! Another key of the server itself: with a time in which the one before is good, and without.

use model::actor::ActorKind;
use serde_json::{Value, json};
use store::keys::Role;

use super::{Open, access, ask, mint};
use crate::{
    events::Events,
    exec::{Ground, Wire},
    sessions,
    support::{self, Answer},
};

const ROTATE: &str = "/v1/admin/master-key/rotate";

/// F72: with a hundred streams open.
#[tokio::test]
async fn f72_another_key_of_the_server_leaves_streams_alone_and_an_emergency_closes_all() {
    let ground = Ground::new().await;
    let (daemon, id) = (ground.daemon(), &ground.id);
    let [token, _] = mint(daemon, id, "ada", "jwt").await;
    let [opaque, _] = mint(daemon, id, "bob", "opaque").await;
    let open = Open::with(daemon, id, &token, "old").await;
    let of_opaque = Open::with(daemon, id, &opaque, "opaque").await;
    let path = format!("/dp/{id}/v1/events");
    let mut streams = Vec::new();
    for number in 0..100 {
        let [token, _] = mint(daemon, id, &format!("actor-{number}"), "jwt").await;
        streams.push(Events::of(daemon, &path, &token, "").await);
    }
    let rotated = ask(daemon, ROTATE, &json!({})).await;
    assert_eq!(rotated.status, 200, "{}", rotated.body);
    assert_eq!(rotated.json()["key"], 2);
    assert!(rotated.json()["previous_until"].is_string());
    // What was signed before is as good as what is signed now, and what it has opened goes on.
    let [newer, _] = mint(daemon, id, "ada", "jwt").await;
    assert_ne!(newer.split('.').next(), token.split('.').next());
    for token in [&token, &opaque, &newer] {
        assert_eq!(access(daemon, id, token).await, 200);
    }
    open.goes_on().await;
    for stream in &mut streams {
        while stream.until("EXEC_FAILED").await.data["exit_code"] != 7 {}
    }
    let with_newer = Open::with(daemon, id, &newer, "new").await;

    let rotated = ask(daemon, ROTATE, &json!({"at_once": true})).await;
    assert_eq!((rotated.status, rotated.json()), (200, json!({"key": 3})));
    of_opaque.ends().await;
    with_newer.ends().await;
    for stream in &mut streams {
        assert_eq!(stream.until("closed").await.data, json!({"reason": "revoked"}));
    }
    for token in [&token, &opaque, &newer, &ground.token] {
        assert_eq!(access(daemon, id, token).await, 401);
    }
    // The sandbox is as it was: so is the shell, for whoever has a new token.
    let [fresh, _] = mint(daemon, id, "ada", "jwt").await;
    let mut shell = Wire::open(daemon, id, "/v1/shell/ws", Some(&fresh)).await;
    shell.send(json!({"type": "start", "name": "new"})).await;
    shell.until("screen").await;
    let log = sessions::ask(daemon, "GET", "/v1/audit?action=token.rotate&order=asc").await.json();
    let told: Vec<_> = log["records"].as_array().unwrap().iter().collect();
    let rows = [("master key 2", Value::Null), ("master key 3", json!("at once"))];
    assert_eq!(told.len(), rows.len(), "{log}");
    for (record, (object, reason)) in told.iter().zip(rows) {
        assert_eq!((&record["object"], &record["reason"]), (&json!(object), &reason), "{record}");
    }
}

#[tokio::test]
async fn the_key_of_the_server_is_changed_by_its_own_admins_alone() {
    let ground = Ground::new().await;
    let daemon = ground.daemon();
    let ada = (ActorKind::Human, "ada");
    let asked = async |tenant: &str, role: Role| -> Answer {
        let key = support::key(daemon, tenant, role, ada).await;
        sessions::post_as(daemon, &key, ROTATE, &json!({})).await
    };
    let forbidden = (403, "FORBIDDEN".to_owned());
    assert_eq!(asked("default", Role::User).await.problem(), forbidden);
    assert_eq!(asked("default", Role::Broker).await.problem(), forbidden);
    assert_eq!(asked("elsewhere", Role::Admin).await.problem(), forbidden);
    assert_eq!(asked("default", Role::Admin).await.status, 200);
    let unknown = ask(daemon, ROTATE, &json!({"now": true})).await;
    assert_eq!(unknown.problem(), (400, "INVALID_REQUEST".to_owned()));
    for number in 3..=4 {
        assert_eq!(ask(daemon, ROTATE, &json!({})).await.json()["key"], number);
    }
    let refused = ask(daemon, ROTATE, &json!({})).await;
    assert_eq!(refused.problem(), (409, "CONFLICT".to_owned()));
}
