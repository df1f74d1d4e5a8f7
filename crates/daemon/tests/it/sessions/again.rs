//! Who asks for the same once more gets the token that he has, for a while.

use axum::{body::Body, http::Request};
use engine::tasks::Tasks;
use http_body_util::BodyExt as _;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::{SESSIONS, access, ask, post, text};
use crate::{
    mcp::jti,
    sandboxed::Sandboxed,
    support::{Daemon, settings},
};

/// A client with one connection, which it keeps.
struct Client<'a> {
    daemon: &'a Daemon,
    requests: SendRequest<Body>,
}

impl<'a> Client<'a> {
    async fn connect(daemon: &'a Daemon) -> Self {
        let stream = TcpStream::connect(daemon.address).await.unwrap();
        let (requests, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let talking = Tasks::default();
        talking.start("client", async move { drop(connection.await) });
        Self { daemon, requests }
    }

    async fn send(&mut self, path: &str, body: &Value, key: Option<&str>) -> Value {
        let mut request = Request::post(path)
            .header("Host", self.daemon.address.to_string())
            .header("X-Api-Key", &self.daemon.key)
            .header("Content-Type", "application/json");
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        let answer = self.requests.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap()
    }

    /// Ensures the session; returns its token.
    async fn token(&mut self) -> String {
        text(&self.send(SESSIONS, &wanted(), None).await, "/token").to_owned()
    }
}

fn wanted() -> Value {
    json!({"thread_id": "thr_again", "mode": "ensure", "image": "host"})
}

#[tokio::test]
async fn who_asks_again_has_his_token_and_others_have_theirs() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let (mut one, mut other) = (Client::connect(daemon).await, Client::connect(daemon).await);
    let first = one.send(SESSIONS, &wanted(), None).await;
    let again = one.send(SESSIONS, &wanted(), None).await;
    assert_eq!((&again["token"], &again["expires_at"]), (&first["token"], &first["expires_at"]));
    let thread = one.send("/threads/thr_again/sandbox", &json!({"image": "host"}), None).await;
    // Tokens of threads end earlier.
    assert_ne!(thread["token"], first["token"]);
    let theirs = other.token().await;
    assert_ne!(theirs, first["token"]);
    assert_eq!(other.token().await, theirs);

    // Each time is on the audit log, with the name of the token that was given out.
    let log = ask(daemon, "GET", "/v1/audit?order=asc&limit=1000").await.json();
    let acquired = log["records"].as_array().unwrap().iter();
    let acquired = acquired.filter(|record| record["action"] == "session.acquire");
    let told: Vec<_> = acquired
        .map(|record| (text(record, "/jti"), text(record, "/outcome"), record["reason"].as_str()))
        .collect();
    // What is given out again is noted, not waited for: it may come after what others have got since.
    let of = async |token: &str| {
        let jti = jti(daemon, token).await;
        let mine = told.iter().filter(|(id, ..)| *id == jti);
        mine.map(|(_, outcome, reason)| (*outcome, *reason)).collect::<Vec<_>>()
    };
    let again = ("granted", Some("the same token again"));
    assert_eq!(of(text(&first, "/token")).await, [("granted", None), again]);
    assert_eq!(of(&theirs).await, [("granted", None), again]);
}

#[tokio::test]
async fn who_asks_for_something_else_or_has_ended_his_token_gets_another() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let mut client = Client::connect(daemon).await;
    let session = client.send(SESSIONS, &wanted(), None).await;
    let (id, sandbox) = (text(&session, "/session_id"), text(&session, "/sandbox/id"));
    let mut last = text(&session, "/token").to_owned();

    // Other rights, another actor, and a request that has a name of its own.
    let changes = [
        (json!({"requested_capabilities": ["exec"]}), None),
        (json!({"actor": {"type": "human", "id": "ada"}}), None),
        (json!({}), Some("once")),
        (json!({}), Some("once")),
    ];
    for (change, key) in changes {
        let mut body = wanted();
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let given = client.send(SESSIONS, &body, key).await;
        assert_ne!(given["token"], last, "{change}");
        last = text(&given, "/token").to_owned();
    }

    let mine = client.token().await;
    let refreshed = format!("{SESSIONS}/{id}/refresh");
    let next = client.send(&refreshed, &json!({"current_token": mine}), None).await;
    let given = client.token().await;
    assert!(given != mine && given != text(&next, "/token"), "it ends soon, or is another's");

    let form = [("Content-Type", "application/x-www-form-urlencoded"), ("X-Api-Key", &daemon.key)];
    let revoked = daemon.ask("POST", "/oauth/revoke", &form, &format!("token={given}")).await;
    assert_eq!(revoked.status, 200, "{}", revoked.body);
    let after = client.token().await;
    assert_ne!(after, given);

    let path = format!("/v1/admin/sandboxes/{sandbox}/rotate-key");
    let rotated = post(daemon, &path, &json!({})).await;
    assert_eq!(rotated.status, 200, "{}", rotated.body);
    let last = client.token().await;
    assert_ne!(last, after);
    assert_eq!(access(daemon, sandbox, &last).await.status, 200);
}

#[tokio::test]
async fn who_speaks_through_a_proxy_gets_a_token_each_time() {
    let settings = daemon::serve::Settings { is_behind_proxy: true, ..settings() };
    let sandboxed = Sandboxed::start_with(None, settings).await;
    let mut client = Client::connect(sandboxed.daemon()).await;
    assert_ne!(client.token().await, client.token().await);
}
