//! What the workspace depends on, by Cargo's own word.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use serde_json::Value;

use crate::{checkout, licences};

/// Which of our crates a crate may use. The table in `ARCHITECTURE.md` says the same in words.
const MAY_USE: [(&str, &[&str]); 11] = [
    ("api", &[]),
    ("cli", &["client", "daemon", "images", "isolate"]),
    ("client", &["api"]),
    ("daemon", &["api", "engine", "model", "store"]),
    ("engine", &["images", "isolate", "model", "store"]),
    ("images", &["isolate"]),
    ("init-image", &[]),
    ("isolate", &["init-image"]),
    ("model", &[]),
    ("service", &["api", "engine", "model", "store"]),
    ("store", &["model"]),
];

#[test]
fn every_licence_is_on_the_list() {
    let allowed = deny_list("[licenses]", "allow = [");
    let mut refused = Vec::new();
    for package in packages() {
        let licence = text(&package, "license");
        if !licences::is_met(&licence, &allowed) {
            refused.push(format!("{}: {licence}", name(&package)));
        }
    }
    assert!(refused.is_empty(), "not allowed by deny.toml: {refused:#?}");
}

#[test]
fn packages_come_from_the_one_registry_or_from_this_checkout() {
    let mut sources = BTreeSet::new();
    let mut odd = Vec::new();
    for package in packages() {
        match &package["source"] {
            Value::Null => odd.extend(from_another_registry(&package)),
            Value::String(source) if source.starts_with("registry+") => {
                sources.insert(source.clone());
            }
            other => odd.push(format!("{} comes from {other}", name(&package))),
        }
    }
    assert!(odd.is_empty(), "{odd:#?}");
    assert!(sources.len() <= 1, "more than one registry: {sources:?}");
}

/// A dependency on the default registry has none by name.
fn from_another_registry(package: &Value) -> Vec<String> {
    let named = list(package, "dependencies").into_iter().filter(|it| !it["registry"].is_null());
    named.map(|it| format!("{} names the registry of {}", name(package), name(&it))).collect()
}

#[test]
fn no_banned_package_is_used() {
    let banned = deny_list("[bans]", "deny = [");
    assert!(banned.len() >= 10, "deny.toml was read wrongly: {banned:?}");
    let mut wrong = Vec::new();
    for (user, used) in uses() {
        let may = banned.contains(&used) && wrappers_of(&used).contains(&user);
        if banned.contains(&used) && !may {
            wrong.push(format!("{user} uses {used}"));
        }
    }
    assert!(wrong.is_empty(), "banned by deny.toml, which says why: {wrong:?}");
}

/// Returns which package uses which, of those that a build for this machine uses.
fn uses() -> Vec<(String, String)> {
    let metadata = metadata();
    let packages = list(&metadata, "packages");
    let named: BTreeMap<String, String> =
        packages.iter().map(|package| (text(package, "id"), name(package))).collect();
    let mut uses = Vec::new();
    for node in list(&metadata["resolve"], "nodes") {
        for dependency in list(&node, "deps") {
            let pair = (named.get(&text(&node, "id")), named.get(&text(&dependency, "pkg")));
            if let (Some(user), Some(used)) = pair {
                uses.push((user.clone(), used.clone()));
            }
        }
    }
    assert!(uses.len() > 100, "cargo was read wrongly");
    uses
}

/// Returns who may use a package that is banned otherwise.
fn wrappers_of(banned: &str) -> Vec<String> {
    let policy = checkout::read("deny.toml");
    let line = policy.lines().find(|line| line.contains(&format!("crate = \"{banned}\"")));
    let list = line.and_then(|line| line.split_once("wrappers = [")?.1.split(']').next());
    list.unwrap_or_default().split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn a_crate_uses_only_those_of_our_crates_that_it_may() {
    let packages = packages();
    let crates: Vec<&Value> = packages.iter().filter(|it| is_crate_of_ours(it)).collect();
    let ours: BTreeSet<String> = crates.iter().map(|it| name(it)).collect();
    let mut wrong = Vec::new();
    for package in crates {
        let user = name(package);
        let Some((_, may_use)) = MAY_USE.iter().find(|(crate_name, _)| *crate_name == user) else {
            wrong.push(format!("{user} has no row in MAY_USE and none in ARCHITECTURE.md"));
            continue;
        };
        for dependency in list(package, "dependencies") {
            // What a crate's tests use is not part of the architecture.
            let used = name(&dependency);
            let is_ours = ours.contains(&used) && dependency["kind"] != "dev";
            if is_ours && !may_use.contains(&used.as_str()) {
                wrong.push(format!("{user} uses {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_dependency_is_named_once_in_the_workspace() {
    let mut wrong = Vec::new();
    for (path, manifest) in checkout::files_below("", "/Cargo.toml") {
        let mut among_dependencies = false;
        for line in manifest.lines().map(str::trim) {
            if line.starts_with('[') {
                among_dependencies = line.ends_with("dependencies]");
                if line.contains("dependencies.") {
                    wrong.push(format!("{path}: write {line} as one line"));
                }
            } else if among_dependencies && line.contains('=') && !takes_the_workspaces(line) {
                wrong.push(format!("{path}: {line}"));
            }
        }
    }
    assert!(wrong.is_empty(), "not `workspace = true`: {wrong:#?}");
}

fn takes_the_workspaces(line: &str) -> bool {
    line.starts_with('#') || line.contains("workspace = true")
}

#[test]
fn every_package_has_the_lints_of_the_workspace() {
    for (path, manifest) in checkout::files_below("", "/Cargo.toml") {
        assert!(manifest.contains("[lints]\nworkspace = true"), "{path} has lints of its own");
    }
}

/// Returns every package that a build for this machine uses, ours among them.
fn packages() -> Vec<Value> {
    list(&metadata(), "packages")
}

fn metadata() -> Value {
    // Other platforms are left out: their packages were never fetched.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", &platform])
        .current_dir(checkout::root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

/// Returns the first quoted word of each line of a list in `deny.toml`.
fn deny_list(section: &str, key: &str) -> Vec<String> {
    let policy = checkout::read("deny.toml");
    let lines = policy.lines().skip_while(|line| *line != section);
    let lines = lines.skip_while(|line| *line != key).skip(1).take_while(|line| *line != "]");
    lines.filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

fn is_crate_of_ours(package: &Value) -> bool {
    let crates = checkout::root().join("crates");
    text(package, "manifest_path").starts_with(&*crates.to_string_lossy())
}

fn name(value: &Value) -> String {
    text(value, "name")
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value, key: &str) -> Vec<Value> {
    value[key].as_array().cloned().unwrap_or_default()
}
