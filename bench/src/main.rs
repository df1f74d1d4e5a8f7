//! Measures Ringfence against bare runs and against other sandboxes, in one run on one machine.
//!
//! What is timed, and why so, is in `bench/README.md`.

mod commands;
mod connection;
mod create;
mod dataplane;
mod events;
mod files;
mod lasting;
mod machine;
mod peers;
mod program;
mod report;
mod rows;
mod runtimes;
mod samples;
mod server;
mod shells;
mod tokens;

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    program::Program,
    report::{Bar, Report, Row},
    rows::Bench,
};

/// Measures Ringfence against bare runs and peers.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Arguments {
    /// The server's program
    #[arg(long, value_name = "FILE", required = true)]
    ringfence: Option<PathBuf>,
    /// Where the raw samples are written
    #[arg(long, value_name = "DIR", default_value = "bench/results")]
    results: PathBuf,
    /// The rows to measure; without any, all of them
    #[arg(value_name = "ROW", value_parser = rows::NAMES)]
    rows: Vec<String>,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Runs a program once for each line of input and tells how long each took.
    #[command(hide = true)]
    Time { command: Vec<String> },
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(Role::Time { command }) = arguments.role {
        return program::time_on_request(&Program::new(command));
    }
    let ringfence = arguments.ringfence.context("--ringfence is needed")?;
    let names = if arguments.rows.is_empty() {
        rows::NAMES.map(str::to_owned).to_vec()
    } else {
        arguments.rows
    };
    // One thread: the client must not take both processors from the server.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        // Either way the server that was started is ended.
        tokio::select! {
            report = measure(&ringfence, &names) => report,
            signal = told_to_stop() => Err(signal?),
        }
    })?;
    let samples = report.write(&arguments.results)?;
    writeln!(io::stdout(), "{report}\nraw samples: {}", samples.display())?;
    Ok(())
}

async fn measure(ringfence: &Path, names: &[String]) -> anyhow::Result<Report> {
    let bench = Bench::new(ringfence).await?;
    let mut rows = Vec::new();
    for name in names {
        writeln!(io::stderr(), "bench: {name} …")?;
        match bench.measure(name).await {
            Ok(measured) => rows.extend(measured),
            Err(error) => rows.push(Row::new(name, "–", Bar::None).broken(&error)),
        }
    }
    Ok(Report { machine: bench.machine.clone(), runtimes: rows::identities()?, rows })
}

async fn told_to_stop() -> io::Result<anyhow::Error> {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(anyhow::Error::msg("stopped"))
}
