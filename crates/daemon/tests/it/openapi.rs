//! The document of everything HTTP: what it says is what there is, and it only grows.

mod matrix;
mod surface;

use std::{fmt::Write as _, fs, path::Path};

use serde_json::{Value, json};

use crate::support::Daemon;

const FROZEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.md");

/// What to do when something was added.
const ACCEPT: &str = "RINGFENCE_ACCEPT=1 cargo nextest run -p daemon --test it openapi";

/// Every operation of the document: path, method, and what is said of it.
fn operations(document: &Value) -> impl Iterator<Item = (&String, &String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, item)| {
        item.as_object().unwrap().iter().map(move |(method, said)| (path, method, said))
    })
}

/// Follows a reference to a part that several share.
fn resolved<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    let path = part["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
    path.map_or(part, |path| document.pointer(path).unwrap())
}

/// Clients that are out there rely on what the document said. What was added is accepted by writing the
/// document anew; what was taken away or narrowed is not.
#[test]
fn the_surface_only_grows() {
    let now = daemon::openapi::document();
    let text = format!("{now:#}\n");
    let frozen = fs::read_to_string(FROZEN).unwrap_or_default();
    let before: Value = serde_json::from_str(&frozen).unwrap_or_default();
    let broken = surface::broken(&before, now);
    assert!(
        broken.is_empty(),
        "these break clients that rely on docs/openapi.json; the surface is only ever added to:\n{}",
        broken.join("\n")
    );
    if std::env::var_os("RINGFENCE_ACCEPT").is_some() {
        fs::write(FROZEN, &text).unwrap();
        return;
    }
    assert!(
        text == frozen,
        "the document has more, or says it in other words; accept that by\n  {ACCEPT}"
    );
}

/// Programs that generate clients leave out operations with a body that has no schema, take a default of null
/// for a value, and refuse two paths that differ by a slash alone.
#[test]
fn programs_that_generate_clients_can_read_all_of_it() {
    let document = daemon::openapi::document();
    let text = document.to_string();
    assert!(!text.contains("\"default\":null"), "there is a default of null");
    for (path, method, said) in operations(document) {
        assert!(path.len() == 1 || !path.ends_with('/'), "{path}");
        let answers = said["responses"].as_object().unwrap().values();
        let answers = answers.map(|answer| resolved(document, answer));
        for message in answers.chain([&said["requestBody"]]) {
            for (kind, content) in message["content"].as_object().into_iter().flatten() {
                assert!(content["schema"].is_object(), "{method} {path} {kind}");
            }
        }
    }
}

#[tokio::test]
async fn programs_and_people_are_shown_every_route_without_a_key() {
    let daemon = Daemon::start().await;
    let answer = daemon.ask("GET", "/openapi.json", &[], "").await;
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    assert_eq!(answer.json(), *daemon::openapi::document());
    let page = daemon.ask("GET", "/docs", &[], "").await;
    assert_eq!(page.status, 200);
    for (path, method, said) in operations(daemon::openapi::document()) {
        let row = format!("<b>{}</b> <code>{path}</code>", method.to_uppercase());
        assert!(page.body.contains(&row), "{method} {path}");
        let summary = said["summary"].as_str().unwrap().split('`').next().unwrap();
        assert!(page.body.contains(summary), "{summary}");
    }
    // The page loads nothing and runs nothing.
    let policy = page.head.lines().find(|line| line.starts_with("content-security-policy: "));
    let policy = policy.unwrap();
    assert!(policy.contains("default-src 'none'; style-src 'sha256-"), "{policy}");
    for word in ["script-src", "unsafe", "connect-src", "img-src", "http:", "https:", "*"] {
        assert!(!policy.contains(word), "{policy}");
    }
    for word in ["<script", "<img", "<link", "<iframe", "javascript:", " style=", " onclick"] {
        assert!(!page.body.contains(word), "{word}");
    }
    daemon.stop().await;
}

/// A list is no object, although its elements could be taken for the fields in their order.
#[tokio::test]
async fn a_body_that_is_no_object_is_refused() {
    let daemon = Daemon::start().await;
    let headers = [("X-Api-Key", daemon.key.as_str()), ("Content-Type", "application/json")];
    for body in ["[\"x\", null, null, null]", "\"x\"", "null", " [\"x\"]"] {
        let answer = daemon.ask("POST", "/v1/admin/keys", &headers, body).await;
        assert_eq!(answer.problem(), (400, "INVALID_REQUEST".to_owned()), "{body}");
    }
    let answer = daemon.ask("POST", "/v1/admin/keys", &headers, " {\"name\": \"x\"}").await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    daemon.stop().await;
}

