//! `ringfence ps`.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use client::sandboxes::Which;
use serde_json::{Value, json};

use crate::{
    arguments::read_label,
    output::say,
    sandboxes::{block_on, connect, explain},
    server::Server,
    shown::{sandbox_json, table},
};

/// Lists sandboxes, newest first.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence ps
  ringfence ps -a --label team=a
  ringfence ps --json | jq -r '.sandboxes[] | select(.state == \"FAILED\") | .sandbox_id'

JSON: {sandboxes: [...]}, each as `ringfence create --json` shows it.

Exit codes: 0; 125 if the server cannot be asked.")]
pub(crate) struct Ps {
    /// Also those that were deleted
    #[arg(short, long)]
    all: bool,
    /// Only those with this label; with many, those that have all
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = read_label)]
    label: Vec<(String, String)>,
    /// Write JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

impl Ps {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        block_on(self.act())
    }

    async fn act(self) -> anyhow::Result<ExitCode> {
        let sandboxes = connect(&self.server).await?;
        let which = if self.all { Which::All } else { Which::Undeleted };
        let listed = sandboxes.list(which, self.label.into_iter().collect()).await;
        let listed = listed.map_err(|error| explain(error, ""))?;
        if self.json {
            let listed: Vec<Value> = listed.iter().map(sandbox_json).collect();
            say(&json!({ "sandboxes": listed }).to_string())?;
        } else {
            let now = daemon::clock::stamp().parse().context("the clock cannot be read")?;
            for line in table(&listed, now) {
                say(&line)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
