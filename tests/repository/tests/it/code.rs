//! How code is laid out.

use crate::checkout;

const LONGEST: usize = 600;

/// The one folder that may step outside the compiler's guarantees.
const SYSTEM_CALLS: &str = "crates/isolate/src/sys";

#[test]
fn a_module_is_a_file_beside_its_folder() {
    let old = checkout::files_below("", "/mod.rs");
    let old: Vec<&String> = old.iter().map(|(path, _)| path).collect();
    assert!(old.is_empty(), "name these after their folder: {old:?}");
}

#[test]
fn no_file_is_longer_than_600_lines_without_its_tests() {
    let mut long = Vec::new();
    for (path, text) in checkout::files_below("crates/", ".rs") {
        let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
        let lines = lines_before_tests(&text);
        if !is_test && lines > LONGEST {
            long.push(format!("{path}: {lines}"));
        }
    }
    assert!(long.is_empty(), "split these: {long:#?}");
}

fn lines_before_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let mut pairs = lines.windows(2);
    let tests = pairs.position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod "));
    tests.unwrap_or(lines.len())
}

#[test]
fn unsafe_code_is_in_one_folder() {
    let forms =
        ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe trait", "unsafe("];
    let mut found = Vec::new();
    for (path, text) in checkout::files_below("crates/", ".rs") {
        if path.starts_with(SYSTEM_CALLS) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if forms.iter().any(|form| code.contains(form)) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "move these to {SYSTEM_CALLS}: {found:#?}");
}

#[test]
fn tests_have_plain_names_and_all_run() {
    let mut found = Vec::new();
    for (path, text) in checkout::files_below("crates/", ".rs") {
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[ignore") || line.starts_with("fn test_") {
                found.push(format!("{path}: {line}"));
            }
        }
    }
    assert!(found.is_empty(), "a test is a sentence and is never skipped: {found:#?}");
}
