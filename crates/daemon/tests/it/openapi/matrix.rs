//! The authorization matrix: every route of the document, with every credential that should not open it.
//!
//! What each cell should answer follows from what the document says of the route alone: its `security`, its
//! `x-tenancy`, and `x-credential` where the credential stands in the body. A route that is new is asked like
//! all others; a parameter that is new has to be given a value in [`Stage::value`].

use std::{
    fmt::Write as _,
    num::NonZeroU16,
    sync::atomic::{AtomicU64, Ordering},
};

use daemon::{
    keys::{NewKey, Secret},
    tokens::{
        Tokens,
        link::{Disposition, Download},
        preview::Preview,
    },
};
use model::{
    actor::ActorKind,
    capability::{Capabilities, Capability},
    ids::SandboxId,
    token::{Claims, Generation},
    units::Timestamp,
};
use serde_json::{Value, json};
use store::keys::Role;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    sandboxed::Sandboxed,
    sessions,
    support::{self, Daemon, PATIENCE},
    tokens::claims,
};

/// Who comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comer {
    NoCredential,
    OtherTenant,
    WrongCapability,
    /// A key where a token is wanted, and the other way round.
    WrongKind,
    Expired,
    Revoked,
    StaleGeneration,
    /// Whoever may.
    Rightful,
}

const COMERS: [Comer; 8] = [
    Comer::NoCredential,
    Comer::OtherTenant,
    Comer::WrongCapability,
    Comer::WrongKind,
    Comer::Expired,
    Comer::Revoked,
    Comer::StaleGeneration,
    Comer::Rightful,
];

/// What the document says of who may use a route.
#[derive(Debug, PartialEq, Eq)]
enum Opens {
    Public,
    InBody,
    Key {
        role: Option<String>,
    },
    Token {
        capability: Option<String>,
        keys_too: bool,
        in_band: bool,
    },
    /// The token of a service URL, in a header of its own.
    Service,
    /// What the path ends with.
    Link,
}

/// What a cell should answer.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    /// With this status, and this code where refusals are envelopes.
    Refused(u16, &'static str),
    /// Not for want of a right.
    LetIn,
    /// Let in, and told nothing of what is ours.
    OwnOnly,
    /// Whatever is said, no token is given out.
    NoToken,
}

/// A snapshot of ours. Others may have their own, but not of this name.
const SNAPSHOT: &str = "ours";

/// The port that is asked for, and another.
const PORT: NonZeroU16 = NonZeroU16::new(8000).unwrap();
const OTHER_PORT: NonZeroU16 = NonZeroU16::new(8001).unwrap();

/// In seconds since 1970: nobody comes so late.
const LATER: i64 = 9_000_000_000;

const UNAUTHENTICATED: Expected = Expected::Refused(401, "UNAUTHENTICATED");

impl Opens {
    /// Returns every way in that is tried by itself.
    fn ways(said: &Value) -> Vec<Self> {
        let mut ways = vec![Self::read(said)];
        if said["security"].as_array().unwrap().contains(&json!({"service_token": []})) {
            ways.push(Self::Service);
        }
        ways
    }

    fn read(said: &Value) -> Self {
        let ways = said["security"].as_array().unwrap();
        let words = |scheme: &str| {
            let way = ways.iter().find_map(|way| way.get(scheme));
            way.map(|words| words[0].as_str().map(str::to_owned))
        };
        match (words("token"), words("key")) {
            (Some(capability), key) => {
                let in_band = ways.contains(&json!({}));
                Self::Token { capability, keys_too: key.is_some(), in_band }
            }
            (None, Some(role)) => Self::Key { role },
            (None, None) if said["x-credential"] == "body" => Self::InBody,
            (None, None) if said["x-credential"] == "path" => Self::Link,
            (None, None) => Self::Public,
        }
    }

