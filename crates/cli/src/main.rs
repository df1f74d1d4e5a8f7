//! The `ringfence` command.

mod arguments;
mod commands;
mod locks;
mod output;
mod private;
mod processes;
mod sandboxes;
mod server;
mod shown;
mod terminal;
mod text;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The version, and the name of the build if whoever built it gave it one.
const VERSION: &str = match option_env!("RINGFENCE_BUILD") {
    Some(build) => build,
    None => env!("CARGO_PKG_VERSION"),
};

/// Runs untrusted code in isolated environments, on this machine.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version = VERSION, arg_required_else_help = true)]
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
    /// Create a sandbox that stays, and print its name.
    Create(commands::create::Create),
    /// Run a command in a sandbox.
    Exec(commands::exec::Exec),
    /// Open a terminal in a sandbox, or watch one.
    Shell(commands::shell::Shell),
    /// List sandboxes.
    Ps(commands::ps::Ps),
    /// Stop sandboxes; their files stay.
    Stop(commands::change::Stop),
    /// Start stopped sandboxes again.
    Resume(commands::change::Resume),
    /// Remove sandboxes with their files.
    Rm(commands::change::Rm),
    /// Show what happened to a sandbox.
    Events(commands::events::Events),
    /// Show what a command wrote.
    Logs(commands::logs::Logs),
    /// Bring images here, list them and take them away.
    Image(commands::image::Image),
    /// Create, list and revoke API keys.
    Key(commands::key::Key),
    /// Show, export and verify who was given which access.
    Audit(commands::audit::Audit),
    /// Give out tokens that open one sandbox for a few minutes.
    Token(commands::token::Token),
    /// Serve agents the Model Context Protocol on standard input and output.
    Mcp(commands::mcp::Mcp),
    /// Say what this machine can do, what is missing, and the fix.
    Doctor(commands::doctor::Doctor),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Run(run) => run.run(),
        Command::Create(create) => create.run(),
        Command::Exec(exec) => exec.run(),
        Command::Shell(shell) => shell.run(),
        Command::Ps(ps) => ps.run(),
        Command::Stop(stop) => stop.run(),
        Command::Resume(resume) => resume.run(),
        Command::Rm(rm) => rm.run(),
        Command::Events(events) => events.run(),
        Command::Logs(logs) => logs.run(),
        Command::Image(image) => image.run(),
        Command::Key(key) => key.run(),
        Command::Audit(audit) => audit.run(),
        Command::Token(token) => token.run(),
        Command::Mcp(mcp) => mcp.run(),
        Command::Doctor(doctor) => doctor.run(),
    };
    done.unwrap_or_else(|error| {
        output::complain(&format!("{error:#}"));
        let interrupted = error.downcast_ref::<sandboxes::Interrupted>();
        ExitCode::from(interrupted.map_or(output::OUR_FAILURE, |interrupted| interrupted.code))
    })
}
