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
    spec::SandboxSpec,
};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    caller::Connection,
    ends::{access, mint, rotate},
    exec::{Ground, Wire, ready},
    oauth::post,
    sandboxed::Sandboxed,
    support::{Daemon, raw, settings},
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
    // The signature of whoever knows what is public, or nothing.
    let id = ground.id.as_str();
    let known =
        [&b""[..], &[0; 32], id.as_bytes(), kid.as_bytes(), b"ringfence", header.as_bytes()];
    for secret in known {
        let tag = hmac::sign(&hmac::Key::new(HMAC_SHA256, secret), signed.as_bytes());
        rows.push(("J02", format!("{signed}.{}", BASE64.encode(tag))));
    }
    let json_form =
        json!({"payload": payload, "protected": header, "signature": signature}).to_string();
    for form in [signed.to_owned(), format!("{good}."), format!("{good}.x"), json_form] {
        rows.push(("J01", form));
    }
    rows.push(("J01", format!("{header}.x.{payload}.x.{signature}")));
    let sealed = format!(r#"{{"alg":"dir","enc":"A256GCM","typ":"JWT","kid":"{kid}"}}"#);
    rows.push(("J01", format!("{}..{payload}.{payload}.{signature}", BASE64.encode(&sealed))));
    rows.push(("J01", forge.with_header(&sealed)));
    rows.push(("J01", format!("..{signature}")));
    rows.push(("J01", ".".repeat(2)));
    // What only others would take for a token: one that says who somebody is, signed with our key.
    let mut identity = forge.payload.clone();
    identity["iss"] = json!("https://accounts.example.com");
    identity["aud"] = json!("client-1");
    identity["email"] = json!("ada@example.com");
    rows.push(("J12", forge.signed(&forge.header, &identity.to_string())));
    let long = "k".repeat(65);
    for kid in ["", "key_1", &long, "../../dev/null", "' OR 1=1", "https://x", "\\u0000"] {
        let header = format!(r#"{{"alg":"HS256","typ":"JWT","kid":"{kid}"}}"#);
        rows.push(("J03", forge.with_header(&header)));
    }
    rows.push(("J03", forge.with_header(r#"{"alg":"HS256","typ":"JWT"}"#)));
    rows.push(("J03", forge.with_header(&forge.header.replace(&kid, &format!("{other}.1")))));
    rows.push(("J12", forge.with_header(&forge.header.replace(&kid, &format!("{}.2", ground.id)))));
    // Of another tenant.
    let spec = SandboxSpec { image: "host".to_owned(), ..SandboxSpec::default() };
    let elsewhere = "elsewhere".parse().unwrap();
    let foreign = ground.sandboxed.sandboxes.create(&elsewhere, None, spec).await.unwrap().id;
    rows.push(("J03", forge.with_header(&forge.header.replace(&kid, &format!("{foreign}.1")))));
    let their = claims(&foreign, Capability::ALL.into_iter().collect(), 0);
    let their = ground.sandboxed.tokens.sign(&their).unwrap();
    rows.push(("J03", their.reveal().to_owned()));
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
    for kind in ["at+jwt", "jwt", "JWS", "dpop+jwt", ""] {
        rows.push(("J04", forge.with_header(&forge.header.replace("JWT", kind))));
    }
    rows.push(("J04", forge.with_header(&format!(r#"{{"alg":"HS256","kid":"{kid}"}}"#))));
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
        (
            "J07",
            "exp",
            vec![json!((iat + 600).to_string()), json!(1.5 + 1e9), json!(null), json!(iat)],
        ),
        ("J07", "exp", vec![json!(iat - 100), json!(iat * 1000), json!(i64::MAX), json!(u64::MAX)]),
        ("J08", "nbf", vec![json!(iat + 60), json!("1"), json!(1)]),
        ("J08", "iat", vec![json!(null), json!(iat + 60), json!("1"), json!(iat - 3600)]),
        ("J08", "exp", vec![json!(iat + 3601)]),
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
    rows.push(("J10", good.replacen('.', ". ", 1)));
    rows.push(("J10", good.replacen('.', ".\t", 1)));
    // The last character of a signature has two bits that mean nothing.
    let last = good.chars().last().unwrap();
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let is_last = |known: &&u8| char::from(**known) == last;
    let alike = alphabet.chunks(4).find(|alike| alike.iter().any(|it| is_last(&it))).unwrap();
    for other in alike.iter().filter(|it| !is_last(it)) {
        let rest = good.strip_suffix(last).unwrap();
        rows.push(("J10", format!("{rest}{}", char::from(*other))));
    }
    let filled = json!("x".repeat(4096));
    rows.push(("J10", forge.with_claim("thread_id", filled)));
    rows.push(("J10", forge.with_header(&forge.header.replace("JWT", &"J".repeat(4096)))));
    rows.push(("J12", daemon.key.clone()));
    // A token of another sandbox, with its own right key.
    let [theirs, _] = mint(daemon, &other, "ada", "jwt").await;
    rows.push(("J12", theirs));
    for (row, token) in &rows {
        let bearer = format!("Bearer {token}");
        for (method, path) in [("GET", "/v1/access"), ("POST", "/v1/exec"), ("GET", "/files/tmp")] {
            let path = format!("/dp/{id}{path}");
            let answer = daemon.ask(method, &path, &[("Authorization", &bearer)], "").await;
            let told = answer.problem();
            assert_eq!(told, (401, "UNAUTHENTICATED".into()), "{row}: {path}: {token}");
            assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
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
        if !token.contains(['{', ' ', '=', '\t']) && !token.is_empty() {
            let path = format!("/internal/tokens/{token}");
            let shown = daemon.ask("GET", &path, &told, "").await.status;
            // There is one of the other sandbox.
            let expected = if token == &rows.last().unwrap().1 { 200 } else { 404 };
            assert_eq!(shown, expected, "{row}: {token}");
        }
    }
    // In band, a few of them: the table above is what both read.
    for (row, token) in rows.iter().rev().skip(1).step_by(7) {
        let mut wire = Wire::open(daemon, &ground.id, "/ws", None).await;
        wire.send(json!({"type": "auth", "token": token})).await;
        assert_eq!(wire.closed().await, Some(4401), "{row}: {token}");
    }
    let (_, theirs) = rows.last().unwrap();
    // J10: a header of a megabyte is too long for a request, and for a frame of who is not known yet.
    let vast = forge.with_header(&forge.header.replace("JWT", &"J".repeat(700 << 10)));
    for (token, code) in [(theirs, 4403), (&vast, 1009)] {
        let mut wire = Wire::open(daemon, &ground.id, "/ws", None).await;
        wire.send(json!({"type": "auth", "token": token})).await;
        assert_eq!(wire.closed().await, Some(code));
    }
    let head = format!(
        "GET /dp/{id}/v1/access HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {vast}",
        daemon.address
    );
    let refused = raw(daemon.address, &head.as_bytes()[..60 << 10]).await;
    assert_eq!(refused.problem(), (431, "HEADERS_TOO_LARGE".to_owned()));
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
    for scope in
        ["", " ", "fs:rwx", "fs", "fs:", "fs:*", "*", "SHELL", "Fs:Rw", "fs:rw,shell", "root admin"]
    {
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
    // What is known beside what is not is granted, once.
    let token = forge.with_claim("scope", json!("fs:ro root fs:ro FS:RW shell shell"));
    let bearer = format!("Bearer {token}");
    let path = format!("/dp/{id}/v1/access");
    let shown = daemon.ask("GET", &path, &[("Authorization", &bearer)], "").await;
    assert_eq!((shown.status, &shown.json()["scope"]), (200, &json!("fs:ro shell")));
    let path = format!("/dp/{id}/files/tmp/x");
    let refused = daemon.ask("PUT", &path, &[("Authorization", &bearer)], "x").await;
    assert_eq!(refused.problem(), (403, "CAPABILITY_DENIED".to_owned()));
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
    let bearer = format!("Bearer {stale}");
    let path = format!("/dp/{id}/v1/access");
    let fenced = daemon.ask("GET", &path, &[("Authorization", &bearer)], "").await;
    assert_eq!(fenced.problem(), (409, "BINDING_SUPERSEDED".to_owned()));
    assert_eq!(rotate(daemon, id).await.status, 200);
    for token in [&good, &stale, &ground.token] {
        assert_eq!(access(daemon, id, token).await, 401);
    }
    let [fresh, _] = mint(daemon, id, "ada", "jwt").await;
    assert_eq!(access(daemon, id, &fresh).await, 200);
    ground.sandboxed.delete("default", id.as_str()).await;
    assert_eq!(access(daemon, id, &fresh).await, 404);
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
