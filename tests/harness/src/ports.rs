//! Ports of the machine that are for one test alone.

use std::{
    net::{Ipv4Addr, TcpListener},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
};

/// Below those that the kernel gives to whoever connects.
const ALL: std::ops::Range<u16> = 20_100..30_000;

/// A port that nobody listens on and that no other test takes while this lives.
#[derive(Debug)]
pub struct Port {
    pub number: u16,
    /// A name that one process of the machine can have, and that goes with it.
    _held: UnixListener,
}

impl Port {
    /// Finds one.
    pub fn take() -> Self {
        ALL.into_iter().find_map(Self::take_this).expect("no test needs as many ports as there are")
    }

    fn take_this(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("ringfence-test-port-{number}")).ok()?;
        let held = UnixListener::bind_addr(&name).ok()?;
        // A listener that nobody has connected to leaves nothing behind.
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, number)).ok()?;
        Some(Self { number, _held: held })
    }
}
