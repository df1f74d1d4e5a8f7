//! Policy at the doors: capabilities, life of tokens, quotas, rates; and tenants, who never see each
//! other.

use std::collections::BTreeMap;

use api::agbox::v1;
use daemon::dataplane::{self, routes::Credentials};
use model::{
    actor::ActorKind,
    capability::Asked,
    policy::{Pattern, Policy, Quotas, Rule, Scopes},
    token::Lifetime,
};
use serde_json::{Value, json};
use store::keys::Role;

use crate::{
    oauth::{exchange, post_with},
    peer::{Peer, cancel},
    sandboxed::Sandboxed,
    support::{Answer, Daemon, key, raw},
};

const BOXES: &str = "/v2/sandboxes/boxes";

async fn ask(daemon: &Daemon, key: &str, method: &str, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    daemon.ask(method, path, &headers, &body).await
}

fn named(name: &str) -> Value {
    json!({"name": name, "snapshot_name": "host", "wait_for_ready": true})
}

fn rule(scope: &str) -> Rule {
    let most = Asked::scope(scope).unwrap().capabilities();
    Rule { capabilities: Some(most), scopes: Scopes::All }
}

#[tokio::test]
async fn capabilities_and_life_of_tokens_are_what_the_operator_allows() {
    let agent = Asked::scope("fs:ro").unwrap().capabilities();
    let token_ttl = Lifetime::seconds(300).unwrap();
    let (admin, user) = (rule("fs:rw process"), rule("fs:ro"));
    let policy = Policy { agent, admin, user, token_ttl, ..Policy::default() };
    let sandboxed = Sandboxed::start_under(policy).await;
    let daemon = sandboxed.daemon();
    let made = ask(daemon, &daemon.key, "POST", BOXES, &named("a-box")).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let robot = json!({"type": "agent", "id": "robot"});
    let rows = [
        (json!({}), Ok("fs:rw process")),
        (json!({"scope": "shell process"}), Ok("process")),
        (json!({"scope": ""}), Ok("")),
        (json!({"actor": robot}), Ok("fs:ro")),
        (json!({"actor": robot, "scope": "process"}), Err((403, "CAPABILITY_DENIED".to_owned()))),
        (json!({"scope": "shell"}), Err((403, "CAPABILITY_DENIED".to_owned()))),
        (json!({"scope": "everything"}), Err((400, "INVALID_REQUEST".to_owned()))),
        (json!({"ttl_seconds": 301}), Err((400, "INVALID_REQUEST".to_owned()))),
    ];
    for (mut asked, expected) in rows {
        asked["sandbox"] = json!("a-box");
        let answer = ask(daemon, &daemon.key, "POST", "/v1/admin/tokens", &asked).await;
        let found = match answer.status {
            201 => {
                assert_eq!(answer.json()["expires_in"], 300);
                Ok(answer.json()["scope"].as_str().unwrap().to_owned())
            }
            _ => Err(answer.problem()),
        };
        assert_eq!(found, expected.map(str::to_owned), "{asked}");
    }
    // A key on the data plane has what its role has.
    let user = key(daemon, "default", Role::User, (ActorKind::Human, "somebody")).await;
    let execute = json!({"command": "true"});
    let denied = ask(daemon, &user, "POST", &format!("/dp/{id}/execute"), &execute).await;
    assert_eq!(denied.status, 403, "{}", denied.body);
    let allowed = ask(daemon, &daemon.key, "POST", &format!("/dp/{id}/execute"), &execute).await;
    assert_eq!(allowed.status, 200, "{}", allowed.body);
}

