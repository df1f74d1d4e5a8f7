//! Nothing is left out in silence: not by a test, not by a stage.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::checkout;

/// What a machine or a user may lack, as the tests ask for it.
const CHECKS: [&str; 4] = ["is_root()", "needs_root()", "has_cgroups()", "has_disk_limits()"];

/// A test that returns early passes without having tested what its name says.
#[test]
fn tests_do_not_return_early_when_the_machine_lacks_something() {
    let mut found = Vec::new();
    for (path, text) in checkout::files_below("", ".rs") {
        if path.contains("/tests/") || path.ends_with("tests.rs") {
            found.extend(early_returns(&text).into_iter().map(|line| format!("{path}:{line}")));
        }
    }
    assert!(found.is_empty(), "use harness::needs and tests/needs, or two tests: {found:#?}");
}

/// Returns the numbers of lines after which a test returns because something is missing.
fn early_returns(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let checks = |line: &str| {
        line.trim_start().starts_with("if !") && CHECKS.iter().any(|it| line.contains(it))
    };
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| checks(line)) {
        let is_inside = |next: &&&str| next.trim().is_empty() || indent(next) > indent(line);
        let mut block = lines[number + 1..].iter().take_while(is_inside);
        if block.any(|line| line.trim_start().starts_with("return")) {
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
        ("if !server.has_cgroups() {\n    assert!(refused);\n    return;\n}", true),
        ("if !server.has_cgroups() {\n    give(path);\n}\nreturn server.end().await;", false),
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

/// The head of the list says which stage runs what others leave out.
#[test]
fn every_feature_of_the_list_of_needs_names_the_stage_that_has_it() {
    let list = checkout::read("tests/needs");
    let head = list.lines().filter_map(|line| line.strip_prefix("#   "));
    let stages: HashMap<&str, &str> = head
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?))
        })
        .collect();
    let makefile = checkout::read("Makefile");
    for row in list.lines().filter(|line| !line.starts_with('#')) {
        let feature = row.split(' ').next().unwrap_or_default();
        let stage =
            stages.get(feature).unwrap_or_else(|| panic!("tests/needs explains no {feature}"));
        let is_stage = makefile.contains(&format!("scripts/stage {stage} "))
            || checkout::root().join(format!("tests/{stage}/stage")).exists();
        assert!(is_stage, "no stage {stage}: {feature}");
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

/// Runs `make test` with these stages; returns what the last one and the table came to.
fn run_stages(folder: &str, ci: &str, stages: &[&[&str]]) -> (Output, Output) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
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
    let mut ran: Vec<Output> = stages.iter().map(|arguments| stage(arguments)).collect();
    (ran.pop().expect("there is a stage"), stage(&["--table"]))
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("the table is text")
}

/// Runs a stage whose only work is to leave something out, and prints the table.
fn run_skipping_stage(name: &str, ci: &str) -> (Output, String) {
    let stages: [&[&str]; 2] = [&["whole", "true"], &["docker", "scripts/skip", "no engine"]];
    let (skipping, table) = run_stages(name, ci, &stages);
    (skipping, text(&table))
}

/// A stage that leaves three tests to another one.
const LEAVING: &[&str] = &["user", "scripts/skip", "--run-in", "tests", "3 tests that need root"];

#[test]
fn what_another_stage_has_run_is_in_the_table_and_not_skipped() {
    for ci in ["", "true"] {
        let stages = [&["tests", "true"], LEAVING];
        let (ran, table) = run_stages(&format!("run-elsewhere-{ci}"), ci, &stages);
        assert!(ran.status.success() && table.status.success(), "{ran:?} {table:?}");
        let table = text(&table);
        assert!(table.contains("user       run in tests: 3 tests that need root"), "{table}");
        assert!(!table.contains("SKIPPED"), "{table}");
    }
}

#[test]
fn what_was_left_to_a_stage_that_has_not_passed_is_skipped() {
    for (folder, first) in [("left-to-none", "other"), ("left-to-failed", "tests")] {
        let command = if first == "tests" { "false" } else { "true" };
        let (ran, table) = run_stages(folder, "true", &[&[first, command], LEAVING]);
        assert!(ran.status.success(), "{ran:?}");
        assert_eq!(table.status.code(), Some(1), "{table:?}");
        let table = text(&table);
        assert!(table.contains("SKIPPED: 3 tests that need root, to be run in tests"), "{table}");
    }
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
