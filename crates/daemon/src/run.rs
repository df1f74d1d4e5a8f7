//! The whole server: data directory, store, keys, engine, surfaces; and its end.

use std::{
    future::Future,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::{fd::OwnedFd, unix::fs::DirBuilderExt as _},
    path::{Path, PathBuf},
};

use engine::{
    Engine, EngineError, PoolIdle, PoolMemory,
    languages::Languages,
    sandboxes::{self, SandboxError, Sandboxes},
    sessions::Sessions,
};
use store::{
    Store, StoreError,
    lock::{DirectoryLock, LockError},
};
use tokio::{net::TcpListener, select};

use crate::{
    audit::Sealer,
    auth::Keyring,
    config::{Config, ConfigError},
    grpc::{
        Lifecycle, accounts,
        door::{Door, Peers},
        socket::Socket,
    },
    http,
    key_file::KeyFileError,
    keys::{self, KeyError},
    node::Node,
    serve::{Settings, serve},
    tls::{Tls, TlsError},
    tokens::{self, Tokens},
};

/// What whoever started the server wants to know once it serves.
#[derive(Clone, Debug)]
pub struct Ready {
    pub address: SocketAddr,
    /// Where clients find it.
    pub url: String,
    /// Where the first key's secret is.
    pub admin_key_file: PathBuf,
    /// Whether that key was made just now.
    pub is_first_start: bool,
    /// What a sandbox is made of for which nobody names an image.
    pub sessions_image: Option<String>,
    /// What slots are made of here, and which languages there are, for those who look at it.
    pub machine: serde_json::Value,
}

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot make the data directory {path}")]
    Data { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("cannot serve with TLS")]
    Tls(#[from] TlsError),
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot use the agbox socket")]
    Socket(#[source] io::Error),
    #[error("cannot say that the server is ready")]
    Announce(#[source] io::Error),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("cannot start the engine")]
    Engine(#[from] EngineError),
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    #[error(transparent)]
    Tokens(#[from] tokens::OpenError),
    #[error("cannot take over the sandboxes of this node")]
    Sandboxes(#[from] SandboxError),
    #[error("the spawner is gone")]
    SpawnerGone,
}

/// What a server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Keeps what it is told, and has sandboxes.
    Lasting,
    /// Serves one client and keeps nothing.
    Private,
    /// The same, and says also what would hold the files of sandboxes.
    Examined,
}

/// The Unix socket of the lifecycle protocol, as whoever started the server could open it.
#[derive(Debug)]
pub enum Agbox {
    /// Opened by this user, who started the server.
    Open { socket: Socket, server: u32 },
    /// There is none, for this reason.
    Missing { reason: String },
    /// Nobody wants one.
    Unwanted,
}

/// Returns the URLs at which this server is reached.
fn origins(settings: &Settings, address: SocketAddr) -> Vec<String> {
    let mut origins: Vec<String> = settings.public_url.iter().cloned().collect();
    let port = address.port();
    let addresses = match address.ip() {
        ip if ip.is_unspecified() => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        ip => vec![ip],
    };
    if addresses.iter().any(IpAddr::is_loopback) {
        origins.push(format!("{}://localhost:{port}", settings.scheme()));
    }
    origins.extend(addresses.iter().map(|ip| settings.url_of(SocketAddr::new(*ip, port))));
    origins
}

/// Serves until `shutdown` is there. Calls `announce` when everything is open that requests need. `spawner` is
/// the socket to the process that makes slots, `agbox` what came of the Unix socket.
pub async fn run(
    mut config: Config,
    kind: Kind,
    spawner: OwnedFd,
    agbox: Agbox,
    announce: impl FnOnce(&Ready) -> io::Result<()>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let languages = config.languages()?;
    make_data_directory(&config.data)?;
    let _lock = DirectoryLock::take(&config.data)?;
    if kind == Kind::Lasting {
        config.settle()?;
    }
    let store = Store::open(&keys::store_file(&config.data))?;
    let keyring = Keyring::open_with(store.clone(), config.policy()?).await?;
    let made = keys::ensure_admin(&keyring, &config.data).await?;
    let cannot_listen = |source| RunError::Listen { address: config.listen, source };
    let tls = match (&config.tls.cert, &config.tls.key) {
        (Some(cert), Some(key)) => Some(Tls::open(cert.clone(), key.clone())?),
        (_, _) => None,
    };
    let settings = Settings { tls, ..config.settings() };
    let listener = TcpListener::bind(config.listen).await.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    keys::write_origins(&config.data, &origins(&settings, address))?;
    let engine = start_engine(&config, languages, spawner).await?;
    let sandboxes = match kind {
        Kind::Lasting => Some(open_sandboxes(&config, &engine, &store).await?),
        Kind::Private | Kind::Examined => None,
    };
    let ready = Ready {
        address,
        url: match &config.public_url {
            Some(url) if address.ip().is_unspecified() => url.clone(),
            Some(_) | None => settings.url_of(address),
        },
        admin_key_file: keys::admin_key_file(&config.data),
        is_first_start: made.is_some(),
        sessions_image: config.sessions.image.clone().filter(|image| !image.is_empty()),
        machine: describe(&config, &engine, kind).await?,
    };
    let socket = open_door(agbox, &config)?;
    let tokens = match &sandboxes {
        Some(_) => {
            let opaque = config.tokens.opaque_tenants.clone();
            Some(Tokens::open(&config.data, store.clone(), opaque).await?)
        }
        None => None,
    };
    let sessions = match &sandboxes {
        Some(sandboxes) => {
            Some(Sessions::open(sandboxes.clone(), config.sessions.settings()).await?)
        }
        None => None,
    };
    let sealer = match kind {
        Kind::Lasting => Some(Sealer::open(&config.data, config.audit.settings())?),
        Kind::Private | Kind::Examined => None,
    };
    tracing::info!(%address, data = %config.data.display(), "serving");
    announce(&ready).map_err(RunError::Announce)?;
    let lifecycle = Lifecycle { sandboxes: sandboxes.clone(), tokens, sessions, socket, sealer };
    let serving = serve(listener, engine.clone(), keyring, lifecycle, settings, shutdown);
    let end = select! {
        () = serving => Ok(()),
        () = engine.spawner_gone() => Err(RunError::SpawnerGone),
    };
    if let Some(sandboxes) = sandboxes {
        sandboxes.close();
    }
    engine.close();
    store.close().await;
    tracing::info!("ended");
    end
}

fn open_door(agbox: Agbox, config: &Config) -> Result<Option<Door>, RunError> {
    match agbox {
        Agbox::Open { socket, server } => {
            let group = config.agbox.group.as_deref().and_then(accounts::group_number);
            Door::new(socket, Peers::of(server, group)).map(Some).map_err(RunError::Socket)
        }
        Agbox::Missing { reason } => {
            tracing::warn!(reason, "there is no agbox socket");
            Ok(None)
        }
        Agbox::Unwanted => Ok(None),
    }
}

async fn start_engine(
    config: &Config,
    languages: Languages,
    spawner: OwnedFd,
) -> Result<Engine, EngineError> {
    let settings = engine::Settings {
        capacity: config.capacity(),
        limits: config.limit_policy(),
        languages,
        freshness: config.freshness,
        pool_memory: config.executions.pool_memory.map_or_else(PoolMemory::default, PoolMemory),
        pool_idle: PoolIdle(config.executions.pool_idle),
    };
    let engine = Engine::start(settings, spawner).await?;
    tracing::info!(posture = ?engine.posture(), "engine started");
    Ok(engine)
}

/// Takes over what an earlier server has left on this node.
async fn open_sandboxes(
    config: &Config,
    engine: &Engine,
    store: &Store,
) -> Result<Sandboxes, RunError> {
    let Node { id, key } = Node::open(&config.data)?;
    let machine = engine::machine_size::of(&config.data);
    let settings = sandboxes::Settings {
        node: id,
        folder: config.sandboxes_folder(),
        screens: config.data.join("screens"),
        key,
        defaults: config.sandboxes.defaults(machine),
        resources: config.sandboxes.resources(machine),
        prepared: config.sandboxes.prepared.into(),
        docker: config.docker_folder(),
    };
    let images = engine.open_images(config.image_settings());
    Ok(engine.open_sandboxes(store.clone(), images, settings).await?)
}

async fn describe(
    config: &Config,
    engine: &Engine,
    kind: Kind,
) -> Result<serde_json::Value, EngineError> {
    let languages: Vec<(&str, &str)> = engine
        .languages()
        .map(|row| (row.name.as_str(), row.command.first().map_or("", String::as_str)))
        .collect();
    let volumes = match kind {
        Kind::Examined => Some(engine.volumes().await?),
        Kind::Lasting | Kind::Private => None,
    };
    let sandboxes = config.sandboxes.resources(engine::machine_size::of(&config.data));
    let limits = http::limits::ranges(&config.limit_policy(), Some(&sandboxes));
    Ok(serde_json::json!({
        "posture": engine.posture(),
        "languages": languages,
        "volumes": volumes,
        "limits": limits,
    }))
}

/// Tells whether this process has the rights of root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn make_data_directory(path: &Path) -> Result<(), RunError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| RunError::Data { path: path.to_owned(), source })
}
