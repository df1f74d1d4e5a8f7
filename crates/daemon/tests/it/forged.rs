//! J01 to J14: tokens that are none, at the real routes. Most are signed with the right key, so that
//! nothing but what they say is wrong with them.

use api::agbox::v1;
use aws_lc_rs::{
    hkdf::{HKDF_SHA256, Salt},
    hmac::{self, HMAC_SHA256},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use daemon::serve::Settings;
use model::{
    capability::{Capabilities, Capability},
    ids::SandboxId,
};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    caller::Connection,
    ends::{access, mint, rotate},
    exec::{Ground, Wire, ready},
    oauth::post,
    sandboxed::Sandboxed,
    support::{Daemon, settings},
    tokens::claims,
};

/// The key of a sandbox, as whoever has the master key derives it.
fn key(sandbox: &SandboxId, epoch: u32) -> hmac::Key {
    let master = Salt::new(HKDF_SHA256, b"ringfence sandbox token").extract(&[9; 32]);
    let info = [sandbox.as_str().as_bytes(), &epoch.to_be_bytes()];
    master.expand(&info, HMAC_SHA256).unwrap().into()
}

/// A header and claims that can be changed before they are signed.
struct Forge {
    sandbox: SandboxId,
    header: String,
    payload: Value,
}

impl Forge {
    fn of(ground: &Ground) -> Self {
        let all: Capabilities = Capability::ALL.into_iter().collect();
        let good = ground.sandboxed.tokens.sign(&claims(&ground.id, all, 0)).unwrap();
        let mut parts = good.reveal().split('.');
        let mut part = || BASE64.decode(parts.next().unwrap()).unwrap();
        let (header, payload) = (part(), part());
        Self {
            sandbox: ground.id.clone(),
            header: String::from_utf8(header).unwrap(),
            payload: serde_json::from_slice(&payload).unwrap(),
        }
    }

    fn signed(&self, header: &str, payload: &str) -> String {
        let signed = format!("{}.{}", BASE64.encode(header), BASE64.encode(payload));
        let tag = hmac::sign(&key(&self.sandbox, 1), signed.as_bytes());
        format!("{signed}.{}", BASE64.encode(tag))
    }

    fn good(&self) -> String {
        self.signed(&self.header, &self.payload.to_string())
    }

    fn with_header(&self, header: &str) -> String {
        self.signed(header, &self.payload.to_string())
    }

    /// Null takes the claim away.
    fn with_claim(&self, name: &str, value: Value) -> String {
        let mut payload = self.payload.clone();
        let fields = payload.as_object_mut().unwrap();
        fields.remove(name);
        if !value.is_null() {
            fields.insert(name.to_owned(), value);
        }
        self.signed(&self.header, &payload.to_string())
    }

    fn kid(&self) -> String {
        format!("{}.1", self.sandbox)
    }
}

