//! Commands in a sandbox, attached: input goes to the command and its output comes back while it runs. The command
//! does not depend on the connection: one that breaks is opened again, and output goes on at the next byte.

use std::{collections::BTreeMap, fmt};

use api::exec::{Command, Encoding, OnFull, Start, Stdin};
use http_body_util::BodyExt as _;
use hyper::{Method, Request, StatusCode};

pub use crate::attachment::{Ended, Input, Local, Output, Size, Stream};
use crate::{
    ClientError,
    address::Address,
    admin::{Admin, NewToken},
    attachment::{Connection, Over},
    away::{Away, Gone},
    exchange::exchange,
};

/// A command to run.
#[derive(Clone, Default)]
pub struct NewCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it runs; without one, in `/workspace`.
    pub cwd: Option<String>,
    /// Variables over those of the sandbox.
    pub env: BTreeMap<String, String>,
    /// Whether it has a stdin; without one, it reads the end of file at once.
    pub has_stdin: bool,
    /// The size of its terminal, if it gets one. Everything is stdout then.
    pub terminal: Option<Size>,
}

impl fmt::Debug for NewCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewCommand").finish_non_exhaustive()
    }
}

impl NewCommand {
    fn into_start(self) -> Start {
        let tty = self.terminal.map(|Size { rows, columns }| api::exec::Size {
            rows: rows.into(),
            cols: columns.into(),
        });
        Start {
            command: Some(Command::Arguments(self.command)),
            cwd: self.cwd,
            env: self.env,
            stdin: Some(if self.has_stdin { Stdin::Open } else { Stdin::Closed }),
            tty,
            encoding: Some(Encoding::Binary),
            ..Start::default()
        }
    }
}

/// What happens to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update<'a> {
    /// The server has accepted it under this id.
    Started(&'a str),
    Output(Output<'a>),
    /// The connection broke and is opened again. Input that was just sent may not have arrived.
    Broken,
}

/// The commands of one sandbox.
#[derive(Debug)]
pub struct Commands {
    address: Address,
    admin: Admin,
    sandbox: String,
}

/// How far a command was followed.
#[derive(Debug)]
struct Progress {
    exec: String,
    stdout: u64,
    stderr: u64,
}

impl Progress {
    fn of(exec: &str) -> Self {
        Self { exec: exec.to_owned(), stdout: 0, stderr: 0 }
    }

    fn note(&mut self, output: &Output<'_>) {
        match output.stream {
            Stream::Stdout => self.stdout = output.end,
            Stream::Stderr => self.stderr = output.end,
        }
    }

    fn start(&self, on_full: OnFull) -> Start {
        Start {
            exec_id: Some(self.exec.clone()),
            stdout_offset: self.stdout,
            stderr_offset: self.stderr,
            encoding: Some(Encoding::Binary),
            on_full: Some(on_full),
            ..Start::default()
        }
    }
}

impl Commands {
    /// Gets tokens for the sandbox with this key, as many as it needs.
    pub fn new(address: Address, key: &str, sandbox: &str) -> Self {
        let admin = Admin::new(address.clone(), key);
        Self { address, admin, sandbox: sandbox.to_owned() }
    }

    /// Runs a command until it ends, over broken connections. `None` if `local` was closed before.
    pub async fn run(
        &self,
        new: NewCommand,
        local: &mut Local,
        mut show: impl FnMut(Update<'_>),
    ) -> Result<Option<Ended>, ClientError> {
        let mut connection = self.open(&new.into_start()).await?;
        let mut progress = Progress::of(connection.exec());
        show(Update::Started(&progress.exec));
        match self.stay(&mut connection, &mut progress, local, &mut show).await {
            Err(error) if error.is_broken() => {}
            over => return over,
        }
        drop(connection);
        show(Update::Broken);
        self.follow_on(progress, OnFull::Wait, local, show).await
    }

    /// Follows a command that is there already, from its first byte, until it ends.
    pub async fn follow(
        &self,
        exec: &str,
        local: &mut Local,
        show: impl FnMut(Update<'_>),
    ) -> Result<Option<Ended>, ClientError> {
        self.follow_on(Progress::of(exec), OnFull::Drop, local, show).await
    }

    async fn follow_on(
        &self,
        mut progress: Progress,
        on_full: OnFull,
        local: &mut Local,
        mut show: impl FnMut(Update<'_>),
    ) -> Result<Option<Ended>, ClientError> {
        let mut away = Away::default();
        loop {
            let broken = match self.open(&progress.start(on_full)).await {
                Ok(mut connection) => {
                    away = Away::default();
                    match self.stay(&mut connection, &mut progress, local, &mut show).await {
                        Err(error) if error.is_broken() => error,
                        over => return over,
                    }
                }
                Err(error) => error.into_broken(),
            };
            if away.bear(broken)? == Gone::Just {
                show(Update::Broken);
            }
            away.pause().await;
        }
    }

    /// Returns a stream of a command as far as it has come: how many bytes are no longer kept, then the rest,
    /// piece by piece.
    pub async fn read(
        &self,
        exec: &str,
        stream: Stream,
        mut show: impl FnMut(Output<'_>),
    ) -> Result<(), ClientError> {
        let minted = self.mint().await?;
        let path = format!("/dp/{}/v1/exec/{exec}/{}", minted.sandbox_id, stream.name());
        let request = Request::builder().method(Method::GET).uri(path);
        exchange(&self.address, &minted.token, request, Vec::new(), async |response| {
            let status = response.status();
            let start = response.headers().get("x-output-start").and_then(|it| it.to_str().ok());
            let start: u64 = start.and_then(|start| start.parse().ok()).unwrap_or_default();
            let mut body = response.into_body();
            if status != StatusCode::OK {
                let body = body.collect().await?.to_bytes();
                return Err(ClientError::refused(status.as_u16(), &body));
            }
            let mut end = start;
            show(Output { stream, lost: start, bytes: &[], end });
            while let Some(frame) = body.frame().await {
                if let Ok(bytes) = frame?.into_data() {
                    end = end.saturating_add(bytes.len() as u64);
                    show(Output { stream, lost: 0, bytes: &bytes, end });
                }
            }
            Ok(())
        })
        .await
    }

    /// Opens a connection to the sandbox's commands.
    async fn open(&self, start: &Start) -> Result<Connection, ClientError> {
        let minted = self.mint().await?;
        let path = format!("/dp/{}/v1/exec/ws", minted.sandbox_id);
        Connection::open(&self.address, &path, &minted.token, start).await
    }

    /// Shows what comes on one connection until the command ends.
    async fn stay(
        &self,
        connection: &mut Connection,
        progress: &mut Progress,
        local: &mut Local,
        show: &mut impl FnMut(Update<'_>),
    ) -> Result<Option<Ended>, ClientError> {
        let fresh = async || Ok(self.mint().await?.token);
        let mut output = |output: Output<'_>| {
            progress.note(&output);
            show(Update::Output(output));
        };
        Ok(
            match connection
                .run(local, fresh, &mut output)
                .await
                .map_err(ClientError::into_broken)?
            {
                Over::Ended(ended) => Some(ended),
                Over::Left => None,
            },
        )
    }

    async fn mint(&self) -> Result<api::tokens::MintedToken, ClientError> {
        let new = NewToken {
            sandbox: self.sandbox.clone(),
            scope: Some("process".to_owned()),
            ttl: None,
            paths: Vec::new(),
            agent: None,
            is_opaque: false,
        };
        self.admin.mint(new).await
    }
}
