//! Accepts connections until it is told to stop, then sees them off.

mod framing;
pub(crate) mod http2;
mod linger;
pub(crate) mod refuse;
pub(crate) mod sniff;
mod spare;
mod unread;

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use axum::{Router, body::Body};
use engine::tasks::Tasks;
use hyper::{
    Request, StatusCode,
    body::Incoming,
    header::{CONNECTION, HeaderValue},
    server::conn::http1,
    service::{HttpService, Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use model::units::ByteSize;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    select,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{interval, sleep, timeout},
};

pub(crate) use framing::Fault;
#[doc(hidden)]
pub use framing::fuzz_one as fuzz_framing;
use framing::{Answers, Strict};
use refuse::{Refuser, refuse_at_once};
use sniff::{Version, sniff};
use spare::Spare;

use crate::{
    audit::Audit,
    auth::Keyring,
    config::EXECUTE_OUTPUT,
    dataplane::{ports, previews::Previews},
    executor::Executor,
    grpc::{self, Grpc, HostPaths, Lifecycle, Surface},
    guesses::Strangers,
    http::{self, App, Parts, hosts::Hosts},
    metrics::Metrics,
    tls::Tls,
    tokens::{Tokens, again::LastGiven},
    ws::{Origins, health::Timing},
};

/// What the library may hold of a request at once: more than a head is long, so that none is too long for it.
const MAX_BUFFER: usize = framing::MAX_HEAD_BYTES + (1 << 10);
/// How long connections have to go, after everything was told to end.
const LAST_WAIT: Duration = Duration::from_secs(10);
/// How long to wait when the process has no descriptors left to accept with.
const NO_DESCRIPTORS: Duration = Duration::from_millis(50);
/// How often metrics are tidied.
const TIDY: Duration = Duration::from_secs(5);

/// What the surfaces are to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Origins of web pages that may connect, besides the server's own.
    pub allowed_origins: Vec<String>,
    /// Names that requests may be for, besides `localhost`, the address they came to and the public URL's.
    pub allowed_hosts: Vec<String>,
    /// The URL that others know this server by.
    pub public_url: Option<String>,
    /// How long executions go on without their client.
    pub grace: Duration,
    /// How long executions may go on after a stop was asked for.
    pub drain: Duration,
    /// A request's head has to be there within this time.
    pub head_deadline: Duration,
    pub max_connections: usize,
    /// Per address of a peer; loopback is not limited by it.
    pub max_connections_per_peer: usize,
    /// Connections by the Unix socket.
    pub max_socket_connections: usize,
    /// Calls and streams that are open at once on one HTTP/2 connection.
    pub max_streams_per_connection: usize,
    /// Wrong keys and tokens that a peer may show in a second.
    pub wrong_per_peer: u32,
    /// Whether a proxy is all that can connect, and says for whom it speaks.
    pub is_behind_proxy: bool,
    pub timing: Timing,
    /// Paths of the host below which callers over the network may name some.
    pub host_paths: Vec<PathBuf>,
    /// The image of sandboxes for which nobody names one.
    pub sessions_image: Option<String>,
    /// What an answer to `POST /execute` has of each stream.
    pub execute_output: ByteSize,
    /// The image of those that are to run in containers.
    pub docker_image: Option<String>,
    /// How long servers in sandboxes may take.
    pub ports: ports::Timing,
    /// The URL that previews are below: each has a host of its own there.
    pub previews_url: Option<String>,
    /// Who the server shows that it is. Without it, connections are in the clear.
    pub tls: Option<Tls>,
}

impl Settings {
    /// Returns the URL of an address of this server.
    pub(crate) fn url_of(&self, address: SocketAddr) -> String {
        format!("{}://{address}", self.scheme())
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            public_url: None,
            grace: Duration::from_secs(10),
            drain: Duration::from_secs(10),
            head_deadline: Duration::from_secs(10),
            max_connections: 4096,
            max_connections_per_peer: 1024,
            max_socket_connections: 1024,
            max_streams_per_connection: 1024,
            wrong_per_peer: 20,
            is_behind_proxy: false,
            timing: Timing::default(),
            host_paths: Vec::new(),
            sessions_image: None,
            execute_output: EXECUTE_OUTPUT,
            docker_image: None,
            ports: ports::Timing::default(),
            previews_url: None,
            tls: None,
        }
    }
}

/// How far the server is with ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving,
    /// Nothing new is taken; what runs may end by itself.
    Draining,
    /// The drain time is over.
    Closing,
}