#[tokio::test]
async fn sessions_are_under_the_policy_too() {
    let scopes = |pattern: &str| Scopes::These(vec![Pattern::read(pattern).unwrap()]);
    let policy = Policy {
        token_ttl: Lifetime::seconds(300).unwrap(),
        session_ttl: Lifetime::seconds(2400).unwrap(),
        user: Rule { capabilities: None, scopes: scopes("thread:mine-*") },
        broker: Rule { capabilities: None, scopes: Scopes::Own },
        quotas: Quotas { sandboxes: Some(2), ..Quotas::default() },
        ..Policy::default()
    };
    let sandboxed = Sandboxed::start_under(policy).await;
    let daemon = sandboxed.daemon();
    let user = key(daemon, "default", Role::User, (ActorKind::Human, "somebody")).await;
    let broker = key(daemon, "default", Role::Broker, (ActorKind::Human, "somebody")).await;
    let ensure = async |key: &str, thread: &str| {
        let body = json!({"thread_id": thread, "mode": "ensure", "image": "host"});
        ask(daemon, key, "POST", "/v1/sandbox/sessions", &body).await
    };
    let forbidden = (403, "FORBIDDEN".to_owned());
    assert_eq!(ensure(&user, "other").await.problem(), forbidden);
    let mine = ensure(&user, "mine-1").await;
    assert_eq!(mine.status, 200, "{}", mine.body);
    let token = format!("/internal/tokens/{}", mine.json()["token"].as_str().unwrap());
    let told = ask(daemon, &daemon.key, "GET", &token, &Value::Null).await.json();
    assert_eq!(told["exp"].as_i64().unwrap() - told["iat"].as_i64().unwrap(), 2400);
    let thread = json!({"image": "host"});
    let thread = ask(daemon, &user, "POST", "/threads/mine-1/sandbox", &thread).await.json();
    let token = format!("/internal/tokens/{}", thread["token"].as_str().unwrap());
    let told = ask(daemon, &daemon.key, "GET", &token, &Value::Null).await.json();
    assert_eq!(told["exp"].as_i64().unwrap() - told["iat"].as_i64().unwrap(), 300);
    let longer = json!({"ttl": 301, "image": "host"});
    let longer = ask(daemon, &user, "POST", "/threads/mine-1/sandbox", &longer).await;
    assert_eq!(longer.problem(), (400, "INVALID_REQUEST".to_owned()));
    // Who reaches only what is his own has what nobody had before, and nothing of others.
    let own = ensure(&broker, "theirs").await;
    assert_eq!(own.status, 200, "{}", own.body);
    assert_eq!(ensure(&broker, "mine-1").await.problem(), forbidden);
    let session = format!("/v1/sandbox/sessions/{}", mine.json()["session_id"].as_str().unwrap());
    for (method, path) in [
        ("GET", session.clone()),
        ("POST", format!("{session}/refresh")),
        ("POST", format!("{session}/refresh-token")),
        ("POST", format!("{session}/heartbeat")),
        ("DELETE", session),
        ("POST", "/threads/mine-1/sandbox/heartbeat".to_owned()),
        ("DELETE", "/threads/mine-1/sandbox".to_owned()),
        ("POST", "/threads/mine-1/archive".to_owned()),
        ("DELETE", "/threads/mine-1".to_owned()),
    ] {
        let body = if method == "POST" { json!({}) } else { Value::Null };
        let answer = ask(daemon, &broker, method, &path, &body).await;
        assert_eq!(answer.problem(), forbidden, "{method} {path}");
    }
    let third = ensure(&user, "mine-2").await;
    assert_eq!(third.problem(), (429, "RATE_LIMITED".to_owned()));
    assert!(third.head.contains("retry-after: "), "{}", third.head);
    assert_eq!(ensure(&user, "mine-1").await.status, 200);
}

