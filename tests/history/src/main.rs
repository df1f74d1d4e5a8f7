//! `history check FILE`: says what is wrong with a recorded history, and shows the lines.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;
use history::{check::check_file, recorder, report::Report, rule::Rule};

/// How much of a line is shown: a replay has all events of a sandbox in one.
const SHOWN: usize = 600;

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ["check", file] = words[..] else {
        writeln!(io::stderr(), "usage: history check FILE")?;
        return Ok(ExitCode::from(2));
    };
    let path = Path::new(file);
    let report = check_file(path).with_context(|| format!("cannot check {file}"))?;
    let lines = lines_of(path, &report).with_context(|| format!("cannot read {file} again"))?;
    show(&report, &lines, &mut io::stdout().lock())?;
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the lines that the report names.
fn lines_of(path: &Path, report: &Report) -> Result<BTreeMap<usize, String>, recorder::ReadError> {
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

fn show(report: &Report, lines: &BTreeMap<usize, String>, out: &mut impl Write) -> io::Result<()> {
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
    writeln!(out, "{}", report.summary)
}
