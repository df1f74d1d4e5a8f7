//! `/oauth/…`: tokens exchanged, looked at and ended.

use std::collections::HashSet;

use model::{
    actor::ActorKind,
    capability::{Capabilities, Capability},
    reach::Reach,
};
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};
use store::keys::Role;

use crate::{
    ends::{access, ask, mint, rotate},
    sandboxed::Sandboxed,
    secrets::listen,
    support::{Answer, Daemon, key},
};

const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// Sends a form.
pub(crate) async fn post(daemon: &Daemon, path: &str, fields: &[(&str, &str)]) -> Answer {
    post_with(daemon, path, &[], fields).await
}

pub(crate) async fn post_with(
    daemon: &Daemon,
    path: &str,
    headers: &[(&str, &str)],
    fields: &[(&str, &str)],
) -> Answer {
    let body: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    let mut all = vec![("Content-Type", "application/x-www-form-urlencoded")];
    all.extend_from_slice(headers);
    daemon.ask("POST", path, &all, &body.join("&")).await
}

pub(crate) async fn exchange(daemon: &Daemon, subject: &str, fields: &[(&str, &str)]) -> Answer {
    let mut all = vec![
        ("grant_type", EXCHANGE),
        ("subject_token", subject),
        ("subject_token_type", ACCESS_TOKEN),
    ];
    all.retain(|(name, _)| fields.iter().all(|(other, _)| other != name));
    all.extend_from_slice(fields);
    post(daemon, "/oauth/token", &all).await
}

async fn introspect(daemon: &Daemon, key: &str, token: &str) -> Answer {
    post_with(daemon, "/oauth/introspect", &[("X-Api-Key", key)], &[("token", token)]).await
}

