//! `ringfence serve`.

use std::{
    env,
    fs::Permissions,
    io::{self, Read as _},
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use daemon::{
    config::{self, Config, LogFormat, Sources},
    keys, logging,
    run::{self, Kind, Ready},
};
use isolate::lockdown;
use tempfile::TempDir;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};
use toml::{Table, Value};

use crate::{
    locks,
    output::say,
    private,
    processes::{self, Handed},
    server::{DEFAULT_URL, default_data},
};

/// Starts the server.
///
/// Settings come from, each winning over those before it: defaults, the configuration file, the
/// environment, these flags.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ringfence serve
  ringfence serve --listen 127.0.0.1:8000 --data /srv/ringfence
  ringfence serve --config ringfence.toml --print-config
  ringfence serve --listen 0.0.0.0:443 --public-url https://sandboxes.example.com \\
      --tls-cert fullchain.pem --tls-key privkey.pem
  RINGFENCE_LISTEN=127.0.0.1:8000 RINGFENCE_EXECUTIONS__RUNNING=8 ringfence serve")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Serve {
    /// Where to listen [default: 127.0.0.1:7700]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where to keep state [default: /var/lib/ringfence for root, else under the home directory]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The server's certificate in PEM, with those that lead to it; replaced while it serves when
    /// the file is
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen without TLS on another address than loopback: a proxy with TLS is all that can reach it
    #[arg(long)]
    behind_proxy: bool,
    /// The URL that others know this server by
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// A configuration file in TOML
    #[arg(long, env = "RINGFENCE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write log lines as JSON
    #[arg(long)]
    log_json: bool,
    /// Show the configuration that all sources add up to, and do not start
    #[arg(long)]
    print_config: bool,
    /// Start where the kernel cannot limit what code uses: memory is then watched, not held
    #[arg(long)]
    allow_soft_limits: bool,
    /// Let sandboxes write as much as there is, where no limit of disk space can be held
    #[arg(long)]
    allow_unlimited_disk: bool,
    /// What every execution gets at least: shared may be forked from a warm runtime, strict is
    /// executed anew [default: shared]
    #[arg(long, value_name = "FRESHNESS", value_parser = ["shared", "strict"])]
    freshness: Option<String>,
    /// Be the daemon: the spawner hands over these descriptors.
    #[arg(long, hide = true, value_name = "SOCKET,CONFIG")]
    as_daemon: Option<String>,
    /// Be the worker that unpacks images: the spawner has made this process for it.
    #[arg(long, hide = true)]
    as_image_worker: bool,
    /// Wait until nobody holds this lock, and end.
    #[arg(long, hide = true, value_name = "FILE")]
    wait_for_lock: Option<PathBuf>,
    /// Serve one `ringfence run`: keep nothing, tell where we are on standard output, and end
    /// with standard input.
    #[arg(long, hide = true, conflicts_with_all = ["listen", "data", "print_config"])]
    private: bool,
    /// Say also what would hold the files of sandboxes, for `ringfence doctor`.
    #[arg(long, hide = true, requires = "private")]
    examined: bool,
}

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if self.as_image_worker {
            images::worker::run()?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(lock) = &self.wait_for_lock {
            locks::block_until_free(lock)?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(numbers) = &self.as_daemon {
            return self.be_daemon(processes::take_over(numbers)?);
        }
        let scratch =
            self.private.then(private_folder).transpose().context("no temporary files")?;
        let mut config = self.load(scratch.as_ref())?;
        if self.print_config {
            config.recall()?;
            say(config.to_toml()?.trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
        processes::start(&config, self.kind())
    }

    fn be_daemon(&self, Handed { config, spawner, agbox }: Handed) -> anyhow::Result<ExitCode> {
        // Before there is a second thread: what a thread gives up, only those that it starts give up too.
        lockdown::of_daemon(&config.written_folders()).context("cannot lock the daemon down")?;
        logging::init(&config.log)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let (kind, is_private) = (self.kind(), self.private);
        let serving = async move {
            let announce = if is_private { announce_privately } else { announce };
            let stop = asked_to_stop(is_private)?;
            run::run(config, kind, spawner, agbox, announce, stop).await?;
            anyhow::Ok(ExitCode::SUCCESS)
        };
        // Among the threads that serve connections: who accepts one would else have to wake another.
        #[expect(clippy::disallowed_methods, reason = "it is the server, and not beside it")]
        runtime.block_on(async { tokio::spawn(serving).await? })
    }

    fn kind(&self) -> Kind {
        match (self.private, self.examined) {
            (false, _) => Kind::Lasting,
            (true, false) => Kind::Private,
            (true, true) => Kind::Examined,
        }
    }

    fn load(&self, scratch: Option<&TempDir>) -> anyhow::Result<Config> {
        let mut flags = Table::new();
        let mut set = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                flags.insert(name.to_owned(), Value::String(value));
            }
        };
        set("listen", self.listen.map(|address| address.to_string()));
        set("data", self.data.as_ref().map(|path| path.display().to_string()));
        set("freshness", self.freshness.clone());
        set("public_url", self.public_url.clone());
        if let Some(scratch) = scratch {
            set("listen", Some("127.0.0.1:0".to_owned()));
            set("data", Some(scratch.path().display().to_string()));
        }
        // What is allowed by a flag counts when the settings are looked at as a whole.
        if self.allow_soft_limits {
            flags.insert("allow_soft_limits".to_owned(), Value::Boolean(true));
        }
        if self.behind_proxy {
            flags.insert("behind_proxy".to_owned(), Value::Boolean(true));
        }
        if let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) {
            let path = |path: &Path| {
                Ok::<_, io::Error>(Value::String(std::path::absolute(path)?.display().to_string()))
            };
            let files = [("cert".to_owned(), path(cert)?), ("key".to_owned(), path(key)?)];
            flags.insert("tls".to_owned(), Value::Table(Table::from_iter(files)));
        }
        if self.allow_unlimited_disk {
            let allowed = ("allow_unlimited_disk".to_owned(), Value::Boolean(true));
            flags.insert("sandboxes".to_owned(), Value::Table(Table::from_iter([allowed])));
        }
        let data = if scratch.is_some() || self.data.is_some() {
            Table::new()
        } else {
            let data = Value::String(default_data()?.display().to_string());
            Table::from_iter([("data".to_owned(), data)])
        };
        let mut config = config::load(Sources {
            defaults: data,
            file: self.config.clone(),
            environment: env::vars().collect(),
            flags,
        })?;
        if self.private {
            // Whoever it is there for is gone when it is asked to stop.
            config.drain = Duration::ZERO;
            config.executions.disconnect_grace = Duration::ZERO;
        }
        if self.log_json {
            config.log.format = LogFormat::Json;
        }
        Ok(config)
    }
}