    fn expected(&self, comer: Comer, tenancy: &str) -> Expected {
        match (self, comer) {
            (Self::Public, _) | (_, Comer::Rightful) => Expected::LetIn,
            (Self::InBody, Comer::WrongKind) => Expected::LetIn,
            (Self::InBody, _) => Expected::NoToken,
            (Self::Key { .. }, Comer::OtherTenant) => match tenancy {
                "hidden" => Expected::Refused(404, ""),
                "own" => Expected::OwnOnly,
                "server" => Expected::Refused(403, "FORBIDDEN"),
                other => panic!("what is a tenancy of {other:?}?"),
            },
            (Self::Key { role: Some(_) }, Comer::WrongCapability) => {
                Expected::Refused(403, "FORBIDDEN")
            }
            (Self::Key { .. } | Self::Service | Self::Link, _) => UNAUTHENTICATED,
            // One that names no sandbox is for the token's own.
            (Self::Token { .. }, Comer::OtherTenant) if tenancy == "own" => Expected::OwnOnly,
            (Self::Token { in_band: true, .. }, Comer::NoCredential) => Expected::LetIn,
            (Self::Token { keys_too: true, .. }, Comer::WrongKind) => Expected::LetIn,
            (Self::Token { .. }, Comer::WrongKind | Comer::NoCredential | Comer::OtherTenant) => {
                UNAUTHENTICATED
            }
            (Self::Token { capability: None, .. }, Comer::WrongCapability) => Expected::LetIn,
            (Self::Token { .. }, Comer::WrongCapability) => {
                Expected::Refused(403, "CAPABILITY_DENIED")
            }
            (Self::Token { .. }, Comer::Expired) => Expected::Refused(401, "TOKEN_EXPIRED"),
            (Self::Token { .. }, Comer::Revoked) => UNAUTHENTICATED,
            (Self::Token { .. }, Comer::StaleGeneration) => {
                Expected::Refused(409, "BINDING_SUPERSEDED")
            }
        }
    }
}

/// A sandbox with its session, and everybody's credentials.
struct Stage {
    sandboxed: Sandboxed,
    sandbox: SandboxId,
    session: String,
    stranger: String,
    user: String,
    revoked: String,
    /// A key that may be revoked.
    spare: String,
    others_token: String,
    revoked_token: String,
    /// A sandbox of somebody else.
    other: SandboxId,
}

impl Stage {
    async fn set() -> Self {
        let sandboxed = Sandboxed::start().await;
        let daemon = sandboxed.daemon();
        let ours = sessions::ensure(daemon, "t-1").await;
        let kept = json!({"name": SNAPSHOT, "docker_image": "host"});
        let kept = sessions::post_as(daemon, &daemon.key, "/v2/sandboxes/snapshots", &kept).await;
        assert_eq!(kept.status, 201, "{}", kept.body);
        let ada = (ActorKind::Human, "ada");
        let stranger = support::key(daemon, "elsewhere", Role::Admin, ada).await;
        let ask = json!({"thread_id": "t-1", "mode": "ensure", "image": "host"});
        let theirs = sessions::post_as(daemon, &stranger, sessions::SESSIONS, &ask).await.json();
        let user = support::key(daemon, "default", Role::User, ada).await;
        let (revoked, id) = key(daemon).await;
        daemon.keyring.revoke(store::keys::KeyId(id)).await.unwrap();
        let (_, spare) = key(daemon).await;
        let sandbox: SandboxId = sessions::text(&ours, "/sandbox/id").parse().unwrap();
        let mut stage = Self {
            sandbox,
            session: sessions::text(&ours, "/session_id").to_owned(),
            others_token: sessions::text(&theirs, "/token").to_owned(),
            stranger,
            user,
            revoked,
            spare,
            revoked_token: String::new(),
            other: sessions::text(&theirs, "/sandbox/id").parse().unwrap(),
            sandboxed,
        };
        let claims = Claims { id: "tok_revoked".to_owned(), ..stage.claims(Capability::ALL) };
        stage.revoked_token = stage.sign(&claims);
        stage.sandboxed.tokens.revoke(&stage.sandbox, "tok_revoked").await.unwrap();
        stage
    }

    fn claims(&self, held: impl IntoIterator<Item = Capability>) -> Claims {
        unused(claims(&self.sandbox, held.into_iter().collect(), 0))
    }

    fn sign(&self, claims: &Claims) -> String {
        self.sandboxed.tokens.sign(claims).unwrap().reveal().to_owned()
    }

