//! TLS on the main port: one certificate, which can be replaced while connections are open.
//!
//! The files are looked at again on SIGHUP and when something changes in their folders. What is not good
//! is not taken, and the last good one goes on. A connection keeps what it was opened with.

mod watch;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::{
    net::TcpStream,
    select,
    signal::unix::{SignalKind, signal},
    time::timeout,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::{CryptoProvider, aws_lc_rs},
        pki_types::{
            CertificateDer, PrivateKeyDer,
            pem::{self, PemObject as _},
        },
        server::{ClientHello, NoServerSessionStorage, ResolvesServerCert},
        sign::CertifiedKey,
    },
    server::TlsStream,
};
use watch::Watch;

/// Certificate and key are written one after the other: so long nothing may happen before they are
/// looked at.
const QUIET: Duration = Duration::from_millis(200);

/// In a folder in which something always happens, this is long enough.
const LONGEST: Duration = Duration::from_secs(2);

/// What clients may choose from, the first rather than the second.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Why there is no certificate, or no new one.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read the certificate in {path}")]
    Certificate { path: PathBuf, source: pem::Error },
    #[error("there is no certificate in {path}")]
    NoCertificate { path: PathBuf },
    #[error("cannot read the key in {path}")]
    Key { path: PathBuf, source: pem::Error },
    #[error("the key in {key} cannot be used with the certificate in {certificate}")]
    Pair { certificate: PathBuf, key: PathBuf, source: rustls::Error },
    #[error("cannot set up TLS")]
    Setup(#[source] rustls::Error),
}

/// What the server shows who it is with. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Tls {
    files: Arc<Files>,
    shown: Arc<Shown>,
    acceptor: TlsAcceptor,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("certificate", &self.files.certificate).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// The certificate of connections from now on.
#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// What came of looking at the files again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    Replaced,
    TheSame,
}

impl Tls {
    /// Reads the certificate, with those that lead to it, and its key.
    pub fn open(certificate: PathBuf, key: PathBuf) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let files = Arc::new(Files { certificate, key });
        let first = files.read(&provider)?;
        let shown = Arc::new(Shown(RwLock::new(Arc::new(first))));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        // Whoever comes again is shown the certificate again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { files, shown, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Looks at the files again. Connections that are open keep what they have.
    pub fn reload(&self) -> Result<Looked, TlsError> {
        let next = self.files.read(self.acceptor.config().crypto_provider())?;
        let mut shown = self.shown.0.write().unwrap_or_else(PoisonError::into_inner);
        if shown.cert == next.cert {
            return Ok(Looked::TheSame);
        }
        *shown = Arc::new(next);
        Ok(Looked::Replaced)
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }

    /// Looks at the files whenever they may have changed.
    pub(crate) async fn follow(self) {
        let files = [&self.files.certificate, &self.files.key];
        let folders: Vec<&Path> = files.into_iter().filter_map(|path| path.parent()).collect();
        let watch = Watch::on(&folders);
        if let Err(error) = &watch {
            tracing::warn!(%error, "a new certificate is not seen; send SIGHUP after replacing it");
        }
        let mut hangup = match signal(SignalKind::hangup()) {
            Ok(hangup) => Some(hangup),
            Err(error) => {
                tracing::warn!(%error, "SIGHUP is not heard");
                None
            }
        };
        loop {
            select! {
                () = asked(&mut hangup) => {}
                () = changed(watch.as_ref().ok()) => {}
            }
            self.look().await;
        }
    }

    async fn look(&self) {
        let this = self.clone();
        let looked = tokio::task::spawn_blocking(move || this.reload()).await;
        let certificate = self.files.certificate.display();
        match looked {
            Ok(Ok(Looked::Replaced)) => {
                tracing::info!(%certificate, "the certificate was replaced");
            }
            Ok(Ok(Looked::TheSame)) => tracing::debug!(%certificate, "the certificate is the same"),
            Ok(Err(error)) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "the certificate was not replaced; the old one goes on");
            }
            // The runtime ends, and this with it.
            Err(_) => {}
        }
    }
}

impl Files {
    fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let (path, key_path) = (&self.certificate, &self.key);
        let unreadable = |source| TlsError::Certificate { path: path.clone(), source };
        let chain = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
        let chain = chain.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
        if chain.is_empty() {
            return Err(TlsError::NoCertificate { path: path.clone() });
        }
        let key = PrivateKeyDer::from_pem_file(key_path)
            .map_err(|source| TlsError::Key { path: key_path.clone(), source })?;
        CertifiedKey::from_der(chain, key, provider).map_err(|source| TlsError::Pair {
            certificate: path.clone(),
            key: key_path.clone(),
            source,
        })
    }
}

async fn asked(hangup: &mut Option<tokio::signal::unix::Signal>) {
    match hangup {
        Some(hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}

/// Waits until something has changed, and nothing more does.
async fn changed(watch: Option<&Watch>) {
    let Some(watch) = watch else { return std::future::pending().await };
    watch.changed().await;
    let settled = async { while timeout(QUIET, watch.changed()).await.is_ok() {} };
    // What is not whole by then is looked at again after the next change.
    let _ = timeout(LONGEST, settled).await;
}
