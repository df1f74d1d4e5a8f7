//! The connector: every connection that the server opens on behalf of a tenant.
//!
//! It resolves a name once, asks `model::outbound` about each address, and connects to an address
//! that passed. There is no second resolution, so a name whose answer changes gains nothing.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use model::outbound::{Endpoint, ForeignTokenService, Hop, Host, Rules};
use tokio::{net::TcpStream, time::timeout};

/// How long all of it may take: finding the addresses, and trying them.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long one address is tried while there are others.
const TIMEOUT_OF_ONE: Duration = Duration::from_secs(3);

/// The most addresses of a name that are looked at.
const MOST_ADDRESSES: usize = 16;

/// Opens connections by the operator's rules. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    rules: Arc<Rules>,
    resolver: Resolver,
}

/// What finds the addresses of a name.
#[derive(Clone, Debug)]
enum Resolver {
    /// The machine's own: its hosts file and its name servers.
    System,
    #[cfg(test)]
    Fixed(Vec<IpAddr>),
}

/// A connection to an address that was checked.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) stream: TcpStream,
    /// Whether the registry's credentials may be sent on it.
    pub(crate) gets_credentials: bool,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// Also if the name has no address at all: a tenant learns nothing about names of inner networks.
    #[error("{0} has no address that may be connected to")]
    NotAllowed(Endpoint),
    #[error(transparent)]
    ForeignTokenService(#[from] ForeignTokenService),
    #[error("cannot connect to {target}")]
    Unreachable {
        target: Endpoint,
        #[source]
        source: io::Error,
    },
    #[error("{0} could not be reached in time")]
    Timeout(Endpoint),
}

impl Connector {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules: Arc::new(rules), resolver: Resolver::System }
    }

    /// Connects to an endpoint that a pull from this registry came to.
    pub(crate) async fn connect(
        &self,
        registry: &Endpoint,
        hop: Hop,
        target: &Endpoint,
    ) -> Result<Connected, ConnectError> {
        let permit = self.rules.permit(registry, hop, target)?;
        let late = |_elapsed| ConnectError::Timeout(target.clone());
        let connecting = async {
            let mut addresses = self.resolver.addresses(target).await?;
            addresses.truncate(MOST_ADDRESSES);
            addresses.retain(|address| self.rules.allows(permit, *address, is_own(*address)));
            let stream = connect_to_one(target, &addresses).await?;
            Ok(Connected { stream, gets_credentials: permit.gets_credentials })
        };
        timeout(TIMEOUT, connecting).await.map_err(late)?
    }
}

impl Resolver {
    async fn addresses(&self, target: &Endpoint) -> Result<Vec<IpAddr>, ConnectError> {
        let name = match &target.host {
            Host::Address(address) => return Ok(vec![*address]),
            Host::Name(name) => name,
        };
        match self {
            Self::System => match tokio::net::lookup_host((name.as_str(), target.port)).await {
                Ok(found) => Ok(found.map(|address| address.ip()).collect()),
                Err(source) if may_pass(&source) => {
                    Err(ConnectError::Unreachable { target: target.clone(), source })
                }
                Err(_unknown) => Err(ConnectError::NotAllowed(target.clone())),
            },
            #[cfg(test)]
            Self::Fixed(addresses) => Ok(addresses.clone()),
        }
    }
}

/// Whether no name server answered. The library gives this as a text only.
fn may_pass(error: &io::Error) -> bool {
    error.to_string().contains("Temporary failure")
}

