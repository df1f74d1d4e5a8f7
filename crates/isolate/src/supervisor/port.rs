//! Connections to ports inside the sandbox, whose network only it and its commands are in.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SendFlags, SocketFlags, SocketType, connect, socket_with},
};

use super::wire::{self, Loopback, Tell};
use crate::socket::PacketSocket;

/// Answers with a socket that is being connected. Nobody waits for the other side here: whoever
/// gets the socket does.
pub(super) fn answer(asker: &PacketSocket, port: u16, at: Loopback) {
    let (tell, socket) = match begin(port, at) {
        Ok(socket) => (Tell::Connecting, Some(socket)),
        Err(errno) => (Tell::NotConnecting { errno: errno.raw_os_error() }, None),
    };
    let fds: Vec<_> = socket.iter().map(AsFd::as_fd).collect();
    if let Ok(packet) = wire::encode(&tell) {
        // Whoever has gone away again needs nothing.
        let _ = asker.send(&packet, &fds, SendFlags::DONTWAIT);
    }
}

fn begin(port: u16, at: Loopback) -> Result<OwnedFd, Errno> {
    let (family, address) = match at {
        Loopback::V4 => (AddressFamily::INET, SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        Loopback::V6 => (AddressFamily::INET6, SocketAddr::from((Ipv6Addr::LOCALHOST, port))),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(other) => Err(other),
    }
}