#[tokio::test]
async fn j01_to_j13_what_is_no_token_of_ours_opens_nothing() {
    let ground = Ground::new().await;
    let forge = Forge::of(&ground);
    let other = ready(&ground.sandboxed).await;
    let (daemon, kid, good) = (ground.daemon(), forge.kid(), forge.good());
    assert_eq!(access(daemon, &ground.id, &good).await, 200);
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (header, payload) = signed.split_once('.').unwrap();
    let mut rows: Vec<(&str, String)> = Vec::new();
    for alg in ["none", "None", "nOnE", "HS512", "RS256", "ES256", "EdDSA", "hs256"] {
        let header = format!(r#"{{"alg":"{alg}","typ":"JWT","kid":"{kid}"}}"#);
        let made = forge.with_header(&header);
        rows.push(("J02", made.clone()));
        rows.push(("J01", format!("{}.", made.rsplit_once('.').unwrap().0)));
    }
    // ES256 with r = s = 0, and the signature of nothing.
    for signature in ["A".repeat(86), "A".repeat(43), String::new(), "=".repeat(43)] {
        rows.push(("J02", format!("{signed}.{signature}")));
    }
    let json_form =
        json!({"payload": payload, "protected": header, "signature": signature}).to_string();
    for form in [signed.to_owned(), format!("{good}."), format!("{good}.x"), json_form] {
        rows.push(("J01", form));
    }
    rows.push(("J01", format!("{header}.x.{payload}.x.{signature}")));
    let long = "k".repeat(65);
    for kid in ["", "key_1", &long, "../../dev/null", "' OR 1=1", "https://x", "\\u0000"] {
        let header = format!(r#"{{"alg":"HS256","typ":"JWT","kid":"{kid}"}}"#);
        rows.push(("J03", forge.with_header(&header)));
    }
    rows.push(("J03", forge.with_header(r#"{"alg":"HS256","typ":"JWT"}"#)));
    rows.push(("J03", forge.with_header(&forge.header.replace(&kid, &format!("{other}.1")))));
    rows.push(("J12", forge.with_header(&forge.header.replace(&kid, &format!("{}.2", ground.id)))));
    for more in [
        r#""jku":"https://x""#,
        r#""x5u":"https://x""#,
        r#""jwk":{}"#,
        r#""x5c":[]"#,
        r#""crit":["x"]"#,
        r#""b64":false"#,
        r#""cty":"JWT""#,
    ] {
        rows.push(("J04", forge.with_header(&forge.header.replace('}', &format!(",{more}}}")))));
    }
    rows.push(("J04", forge.with_header(&forge.header.replace("JWT", "at+jwt"))));
    let id = ground.id.as_str();
    let iat = forge.payload["iat"].as_i64().unwrap();
    let claims: Vec<(&str, &str, Vec<Value>)> = vec![
        ("J05", "aud", vec![json!(null), json!(other), json!([id]), json!([id, other]), json!("")]),
        ("J05", "aud", vec![json!(1), json!({}), json!(id.to_uppercase())]),
        ("J06", "iss", vec![json!(null), json!("other"), json!("")]),
        ("J06", "sub", vec![json!(null), json!(""), json!("human:"), json!("ada")]),
        ("J06", "jti", vec![json!(null), json!(""), json!(1)]),
        ("J07", "exp", vec![json!(null), json!("9999999999"), json!(1.5), json!(-1), json!(0)]),
        (
            "J07",
            "exp",
            vec![json!(9_007_199_254_740_993_u64), json!(iat + 315_360_000_000), json!([])],
        ),
        ("J08", "nbf", vec![json!(iat + 60), json!("1"), json!(1)]),
        ("J08", "iat", vec![json!(null), json!(iat + 60), json!("1"), json!(iat - 1)]),
        ("J08", "exp", vec![json!(iat + 901)]),
        ("J11", "scope", vec![json!(null), json!(["fs:rw"])]),
        ("J13", "parents", vec![json!("x"), json!([1]), json!(vec!["x"; 9])]),
        ("J04", "cnf", vec![json!({})]),
    ];
    for (row, name, values) in claims {
        rows.extend(values.into_iter().map(|value| (row, forge.with_claim(name, value))));
    }
    let text = forge.payload.to_string();
    let twice = text.replacen('{', r#"{"scope":"fs:rw","#, 1);
    rows.push(("J10", forge.signed(&forge.header, &twice)));
    rows.push(("J10", forge.with_header(&forge.header.replacen('{', r#"{"alg":"HS256","#, 1))));
    rows.push(("J10", format!("{header}=.{payload}.{signature}")));
    rows.push(("J10", format!("{header}.{payload}=.{signature}")));
    rows.push(("J10", format!("{header}.{payload}.{signature}=")));
    rows.push(("J10", good.replacen('.', " .", 1)));
    let filled = json!("x".repeat(4096));
    rows.push(("J10", forge.with_claim("thread_id", filled)));
    rows.push(("J12", daemon.key.clone()));
    // A token of another sandbox, with its own right key.
    let [theirs, _] = mint(daemon, &other, "ada", "jwt").await;
    rows.push(("J12", theirs));
    for (row, token) in &rows {
        let bearer = format!("Bearer {token}");
        for (method, path) in [("GET", "/v1/access"), ("POST", "/v1/exec"), ("GET", "/files/tmp")] {
            let path = format!("/dp/{id}{path}");
            let answer = daemon.ask(method, &path, &[("Authorization", &bearer)], "").await;
            assert_eq!(answer.status, 401, "{row}: {path}: {token}: {}", answer.body);
        }
        // Nobody gets another token for it, and to nobody it is one.
        let told = [("X-Api-Key", daemon.key.as_str())];
        let fields = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("subject_token", token.as_str()),
            ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
            ("resource", &format!("sandbox:{id}")),
        ];
        let exchanged = post(daemon, "/oauth/token", &fields).await;
        assert_eq!(exchanged.status, 400, "{row}: {token}: {}", exchanged.body);
        if !token.contains(['{', ' ', '=']) && !token.is_empty() {
            let path = format!("/internal/tokens/{token}");
            let shown = daemon.ask("GET", &path, &told, "").await.status;
            // There is one of the other sandbox.
            let expected = if token == &rows.last().unwrap().1 { 200 } else { 404 };
            assert_eq!(shown, expected, "{row}: {token}");
        }
    }
    // In band, a few of them: the table above is what both read.
    for (row, token) in rows.iter().step_by(11) {
        let mut wire = Wire::open(daemon, &ground.id, "/ws", None).await;
        wire.send(json!({"type": "auth", "token": token})).await;
        let code = wire.closed().await;
        assert!(matches!(code, Some(4401 | 4403)), "{row}: {code:?} {token}");
    }
}

/// J09 and J11: what is good for a moment more, and names that grant nothing.
#[tokio::test]
async fn j09_j11_a_token_is_good_for_five_seconds_more_and_unknown_scopes_grant_nothing() {
    let ground = Ground::new().await;
    let forge = Forge::of(&ground);
    let (daemon, id) = (ground.daemon(), &ground.id);
    let iat = forge.payload["iat"].as_i64().unwrap();
    let aged = |seconds: i64| {
        let mut payload = forge.payload.clone();
        payload["iat"] = json!(iat - 900 - seconds);
        payload["exp"] = json!(iat - seconds);
        forge.signed(&forge.header, &payload.to_string())
    };
    // The boundary to the second is that of `model`; here is what is a second away from it.
    for (seconds, expected) in [(-2, 200), (0, 200), (1, 200), (30, 401)] {
        assert_eq!(access(daemon, id, &aged(seconds)).await, expected, "{seconds}");
    }
    for scope in ["", "fs:rwx", "*", "SHELL", "fs:rw,shell", "root admin"] {
        let token = forge.with_claim("scope", json!(scope));
        let bearer = format!("Bearer {token}");
        let shown = daemon
            .ask("GET", &format!("/dp/{id}/v1/access"), &[("Authorization", &bearer)], "")
            .await;
        assert_eq!((shown.status, &shown.json()["scope"]), (200, &json!("")), "{scope}");
        let refused = daemon
            .ask("POST", &format!("/dp/{id}/v1/exec"), &[("Authorization", &bearer)], "")
            .await;
        assert_eq!(refused.problem(), (403, "CAPABILITY_DENIED".to_owned()), "{scope}");
    }
}

/// J06 and J12: a token is worth nothing after its key, its sandbox and itself.
#[tokio::test]
async fn j12_what_was_good_once_is_refused_after_its_end() {
    let ground = Ground::new().await;
    let (daemon, id) = (ground.daemon(), &ground.id);
    let forge = Forge::of(&ground);
    let reused = forge.with_claim("jti", json!("tok_reused"));
    assert_eq!(access(daemon, id, &reused).await, 200);
    assert_eq!(post(daemon, "/oauth/revoke", &[("token", &reused)]).await.status, 200);
    // The same id again, with other claims.
    let mut payload = forge.payload.clone();
    (payload["jti"], payload["scope"]) = (json!("tok_reused"), json!("fs:ro"));
    let again = forge.signed(&forge.header, &payload.to_string());
    for token in [&reused, &again] {
        assert_eq!(access(daemon, id, token).await, 401);
    }
    let good = forge.good();
    assert_eq!(access(daemon, id, &good).await, 200);
    let mut stale = forge.payload.clone();
    stale["gen"] = json!(0);
    let stale = forge.signed(&forge.header, &stale.to_string());
    assert_eq!(access(daemon, id, &stale).await, 409);
    assert_eq!(rotate(daemon, id).await.status, 200);
    for token in [&good, &stale, &ground.token] {
        assert_eq!(access(daemon, id, token).await, 401);
    }
    let [fresh, _] = mint(daemon, id, "ada", "jwt").await;
    assert_eq!(access(daemon, id, &fresh).await, 200);
    let tenant = "default".parse().unwrap();
    let cause = model::life::EndCause::Requested;
    ground.sandboxed.sandboxes.delete(&tenant, id.as_str(), cause).await.unwrap();
    let refused = access(daemon, id, &fresh).await;
    assert!([200, 404].contains(&refused), "{refused}");
}

/// J14: whoever shows wrong ones without end is told to wait; whoever shows a good one is let in, and nobody else
/// is told anything.
#[tokio::test]
async fn j14_who_shows_too_much_that_is_wrong_waits_and_good_credentials_go_on() {
    let settings = Settings { is_behind_proxy: true, wrong_per_peer: 1, ..settings() };
    let sandboxed = Sandboxed::start_with(None, settings).await;
    let daemon = sandboxed.daemon();
    let id = ready(&sandboxed).await;
    let [good, _] = mint(daemon, &id, "ada", "jwt").await;
    let (signed, _) = good.rsplit_once('.').unwrap();
    let forged = format!("Bearer {signed}.{}", "A".repeat(43));
    let (wrong, good) = ("Bearer rf_wrong".to_owned(), format!("Bearer {good}"));
    let key = format!("Bearer {}", daemon.key);
    let access = format!("/dp/{id}/v1/access");
    let boxes = "/v2/sandboxes/boxes".to_owned();
    let rows = [(&access, &forged, &good, 1), (&boxes, &wrong, &key, 2)];
    for (path, bad, fine, number) in rows {
        let (peer, next) = (format!("203.0.113.{number}"), format!("198.51.100.{number}"));
        let ask = async |credential: &str, peer: &str| {
            let headers = [("Authorization", credential), ("X-Forwarded-For", peer)];
            daemon.ask("GET", path, &headers, "").await
        };
        let limited = loop {
            let answer = ask(bad, &format!("6.6.6.6, {peer}")).await;
            if answer.status != 401 {
                break answer;
            }
        };
        assert_eq!(limited.status, 429, "{}", limited.body);
        assert!(limited.head.contains("\r\nretry-after: 1"), "{}", limited.head);
        let told = if number == 1 { "RATE_LIMITED" } else { "QuotaExceeded" };
        assert!(limited.body.contains(told), "{}", limited.body);
        // The same address with a good one, another with a wrong one, and who cannot be told apart.
        assert_eq!(ask(fine, &peer).await.status, 200);
        assert_eq!(ask(bad, &next).await.status, 401);
        assert_eq!(ask(bad, "unknown").await.status, 401);
        assert_eq!(ask(bad, "unknown").await.status, 401);
    }
}

/// J14: this machine itself is not limited, so that a proxy on it locks nobody out.
#[tokio::test]
async fn j14_this_machine_is_not_limited_and_believes_nobody() {
    let settings = Settings { wrong_per_peer: 1, ..settings() };
    let daemon = Daemon::start_with(settings).await;
    for _ in 0..20 {
        let headers = [("X-Api-Key", "rf_wrong"), ("X-Forwarded-For", "203.0.113.1")];
        assert_eq!(daemon.ask("GET", "/v1/admin/keys", &headers, "").await.status, 401);
    }
}

/// J14: so are calls of gRPC, and tokens in the first frame of a WebSocket.
#[tokio::test]
async fn j14_calls_and_frames_are_counted_as_requests_are() {
    let settings = Settings { is_behind_proxy: true, wrong_per_peer: 1, ..settings() };
    let sandboxed = Sandboxed::start_with(None, settings).await;
    let daemon = sandboxed.daemon();
    let call = async |key: &str| {
        let metadata = [("x-api-key", key), ("x-forwarded-for", "203.0.113.1")];
        let connection = Connection::tcp(daemon.address, &metadata).await;
        let answer = connection.client().ping(v1::PingRequest {}).await;
        answer.map_or_else(|status| status.code(), |_| Code::Ok)
    };
    let limited = loop {
        let code = call("rf_wrong").await;
        if code != Code::Unauthenticated {
            break code;
        }
    };
    assert_eq!(limited, Code::ResourceExhausted);
    assert_eq!(call(&daemon.key).await, Code::Ok);
    let id = ready(&sandboxed).await;
    let [good, _] = mint(daemon, &id, "ada", "jwt").await;
    let forged = format!("{}.{}", good.rsplit_once('.').unwrap().0, "A".repeat(43));
    let show = async |token: &str| {
        let peer = Some(("x-forwarded-for", "203.0.113.2".to_owned()));
        let mut wire = Wire::open_with(daemon, &id, "/v1/exec/ws", peer).await;
        wire.send(json!({"type": "auth", "token": token})).await;
        wire
    };
    let limited = loop {
        let code = show(&forged).await.closed().await;
        if code != Some(4401) {
            break code;
        }
    };
    assert_eq!(limited, Some(4429));
    show(&good).await.until("auth_ok").await;
}
