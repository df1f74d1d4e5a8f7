//! Connections to registries: TCP that the connector opens, and TLS on it.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

use super::{
    Certificates, PullError, Settings,
    connector::{ConnectFailure, Connector, Hop, Target},
};

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) is_safe: bool,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// Returns host and port as a `Host` header has them.
    pub(super) fn authority(&self) -> String {
        let usual = if self.is_safe { 443 } else { 80 };
        if self.port == usual { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    pub(super) fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    fn unreachable(&self) -> impl FnOnce(std::io::Error) -> PullError {
        move |source| PullError::Unreachable { host: self.authority(), source }
    }
}

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection on which a request can be sent.
pub(super) struct Opened {
    pub(super) stream: Box<dyn Stream>,
    /// Whether the registry's credentials may be sent on it.
    pub(super) gets_credentials: bool,
}

fn not_connected(address: &Address, failure: ConnectFailure) -> PullError {
    let host = address.authority();
    match failure {
        ConnectFailure::NotAllowed => PullError::NotAllowed { host },
        ConnectFailure::ForeignTokenService => PullError::ForeignTokenService { host },
        ConnectFailure::Timeout => PullError::Timeout { host },
        ConnectFailure::Unreachable(why) => {
            PullError::Unreachable { host, source: std::io::Error::other(why) }
        }
    }
}

#[derive(Debug)]
pub(super) struct Transport {
    certificates: Certificates,
    connect_timeout: Duration,
    pub(super) silence_timeout: Duration,
    /// Made when a safe connection is first wanted.
    tls: OnceLock<Arc<ClientConfig>>,
}

impl Transport {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            certificates: settings.certificates.clone(),
            connect_timeout: settings.connect_timeout,
            silence_timeout: settings.silence_timeout,
            tls: OnceLock::new(),
        }
    }

    pub(super) async fn connect(
        &self,
        address: &Address,
        hop: Hop,
        connector: &Connector,
    ) -> Result<Opened, PullError> {
        let late = |_elapsed| PullError::Timeout { host: address.authority() };
        timeout(self.connect_timeout, self.open(address, hop, connector)).await.map_err(late)?
    }

    async fn open(
        &self,
        address: &Address,
        hop: Hop,
        connector: &Connector,
    ) -> Result<Opened, PullError> {
        let target = Target { hop, host: address.bare_host().to_owned(), port: address.port };
        let connected = connector(target).await;
        let connected = connected.map_err(|failure| not_connected(address, failure))?;
        let gets_credentials = connected.gets_credentials;
        let stream: Box<dyn Stream> = if address.is_safe {
            let name = ServerName::try_from(address.bare_host().to_owned());
            let name = name.map_err(|_error| PullError::Address { host: address.authority() })?;
            let connector = TlsConnector::from(self.tls()?);
            let stream = connector.connect(name, connected.stream).await;
            Box::new(stream.map_err(address.unreachable())?)
        } else {
            Box::new(connected.stream)
        };
        Ok(Opened { stream, gets_credentials })
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, PullError> {
        if let Some(config) = self.tls.get() {
            return Ok(config.clone());
        }
        let unreadable = || PullError::Certificates(self.certificates.to_string());
        let mut roots = RootCertStore::empty();
        // Bundles have old certificates that no longer count; the others do.
        match &self.certificates {
            Certificates::File(path) => {
                let found = CertificateDer::pem_file_iter(path).map_err(|_error| unreadable())?;
                roots.add_parsable_certificates(found.filter_map(Result::ok));
            }
            Certificates::Text(text) => {
                let found = CertificateDer::pem_slice_iter(text);
                roots.add_parsable_certificates(found.filter_map(Result::ok));
            }
        }
        if roots.is_empty() {
            return Err(unreadable());
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|_error| unreadable())?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        Ok(self.tls.get_or_init(|| Arc::new(config)).clone())
    }
}
