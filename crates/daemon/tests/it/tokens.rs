//! Tokens: given out over the admin route, and shown at every route of the data plane.

use std::time::{Duration, SystemTime};

use daemon::dataplane::{self, routes::Credentials};
use model::{
    actor::{Actor, ActorKind},
    capability::{Capabilities, Capability},
    ids::SandboxId,
    reach::Reach,
    token::{Claims, Generation},
    units::Timestamp,
};
use serde_json::{Value, json};
use store::keys::Role;

use crate::{
    sandboxed::Sandboxed,
    secrets::listen,
    support::{Answer, Daemon, key},
};

async fn mint(daemon: &Daemon, key: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    daemon.ask("POST", "/v1/admin/tokens", &headers, &body.to_string()).await
}

#[tokio::test]
async fn a_token_is_given_out_and_opens_its_sandbox() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let id = sandboxed.make("default", Some("my-box")).await;
    let asked = json!({
        "sandbox": "my-box", "scope": "fs_write shell exec", "ttl_seconds": 600,
        "paths": ["/workspace/a/"], "actor": {"type": "agent", "id": "robot"},
    });
    let answer = mint(daemon, &daemon.key, &asked).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    let minted = answer.json();
    let base = format!("http://{}/dp/{id}", daemon.address);
    // An agent has no shell by policy; what is granted is said in the words it was asked for in.
    let expected = json!({
        "token": minted["token"], "token_type": "Bearer", "expires_at": minted["expires_at"],
        "expires_in": 600, "scope": "fs_write exec", "paths": ["/workspace/a"],
        "sandbox_id": id.as_str(), "jti": minted["jti"], "dataplane_url": base,
        "http_base_url": format!("{base}/v1"),
    });
    assert_eq!(minted, expected);
    let bearer = format!("Bearer {}", minted["token"].as_str().unwrap());
    let path = format!("/dp/{id}/v1/access");
    let shown = daemon.ask("GET", &path, &[("Authorization", &bearer)], "").await;
    let expected = json!({
        "sandbox_id": id.as_str(), "actor": {"type": "agent", "id": "robot"},
        "scope": "fs:rw process", "paths": ["/workspace/a"],
        "expires_at": minted["expires_at"], "credential_id": minted["jti"],
    });
    assert_eq!((shown.status, shown.json()), (200, expected));
    // Without anything in particular, it is for all that the key's own actor may have.
    let plain = mint(daemon, &daemon.key, &json!({"sandbox": id.as_str()})).await.json();
    assert_eq!(plain["scope"], "fs:rw process shell ports snapshot");
    assert_eq!((&plain["expires_in"], &plain["paths"]), (&json!(900), &Value::Null));
    let none = mint(daemon, &daemon.key, &json!({"sandbox": id.as_str(), "scope": ""})).await;
    assert_eq!((none.status, &none.json()["scope"]), (201, &json!("")));
}

