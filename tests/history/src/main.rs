//! `history check FILE`: says what is wrong with a recorded history, and shows the lines.

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;
use history::{check::check_file, show::show};

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ["check", file] = words[..] else {
        writeln!(io::stderr(), "usage: history check FILE")?;
        return Ok(ExitCode::from(2));
    };
    let path = Path::new(file);
    let report = check_file(path).with_context(|| format!("cannot check {file}"))?;
    show(path, &report, &mut io::stdout().lock())
        .with_context(|| format!("cannot read {file} again"))?;
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
