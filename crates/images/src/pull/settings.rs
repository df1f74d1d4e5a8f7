//! What an operator says about registries.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{store::Quota, unpack::Limits};

/// How registries are spoken to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// By host and port, as they stand in image names.
    pub registries: BTreeMap<String, Registry>,
    /// The authorities whose certificates are believed.
    pub certificates: Certificates,
    pub limits: Limits,
    /// How much of the disk images may take.
    pub quota: Quota,
    /// How long a connection may take to come about.
    pub connect_timeout: Duration,
    /// How long a registry may say nothing.
    pub silence_timeout: Duration,
}

/// Where the certificates of authorities are, in the form PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Certificates {
    File(PathBuf),
    Text(Vec<u8>),
}

impl fmt::Display for Certificates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => fmt::Display::fmt(&path.display(), formatter),
            Self::Text(text) => write!(formatter, "{} bytes of certificates", text.len()),
        }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// What is special about one registry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registry {
    pub credentials: Option<Credentials>,
    pub scheme: Scheme,
}

/// Whether a registry is reached safely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// By TLS, but for this machine itself, where nobody else can listen in.
    #[default]
    Safe,
    Https,
    /// Without TLS, by the operator's word.
    Http,
}

/// A name and a password for a registry.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
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
            certificates: Certificates::File("/etc/ssl/certs/ca-certificates.crt".into()),
            limits: Limits::default(),
            quota: Quota::default(),
            connect_timeout: Duration::from_secs(10),
            silence_timeout: Duration::from_mins(1),
        }
    }
}