/// A scope that is kept from a key is kept from it at every door, not at that of sessions alone.
#[tokio::test]
async fn what_a_session_has_is_out_of_reach_of_other_keys_by_whatever_door() {
    let own = Rule { capabilities: None, scopes: Scopes::Own };
    let sandboxed = Sandboxed::start_under(Policy { user: own, ..Policy::default() }).await;
    let daemon = sandboxed.daemon();
    let ada = key(daemon, "default", Role::User, (ActorKind::Human, "ada")).await;
    let eve = key(daemon, "default", Role::User, (ActorKind::Human, "eve")).await;
    let body = json!({"thread_id": "hers", "mode": "ensure", "image": "host"});
    let session = ask(daemon, &ada, "POST", "/v1/sandbox/sessions", &body).await.json();
    let sandbox = session["sandbox"]["id"].as_str().unwrap();
    let of_all = ask(daemon, &eve, "POST", BOXES, &named("of-all")).await;
    assert_eq!(of_all.status, 201, "{}", of_all.body);

    let rows = [
        ("POST", format!("/dp/{sandbox}/execute"), json!({"command": "true"})),
        ("GET", format!("{BOXES}/{sandbox}"), Value::Null),
        ("GET", format!("{BOXES}/{sandbox}/status"), Value::Null),
        ("POST", format!("{BOXES}/{sandbox}/stop"), json!({})),
        ("POST", format!("{BOXES}/{sandbox}/service-url"), json!({"port": 80})),
        ("POST", format!("{BOXES}/{sandbox}/download-url"), json!({"path": "/etc/passwd"})),
        ("DELETE", format!("{BOXES}/{sandbox}"), Value::Null),
    ];
    for (method, path, body) in &rows {
        let answer = ask(daemon, &eve, method, path, body).await;
        assert_eq!(answer.status, 403, "{method} {path}: {}", answer.body);
    }
    let listed = async |key: &str| {
        let list = ask(daemon, key, "GET", BOXES, &Value::Null).await.json();
        let mut names: Vec<_> = list["sandboxes"].as_array().unwrap().clone();
        names.retain(|it| it["id"] == sandbox);
        names.len()
    };
    assert_eq!([listed(&eve).await, listed(&ada).await], [0, 1]);
    let resource = format!("sandbox:{sandbox}");
    let refused = exchange(daemon, &eve, &[("resource", &resource)]).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    // What is there for whole tenants is not for who reaches a part of one.
    let asked = v1::GetSandboxRequest { sandbox_id: sandbox.to_owned() };
    let refused = sandboxed.remote(&eve).await.get_sandbox(asked).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied);

    // What nobody's session has is the tenant's, and what is hers she reaches by every door.
    for (key, name) in [(&ada, "of-all"), (&ada, sandbox), (&eve, "of-all")] {
        let answer = ask(daemon, key, "GET", &format!("{BOXES}/{name}"), &Value::Null).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    assert_eq!(exchange(daemon, &ada, &[("resource", &resource)]).await.status, 200);
    let (method, path, body) = &rows[0];
    assert_eq!(ask(daemon, &ada, method, path, body).await.status, 200);
}

#[tokio::test]
async fn a_users_key_gets_tokens_for_its_own_sandboxes_and_for_no_others() {
    let own = Rule { capabilities: None, scopes: Scopes::Own };
    let sandboxed = Sandboxed::start_under(Policy { user: own, ..Policy::default() }).await;
    let daemon = sandboxed.daemon();
    let ada = key(daemon, "default", Role::User, (ActorKind::Human, "ada")).await;
    let eve = key(daemon, "default", Role::User, (ActorKind::Human, "eve")).await;
    let body = json!({"thread_id": "hers", "mode": "ensure", "image": "host"});
    let session = ask(daemon, &ada, "POST", "/v1/sandbox/sessions", &body).await.json();
    let hers = session["sandbox"]["id"].as_str().unwrap().to_owned();
    let elsewhere = sandboxed.make("elsewhere", None).await.to_string();
    let mint = async |key: &str, sandbox: &str| {
        let body = json!({"sandbox": sandbox, "scope": "shell"});
        ask(daemon, key, "POST", "/v1/tokens", &body).await
    };
    let minted = mint(&ada, &hers).await;
    assert_eq!((minted.status, &minted.json()["scope"]), (201, &json!("shell")), "{}", minted.body);
    assert_eq!(mint(&eve, &hers).await.problem(), (403, "FORBIDDEN".into()));
    assert_eq!(mint(&ada, &elsewhere).await.problem(), (404, "NOT_FOUND".into()));
}