/// Serves until `shutdown` is there, then drains and returns.
pub async fn serve(
    listener: TcpListener,
    executor: impl Into<Executor>,
    keyring: Keyring,
    lifecycle: Lifecycle,
    settings: Settings,
    shutdown: impl Future<Output = ()>,
) {
    let (set_phase, phase) = watch::channel(Phase::Serving);
    let tasks = Tasks::default();
    let settings = Arc::new(settings);
    let Lifecycle { sandboxes, tokens: signer, sessions, socket, sealer } = lifecycle;
    // Apart from the others, so that what they note at their end is kept too.
    let keeping = Tasks::default();
    let audit = Audit::open(keyring.store().clone(), sealer, &keeping);
    let previews = previews_url(&listener, &settings);
    let hosts = Arc::new(Hosts::of(listener.local_addr().ok(), &settings, previews.as_deref()));
    let strangers = Strangers::new(settings.wrong_per_peer, settings.is_behind_proxy);
    let app = App::new(Parts {
        keyring,
        audit: audit.clone(),
        executor: executor.into(),
        origins: Arc::new(Origins::new(own_origins(&listener, &settings))),
        metrics: Metrics::new(),
        phase: phase.clone(),
        tasks: tasks.clone(),
        settings: Arc::clone(&settings),
        sandboxes: sandboxes.clone(),
        tokens: signer,
        sessions,
        base_url: base_url(&listener, &settings),
        previews: Previews::below(previews.as_deref()),
        hosts: Arc::clone(&hosts),
        strangers: strangers.clone(),
    });
    let metrics = Arc::clone(&app.metrics);
    if let Some(tokens) = app.tokens.clone() {
        tasks.start("ends of tokens", follow(tokens, phase.clone()));
    }
    let surface = Surface::new(sandboxes, tasks.clone(), phase.clone(), audit.clone());
    let host_paths = HostPaths::Below(settings.host_paths.clone());
    let grpc = Grpc::new(app.keyring.clone(), host_paths, surface).await;
    let refuser = Refuser::new(tasks.clone(), phase.clone());
    let streams = http2::Limits {
        first_within: settings.head_deadline,
        max_streams: settings.max_streams_per_connection,
    };
    if let Some(socket) = socket {
        let limits = (settings.max_socket_connections, streams);
        let serving =
            socket.serve(grpc.clone(), tasks.clone(), limits, refuser.clone(), phase.clone());
        tasks.start("agbox socket", serving);
    }
    if let Some(tls) = settings.tls.clone() {
        let mut phase = phase.clone();
        tasks.start("certificate", async move {
            select! {
                () = tls.follow() => {}
                _ = phase.wait_for(|phase| *phase != Phase::Serving) => {}
            }
        });
    }
    let door = Door {
        tls: settings.tls.clone(),
        places: Arc::new(Semaphore::new(settings.max_connections)),
        per_peer: Arc::default(),
        max_per_peer: settings.max_connections_per_peer,
        refuser: refuser.clone(),
        head_deadline: settings.head_deadline,
        stalled_within: settings.timing.stalled_within,
        surfaces: Surfaces {
            router: http::router(app),
            grpc,
            hosts,
            strangers,
            tasks: tasks.clone(),
            phase,
            streams,
        },
    };
    let mut tidy = interval(TIDY);
    let mut spare = Spare::new();
    tokio::pin!(shutdown);
    loop {
        select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => door.let_in(stream, peer.ip()),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    refuse_one(&error, &listener, &mut spare, door.tls.as_ref()).await;
                }
            },
            _ = tidy.tick() => metrics.tidy(),
        }
    }
    drop(listener);
    tracing::info!(drain = ?settings.drain, "shutting down");
    set_phase.send_replace(Phase::Draining);
    if timeout(settings.drain, tasks.join()).await.is_err() {
        set_phase.send_replace(Phase::Closing);
        if timeout(LAST_WAIT, tasks.join()).await.is_err() {
            tracing::warn!("some connections did not end in time");
        }
    }
    audit.close().await;
}

/// Takes note of what others do to tokens, until nothing new is taken.
async fn follow(tokens: Tokens, mut phase: watch::Receiver<Phase>) {
    select! {
        () = tokens.follow() => {}
        _ = phase.wait_for(|phase| *phase != Phase::Serving) => {}
    }
}

/// Returns the origins of pages that may connect: those configured, and the server's own.
fn own_origins(listener: &TcpListener, settings: &Settings) -> Vec<String> {
    let mut origins = settings.allowed_origins.clone();
    if let Some(url) = &settings.public_url {
        origins.push(origin_of(url));
    }
    if let Ok(address) = listener.local_addr()
        && address.ip().is_loopback()
    {
        origins.push(settings.url_of(address));
        origins.push(format!("{}://localhost:{}", settings.scheme(), address.port()));
    }
    origins
}

