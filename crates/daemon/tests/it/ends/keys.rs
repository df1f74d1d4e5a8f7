//! What ends with the API key that it was granted with.

use daemon::keys::{NewKey, Secret};
use model::ids::SandboxId;
use serde_json::{Value, json};
use store::keys::Role;

use super::{Open, access};
use crate::{
    exec::{Ground, Wire},
    oauth::exchange,
    sessions::{self, SESSIONS, ensure, post_as, text},
    support::Daemon,
};

/// Makes a key; returns its secret and its id.
pub(super) async fn key(daemon: &Daemon, name: &str) -> [String; 2] {
    let secret = Secret::random().unwrap();
    let new = NewKey::named(name, Role::Broker).unwrap();
    let key = daemon.keyring.create(new, &secret).await.unwrap();
    [secret.reveal().to_owned(), key.id.0]
}

pub(super) async fn revoke(daemon: &Daemon, id: &str) {
    let answer = sessions::ask(daemon, "DELETE", &format!("/v1/admin/keys/{id}")).await;
    assert_eq!(answer.status, 204, "{}", answer.body);
}

async fn exchanged(daemon: &Daemon, subject: &str, fields: &[(&str, &str)]) -> String {
    let answer = exchange(daemon, subject, fields).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    text(&answer.json(), "/access_token").to_owned()
}

/// Gets tokens in every way that a key leads to one.
async fn tokens(daemon: &Daemon, secret: &str, thread: &str, id: &SandboxId) -> Vec<String> {
    let wanted = json!({"thread_id": thread, "mode": "get"});
    let acquired = post_as(daemon, secret, SESSIONS, &wanted).await;
    assert_eq!(acquired.status, 200, "{}", acquired.body);
    let acquired = text(&acquired.json(), "/token").to_owned();
    let resource = format!("sandbox:{id}");
    let of_key = [("resource", resource.as_str())];
    let direct = exchanged(daemon, secret, &of_key).await;
    let opaque = exchanged(daemon, secret, &[of_key[0], ("format", "opaque")]).await;
    let less = exchanged(daemon, &acquired, &[("scope", "process")]).await;
    let least = exchanged(daemon, &less, &[("format", "opaque")]).await;
    vec![acquired, direct, opaque, less, least]
}

/// Gets a URL that downloads a file; returns its path.
async fn link(daemon: &Daemon, secret: &str, id: &SandboxId) -> String {
    let path = format!("/v2/sandboxes/boxes/{id}/download-url");
    let given = post_as(daemon, secret, &path, &json!({"path": "/etc/passwd"})).await;
    assert_eq!(given.status, 200, "{}", given.body);
    let given = given.json();
    let url = text(&given, "/download_url");
    url.split_at(url.find("/dp/").unwrap()).1.to_owned()
}

#[tokio::test]
async fn revoking_a_key_ends_all_that_was_granted_with_it_and_nothing_else() {
    let ground = Ground::new().await;
    let daemon = ground.daemon();
    let session = ensure(daemon, "thr_1").await;
    let id: SandboxId = text(&session, "/sandbox/id").parse().unwrap();
    let [ours, key_id] = key(daemon, "ours").await;
    let [theirs, _] = key(daemon, "theirs").await;
    let doomed = tokens(daemon, &ours, "thr_1", &id).await;
    let spared = tokens(daemon, &theirs, "thr_1", &id).await;
    let mut open = Vec::new();
    for (number, token) in doomed.iter().take(3).enumerate() {
        open.push(Open::with(daemon, &id, token, &format!("ours-{number}")).await);
    }
    let by_key = Wire::open(daemon, &id, "/tunnel", Some(&ours)).await;
    let goes_on = Open::with(daemon, &id, &spared[0], "theirs").await;
    for token in doomed.iter().chain(&spared) {
        assert_eq!(access(daemon, &id, token).await, 200);
    }
    let links = [link(daemon, &ours, &id).await, link(daemon, &theirs, &id).await];
    for path in &links {
        assert_eq!(daemon.ask("GET", path, &[], "").await.status, 200);
    }
    revoke(daemon, &key_id).await;
    let [with_ours, with_theirs] = &links;
    assert_eq!(daemon.ask("GET", with_ours, &[], "").await.status, 401);
    assert_eq!(daemon.ask("GET", with_theirs, &[], "").await.status, 200);
    for token in &doomed {
        assert_eq!(access(daemon, &id, token).await, 401);
        let refused = exchange(daemon, token, &[]).await;
        assert_eq!(refused.status, 400, "{}", refused.body);
    }
    for open in open {
        open.ends().await;
    }
    let mut by_key = by_key;
    assert_eq!(by_key.closed().await, Some(4401));
    // A token of it is no proof of anything, also for whoever has another key.
    let path = format!("{SESSIONS}/{}/refresh", text(&session, "/session_id"));
    let shown = json!({"current_token": doomed[0]});
    assert_eq!(post_as(daemon, &theirs, &path, &shown).await.status, 401);
    for token in &spared {
        assert_eq!(access(daemon, &id, token).await, 200);
    }
    // The sandbox is the thread's, and what others have opened in it goes on.
    goes_on.goes_on().await;
    assert_eq!(text(&ensure(daemon, "thr_1").await, "/sandbox/id"), id.as_str());
    let path = "/v1/audit?action=key.revoke";
    let log = sessions::ask(daemon, "GET", path).await.json();
    let expected = (&json!("granted"), &json!(key_id));
    let recorded: &Value = &log["records"][0];
    assert_eq!((&recorded["outcome"], &recorded["object"]), expected, "{log}");
}
