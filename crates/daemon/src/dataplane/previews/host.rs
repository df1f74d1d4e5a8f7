//! The hosts of previews: `{port}--sb-{random}.{domain}`, one for each port of each sandbox.

use std::num::NonZeroU16;

use axum::http::{HeaderMap, Uri, header::HOST};
use model::ids::SandboxId;

use super::super::ports::read_port;

/// Where a link leads on such a host. Nothing below it is the sandbox's.
pub(crate) const ENTRANCE: &str = "/.well-known/ringfence/enter";

/// The domain below which previews are, and how browsers get to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Domain {
    scheme: &'static str,
    name: String,
    /// With its colon, unless it is the scheme's own.
    port: String,
}

impl Domain {
    /// Reads the URL that previews are below; `None` if it is not one.
    pub(crate) fn read(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let scheme = match scheme {
            "http" => "http",
            "https" => "https",
            _ => return None,
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (name, port) = match authority.split_once(':') {
            Some((name, port)) => (name, format!(":{}", read_port(port)?)),
            None => (authority, String::new()),
        };
        let is_label = |label: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !label.is_empty() && label.bytes().all(is_plain)
        };
        let is_number = name.split('.').next_back()?.bytes().all(|byte| byte.is_ascii_digit());
        if is_number || !name.split('.').all(is_label) {
            return None;
        }
        Some(Self { scheme, name: name.to_ascii_lowercase(), port })
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.scheme == "https"
    }

    pub(crate) fn scheme(&self) -> &'static str {
        self.scheme
    }

    pub(crate) fn origin_of(&self, sandbox: &SandboxId, port: NonZeroU16) -> String {
        let label = sandbox.as_str().replacen('_', "-", 1);
        format!("{}://{port}--{label}.{}{}", self.scheme, self.name, self.port)
    }

    /// Returns what a host of a preview stands for.
    pub(crate) fn find(&self, host: &str) -> Option<Found> {
        let host = host.to_ascii_lowercase();
        let name = host.split(':').next()?;
        let label = name.strip_suffix(&self.name)?.strip_suffix('.')?;
        // Whatever is below the domain is no host of the API.
        let Some((port, sandbox)) = label.split_once("--") else { return Some(Found::Nobody) };
        let sandbox = sandbox.replacen('-', "_", 1).parse().ok();
        Some(match (read_port(port), sandbox) {
            (Some(port), Some(sandbox)) => Found::Port { sandbox, port },
            (_, _) => Found::Nobody,
        })
    }
}

/// Whose host it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Port { sandbox: SandboxId, port: NonZeroU16 },
    Nobody,
}

/// Returns the host that a request is for.
pub(crate) fn asked<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    match uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => headers.get(HOST)?.to_str().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_a_name_with_a_scheme_and_perhaps_a_port() {
        let read =
            |url| Domain::read(url).map(|it| format!("{}://{}{}", it.scheme, it.name, it.port));
        assert_eq!(read("http://localhost:7700").unwrap(), "http://localhost:7700");
        assert_eq!(read("https://Previews.example/").unwrap(), "https://previews.example");
        for bad in [
            "localhost",
            "ftp://localhost",
            "http://127.0.0.1:80",
            "http://[::1]",
            "http://a.example/b",
            "http://a..example",
            "http://a@b.example",
            "http://a.example:0",
            "http://",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn hosts_are_found_again_and_nobody_elses_are() {
        let domain = Domain::read("https://p.example:8443").unwrap();
        let (sandbox, port) = (SandboxId::from_random([3; 16]), NonZeroU16::new(8000).unwrap());
        let origin = domain.origin_of(&sandbox, port);
        let host = origin.strip_prefix("https://").unwrap();
        let found = Found::Port { sandbox, port };
        assert_eq!(domain.find(host), Some(found.clone()));
        assert_eq!(domain.find(&host.to_ascii_uppercase()), Some(found.clone()));
        assert_eq!(domain.find(host.split(':').next().unwrap()), Some(found));
        for nobody in ["a.p.example", "0--sb-x.p.example", "80--x.p.example", "80--.p.example"] {
            assert_eq!(domain.find(nobody), Some(Found::Nobody), "{nobody}");
        }
        for other in ["p.example", "xp.example", "p.example.evil", "localhost", ""] {
            assert_eq!(domain.find(other), None, "{other}");
        }
    }
}
