//! The whole server: data directory, store, keys, engine, surfaces; and its end.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use model::admission::{Load, Overloaded};
use store::{
    Store, StoreError,
    lock::{DirectoryLock, LockError},
};
use tokio::net::TcpListener;

use crate::{
    auth::Keyring,
    config::Config,
    executor::{Account, Executor},
    keys::{self, KeyError},
    serve::serve,
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
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot say that the server is ready")]
    Announce(#[source] io::Error),
}

/// Serves until `shutdown` is there. Calls `announce` when connections are accepted.
pub async fn run(
    config: Config,
    announce: impl FnOnce(&Ready) -> io::Result<()>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    make_data_directory(&config.data)?;
    let _lock = DirectoryLock::take(&config.data)?;
    let store = Store::open(&keys::store_file(&config.data))?;
    let keyring = Keyring::open(store.clone()).await?;
    let made = keys::ensure_admin(&keyring, &config.data).await?;
    let cannot_listen = |source| RunError::Listen { address: config.listen, source };
    let listener = TcpListener::bind(config.listen).await.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    let executor = start_engine(&config);
    let ready = Ready {
        address,
        url: format!("http://{address}"),
        admin_key_file: keys::admin_key_file(&config.data),
        is_first_start: made.is_some(),
    };
    tracing::info!(%address, data = %config.data.display(), "serving");
    announce(&ready).map_err(RunError::Announce)?;
    serve(listener, executor, keyring, config.settings(), shutdown).await;
    store.close().await;
    tracing::info!("ended");
    Ok(())
}

/// Until the engine can be started here, no language is there and nothing can be run.
fn start_engine(config: &Config) -> Executor {
    let none = || Account::new(|_| Err(Overloaded::Server(0)));
    Executor::new(config.limit_policy(), |_| None, Load::default, none)
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
