//! `ringfence token`.

use std::{process::ExitCode, time::Duration};

use clap::{Args, Subcommand};
use client::admin::{Admin, NewToken};

use crate::{
    arguments::read_timeout,
    output::{complain, say},
    server::Server,
};

/// Gives out tokens, and ends them. A token opens one sandbox, for some minutes, for what its scope says.
#[derive(Args, Debug)]
#[command(
    after_help = "Scopes: fs:ro, fs:rw (files), process (commands), shell, shell:ro (only watches), ports,
snapshot. Without --scope a token has all that its actor may have.

Examples:
  ringfence token mint --sandbox my-sandbox --scope \"fs:rw shell process\"
  ringfence token mint --sandbox my-sandbox --scope fs:ro --path /workspace/a --ttl 5m
  ringfence token mint --sandbox my-sandbox --scope process --agent robot --json
  ringfence token rotate my-sandbox
  ringfence token rotate-master

  TOKEN=$(ringfence token mint --sandbox my-sandbox)
  curl -H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:7700/dp/SANDBOX_ID/v1/access"
)]
pub(crate) struct Token {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a token for a sandbox and print it
    Mint(Mint),
    /// Give a sandbox another key: all its tokens end at once, and what they had opened closes
    Rotate {
        /// The sandbox's name or id
        sandbox: String,
    },
    /// Give the server itself another key; the one before stays good for a day
    RotateMaster {
        /// The key before has leaked: all tokens and previews end at once, and what they had opened closes
        #[arg(long)]
        at_once: bool,
    },
}

#[derive(Args, Debug)]
struct Mint {
    /// The sandbox's name or id
    #[arg(long, value_name = "ID")]
    sandbox: String,
    /// What it is good for, with blanks between the names
    #[arg(long)]
    scope: Option<String>,
    /// How long it is good for: 5m to 15m
    #[arg(long, value_parser = read_timeout, value_name = "TIME", default_value = "15m")]
    ttl: Duration,
    /// Confine file access to this folder of the sandbox; can be given several times
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<String>,
    /// The program that it is for, if it is not for whoever has the key
    #[arg(long)]
    agent: Option<String>,
    /// Make a text that says nothing by itself, rather than a signed token
    #[arg(long)]
    opaque: bool,
    /// Write all that the server says, as JSON
    #[arg(long)]
    json: bool,
}

impl Token {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.act())?;
        Ok(ExitCode::SUCCESS)
    }

    async fn act(self) -> anyhow::Result<()> {
        let admin = Admin::new(self.server.address()?, &self.server.key()?);
        match self.action {
            Action::Mint(wanted) => wanted.mint(&admin).await,
            Action::Rotate { sandbox } => {
                let rotated = admin.rotate(&sandbox).await?;
                complain(&format!("all tokens of {} have ended", rotated.sandbox_id));
                Ok(())
            }
            Action::RotateMaster { at_once } => {
                let rotated = admin.rotate_master(at_once).await?;
                let before = match rotated.previous_until {
                    Some(until) => format!("the one before is good until {until}"),
                    None => "all that was signed before has ended".to_owned(),
                };
                complain(&format!("the server signs with its key {}; {before}", rotated.key));
                Ok(())
            }
        }
    }
}

impl Mint {
    /// The token alone goes to stdout, so that a script can take it.
    async fn mint(self, admin: &Admin) -> anyhow::Result<()> {
        let asked = self.scope.clone();
        let minted = admin
            .mint(NewToken {
                sandbox: self.sandbox,
                scope: self.scope,
                ttl: Some(self.ttl),
                paths: self.paths,
                agent: self.agent,
                is_opaque: self.opaque,
            })
            .await?;
        if self.json {
            return Ok(say(&serde_json::to_string(&minted)?)?);
        }
        if asked.is_some_and(|asked| asked.split_whitespace().ne(minted.scope.split_whitespace())) {
            complain(&format!("not all was granted; the scope is \"{}\"", minted.scope));
        }
        complain(&format!("good until {} at {}", minted.expires_at, minted.dataplane_url));
        Ok(say(&minted.token)?)
    }
}