    fn good_token(&self) -> String {
        self.sign(&self.claims(Capability::ALL))
    }

    /// Returns a token with every capability that does not open what needs this one.
    fn lacking(&self, capability: &str) -> String {
        let needed = Capability::ALL.into_iter().find(|it| it.name() == capability).unwrap();
        let opens =
            |held: &Capability| [*held].into_iter().collect::<Capabilities>().allows(needed);
        self.sign(&self.claims(Capability::ALL.into_iter().filter(|held| !opens(held))))
    }

    fn ended(&self) -> String {
        let ended = claims(&self.sandbox, Capability::ALL.into_iter().collect(), 3600);
        self.sign(&unused(ended))
    }

    /// Returns what somebody shows where a link or the token of a service URL is wanted. Neither has
    /// capabilities or a generation, and they are revoked all together: what stands for these is one for
    /// something else, and ones of another server.
    fn signed(&self, opens: &Opens, comer: Comer) -> String {
        let (ours, others) = (&self.sandboxed.tokens, Tokens::new(&[200; 32]));
        let (tokens, sandbox, until) = match comer {
            Comer::OtherTenant => (ours, &self.other, LATER),
            Comer::Expired => (ours, &self.sandbox, 1),
            Comer::Revoked | Comer::StaleGeneration => (&others, &self.sandbox, LATER),
            _ => (ours, &self.sandbox, LATER),
        };
        let port = if comer == Comer::WrongCapability { OTHER_PORT } else { PORT };
        let key = self.sandboxed.daemon().key_id.clone();
        let end = Timestamp::from_millis(until.saturating_mul(1000));
        let preview = Preview { until: end, key: key.clone() };
        let preview = tokens.sign_preview(sandbox, port, &preview);
        let path = "/workspace/a".to_owned();
        let link = Download {
            path,
            until: Some(until),
            content_type: None,
            disposition: Disposition::Inline,
            key,
        };
        let link = tokens.sign_download(sandbox, &link).unwrap();
        match (opens, comer) {
            // A path cannot be without it.
            (Opens::Link, Comer::NoCredential) => "x".to_owned(),
            (Opens::Link, Comer::WrongCapability) => preview,
            (_, Comer::WrongKind) => self.good_token(),
            (Opens::Link, _) => link,
            _ => preview,
        }
    }

    /// Returns what somebody shows at a route, if anything.
    fn shown(&self, opens: &Opens, comer: Comer) -> Option<String> {
        match (opens, comer) {
            (Opens::Service, Comer::NoCredential) => return None,
            (Opens::Service | Opens::Link, _) => return Some(self.signed(opens, comer)),
            _ => {}
        }
        let admin = || self.sandboxed.daemon().key.clone();
        let wants_key = matches!(opens, Opens::Key { .. });
        Some(match comer {
            Comer::NoCredential => return None,
            Comer::Rightful if wants_key => admin(),
            Comer::Rightful => self.good_token(),
            Comer::WrongKind if wants_key => self.good_token(),
            Comer::WrongKind => admin(),
            Comer::OtherTenant if wants_key => self.stranger.clone(),
            Comer::OtherTenant => self.others_token.clone(),
            Comer::WrongCapability => match opens {
                Opens::Key { role: Some(_) } => self.user.clone(),
                Opens::Token { capability: Some(capability), .. } => self.lacking(capability),
                Opens::Token { capability: None, .. }
                | Opens::Public
                | Opens::InBody
                | Opens::Service
                | Opens::Link
                | Opens::Key { .. } => self.sign(&self.claims([])),
            },
            Comer::Revoked if wants_key => self.revoked.clone(),
            Comer::Revoked => self.revoked_token.clone(),
            Comer::Expired => self.ended(),
            Comer::StaleGeneration => {
                self.sign(&Claims { generation: Generation(0), ..self.claims(Capability::ALL) })
            }
        })
    }

