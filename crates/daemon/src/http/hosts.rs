//! Which host a request is for: this server, or it is answered by nobody.
//!
//! A page whose name was made to lead to this machine has the name of its own host in its requests, wherever they
//! go. So nothing is taken that does not name this server.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::LazyLock,
};

use api::errors::{ErrorCode, agbox::Reason};
use axum::{
    extract::{MatchedPath, Request},
    http::{self, HeaderMap, Method, Uri, Version, header::HOST},
    response::{IntoResponse as _, Response},
};

use super::{oauth, operations, problem::ApiError};
use crate::{
    dataplane::{
        ports::read_port,
        shape::{self, Shape},
    },
    serve::{Peer, Settings},
};

/// Why a request is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Astray {
    /// It names no host, more than one, or what no host can be called.
    Unclear,
    /// It names another than this.
    Elsewhere(Host),
}

impl Astray {
    /// Returns what a person is told, with what to do if the name is a good one.
    pub(crate) fn message(&self) -> Cow<'static, str> {
        match self {
            Self::Unclear => "the request must name one host: the one that it is for".into(),
            Self::Elsewhere(host) => format!(
                "this server is not called {host}; if it is, set public_url in its configuration, \
                 or allowed_hosts = [\"{host}\"]"
            )
            .into(),
        }
    }

    pub(crate) const fn reason(&self) -> Reason {
        match self {
            Self::Unclear => Reason::InvalidArgument,
            Self::Elsewhere(_) => Reason::PermissionDenied,
        }
    }
}

impl From<Astray> for ApiError {
    fn from(astray: Astray) -> Self {
        let code = match &astray {
            Astray::Unclear => ErrorCode::InvalidRequest,
            Astray::Elsewhere(_) => ErrorCode::MisdirectedRequest,
        };
        Self::new(code, astray.message())
    }
}

/// No name in DNS is longer.
const LONGEST_NAME: usize = 253;

/// A host as requests and settings write it: `name`, `name:port`, `[address]:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    site: Site,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Site {
    /// In small letters.
    Name(String),
    Address(IpAddr),
}

impl Host {
    /// Reads a host; `None` if nothing can be called so.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (site, port) = if let Some(rest) = text.strip_prefix('[') {
            let (address, port) = rest.split_once(']')?;
            (Site::Address(IpAddr::V6(address.parse().ok()?).to_canonical()), port)
        } else {
            let (name, port) = text.split_at_checked(text.find(':').unwrap_or(text.len()))?;
            (Site::read(name)?, port)
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => None,
            None => return None,
            Some("") => None,
            Some(digits) => Some(read_port(digits)?.get()),
        };
        Some(Self { site, port })
    }

    /// Reads the host of a URL, and the port that it stands for if it names none.
    pub(crate) fn of_url(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let host = Self::read(rest.split('/').next()?)?;
        let usual = if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
        Some(Self { port: host.port.or(Some(usual)), ..host })
    }
}

/// As settings have it. What a host is called has no character that means anything elsewhere, and no more of them
/// are shown than a name can have.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.site {
            Site::Name(name) => write!(f, "{name:.LONGEST_NAME$}")?,
            Site::Address(IpAddr::V4(address)) => write!(f, "{address}")?,
            Site::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Site {
    fn read(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Self::Address(address.into()));
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_name = !text.is_empty() && text.bytes().all(is_plain);
        is_name.then(|| Self::Name(text.to_ascii_lowercase()))
    }

    fn is_below(&self, parent: &Self) -> bool {
        let (Self::Name(name), Self::Name(parent)) = (self, parent) else { return false };
        name.strip_suffix(parent.as_str()).is_some_and(|label| label.ends_with('.'))
    }
}

/// What this server is called.
#[derive(Debug)]
pub(crate) struct Hosts {
    /// The port that it listens at.
    port: Option<u16>,
    /// Names besides its addresses, each with a port that others know it by.
    named: Vec<Host>,
    /// Every preview has a host of its own below this one.
    previews: Option<Host>,
}

impl Hosts {
    /// Has the names that the settings give to a server that listens here and has its previews there.
    pub(crate) fn of(
        listens: Option<SocketAddr>,
        settings: &Settings,
        previews: Option<&str>,
    ) -> Self {
        let public = settings.public_url.as_deref().and_then(Host::of_url);
        let allowed = settings.allowed_hosts.iter().filter_map(|host| Host::read(host));
        Self {
            port: listens.map(|address| address.port()),
            named: public.into_iter().chain(allowed).collect(),
            previews: previews.and_then(Host::of_url),
        }
    }

