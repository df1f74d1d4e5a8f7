//! `ringfence key`.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use client::admin::{Admin, NewKey};
use daemon::keys::Offline;
use serde_json::{Value, json};

use crate::{
    output::{complain, say},
    server::Server,
};

/// Manages API keys, through the running server or, if none runs, in its data directory.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence key create laptop
  ringfence key create ci --role admin --json
  ringfence key create crawler --tenant acme --agent crawler-1
  ringfence key list
  ringfence key revoke key_0123456789abcdef")]
pub(crate) struct Key {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    server: Server,
    /// Write JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a key and show its secret, this once
    Create {
        /// What to call it
        name: String,
        /// What its holder may do
        #[arg(long, default_value = "user", value_parser = ["admin", "broker", "user"])]
        role: String,
        /// The tenant that it belongs to
        #[arg(long)]
        tenant: Option<String>,
        /// The program that acts with it, if it is not a human's
        #[arg(long, conflicts_with = "human")]
        agent: Option<String>,
        /// The human who acts with it; without one, whoever has its name
        #[arg(long)]
        human: Option<String>,
    },
    /// List all keys
    List,
    /// Revoke a key; what it had opened is closed
    Revoke {
        /// The key's id, as `ringfence key list` shows it
        id: String,
    },
}

impl Key {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let done = runtime.block_on(self.act())?;
        self.show(&done)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Does it, and returns what there is to show, in the shape of the admin routes.
    async fn act(&self) -> anyhow::Result<Value> {
        let address = self.server.address()?;
        if self.server.is_named() || address.answers().await {
            let admin = Admin::new(address, &self.server.key()?);
            return self.online(&admin).await;
        }
        let data = self.server.data()?;
        let offline = Offline::open(&data)
            .await
            .with_context(|| format!("no server runs, and {} cannot be used", data.display()))?;
        let done = self.offline(&offline).await;
        offline.close().await;
        done
    }

    async fn online(&self, admin: &Admin) -> anyhow::Result<Value> {
        Ok(match &self.action {
            Action::Create { name, role, tenant, agent, human } => {
                let new = NewKey {
                    human: human.clone(),
                    name: name.clone(),
                    tenant: tenant.clone(),
                    role: role.clone(),
                    agent: agent.clone(),
                };
                serde_json::to_value(admin.create(new).await?)?
            }
            Action::List => json!({ "keys": admin.list().await? }),
            Action::Revoke { id } => {
                admin.revoke(id).await?;
                json!({ "revoked": id })
            }
        })
    }

    async fn offline(&self, offline: &Offline) -> anyhow::Result<Value> {
        Ok(match &self.action {
            Action::Create { name, role, tenant, agent, human } => {
                let actor = match (agent, human) {
                    (Some(agent), _) => Some(("agent", agent.as_str())),
                    (None, Some(human)) => Some(("human", human.as_str())),
                    (None, None) => None,
                };
                let created = offline.create(name, role, tenant.as_deref(), actor);
                serde_json::to_value(created.await?)?
            }
            Action::List => json!({ "keys": offline.list().await? }),
            Action::Revoke { id } => {
                offline.revoke(id).await?;
                json!({ "revoked": id })
            }
        })
    }

    fn show(&self, done: &Value) -> anyhow::Result<()> {
        if self.json {
            return Ok(say(&done.to_string())?);
        }
        match &self.action {
            Action::Create { .. } => {
                complain(&format!(
                    "created {}; this is the only time its secret is shown:",
                    text(&done["key"]["id"])
                ));
                say(text(&done["secret"]))?;
            }
            Action::List => {
                say(&row(["ID", "ENDS IN", "ROLE", "TENANT", "STATE", "ACTOR", "NAME"]))?;
                for key in done["keys"].as_array().into_iter().flatten() {
                    let actor = &key["actor"];
                    let actor = format!("{}:{}", text(&actor["type"]), text(&actor["id"]));
                    let state = if key["revoked_at"].is_null() { "valid" } else { "revoked" };
                    say(&row([
                        text(&key["id"]),
                        text(&key["last_four"]),
                        text(&key["role"]),
                        text(&key["tenant"]),
                        state,
                        &actor,
                        text(&key["name"]),
                    ]))?;
                }
            }
            Action::Revoke { id } => say(&format!("revoked {id}"))?,
        }
        Ok(())
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn row(cells: [&str; 7]) -> String {
    let [id, ends_in, role, tenant, state, actor, name] = cells;
    format!("{id:<22}{ends_in:<9}{role:<8}{tenant:<14}{state:<9}{actor:<18} {name}")
}
