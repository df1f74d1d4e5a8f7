//! How a pull gets its connections. The process that pulls has no network of its own: it asks for
//! each connection, and gets a connected socket or a refusal.

use std::{future::Future, pin::Pin, sync::Arc};

use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

/// How a pull came to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hop {
    /// It is the registry that the image's name has.
    Registry,
    /// A host answered with a redirect.
    Redirect,
    /// The registry named it as the `Bearer realm` where tokens are issued.
    TokenService,
}

/// What a connection is wanted to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub hop: Hop,
    /// A name or an address, without brackets.
    pub host: String,
    pub port: u16,
}

/// A connection, and what may be said on it.
#[derive(Debug)]
pub struct Connected {
    pub stream: TcpStream,
    /// Whether the registry's credentials may be sent on it.
    pub gets_credentials: bool,
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConnectFailure {
    /// The host has no address that may be connected to, or no address at all: which of the two
    /// would tell a tenant about names and ports of networks that are none of its business.
    NotAllowed,
    /// The token service is on a host that has nothing to do with the registry.
    ForeignTokenService,
    /// The address is allowed, and could not be connected to.
    Unreachable(String),
    Timeout,
}

/// Opens connections, for one pull.
pub type Connector = Arc<dyn Fn(Target) -> Connecting + Send + Sync>;

pub type Connecting =
    Pin<Box<dyn Future<Output = Result<Connected, ConnectFailure>> + Send + 'static>>;
