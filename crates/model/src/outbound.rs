//! Where the server may connect on behalf of a tenant.
//!
//! A tenant chooses host names, and the hosts that it names answer with further ones: redirects and
//! token services. None of them may lead to the machine itself, to its neighbours or to a cloud's
//! metadata service, unless the operator lists the registry. The connector resolves a name, asks
//! [`Rules::allows`] about every address, and connects to an address that passed, never to the name.

pub mod address;

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv6Addr},
};

use self::address::{Class, Network};

/// A host and a port to connect to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    pub host: Host,
    pub port: u16,
}

/// A name, in lower case and without a final dot, or an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    Name(String),
    Address(IpAddr),
}

const LONGEST_NAME: usize = 253;

impl Host {
    /// Reads a host as it stands in a URL. Other spellings of addresses, such as `127.1`, are names:
    /// the address that a resolver makes of them is checked like any other.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(inner) = text.strip_prefix('[') {
            let address = inner.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?;
            return Some(Self::Address(address.into()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Address(address));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let fits = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'.' | b'_');
        let is_name = !name.is_empty() && name.len() <= LONGEST_NAME && name.bytes().all(fits);
        is_name.then_some(Self::Name(name))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Address(IpAddr::V4(address)) => fmt::Display::fmt(address, formatter),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

/// How a pull came to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// It is the registry that the image's name has.
    Registry,
    /// The registry, or a host that it led to, answered with a redirect.
    Redirect,
    /// The registry named it as the `Bearer realm` where tokens are issued.
    TokenService,
}

/// What the operator says about a registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedRegistry {
    /// Another host that issues this registry's tokens, and may see its credentials.
    pub token_service: Option<Endpoint>,
}

/// The operator's lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub registries: BTreeMap<Endpoint, ListedRegistry>,
    /// Networks that are refused although they look public.
    pub refused: Vec<Network>,
}

/// What holds for a connection to one endpoint, whatever addresses it turns out to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// The operator listed it, so it may be on an address of a private network.
    may_be_private: bool,
    /// The credentials of the registry may be sent to it.
    pub gets_credentials: bool,
}

/// The registry's tokens would come from a host that has nothing to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token service is on another host than the registry, and the operator lists neither")]
pub struct ForeignTokenService;

/// Public registries that are known to issue their tokens on another host.
const TOKEN_SERVICES: [(&str, &str); 2] =
    [("registry-1.docker.io", "auth.docker.io"), ("registry.gitlab.com", "gitlab.com")];

impl Rules {
    /// Decides, by names alone, about one connection of a pull from a registry.
    pub fn permit(
        &self,
        registry: &Endpoint,
        hop: Hop,
        target: &Endpoint,
    ) -> Result<Permit, ForeignTokenService> {
        let listed = self.registries.get(registry);
        let is_token_service_of_it = listed
            .is_some_and(|it| it.token_service.as_ref() == Some(target))
            || is_known_token_service(&registry.host, &target.host);
        // What the operator lists is for registries that he lists: no other registry leads there.
        let is_listed_too =
            listed.is_some() && (self.registries.contains_key(target) || is_token_service_of_it);
        let belongs_to_it = target.host == registry.host || is_token_service_of_it;
        let gets_credentials = match hop {
            Hop::Registry | Hop::Redirect => target == registry,
            Hop::TokenService if belongs_to_it => true,
            Hop::TokenService if is_listed_too => false,
            Hop::TokenService => return Err(ForeignTokenService),
        };
        Ok(Permit { may_be_private: is_listed_too, gets_credentials })
    }

    /// Decides about one address of an endpoint. `is_own` says that it is an address of this machine.
    pub fn allows(&self, permit: Permit, address: IpAddr, is_own: bool) -> bool {
        let address = address::unmapped(address);
        if self.refused.iter().any(|network| network.contains(address)) {
            return false;
        }
        match Class::of(address) {
            Class::Public => !is_own || permit.may_be_private,
            Class::Loopback | Class::Private | Class::LinkLocal => permit.may_be_private,
            Class::Metadata | Class::Unusable => false,
        }
    }
}

