//! The daemon's side of one worker: requests out, answers in. What the worker says is not trusted:
//! it reads what strangers packed.

use std::{
    collections::HashMap,
    future::Future,
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ::images::{
    pull::{
        Listener,
        connector::{self, ConnectFailure, Target},
        open_in,
    },
    worker::wire::{self, Answer, Ask, Failure, Hello, Permitted, Request, Sealed, Tell},
};
use isolate::{
    socket::{Packet, PacketSocket},
    wire::Report,
};
use model::outbound::{Endpoint, Hop, Host};
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{oneshot, watch},
};

use super::error::{ImageError, chain};
use crate::{
    outbound::{ConnectError, Connector},
    spawner::register,
    tasks::Tasks,
};

/// The connection to one worker. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    socket: AsyncFd<PacketSocket>,
    state: Mutex<State>,
    /// How many are using it right now.
    uses: watch::Sender<usize>,
    connector: Connector,
    tasks: Tasks,
}

#[derive(Debug, Default)]
struct State {
    is_gone: bool,
    next: u64,
    asked: HashMap<u64, Asked>,
    /// Parts and connections that the worker is waiting for.
    serving: usize,
}

#[derive(Debug)]
struct Asked {
    answer: oneshot::Sender<Result<Answer, Failure>>,
    listener: Option<Listener>,
    /// The folder of the layout whose parts the worker may ask for.
    layout: Option<Arc<OwnedFd>>,
    /// The registry of the pull, which connections are made for.
    registry: Option<Endpoint>,
}

/// What goes along with a request.
#[derive(Debug, Default)]
pub(super) struct Along {
    pub(super) file: Option<OwnedFd>,
    pub(super) listener: Option<Listener>,
    pub(super) layout: Option<Arc<OwnedFd>>,
    pub(super) registry: Option<Endpoint>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    Failed(Failure),
    /// The worker is gone, and what it did is undone.
    Gone,
}

/// A request on its way, whose end can be waited for.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) number: u64,
    answer: oneshot::Receiver<Result<Answer, Failure>>,
}

impl Pending {
    pub(super) async fn answer(&mut self) -> Result<Answer, Unanswered> {
        match (&mut self.answer).await {
            Ok(done) => done.map_err(Unanswered::Failed),
            Err(_dropped) => Err(Unanswered::Gone),
        }
    }
}

/// Keeps the worker from being let go as idle.
#[derive(Debug)]
pub(super) struct Use(Link);

impl Drop for Use {
    fn drop(&mut self) {
        self.0.shared.uses.send_modify(|count| *count -= 1);
    }
}

impl std::ops::Deref for Use {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.0
    }
}

impl Link {
    /// Takes over the socket to a new worker, and returns once that has opened its store.
    pub(super) async fn open(
        socket: OwnedFd,
        hello: Hello,
        connector: Connector,
        tasks: Tasks,
    ) -> Result<Self, ImageError> {
        let failed = |error: io::Error| ImageError::Worker { message: error.to_string() };
        let socket = register(PacketSocket::from_fd(socket)).map_err(failed)?;
        let (state, uses) = (Mutex::default(), watch::Sender::new(0));
        let shared = Shared { socket, state, uses, connector, tasks };
        let link = Self { shared: Arc::new(shared) };
        link.expect_ready().await?;
        link.send(&Sealed::new(hello, Vec::new()).map_err(|error| not_understood(&error))?)
            .await
            .map_err(failed)?;
        let (tell, _fds) = wire::unseal::<Tell>(link.first_packets().await?)
            .map_err(|error| not_understood(&error))?;
        match tell {
            Tell::Open(Ok(())) => {}
            Tell::Open(Err(failure)) => return Err(ImageError::from_worker("", &failure)),
            Tell::Progress { .. }
            | Tell::Part { .. }
            | Tell::Connect { .. }
            | Tell::Done { .. } => {
                return Err(ImageError::Worker { message: "it does not keep to order".into() });
            }
        }
        let reader = link.clone();
        link.shared.tasks.start("image worker", async move { reader.read().await });
        Ok(link)
    }

    async fn expect_ready(&self) -> Result<(), ImageError> {
        let packet = self.first_packets().await?;
        let report =
            isolate::wire::decode(&packet.bytes).map_err(|error| not_understood(&error))?;
        match report {
            Report::Ready => Ok(()),
            Report::Broken(broken) => Err(ImageError::Worker { message: broken.to_string() }),
            Report::NoPath(no_path) => Err(ImageError::Worker { message: no_path.to_string() }),
            Report::Exited { .. } => Err(ImageError::Worker { message: "it ended".into() }),
        }
    }

