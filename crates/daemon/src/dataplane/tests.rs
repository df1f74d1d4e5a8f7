//! Every route there is; and the gate, in front of a sample route of each kind.

mod ground;

use std::time::Duration;

use axum::http::StatusCode;
use model::{
    actor::{Actor, ActorKind},
    capability::{Capabilities, Capability},
    ids::SandboxId,
    reach::Reach,
    token::{Claims, Generation},
    units::Timestamp,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{access::Ended, refusal::Refusal, routes::Credentials, *};
use crate::clock;
use ground::Ground;

/// Whoever adds a route adds its line, so that whoever reviews it sees what it needs.
const ROUTES: [&str; 45] = [
    "GET /dp/{sandbox_id}/v1/access: a credential, by token",
    "POST /dp/{sandbox_id}/v1/exec: process, by token",
    "WS /dp/{sandbox_id}/v1/exec/ws: process in band, by token",
    "GET /dp/{sandbox_id}/v1/exec/{exec_id}: process, by token",
    "DELETE /dp/{sandbox_id}/v1/exec/{exec_id}: process, by token",
    "GET /dp/{sandbox_id}/v1/exec/{exec_id}/{stream}: process, by token",
    "POST /dp/{sandbox_id}/execute: process, by token or key",
    "POST /dp/{sandbox_id}/v1/execute: process, by token",
    "WS /dp/{sandbox_id}/execute/ws: process, by token or key",
    "WS /dp/{sandbox_id}/v1/execute/ws: process, by token",
    "POST /dp/{sandbox_id}/execute/stream/start: process, by token or key",
    "POST /dp/{sandbox_id}/v1/execute/stream/start: process, by token",
    "POST /dp/{sandbox_id}/execute/stream/resume: process, by token or key",
    "POST /dp/{sandbox_id}/v1/execute/stream/resume: process, by token",
    "GET /dp/{sandbox_id}/v1/events: a credential, by token",
    "WS /dp/{sandbox_id}/v1/shell/ws: shell:ro in band, by token",
    "WS /dp/{sandbox_id}/ws: shell:ro in band, by token",
    "GET /dp/{sandbox_id}/files/{*path}: fs:ro, by token",
    "PUT /dp/{sandbox_id}/files/{*path}: fs:rw, by token",
    "DELETE /dp/{sandbox_id}/files/{*path}: fs:rw, by token",
    "POST /dp/{sandbox_id}/v1/files/upload: fs:rw, by token",
    "GET /dp/{sandbox_id}/v1/files/download: fs:ro, by token",
    "GET /dp/{sandbox_id}/v1/files/list: fs:ro, by token",
    "GET /dp/{sandbox_id}/v1/files/stat: fs:ro, by token",
    "POST /dp/{sandbox_id}/v1/files/mkdir: fs:rw, by token",
    "POST /dp/{sandbox_id}/v1/files/move: fs:rw, by token",
    "POST /dp/{sandbox_id}/v1/files/edit: fs:rw, by token",
    "POST /dp/{sandbox_id}/v1/files/glob: fs:ro, by token",
    "POST /dp/{sandbox_id}/v1/files/grep: fs:ro, by token",
    "GET /dp/{sandbox_id}/v1/files/watch: fs:ro, by token",
    "POST /dp/{sandbox_id}/upload: fs:rw, by token or key",
    "POST /dp/{sandbox_id}/v1/upload: fs:rw, by token",
    "GET /dp/{sandbox_id}/download: fs:ro, by token or key",
    "GET /dp/{sandbox_id}/v1/download: fs:ro, by token",
    "GET /dp/{sandbox_id}/link/{token}: fs:ro, by link",
    "POST /dp/{sandbox_id}/glob: fs:ro, by token or key",
    "POST /dp/{sandbox_id}/v1/glob: fs:ro, by token",
    "POST /dp/{sandbox_id}/grep: fs:ro, by token or key",
    "POST /dp/{sandbox_id}/v1/grep: fs:ro, by token",
    "ANY /dp/{sandbox_id}/ports/{port}: ports, by token or service token",
    "ANY /dp/{sandbox_id}/ports/{port}/: ports, by token or service token",
    "ANY /dp/{sandbox_id}/ports/{port}/{*rest}: ports, by token or service token",
    "WS /dp/{sandbox_id}/tunnel: ports, by token or key",
    "WS /dp/{sandbox_id}/v1/tunnel: ports, by token",
    "POST /dp/{sandbox_id}/v1/ports/{port}/preview: ports, by token",
];

#[test]
fn every_route_is_listed_with_what_it_needs() {
    let listed: Vec<String> = list().iter().map(ToString::to_string).collect();
    assert_eq!(listed, ROUTES);
}

/// Says which token can do what: a row for each route, a column for each capability.
fn table() -> String {
    let names = Capability::ALL.map(|capability| format!("`{capability}`")).join(" | ");
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut table = format!("| route | takes | none | {names} |\n|---|---|{}\n", "---|".repeat(8));
    for route in list() {
        let takes = match route.credentials {
            Credentials::Token => "token",
            Credentials::TokenOrKey => "token, key",
            Credentials::TokenOrServiceToken => "token, service token",
            Credentials::Link => "link",
        };
        let mut cells = vec![format!("`{} {}`", route.method, route.path), takes.to_owned()];
        let none = [Capabilities::NONE].into_iter();
        let each = Capability::ALL.map(|capability| [capability].into_iter().collect());
        for held in none.chain(each) {
            cells.push(if route.opens_with(held) { "yes" } else { "" }.to_owned());
        }
        table.push_str(&line(cells));
    }
    table
}

/// What is in the page is what the routes say of themselves. To write it anew, take it from here.
#[test]
fn the_page_says_which_token_can_do_what() {
    let page = include_str!("../../../../docs/tokens.md");
    assert!(page.contains(&table()), "docs/tokens.md should have:\n{}", table());
}

/// Returns claims that hold now.
fn claims(sandbox: &SandboxId, scope: &str) -> Claims {
    let seconds = clock::timestamp().as_millis() / 1000;
    let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
    Claims {
        id: "tok_1".to_owned(),
        actor: Actor { kind: ActorKind::Human, id: "ada".to_owned() },
        key: "key_1".to_owned(),
        sandbox: sandbox.clone(),
        capabilities: Capabilities::of_scope(scope),
        reach: Reach::Everywhere,
        thread: None,
        generation: Generation::FIRST,
        issued_at: at(seconds),
        expires_at: at(seconds + 900),
        parents: Vec::new(),
    }
}

fn moved(claims: &Claims, seconds: i64) -> Claims {
    let moved = |time: Timestamp| Timestamp::from_millis(time.as_millis() + seconds * 1000);
    let (issued_at, expires_at) = (moved(claims.issued_at), moved(claims.expires_at));
    Claims { issued_at, expires_at, ..claims.clone() }
}

type Headers = Vec<(&'static str, String)>;

fn bearer(credential: &str) -> Headers {
    vec![("authorization", format!("Bearer {credential}"))]
}

fn api_key(credential: &str) -> Headers {
    vec![("x-api-key", credential.to_owned())]
}

/// Whether keys open a sample route, and whether it may be entered without anything.
struct Sample {
    path: &'static str,
    takes_keys: bool,
    is_in_band: bool,
    is_langsmith: bool,
}

/// All of them need `process`.
const SAMPLES: [Sample; 5] = [
    Sample { path: "/v1/session", takes_keys: false, is_in_band: false, is_langsmith: false },
    Sample { path: "/endpoint", takes_keys: false, is_in_band: false, is_langsmith: false },
    Sample { path: "/langsmith", takes_keys: true, is_in_band: false, is_langsmith: true },
    Sample { path: "/v1/langsmith", takes_keys: false, is_in_band: false, is_langsmith: true },
    Sample { path: "/v1/socket", takes_keys: false, is_in_band: true, is_langsmith: false },
];

const LET_IN: (u16, &str) = (200, "");
const UNAUTHENTICATED: (u16, &str) = (401, "UNAUTHENTICATED");
const NOT_FOUND: (u16, &str) = (404, "NOT_FOUND");
const DENIED: (u16, &str) = (403, "CAPABILITY_DENIED");

impl Sample {
    /// Asks, and compares what is said with what should be, in the shape of the route.
    async fn check(
        &self,
        ground: &Ground,
        who: &str,
        sandbox: &str,
        headers: &Headers,
        expected: (u16, &str),
    ) -> Value {
        let (status, body) = ground.ask(&format!("/dp/{sandbox}{}", self.path), headers).await;
        let (pointer, word) = match (self.is_langsmith, expected.1) {
            (false, code) => ("/error/code", code),
            (true, "CAPABILITY_DENIED") => ("/detail/error", "PermissionDenied"),
            (true, "NOT_FOUND") => ("/detail/error", "NotFound"),
            (true, "") => ("/detail/error", ""),
            (true, _) => ("/detail/error", "Unauthenticated"),
        };
        let said = body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        assert_eq!((status.as_u16(), said), (expected.0, word), "{}: {who}: {body}", self.path);
        body
    }
}

#[tokio::test]
async fn each_kind_of_route_lets_in_the_tokens_that_it_should_and_no_others() {
    let ground = Ground::start().await;
    let (ours, other) = (ground.sandbox("default").await, ground.sandbox("default").await);
    let gone = SandboxId::from_random([9; 16]);
    let good = claims(&ours, "process");
    let sign = |claims: &Claims| ground.tokens.sign(claims).unwrap().reveal().to_owned();
    let token = sign(&good);
    let cut: String = token.chars().take(token.len() - 1).collect();
    let basic = vec![("authorization", format!("Basic {token}"))];
    let lower = vec![("authorization", format!("bearer {token}"))];
    let too_long = Claims { expires_at: moved(&good, 3600).expires_at, ..good.clone() };
    let stale = Claims { generation: Generation(0), ..good.clone() };
    let rows: Vec<(&str, Headers, (u16, &str))> = vec![
        ("a token", bearer(&token), LET_IN),
        ("a scheme in small letters", lower, LET_IN),
        ("a token in the other header", api_key(&token), LET_IN),
        ("a good one and a bad key", [bearer(&token), api_key("x")].concat(), LET_IN),
        ("a bad one and a good key", [bearer("x"), api_key(&token)].concat(), UNAUTHENTICATED),
        ("one twice", [bearer(&token), bearer(&token)].concat(), UNAUTHENTICATED),
        ("another scheme", basic, UNAUTHENTICATED),
        ("a cut one", bearer(&cut), UNAUTHENTICATED),
        ("an empty one", bearer(""), UNAUTHENTICATED),
        ("another sandbox's", bearer(&sign(&claims(&other, "process"))), UNAUTHENTICATED),
        ("one that has ended", bearer(&sign(&moved(&good, -910))), (401, "TOKEN_EXPIRED")),
        ("one that ends just now", bearer(&sign(&moved(&good, -902))), LET_IN),
        ("one from the future", bearer(&sign(&moved(&good, 60))), UNAUTHENTICATED),
        ("one that is good for too long", bearer(&sign(&too_long)), UNAUTHENTICATED),
        ("one of an earlier sandbox", bearer(&sign(&stale)), (409, "BINDING_SUPERSEDED")),
        ("other capabilities", bearer(&sign(&claims(&ours, "fs:rw shell ports"))), DENIED),
        ("no capability", bearer(&sign(&claims(&ours, ""))), DENIED),
    ];
    for sample in &SAMPLES {
        for (who, headers, expected) in &rows {
            sample.check(&ground, who, ours.as_str(), headers, *expected).await;
        }
        let expected = if sample.is_in_band { LET_IN } else { UNAUTHENTICATED };
        sample.check(&ground, "nothing", ours.as_str(), &vec![], expected).await;
        // A token says where it is good; that there is nothing is told to nobody else.
        for elsewhere in [other.as_str(), gone.as_str(), "sb_x", "%2e%2e"] {
            let headers = bearer(&token);
            sample.check(&ground, "a token", elsewhere, &headers, UNAUTHENTICATED).await;
        }
        let headers = bearer(&sign(&claims(&gone, "process")));
        sample.check(&ground, "one of what is gone", gone.as_str(), &headers, NOT_FOUND).await;
    }
    // All of these look the same but for the number of the request.
    let mut refusals: Vec<Value> = Vec::new();
    let bad = [bearer(&cut), bearer(&sign(&claims(&other, "process"))), bearer("x.y.z")];
    for headers in bad {
        let mut body = SAMPLES[0]
            .check(&ground, "a bad token", ours.as_str(), &headers, UNAUTHENTICATED)
            .await;
        body["error"]["request_id"] = json!(null);
        refusals.push(body);
    }
    assert!(refusals.windows(2).all(|pair| pair[0] == pair[1]), "{refusals:?}");
}

#[tokio::test]
async fn keys_open_the_routes_of_langsmith_in_their_own_tenant_alone() {
    let ground = Ground::start().await;
    let ours = ground.sandbox("default").await;
    let foreign = ground.sandbox("elsewhere").await;
    let unknown = SandboxId::from_random([9; 16]);
    let key = ground.key("default", ActorKind::Human).await;
    let agent = ground.key("default", ActorKind::Agent).await;
    let stranger = ground.key("elsewhere", ActorKind::Human).await;
    for sample in &SAMPLES {
        let (yes, no) = if sample.takes_keys {
            (LET_IN, NOT_FOUND)
        } else {
            (UNAUTHENTICATED, UNAUTHENTICATED)
        };
        for headers in [bearer(&key), api_key(&key), api_key(&agent)] {
            sample.check(&ground, "a key", ours.as_str(), &headers, yes).await;
        }
        // Another's, one that is not there and what is no id at all: the same answer.
        for elsewhere in [foreign.as_str(), unknown.as_str(), "sb_x", "%2e%2e", "a-name"] {
            sample.check(&ground, "a key", elsewhere, &api_key(&key), no).await;
        }
        sample.check(&ground, "a stranger", ours.as_str(), &api_key(&stranger), no).await;
        let wrong = "rf_000000000000000000000000000000000000000000000000";
        sample.check(&ground, "no key", ours.as_str(), &api_key(wrong), UNAUTHENTICATED).await;
    }
    // What an agent's key may do is not all that a human's may.
    let path = format!("/dp/{ours}/langsmith-shell");
    assert_eq!(ground.ask(&path, &api_key(&key)).await.0, StatusCode::OK);
    let (status, body) = ground.ask(&path, &api_key(&agent)).await;
    assert_eq!(
        (status, &body["detail"]["error"]),
        (StatusCode::FORBIDDEN, &json!("PermissionDenied"))
    );
}

#[tokio::test]
async fn a_handler_is_told_who_comes_and_how_far_he_may_go() {
    let ground = Ground::start().await;
    let ours = ground.sandbox("default").await;
    let good = Claims {
        reach: Reach::below(["/workspace/a"]).unwrap(),
        ..claims(&ours, "fs:rw process shell")
    };
    let token = ground.tokens.sign(&good).unwrap();
    let (status, body) =
        ground.ask(&format!("/dp/{ours}/v1/access"), &bearer(token.reveal())).await;
    assert_eq!(status, StatusCode::OK);
    let expected = json!({
        "sandbox_id": ours.as_str(),
        "actor": {"type": "human", "id": "ada"},
        "scope": "fs:rw process shell",
        "paths": ["/workspace/a"],
        "expires_at": clock::text(good.expires_at.into()),
        "credential_id": "tok_1",
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn a_right_is_shown_in_band_and_renewed_by_the_same_actor() {
    let ground = Ground::start().await;
    let (ours, other) = (ground.sandbox("default").await, ground.sandbox("default").await);
    let sign = |claims: &Claims| ground.tokens.sign(claims).unwrap().reveal().to_owned();
    let unproven = ground.unproven(&ours);
    assert!(unproven.shown().is_none());
    let held = unproven.prove(&sign(&claims(&ours, "process shell:ro"))).await.unwrap();
    let rows = [
        (sign(&claims(&other, "process")), "OtherSandbox", 4403),
        (sign(&claims(&ours, "fs:rw")), "Denied(Process)", 4403),
        (sign(&moved(&claims(&ours, "process"), -3600)), "Expired", 4401),
        ("x".to_owned(), "Invalid", 4401),
        (String::new(), "Invalid", 4401),
        (ground.key("default", ActorKind::Human).await, "Invalid", 4401),
    ];
    for (token, name, code) in rows {
        for refusal in [unproven.prove(&token).await, unproven.renew(&held, &token).await] {
            let refusal = refusal.unwrap_err();
            assert_eq!((format!("{refusal:?}").as_str(), refusal.close_code()), (name, code));
        }
    }
    let later = Claims { id: "tok_2".to_owned(), ..claims(&ours, "process") };
    let renewed = unproven.renew(&held, &sign(&later)).await.unwrap();
    assert_eq!(renewed.credential_id(), "tok_2");
    let somebody = Actor { kind: ActorKind::Agent, id: "ada".to_owned() };
    let token = sign(&Claims { actor: somebody, ..claims(&ours, "process") });
    assert!(matches!(unproven.renew(&held, &token).await, Err(Refusal::Invalid)));
    assert!(unproven.prove(&token).await.is_ok());
}

#[tokio::test]
async fn streams_are_told_when_a_right_ends() {
    let ground = Ground::start().await;
    let ours = ground.sandbox("default").await;
    let unproven = ground.unproven(&ours);
    let soon = Duration::from_mins(1);
    let of = async |seconds: i64| {
        let claims = moved(&claims(&ours, "process"), seconds - 900);
        unproven.prove(ground.tokens.sign(&claims).unwrap().reveal()).await.unwrap()
    };
    // With its last minute begun a stream is warned at once; it goes on for five seconds after it.
    let ending = of(0).await;
    timeout(soon, ending.until_expiring(None)).await.unwrap();
    assert_eq!(timeout(soon, ending.until_ended()).await, Ok(Ended::Expired));
    let fresh = of(900).await;
    let brief = Duration::from_millis(50);
    assert!(timeout(brief, fresh.until_expiring(None)).await.is_err());
    assert!(timeout(brief, fresh.until_ended()).await.is_err());
    // A key has no end of its own, and ends when it is revoked.
    let (access, id) = ground.by_key(&ours).await;
    assert!(timeout(brief, access.until_expiring(None)).await.is_err());
    assert!(timeout(brief, access.until_ended()).await.is_err());
    ground.keyring.revoke(id).await.unwrap();
    assert_eq!(timeout(soon, access.until_ended()).await, Ok(Ended::Revoked));
    // A token that is replaced is warned of once, and then of the end of the next.
    let (access, next) = (of(30).await, moved(&claims(&ours, "process"), -870));
    let next = Claims { id: "tok_2".to_owned(), ..moved(&next, 10) };
    timeout(soon, access.until_expiring(None)).await.unwrap();
    let warned_of = access.expires_at();
    assert!(timeout(brief, access.until_expiring(warned_of)).await.is_err());
    let old = moved(&claims(&ours, "process"), -870);
    ground.tokens.revoke_after(&old, &next, Duration::from_mins(1)).await.unwrap();
    assert!(timeout(brief, access.until_ended()).await.is_err());
    timeout(soon, access.until_expiring(warned_of)).await.unwrap();
    assert_eq!(access.expires_at(), Some(next.expires_at.into()));
    ground.tokens.rotate(&ours).await.unwrap();
    assert_eq!(timeout(soon, access.until_ended()).await, Ok(Ended::Revoked));
}

#[tokio::test]
async fn only_routes_that_say_so_take_large_bodies() {
    let ground = Ground::start().await;
    let ours = ground.sandbox("default").await;
    let token = ground.tokens.sign(&claims(&ours, "fs:rw")).unwrap();
    for (path, size, expected) in [
        ("/v1/message", 1 << 20, 200),
        ("/v1/message", (1 << 20) + 1, 413),
        ("/v1/stream", (3 << 20) + 1, 200),
    ] {
        let path = format!("/dp/{ours}{path}");
        let (status, body) = ground.send(&path, &bearer(token.reveal()), vec![b'x'; size]).await;
        assert_eq!(status.as_u16(), expected, "{path} {size}: {body}");
    }
}

#[tokio::test]
async fn what_langsmiths_clients_tell_apart_they_are_told() {
    let ground = Ground::start().await;
    let ours = ground.sandbox("default").await;
    let token = ground.tokens.sign(&claims(&ours, "process")).unwrap();
    let rows = [
        ("starting", 503, "ServiceUnavailable"),
        ("stopped", 400, "NotReady"),
        ("gone", 404, "NotFound"),
        ("no-command", 404, "CommandNotFound"),
    ];
    for (what, status, kind) in rows {
        let path = format!("/dp/{ours}/fail/{what}");
        let (found, body) = ground.ask(&path, &bearer(token.reveal())).await;
        assert_eq!((found.as_u16(), &body["detail"]["error"]), (status, &json!(kind)), "{body}");
        assert!(body["detail"]["message"].is_string(), "{body}");
        assert!(body["detail"]["error_id"].as_str().unwrap().starts_with("req_"), "{body}");
        assert!(body.get("error").is_none(), "{body}");
    }
}