#[tokio::test]
async fn tokens_are_refused_to_whoever_may_not_have_them_and_for_what_cannot_be() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let id = sandboxed.make("default", None).await;
    let foreign = sandboxed.make("elsewhere", None).await;
    let user = key(daemon, "default", Role::User, (ActorKind::Human, "somebody")).await;
    let robot = key(daemon, "default", Role::Admin, (ActorKind::Agent, "somebody")).await;
    let sandbox = id.as_str();
    let admin = daemon.key.as_str();
    let long = format!("/{}", "x".repeat(4000));
    let invalid = (400, "INVALID_REQUEST");
    let rows = [
        (user.as_str(), json!({"sandbox": sandbox}), (403, "FORBIDDEN")),
        ("rf_wrong", json!({"sandbox": sandbox}), (401, "UNAUTHENTICATED")),
        (admin, json!({"sandbox": foreign.as_str()}), (404, "NOT_FOUND")),
        (admin, json!({"sandbox": "nothing"}), (404, "NOT_FOUND")),
        (admin, json!({"sandbox": ""}), (404, "NOT_FOUND")),
        (admin, json!({}), invalid),
        (admin, json!({"sandbox": sandbox, "scope": "fs:rwx"}), invalid),
        (admin, json!({"sandbox": sandbox, "scope": ["fs:rw"]}), invalid),
        (admin, json!({"sandbox": sandbox, "ttl_seconds": 0}), invalid),
        (admin, json!({"sandbox": sandbox, "ttl_seconds": 299}), invalid),
        (admin, json!({"sandbox": sandbox, "ttl_seconds": 901}), invalid),
        (admin, json!({"sandbox": sandbox, "ttl_seconds": -1}), invalid),
        (admin, json!({"sandbox": sandbox, "ttl_seconds": 600.5}), invalid),
        (admin, json!({"sandbox": sandbox, "ttl_seconds": "600"}), invalid),
        (admin, json!({"sandbox": sandbox, "ttl_seconds": u64::MAX}), invalid),
        (admin, json!({"sandbox": sandbox, "paths": []}), invalid),
        (admin, json!({"sandbox": sandbox, "paths": ["a"]}), (400, "INVALID_PATH")),
        (admin, json!({"sandbox": sandbox, "paths": ["/a/../b"]}), (400, "INVALID_PATH")),
        (admin, json!({"sandbox": sandbox, "paths": [long]}), invalid),
        (admin, json!({"sandbox": sandbox, "path": "/a"}), invalid),
        (admin, json!({"sandbox": sandbox, "actor": {"type": "agent", "id": ""}}), invalid),
        (admin, json!({"sandbox": sandbox, "actor": {"type": "root", "id": "x"}}), invalid),
        // Nobody gains by who acts for him.
        (&robot, json!({"sandbox": sandbox, "scope": "shell"}), (403, "CAPABILITY_DENIED")),
        (
            &robot,
            json!({"sandbox": sandbox, "scope": "shell", "actor": {"type": "human", "id": "x"}}),
            (403, "CAPABILITY_DENIED"),
        ),
    ];
    for (key, body, (status, code)) in rows {
        let answer = mint(daemon, key, &body).await;
        assert_eq!(answer.problem(), (status, code.to_owned()), "{body}");
    }
    let named = mint(daemon, admin, &json!({"sandbox": sandbox, "scope": "fs:rw root"})).await;
    assert!(named.body.contains(r#"\"root\""#), "{}", named.body);
}

#[tokio::test]
async fn tokens_and_folders_are_in_no_log_line_and_who_came_is() {
    let (lines, _guard) = listen();
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let id = sandboxed.make("default", None).await;
    let asked = json!({"sandbox": id.as_str(), "paths": ["/canary-folder"]});
    let minted = mint(daemon, &daemon.key, &asked).await.json();
    let token = minted["token"].as_str().unwrap();
    let path = format!("/dp/{id}/v1/access");
    let forged = format!("{token}x");
    for (credential, status) in [(token, 200), (&forged, 401), ("canary-token.x.y", 401)] {
        let bearer = format!("Bearer {credential}");
        let answer = daemon.ask("GET", &path, &[("Authorization", &bearer)], "").await;
        assert_eq!(answer.status, status, "{}", answer.body);
    }
    let jti = minted["jti"].as_str().unwrap().to_owned();
    let parts: Vec<String> = token.split('.').skip(1).map(str::to_owned).collect();
    drop(sandboxed);
    let log = lines.text();
    for said in ["token given out", "let in", "its form is not that of a token"] {
        assert!(log.contains(said), "{said} is not in the log");
    }
    assert!(log.lines().filter(|line| line.contains(&jti)).count() >= 2);
    assert!(!log.contains("canary"), "{log}");
    assert!(parts.iter().all(|part| !log.contains(part.as_str())), "{log}");
}

#[tokio::test]
async fn a_server_without_sandboxes_has_no_data_plane() {
    let daemon = Daemon::start().await;
    let id = SandboxId::from_random([1; 16]);
    let headers = [("X-Api-Key", daemon.key.as_str())];
    let answer = daemon.ask("GET", &format!("/dp/{id}/v1/access"), &headers, "").await;
    assert_eq!(answer.problem(), (404, "NOT_FOUND".into()));
    let answer = mint(&daemon, &daemon.key, &json!({"sandbox": id.as_str()})).await;
    assert_eq!(answer.problem(), (404, "NOT_FOUND".into()));
}

/// Returns claims about this sandbox that have begun some seconds ago.
pub(crate) fn claims(sandbox: &SandboxId, capabilities: Capabilities, begun: u64) -> Claims {
    #[expect(clippy::disallowed_methods, reason = "a test has no other clock")]
    let now = SystemTime::now() - Duration::from_secs(begun);
    let at =
        |time: SystemTime| Timestamp::from_millis(Timestamp::from(time).as_millis() / 1000 * 1000);
    Claims {
        id: "tok_1".to_owned(),
        actor: Actor { kind: ActorKind::Human, id: "ada".to_owned() },
        key: "key_1".to_owned(),
        sandbox: sandbox.clone(),
        capabilities,
        reach: Reach::Everywhere,
        thread: None,
        generation: Generation::FIRST,
        issued_at: at(now),
        expires_at: at(now + Duration::from_mins(15)),
        parents: Vec::new(),
    }
}

/// Returns the route with something in place of every parameter.
fn concrete(path: &str, sandbox: &SandboxId) -> String {
    let part = |part: &str| match part {
        "{sandbox_id}" => sandbox.to_string(),
        "{port}" => "8080".to_owned(),
        part if part.starts_with('{') => "x".to_owned(),
        part => part.to_owned(),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// Every route, also those that are yet to come, is behind its gate.
#[tokio::test]
async fn no_route_of_the_data_plane_is_open_to_whoever_has_no_right() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let ours = sandboxed.make("default", None).await;
    let other = sandboxed.make("default", None).await;
    let stranger = key(daemon, "elsewhere", Role::Admin, (ActorKind::Human, "somebody")).await;
    let all: Capabilities = Capability::ALL.into_iter().collect();
    let sign = |claims: &Claims| sandboxed.tokens.sign(claims).unwrap().reveal().to_owned();
    let routes = dataplane::list();
    assert!(!routes.is_empty());
    for route in routes {
        let without: Capabilities = Capability::ALL
            .into_iter()
            .filter(|held| {
                let held: Capabilities = [*held].into_iter().collect();
                route.capability().is_some_and(|needed| !held.allows(needed))
            })
            .collect();
        let mut rows = vec![
            ("a word", "word".to_owned(), 401),
            ("an API key's form", "rf_0123".to_owned(), 401),
            ("another sandbox's token", sign(&claims(&other, all, 0)), 401),
            ("a token that has ended", sign(&claims(&ours, all, 1000)), 401),
            (
                "a stranger's key",
                stranger.clone(),
                match route.credentials {
                    Credentials::Token | Credentials::TokenOrServiceToken | Credentials::Link => {
                        401
                    }
                    Credentials::TokenOrKey => 404,
                },
            ),
        ];
        if route.capability().is_some() {
            // A link takes no token at all.
            let status = if route.credentials == Credentials::Link { 401 } else { 403 };
            rows.push(("all other capabilities", sign(&claims(&ours, without, 0)), status));
        }
        if route.credentials != Credentials::TokenOrKey {
            rows.push(("a key", daemon.key.clone(), 401));
        }
        let path = concrete(&route.path, &ours);
        let method = match route.method {
            "WS" | "ANY" => "GET",
            method => method,
        };
        for (who, credential, status) in rows {
            let bearer = format!("Bearer {credential}");
            for header in [("Authorization", bearer.as_str()), ("X-Api-Key", &credential)] {
                let answer = daemon.ask(method, &path, &[header], "").await;
                assert_eq!(answer.status, status, "{route}: {who}: {}", answer.body);
            }
        }
        if !route.is_in_band() {
            let answer = daemon.ask(method, &path, &[], "").await;
            assert_eq!(answer.status, 401, "{route}: {}", answer.body);
            assert!(answer.head.contains("www-authenticate: bearer"), "{route}: {}", answer.head);
            // A URL is no place for a token: it ends up in logs.
            let token = sign(&claims(&ours, all, 0));
            let answer = daemon.ask(method, &format!("{path}?token={token}"), &[], "").await;
            assert_eq!(answer.status, 401, "{route}");
        }
    }
}

/// The table in `docs/tokens.md` is true: a token with one capability opens the routes that the table
/// names and no others.
#[tokio::test]
async fn a_token_with_one_capability_opens_what_the_table_says() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let id = crate::exec::ready(&sandboxed).await;
    let none = std::iter::once(Capabilities::NONE);
    let each = Capability::ALL.map(|capability| [capability].into_iter().collect());
    for held in none.chain(each) {
        let token = sandboxed.tokens.sign(&claims(&id, held, 0)).unwrap();
        let bearer = format!("Bearer {}", token.reveal());
        for route in dataplane::list() {
            let method = match route.method {
                "WS" | "ANY" => "GET",
                method => method,
            };
            // A stream would not end; what is wrong with this is said behind the gate.
            let path = format!("{}?from=x", concrete(&route.path, &id));
            let headers = [("Authorization", bearer.as_str())];
            let status = daemon.ask(method, &path, &headers, "").await.status;
            let is_denied = [401, 403].contains(&status);
            assert_eq!(is_denied, !route.opens_with(held), "{route}: \"{held}\": {status}");
        }
    }
}