fn error(answer: &Answer) -> (u16, String) {
    let problem = answer.json();
    assert!(!problem["error_description"].as_str().unwrap().is_empty(), "{problem}");
    (answer.status, problem["error"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_key_is_exchanged_for_a_token_of_one_sandbox() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let id = sandboxed.make("default", Some("my-box")).await;
    let agent = key(daemon, "default", Role::User, (ActorKind::Agent, "somebody")).await;
    let resource = format!("sandbox:{id}");
    let fields = [("resource", resource.as_str()), ("scope", "fs_write shell"), ("path", "/a b")];
    let answer = exchange(daemon, &agent, &fields).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.head.contains("cache-control: no-store"), "{}", answer.head);
    let given = answer.json();
    let expected = json!({
        "access_token": given["access_token"], "issued_token_type": ACCESS_TOKEN,
        "token_type": "Bearer", "expires_in": 900, "scope": "fs_write",
    });
    assert_eq!(given, expected);
    let token = given["access_token"].as_str().unwrap();
    let told = introspect(daemon, &daemon.key, token).await.json();
    let expected = json!({
        "active": true, "iss": "ringfence", "sub": "agent:somebody", "aud": id.as_str(),
        "scope": "fs:rw", "client_id": told["client_id"], "token_type": "Bearer",
        "iat": told["iat"], "exp": told["iat"].as_i64().unwrap() + 900, "jti": told["jti"],
        "gen": 1, "paths": ["/a b"],
    });
    assert_eq!(told, expected);
    assert_eq!(access(daemon, &id, token).await, 200);
    // By another name, for a shorter time, and as a text that says nothing.
    let fields = [("resource", "sandbox:my-box"), ("ttl_seconds", "300"), ("format", "opaque")];
    let given = exchange(daemon, &agent, &fields).await.json();
    let token = given["access_token"].as_str().unwrap();
    assert!(token.starts_with("rfo_") && !token.contains('.'), "{token}");
    assert_eq!(
        (&given["expires_in"], &given["scope"]),
        (&json!(300), &json!("fs:rw process ports"))
    );
    assert_eq!(access(daemon, &id, token).await, 200);
}

/// What is shown, what is asked for beside it, and how that is refused.
type Row<'a> = (&'a str, Vec<(&'a str, &'a str)>, &'a str);

#[tokio::test]
async fn what_cannot_be_exchanged_is_refused_as_the_standard_says() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let id = sandboxed.make("default", None).await;
    let foreign = sandboxed.make("elsewhere", None).await;
    let ours = format!("sandbox:{id}");
    let theirs = format!("sandbox:{foreign}");
    let resource = ("resource", ours.as_str());
    let (key, agent) = (
        daemon.key.as_str(),
        &key(daemon, "default", Role::User, (ActorKind::Agent, "somebody")).await,
    );
    let [token, _] = mint(daemon, &id, "ada", "jwt").await;
    let [other, _] = mint(daemon, &id, "ada", "opaque").await;
    let invalid = "invalid_request";
    let rows: Vec<Row<'_>> = vec![
        (key, vec![resource, ("grant_type", "client_credentials")], "unsupported_grant_type"),
        (key, vec![resource, ("grant_type", "")], invalid),
        (key, vec![resource, ("subject_token", "")], invalid),
        (key, vec![resource, ("subject_token_type", "")], invalid),
        (key, vec![resource, ("subject_token_type", "urn:x")], invalid),
        (key, vec![resource, ("subject_token_type", JWT)], invalid),
        ("rf_wrong", vec![resource], invalid),
        ("x.y.z", vec![resource], invalid),
        ("rfo_x", vec![resource], invalid),
        (key, vec![], "invalid_target"),
        (key, vec![("resource", theirs.as_str())], "invalid_target"),
        (key, vec![("resource", "sandbox:nothing")], "invalid_target"),
        (key, vec![("resource", id.as_str())], "invalid_target"),
        (key, vec![resource, resource], "invalid_target"),
        (key, vec![resource, ("scope", "root")], "invalid_scope"),
        (agent, vec![resource, ("scope", "shell")], "invalid_scope"),
        (key, vec![resource, ("scope", "shell"), ("scope", "ports")], invalid),
        (key, vec![resource, ("ttl_seconds", "60")], invalid),
        (key, vec![resource, ("ttl_seconds", "soon")], invalid),
        (key, vec![resource, ("path", "a")], invalid),
        (key, vec![resource, ("format", "pem")], invalid),
        (key, vec![resource, ("requested_token_type", "urn:x")], invalid),
        (key, vec![resource, ("requested_token_type", JWT), ("format", "opaque")], invalid),
        (key, vec![resource, ("actor_token", "x")], invalid),
        (key, vec![resource, ("audience", "x")], invalid),
        // J13: less of the same, or nothing.
        (&token, vec![("resource", theirs.as_str())], "invalid_target"),
        (&token, vec![("ttl_seconds", "901")], invalid),
        (&token, vec![("ttl_seconds", "0")], invalid),
        (&other, vec![("subject_token_type", JWT)], invalid),
    ];
    for (subject, fields, expected) in rows {
        let answer = exchange(daemon, subject, &fields).await;
        assert_eq!(error(&answer), (400, expected.to_owned()), "{subject} {fields:?}");
    }
    let json = [("Content-Type", "application/json")];
    let answer = daemon.ask("POST", "/oauth/token", &json, "{}").await;
    assert_eq!(error(&answer), (400, invalid.to_owned()));
    // What nobody knows is passed over, and what has no value is not there.
    let fields = [resource, ("unknown", "1"), ("scope", "")];
    assert_eq!(exchange(daemon, key, &fields).await.status, 200);
}

#[tokio::test]
async fn a_token_made_of_another_has_less_and_ends_with_it() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let id = sandboxed.make("default", None).await;
    for format in ["jwt", "opaque"] {
        let [root, jti] = mint(daemon, &id, "ada", format).await;
        let fields = [("scope", "fs:rw process"), ("path", "/a"), ("ttl_seconds", "200")];
        let child = exchange(daemon, &root, &fields).await.json();
        assert_eq!((&child["scope"], &child["expires_in"]), (&json!("fs:rw process"), &json!(200)));
        let child = child["access_token"].as_str().unwrap().to_owned();
        let fields = [("scope", "fs:ro"), ("path", "/a/b"), ("format", "opaque")];
        let grandchild = exchange(daemon, &child, &fields).await.json();
        let grandchild = grandchild["access_token"].as_str().unwrap().to_owned();
        for wider in [("scope", "fs:rw process shell"), ("path", "/"), ("ttl_seconds", "201")] {
            let refused = exchange(daemon, &child, &[wider]).await;
            let expected = if wider.0 == "scope" { "invalid_scope" } else { "invalid_request" };
            assert_eq!(error(&refused), (400, expected.to_owned()), "{wider:?}");
        }
        let told = introspect(daemon, &daemon.key, &grandchild).await.json();
        assert_eq!((&told["sub"], &told["scope"]), (&json!("human:ada"), &json!("fs:ro")));
        assert_eq!((&told["parents"][0], &told["paths"]), (&json!(jti), &json!(["/a/b"])));
        let sibling = exchange(daemon, &root, &[]).await.json();
        let sibling = sibling["access_token"].as_str().unwrap().to_owned();
        // The one in the middle ends: what was made of it too, and nothing else.
        assert_eq!(post(daemon, "/oauth/revoke", &[("token", &child)]).await.status, 200);
        let tokens = [&root, &child, &grandchild, &sibling];
        for (token, expected) in tokens.iter().zip([200, 401, 401, 200]) {
            assert_eq!(access(daemon, &id, token).await, expected);
        }
        assert_eq!(error(&exchange(daemon, &child, &[]).await).0, 400);
        assert_eq!(post(daemon, "/oauth/revoke", &[("token", &root)]).await.status, 200);
        assert_eq!(access(daemon, &id, &sibling).await, 401);
    }
}

