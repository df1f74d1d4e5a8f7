//! The plain protocol, for ever: requests and answers as data, which later versions must pass as they
//! are. A file is never changed once it was released; new ones may be added.

use std::{collections::HashMap, fs, path::Path};

use serde_json::Value;

use crate::{
    sandboxed::Sandboxed,
    support::{Daemon, settings},
};

/// What stands for a part of an answer that is different each time.
const ANY: &str = "<any>";

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

fn filled(text: &str, names: &HashMap<String, String>) -> String {
    names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

async fn play(daemon: &Daemon, scene: &Value) {
    let mut names = HashMap::from([("<origin>".to_owned(), daemon.address.to_string())]);
    for step in scene["steps"].as_array().unwrap() {
        let (request, expected) = (&step["request"], &step["answer"]);
        let path = filled(request["path"].as_str().unwrap(), &names);
        let body = request.get("body").map_or_else(String::new, ToString::to_string);
        let bearer = format!("Bearer {}", daemon.key);
        let mut headers = vec![("Authorization", bearer.as_str())];
        if !body.is_empty() {
            headers.push(("Content-Type", "application/json"));
        }
        if step["anonymous"] == Value::Bool(true) {
            headers.remove(0);
        }
        let method = request["method"].as_str().unwrap();
        let answer = daemon.ask(method, &path, &headers, &body).await;
        let at = format!("{} {method} {path}", scene["name"]);
        assert_eq!(Value::from(answer.status), expected["status"], "{at}: {}", answer.body);
        match expected.get("body") {
            Some(body) => compare(body, &answer.json(), &mut names, &at),
            None => assert_eq!(answer.body, "", "{at}"),
        }
    }
}

#[tokio::test]
async fn the_plain_protocol_is_answered_as_it_always_was() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frozen/sessions");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 3);
    let surfaces =
        daemon::serve::Settings { sessions_image: Some("host".to_owned()), ..settings() };
    let sandboxed = Sandboxed::start_with(None, surfaces).await;
    for file in files {
        let scene: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        play(sandboxed.daemon(), &scene).await;
    }
}