fn is_known_token_service(registry: &Host, service: &Host) -> bool {
    let (Host::Name(registry), Host::Name(service)) = (registry, service) else { return false };
    TOKEN_SERVICES.contains(&(registry.as_str(), service.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Endpoint {
        let (host, port) = text.rsplit_once(':').unwrap();
        Endpoint { host: Host::parse(host).unwrap(), port: port.parse().unwrap() }
    }

    fn rules() -> Rules {
        let token_service = Some(endpoint("gitlab.corp:443"));
        let registries = BTreeMap::from([
            (endpoint("127.0.0.1:5000"), ListedRegistry::default()),
            (endpoint("storage.corp:9000"), ListedRegistry::default()),
            (endpoint("registry.corp:443"), ListedRegistry { token_service }),
        ]);
        Rules { registries, refused: vec!["203.0.113.0/24".parse().unwrap()] }
    }

    #[test]
    fn a_host_is_a_name_or_an_address_and_nothing_else() {
        let rows = [
            ("Example.COM.", Some("example.com")),
            ("127.0.0.1", Some("127.0.0.1")),
            ("[::1]", Some("[::1]")),
            ("::1", Some("[::1]")),
            ("127.1", Some("127.1")),
            ("2130706433", Some("2130706433")),
            ("[::1", None),
            ("[127.0.0.1]", None),
            ("fe80::1%eth0", None),
            ("", None),
            (".", None),
            ("a b", None),
            ("a/b", None),
            ("user@host", None),
        ];
        for (text, expected) in rows {
            assert_eq!(Host::parse(text).map(|it| it.to_string()).as_deref(), expected, "{text}");
        }
        assert_eq!(Host::parse(&"a".repeat(254)), None);
    }

    /// (registry, hop, target) → (allowed on a private address, sees the credentials), or refused.
    type Row = (&'static str, Hop, &'static str, Option<(bool, bool)>);

    #[test]
    fn only_listed_registries_lead_to_private_addresses_and_to_other_token_services() {
        use Hop::{Redirect, Registry, TokenService};
        let rows: &[Row] = &[
            ("example.com:443", Registry, "example.com:443", Some((false, true))),
            ("127.0.0.1:5000", Registry, "127.0.0.1:5000", Some((true, true))),
            ("127.0.0.1:5001", Registry, "127.0.0.1:5001", Some((false, true))),
            // Redirects lead anywhere public, without credentials.
            ("example.com:443", Redirect, "example.com:443", Some((false, true))),
            ("example.com:443", Redirect, "example.com:8443", Some((false, false))),
            ("example.com:443", Redirect, "cdn.example.org:443", Some((false, false))),
            ("example.com:443", Redirect, "127.0.0.1:5000", Some((false, false))),
            ("127.0.0.1:5000", Redirect, "127.0.0.1:22", Some((false, false))),
            ("127.0.0.1:5000", Redirect, "storage.corp:9000", Some((true, false))),
            // Token services are on the registry's own host, or known, or listed.
            ("example.com:443", TokenService, "example.com:443", Some((false, true))),
            ("example.com:443", TokenService, "example.com:8443", Some((false, true))),
            ("example.com:443", TokenService, "auth.example.com:443", None),
            ("example.com:443", TokenService, "127.0.0.1:5000", None),
            ("example.com:443", TokenService, "169.254.169.254:80", None),
            ("127.0.0.1:5000", TokenService, "127.0.0.1:6000", Some((false, true))),
            ("127.0.0.1:5000", TokenService, "storage.corp:9000", Some((true, false))),
            ("127.0.0.1:5000", TokenService, "gitlab.corp:443", None),
            ("registry.corp:443", TokenService, "gitlab.corp:443", Some((true, true))),
            ("registry.corp:443", TokenService, "evil.example:443", None),
            ("registry-1.docker.io:443", TokenService, "auth.docker.io:443", Some((false, true))),
            ("evil.example:443", TokenService, "auth.docker.io:443", None),
        ];
        for (registry, hop, target, expected) in rows {
            let permit = rules().permit(&endpoint(registry), *hop, &endpoint(target)).ok();
            let found = permit.map(|it| (it.may_be_private, it.gets_credentials));
            assert_eq!(found, *expected, "{registry} {hop:?} {target}");
        }
    }

    #[test]
    fn an_address_is_public_or_its_endpoint_is_listed() {
        let rows = [
            // (address, is this machine's own, unlisted, listed)
            ("93.184.216.34", false, true, true),
            ("93.184.216.34", true, false, true),
            ("::ffff:93.184.216.34", false, true, true),
            ("2606:4700::1111", false, true, true),
            ("203.0.113.9", false, false, false),
            ("::ffff:203.0.113.9", false, false, false),
            ("127.0.0.1", true, false, true),
            ("::1", true, false, true),
            ("::ffff:127.0.0.1", true, false, true),
            ("10.1.2.3", false, false, true),
            ("fd12::1", false, false, true),
            ("100.64.0.1", false, false, true),
            ("169.254.1.1", false, false, true),
            ("169.254.169.254", false, false, false),
            ("168.63.129.16", false, false, false),
            ("fd00:ec2::254", false, false, false),
            ("0.0.0.0", false, false, false),
            ("224.0.0.1", false, false, false),
            ("2002:7f00:1::", false, false, false),
        ];
        for (address, is_own, unlisted, listed) in rows {
            let decide = |may_be_private| {
                let permit = Permit { may_be_private, gets_credentials: false };
                rules().allows(permit, address.parse().unwrap(), is_own)
            };
            assert_eq!((decide(false), decide(true)), (unlisted, listed), "{address}");
        }
    }
}