#[tokio::test]
async fn a_tenant_has_as_many_sandboxes_as_it_may_also_if_it_asks_at_once() {
    let few = Quotas { sandboxes: Some(2), ..Quotas::default() };
    let tenants = BTreeMap::from([("default".to_owned(), few)]);
    let sandboxed = Sandboxed::start_under(Policy { tenants, ..Policy::default() }).await;
    let daemon = sandboxed.daemon();
    let make = async |number: usize| {
        ask(daemon, &daemon.key, "POST", BOXES, &named(&format!("box-{number}"))).await
    };
    let answers = futures_util::future::join_all((0..8).map(make)).await;
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(made, 2, "{answers:#?}");
    for refused in answers.iter().filter(|answer| answer.status != 201) {
        assert_eq!(refused.status, 429, "{}", refused.body);
        assert!(refused.head.contains("retry-after: "), "{}", refused.head);
        assert_eq!(refused.json()["detail"]["error"], "QuotaExceeded");
    }
    let other = key(daemon, "other", Role::User, (ActorKind::Human, "somebody")).await;
    assert_eq!(ask(daemon, &other, "POST", BOXES, &named("theirs")).await.status, 201);
    let list = ask(daemon, &daemon.key, "GET", BOXES, &Value::Null).await.json();
    let name = list["sandboxes"][0]["name"].as_str().unwrap().to_owned();
    let path = format!("{BOXES}/{name}");
    assert_eq!(ask(daemon, &daemon.key, "DELETE", &path, &Value::Null).await.status, 204);
    let tenant = "default".parse().unwrap();
    let gone = sandboxed.sandboxes.get(&tenant, &name).await.unwrap();
    sandboxed.sandboxes.settled(gone).await.unwrap();
}

#[tokio::test]
async fn a_tenant_has_as_many_executions_as_it_may_over_all_connections() {
    let quotas = Quotas { executions: Some(2), ..Quotas::default() };
    let daemon = Daemon::start_under(Policy { quotas, ..Policy::default() }).await;
    let mut one = Peer::connect(&daemon).await;
    let mut other = Peer::connect(&daemon).await;
    for (peer, id) in [(&mut one, "a"), (&mut other, "b")] {
        peer.run(id, "start\nhang").await;
        // It is accepted when there is a word of it.
        peer.next().await;
    }
    other.run("c", "start").await;
    let refused = other.until_end("c").await;
    assert_eq!(refused[0]["code"], "SANDBOX_OVERLOADED", "{refused:?}");
    one.send(cancel("a")).await;
    one.until_end("a").await;
    other.run("d", "start").await;
    assert_eq!(other.until_end("d").await.last().unwrap()["type"], "result");
}

/// H19.
#[tokio::test]
async fn h19_who_asks_too_fast_is_told_when_to_come_back_before_his_body_is_read() {
    let quotas = Quotas { requests_per_second: Some(3), ..Quotas::default() };
    let daemon = Daemon::start_under(Policy { quotas, ..Policy::default() }).await;
    let bearer = format!("Bearer {}", daemon.key);
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let mut limited = 0;
    for _ in 0..20 {
        // What is no JSON would be refused with 400 if it were read.
        let answer = daemon.ask("POST", "/v1/admin/keys", &headers, "nonsense").await;
        match answer.status {
            400 => {}
            429 => {
                limited += 1;
                assert_eq!(answer.problem(), (429, "RATE_LIMITED".into()));
                assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
                assert_eq!(answer.json()["error"]["retryable"], true);
            }
            other => panic!("{other}: {}", answer.body),
        }
    }
    assert!(limited > 0);
    // A body that never comes is not waited for. Whoever is let in is not answered before it.
    let head = format!(
        "POST /v1/admin/keys HTTP/1.1\r\nHost: {}\r\nAuthorization: {bearer}\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n",
        daemon.address
    );
    let asked = (0..20).map(|_| Box::pin(raw(daemon.address, head.as_bytes())));
    let (first, ..) = futures_util::future::select_all(asked).await;
    assert_eq!(first.problem(), (429, "RATE_LIMITED".into()));
    // Other keys have their own.
    let other = key(&daemon, "default", Role::Admin, (ActorKind::Human, "somebody")).await;
    assert_eq!(ask(&daemon, &other, "GET", "/v1/admin/keys", &Value::Null).await.status, 200);
}