    async fn first_packets(&self) -> Result<Packet, ImageError> {
        match self.receive().await {
            Ok(Some(packet)) => Ok(packet),
            Ok(None) => Err(ImageError::Worker { message: "it ended at its start".into() }),
            Err(error) => Err(ImageError::Worker { message: error.to_string() }),
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.state().is_gone
    }

    /// Begins to use it.
    pub(super) fn begin(&self) -> Use {
        self.shared.uses.send_modify(|count| *count += 1);
        Use(self.clone())
    }

    pub(super) fn uses(&self) -> watch::Receiver<usize> {
        self.shared.uses.subscribe()
    }

    /// Lets the worker go: it ends.
    pub(super) fn close(&self) {
        self.lose();
        // It may be gone already.
        let _ = rustix::net::shutdown(self.shared.socket.get_ref(), Shutdown::Both);
    }

    /// Sends a request. Its answer can be waited for, or not.
    pub(super) async fn ask(&self, ask: Ask, along: Along) -> Result<Pending, Unanswered> {
        let (answer, answered) = oneshot::channel();
        let number = {
            let mut state = self.state();
            if state.is_gone {
                return Err(Unanswered::Gone);
            }
            state.next += 1;
            let number = state.next;
            let (listener, layout, registry) = (along.listener, along.layout, along.registry);
            let asked = Asked { answer, listener, layout, registry };
            state.asked.insert(number, asked);
            number
        };
        let posted = self.post(number, ask, along.file.into_iter().collect()).await;
        // Whoever asks next is not to find this one again.
        posted.inspect_err(|_unanswered| self.close())?;
        Ok(Pending { number, answer: answered })
    }

    /// Says something about an earlier request that has no answer of its own.
    pub(super) async fn say(&self, number: u64, ask: Ask) {
        // A worker that is gone needs to be told nothing.
        drop(self.post(number, ask, Vec::new()).await);
        self.state().asked.remove(&number);
    }

    async fn post(&self, number: u64, ask: Ask, fds: Vec<OwnedFd>) -> Result<(), Unanswered> {
        let sealed =
            Sealed::new(Request { number, ask }, fds).map_err(|_error| Unanswered::Gone)?;
        self.send(&sealed).await.map_err(|_gone| Unanswered::Gone)
    }

    async fn send(&self, sealed: &Sealed) -> io::Result<()> {
        let send = |socket: &PacketSocket| {
            Ok(socket.send(sealed.bytes(), &sealed.fds(), SendFlags::DONTWAIT)?)
        };
        self.shared.socket.async_io(Interest::WRITABLE, send).await
    }

    async fn receive(&self) -> io::Result<Option<Packet>> {
        let receive = |socket: &PacketSocket| Ok(socket.receive(RecvFlags::DONTWAIT)?);
        self.shared.socket.async_io(Interest::READABLE, receive).await
    }

    async fn read(&self) {
        loop {
            let Ok(Some(packet)) = self.receive().await else { break };
            match wire::unseal::<Tell>(packet) {
                Ok((tell, _fds)) => self.hear(tell),
                Err(error) => {
                    tracing::warn!(%error, "the image worker is not understood and is let go");
                    break;
                }
            }
        }
        self.close();
        tracing::debug!("image worker gone");
    }

    /// Never waits: while this side does not read, the worker could not write.
    fn hear(&self, tell: Tell) {
        match tell {
            Tell::Open(_) => {}
            Tell::Progress { number, progress } => {
                if let Some(Asked { listener: Some(listener), .. }) =
                    self.state().asked.get(&number)
                {
                    listener.send_replace(progress);
                }
            }
            Tell::Part { number, part, name } => {
                let link = self.clone();
                self.serve(async move { link.open_part(number, part, &name).await });
            }
            Tell::Connect { number, connection, target } => {
                let link = self.clone();
                self.serve(async move { link.connect(number, connection, &target).await });
            }
            Tell::Done { number, done } => {
                if let Some(asked) = self.state().asked.remove(&number) {
                    // Whoever asked may have gone on without it.
                    drop(asked.answer.send(done));
                }
            }
        }
    }

    /// Does something for the worker, beside reading what else it says.
    fn serve(&self, work: impl Future<Output = ()> + Send + 'static) {
        let is_too_much = {
            let mut state = self.state();
            state.serving += 1;
            state.serving > MOST_SERVING
        };
        if is_too_much {
            tracing::warn!("the image worker asks for too much at once and is let go");
            self.close();
            return;
        }
        let link = self.clone();
        self.shared.tasks.start("help for the image worker", async move {
            work.await;
            link.state().serving -= 1;
        });
    }

    /// Opens a part of a layout for the worker, which gets no folder of the machine.
    async fn open_part(&self, number: u64, part: u64, name: &str) {
        let layout = self.state().asked.get(&number).and_then(|asked| asked.layout.clone());
        let opened = match layout {
            Some(folder) if is_part(name) => open_in(&folder, name),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        };
        let (failed, fds) = match opened {
            Ok(file) => (None, vec![OwnedFd::from(file)]),
            Err(error) => (Some(error.raw_os_error().unwrap_or(DENIED)), Vec::new()),
        };
        // Whether it is still there is seen by the next read.
        drop(self.post(number, Ask::Opened { part, failed }, fds).await);
    }

    /// Makes a connection for a pull.
    async fn connect(&self, number: u64, connection: u64, target: &Target) {
        // Which registry it is for is what the pull was asked for, not what the worker says.
        let registry = self.state().asked.get(&number).and_then(|asked| asked.registry.clone());
        let (outcome, fds) = match registry {
            Some(registry) => self.connected(&registry, target).await,
            None => (Err(ConnectFailure::NotAllowed), Vec::new()),
        };
        drop(self.post(number, Ask::Connected { connection, outcome }, fds).await);
    }

    async fn connected(
        &self,
        registry: &Endpoint,
        target: &Target,
    ) -> (Result<Permitted, ConnectFailure>, Vec<OwnedFd>) {
        let Some(host) = Host::parse(&target.host) else {
            return (Err(ConnectFailure::NotAllowed), Vec::new());
        };
        let (hop, target) = (hop(target.hop), Endpoint { host, port: target.port });
        let connected = self.shared.connector.connect(registry, hop, &target).await;
        let connected = connected.map_err(failure).and_then(|connected| {
            let broken = |error: io::Error| ConnectFailure::Unreachable(error.to_string());
            let stream = connected.stream.into_std().map_err(broken)?;
            Ok((connected.gets_credentials, OwnedFd::from(stream)))
        });
        match connected {
            Ok((gets_credentials, stream)) => (Ok(Permitted { gets_credentials }), vec![stream]),
            Err(failure) => (Err(failure), Vec::new()),
        }
    }

    /// Whoever waits for an answer is told that there will be none.
    fn lose(&self) {
        let mut state = self.state();
        state.is_gone = true;
        state.asked.clear();
        drop(state);
        // Whoever waits for it to be idle waits no longer.
        self.shared.uses.send_modify(|_| ());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const DENIED: i32 = rustix::io::Errno::ACCESS.raw_os_error();

/// The most that a worker waits for at once. It has a few layers under way for each of its pulls.
const MOST_SERVING: usize = 64;

fn hop(hop: connector::Hop) -> Hop {
    match hop {
        connector::Hop::Registry => Hop::Registry,
        connector::Hop::Redirect => Hop::Redirect,
        connector::Hop::TokenService => Hop::TokenService,
    }
}

fn failure(error: ConnectError) -> ConnectFailure {
    match error {
        ConnectError::NotAllowed(_) => ConnectFailure::NotAllowed,
        ConnectError::ForeignTokenService(_) => ConnectFailure::ForeignTokenService,
        ConnectError::Unreachable { source, .. } => ConnectFailure::Unreachable(source.to_string()),
        ConnectError::Timeout(_) => ConnectFailure::Timeout,
    }
}

/// The names that parts of a layout have. What the worker asks for is not trusted.
fn is_part(name: &str) -> bool {
    let is_digest = |it: &str| it.len() == 64 && it.bytes().all(|byte| byte.is_ascii_hexdigit());
    matches!(name, "index.json" | "oci-layout")
        || name.strip_prefix("blobs/sha256/").is_some_and(is_digest)
}

fn not_understood(error: &dyn std::error::Error) -> ImageError {
    ImageError::Worker { message: chain(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_of_a_layout_are_opened() {
        let digest = "0123456789abcdef".repeat(4);
        let rows = [
            ("index.json".to_owned(), true),
            ("oci-layout".to_owned(), true),
            (format!("blobs/sha256/{digest}"), true),
            ("manifest.json".to_owned(), false),
            ("blobs/sha256/..".to_owned(), false),
            ("../index.json".to_owned(), false),
            ("/etc/passwd".to_owned(), false),
            (format!("blobs/sha256/{digest}/x"), false),
            (String::new(), false),
        ];
        for (name, expected) in rows {
            assert_eq!(is_part(&name), expected, "{name}");
        }
    }
}