/// Makes a data directory for one `ringfence run`.
fn private_folder() -> io::Result<TempDir> {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir()
}

/// Says where the server is, and what to try first.
fn announce(ready: &Ready) -> io::Result<()> {
    let Ready { url, admin_key_file, .. } = ready;
    let key = admin_key_file.display();
    // What the client commands would find by themselves need not be said.
    let url_flag = if url == DEFAULT_URL { String::new() } else { format!(" --url {url}") };
    let data = admin_key_file.parent().filter(|data| !default_data().is_ok_and(|own| own == *data));
    let data_flag = data.map(|data| format!(" --data {}", data.display())).unwrap_or_default();
    let made = if ready.is_first_start { "Made an admin key" } else { "The admin key" };
    let image = ready.sessions_image.as_ref().map_or_else(
        || "Who names no image for a sandbox is refused (sessions.image)".to_owned(),
        |image| format!("Image of a sandbox for which nobody names one (sessions.image): {image}"),
    );
    say(&format!(
        "Ringfence serves on {url}
{made}: {key}
{image}

Try:
  ringfence run{url_flag}{data_flag} --language python -c 'print(\"hello\")'
  ringfence create{url_flag}{data_flag} --image host --name demo
  ringfence key{url_flag}{data_flag} create laptop
  curl {url}/readyz"
    ))
}

fn announce_privately(ready: &Ready) -> io::Result<()> {
    let secret = keys::read_secret(&ready.admin_key_file)
        .map_err(io::Error::other)?
        .ok_or(io::ErrorKind::NotFound)?;
    say(&private::ready_line(&ready.url, secret.reveal(), &ready.machine))
}

/// Waits for a signal to stop, or for the end of standard input if we are somebody's own.
fn asked_to_stop(is_private: bool) -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let owner_gone = is_private.then(end_of_stdin).transpose()?;
    Ok(async move {
        let owner_gone = async {
            match owner_gone {
                // An error means that the thread has ended, and with it the input.
                Some(gone) => drop(gone.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => {}
            // A private server shares its owner's terminal: Ctrl-C there is for the owner, who
            // cancels and still wants to hear how the execution ended.
            _ = interrupt.recv(), if !is_private => {}
            () = owner_gone => {}
        }
    })
}

/// Reads standard input away on a thread of its own.
fn end_of_stdin() -> io::Result<oneshot::Receiver<()>> {
    let (ended, gone) = oneshot::channel();
    thread::Builder::new().name("stdin".into()).spawn(move || {
        let mut rest = [0; 512];
        while matches!(io::stdin().read(&mut rest), Ok(1..)) {}
        // Nobody waits any more if the server ends by itself.
        let _ = ended.send(());
    })?;
    Ok(gone)
}
