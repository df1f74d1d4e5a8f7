//! What an operator says about images, and what of it the worker is told.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use ::images::{
    pull,
    store::{Form, Quota},
    unpack::{Owners, Whiteouts},
    worker::wire::Hello,
};
use isolate::{plan::Identity, spawner::IdRange};
use model::outbound::{Endpoint, Host, ListedRegistry, Rules};

pub use model::outbound::address::{Network, NetworkError};

use super::{Allowed, ImageError, Kind, Limits, Scheme};

/// How images are had on this node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What may be chosen.
    pub allowed: Allowed,
    /// By host and port, as they stand in image names. Only these may be on private addresses.
    pub registries: BTreeMap<String, Registry>,
    /// Networks that no image is fetched from, although they look public.
    pub refused_networks: Vec<Network>,
    /// A file with the authorities whose certificates are believed.
    pub certificates: PathBuf,
    pub limits: Limits,
    /// How much of the disk images may take: those of one tenant, and all of them.
    pub quota: Quota,
    /// How long a worker is kept that nobody needs.
    pub idle: Duration,
}

/// What is special about one registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    pub scheme: Scheme,
    pub login: Option<Login>,
    /// Another host, perhaps with a port, that issues its tokens and may see the login.
    pub token_service: Option<String>,
}

/// Who we are there. The file is read when a worker is started, so that it can be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    pub username: String,
    pub password_file: PathBuf,
}

impl Default for Settings {
    /// The machine's own programs and any registry; no path of the machine.
    fn default() -> Self {
        let kinds = BTreeSet::from([Kind::Host, Kind::Registry]);
        Self {
            allowed: Allowed { kinds, prefixes: vec!["*".to_owned()] },
            registries: BTreeMap::new(),
            refused_networks: Vec::new(),
            certificates: PathBuf::from("/etc/ssl/certs/ca-certificates.crt"),
            limits: Limits::default(),
            quota: Quota::default(),
            idle: Duration::from_mins(1),
        }
    }
}

impl Settings {
    /// Returns where the connections of pulls may lead.
    pub(super) fn rules(&self) -> Rules {
        let listed = |(name, registry): (&String, &Registry)| {
            let token_service = registry.token_service.as_ref();
            let token_service = token_service.and_then(|it| endpoint(it, Scheme::Safe));
            Some((endpoint(name, registry.scheme)?, ListedRegistry { token_service }))
        };
        let registries = self.registries.iter().filter_map(listed).collect();
        Rules { registries, refused: self.refused_networks.clone() }
    }

    /// Returns the host and port of the registry in an image's name.
    pub(super) fn endpoint_of(&self, registry: &str) -> Option<Endpoint> {
        let scheme = self.registries.get(registry).map_or(Scheme::default(), |it| it.scheme);
        endpoint(registry, scheme)
    }

    /// Reads what the worker cannot read itself.
    pub(super) fn hello(&self, identity: Identity) -> Result<Hello, ImageError> {
        let mut registries = BTreeMap::new();
        for (host, registry) in &self.registries {
            let credentials = registry.login.as_ref().map(Login::read).transpose()?;
            let scheme = registry.scheme;
            registries.insert(host.clone(), pull::RegistrySettings { credentials, scheme });
        }
        // What cannot be read is missed when a registry is first reached safely, and named then.
        let certificates = read(&self.certificates, MOST_CERTIFICATES).map_or_else(
            |_error| pull::Certificates::File(self.certificates.clone()),
            pull::Certificates::Text,
        );
        let settings = pull::Settings {
            registries,
            certificates,
            limits: self.limits,
            quota: self.quota,
            ..pull::Settings::default()
        };
        Ok(Hello { form: form(identity), settings })
    }
}

fn endpoint(registry: &str, scheme: Scheme) -> Option<Endpoint> {
    let (host, port) = pull::endpoint_of(registry, scheme);
    Some(Endpoint { host: Host::parse(&host)?, port })
}

/// A bundle of all the world's authorities has a quarter of a megabyte.
const MOST_CERTIFICATES: u64 = 4 << 20;

/// Overlays are mounted with `userxattr`, whoever runs the server: the worker could write no other
/// form.
fn form(identity: Identity) -> Form {
    let owners = match identity {
        Identity::Apart => Owners::Kept { below: IdRange::ON_DISK.count },
        Identity::Shared => Owners::Caller,
    };
    Form { whiteouts: Whiteouts::User, owners }
}

impl Login {
    fn read(&self) -> Result<pull::Credentials, ImageError> {
        let unreadable = |error: io::Error| ImageError::Unauthorized {
            message: format!(
                "cannot read the password in {}: {error}",
                self.password_file.display()
            ),
        };
        let bytes = read(&self.password_file, 64 << 10).map_err(unreadable)?;
        let text = String::from_utf8(bytes).map_err(io::Error::other).map_err(unreadable)?;
        let password = text.trim_end_matches(['\n', '\r']).to_owned();
        Ok(pull::Credentials { username: self.username.clone(), password })
    }
}

fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}
