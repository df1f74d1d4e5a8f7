//! What the pages say must be so.

use std::{collections::BTreeSet, path::Path};

use crate::checkout;

/// This file holds the words that no other file may have.
const THIS_FILE: &str = "tests/repository/tests/it/pages.rs";

/// Where packages come from is the business of the machine's own settings.
const PACKAGE_HOSTS: [&str; 8] = [
    "crates.io",
    "pypi.org",
    "pythonhosted.org",
    "npmjs.",
    "deb.debian.org",
    "archive.ubuntu.com",
    "hex.pm",
    "proxy.golang.org",
];

/// The files speak of the product, not of how it came to be.
const OUTSIDE_THE_PRODUCT: [&str; 10] = [
    "chatgpt",
    "claude code",
    "as an ai",
    "language model wrote",
    "this sitting",
    "the sitting",
    "/work/main",
    "/work/shared",
    "wire-facts",
    "reliability.md",
];

#[test]
fn the_changelog_has_a_place_for_what_is_not_released() {
    assert!(checkout::read("CHANGELOG.md").contains("\n## [Unreleased]\n"));
}

#[test]
fn the_architecture_page_names_every_crate() {
    let page = checkout::read("ARCHITECTURE.md");
    for (path, _) in checkout::files_below("crates/", "/Cargo.toml") {
        let name = path.split('/').nth(1).unwrap_or_default();
        assert!(page.contains(&format!("`{name}`")), "ARCHITECTURE.md does not name {name}");
    }
}

#[test]
fn every_promise_names_a_test_that_exists() {
    assert_eq!(promises_without_a_test("docs/SPECIFICATION.md"), Vec::<String>::new());
}

#[test]
fn every_row_of_the_threat_model_names_a_probe_that_exists() {
    assert_eq!(promises_without_a_test("docs/threat-model.md"), Vec::<String>::new());
}

/// Every fault has its row, and each row a test that exists or the record that says why there is none.
#[test]
fn every_fault_has_its_row_and_its_test_or_the_reason_why_not() {
    let (page, files) = (checkout::read("docs/faults.md"), checkout::files());
    let numbers = |letter: char, range: std::ops::RangeInclusive<u32>| {
        range.map(move |number| format!("{letter}{number:02}"))
    };
    let ids = numbers('F', 1..=45)
        .chain(numbers('F', 50..=68))
        .chain(numbers('F', 71..=74))
        .chain(numbers('F', 78..=78))
        .chain(numbers('F', 80..=82));
    let mut wrong = Vec::new();
    for id in ids.chain(numbers('R', 1..=9)) {
        let begin = format!("| {id} | ");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with(&begin)).collect();
        let [row] = rows.as_slice() else {
            wrong.push(format!("{id} has {} rows", rows.len()));
            continue;
        };
        let tests = tests_of(row);
        if tests.is_empty() && !row.contains("](decisions/") {
            wrong.push(format!("{id} has neither a test nor a record"));
        }
        let missing = tests.iter().filter(|test| !exists(test, &files));
        wrong.extend(missing.map(|test| format!("{id}: there is no {test}")));
    }
    assert_eq!(wrong, Vec::<String>::new());
}

fn promises_without_a_test(page: &str) -> Vec<String> {
    let files = checkout::files();
    let text = checkout::read(page);
    let promises: Vec<&str> = text.lines().filter(|line| is_promise(line)).collect();
    assert!(!promises.is_empty(), "{page} has no table with ids");
    let mut wrong = Vec::new();
    for promise in promises {
        let tests = tests_of(promise);
        if tests.is_empty() {
            wrong.push(format!("no test: {promise}"));
        }
        wrong.extend(tests.iter().filter(|test| !exists(test, &files)).map(ToString::to_string));
    }
    wrong
}

