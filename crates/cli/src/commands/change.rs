//! `ringfence stop`, `resume` and `rm`: what is accepted at once and done after it.

use std::process::ExitCode;

use clap::Args;
use client::{
    ClientError,
    admin::Admin,
    sandboxes::{
        Sandboxes,
        record::{Sandbox, State},
    },
};
use serde_json::{Value, json};

use crate::{
    arguments::read_label,
    output::{OUR_FAILURE, complain, say},
    sandboxes::{Interrupted, block_on, connect, explain, wait},
    server::Server,
    shown::sandbox_json,
};

/// Stops sandboxes: their processes end, their files stay.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence stop demo
  ringfence stop demo other --no-wait

JSON: {sandboxes: [...], errors: [{sandbox_id, error}]}.

Exit codes: 0; 130 and 143 if the wait was interrupted; 125 if any could not be stopped.")]
pub(crate) struct Stop {
    /// The sandboxes
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    how: How,
}

/// Starts stopped sandboxes again, with the files that they had.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence resume demo

JSON: {sandboxes: [...], errors: [{sandbox_id, error}]}.

Exit codes: 0; 130 and 143 if the wait was interrupted; 125 if any could not be resumed.")]
pub(crate) struct Resume {
    /// The sandboxes
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    how: How,
}

/// Removes sandboxes with all their files, in whatever state they are.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence rm demo
  ringfence rm --label team=a
  ringfence rm --force demo      # as an admin: with the session that holds it

JSON: {sandboxes: [...], errors: [{sandbox_id, error}]}.

Exit codes: 0; 130 and 143 if the wait was interrupted; 125 if any could not be removed.")]
pub(crate) struct Rm {
    /// The sandboxes
    #[arg(required_unless_present = "label", value_name = "NAME")]
    names: Vec<String>,
    /// All with this label; with many, those that have all
    #[arg(
        short,
        long,
        value_name = "KEY=VALUE",
        value_parser = read_label,
        conflicts_with = "names"
    )]
    label: Vec<(String, String)>,
    /// End the session that holds it too, whoever uses it; for admins
    #[arg(short, long, conflicts_with = "label")]
    force: bool,
    #[command(flatten)]
    how: How,
}

#[derive(Args, Debug)]
struct How {
    /// Do not wait until it is done
    #[arg(long)]
    no_wait: bool,
    /// Write JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

impl Stop {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let asked = async |sandboxes: &Sandboxes, name: &str| sandboxes.stop(name).await;
        block_on(async {
            let sandboxes = connect(&self.how.server).await?;
            self.how.change(&sandboxes, self.names, asked, State::Stopped).await
        })
    }
}

impl Resume {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let asked = async |sandboxes: &Sandboxes, name: &str| sandboxes.resume(name).await;
        block_on(async {
            let sandboxes = connect(&self.how.server).await?;
            self.how.change(&sandboxes, self.names, asked, State::Ready).await
        })
    }
}

impl Rm {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        block_on(async {
            let sandboxes = connect(&self.how.server).await?;
            if self.force {
                let server = &self.how.server;
                let admin = Admin::new(server.address()?, &server.key()?);
                let asked = async |_: &Sandboxes, name: &str| admin.kill(name).await;
                return self.how.change(&sandboxes, self.names, asked, State::Deleted).await;
            }
            if self.label.is_empty() {
                let asked = async |sandboxes: &Sandboxes, name: &str| sandboxes.delete(name).await;
                return self.how.change(&sandboxes, self.names, asked, State::Deleted).await;
            }
            let chosen = sandboxes.delete_labelled(self.label.into_iter().collect()).await;
            let chosen = chosen.map_err(|error| explain(error, ""))?;
            let asked = async |_: &Sandboxes, _: &str| Ok(());
            self.how.change(&sandboxes, chosen, asked, State::Deleted).await
        })
    }
}

impl How {
    /// Asks for all, then waits for each. One that cannot be changed does not spare the others.
    async fn change(
        &self,
        sandboxes: &Sandboxes,
        names: Vec<String>,
        ask: impl AsyncFn(&Sandboxes, &str) -> Result<(), ClientError>,
        goal: State,
    ) -> anyhow::Result<ExitCode> {
        let mut failed = Vec::new();
        let mut asked = Vec::new();
        for name in names {
            match accepted(sandboxes, &name, &ask, goal).await {
                Ok(sandbox) => asked.push(sandbox),
                Err(error) => failed.push((name.clone(), explain(error, &name))),
            }
        }
        let mut done: Vec<Value> = Vec::new();
        for sandbox in asked {
            let name = sandbox.name.clone();
            let there =
                if self.no_wait { Ok(sandbox) } else { wait(sandboxes, sandbox, goal).await };
            match there {
                Ok(sandbox) if self.json => done.push(sandbox_json(&sandbox)),
                Ok(_) => say(&name)?,
                Err(error) => match error.downcast::<Interrupted>() {
                    Ok(interrupted) => {
                        complain(&interrupted.to_string());
                        return Ok(ExitCode::from(interrupted.code));
                    }
                    Err(error) => failed.push((name, error)),
                },
            }
        }
        for (name, error) in &failed {
            complain(&format!("{name}: {error:#}"));
        }
        if self.json {
            let errors: Vec<Value> = failed
                .iter()
                .map(|(name, error)| json!({ "sandbox_id": name, "error": format!("{error:#}") }))
                .collect();
            say(&json!({ "sandboxes": done, "errors": errors }).to_string())?;
        }
        Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(OUR_FAILURE) })
    }
}

/// Asks, and returns the sandbox as it is then. A sandbox that is at the goal already needs no change.
async fn accepted(
    sandboxes: &Sandboxes,
    name: &str,
    ask: impl AsyncFn(&Sandboxes, &str) -> Result<(), ClientError>,
    goal: State,
) -> Result<Sandbox, ClientError> {
    let asked = ask(sandboxes, name).await;
    match asked {
        Err(error) if error.code() == Some("SANDBOX_INVALID_STATE") => {
            let sandbox = sandboxes.get(name).await?;
            if sandbox.state == goal { Ok(sandbox) } else { Err(error) }
        }
        asked => {
            asked?;
            sandboxes.get(name).await
        }
    }
}