    /// Refuses what is not for this server.
    pub(crate) fn check<B>(&self, request: &http::Request<B>) -> Result<(), Astray> {
        // What this method names is where it leads to. No route has it.
        if request.method() == Method::CONNECT {
            return Ok(());
        }
        let asked = asked(request.version(), request.uri(), request.headers())?;
        let peer = request.extensions().get::<Peer>();
        let reached = peer.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |peer| peer.reached);
        if self.has(&asked, reached) { Ok(()) } else { Err(Astray::Elsewhere(asked)) }
    }

    /// Tells whether this host is this server, for who has reached it at this address.
    fn has(&self, asked: &Host, reached: IpAddr) -> bool {
        let is_own = match &asked.site {
            Site::Name(name) => name == "localhost",
            // Whichever of the machine's addresses it is: a connection came to it.
            Site::Address(address) => address.is_loopback() || *address == reached.to_canonical(),
        };
        let fits = |port: Option<u16>| {
            asked.port.is_none_or(|asked| self.port == Some(asked) || port == Some(asked))
        };
        let is_preview = |parent: &Host| asked.site.is_below(&parent.site) && fits(parent.port);
        (is_own && fits(None))
            || self.named.iter().any(|host| host.site == asked.site && fits(host.port))
            || self.previews.as_ref().is_some_and(is_preview)
    }
}

/// Returns the host that a request names. HTTP/2, and a request as it is sent to proxies, names it before the
/// path, and a header must not say otherwise.
fn asked(version: Version, uri: &Uri, headers: &HeaderMap) -> Result<Host, Astray> {
    let read = |text: &str| Host::read(text).ok_or(Astray::Unclear);
    let mut lines = headers.get_all(HOST).iter();
    let header = match (lines.next(), lines.next()) {
        (Some(line), None) => Some(read(line.to_str().unwrap_or_default())?),
        (None, _) if version >= Version::HTTP_2 => None,
        (None, _) | (Some(_), Some(_)) => return Err(Astray::Unclear),
    };
    let authority = uri.authority().map(|authority| read(authority.as_str())).transpose()?;
    match (authority, header) {
        (Some(authority), Some(header)) if authority != header => Err(Astray::Unclear),
        (Some(host), _) | (None, Some(host)) => Ok(host),
        (None, None) => Err(Astray::Unclear),
    }
}

/// Answers a request that does not get to its route, in the shape that the route refuses in.
pub(crate) fn refuse(request: &Request, error: impl Into<ApiError>) -> Response {
    refuse_at(request.extensions().get::<MatchedPath>(), error.into())
}

