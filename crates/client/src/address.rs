//! Where a server is, and how it is reached.

use std::{
    fmt, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

use crate::ClientError;

/// The authorities that this machine believes, where Debian and many others keep them.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A server's place, taken from a URL. A key is sent in the clear to this machine only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
    /// Whom to believe who the server is; without one it is reached in the clear.
    authorities: Option<PathBuf>,
}

/// A connection, in the clear or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> Stream for T {}

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1, and a WebSocket from there on.
    Http,
    /// HTTP/2, as gRPC has it.
    Grpc,
}

impl Protocol {
    fn name(self) -> Vec<u8> {
        match self {
            Self::Http => b"http/1.1".to_vec(),
            Self::Grpc => b"h2".to_vec(),
        }
    }
}

impl Address {
    /// Reads `https://host:port`, or `http://host:port` of this machine; `wss://`, `ws://` and a path
    /// after it will do as well.
    pub fn parse(url: &str) -> Result<Self, ClientError> {
        let not_a_url = || ClientError::Url { url: url.to_owned() };
        let (scheme, rest) = url.split_once("://").ok_or_else(not_a_url)?;
        let (authorities, usual) = match scheme {
            "http" | "ws" => (None, 80),
            "https" | "wss" => (Some(PathBuf::from(AUTHORITIES)), 443),
            _ => return Err(not_a_url()),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_not_a_number| not_a_url())?)
            }
            Some(_) | None => (authority, usual),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if host.is_empty() || host.contains('@') {
            return Err(not_a_url());
        }
        let is_loopback = host.parse::<IpAddr>().map_or(host == "localhost", |ip| ip.is_loopback());
        if authorities.is_none() && !is_loopback {
            return Err(ClientError::Plaintext { host });
        }
        Ok(Self { host, port, authorities })
    }

    /// Believes the authorities in this file, in PEM, instead of the machine's.
    #[must_use]
    pub fn believing(self, authorities: &Path) -> Self {
        let authorities = self.authorities.map(|_usual| authorities.to_owned());
        Self { authorities, ..self }
    }

    /// Tells whether both are one server, as far as their URLs say.
    pub fn is_same_server(&self, other: &Self) -> bool {
        let is_tls = |address: &Self| address.authorities.is_some();
        (&self.host, self.port, is_tls(self)) == (&other.host, other.port, is_tls(other))
    }

    /// Returns host and port as they stand in a URL.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.authorities.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }

    /// Tells whether anything accepts connections there.
    pub async fn answers(&self) -> bool {
        self.dial().await.is_ok()
    }

    pub(crate) async fn connect(&self, protocol: Protocol) -> Result<Box<dyn Stream>, ClientError> {
        let stream = self.dial().await?;
        let Some(authorities) = &self.authorities else { return Ok(Box::new(stream)) };
        let config = trusting(authorities, protocol)?;
        let unproven = |source| ClientError::Unproven { url: self.url(), source };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|_not_a_name| ClientError::Url { url: self.url() })?;
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Box::new(connector.connect(name, stream).await.map_err(unproven)?))
    }

    async fn dial(&self) -> Result<TcpStream, ClientError> {
        let failed = |source| ClientError::Connect { url: self.url(), source };
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(stream)
    }
}

fn trusting(authorities: &Path, protocol: Protocol) -> Result<ClientConfig, ClientError> {
    let path = || authorities.display().to_string();
    let unreadable = |error: &dyn std::error::Error| ClientError::Authorities {
        path: path(),
        source: io::Error::other(error.to_string()),
    };
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(authorities).map_err(|error| unreadable(&error))?;
    for certificate in certificates {
        // Some of the machine's may be of a kind that is not understood; the others still count.
        let _ = roots.add(certificate.map_err(|error| unreadable(&error))?);
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unreadable(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.name()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let rows = [
            ("http://127.0.0.1:7700", "http://127.0.0.1:7700"),
            ("ws://localhost:1/ws", "http://localhost:1"),
            ("http://LOCALHOST", "http://localhost:80"),
            ("http://[::1]:7700/", "http://[::1]:7700"),
            ("http://[::1]", "http://[::1]:80"),
            ("https://sandboxes.example.com/x", "https://sandboxes.example.com:443"),
            ("wss://10.0.0.1:8443", "https://10.0.0.1:8443"),
        ];
        for (url, read) in rows {
            assert_eq!(Address::parse(url).unwrap().url(), read, "{url}");
        }
    }

    #[test]
    fn a_key_never_goes_out_in_the_clear() {
        for url in ["http://example.org:7700", "ws://10.0.0.1", "http://127.0.0.1.example.org"] {
            assert!(matches!(Address::parse(url), Err(ClientError::Plaintext { .. })), "{url}");
        }
        for url in ["", "127.0.0.1:7700", "ftp://localhost", "http://", "http://localhost:x"] {
            assert!(matches!(Address::parse(url), Err(ClientError::Url { .. })), "{url}");
        }
        assert!(matches!(Address::parse("http://a@localhost"), Err(ClientError::Url { .. })));
    }
}
