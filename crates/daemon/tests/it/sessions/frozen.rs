//! The plain protocol, for ever: requests and answers as data, which later versions must pass as they
//! are. A file is never changed once it was released, which its digest here says; new ones may be added.

use std::{collections::HashMap, fs, net::TcpListener, path::Path};

use model::{
    actor::ActorKind,
    life::EndCause,
    policy::{Pattern, Policy, Rule, Scopes},
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use store::keys::Role;

use crate::{
    sandboxed::Sandboxed,
    support::{Answer, key, settings},
};

/// Every file, and what it holds.
const FILES: [(&str, &str); 7] = [
    ("01_acquire.json", "4e1999fe9f7d9fb218b12d6a92d865a36752482d6f64a4db1c08d5ca8cafe248"),
    ("02_refresh.json", "aa327288cddc9aab38a0ca66dfce7d6f55abdb31dda9ca69344aa7c7b5680386"),
    ("03_release.json", "763179bdd925de7b3fb6aff23f941b523f82a42d6820d17b029587ed7bf13cf8"),
    ("04_refusals.json", "31b5cb5cd5fb116cbde0380e34af06c1e267ce0604ce4fcfb47a1d8a1038ba11"),
    (
        "05_as_the_protocol_is_written.json",
        "c0c462d105960ba15f54c1761ad2a76b9a7799d68828e06027ac18d707aaba0d",
    ),
    ("06_evolution.json", "c25ae731d48fd6d7f8a67c50183f9470980917d1e271b5586c30eba951e5deeb"),
    ("07_every_refusal.json", "5e2eb1c473250d73b5776f2354f657fabf6fea2bb3d71b79b061a6e453fc5bcf"),
];

/// What stands for a part of an answer that is different each time.
const ANY: &str = "<any>";
/// What stands for a time: `2026-02-27T20:20:00Z`, maybe with a fraction.
const TIME: &str = "<time>";

/// Compares an answer with what is expected. Fields may be added, and none may be missing or differ.
fn compare(expected: &Value, found: &Value, names: &mut HashMap<String, String>, at: &str) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            // What stands for others comes first.
            let is_name = |value: &Value| value.as_str().is_some_and(|text| text.starts_with('<'));
            let (names_first, rest): (Vec<_>, Vec<_>) =
                expected.iter().partition(|(_, value)| is_name(value));
            for (name, value) in names_first.into_iter().chain(rest) {
                let missing = || panic!("{at}/{name} is missing");
                let found = found.get(name).unwrap_or_else(missing);
                compare(value, found, names, &format!("{at}/{name}"));
            }
        }
        (Value::String(expected), Value::String(found)) if expected == ANY => {
            assert!(!found.is_empty(), "{at} is empty");
        }
        (Value::String(expected), Value::String(found)) if expected == TIME => {
            assert!(is_time(found), "{at} is {found}");
        }
        (Value::String(expected), Value::String(found)) if expected.starts_with('<') => {
            let known = names.entry(expected.clone()).or_insert_with(|| found.clone());
            assert_eq!(known, found, "{at} is {expected}");
        }
        (Value::String(expected), Value::String(found)) if expected.contains('<') => {
            assert_eq!(&filled(expected, names), found, "{at}");
        }
        (expected, found) => assert_eq!(expected, found, "{at}"),
    }
}

fn is_time(text: &str) -> bool {
    let form = "0000-00-00T00:00:00";
    let Some((seconds, rest)) = text.split_at_checked(form.len()) else { return false };
    let fits = |(is, should): (char, char)| is == should || is.is_ascii_digit() && should == '0';
    let fraction = rest.strip_suffix('Z').map(|rest| rest.strip_prefix('.').unwrap_or(rest));
    seconds.chars().zip(form.chars()).all(fits)
        && fraction.is_some_and(|digits| digits.chars().all(|digit| digit.is_ascii_digit()))
}

