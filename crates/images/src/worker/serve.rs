//! The worker's side of its socket: requests in, answers out.

use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use isolate::{
    socket::{Packet, PacketSocket},
    wire::Report,
};
use rustix::net::{RecvFlags, SendFlags};
use serde::Serialize;
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::TcpStream,
    sync::oneshot,
    task::{AbortHandle, JoinError, JoinSet},
};

use super::{
    WorkerError,
    requests::{Requests, failure},
    wire::{self, Ask, Failure, FailureKind, Hello, Request, Sealed, Tell},
};
use crate::{
    pull::{
        PullError, Puller,
        connector::{ConnectFailure, Connected, Connector, Target},
    },
    store::{Pin, Store},
};

/// The most requests that are worked on at once. The daemon asks for fewer.
const AT_ONCE: usize = 64;

/// The socket, and what requests leave for others to find.
#[derive(Clone, Debug)]
pub(super) struct Line(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    socket: AsyncFd<PacketSocket>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What pulls have brought, until the daemon keeps it itself.
    kept: HashMap<u64, Pin>,
    next_part: u64,
    /// Parts of layouts that the daemon is opening.
    opening: HashMap<u64, oneshot::Sender<io::Result<OwnedFd>>>,
    next_connection: u64,
    /// Connections that the daemon is making.
    connecting: HashMap<u64, oneshot::Sender<Result<Connected, ConnectFailure>>>,
}

/// Serves the daemon until it is gone.
pub(super) async fn serve(socket: PacketSocket, folder: &Path) -> Result<(), WorkerError> {
    let cannot = |source| WorkerError::System { doing: "use its socket", source };
    rustix::io::ioctl_fionbio(&socket, true).map_err(|errno| cannot(errno.into()))?;
    #[expect(
        deprecated,
        reason = "a PacketSocket owns its descriptor and always returns the same one, which is \
                  what the unsafe successor of this function asks for"
    )]
    let socket = AsyncFd::new(socket).map_err(cannot)?;
    let shared = Shared { socket, state: Mutex::default() };
    let line = Line(Arc::new(shared));
    let ready = isolate::wire::encode(&Report::Ready).map_err(wire::WireError::from)?;
    line.send_bytes(&ready).await.map_err(cannot)?;
    let Some(packet) = line.receive().await.map_err(cannot)? else { return Ok(()) };
    let (hello, _fds) = wire::unseal::<Hello>(packet)?;
    let root = folder.to_owned();
    let opened = tokio::task::spawn_blocking(move || Store::open(&root, hello.form)).await;
    let opened = match opened {
        Ok(opened) => opened.map_err(|error| failure(&PullError::Store(error))),
        Err(error) => Err(failure(&PullError::Stopped(error.to_string()))),
    };
    let store = match opened {
        Ok(store) => store,
        Err(failure) => return line.tell(Tell::Open(Err(failure))).await,
    };
    line.tell(Tell::Open(Ok(()))).await?;
    let requests = Requests::new(Puller::new(store, hello.settings), line.clone());
    obey(&line, &requests).await
}

async fn obey(line: &Line, requests: &Requests) -> Result<(), WorkerError> {
    let cannot = |source| WorkerError::System { doing: "use its socket", source };
    let mut tasks = JoinSet::new();
    let mut working: HashMap<u64, AbortHandle> = HashMap::new();
    loop {
        let packet = tokio::select! {
            packet = line.receive() => packet.map_err(cannot)?,
            Some(ended) = tasks.join_next() => {
                match ended {
                    Ok(told) => told?,
                    Err(error) => line.tell_of_panic(&error, &working).await?,
                }
                working.retain(|_, task| !task.is_finished());
                continue;
            }
        };
        // The tasks end with their set, and what they had unfinished goes with them.
        let Some(packet) = packet else { return Ok(()) };
        let (Request { number, ask }, fds) = wire::unseal(packet)?;
        match ask {
            Ask::Cancel => {
                if let Some(task) = working.remove(&number) {
                    task.abort();
                }
                line.release(number);
            }
            Ask::Release => line.release(number),
            Ask::Opened { part, failed } => line.opened(part, failed, fds),
            Ask::Connected { connection, outcome } => line.connected(connection, outcome, fds),
            ask if tasks.len() < AT_ONCE => {
                let requests = requests.clone();
                let task = tasks.spawn(async move { requests.answer(number, ask, fds).await });
                working.insert(number, task);
            }
            _ => {
                let message = "too much is asked at once".to_owned();
                let failure = Failure { kind: FailureKind::Busy, message };
                line.tell(Tell::Done { number, done: Err(failure) }).await?;
            }
        }
    }
}

