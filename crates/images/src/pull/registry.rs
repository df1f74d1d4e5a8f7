//! Asks one registry for one repository: tokens, redirects, manifests, small blobs.

mod challenge;

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::{Request, Uri, header};

use self::challenge::Challenge;
use super::{
    Credentials, PullError, Scheme, Settings,
    connection::Answer,
    connector::{Connector, Hop},
    manifest::{self, Descriptor, Document, Manifest},
    transport::{Address, Transport},
};
use crate::{digest::Digest, reference::name::Name, store::Origin};

const MOST_REDIRECTS: usize = 5;
const LARGEST_TOKEN: u64 = 1 << 20;

/// How often something is asked for again when the way to the registry fails.
pub(super) const ATTEMPTS: u32 = 4;

pub(super) struct Registry<'puller> {
    address: Address,
    name: Name,
    credentials: Option<Credentials>,
    transport: &'puller Transport,
    connector: Connector,
    /// What the registry last accepted.
    authorization: Mutex<Option<String>>,
}

impl<'puller> Registry<'puller> {
    pub(super) fn new(
        name: &Name,
        settings: &Settings,
        transport: &'puller Transport,
        connector: Connector,
    ) -> Self {
        let own = settings.registries.get(name.registry()).cloned().unwrap_or_default();
        Self {
            address: address(name.registry(), own.scheme),
            name: name.clone(),
            credentials: own.credentials,
            transport,
            connector,
            authorization: Mutex::default(),
        }
    }

    /// Returns where a blob of this repository comes from.
    pub(super) fn origin(&self, blob: Digest) -> Origin {
        let (registry, repository) = (self.address.authority(), self.name.repository().to_owned());
        Origin { registry, repository, blob }
    }

    /// Returns the manifest of the image for this machine, and its digest.
    pub(super) async fn manifest(&self) -> Result<(Digest, Manifest), PullError> {
        let mut digest = self.name.digest();
        // An index may lead to an index, but no honest one leads further.
        for _ in 0..3 {
            let bytes = self.manifest_bytes(digest).await?;
            match manifest::read(&bytes)? {
                Document::Image(manifest) => return Ok((Digest::of(&bytes), manifest)),
                Document::Index(index) => digest = Some(manifest::pick(&index)?.digest),
            }
        }
        Err(PullError::Redirects { host: self.address.authority() })
    }

    async fn manifest_bytes(&self, digest: Option<Digest>) -> Result<Vec<u8>, PullError> {
        let tag = self.name.tag().unwrap_or("latest");
        let which = digest.map_or_else(|| tag.to_owned(), |it| it.to_string());
        let bytes = self.small(&format!("manifests/{which}")).await?;
        if let Some(digest) = digest {
            manifest::check_digest(digest, &bytes)?;
        }
        Ok(bytes)
    }

    /// Returns a blob that is held in memory.
    pub(super) async fn small_blob(&self, blob: &Descriptor) -> Result<Vec<u8>, PullError> {
        let bytes = self.small(&format!("blobs/{}", blob.digest)).await?;
        manifest::check_digest(blob.digest, &bytes)?;
        Ok(bytes)
    }

    async fn small(&self, what: &str) -> Result<Vec<u8>, PullError> {
        let mut attempt = 1;
        loop {
            let read = async { self.get(what, 0).await?.read(what, manifest::LARGEST).await };
            match read.await {
                Err(error) if error.is_passing() && attempt < ATTEMPTS => attempt += 1,
                done => return done,
            }
        }
    }

    /// Asks for something of the repository, from a byte on.
    pub(super) async fn get(&self, what: &str, from: u64) -> Result<Answer, PullError> {
        let answer = self.follow(what, from).await?;
        if answer.status() != 401 {
            return self.checked(answer, what);
        }
        let challenge = self.challenge(&answer)?;
        let token = self.authorize(&challenge).await?;
        *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
        let answer = self.follow(what, from).await?;
        self.checked(answer, what)
    }

    /// Follows the registry to where it keeps its blobs. Who is elsewhere gets no credentials.
    async fn follow(&self, what: &str, from: u64) -> Result<Answer, PullError> {
        let mut address = self.address.clone();
        let mut path = format!("/v2/{}/{what}", self.name.repository());
        let held = self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut hop = Hop::Registry;
        for _ in 0..=MOST_REDIRECTS {
            let authorization = held.as_deref().filter(|_| address == self.address);
            let request = Asking { address: &address, hop, path: &path, authorization, from };
            let answer = self.send(request).await?;
            if !matches!(answer.status(), 301 | 302 | 303 | 307 | 308) {
                return Ok(answer);
            }
            let location = answer.header("location").unwrap_or_default().to_owned();
            (address, path) = leads_to(&address, &location)?;
            hop = Hop::Redirect;
        }
        Err(PullError::Redirects { host: self.address.authority() })
    }

