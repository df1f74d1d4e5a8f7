//! The connection to the supervisor of one sandbox.

use std::{
    collections::VecDeque,
    io,
    net::TcpStream,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
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
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
        socket_with,
    },
};
use tokio::io::{Interest, Ready, unix::AsyncFd};

use crate::spawner::register;

/// The most messages that are read while a request waits to be sent. A supervisor that sends more without
/// reading a single request has stopped reading.
const MAX_INBOX: usize = 65_536;

/// A message of the supervisor, and the descriptor that came with it.
type Message = (Tell, Option<OwnedFd>);

/// A supervisor that answers. It was told the secret, and tells everything from the beginning.
///
/// Requests and messages are handled by one task, so the link reads while it waits to send: a supervisor whose
/// queue of messages is full makes room for requests only when its messages are read.
#[derive(Debug)]
pub(super) struct Link {
    socket: AsyncFd<PacketSocket>,
    is_of_this_build: bool,
    /// Messages that arrived while a request waited to be sent.
    inbox: Mutex<VecDeque<Message>>,
}

impl Link {
    /// Connects to the supervisor that listens in this folder.
    pub(super) fn open(folder: &Path, secret: Secret) -> io::Result<Self> {
        let socket = first_word(folder, &Ask::Hello { secret })?;
        Ok(Self::over(socket))
    }

    fn over(socket: AsyncFd<PacketSocket>) -> Self {
        Self { socket, is_of_this_build: false, inbox: Mutex::default() }
    }

    /// Notes that this daemon itself has made the supervisor, so that it knows all words that we know.
    pub(super) fn of_this_build(self) -> Self {
        Self { is_of_this_build: true, ..self }
    }

    pub(super) fn is_of_this_build(&self) -> bool {
        self.is_of_this_build
    }

    /// Sends a request. Waits only while the supervisor has not read the requests before it.
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
        loop {
            let mut ready = self.socket.ready(Interest::READABLE | Interest::WRITABLE).await?;
            // Readiness is cleared only for the direction that was tried: clearing the other would lose its event.
            if ready.ready().is_writable() {
                match self.socket.get_ref().send(&packet, &fds, SendFlags::DONTWAIT) {
                    Err(Errno::AGAIN) => ready.clear_ready_matching(Ready::WRITABLE),
                    sent => return Ok(sent?),
                }
            }
            if ready.ready().is_readable() {
                match receive(self.socket.get_ref()) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready.clear_ready_matching(Ready::READABLE);
                    }
                    received => self.put_aside(received?)?,
                }
            }
        }
    }

    /// Keeps a message that arrived while a request waits to be sent.
    fn put_aside(&self, received: Option<Message>) -> io::Result<()> {
        let message = received.ok_or(io::ErrorKind::ConnectionReset)?;
        let mut inbox = self.inbox();
        if inbox.len() >= MAX_INBOX {
            return Err(io::Error::other("the supervisor reads no requests"));
        }
        inbox.push_back(message);
        Ok(())
    }

    /// Returns the next message; `None` when the supervisor is gone, or has accepted another connection.
    pub(super) async fn next(&self) -> io::Result<Option<Message>> {
        if let Some(message) = self.inbox().pop_front() {
            return Ok(Some(message));
        }
        self.socket.async_io(Interest::READABLE, receive).await
    }

    fn inbox(&self) -> MutexGuard<'_, VecDeque<Message>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn receive(socket: &PacketSocket) -> io::Result<Option<Message>> {
    let Some(packet) = socket.receive(RecvFlags::DONTWAIT)? else { return Ok(None) };
    let tell = wire::decode(&packet.bytes).map_err(io::Error::other)?;
    Ok(Some((tell, packet.fds.into_iter().next())))
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

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use isolate::supervisor::{
        connection::{Connection, Received},
        wire::Refusal,
    };
    use proptest::prelude::*;
    use rustix::{
        event::{PollFd, PollFlags, poll},
        net::sockopt::set_socket_send_buffer_size,
    };
    use tokio::time::timeout;

    use super::*;

    /// How many requests and messages each side sends, and how long their ids are.
    #[derive(Clone, Copy, Debug)]
    struct Flood {
        send_buffer: usize,
        asks: usize,
        tells: usize,
        length: usize,
        /// Whether the supervisor stops reading while it has messages to send, as earlier releases did.
        writes_first: bool,
    }

    fn flood() -> impl Strategy<Value = Flood> {
        (0..8_192_usize, 0..600_usize, 0..600_usize, 1..64_usize, any::<bool>()).prop_map(
            |(send_buffer, asks, tells, length, writes_first)| Flood {
                send_buffer,
                asks,
                tells,
                length,
                writes_first,
            },
        )
    }

    fn id(number: usize, length: usize) -> String {
        format!("{number:0length$}")
    }

    fn message(exec: String) -> Tell {
        Tell::Refused { exec, why: Refusal::NoSuchExec }
    }

    /// A supervisor that answers each request, and besides sends messages of its own. Returns what it was asked.
    fn supervise(socket: PacketSocket, flood: Flood) -> Vec<String> {
        rustix::io::ioctl_fionbio(&socket, true).unwrap();
        let mut connection = Connection::new(socket);
        for number in 0..flood.tells {
            connection.send(message(id(number, flood.length)), None).unwrap();
        }
        let mut asked = Vec::new();
        loop {
            let is_writing = flood.writes_first && !connection.is_flushed();
            let interest = if is_writing { PollFlags::OUT } else { connection.interest() };
            poll(&mut [PollFd::new(&connection, interest)], None).unwrap();
            connection.flush().unwrap();
            if is_writing {
                continue;
            }
            match connection.receive() {
                Received::Ask(Ask::Forget { exec }) => {
                    connection.send(message(exec.clone()), None).unwrap();
                    asked.push(exec);
                }
                Received::Ask(other) => panic!("{other:?}"),
                Received::Nothing => {}
                Received::Closed => return asked,
            }
        }
    }

    /// Sends all requests from the one task that also reads, as the task of a sandbox does.
    async fn ask_all(link: &Link, flood: Flood) -> Vec<String> {
        for number in 0..flood.asks {
            link.ask(&Ask::Forget { exec: id(number, flood.length) }).await.unwrap();
        }
        let mut told = Vec::new();
        while told.len() < flood.asks + flood.tells {
            match link.next().await.unwrap().expect("the supervisor is there") {
                (Tell::Refused { exec, .. }, _) => told.push(exec),
                (other, _) => panic!("{other:?}"),
            }
        }
        told
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn a_link_flooded_from_both_sides_delivers_every_message_in_order(flood in flood()) {
            let (ours, theirs) = PacketSocket::pair().unwrap();
            for socket in [&ours, &theirs] {
                set_socket_send_buffer_size(socket, flood.send_buffer).unwrap();
            }
            let supervisor = thread::spawn(move || supervise(theirs, flood));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let told = runtime.block_on(async {
                let link = Link::over(register(ours).unwrap());
                let told = timeout(Duration::from_mins(1), ask_all(&link, flood)).await;
                told.expect("the link is blocked")
            });
            let ids = |count| (0..count).map(|number| id(number, flood.length)).collect::<Vec<_>>();
            prop_assert_eq!(told, [ids(flood.tells), ids(flood.asks)].concat());
            prop_assert_eq!(supervisor.join().unwrap(), ids(flood.asks));
        }
    }
}