impl Line {
    pub(super) async fn tell(&self, tell: Tell) -> Result<(), WorkerError> {
        self.send(&tell).await
    }

    /// Nobody waits for ever: a request that ended by a mistake of ours is answered too.
    async fn tell_of_panic(
        &self,
        error: &JoinError,
        working: &HashMap<u64, AbortHandle>,
    ) -> Result<(), WorkerError> {
        let number = working.iter().find(|(_, task)| task.id() == error.id());
        match number.filter(|_| error.is_panic()) {
            Some((number, _)) => {
                let failure = failure(&PullError::Stopped(error.to_string()));
                self.tell(Tell::Done { number: *number, done: Err(failure) }).await
            }
            // It was stopped because nobody waits.
            None => Ok(()),
        }
    }

    async fn send(&self, message: &impl Serialize) -> Result<(), WorkerError> {
        let sealed = Sealed::new(message, Vec::new())?;
        let cannot = |source| WorkerError::System { doing: "use its socket", source };
        let sent = self.0.socket.async_io(Interest::WRITABLE, |socket| {
            Ok(socket.send(sealed.bytes(), &sealed.fds(), SendFlags::DONTWAIT)?)
        });
        sent.await.map_err(cannot)
    }

    async fn send_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        let send = |socket: &PacketSocket| Ok(socket.send(bytes, &[], SendFlags::DONTWAIT)?);
        self.0.socket.async_io(Interest::WRITABLE, send).await
    }

    async fn receive(&self) -> io::Result<Option<Packet>> {
        let receive = |socket: &PacketSocket| Ok(socket.receive(RecvFlags::DONTWAIT)?);
        self.0.socket.async_io(Interest::READABLE, receive).await
    }

    /// Keeps what a pull has brought until the daemon does.
    pub(super) fn keep(&self, number: u64, pin: Pin) {
        self.state().kept.insert(number, pin);
    }

    fn release(&self, number: u64) {
        let pin = self.state().kept.remove(&number);
        // Its end is a file that is deleted, which needs no lock of ours.
        drop(pin);
    }

    /// Asks the daemon to open a part of a layout.
    pub(super) async fn open_part(&self, number: u64, name: String) -> io::Result<OwnedFd> {
        let (opened, is_opened) = oneshot::channel();
        let part = {
            let mut state = self.state();
            state.next_part += 1;
            let part = state.next_part;
            state.opening.insert(part, opened);
            part
        };
        let told = self.tell(Tell::Part { number, part, name }).await;
        told.map_err(io::Error::other)?;
        is_opened.await.map_err(io::Error::other)?
    }

    fn opened(&self, part: u64, failed: Option<i32>, fds: Vec<OwnedFd>) {
        let Some(waiting) = self.state().opening.remove(&part) else { return };
        let opened = match (failed, fds.into_iter().next()) {
            (Some(errno), _) => Err(io::Error::from_raw_os_error(errno)),
            (None, Some(file)) => Ok(file),
            (None, None) => Err(io::ErrorKind::NotFound.into()),
        };
        // Whoever asked may have been stopped.
        drop(waiting.send(opened));
    }

    /// Returns what asks the daemon for the connections of one pull.
    pub(super) fn connector(&self, number: u64) -> Connector {
        let line = self.clone();
        Arc::new(move |target| {
            let line = line.clone();
            Box::pin(async move { line.connect(number, target).await })
        })
    }

    async fn connect(&self, number: u64, target: Target) -> Result<Connected, ConnectFailure> {
        let (connected, is_connected) = oneshot::channel();
        let connection = {
            let mut state = self.state();
            state.next_connection += 1;
            let connection = state.next_connection;
            state.connecting.insert(connection, connected);
            connection
        };
        let lost = || ConnectFailure::Unreachable("the server ends".to_owned());
        let told = self.tell(Tell::Connect { number, connection, target }).await;
        told.map_err(|_error| lost())?;
        is_connected.await.unwrap_or_else(|_dropped| Err(lost()))
    }

    fn connected(
        &self,
        connection: u64,
        outcome: Result<wire::Permitted, ConnectFailure>,
        fds: Vec<OwnedFd>,
    ) {
        let Some(waiting) = self.state().connecting.remove(&connection) else { return };
        let connected = outcome.and_then(|wire::Permitted { gets_credentials }| {
            let broken = |error: io::Error| ConnectFailure::Unreachable(error.to_string());
            let fd = fds.into_iter().next();
            let fd = fd.ok_or_else(|| broken(io::ErrorKind::NotConnected.into()))?;
            let stream = TcpStream::from_std(fd.into()).map_err(broken)?;
            Ok(Connected { stream, gets_credentials })
        });
        // Whoever asked may have been stopped.
        drop(waiting.send(connected));
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