/// H19: a token is a way to use a key, and counts as that.
#[tokio::test]
async fn h19_requests_with_tokens_count_as_those_of_their_key() {
    let quotas = Quotas { requests_per_second: Some(5), ..Quotas::default() };
    let tenants = BTreeMap::from([("busy".to_owned(), quotas)]);
    let sandboxed = Sandboxed::start_under(Policy { tenants, ..Policy::default() }).await;
    let daemon = sandboxed.daemon();
    let busy = key(daemon, "busy", Role::User, (ActorKind::Human, "somebody")).await;
    let ensure = json!({"thread_id": "thr_1", "mode": "ensure", "image": "host"});
    let session = ask(daemon, &busy, "POST", "/v1/sandbox/sessions", &ensure).await.json();
    let token = session["token"].as_str().unwrap();
    let path = format!("/dp/{}/v1/access", session["sandbox"]["id"].as_str().unwrap());
    let asked = (0..40).map(|_| ask(daemon, token, "GET", &path, &Value::Null));
    let answers = futures_util::future::join_all(asked).await;
    let limited: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
    assert!(!limited.is_empty() && limited.len() < 40, "{}", limited.len());
    for answer in limited {
        assert_eq!(answer.problem(), (429, "RATE_LIMITED".into()));
        assert!(answer.head.contains("retry-after: "), "{}", answer.head);
    }
    // Whoever has no bound is not held up by it.
    let free = ask(daemon, &daemon.key, "POST", "/v1/sandbox/sessions", &ensure).await.json();
    let path = format!("/dp/{}/v1/access", free["sandbox"]["id"].as_str().unwrap());
    for _ in 0..20 {
        let answer = ask(daemon, free["token"].as_str().unwrap(), "GET", &path, &Value::Null).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
}

/// Every request that presents a credential counts, whichever way it does, and the refusal is OAuth's there.
#[tokio::test]
async fn requests_to_the_oauth_routes_count_against_the_rate_limit_of_their_key() {
    let quotas = Quotas { requests_per_second: Some(2), ..Quotas::default() };
    let tenants = BTreeMap::from([("busy".to_owned(), quotas)]);
    let sandboxed = Sandboxed::start_under(Policy { tenants, ..Policy::default() }).await;
    let daemon = sandboxed.daemon();
    let resource = format!("sandbox:{}", sandboxed.make("busy", None).await);
    let key_of = async |id: &str| key(daemon, "busy", Role::Broker, (ActorKind::Human, id)).await;
    let target = [("resource", resource.as_str())];
    let given = exchange(daemon, &key_of("giver").await, &target).await;
    let token = given.json()["access_token"].as_str().unwrap().to_owned();
    let (exchanging, looking) = (key_of("exchanging").await, key_of("looking").await);
    let rows = ["a key is exchanged", "a token is exchanged", "introspection", "revocation"];
    for row in rows {
        let asked = (0..20).map(async |_| match row {
            "a key is exchanged" => exchange(daemon, &exchanging, &target).await,
            "a token is exchanged" => exchange(daemon, &token, &[]).await,
            "introspection" => {
                let headers = [("X-Api-Key", looking.as_str())];
                post_with(daemon, "/oauth/introspect", &headers, &[("token", &token)]).await
            }
            _ => post_with(daemon, "/oauth/revoke", &[], &[("token", &token)]).await,
        });
        let answers = futures_util::future::join_all(asked).await;
        let limited: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
        assert!(!limited.is_empty(), "{row} is not limited");
        for answer in limited {
            assert_eq!(answer.status, 429, "{row}: {}", answer.body);
            assert_eq!(answer.json()["error"], "temporarily_unavailable", "{row}");
            assert!(answer.json()["error_description"].is_string(), "{row}");
            assert!(answer.head.contains("retry-after: "), "{row}: {}", answer.head);
        }
    }
}

/// What the operator does not allow is forbidden, and not merely impossible.
#[tokio::test]
async fn images_that_are_not_allowed_are_forbidden_at_every_door() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let image = "dir:/nowhere";
    let session = json!({"thread_id": "thr_1", "mode": "ensure", "image": image});
    let answer = ask(daemon, &daemon.key, "POST", "/v1/sandbox/sessions", &session).await;
    assert_eq!(answer.problem(), (403, "FORBIDDEN".into()), "{}", answer.body);
    assert!(answer.body.contains("images.allow"), "{}", answer.body);
    let answer =
        ask(daemon, &daemon.key, "POST", "/threads/thr_1/sandbox", &json!({"image": image})).await;
    assert_eq!(answer.problem(), (403, "FORBIDDEN".into()), "{}", answer.body);
    let kept = json!({"name": "a-snapshot", "docker_image": image});
    let answer = ask(daemon, &daemon.key, "POST", "/v2/sandboxes/snapshots", &kept).await;
    assert_eq!(answer.status, 403, "{}", answer.body);
    assert_eq!(answer.json()["detail"]["error"], "PermissionDenied");
    let mut client = sandboxed.remote(&daemon.key).await;
    let mut wanted = crate::sandboxed::create("a-box");
    wanted.create_spec.as_mut().unwrap().image = image.to_owned();
    let refused = client.create_sandbox(wanted).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused:?}");
}