#[tokio::test]
async fn ending_a_token_twice_or_none_at_all_is_no_error() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let id = sandboxed.make("default", None).await;
    let [token, _] = mint(daemon, &id, "ada", "jwt").await;
    let forged = format!("{token}x");
    for token in [&token, &token, "x", "rf_unknown", "rfo_unknown", &forged] {
        let fields = [("token", token), ("token_type_hint", "access_token")];
        assert_eq!(post(daemon, "/oauth/revoke", &fields).await.status, 200, "{token}");
    }
    assert_eq!(access(daemon, &id, &token).await, 401);
    let none = post(daemon, "/oauth/revoke", &[]).await;
    assert_eq!(error(&none), (400, "invalid_request".to_owned()));
    let key = post(daemon, "/oauth/revoke", &[("token", &daemon.key)]).await;
    assert_eq!(error(&key), (400, "unsupported_token_type".to_owned()));
}

#[tokio::test]
async fn tokens_are_looked_at_by_those_who_may_and_their_text_is_in_no_log() {
    let (lines, _guard) = listen();
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let id = sandboxed.make("default", None).await;
    let user = key(daemon, "default", Role::User, (ActorKind::Human, "somebody")).await;
    let broker = key(daemon, "default", Role::Broker, (ActorKind::Human, "somebody")).await;
    let stranger = key(daemon, "elsewhere", Role::Admin, (ActorKind::Human, "somebody")).await;
    let inactive = json!({"active": false});
    let mut texts = Vec::new();
    for format in ["jwt", "opaque"] {
        let [token, jti] = mint(daemon, &id, "ada", format).await;
        let path = format!("/internal/tokens/{token}");
        let by = async |key: &str| daemon.ask("GET", &path, &[("X-Api-Key", key)], "").await;
        let told = by(&daemon.key).await;
        assert_eq!((told.status, &told.json()["jti"]), (200, &json!(jti)));
        assert_eq!(introspect(daemon, &broker, &token).await.json(), told.json());
        assert_eq!(by(&user).await.problem(), (403, "FORBIDDEN".to_owned()));
        assert_eq!(by("rf_x").await.problem(), (401, "UNAUTHENTICATED".to_owned()));
        assert_eq!(by(&stranger).await.problem(), (404, "NOT_FOUND".to_owned()));
        assert_eq!(error(&introspect(daemon, &user, &token).await).0, 403);
        assert_eq!(
            error(&introspect(daemon, "rf_x", &token).await),
            (401, "invalid_client".into())
        );
        assert_eq!(introspect(daemon, &stranger, &token).await.json(), inactive);
        assert_eq!(introspect(daemon, &daemon.key, "x.y.z").await.json(), inactive);
        post(daemon, "/oauth/revoke", &[("token", &token)]).await;
        assert_eq!(introspect(daemon, &daemon.key, &token).await.json(), inactive);
        assert_eq!(by(&daemon.key).await.problem(), (404, "NOT_FOUND".to_owned()));
        texts.push(token);
    }
    drop(sandboxed);
    let log = lines.text();
    assert!(log.contains("token revoked"), "{log}");
    for text in &texts {
        assert!(text.split('.').all(|part| !log.contains(part)), "{log}");
    }
}

