//! `ringfence create`.

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use client::sandboxes::{Mount, NewSandbox, Sandboxes, record::State};
use daemon::grpc::socket::{BELOW_RUNTIME_DIRECTORY, OF_THE_SYSTEM};

use crate::{
    arguments::{read_copy, read_idle, read_label, read_mount, read_variable},
    output::say,
    sandboxes::{block_on, connect, explain, wait},
    server::Server,
    shown::sandbox_json,
};

/// Creates a sandbox that stays until it is removed, and prints its name when it is ready.
///
/// Its files stay when it is stopped, and it goes on when the server is restarted.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence create --image host --name demo
  ringfence create --image host --label team=a --memory 512m --cpus 0.5 --idle 1h
  ringfence create --image host --mount .:/workspace/project:rw --tool git
  NAME=$(ringfence create --image host) && ringfence exec $NAME -- uname -a
  ringfence create --image docker.io/library/python:3.12 --name py
  ringfence create --image host --name web -- python3 -m http.server

JSON: one object {sandbox_id, state, image, labels, created_at, state_changed_at,
last_event_sequence, error_code, error_message}.

Exit codes: 0 when it is ready, or accepted with --no-wait; 130 and 143 if the wait was
interrupted (the sandbox goes on); 125 if it could not be made.")]
pub(crate) struct Create {
    /// What it is made of: host is this machine's own programs, read-only; else the name of an
    /// image, such as docker.io/library/python:3.12, which is pulled if it is not here
    #[arg(long)]
    image: String,
    /// Its name, 4 to 200 letters, digits, - and _; can be used again after `rm`
    #[arg(long)]
    name: Option<String>,
    /// A label, to choose it by; may be given many times
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = read_label)]
    label: Vec<(String, String)>,
    /// An environment variable for what runs in it; may be given many times
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = read_variable)]
    env: Vec<(String, String)>,
    /// How much memory it may use, such as 512m or 2g
    #[arg(short, long, value_name = "SIZE")]
    memory: Option<String>,
    /// How many cores it may use, such as 2 or 0.5
    #[arg(long, value_name = "CORES")]
    cpus: Option<String>,
    /// How much it may write, such as 512m or 2g [default: the server's]
    #[arg(long, value_name = "SIZE")]
    disk: Option<String>,
    /// A file or folder of the server's machine that shows in it, with your rights; :rw to write to
    /// it. May be given many times
    #[arg(long, value_name = "SOURCE:TARGET[:rw]", value_parser = read_mount)]
    mount: Vec<Mount>,
    /// A file or folder of the server's machine that is copied into it; may be given many times
    #[arg(long, value_name = "SOURCE:TARGET", value_parser = read_copy)]
    copy: Vec<(String, String)>,
    /// A builtin tool, with its files from your home: claude, codex, git, uv, npm, apt, opencode
    #[arg(long, value_name = "NAME")]
    tool: Vec<String>,
    /// The server's Unix socket, by which it knows who you are. Used for --mount, --copy and --tool if
    /// it is where the server puts it
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Stop it when nobody has used it for so long; 0 is never [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = read_idle)]
    idle: Option<Duration>,
    /// Do not wait until it is ready
    #[arg(long)]
    no_wait: bool,
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// The main process; without one, a process that waits
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    #[command(flatten)]
    server: Server,
}

impl Create {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        block_on(self.act())
    }

    /// Paths are opened with the caller's rights only by the socket. A server that was named by its
    /// URL may be another.
    fn socket(&self) -> Option<PathBuf> {
        let has_paths = !(self.mount.is_empty() && self.copy.is_empty() && self.tool.is_empty());
        if self.socket.is_some() || !has_paths || self.server.is_named() {
            return self.socket.clone();
        }
        let runtime = env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
        let of_user = runtime.map(|runtime| Path::new(&runtime).join(BELOW_RUNTIME_DIRECTORY));
        let places = of_user.into_iter().chain([PathBuf::from(OF_THE_SYSTEM)]);
        places.into_iter().find(|socket| socket.exists())
    }

    async fn act(self) -> anyhow::Result<ExitCode> {
        let sandboxes = match self.socket() {
            Some(socket) => Sandboxes::connect_to_socket(&socket).await?,
            None => connect(&self.server).await?,
        };
        let name = self.name.clone().unwrap_or_default();
        let new = NewSandbox {
            name: self.name,
            image: self.image,
            labels: self.label.into_iter().collect(),
            env: self.env.into_iter().collect(),
            memory: self.memory,
            cpus: self.cpus,
            disk: self.disk,
            mounts: self.mount,
            copies: self.copy,
            tools: self.tool,
            idle: self.idle,
            command: self.command,
        };
        let created = sandboxes.create(new).await.map_err(|error| explain(error, &name))?;
        let sandbox =
            if self.no_wait { created } else { wait(&sandboxes, created, State::Ready).await? };
        if self.json {
            say(&sandbox_json(&sandbox).to_string())?;
        } else {
            say(&sandbox.name)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