/// Whether an address is one of this machine. A datagram socket shows it without sending anything:
/// what goes to oneself comes from the same address.
fn is_own(address: IpAddr) -> bool {
    let from: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((from, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    // An address without a route is nobody's.
    source.is_ok_and(|source| source.ip() == address)
}

async fn connect_to_one(
    target: &Endpoint,
    addresses: &[IpAddr],
) -> Result<TcpStream, ConnectError> {
    let mut failed = ConnectError::NotAllowed(target.clone());
    for (index, address) in addresses.iter().enumerate() {
        let is_last = index + 1 == addresses.len();
        let patience = if is_last { TIMEOUT } else { TIMEOUT_OF_ONE };
        let connecting = TcpStream::connect(SocketAddr::new(*address, target.port));
        failed = match timeout(patience, connecting).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(source)) => ConnectError::Unreachable { target: target.clone(), source },
            Err(_elapsed) => ConnectError::Timeout(target.clone()),
        };
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, net::TcpListener};

    use model::outbound::ListedRegistry;

    use super::*;

    fn endpoint(host: &str, port: u16) -> Endpoint {
        Endpoint { host: Host::parse(host).unwrap(), port }
    }

    fn connector(listed: &[&Endpoint], addresses: &[&str]) -> Connector {
        let registries = listed.iter().map(|it| ((*it).clone(), ListedRegistry::default()));
        let rules = Rules { registries: registries.collect::<BTreeMap<_, _>>(), refused: vec![] };
        let addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
        Connector { resolver: Resolver::Fixed(addresses), ..Connector::new(rules) }
    }

    async fn attempt(connector: &Connector, target: &Endpoint) -> Result<IpAddr, String> {
        let connected = connector.connect(target, Hop::Registry, target).await;
        connected.map(|it| it.stream.peer_addr().unwrap().ip()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_forbidden_address_is_refused_alike_whether_its_port_is_open_or_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap().port();
        let closed = {
            let other = TcpListener::bind("127.0.0.1:0").unwrap();
            other.local_addr().unwrap().port()
        };
        listener.set_nonblocking(true).unwrap();
        let spellings = ["127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "::1", "10.255.255.1"];
        for address in spellings {
            for port in [open, closed] {
                for host in ["attacker.example", address] {
                    let target = endpoint(host, port);
                    let refused = attempt(&connector(&[], &[address]), &target).await;
                    let expected = format!("{target} has no address that may be connected to");
                    assert_eq!(refused, Err(expected));
                }
            }
        }
        let nobody = listener.accept().unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::WouldBlock, "nothing was connected to");
    }

    #[tokio::test]
    async fn of_a_mixed_answer_only_allowed_addresses_are_connected_to() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = endpoint("mixed.example", port);
        // Metadata and unspecified addresses are refused to a listed registry as well.
        let mixed = ["169.254.169.254", "0.0.0.0", "127.0.0.1"];
        let found = attempt(&connector(&[&target], &mixed), &target).await;
        assert_eq!(found, Ok(Ipv4Addr::LOCALHOST.into()));
        let none = attempt(&connector(&[&target], &mixed[..2]), &target).await;
        assert!(none.unwrap_err().ends_with("has no address that may be connected to"));
        listener.set_nonblocking(true).unwrap();
        listener.accept().unwrap();
        assert!(listener.accept().is_err(), "one connection was made");
    }

    #[tokio::test]
    async fn a_registry_that_is_listed_opens_no_other_port_of_its_host() {
        let (one, other) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let at = |it: &TcpListener| endpoint("127.0.0.1", it.local_addr().unwrap().port());
        let (listed, unlisted) = (at(&one), at(&other));
        let connector = connector(&[&listed], &[]);
        assert!(attempt(&connector, &listed).await.is_ok());
        for hop in [Hop::Redirect, Hop::TokenService] {
            let refused = connector.connect(&listed, hop, &unlisted).await.unwrap_err();
            assert!(matches!(refused, ConnectError::NotAllowed(_)), "{refused}");
            // A registry of which the operator knows nothing is led nowhere inside either.
            let stranger = endpoint("registry.example", 443);
            let refused = connector.connect(&stranger, hop, &listed).await.unwrap_err();
            let is_refused = match hop {
                Hop::TokenService => matches!(refused, ConnectError::ForeignTokenService(_)),
                Hop::Registry | Hop::Redirect => matches!(refused, ConnectError::NotAllowed(_)),
            };
            assert!(is_refused, "{refused}");
        }
    }

    #[tokio::test]
    async fn a_name_without_an_address_is_refused_like_one_with_a_forbidden_address() {
        let rules = Rules::default();
        let system = Connector::new(rules);
        let inner = endpoint("localhost", 1);
        let refused = attempt(&system, &inner).await;
        assert_eq!(refused, Err(format!("{inner} has no address that may be connected to")));
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own(Ipv4Addr::new(192, 0, 2, 1).into()));
    }
}
