//! Nothing is left out in silence: not by a test, not by a stage.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::checkout;

/// What a machine or a user may lack, as the tests ask for it.
const CHECKS: [&str; 4] = ["is_root()", "needs_root()", "has_cgroups()", "has_disk_limits()"];

/// A test that returns early passes without having tested anything.
#[test]
fn tests_do_not_return_early_when_the_machine_lacks_something() {
    let mut found = Vec::new();
    for (path, text) in checkout::files_below("", ".rs") {
        if path.contains("/tests/") || path.ends_with("tests.rs") {
            found.extend(early_returns(&text).into_iter().map(|line| format!("{path}:{line}")));
        }
    }
    assert!(found.is_empty(), "use harness::needs and tests/needs: {found:#?}");
}

/// Returns the numbers of lines that check for something and then do nothing but return.
fn early_returns(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_silent = |line: &&&str| line.starts_with("//") || line.starts_with("eprintln!");
    let returns = ["return;", "return server.end().await;", "return None;", "return Ok(());"];
    let checks = |line: &str| line.starts_with("if ") && CHECKS.iter().any(|it| line.contains(it));
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let next = lines[number + 1..].iter().find(|line| !is_silent(line));
        if checks(line) && next.is_some_and(|next| returns.contains(next)) {
            found.push(number + 1);
        }
    }
    found
}

#[test]
fn an_early_return_is_recognised() {
    let rows = [
        ("if !is_root() {\n    return;\n}", true),
        ("if !is_root() {\n    // Why.\n    eprintln!(\"why\");\n    return;\n}", true),
        ("if !server.has_cgroups() {\n    return server.end().await;\n}", true),
        ("if !server.has_cgroups() {\n    assert!(refused);\n    return;\n}", false),
        ("if is_root() {\n    give(path);\n}", false),
    ];
    for (text, expected) in rows {
        assert_eq!(!early_returns(text).is_empty(), expected, "{text}");
    }
}

#[test]
fn every_row_of_the_list_of_needs_names_a_test_that_exists() {
    let list = checkout::read("tests/needs");
    let rows: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(rows.is_sorted() && rows.len() > 20, "sort tests/needs");
    for row in rows {
        let words: Vec<&str> = row.split(' ').collect();
        let [_, package, test] = words[..] else { panic!("not FEATURE PACKAGE TEST: {row}") };
        let (module, name) = test.rsplit_once("::").expect("a test is in a module");
        let file = format!("crates/{package}/tests/it/{}.rs", module.replace("::", "/"));
        let text = checkout::read(&file);
        assert!(text.contains(&format!("fn {name}()")), "{file} has no test {name}");
    }
}

/// A stage that does not do its work says so through `scripts/skip`.
#[test]
fn a_stage_ends_early_only_after_it_has_reported_why() {
    for (path, text) in checkout::files_below("tests/", "/stage") {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate() {
            let is_reported = number > 0 && lines[number - 1].starts_with("scripts/skip ");
            assert!(!line.contains("exit 0") || is_reported, "{path}:{}: {line}", number + 1);
        }
    }
}

/// Runs a stage whose only work is to leave something out, and prints the table.
fn run_skipping_stage(name: &str, ci: &str) -> (Output, String) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&target);
    let stage = |arguments: &[&str]| {
        Command::new("scripts/stage")
            .args(arguments)
            .current_dir(checkout::root())
            .env("CARGO_TARGET_DIR", &target)
            .env("CI", ci)
            .output()
            .expect("the script runs")
    };
    assert!(stage(&["--begin"]).status.success());
    assert!(stage(&["whole", "true"]).status.success());
    let skipping = stage(&["docker", "scripts/skip", "no engine"]);
    let table = String::from_utf8(stage(&["--table"]).stdout).expect("the table is text");
    (skipping, table)
}

#[test]
fn what_a_stage_skips_is_in_the_table_with_its_reason() {
    let (ran, table) = run_skipping_stage("skipped-stage", "");
    assert!(ran.status.success(), "{ran:?}");
    let row = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("docker").ends_with("SKIPPED: no engine"), "{table}");
    assert!(!row("whole").contains("SKIPPED"), "{table}");
}

#[test]
fn continuous_integration_fails_when_a_stage_skips_something() {
    let (ran, table) = run_skipping_stage("skipped-stage-of-ci", "true");
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    assert!(table.contains("failed  SKIPPED: no engine"), "{table}");
}
