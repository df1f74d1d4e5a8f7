//! Where a server is.

use std::net::IpAddr;

use tokio::net::TcpStream;

use crate::ClientError;

/// A server's place, taken from a URL. A key is sent in the clear to this machine only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// Reads `http://host:port`; `ws://` and a path after it will do as well.
    pub fn parse(url: &str) -> Result<Self, ClientError> {
        let not_a_url = || ClientError::Url { url: url.to_owned() };
        let (scheme, rest) = url.split_once("://").ok_or_else(not_a_url)?;
        match scheme {
            "http" | "ws" => {}
            "https" | "wss" => return Err(ClientError::Tls),
            _ => return Err(not_a_url()),
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_not_a_number| not_a_url())?)
            }
            Some(_) | None => (authority, 80),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if host.is_empty() || host.contains('@') {
            return Err(not_a_url());
        }
        let is_loopback = host.parse::<IpAddr>().map_or(host == "localhost", |ip| ip.is_loopback());
        if !is_loopback {
            return Err(ClientError::Plaintext { host });
        }
        Ok(Self { host, port })
    }

    /// Returns host and port as they stand in a URL.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Tells whether anything accepts connections there.
    pub async fn answers(&self) -> bool {
        self.connect().await.is_ok()
    }

    pub(crate) async fn connect(&self) -> Result<TcpStream, ClientError> {
        let failed =
            |source| ClientError::Connect { url: format!("http://{}", self.authority()), source };
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_urls_are_read() {
        let rows = [
            ("http://127.0.0.1:7700", "127.0.0.1:7700"),
            ("ws://localhost:1/ws", "localhost:1"),
            ("http://LOCALHOST", "localhost:80"),
            ("http://[::1]:7700/", "[::1]:7700"),
            ("http://[::1]", "[::1]:80"),
        ];
        for (url, authority) in rows {
            assert_eq!(Address::parse(url).unwrap().authority(), authority, "{url}");
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