/// A promise is a row of a table whose first cell is its id: `C1`, `S01`, `S100`.
fn is_promise(line: &str) -> bool {
    let id = line.strip_prefix("| ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let mut characters = id.chars();
    let letter = characters.next().is_some_and(|first| first.is_ascii_uppercase());
    letter && matches!(id.len(), 2..=4) && characters.all(|next| next.is_ascii_digit())
}

/// Returns what stands between back quotes in the last cell.
fn tests_of(promise: &str) -> Vec<&str> {
    let cell = promise.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
    cell.split('`').skip(1).step_by(2).collect()
}

/// Tells whether a test is there: `crate::module::name` as a function of that crate or package,
/// `path::word` as a word in that file, `path` as a file.
fn exists(test: &str, files: &[(String, String)]) -> bool {
    let Some((place, _)) = test.split_once("::") else {
        return checkout::root().join(test).is_file();
    };
    let name = test.rsplit("::").next().unwrap_or_default();
    if place.contains('/') {
        return files.iter().any(|(path, text)| path == place && text.contains(name));
    }
    let folders = [format!("crates/{place}/"), format!("tests/{place}/")];
    let function = format!("fn {name}(");
    files.iter().any(|(path, text)| {
        folders.iter().any(|folder| path.starts_with(folder)) && text.contains(&function)
    })
}

/// Words of the same form that are no settings: files, actions of the audit log, a host name.
const NO_SETTINGS: [&str; 4] = ["tokens.key", "audit.seal", "audit.lost", "sandboxes.internal"];

#[test]
fn every_setting_that_a_page_names_is_in_the_configuration_page() {
    let configuration = checkout::read("docs/configuration.md");
    let settings: BTreeSet<&str> = quoted(&configuration).collect();
    let sections: BTreeSet<&str> =
        settings.iter().filter_map(|it| Some(it.split_once('.')?.0)).collect();
    assert!(sections.contains("sandboxes"), "{sections:?}");
    let mut missing = Vec::new();
    for (path, text) in checkout::files_below("", ".md") {
        let named = quoted(&text).filter(|name| {
            let section = name.split_once('.').map(|(section, _)| section);
            section.is_some_and(|section| sections.contains(section))
        });
        let unknown = named.filter(|name| !settings.contains(name) && !NO_SETTINGS.contains(name));
        missing.extend(unknown.map(|name| format!("{path}: {name}")));
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// Returns what stands between back quotes and has the form `section.key`.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let is_word =
        |it: &str| !it.is_empty() && it.chars().all(|it| it.is_ascii_lowercase() || it == '_');
    let words = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    words.filter(move |it| {
        it.split_once('.').is_some_and(|(section, key)| is_word(section) && is_word(key))
    })
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut broken = Vec::new();
    for (path, text) in checkout::files_below("", ".md") {
        let folder = Path::new(&path).parent().unwrap_or(Path::new(""));
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (target, heading) = link.split_once('#').unwrap_or((link, ""));
            let file = match target {
                "" => checkout::root().join(&path),
                target => checkout::root().join(folder).join(target),
            };
            let is_there = heading.is_empty() || headings(&file).iter().any(|it| it == heading);
            if !file.exists() || !is_there {
                broken.push(format!("{path}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Returns the headings of a page, as links name them.
fn headings(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap_or_default();
    // Every other part is an example.
    let lines = text.split("\n```").step_by(2).flat_map(str::lines);
    let named = |line: &str| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept =
            heading.chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
        kept.map(|it| if it == ' ' { '-' } else { it }).collect()
    };
    lines.filter(|line| line.starts_with('#')).map(named).collect()
}

#[test]
fn files_speak_of_the_product_alone() {
    let mut found = Vec::new();
    for (path, text) in checkout::files() {
        // A lock file says where packages came from because its tool wants it so.
        if path == THIS_FILE || path.ends_with("Cargo.lock") || path.ends_with("package-lock.json")
        {
            continue;
        }
        let text = text.to_lowercase();
        let words = PACKAGE_HOSTS.iter().chain(&OUTSIDE_THE_PRODUCT);
        found.extend(
            words.filter(|word| text.contains(**word)).map(|word| format!("{path}: {word}")),
        );
    }
    assert!(found.is_empty(), "{found:#?}");
}
