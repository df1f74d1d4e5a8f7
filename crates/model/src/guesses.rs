//! How often somebody may show what opens nothing: wrong keys, and tokens that nobody gave out.
//!
//! Secrets are too long to be guessed. This is about the work that each guess makes: whoever sends them without end is
//! told to wait, while all who share his address and have a good credential go on.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use crate::policy::Bucket;

/// Networks that are told apart. Further ones are counted as one.
pub const MAX_NETWORKS: usize = 4096;

/// How long to wait between two looks for those that can be forgotten.
const SWEEP: Duration = Duration::from_secs(1);

/// What one peer has for itself: an address, or in IPv6 all that begin with the same 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    V4(Ipv4Addr),
    V6(u64),
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments().map(u64::from);
                Self::V6(a << 48 | b << 32 | c << 16 | d)
            }
        }
    }
}

/// Who a request comes from, as far as that can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comer {
    /// Somebody at the other end of the connection.
    Direct(Network),
    /// Somebody for whom a proxy speaks, on a connection that it uses for others too.
    Forwarded(Network),
    /// Nobody can say: this machine itself, and a proxy that does not say for whom it speaks.
    Unknown,
}

impl Comer {
    /// Tells who comes from this address. What a proxy says (`X-Forwarded-For`) counts only where a proxy is all
    /// that can connect, and of that the last, which the proxy itself has seen.
    pub fn of(address: IpAddr, is_behind_proxy: bool, forwarded: Option<&str>) -> Self {
        if is_behind_proxy {
            let last = forwarded.and_then(|list| list.rsplit(',').next());
            let address = last.and_then(|text| read(text.trim()));
            return address.map_or(Self::Unknown, |it| Self::Forwarded(it.into()));
        }
        if address.to_canonical().is_loopback() {
            return Self::Unknown;
        }
        Self::Direct(address.into())
    }

    fn network(self) -> Option<Network> {
        match self {
            Self::Direct(network) | Self::Forwarded(network) => Some(network),
            Self::Unknown => None,
        }
    }
}

/// Reads an address, with or without a port.
fn read(text: &str) -> Option<IpAddr> {
    let with_port = || text.parse::<std::net::SocketAddr>().map(|it| it.ip()).ok();
    text.parse().ok().or_else(with_port)
}

/// What the last request on a connection has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Nothing that is wrong.
    Fair,
    Wrong,
}

/// The wrong credentials of the last second, by who showed them.
#[derive(Debug)]
pub struct Guesses {
    per_second: u32,
    networks: HashMap<Network, Bucket>,
    /// Those for whom there is no place of their own.
    others: Bucket,
    swept: Duration,
}

impl Guesses {
    /// Lets each network show so many in a second, and as many at once.
    pub fn new(per_second: u32) -> Self {
        let (networks, swept) = (HashMap::new(), Duration::ZERO);
        Self { per_second, networks, others: Bucket::FULL, swept }
    }

    /// Decides whether a request is looked at: not if its connection has shown nothing good last, and its network
    /// too much that is wrong. A connection that others use too is always heard, for they may have good ones.
    pub fn hear(&self, comer: Comer, last: Shown, now: Duration) -> Result<(), Duration> {
        match (comer, last) {
            (Comer::Direct(network), Shown::Wrong) => {
                // A copy is asked, so that nothing is counted yet.
                let mut bucket = self.networks.get(&network).copied().unwrap_or(Bucket::FULL);
                bucket.take(now, self.per_second)
            }
            (Comer::Direct(_), Shown::Fair) | (Comer::Forwarded(_) | Comer::Unknown, _) => Ok(()),
        }
    }

