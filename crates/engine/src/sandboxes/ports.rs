//! Published ports: a listener on the machine's loopback for each, whose connections go on at a port
//! inside the sandbox.

use std::{
    io,
    net::{Ipv4Addr, TcpListener as Listener},
    sync::Arc,
    time::Duration,
};

use model::{sandbox::WhenStopped, spec::Port};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    select,
    sync::{Semaphore, watch},
    time::sleep,
};

use super::{
    machine::MachineError,
    way::{Visit, Way},
};
use crate::tasks::Tasks;

/// The most ports that one sandbox publishes.
pub(super) const MAX_PORTS: usize = 64;

/// The most connections that one sandbox has through its ports. Further ones wait.
const CONNECTIONS: usize = 256;

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
}

impl Open {
    pub(super) fn begin(tasks: &Tasks, way: &Arc<Way>, bound: Bound) -> Self {
        let (listening, closed) = watch::channel(());
        let (connected, cut) = watch::channel(());
        way.opens();
        let published = Published {
            tasks: tasks.clone(),
            way: Arc::clone(way),
            room: Arc::new(Semaphore::new(CONNECTIONS)),
        };
        for (port, listener) in bound.0 {
            let (published, cut, mut closed) = (published.clone(), cut.clone(), closed.clone());
            tasks.start("published port", async move {
                select! {
                    biased;
                    _ = closed.changed() => {}
                    () = listen(published, port, listener, cut) => {}
                }
            });
        }
        Self { listening: Some(listening), _connected: connected }
    }

    /// Takes no more connections. Those that are there go on.
    pub(super) fn close(&mut self) {
        self.listening = None;
    }
}

/// What the ports of one sandbox have in common.
#[derive(Clone, Debug)]
struct Published {
    tasks: Tasks,
    way: Arc<Way>,
    room: Arc<Semaphore>,
}

/// Takes connections until it is dropped.
async fn listen(
    published: Published,
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
        let Ok(room) = Arc::clone(&published.room).acquire_owned().await else { return };
        let (way, mut cut) = (Arc::clone(&published.way), cut.clone());
        published.tasks.start("published connection", async move {
            let _room = room;
            let _visit = Visit::new(&way);
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
    let id = way.sandbox();
    let mut inside = match connect(way, port.inside).await {
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

async fn connect(way: &Way, port: u16) -> io::Result<TcpStream> {
    way.wake(WhenStopped::Refuse).await.map_err(io::Error::other)?;
    way.connect(port).await
}
