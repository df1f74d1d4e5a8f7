//! Reports for people.

use std::{collections::BTreeMap, io::Write, path::Path};

use crate::{
    recorder::{self, ReadError},
    report::Report,
    rule::Rule,
};

/// How much of a line is shown: a replay has all events of a sandbox in one.
const SHOWN: usize = 600;

/// Writes a report for people, with the lines that it names.
pub fn show(path: &Path, report: &Report, out: &mut impl Write) -> Result<(), ReadError> {
    let lines = lines_of(path, report)?;
    for violation in &report.violations {
        let rule = violation.rule;
        writeln!(out, "{} ({})", rule.name(), rule.invariants())?;
        writeln!(out, "  promise: {}", rule.promise())?;
        writeln!(out, "  {} {}", violation.subject, violation.message)?;
        for line in &violation.lines {
            let text = lines.get(line).map_or("", String::as_str);
            let shown: String = text.chars().take(SHOWN).collect();
            let rest = if shown.len() < text.len() { " …" } else { "" };
            writeln!(out, "  {line}: {shown}{rest}")?;
        }
        writeln!(out)?;
    }
    for (rule, count) in &report.broken {
        writeln!(out, "{count} × {}", Rule::name(*rule))?;
    }
    if report.is_clean() {
        writeln!(out, "nothing is wrong")?;
    }
    writeln!(out, "{}", report.summary)?;
    Ok(())
}

/// Returns the lines that the report names.
fn lines_of(path: &Path, report: &Report) -> Result<BTreeMap<usize, String>, ReadError> {
    let mut lines: BTreeMap<usize, String> = report
        .violations
        .iter()
        .flat_map(|violation| &violation.lines)
        .map(|line| (*line, String::new()))
        .collect();
    recorder::read(path, |line, entry| {
        if let Some(text) = lines.get_mut(&line) {
            *text = serde_json::to_string(entry).unwrap_or_default();
        }
    })?;
    Ok(lines)
}
