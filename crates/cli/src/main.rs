//! The `ringfence` command.

mod commands;
mod output;
mod private;
mod processes;
mod server;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs untrusted code in isolated environments, on this machine.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the server.
    Serve(commands::serve::Serve),
    /// Run a piece of code and stream its output.
    Run(commands::run::Run),
    /// Create, list and revoke API keys.
    Key(commands::key::Key),
    /// Say what this machine can do, what is missing, and the fix.
    Doctor(commands::doctor::Doctor),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Run(run) => run.run(),
        Command::Key(key) => key.run(),
        Command::Doctor(doctor) => doctor.run(),
    };
    done.unwrap_or_else(|error| {
        output::complain(&format!("{error:#}"));
        ExitCode::from(output::OUR_FAILURE)
    })
}