    /// Returns the value of a parameter of a path.
    fn value(&self, name: &str) -> String {
        match name {
            "sandbox_id" | "sandbox" | "name" => self.sandbox.to_string(),
            "session_id" => self.session.clone(),
            "thread_id" => "t-1".to_owned(),
            "key_id" => self.spare.clone(),
            "token" => self.good_token(),
            "exec_id" => "ex-1".to_owned(),
            "stream" => "stdout".to_owned(),
            "port" => PORT.to_string(),
            "reference" | "snapshot_name" | "template" => SNAPSHOT.to_owned(),
            "absent" => "nothing".to_owned(),
            "path" => "workspace/a".to_owned(),
            "rest" => "x".to_owned(),
            new => {
                panic!("say here what {{{new}}} of a path is, so that its route is in the matrix")
            }
        }
    }

    fn path(&self, path: &str, link: Option<&str>) -> String {
        let mut filled = String::new();
        for (number, part) in path.split(['{', '}']).enumerate() {
            filled.push_str(&match (number % 2, part, link) {
                (1, "token", Some(link)) => link.to_owned(),
                (1, ..) => self.value(part),
                _ => part.to_owned(),
            });
        }
        filled
    }

    /// Returns the example of a body, with what stands for something put in its place.
    fn body(&self, said: &Value, shown: Option<&str>) -> (String, String) {
        let content = said["requestBody"]["content"].as_object();
        let Some((kind, content)) = content.and_then(|content| content.iter().next()) else {
            return (String::new(), String::new());
        };
        let put = |text: &str| match text {
            "CREDENTIAL" => shown.unwrap_or_default().to_owned(),
            // Where the credential is the token itself.
            "TOKEN" if said["x-credential"] == "body" => shown.unwrap_or_default().to_owned(),
            "TOKEN" => self.good_token(),
            "EXEC" => "ex-1".to_owned(),
            other => other.replace("SANDBOX", self.sandbox.as_str()),
        };
        let mut example = content["example"].clone();
        for (_, value) in example.as_object_mut().into_iter().flatten() {
            if let Some(text) = value.as_str() {
                *value = put(text).into();
            }
        }
        let body = match kind.as_str() {
            "application/json" => example.to_string(),
            "application/x-www-form-urlencoded" => {
                let pairs = example.as_object().unwrap().iter();
                let pairs =
                    pairs.map(|(name, value)| format!("{name}={}", value.as_str().unwrap()));
                pairs.collect::<Vec<_>>().join("&").replace(':', "%3A").replace(' ', "+")
            }
            _ => "x".to_owned(),
        };
        (kind.replace("*/*", "text/plain"), body)
    }

