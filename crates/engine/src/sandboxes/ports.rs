//! Published ports: a listener on the machine's loopback for each, whose connections go on at a port
//! inside the sandbox.

use std::{
    io,
    net::{Ipv4Addr, TcpListener as Listener},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use isolate::supervisor::wire::Loopback;
use model::{
    ids::SandboxId,
    sandbox::{Request, WhenStopped},
    spec::Port,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    select,
    sync::{Semaphore, watch},
    time::{Instant, sleep, timeout},
};

use super::{Shared, link, machine::MachineError};

/// The most ports that one sandbox publishes.
pub(super) const MAX_PORTS: usize = 64;

/// The most connections that one sandbox has through its ports. Further ones wait.
const CONNECTIONS: usize = 256;

/// How long whoever listens inside may take to let a connection in.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);

/// How long to wait before a port is tried again that another has: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The ports of a sandbox on the machine, which nobody else can have from now on.
#[derive(Debug)]
pub(super) struct Bound(Vec<(Port, Option<TcpListener>)>);

impl Bound {
    /// Takes all of them, or none.
    pub(super) fn take(ports: &[Port]) -> Result<Self, MachineError> {
        let bound = ports.iter().map(|port| match bind(port.host) {
            Ok(listener) => Ok((*port, Some(listener))),
            Err(source) => Err(MachineError::Port { port: port.host, source }),
        });
        bound.collect::<Result<_, _>>().map(Self)
    }

    /// Takes those that can be had. The sandbox lives already: the others are waited for.
    pub(super) fn take_free(ports: &[Port]) -> Self {
        let bound = ports.iter().map(|port| {
            let failed = |error: &io::Error| {
                tracing::warn!(port = port.host, %error, "another has the port: waiting for it");
            };
            (*port, bind(port.host).inspect_err(failed).ok())
        });
        Self(bound.collect())
    }
}

fn bind(port: u16) -> io::Result<TcpListener> {
    // Nobody else can listen there then: the kernel refuses a second one.
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Ports that are open. Whoever drops this cuts their connections.
#[derive(Debug)]
pub(super) struct Open {
    listening: Option<watch::Sender<()>>,
    /// Held so that connections see when it is dropped.
    _connected: watch::Sender<()>,
    usage: Arc<Usage>,
}

impl Open {
    pub(super) fn begin(shared: &Arc<Shared>, sandbox: &SandboxId, bound: Bound) -> Self {
        let (listening, closed) = watch::channel(());
        let (connected, cut) = watch::channel(());
        let usage = Arc::new(Usage::default());
        let way = Arc::new(Way {
            shared: Arc::downgrade(shared),
            sandbox: sandbox.clone(),
            room: Arc::new(Semaphore::new(CONNECTIONS)),
            asking: Semaphore::new(1),
            usage: Arc::clone(&usage),
        });
        for (port, listener) in bound.0 {
            let (way, cut, mut closed) = (Arc::clone(&way), cut.clone(), closed.clone());
            shared.tasks.start("published port", async move {
                select! {
                    biased;
                    _ = closed.changed() => {}
                    () = listen(way, port, listener, cut) => {}
                }
            });
        }
        Self { listening: Some(listening), _connected: connected, usage }
    }

    /// Takes no more connections. Those that are there go on.
    pub(super) fn close(&mut self) {
        self.listening = None;
    }

    /// Returns for how long nobody has been connected.
    pub(super) fn unused_for(&self) -> Duration {
        let state = self.usage.state();
        if state.connections > 0 { Duration::ZERO } else { state.last.elapsed() }
    }
}

/// What is known of the connections to a sandbox. They keep it from being idle.
#[derive(Debug, Default)]
struct Usage(Mutex<Used>);

#[derive(Debug)]
struct Used {
    connections: usize,
    last: Instant,
}

impl Default for Used {
    fn default() -> Self {
        Self { connections: 0, last: Instant::now() }
    }
}

impl Usage {
    fn state(&self) -> MutexGuard<'_, Used> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one connection, however it ends.
struct Counted(Arc<Usage>);

impl Counted {
    fn new(usage: &Arc<Usage>) -> Self {
        usage.state().connections += 1;
        Self(Arc::clone(usage))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.connections -= 1;
        state.last = Instant::now();
    }
}

/// How to get into a sandbox.
#[derive(Debug)]
struct Way {
    shared: Weak<Shared>,
    sandbox: SandboxId,
    room: Arc<Semaphore>,
    /// A supervisor lets few wait before its door, so they come one by one.
    asking: Semaphore,
    usage: Arc<Usage>,
}

/// Takes connections until it is dropped.
async fn listen(
    way: Arc<Way>,
    port: Port,
    listener: Option<TcpListener>,
    cut: watch::Receiver<()>,
) {
    let listener = match listener {
        Some(listener) => listener,
        None => bind_when_free(port.host).await,
    };
    loop {
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                tracing::warn!(port = port.host, %error, "cannot take a connection");
                sleep(FIRST_PAUSE).await;
                continue;
            }
        };
        let Ok(room) = Arc::clone(&way.room).acquire_owned().await else { return };
        let Some(shared) = way.shared.upgrade() else { return };
        let (way, mut cut) = (Arc::clone(&way), cut.clone());
        shared.tasks.start("published connection", async move {
            let _room = room;
            let _counted = Counted::new(&way.usage);
            select! {
                biased;
                _ = cut.changed() => {}
                () = carry(&way, client, port) => {}
            }
        });
    }
}

async fn bind_when_free(port: u16) -> TcpListener {
    let mut pause = FIRST_PAUSE;
    loop {
        sleep(pause).await;
        match bind(port) {
            Ok(listener) => return listener,
            Err(error) => tracing::debug!(port, %error, "another still has the port"),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Carries bytes in both directions until both are at their end.
async fn carry(way: &Way, mut client: TcpStream, port: Port) {
    let id = &way.sandbox;
    let mut inside = match way.connect(port.inside).await {
        Ok(inside) => inside,
        Err(error) => {
            tracing::debug!(sandbox = %id, port = port.inside, %error, "nobody is there");
            // An end without a word would look like an answer.
            let _ = rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO));
            return;
        }
    };
    for stream in [&client, &inside] {
        // Slower without it, but no worse.
        let _ = stream.set_nodelay(true);
    }
    if let Err(error) = copy_bidirectional(&mut client, &mut inside).await {
        tracing::debug!(sandbox = %id, port = port.inside, %error, "a connection broke");
    }
}

impl Way {
    /// Connects to a port inside. Programs listen on one loopback, on the other, or on both.
    async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        self.wake().await?;
        match self.connect_at(port, Loopback::V4).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.connect_at(port, Loopback::V6).await
            }
            other => other,
        }
    }

    /// Using a frozen sandbox thaws it.
    async fn wake(&self) -> io::Result<()> {
        let shared = self.shared.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        let used = shared.ask_living(&self.sandbox, Request::Use(WhenStopped::Refuse)).await;
        used.ok_or(io::ErrorKind::NotConnected)?.map(drop).map_err(io::Error::other)
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
}