/// Returns what every URL begins with that is handed out.
fn base_url(listener: &TcpListener, settings: &Settings) -> Arc<str> {
    match (&settings.public_url, listener.local_addr()) {
        (Some(url), _) => url.trim_end_matches('/').into(),
        (None, Ok(address)) => settings.url_of(address).into(),
        (None, Err(_)) => "".into(),
    }
}

/// Returns where previews are. A name below `localhost` is this machine to every browser, so that on
/// loopback nothing need be set.
fn previews_url(listener: &TcpListener, settings: &Settings) -> Option<String> {
    let address = listener.local_addr().ok().filter(|address| address.ip().is_loopback());
    match (&settings.previews_url, &settings.public_url) {
        (Some(url), _) => Some(url.clone()),
        (None, Some(_)) => None,
        (None, None) => {
            address.map(|it| format!("{}://localhost:{}", settings.scheme(), it.port()))
        }
    }
}

/// Returns scheme, host and port of a URL.
fn origin_of(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let authority = rest.split('/').next().unwrap_or_default();
    format!("{scheme}://{authority}").to_ascii_lowercase()
}

/// Lets connections in, as long as there is room.
#[derive(Debug)]
struct Door {
    tls: Option<Tls>,
    places: Arc<Semaphore>,
    per_peer: Arc<Mutex<HashMap<IpAddr, usize>>>,
    max_per_peer: usize,
    refuser: Refuser,
    head_deadline: Duration,
    stalled_within: Duration,
    surfaces: Surfaces,
}

/// What a connection can reach.
#[derive(Clone, Debug)]
struct Surfaces {
    router: Router,
    grpc: Grpc,
    hosts: Arc<Hosts>,
    strangers: Strangers,
    tasks: Tasks,
    phase: watch::Receiver<Phase>,
    streams: http2::Limits,
}

/// A connection's place among all. Goes along with the socket, also through an upgrade.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    peer: Peer,
    _place: Arc<(OwnedSemaphorePermit, PeerPlace)>,
}

/// Where a request comes from, and where to.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// The address of this machine that the connection was made to.
    pub(crate) reached: IpAddr,
    /// Whether the last request of the connection has shown a wrong credential.
    pub(crate) was_wrong: Arc<AtomicBool>,
    pub(crate) last_given: LastGiven,
}

/// A connection's place among those of its peer.
#[derive(Debug)]
struct PeerPlace {
    peer: IpAddr,
    per_peer: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Drop for PeerPlace {
    fn drop(&mut self) {
        let mut per_peer = self.per_peer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = per_peer.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                per_peer.remove(&self.peer);
            }
        }
    }
}

impl Door {
    fn let_in(&self, stream: TcpStream, peer: IpAddr) {
        // Only a connection that is gone already has none.
        let reached = stream.local_addr().map_or(peer, |address| address.ip());
        let (was_wrong, last_given) = (Arc::default(), LastGiven::default());
        let Some(place) = self.place(Peer { address: peer, reached, was_wrong, last_given }) else {
            tracing::warn!(%peer, "no room for a connection");
            match self.tls.clone() {
                None => self.refuser.refuse(stream),
                Some(tls) => self.refuser.refuse_safely(tls, stream),
            }
            return;
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot turn off Nagle's algorithm");
        }
        // Whoever takes nothing for so long, or is gone without a word, is cut off by the kernel: an
        // answer that goes on and on has no other sign of its reader.
        let stalled = u32::try_from(self.stalled_within.as_millis()).unwrap_or(u32::MAX);
        if let Err(error) = set_tcp_user_timeout(&stream, stalled) {
            tracing::debug!(%error, "cannot bound how long a peer takes nothing");
        }
        let (surfaces, within) = (self.surfaces.clone(), self.head_deadline);
        match self.tls.clone() {
            None => {
                let connection = talk(stream, place, surfaces, within);
                self.surfaces.tasks.start("http connection", connection);
            }
            Some(tls) => {
                let connection = talk_safely(tls, stream, place, surfaces, within);
                self.surfaces.tasks.start("https connection", connection);
            }
        }
    }

    fn place(&self, peer: Peer) -> Option<Place> {
        let address = peer.address;
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let mut per_peer = self.per_peer.lock().unwrap_or_else(PoisonError::into_inner);
        let count = per_peer.entry(address).or_default();
        if *count >= self.max_per_peer && !address.is_loopback() {
            return None;
        }
        *count += 1;
        let among_its_own = PeerPlace { peer: address, per_peer: Arc::clone(&self.per_peer) };
        Some(Place { peer, _place: Arc::new((permit, among_its_own)) })
    }
}