/// The same, for who has the path of the route and not the request.
pub(crate) fn refuse_at(path: Option<&MatchedPath>, error: ApiError) -> Response {
    static SHAPES: LazyLock<HashMap<String, Shape>> =
        LazyLock::new(|| operations().into_iter().map(|it| (it.path, it.shape)).collect());
    match path.and_then(|path| SHAPES.get(path.as_str())) {
        Some(Shape::OAuth) => oauth::Refused::from(error).into_response(),
        Some(shape) => shape::of(*shape, error.into_response()),
        None => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(version: Version, uri: &str, hosts: &[&str]) -> Result<Host, Astray> {
        let mut request = http::Request::builder().version(version).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        asked(parts.version, &parts.uri, &parts.headers)
    }

    type Row<'a> = (Version, &'a str, &'a [&'a str], Result<Host, Astray>);

    /// H17.
    #[test]
    fn a_request_names_one_host() {
        let named = |text| Ok(Host::read(text).unwrap());
        let (one, two) = (Version::HTTP_11, Version::HTTP_2);
        let rows: [Row<'_>; 15] = [
            (one, "/", &["a.example:1"], named("a.example:1")),
            (one, "/", &["A.Example"], named("a.example")),
            (one, "/", &[], Err(Astray::Unclear)),
            (Version::HTTP_10, "/", &[], Err(Astray::Unclear)),
            (one, "/", &[""], Err(Astray::Unclear)),
            (one, "/", &["a", "b"], Err(Astray::Unclear)),
            (one, "/", &["a", "a"], Err(Astray::Unclear)),
            (one, "http://a.example/", &["a.example"], named("a.example")),
            (one, "http://a.example/", &["b.example"], Err(Astray::Unclear)),
            (one, "http://a.example/", &[], Err(Astray::Unclear)),
            (two, "http://a.example/", &[], named("a.example")),
            (two, "http://a.example/", &["a.example"], named("a.example")),
            (two, "http://a.example/", &["b.example"], Err(Astray::Unclear)),
            (two, "/", &[], Err(Astray::Unclear)),
            (two, "/", &["a.example"], named("a.example")),
        ];
        for (version, uri, hosts, expected) in rows {
            assert_eq!(request(version, uri, hosts), expected, "{version:?} {uri} {hosts:?}");
        }
        for bad in [
            "a b",
            "a/b",
            "user@a",
            "a:b",
            "a:1:2",
            "a:0",
            "a:65536",
            "a:+1",
            "[::1",
            "[::1]x",
            "[x]",
            "[fe80::1%25eth0]",
            "::1",
            ":80",
            "é",
            "a,b",
            "%6c",
            "",
        ] {
            assert_eq!(Host::read(bad), None, "{bad}");
        }
    }

    /// H17, U06.
    #[test]
    fn u06_a_name_that_was_made_to_lead_here_is_none_of_ours() {
        let settings = Settings {
            public_url: Some("https://Sandboxes.example.com:8443/x".to_owned()),
            allowed_hosts: vec!["inside".into(), "tunnel:9000".into(), "203.0.113.9".into()],
            ..Settings::default()
        };
        let all = SocketAddr::from(([0, 0, 0, 0], 7700));
        let hosts = Hosts::of(Some(all), &settings, Some("https://p.example"));
        let is_ours = |host: &str, reached: &str| {
            hosts.has(&Host::read(host).unwrap(), reached.parse().unwrap())
        };
        // A loopback name, the address that was reached in any spelling, and the names of the settings: without a
        // port, with the one that we listen at, and with the one that others know.
        let ours = [
            ("127.0.0.1:7700", "127.0.0.1"),
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.2:7700", "127.0.0.1"),
            ("localhost:7700", "10.0.0.7"),
            ("LOCALHOST", "::1"),
            ("[::1]:7700", "::1"),
            ("[0:0:0:0:0:0:0:1]", "::1"),
            ("[::ffff:127.0.0.1]:7700", "127.0.0.1"),
            ("10.0.0.7:7700", "10.0.0.7"),
            ("10.0.0.7", "::ffff:10.0.0.7"),
            ("[::ffff:10.0.0.7]", "10.0.0.7"),
            ("[2001:DB8::7]:7700", "2001:db8::7"),
            ("sandboxes.example.com", "10.0.0.7"),
            ("sandboxes.example.com:8443", "10.0.0.7"),
            ("SANDBOXES.example.com:7700", "10.0.0.7"),
            ("inside", "10.0.0.7"),
            ("inside:7700", "10.0.0.7"),
            ("tunnel:9000", "127.0.0.1"),
            ("203.0.113.9:7700", "10.0.0.7"),
            ("8000--sb-x.p.example", "10.0.0.7"),
            ("8000--sb-x.P.example:443", "10.0.0.7"),
        ];
        for (host, reached) in ours {
            assert!(is_ours(host, reached), "{host} at {reached}");
        }
        let not_ours = [
            ("evil.example", "127.0.0.1"),
            ("localhost.evil.example", "127.0.0.1"),
            ("127.0.0.1.evil.example", "127.0.0.1"),
            ("x.localhost", "127.0.0.1"),
            ("localhost.", "127.0.0.1"),
            ("8000--sb-x.p.example.", "10.0.0.7"),
            ("127.1", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("0.0.0.0:7700", "127.0.0.1"),
            ("127.0.0.1:7701", "127.0.0.1"),
            ("localhost:80", "127.0.0.1"),
            ("10.0.0.8:7700", "10.0.0.7"),
            ("10.0.0.7:1", "10.0.0.7"),
            ("192.0.2.1", "10.0.0.7"),
            ("[2001:db8::8]", "2001:db8::7"),
            ("sandboxes.example.com:1", "10.0.0.7"),
            ("inside:9000", "10.0.0.7"),
            ("tunnel:9001", "127.0.0.1"),
            ("p.example", "10.0.0.7"),
            ("xp.example", "10.0.0.7"),
            ("8000--sb-x.p.example:1", "10.0.0.7"),
        ];
        for (host, reached) in not_ours {
            assert!(!is_ours(host, reached), "{host} at {reached}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = Host::read(&text);
        }
    }
}
