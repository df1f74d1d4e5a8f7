//! Terminals in a sandbox. A shell goes on without its clients, so a connection that breaks is made
//! anew, and the server shows the screen as it is then.

#[cfg(test)]
mod tests;

use std::time::Duration;

use api::{exec::Encoding, shell::Start};

pub use crate::attachment::{Ended, Input, Local, Size};
use crate::{
    ClientError,
    address::Address,
    admin::{Admin, NewToken},
    attachment::{Connection, Output, Over},
    away::{Away, Gone},
};

/// Whoever sits at a terminal says when to stop waiting. This is for one that nobody sits at.
const PATIENCE: Duration = Duration::from_mins(10);

/// Which shell, and what for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The sandbox's id or alias.
    pub sandbox: String,
    /// The name of the shell. One that does not run is started, unless it is to be watched.
    pub name: String,
    pub role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Types in it.
    Write,
    /// Watches it. Not a byte goes to it.
    Observe,
}

impl Role {
    fn scope(self) -> &'static str {
        match self {
            Self::Write => "shell",
            Self::Observe => "shell:ro",
        }
    }
}

/// What happens to a shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update<'a> {
    /// Bytes for the terminal: what the screen shows, and what is written to it from there on.
    Output(&'a [u8]),
    /// The connection broke. It is made anew, and the screen is shown again.
    Broken,
}

/// How somebody's time in a shell ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Ended(Ended),
    /// It ended while there was no connection; its record tells how.
    EndedUnseen {
        exec: String,
    },
    /// There was no more to be typed. The shell goes on.
    Left,
}

/// A terminal in a sandbox.
#[derive(Debug)]
pub struct Shell {
    address: Address,
    admin: Admin,
    wanted: Wanted,
    /// The one that was joined. No other one is joined instead of it after a broken connection.
    exec: Option<String>,
}

impl Shell {
    /// Takes tokens with this key, as many as it needs.
    pub fn new(address: Address, key: &str, wanted: Wanted) -> Self {
        let admin = Admin::new(address.clone(), key);
        Self { address, admin, wanted, exec: None }
    }

    /// Joins the shell and stays in it over broken connections, until it ends or is left.
    pub async fn run(
        mut self,
        mut local: Local,
        mut show: impl FnMut(Update<'_>),
    ) -> Result<End, ClientError> {
        let mut away = Away::bearable_for(PATIENCE);
        loop {
            let error = match self.stay(&mut local, &mut away, &mut show).await {
                Ok(end) => return Ok(end),
                // One that was never joined is not waited for.
                Err(error) if self.exec.is_none() => return Err(error),
                Err(error) => error.into_broken(),
            };
            if away.bear(error)? == Gone::Just {
                show(Update::Broken);
            }
            away.pause().await;
        }
    }

    /// Does so on one connection.
    async fn stay(
        &mut self,
        local: &mut Local,
        away: &mut Away,
        show: &mut impl FnMut(Update<'_>),
    ) -> Result<End, ClientError> {
        let minted = mint(&self.admin, &self.wanted).await?;
        let path = format!("/dp/{}/v1/shell/ws", minted.sandbox_id);
        let start = self.start(*local.size.borrow_and_update());
        let joined = Connection::open(&self.address, &path, &minted.token, start).await;
        let mut connection = match (joined, &self.exec) {
            (Ok(connection), _) => connection,
            (Err(error), Some(exec)) if error.code() == Some("NOT_FOUND") => {
                return Ok(End::EndedUnseen { exec: exec.clone() });
            }
            (Err(error), _) => return Err(error),
        };
        self.exec = Some(connection.exec().to_owned());
        *away = Away::bearable_for(PATIENCE);
        let fresh = async || Ok(mint(&self.admin, &self.wanted).await?.token);
        let mut output = |output: Output<'_>| show(Update::Output(output.bytes));
        Ok(match connection.run(local, fresh, &mut output).await? {
            Over::Ended(ended) => End::Ended(ended),
            Over::Left => End::Left,
        })
    }

    fn start(&self, size: Size) -> Start {
        Start {
            name: self.exec.is_none().then(|| self.wanted.name.clone()),
            exec_id: self.exec.clone(),
            rows: Some(size.rows.into()),
            cols: Some(size.columns.into()),
            encoding: Some(Encoding::Binary),
            ..Start::default()
        }
    }
}

async fn mint(admin: &Admin, wanted: &Wanted) -> Result<api::tokens::MintedToken, ClientError> {
    let new = NewToken {
        sandbox: wanted.sandbox.clone(),
        scope: Some(wanted.role.scope().to_owned()),
        ttl: None,
        paths: Vec::new(),
        agent: None,
        is_opaque: false,
    };
    admin.mint(new).await
}
