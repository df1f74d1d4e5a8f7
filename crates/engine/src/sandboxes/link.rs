//! The connection to the supervisor of one sandbox.

use std::{io, os::fd::OwnedFd, path::Path};

use isolate::{
    socket::PacketSocket,
    supervisor::wire::{self, Ask, Secret, Tell},
};
use rustix::{
    fs::{Mode, OFlags},
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
        socket_with,
    },
};
use tokio::io::{Interest, unix::AsyncFd};

use crate::spawner::register;

/// A supervisor that answers. It was told the secret, and tells everything from the beginning.
#[derive(Debug)]
pub(super) struct Link {
    socket: AsyncFd<PacketSocket>,
}

impl Link {
    /// Connects to the supervisor that listens in this folder.
    pub(super) fn open(folder: &Path, name: &str, secret: Secret) -> io::Result<Self> {
        let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, path, Mode::empty())?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &address(&folder, name)?)?;
        let link = Self { socket: register(PacketSocket::from_fd(socket))? };
        let packet = encode(&Ask::Hello { secret })?;
        link.socket.get_ref().send(&packet, &[], SendFlags::DONTWAIT)?;
        Ok(link)
    }

    /// Asks for something. Waits only while the supervisor has not read what was asked before.
    pub(super) async fn ask(&self, ask: &Ask) -> io::Result<()> {
        let packet = encode(ask)?;
        let send = |socket: &PacketSocket| Ok(socket.send(&packet, &[], SendFlags::DONTWAIT)?);
        self.socket.async_io(Interest::WRITABLE, send).await
    }

    /// Returns what it says next; `None` when it is gone, or has let somebody else in.
    pub(super) async fn next(&self) -> io::Result<Option<Tell>> {
        let receive = |socket: &PacketSocket| Ok(socket.receive(RecvFlags::DONTWAIT)?);
        match self.socket.async_io(Interest::READABLE, receive).await? {
            Some(packet) => wire::decode(&packet.bytes).map(Some).map_err(io::Error::other),
            None => Ok(None),
        }
    }
}

/// The path of a socket is at most 108 bytes long, and that of the data folder may be longer.
fn address(folder: &OwnedFd, name: &str) -> io::Result<SocketAddrUnix> {
    use std::os::fd::AsRawFd as _;
    Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))?)
}

fn encode(ask: &Ask) -> io::Result<Vec<u8>> {
    let packet = wire::encode(ask).map_err(io::Error::other)?;
    if packet.len() > isolate::wire::MAX_PACKET {
        return Err(io::ErrorKind::ArgumentListTooLong.into());
    }
    Ok(packet)
}