/// Sends one connection away for which there is no descriptor, or waits for better times.
async fn refuse_one(
    error: &io::Error,
    listener: &TcpListener,
    spare: &mut Spare,
    tls: Option<&Tls>,
) {
    match spare.accept(error, listener).await {
        // Whoever expects TLS understands nothing before it, and it would cost more than a place.
        Some(stream) if tls.is_some() => drop(stream),
        Some(stream) => refuse_at_once(&stream),
        None => sleep(NO_DESCRIPTORS).await,
    }
    spare.renew();
}

/// Talks over TLS, once both sides know whom they talk to.
async fn talk_safely(
    tls: Tls,
    stream: TcpStream,
    place: Place,
    surfaces: Surfaces,
    head_deadline: Duration,
) {
    let mut phase = surfaces.phase.clone();
    let shaken = select! {
        shaken = timeout(head_deadline, tls.accept(stream)) => shaken,
        _ = phase.wait_for(|phase| *phase != Phase::Serving) => return,
    };
    match shaken {
        Ok(Ok(stream)) => talk(stream, place, surfaces, head_deadline).await,
        Ok(Err(error)) => tracing::debug!(%error, "no TLS came about"),
        Err(_) => tracing::debug!("TLS did not come about in time"),
    }
}

async fn talk<S>(stream: S, place: Place, surfaces: Surfaces, head_deadline: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Surfaces { router, grpc, hosts, strangers, tasks, mut phase, streams } = surfaces;
    let sniffed = select! {
        sniffed = sniff(stream, head_deadline) => sniffed,
        _ = phase.wait_for(|phase| *phase != Phase::Serving) => None,
    };
    let Some((version, stream)) = sniffed else { return };
    let (router, peer) = (TowerToHyperService::new(router), place.peer.clone());
    match version {
        Version::One => {
            let answers = Arc::<Answers>::default();
            let stream = Strict::new(stream, Arc::clone(&answers));
            let service = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(place.clone());
                request.extensions_mut().insert(peer.clone());
                let (number, fault) = answers.begin();
                if let Some(fault) = fault {
                    request.extensions_mut().insert(fault);
                }
                let (request, progress) = unread::watch(request);
                let (answer, answers) = (router.call(request), Arc::clone(&answers));
                async move {
                    let mut answer = answer.await.unwrap_or_else(|never| match never {});
                    let is_upgrade = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
                    let has_arrived = answers.has_arrived(number);
                    let is_last = progress.is_some_and(|it| !it.allows_another(has_arrived));
                    if is_last && !is_upgrade {
                        let close = HeaderValue::from_static("close");
                        answer.headers_mut().insert(CONNECTION, close);
                    }
                    answers.give(is_upgrade);
                    Ok(answer)
                }
            });
            talk_http1(stream, service, phase, head_deadline).await;
        }
        // Upgrades are of HTTP/1, so that the place need not go further than the connection.
        Version::Two => {
            let calls = Calls { grpc, hosts, strangers };
            let service = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(peer.clone());
                let (router, calls) = (router.clone(), calls.clone());
                async move {
                    if grpc::is_call(&request) {
                        return Ok(calls.answer(request).await);
                    }
                    Ok(router.call(request).await.unwrap_or_else(|never| match never {}))
                }
            });
            http2::talk(stream, service, streams, tasks, phase).await;
            drop(place);
        }
    }
}

/// Answers calls of gRPC over the network, which go to no route.
#[derive(Clone)]
struct Calls {
    grpc: Grpc,
    hosts: Arc<Hosts>,
    strangers: Strangers,
}

impl Calls {
    async fn answer(&self, request: Request<Incoming>) -> hyper::Response<Body> {
        match self.hosts.check(&request) {
            Ok(()) => self.grpc.answer_guest(self.strangers.guest(&request), request).await,
            Err(astray) => grpc::astray(&astray),
        }
    }
}

async fn talk_http1<S, F>(
    stream: S,
    service: F,
    mut phase: watch::Receiver<Phase>,
    head_deadline: Duration,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: HttpService<Incoming, ResBody = Body, Error = Infallible>,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_deadline)
        .max_buf_size(MAX_BUFFER)
        .max_headers(framing::MAX_FIELDS)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    let mut is_leaving = false;
    loop {
        select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection broke");
                }
                return;
            }
            _ = phase.wait_for(|phase| *phase != Phase::Serving), if !is_leaving => {
                is_leaving = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