    /// Asks a route as somebody does; returns status, code and body.
    async fn ask(
        &self,
        path: &str,
        method: &str,
        said: &Value,
        opens: &Opens,
        shown: Option<&str>,
    ) -> (u16, String, String) {
        let (kind, body) = self.body(said, shown);
        let path = self.path(path, shown.filter(|_| *opens == Opens::Link));
        let mut head = format!("{} {path} HTTP/1.1\r\nHost: localhost\r\n", method.to_uppercase());
        head.push_str("Accept: application/json, text/event-stream\r\n");
        match (opens, shown) {
            (_, None) | (Opens::InBody | Opens::Link, _) => {}
            (Opens::Service, Some(shown)) => {
                write!(head, "X-Langsmith-Sandbox-Service-Token: {shown}\r\n").unwrap();
            }
            (_, Some(shown)) => write!(head, "Authorization: Bearer {shown}\r\n").unwrap(),
        }
        if said["responses"].get("101").is_some() {
            head.push_str(
                "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n",
            );
            head.push_str("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
        } else {
            head.push_str("Connection: close\r\n");
        }
        if !kind.is_empty() {
            write!(head, "Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len()).unwrap();
        }
        let (status, body) = send(self.sandboxed.daemon(), &format!("{head}\r\n{body}")).await;
        let told: Value = serde_json::from_str(&body).unwrap_or_default();
        let code = told.pointer("/error/code").and_then(Value::as_str).unwrap_or_default();
        (status, code.to_owned(), body)
    }

    /// Tells what is wrong with a cell.
    async fn check(
        &self,
        (path, method, said): (&str, &str, &Value),
        opens: &Opens,
        comer: Comer,
    ) -> Option<String> {
        let expected = opens.expected(comer, said["x-tenancy"].as_str().unwrap_or_default());
        let shown = self.shown(opens, comer);
        let (status, code, body) = self.ask(path, method, said, opens, shown.as_deref()).await;
        let is_documented = said["responses"].get(status.to_string()).is_some()
            || !said["responses"]["default"].is_null();
        let is_so = match &expected {
            Expected::Refused(wanted, word) => {
                status == *wanted && (code.is_empty() || word.is_empty() || code == *word)
            }
            Expected::LetIn => !matches!(status, 401 | 403) && code != "BINDING_SUPERSEDED",
            Expected::OwnOnly => {
                status != 403
                    && !body.contains(self.sandbox.as_str())
                    && !body.contains(&self.session)
            }
            Expected::NoToken => matches!(status, 200 | 400) && !body.contains("access_token"),
        };
        (!is_so || !is_documented).then(|| {
            format!("{method} {path}, {opens:?}, {comer:?}: {status} {code}, not {expected:?}; documented: {is_documented}: {body}")
        })
    }
}

/// Gives a token an id of its own: some routes end the token that they are shown.
fn unused(claims: Claims) -> Claims {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    Claims { id: format!("tok_{}", COUNT.fetch_add(1, Ordering::Relaxed)), ..claims }
}

async fn key(daemon: &Daemon) -> (String, String) {
    let secret = Secret::random().unwrap();
    let new = NewKey::named("somebody", Role::Admin).unwrap();
    let key = daemon.keyring.create(new, &secret).await.unwrap();
    (secret.reveal().to_owned(), key.id.0)
}

/// Sends a request and reads the head of the answer, and its body if that is of a known length.
async fn send(daemon: &Daemon, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(daemon.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count =
            timeout(PATIENCE, stream.read(&mut buffer)).await.expect("no answer").unwrap_or(0);
        answer.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&answer).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert_ne!(count, 0, "{request}: {text}");
            continue;
        };
        let head = head.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        if body.len() >= length || count == 0 {
            return (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned());
        }
    }
}

/// What destroys comes last: data first, then what is done with keys, then what ends something of the stage.
fn rank(path: &str, method: &str) -> (u8, bool) {
    let ends = ["/kill", "/rotate-key", "/archive", "/stop", "/revoke"];
    let is_ending = method == "delete" || ends.iter().any(|end| path.ends_with(end));
    match (path.starts_with("/dp/"), is_ending) {
        (true, is_ending) => (0, is_ending),
        (false, false) => (1, false),
        (false, true) => (2, path.ends_with("/kill")),
    }
}

#[tokio::test]
async fn every_route_lets_in_whom_the_document_says_and_nobody_else() {
    let stage = Stage::set().await;
    let document = &daemon::openapi::whole_document();
    let mut all: Vec<_> = super::operations(document).collect();
    all.sort_by_key(|(path, method, _)| rank(path, method));
    let (mut wrong, mut asked): (Vec<String>, usize) = (Vec::new(), 0);
    for comer in COMERS {
        for (path, method, said) in &all {
            for opens in Opens::ways(said) {
                wrong.extend(stage.check((path, method, said), &opens, comer).await);
                asked += 1;
            }
        }
        // Whoever may not has changed nothing.
        if comer != Comer::Rightful {
            let path = format!("{}/{}", sessions::SESSIONS, stage.session);
            let shown = sessions::ask(stage.sandboxed.daemon(), "GET", &path).await;
            assert_eq!(shown.json()["sandbox"]["id"], stage.sandbox.as_str(), "{comer:?}");
        }
    }
    assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
}

/// What everybody may use is said here too, so that nobody opens a route by leaving a word out.
#[test]
fn what_needs_no_credential_is_known_by_name() {
    let open: Vec<String> = super::operations(daemon::openapi::document())
        .filter(|(_, _, said)| matches!(Opens::read(said), Opens::Public | Opens::InBody))
        .map(|(path, method, _)| format!("{method} {path}"))
        .collect();
    let expected = [
        "get /docs",
        "get /healthz",
        "get /metrics",
        "post /oauth/revoke",
        "post /oauth/token",
        "get /openapi.json",
        "get /readyz",
    ];
    assert_eq!(open, expected);
}
