//! Which server to talk to, and with which key.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::Args;
use client::address::Address;
use daemon::keys;

/// Where a server listens unless told otherwise.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:7700";

/// Which server, and who asks.
#[derive(Args, Debug)]
pub(crate) struct Server {
    /// The server's URL; without one, the server on this machine's port 7700
    #[arg(long, env = "RINGFENCE_URL", value_name = "URL", global = true)]
    url: Option<String>,
    /// The API key; better given in the environment, because others can see arguments. Without
    /// one, the server's own admin key, if this user can read it
    #[arg(
        long,
        env = "RINGFENCE_API_KEY",
        value_name = "KEY",
        hide_env_values = true,
        global = true
    )]
    key: Option<String>,
    /// The authorities that say who the server is, in PEM; without it, those of this machine
    #[arg(long, env = "RINGFENCE_CA_CERT", value_name = "FILE", global = true)]
    ca_cert: Option<PathBuf>,
    /// The server's data directory, where its admin key is
    #[arg(long, env = "RINGFENCE_DATA", value_name = "DIR", global = true)]
    data: Option<PathBuf>,
}

impl Server {
    /// Tells whether a server was named; if not, there need be none.
    pub(crate) fn is_named(&self) -> bool {
        self.url.is_some()
    }

    pub(crate) fn url(&self) -> &str {
        self.url.as_deref().unwrap_or(DEFAULT_URL)
    }

    pub(crate) fn address(&self) -> anyhow::Result<Address> {
        let address = Address::parse(self.url())?;
        Ok(match &self.ca_cert {
            Some(authorities) => address.believing(authorities),
            None => address,
        })
    }

    pub(crate) fn data(&self) -> anyhow::Result<PathBuf> {
        self.data.clone().map_or_else(default_data, Ok)
    }

    /// Refuses to send a server's key to another server.
    fn check_origin(&self, key: &Path, origins: &[String]) -> anyhow::Result<()> {
        let address = self.address()?;
        let is_of = |origin: &String| {
            Address::parse(origin).is_ok_and(|origin| origin.is_same_server(&address))
        };
        // A server that has not started since it leaves its URLs is asked where it listens by default.
        if origins.iter().any(is_of) || (origins.is_empty() && !self.is_named()) {
            return Ok(());
        }
        let owner = match origins {
            [] => "the server that made it".to_owned(),
            origins => origins.join(" or "),
        };
        bail!(
            "the key in {} belongs to {owner} and is not sent to {}\n  set RINGFENCE_API_KEY to a \
             key of that server",
            key.display(),
            self.url()
        )
    }

    /// Returns the key that was given, or the one that the server left for its owner.
    pub(crate) fn key(&self) -> anyhow::Result<String> {
        if let Some(key) = &self.key {
            return Ok(key.clone());
        }
        let data = self.data()?;
        let path = keys::admin_key_file(&data);
        match keys::read_secret(&path)? {
            Some(secret) => {
                self.check_origin(&path, &keys::read_origins(&data)?)?;
                Ok(secret.reveal().to_owned())
            }
            None => bail!(
                "no API key: set RINGFENCE_API_KEY, or point --data at the server's directory \
                 ({} is not there)",
                path.display()
            ),
        }
    }
}

/// Returns where the server keeps its state: the system's place for root, else the user's.
pub(crate) fn default_data() -> anyhow::Result<PathBuf> {
    if daemon::run::is_root() {
        return Ok(PathBuf::from("/var/lib/ringfence"));
    }
    if let Some(directory) = env::var_os("XDG_DATA_HOME").filter(|value| !value.is_empty()) {
        return Ok(Path::new(&directory).join("ringfence"));
    }
    let home = env::var_os("HOME").filter(|value| !value.is_empty());
    let home = home.context("HOME is not set; say where to keep data with --data DIR")?;
    Ok(Path::new(&home).join(".local/share/ringfence"))
}