    async fn send(&self, asking: Asking<'_>) -> Result<Answer, PullError> {
        let Asking { address, hop, path, authorization, from } = asking;
        let opened = self.transport.connect(address, hop, &self.connector).await?;
        let mut request = Request::get(path)
            .header(header::HOST, address.authority())
            .header(header::USER_AGENT, concat!("ringfence/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, format!("{}, */*", manifest::accepted()));
        if from > 0 {
            request = request.header(header::RANGE, format!("bytes={from}-"));
        }
        if let Some(authorization) = authorization.filter(|_| opened.gets_credentials) {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Empty::<Bytes>::new());
        let request = request.map_err(|_error| PullError::Address { host: address.authority() })?;
        self.transport.send(address.authority(), opened, request).await
    }

    fn checked(&self, answer: Answer, what: &str) -> Result<Answer, PullError> {
        let host = self.address.authority();
        let what = format!("{}/{what}", self.name.repository());
        match answer.status() {
            200 | 206 => Ok(answer),
            401 | 403 => Err(PullError::Unauthorized { host, what }),
            404 => Err(PullError::NotFound { host, what }),
            status => Err(PullError::Status { host, status, what }),
        }
    }

    fn challenge(&self, answer: &Answer) -> Result<Challenge, PullError> {
        let header = answer.header("www-authenticate").unwrap_or_default();
        let unsupported = || PullError::Challenge { host: self.address.authority() };
        Challenge::read(header).ok_or_else(unsupported)
    }

    /// Returns what is sent along from now on.
    async fn authorize(&self, challenge: &Challenge) -> Result<String, PullError> {
        let basic = self.credentials.as_ref().map(challenge::basic);
        match challenge {
            Challenge::Basic => basic.ok_or_else(|| PullError::Unauthorized {
                host: self.address.authority(),
                what: self.name.repository().to_owned(),
            }),
            Challenge::Bearer { realm, service } => {
                let (address, path) = leads_to(&self.address, realm)?;
                let path = challenge::with_query(&path, service, self.name.repository());
                let (hop, authorization) = (Hop::TokenService, basic.as_deref());
                let asking = Asking { address: &address, hop, path: &path, authorization, from: 0 };
                let answer = self.send(asking).await?;
                let answer = self.checked(answer, "a token")?;
                let bytes = answer.read("the token", LARGEST_TOKEN).await?;
                let unsupported = || PullError::Challenge { host: address.authority() };
                challenge::token(&bytes).ok_or_else(unsupported)
            }
        }
    }
}

/// One request.
struct Asking<'request> {
    address: &'request Address,
    hop: Hop,
    path: &'request str,
    authorization: Option<&'request str>,
    from: u64,
}

/// Returns the host, without brackets, and the port of a registry, which is named as in images.
pub fn endpoint_of(registry: &str, scheme: Scheme) -> (String, u16) {
    let address = address(registry, scheme);
    (address.bare_host().to_owned(), address.port)
}

/// Returns where a registry is.
fn address(registry: &str, scheme: Scheme) -> Address {
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
        _ => (registry, None),
    };
    // The one registry whose name is not where it is.
    let host = if host == "docker.io" { "registry-1.docker.io" } else { host };
    let is_safe = match scheme {
        Scheme::Https => true,
        Scheme::Http => false,
        Scheme::Safe => !is_this_machine(host),
    };
    let port = port.unwrap_or(if is_safe { 443 } else { 80 });
    Address { is_safe, host: host.to_owned(), port }
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|it| it.is_loopback())
}

/// Reads an address that a registry gave. A safe connection leads to safe ones only.
fn leads_to(from: &Address, location: &str) -> Result<(Address, String), PullError> {
    let wrong = || PullError::Address { host: from.authority() };
    if location.starts_with('/') && !location.starts_with("//") {
        return Ok((from.clone(), location.to_owned()));
    }
    let uri: Uri = location.parse().map_err(|_error| wrong())?;
    let is_safe = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(wrong()),
    };
    if from.is_safe && !is_safe {
        return Err(PullError::Downgrade { host: from.authority() });
    }
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?.to_owned();
    let port = uri.port_u16().unwrap_or(if is_safe { 443 } else { 80 });
    let path = uri.path_and_query().map_or("/", |it| it.as_str()).to_owned();
    Ok((Address { is_safe, host, port }, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown((address, path): (Address, String)) -> String {
        let scheme = if address.is_safe { "https" } else { "http" };
        format!("{scheme} {} {} {path}", address.host, address.port)
    }

    #[test]
    fn a_registry_is_reached_by_tls_unless_it_is_here_or_the_operator_says_so() {
        let rows = [
            ("docker.io", Scheme::Safe, "https registry-1.docker.io 443 "),
            ("example.com", Scheme::Safe, "https example.com 443 "),
            ("example.com:5000", Scheme::Http, "http example.com 5000 "),
            ("localhost:5000", Scheme::Safe, "http localhost 5000 "),
            ("localhost", Scheme::Https, "https localhost 443 "),
            ("127.8.0.1", Scheme::Safe, "http 127.8.0.1 80 "),
            ("[::1]:5000", Scheme::Safe, "http [::1] 5000 "),
            ("localhost.example.com", Scheme::Safe, "https localhost.example.com 443 "),
        ];
        for (registry, scheme, expected) in rows {
            assert_eq!(shown((address(registry, scheme), String::new())), expected);
        }
    }

    #[test]
    fn a_safe_connection_never_leads_to_an_unsafe_one() {
        let safe = address("example.com", Scheme::Https);
        let unsafe_one = address("localhost:5000", Scheme::Http);
        let rows = [
            (&safe, "/a?b", Some("https example.com 443 /a?b")),
            (&safe, "https://cdn.example.org/x?y=z", Some("https cdn.example.org 443 /x?y=z")),
            (&safe, "http://cdn.example.org/x", None),
            (&safe, "http://127.0.0.1/x", None),
            (&safe, "//other/x", None),
            (&safe, "file:///etc/passwd", None),
            (&safe, "", None),
            (&unsafe_one, "http://localhost:5001/x", Some("http localhost 5001 /x")),
            (&unsafe_one, "https://example.com", Some("https example.com 443 /")),
        ];
        for (from, location, expected) in rows {
            let found = leads_to(from, location).ok().map(shown);
            assert_eq!(found.as_deref(), expected, "{location}");
        }
    }
}
