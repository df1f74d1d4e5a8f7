//! What kind of network an address belongs to.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// What an address leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A host of the internet. The ranges for documentation count as that too: no network uses them.
    Public,
    Loopback,
    /// RFC 1918, unique local, site local, carrier-grade NAT.
    Private,
    LinkLocal,
    /// Where clouds hand out a machine's credentials.
    Metadata,
    /// No single host: unspecified, multicast, reserved; or a form that hides another address.
    Unusable,
}

/// Metadata services whose address is of another class, or of a class that can be listed.
const METADATA_V4: [Ipv4Addr; 6] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

impl Class {
    pub fn of(address: IpAddr) -> Self {
        match unmapped(address) {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        if METADATA_V4.contains(&address) {
            return Self::Metadata;
        }
        match address.octets() {
            // "This network", protocol assignments, 6to4 relays, benchmarks.
            [0, ..] | [192, 0, 0, _] | [192, 88, 99, _] | [198, 18 | 19, ..] => Self::Unusable,
            [127, ..] => Self::Loopback,
            [169, 254, ..] => Self::LinkLocal,
            [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Self::Private,
            // Multicast, reserved, broadcast.
            [224..=255, ..] => Self::Unusable,
            [..] => Self::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        if METADATA_V6.contains(&address) {
            return Self::Metadata;
        }
        if address == Ipv6Addr::LOCALHOST {
            return Self::Loopback;
        }
        match address.segments() {
            [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] => Self::Private,
            [0xfe80..=0xfebf, ..] => Self::LinkLocal,
            // Teredo and 6to4: the address of an IPv4 host is inside.
            [0x2001, 0, ..] | [0x2002, ..] => Self::Unusable,
            [0x2000..=0x3fff, ..] => Self::Public,
            // Everything else is no global unicast, among it the local-use prefix of NAT64.
            [..] => Self::Unusable,
        }
    }
}

/// Returns the IPv4 address that an IPv6 address stands for: mapped ones, and those of NAT64's
/// well-known prefix, by which a network without IPv4 reaches public hosts.
pub fn unmapped(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            Ipv4Addr::new(a, b, c, d).into()
        }
        [..] => address,
    }
}

/// A network in the notation `ADDRESS/BITS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    bits: u8,
}

/// The text is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network such as 192.0.2.0/24 or 2001:db8::/32")]
pub struct NetworkError(String);

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_error| wrong())?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(wrong)?,
            None => most,
        };
        Ok(Self { first, bits })
    }
}

impl Network {
    pub fn contains(&self, address: IpAddr) -> bool {
        let differing = match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                (first.to_bits() ^ address.to_bits()).leading_zeros()
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                (first.to_bits() ^ address.to_bits()).leading_zeros()
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
        };
        differing >= u32::from(self.bits)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_range_has_its_class() {
        use Class::{LinkLocal, Loopback, Metadata, Private, Public, Unusable};
        let rows = [
            ("0.0.0.0", Unusable),
            ("0.1.2.3", Unusable),
            ("9.255.255.255", Public),
            ("10.0.0.0", Private),
            ("10.255.255.255", Private),
            ("11.0.0.0", Public),
            ("100.63.255.255", Public),
            ("100.64.0.0", Private),
            ("100.127.255.255", Private),
            ("100.128.0.0", Public),
            ("100.100.100.200", Metadata),
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("168.63.129.16", Metadata),
            ("169.254.0.1", LinkLocal),
            ("169.254.169.254", Metadata),
            ("169.254.170.2", Metadata),
            ("172.15.255.255", Public),
            ("172.16.0.0", Private),
            ("172.31.255.255", Private),
            ("172.32.0.0", Public),
            ("192.0.0.1", Unusable),
            ("192.0.0.192", Metadata),
            ("192.0.2.1", Public),
            ("192.88.99.1", Unusable),
            ("192.168.0.1", Private),
            ("198.18.0.1", Unusable),
            ("198.20.0.1", Public),
            ("223.255.255.255", Public),
            ("224.0.0.1", Unusable),
            ("239.255.255.255", Unusable),
            ("240.0.0.1", Unusable),
            ("255.255.255.255", Unusable),
            ("::", Unusable),
            ("::1", Loopback),
            ("::2", Unusable),
            ("::127.0.0.1", Unusable),
            ("::ffff:127.0.0.1", Loopback),
            ("::ffff:10.0.0.1", Private),
            ("::ffff:169.254.169.254", Metadata),
            ("::ffff:8.8.8.8", Public),
            ("::ffff:0:127.0.0.1", Unusable),
            ("64:ff9b::7f00:1", Loopback),
            ("64:ff9b::a9fe:a9fe", Metadata),
            ("64:ff9b::808:808", Public),
            ("64:ff9b:1::808:808", Unusable),
            ("100::1", Unusable),
            ("2001::1", Unusable),
            ("2001:db8::1", Public),
            ("2002:7f00:1::", Unusable),
            ("2606:4700:4700::1111", Public),
            ("3fff::1", Public),
            ("4000::1", Unusable),
            ("fc00::1", Private),
            ("fd00:ec2::254", Metadata),
            ("fdff:ffff::1", Private),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("fec0::1", Private),
            ("ff02::1", Unusable),
        ];
        for (address, expected) in rows {
            assert_eq!(Class::of(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn a_network_has_an_address_and_at_most_as_many_bits() {
        let contains = |network: &str, address: &str| {
            let network: Network = network.parse().unwrap();
            network.contains(address.parse().unwrap())
        };
        assert!(contains("192.0.2.0/24", "192.0.2.255"));
        assert!(!contains("192.0.2.0/24", "192.0.3.0"));
        assert!(contains("192.0.2.7", "192.0.2.7") && !contains("192.0.2.7", "192.0.2.6"));
        assert!(contains("0.0.0.0/0", "8.8.8.8") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1"));
        for text in ["", "x", "1.2.3.4/33", "::/129", "1.2.3.4/", "1.2.3.4/-1", "1.2.3/8"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_spelling_of_an_ipv4_address_is_more_public_than_the_address(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            let [a, b, c, d] = address.octets();
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            let spelled = [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 0),
                Ipv6Addr::new(0x2001, 0, 1, 1, 0, 0, !high, !low),
            ];
            let plain = Class::of(address.into());
            for v6 in spelled {
                let class = Class::of(v6.into());
                prop_assert!(class == plain || class == Class::Unusable || class == Class::Loopback);
            }
        }
    }
}