fn filled(text: &str, names: &HashMap<String, String>) -> String {
    names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// A server, and those who ask it.
struct Stage {
    sandboxed: Sandboxed,
    /// A key that may not reach threads of these scenes.
    stranger: String,
    /// Takes connections and says nothing.
    silent: TcpListener,
}

impl Stage {
    async fn start() -> Self {
        let surfaces =
            daemon::serve::Settings { sessions_image: Some("host".to_owned()), ..settings() };
        let scopes = Scopes::These(vec![Pattern::read("thread:elsewhere_*").unwrap()]);
        let user = Rule { capabilities: None, scopes };
        let policy = Policy { user, ..Policy::default() };
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let down = "127.0.0.1:1".to_owned();
        let registries = [silent.local_addr().unwrap().to_string(), down];
        let sandboxed = Sandboxed::start_ruled(surfaces, policy, &registries).await;
        let bob = (ActorKind::Human, "bob");
        let stranger = key(sandboxed.daemon(), "default", Role::User, bob).await;
        Self { sandboxed, stranger, silent }
    }

    fn names(&self) -> HashMap<String, String> {
        let origin = self.sandboxed.daemon().address.to_string();
        let silent = self.silent.local_addr().unwrap().to_string();
        HashMap::from([("<origin>".to_owned(), origin), ("<silent>".to_owned(), silent)])
    }

    async fn play(&self, scene: &Value) {
        let mut names = self.names();
        for step in scene["steps"].as_array().unwrap() {
            if let Some(sandbox) = step["lose"].as_str() {
                let (tenant, id) = ("default".parse().unwrap(), filled(sandbox, &names));
                let cause = EndCause::Requested;
                self.sandboxed.sandboxes.delete(&tenant, &id, cause).await.unwrap();
                continue;
            }
            let (answer, at) = self.ask(step, &names).await;
            let at = format!("{} {at}", scene["name"]);
            let expected = &step["answer"];
            assert_eq!(Value::from(answer.status), expected["status"], "{at}: {}", answer.body);
            for (name, value) in expected["headers"].as_object().into_iter().flatten() {
                let line = format!("{name}: {}", value.as_str().unwrap());
                assert!(answer.head.lines().any(|it| it == line), "{at}: {}", answer.head);
            }
            match expected.get("body") {
                Some(body) => compare(body, &answer.json(), &mut names, &at),
                None => assert_eq!(answer.body, "", "{at}"),
            }
        }
    }

    /// Sends a request; returns the answer and what was asked.
    async fn ask(&self, step: &Value, names: &HashMap<String, String>) -> (Answer, String) {
        let (daemon, request) = (self.sandboxed.daemon(), &step["request"]);
        let path = filled(request["path"].as_str().unwrap(), names);
        // A text is sent byte for byte.
        let body = match (request["text"].as_str(), request.get("body")) {
            (Some(text), _) => filled(text, names),
            (None, Some(body)) => filled(&body.to_string(), names),
            (None, None) => String::new(),
        };
        let key = if step["stranger"] == true { &self.stranger } else { &daemon.key };
        let mut headers = vec![("Authorization".to_owned(), format!("Bearer {key}"))];
        if !body.is_empty() {
            headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        }
        if step["anonymous"] == true {
            headers.remove(0);
        }
        for (name, value) in request["headers"].as_object().into_iter().flatten() {
            headers.retain(|(it, _)| it != name);
            headers.push((name.clone(), filled(value.as_str().unwrap(), names)));
        }
        let headers: Vec<_> = headers.iter().map(|(name, it)| (&**name, &**it)).collect();
        let method = request["method"].as_str().unwrap();
        (daemon.ask(method, &path, &headers, &body).await, format!("{method} {path}"))
    }
}

#[tokio::test]
async fn the_plain_protocol_is_answered_as_it_always_was() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frozen/sessions");
    let files = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name());
    let mut files: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
    files.sort();
    assert_eq!(files, FILES.map(|(name, _)| name), "a file is in the list, or is not there");
    let stage = Stage::start().await;
    let mut changed = Vec::new();
    for (name, digest) in FILES {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        let found: String =
            Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        if found != digest {
            changed.push((name, found));
        }
        stage.play(&serde_json::from_str(&text).unwrap()).await;
    }
    assert_eq!(changed, [], "what was released stays as it is");
}