#[tokio::test]
async fn tenants_can_have_opaque_tokens_alone() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let id = sandboxed.make("opaque", None).await;
    let key = key(daemon, "opaque", Role::User, (ActorKind::Human, "somebody")).await;
    let resource = format!("sandbox:{id}");
    let given = exchange(daemon, &key, &[("resource", &resource)]).await.json();
    let token = given["access_token"].as_str().unwrap();
    assert!(token.starts_with("rfo_"), "{token}");
    assert_eq!(access(daemon, &id, token).await, 200);
    let made = exchange(daemon, token, &[("scope", "fs:ro")]).await.json();
    assert!(made["access_token"].as_str().unwrap().starts_with("rfo_"));
    for fields in
        [vec![("resource", resource.as_str()), ("format", "jwt")], vec![("format", "jwt")]]
    {
        let subject = if fields.len() == 2 { key.as_str() } else { token };
        let refused = exchange(daemon, subject, &fields).await;
        assert_eq!(error(&refused), (400, "invalid_request".to_owned()));
    }
    // Every text is another, and all of it counts.
    let mut seen = HashSet::from([token.to_owned()]);
    for _ in 0..20 {
        let given = exchange(daemon, &key, &[("resource", &resource)]).await.json();
        assert!(seen.insert(given["access_token"].as_str().unwrap().to_owned()));
    }
    for index in 0..token.len() {
        let mut bytes = token.as_bytes().to_vec();
        bytes[index] = if bytes[index] == b'A' { b'B' } else { b'A' };
        let bent = String::from_utf8(bytes).unwrap();
        assert_eq!(access(daemon, &id, &bent).await, 401, "{index}");
    }
}

fn wish() -> impl Strategy<Value = (Option<String>, Vec<String>, Option<u64>)> {
    let names = ["fs:ro", "fs:rw", "download", "exec", "shell", "shell:ro", "ports", "snapshot"];
    let scope = proptest::collection::vec(proptest::sample::select(names.to_vec()), 1..4)
        .prop_map(|names| names.join(" "));
    let part = proptest::sample::select(vec!["a", "b", "ab"]);
    let path =
        proptest::collection::vec(part, 0..3).prop_map(|parts| format!("/{}", parts.join("/")));
    let paths = proptest::collection::vec(path, 0..3);
    (proptest::option::of(scope), paths, proptest::option::of(1..1000_u64))
}

fn held(told: &Value) -> (Capabilities, Reach, i64) {
    let reach = match told["paths"].as_array() {
        None => Reach::Everywhere,
        Some(paths) => Reach::below(paths.iter().map(|path| path.as_str().unwrap())).unwrap(),
    };
    let scope = Capabilities::of_scope(told["scope"].as_str().unwrap());
    (scope, reach, told["exp"].as_i64().unwrap())
}

/// J13, end to end: whatever is asked for, a token made of another never has more.
#[tokio::test]
async fn whatever_is_asked_for_a_token_made_of_another_never_has_more() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let id = sandboxed.make("default", None).await;
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let (mut given, mut refused) = (0, 0);
    for _ in 0..40 {
        let [mut parent, _] = mint(daemon, &id, "ada", "jwt").await;
        for _ in 0..3 {
            let (scope, paths, ttl) = wish().new_tree(&mut runner).unwrap().current();
            let ttl = ttl.map(|ttl| ttl.to_string());
            let mut fields: Vec<(&str, &str)> =
                paths.iter().map(|path| ("path", path.as_str())).collect();
            fields.extend(scope.as_deref().map(|scope| ("scope", scope)));
            fields.extend(ttl.as_deref().map(|ttl| ("ttl_seconds", ttl)));
            let answer = exchange(daemon, &parent, &fields).await;
            if answer.status != 200 {
                assert_eq!(answer.status, 400, "{}", answer.body);
                refused += 1;
                continue;
            }
            given += 1;
            let child = answer.json()["access_token"].as_str().unwrap().to_owned();
            let told = [
                introspect(daemon, &daemon.key, &parent).await.json(),
                introspect(daemon, &daemon.key, &child).await.json(),
            ];
            let [outer, inner] = [held(&told[0]), held(&told[1])];
            for capability in Capability::ALL {
                assert!(!inner.0.allows(capability) || outer.0.allows(capability), "{told:?}");
            }
            assert!(inner.1.is_within(&outer.1) && inner.2 <= outer.2, "{told:?}");
            assert_eq!((&told[0]["sub"], &told[0]["aud"]), (&told[1]["sub"], &told[1]["aud"]));
            assert_eq!(access(daemon, &id, &child).await, 200);
            parent = child;
        }
    }
    assert!(given > 20 && refused > 20, "{given} {refused}");
    rotate(daemon, &id).await;
    let body = json!({"sandbox": id.as_str()});
    assert_eq!(ask(daemon, "/v1/admin/tokens", &body).await.status, 201);
}
