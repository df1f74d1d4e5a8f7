//! The connection to the supervisor of one sandbox.

use std::{
    io,
    net::TcpStream,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use isolate::{
    sandbox::folder,
    socket::PacketSocket,
    supervisor::{
        large,
        wire::{self, Ask, Loopback, Secret, Tell, User},
    },
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
    is_of_this_build: bool,
}

impl Link {
    /// Connects to the supervisor that listens in this folder.
    pub(super) fn open(folder: &Path, secret: Secret) -> io::Result<Self> {
        let socket = first_word(folder, &Ask::Hello { secret })?;
        Ok(Self { socket, is_of_this_build: false })
    }

    /// Notes that this daemon itself has made the supervisor, so that it knows all words that we know.
    pub(super) fn of_this_build(self) -> Self {
        Self { is_of_this_build: true, ..self }
    }

    pub(super) fn is_of_this_build(&self) -> bool {
        self.is_of_this_build
    }

    /// Asks for something. Waits only while the supervisor has not read what was asked before.
    pub(super) async fn ask(&self, ask: &Ask) -> io::Result<()> {
        let mut packet = wire::encode(ask).map_err(io::Error::other)?;
        let mut file = None;
        if packet.len() > isolate::wire::MAX_PACKET {
            if packet.len() > large::LONGEST {
                return Err(io::ErrorKind::ArgumentListTooLong.into());
            }
            file = Some(large::pack(&packet)?);
            packet = encode(&Ask::InFile)?;
        }
        let fds: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        let send = |socket: &PacketSocket| Ok(socket.send(&packet, &fds, SendFlags::DONTWAIT)?);
        self.socket.async_io(Interest::WRITABLE, send).await
    }

    /// Returns what it says next, and what came along; `None` when it is gone, or has let somebody
    /// else in.
    pub(super) async fn next(&self) -> io::Result<Option<(Tell, Option<OwnedFd>)>> {
        let receive = |socket: &PacketSocket| Ok(socket.receive(RecvFlags::DONTWAIT)?);
        match self.socket.async_io(Interest::READABLE, receive).await? {
            Some(packet) => {
                let tell = wire::decode(&packet.bytes).map_err(io::Error::other)?;
                Ok(Some((tell, packet.fds.into_iter().next())))
            }
            None => Ok(None),
        }
    }
}

/// Has the supervisor that listens in this folder begin a connection to a port inside. Whether
/// somebody is there shows when the socket can be written to.
pub(super) async fn connect_inside(
    folder: &Path,
    secret: Secret,
    port: u16,
    at: Loopback,
) -> io::Result<TcpStream> {
    const OLD: &str = "its supervisor knows no published ports: stop the sandbox and resume it";
    let socket = first_word(folder, &Ask::Connect { secret, port, at })?;
    let receive = |socket: &PacketSocket| Ok(socket.receive(RecvFlags::DONTWAIT)?);
    let Some(packet) = socket.async_io(Interest::READABLE, receive).await? else {
        return Err(io::Error::other(OLD));
    };
    match wire::decode(&packet.bytes).map_err(io::Error::other)? {
        Tell::Connecting => match packet.fds.into_iter().next() {
            Some(socket) => Ok(TcpStream::from(socket)),
            None => Err(io::Error::other("no socket came along")),
        },
        Tell::NotConnecting { errno } => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(io::Error::other("the supervisor answered something else")),
    }
}

/// Has the supervisor that listens in this folder start a process that works on files. Returns its
/// socket; nothing if this supervisor cannot.
pub(super) async fn files_inside(
    folder: &Path,
    secret: Secret,
    user: User,
) -> io::Result<Option<OwnedFd>> {
    let socket = first_word(folder, &Ask::Files { secret, user })?;
    let receive = |socket: &PacketSocket| Ok(socket.receive(RecvFlags::DONTWAIT)?);
    let Some(packet) = socket.async_io(Interest::READABLE, receive).await? else {
        return Ok(None);
    };
    match wire::decode(&packet.bytes).map_err(io::Error::other)? {
        Tell::Files => match packet.fds.into_iter().next() {
            Some(socket) => Ok(Some(socket)),
            None => Err(io::Error::other("no socket came along")),
        },
        Tell::NoFiles { errno } => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(io::Error::other("the supervisor answered something else")),
    }
}

/// Connects to a supervisor and says the first word.
fn first_word(folder: &Path, ask: &Ask) -> io::Result<AsyncFd<PacketSocket>> {
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, path, Mode::empty())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &address(&folder, folder::SOCKET)?)?;
    let socket = register(PacketSocket::from_fd(socket))?;
    socket.get_ref().send(&encode(ask)?, &[], SendFlags::DONTWAIT)?;
    Ok(socket)
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