    /// Counts one that is wrong, or says how long to wait with the next.
    pub fn count(&mut self, comer: Comer, now: Duration) -> Result<(), Duration> {
        let Some(network) = comer.network() else { return Ok(()) };
        if self.networks.len() >= MAX_NETWORKS && now.saturating_sub(self.swept) >= SWEEP {
            self.swept = now;
            self.networks.retain(|_, bucket| !bucket.is_full(now, self.per_second));
        }
        let has_room = self.networks.len() < MAX_NETWORKS;
        let bucket = match self.networks.get_mut(&network) {
            Some(bucket) => bucket,
            None if has_room => self.networks.entry(network).or_insert(Bucket::FULL),
            None => &mut self.others,
        };
        bucket.take(now, self.per_second)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    fn direct(text: &str) -> Comer {
        Comer::Direct(text.parse::<IpAddr>().unwrap().into())
    }

    fn forwarded(text: &str) -> Comer {
        Comer::Forwarded(text.parse::<IpAddr>().unwrap().into())
    }

    const AT: Duration = Duration::from_secs(100);

    #[test]
    fn who_comes_is_told_by_the_connection_or_by_the_proxy_that_is_all_who_can_connect() {
        let rows = [
            ("203.0.113.7", false, None, direct("203.0.113.7")),
            ("::ffff:203.0.113.7", false, None, direct("203.0.113.7")),
            // What anybody can write tells nothing.
            ("203.0.113.7", false, Some("198.51.100.1"), direct("203.0.113.7")),
            ("127.0.0.1", false, Some("198.51.100.1"), Comer::Unknown),
            ("::1", false, None, Comer::Unknown),
            ("::ffff:127.0.0.1", false, None, Comer::Unknown),
            ("127.0.0.1", true, Some("198.51.100.1"), forwarded("198.51.100.1")),
            ("10.0.0.7", true, Some("198.51.100.1"), forwarded("198.51.100.1")),
            // The last is what the proxy has seen.
            ("10.0.0.7", true, Some("6.6.6.6, 198.51.100.1"), forwarded("198.51.100.1")),
            ("10.0.0.7", true, Some("198.51.100.1:4711"), forwarded("198.51.100.1")),
            ("10.0.0.7", true, Some("[2001:db8::1]:4711"), forwarded("2001:db8::1")),
            ("10.0.0.7", true, Some("2001:db8::1"), forwarded("2001:db8::ffff")),
            ("10.0.0.7", true, Some("198.51.100.1, unknown"), Comer::Unknown),
            ("10.0.0.7", true, Some(""), Comer::Unknown),
            ("10.0.0.7", true, None, Comer::Unknown),
        ];
        for (address, is_behind_proxy, said, expected) in rows {
            let comer = Comer::of(address.parse().unwrap(), is_behind_proxy, said);
            assert_eq!(comer, expected, "{address} {is_behind_proxy} {said:?}");
        }
        assert_ne!(direct("2001:db8::1"), direct("2001:db8:0:1::1"));
    }

    /// J14.
    #[test]
    fn j14_wrong_credentials_wait_and_good_ones_go_on() {
        let (ours, theirs) = (direct("203.0.113.7"), direct("203.0.113.8"));
        let proxied = forwarded("198.51.100.1");
        let mut guesses = Guesses::new(5);
        for comer in [ours, proxied] {
            for _ in 0..5 {
                assert_eq!(guesses.hear(comer, Shown::Wrong, AT), Ok(()));
                assert_eq!(guesses.count(comer, AT), Ok(()));
            }
            assert_eq!(guesses.count(comer, AT), Err(Duration::from_millis(200)));
        }
        let wait = Err(Duration::from_millis(200));
        let rows = [
            // The connection of the flood is not heard; others of the same address are.
            (ours, Shown::Wrong, wait),
            (ours, Shown::Fair, Ok(())),
            (theirs, Shown::Wrong, Ok(())),
            // A proxy's connection may be anybody's.
            (proxied, Shown::Wrong, Ok(())),
            (Comer::Unknown, Shown::Wrong, Ok(())),
        ];
        for (comer, last, expected) in rows {
            assert_eq!(guesses.hear(comer, last, AT), expected, "{comer:?} {last:?}");
        }
        assert_eq!(guesses.hear(ours, Shown::Wrong, AT + Duration::from_millis(200)), Ok(()));
        // Nobody is locked out by what this machine, or a proxy that says nothing, sends.
        for _ in 0..1000 {
            assert_eq!(guesses.count(Comer::Unknown, AT), Ok(()));
        }
    }

    #[test]
    fn j14_memory_is_bounded_and_who_has_waited_is_forgotten() {
        let mut guesses = Guesses::new(5);
        let comer = |number: u32| {
            Comer::Direct(IpAddr::V6(Ipv6Addr::from(u128::from(number) << 64)).into())
        };
        for number in 0..20_000 {
            let counted = guesses.count(comer(number), AT);
            let has_place = number < 4096 + 5;
            assert_eq!(counted.is_ok(), has_place, "{number}");
        }
        assert_eq!(guesses.networks.len(), MAX_NETWORKS);
        let later = AT + SWEEP;
        assert_eq!(guesses.count(comer(30_000), later), Ok(()));
        assert_eq!(guesses.networks.len(), 1);
    }

    proptest! {
        #[test]
        fn anything_a_proxy_says_is_read_or_passed_over(said: String) {
            Comer::of(IpAddr::V4(Ipv4Addr::LOCALHOST), true, Some(&said));
        }
    }
}