/// Whatever is somebody else's looks like what is not there, on every route there is.
#[tokio::test]
async fn tenants_never_see_each_other() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let made = ask(daemon, &daemon.key, "POST", BOXES, &named("a-box")).await.json();
    let id = made["id"].as_str().unwrap();
    let stranger = key(daemon, "other", Role::Admin, (ActorKind::Human, "somebody")).await;
    let mut routes: Vec<(String, String)> = Vec::new();
    for (method, path) in
        [("GET", ""), ("DELETE", ""), ("GET", "/status"), ("POST", "/start"), ("POST", "/stop")]
    {
        for name in ["a-box", id] {
            routes.push((method.to_owned(), format!("{BOXES}/{name}{path}")));
        }
    }
    routes.push(("POST".to_owned(), "/v1/admin/tokens".to_owned()));
    for listed in dataplane::list() {
        if listed.credentials == Credentials::TokenOrKey && listed.method != "WS" {
            let path = listed.path.replace("{sandbox_id}", id).replace("{*path}", "x");
            let path = path.replace("{exec_id}", "x").replace("{stream}", "stdout");
            routes.push((listed.method.replace("ANY", "GET"), path.replace("{port}", "80")));
        }
    }
    assert!(routes.len() > 15, "{routes:#?}");
    let hide = |answer: &Answer| {
        let mut body = answer.json();
        body["error"]["request_id"] = Value::Null;
        body["detail"]["error_id"] = Value::Null;
        (answer.status, body)
    };
    for (method, path) in &routes {
        let body = |sandbox: &str| match path.as_str() {
            "/v1/admin/tokens" => json!({"sandbox": sandbox}),
            _ => json!({"command": "true"}),
        };
        let theirs = ask(daemon, &stranger, method, path, &body(id)).await;
        let nowhere = path.replace(id, "sb_00000000000000000000000000").replace("a-box", "no-box");
        let body = body("sb_00000000000000000000000000");
        let nobodys = ask(daemon, &stranger, method, &nowhere, &body).await;
        assert_eq!(theirs.status, 404, "{method} {path}: {}", theirs.body);
        assert_eq!(hide(&theirs), hide(&nobodys), "{method} {path}");
    }
    let list = ask(daemon, &stranger, "GET", BOXES, &Value::Null).await.json();
    assert_eq!(list["sandboxes"], json!([]));
    // The name is free for them, and nothing happened to the first.
    let theirs = ask(daemon, &stranger, "POST", BOXES, &named("a-box")).await;
    assert_eq!(theirs.status, 201, "{}", theirs.body);
    let mine = ask(daemon, &daemon.key, "GET", &format!("{BOXES}/a-box"), &Value::Null).await;
    assert_eq!((mine.status, mine.json()["id"].as_str()), (200, Some(id)));
}

/// Two who come at once to a thread that nobody has: it is the one's, and the other gets no token for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_is_one_keys_own_whoever_else_comes_at_the_same_time() {
    let own = Rule { capabilities: None, scopes: Scopes::Own };
    let sandboxed = Sandboxed::start_under(Policy { user: own, ..Policy::default() }).await;
    let daemon = sandboxed.daemon();
    let one = key(daemon, "default", Role::User, (ActorKind::Agent, "somebody")).await;
    let other = key(daemon, "default", Role::User, (ActorKind::Agent, "somebody")).await;
    for round in 0..10 {
        let wanted =
            json!({"thread_id": format!("thr_{round}"), "mode": "ensure", "image": "host"});
        let come = async |key: &str| {
            let answer = ask(daemon, key, "POST", "/v1/sandbox/sessions", &wanted).await;
            (answer.status, answer.json()["token"].is_string())
        };
        let mut came: [_; 2] = tokio::join!(come(&one), come(&other)).into();
        came.sort_unstable();
        assert_eq!(came, [(200, true), (403, false)], "round {round}");
    }
}
