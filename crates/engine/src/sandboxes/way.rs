//! The way into a sandbox: connections to ports inside it, which its supervisor begins.
//!
//! Published ports and the data plane go the same way. A sandbox is not idle while somebody is
//! connected, and whoever is connected when it is stopped is cut off.

mod connection;

use std::{
    collections::HashMap,
    io,
    num::NonZeroU16,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use isolate::supervisor::wire::Loopback;
use model::{
    ids::SandboxId,
    sandbox::{Request, WhenStopped},
};
use rustix::net::Shutdown;
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

pub use connection::Connection;

use super::{SandboxError, Shared, link};

/// The most connections that callers have to one sandbox. Further ones are refused.
const CONNECTIONS: usize = 256;

/// How long whoever listens inside may take to let a connection in.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);

/// How long a stopped sandbox may take to be ready again.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// Why there is no connection to a port inside.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("nobody listens at port {0} in the sandbox")]
    NobodyListens(NonZeroU16),
    #[error("the sandbox has {CONNECTIONS} connections already")]
    TooMany,
    #[error("the sandbox did not let the connection in within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// It cannot be used as it is now.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("the connection into the sandbox could not be made")]
    Broken(#[source] io::Error),
}

/// How to get into one sandbox. There is one for all lives of its task.
#[derive(Debug)]
pub(super) struct Way {
    shared: Weak<Shared>,
    sandbox: SandboxId,
    /// Of the connections that callers have.
    room: Arc<Semaphore>,
    /// A supervisor lets few wait before its door, so they come one by one.
    asking: Semaphore,
    visits: Mutex<Visits>,
}

/// Who is inside.
#[derive(Debug, Default)]
struct Visits {
    /// Those of callers, to be cut off.
    callers: HashMap<u64, Weak<TcpStream>>,
    next: u64,
    /// All connections, those through published ports too.
    count: usize,
    /// When somebody was inside, if not now.
    last: Option<Instant>,
    /// How often everybody was cut off.
    cuts: u64,
}

impl Way {
    pub(super) fn new(shared: &Arc<Shared>, sandbox: SandboxId) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::downgrade(shared),
            sandbox,
            room: Arc::new(Semaphore::new(CONNECTIONS)),
            asking: Semaphore::new(1),
            visits: Mutex::default(),
        })
    }

    pub(super) fn sandbox(&self) -> &SandboxId {
        &self.sandbox
    }

    /// Returns when nobody will have been inside for so long, if anybody ever was.
    pub(super) fn unused_for(&self, time: Duration) -> Option<Instant> {
        let visits = self.visits();
        let last = if visits.count > 0 { Some(Instant::now()) } else { visits.last };
        last.and_then(|last| last.checked_add(time))
    }

    /// Notes that somebody could come in from now on.
    pub(super) fn opens(&self) {
        self.visits().last = Some(Instant::now());
    }

    /// Cuts off every caller. Those of published ports are cut by whoever closes the ports.
    pub(super) fn cut(&self) {
        let cut = {
            let mut visits = self.visits();
            visits.cuts += 1;
            std::mem::take(&mut visits.callers)
        };
        for stream in cut.into_values().filter_map(|stream| stream.upgrade()) {
            // One that is closed already needs no cut.
            let _ = rustix::net::shutdown(&*stream, Shutdown::Both);
        }
    }

    /// Connects a caller to a port inside.
    pub(super) async fn visit(
        self: &Arc<Self>,
        port: NonZeroU16,
        when_stopped: WhenStopped,
    ) -> Result<Connection, ConnectError> {
        let room = Arc::clone(&self.room).try_acquire_owned();
        let room = room.map_err(|_full| ConnectError::TooMany)?;
        let visit = Visit::new(self);
        match timeout(READY_WITHIN, self.wake(when_stopped)).await {
            Ok(awake) => awake?,
            Err(_) => return Err(ConnectError::TimedOut(READY_WITHIN)),
        }
        let cuts = self.visits().cuts;
        let stream = self.connect(port.get()).await.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => ConnectError::NobodyListens(port),
            io::ErrorKind::TimedOut => ConnectError::TimedOut(CONNECTED_WITHIN),
            _ => ConnectError::Broken(error),
        })?;
        // Slower without it, but no worse.
        let _ = stream.set_nodelay(true);
        self.admit(stream, visit, room, cuts).ok_or_else(|| {
            let stopped = "the sandbox was stopped meanwhile".to_owned();
            SandboxError::Unavailable(stopped).into()
        })
    }

    /// Lets a connection in, unless everybody was cut off since it was begun.
    fn admit(
        &self,
        stream: TcpStream,
        mut visit: Visit,
        room: OwnedSemaphorePermit,
        cuts: u64,
    ) -> Option<Connection> {
        let stream = Arc::new(stream);
        let mut visits = self.visits();
        if visits.cuts != cuts {
            drop(visits);
            return None;
        }
        let number = visits.next;
        visits.next += 1;
        visits.callers.insert(number, Arc::downgrade(&stream));
        drop(visits);
        visit.number = Some(number);
        Some(Connection::new(stream, visit, room))
    }

    /// Using a frozen sandbox thaws it, and using a stopped one may start it.
    pub(super) async fn wake(&self, when_stopped: WhenStopped) -> Result<(), SandboxError> {
        let gone = || SandboxError::Unavailable("the server is shutting down".to_owned());
        let shared = self.shared.upgrade().ok_or_else(gone)?;
        shared.request(&self.sandbox, Request::Use(when_stopped)).await.map(drop)
    }

    /// Connects to a port inside. Programs listen on one loopback, on the other, or on both.
    pub(super) async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        match self.connect_at(port, Loopback::V4).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.connect_at(port, Loopback::V6).await
            }
            other => other,
        }
    }

    async fn connect_at(&self, port: u16, at: Loopback) -> io::Result<TcpStream> {
        let socket = {
            let _turn = self.asking.acquire().await.map_err(io::Error::other)?;
            let shared = self.shared.upgrade().ok_or(io::ErrorKind::NotConnected)?;
            let (folder, secret) = shared.machine.door(self.sandbox.as_str());
            timeout(CONNECTED_WITHIN, link::connect_inside(&folder, secret, port, at)).await??
        };
        let stream = TcpStream::from_std(socket)?;
        timeout(CONNECTED_WITHIN, stream.writable()).await??;
        match stream.take_error()? {
            Some(error) => Err(error),
            None => Ok(stream),
        }
    }

    fn visits(&self) -> MutexGuard<'_, Visits> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one connection, however it ends.
#[derive(Debug)]
pub(super) struct Visit {
    way: Arc<Way>,
    /// Its number among those of callers, once it is one.
    number: Option<u64>,
}

impl Visit {
    pub(super) fn new(way: &Arc<Way>) -> Self {
        way.visits().count += 1;
        Self { way: Arc::clone(way), number: None }
    }

    /// Tells whether this connection was cut off.
    fn is_cut(&self) -> bool {
        let visits = self.way.visits();
        self.number.is_some_and(|number| !visits.callers.contains_key(&number))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut visits = self.way.visits();
        if let Some(number) = self.number {
            visits.callers.remove(&number);
        }
        visits.count -= 1;
        visits.last = Some(Instant::now());
    }
}