/// The parts that a reader needs are there: a meaning of every parameter and answer, and every schema.
#[test]
fn the_document_is_whole() {
    let document = daemon::openapi::document();
    let mut ids = std::collections::HashSet::new();
    for (path, method, said) in operations(document) {
        let route = format!("{method} {path}");
        assert!(
            ids.insert(said["operationId"].as_str().unwrap()),
            "{route}: its id is there twice"
        );
        assert!(said["security"].is_array(), "{route}");
        for parameter in said["parameters"].as_array().into_iter().flatten() {
            let parameter = resolved(document, parameter);
            let about = parameter["description"].as_str().unwrap();
            assert!(
                !about.is_empty(),
                "{route}: say what {} is in openapi/parameters.rs",
                parameter["name"]
            );
        }
        let mut good = 0;
        for (status, answer) in said["responses"].as_object().unwrap() {
            let answer = resolved(document, answer);
            assert!(!answer["description"].as_str().unwrap().is_empty(), "{route} {status}");
            good += usize::from(status.starts_with(['1', '2', 'd']));
        }
        assert_eq!(good == 0, said["x-never"] == true, "{route} never succeeds");
    }
    references(document, &mut |path| {
        assert!(document.pointer(path).is_some_and(Value::is_object), "there is no {path}");
    });
}

fn references(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            if let Some(name) = fields.get("$ref").and_then(Value::as_str) {
                found(name.strip_prefix('#').unwrap());
            }
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(all) => all.iter().for_each(|one| references(one, found)),
        _ => {}
    }
}

/// Says who may use what is not of one sandbox.
fn table(document: &Value) -> String {
    let mut table =
        "| route | opened by | a key of another tenant gets |\n|---|---|---|\n".to_owned();
    let token = json!({"token": []});
    for (path, method, said) in operations(document).filter(|(path, ..)| !path.starts_with("/dp/"))
    {
        let role = said["security"][0]["key"].as_array();
        let opened = match (
            role.map(|words| words.first().and_then(Value::as_str)),
            &said["x-credential"],
        ) {
            (None, Value::Null) => "everybody".to_owned(),
            (None, _) => "what stands in the body".to_owned(),
            (Some(None), _) if said["security"].as_array().unwrap().contains(&token) => {
                "every key and every token".to_owned()
            }
            (Some(None), _) => "every key".to_owned(),
            (Some(Some("broker")), _) => "keys of the roles broker and admin".to_owned(),
            (Some(Some(role)), _) => format!("keys of the role {role}"),
        };
        let others = match said["x-tenancy"].as_str() {
            Some("hidden") => "404",
            Some("own") => "its own",
            Some("server") => "403",
            Some(other) => panic!("what is a tenancy of {other}?"),
            None => "",
        };
        let method = method.to_uppercase();
        writeln!(table, "| `{method} {path}` | {opened} | {others} |").unwrap();
    }
    table
}

/// What is in the page is what the document says. To write it anew, take it from here.
#[test]
fn the_page_says_who_may_use_what() {
    let page = fs::read_to_string(PAGE).unwrap();
    let table = table(daemon::openapi::document());
    if std::env::var_os("RINGFENCE_ACCEPT").is_some() {
        let (before, _) = page.split_once("| route | opened by |").unwrap_or((&page, ""));
        fs::write(PAGE, format!("{before}{table}")).unwrap();
        return;
    }
    assert!(page.contains(&table), "docs/openapi.md should have:\n{table}");
}

/// Only these mount routes, and they take what the document says of each.
const MOUNTING: [&str; 2] = ["http/routes.rs", "dataplane/routes.rs"];

#[test]
fn no_route_is_mounted_without_its_document() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![source.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&source).unwrap().to_str().unwrap().to_owned();
            // Tests mount samples.
            if MOUNTING.contains(&name.as_str())
                || name.contains("tests")
                || path.extension().is_none_or(|it| it != "rs")
            {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for call in
                [".route(", ".route_service(", ".nest(", ".nest_service(", ".fallback_service("]
            {
                let found = text.contains(call);
                assert!(
                    !found,
                    "{name}: mount it by http::routes or dataplane::routes, with a Doc: {call}"
                );
            }
        }
    }
}
