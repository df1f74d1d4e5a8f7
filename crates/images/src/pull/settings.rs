//! What an operator says about registries.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use crate::unpack::Limits;

/// How registries are spoken to.
#[derive(Debug, Clone)]
pub struct Settings {
    /// By host and port, as they stand in image names.
    pub registries: BTreeMap<String, Registry>,
    /// A file with the authorities whose certificates are believed.
    pub certificates: PathBuf,
    pub limits: Limits,
    /// How long a connection may take to come about.
    pub connect_timeout: Duration,
    /// How long a registry may say nothing.
    pub silence_timeout: Duration,
}

/// What is special about one registry.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    pub credentials: Option<Credentials>,
    pub scheme: Scheme,
}

/// Whether a registry is reached safely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheme {
    /// By TLS, but for this machine itself, where nobody else can listen in.
    #[default]
    Safe,
    Https,
    /// Without TLS, by the operator's word.
    Http,
}

/// A name and a password for a registry.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub username: String,
    pub password: String,
}

/// No log may have the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credentials")
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            registries: BTreeMap::new(),
            certificates: PathBuf::from("/etc/ssl/certs/ca-certificates.crt"),
            limits: Limits::default(),
            connect_timeout: Duration::from_secs(10),
            silence_timeout: Duration::from_mins(1),
        }
    }
}
