//! The Unix socket: who comes in by it, and as whom.

use std::{
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixListener as StdListener,
    },
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use engine::{sandboxes::Caller, tasks::Tasks};
use hyper::service::service_fn;
use model::{
    actor::{Actor, ActorKind},
    policy::Quotas,
};
use tokio::{
    net::{UnixListener, UnixStream},
    select,
    sync::{Semaphore, watch},
    time::sleep,
};

use super::{
    Entrance, Grpc, accounts,
    authority::Readable,
    call::Who,
    is_call,
    socket::Socket,
    spec::{HostPaths, Origin},
};
use crate::serve::{
    Phase, http2,
    refuse::Refuser,
    sniff::{Version, sniff},
};

/// How long to wait when the process has no descriptors left to accept with.
const NO_DESCRIPTORS: Duration = Duration::from_millis(50);

/// The owner of what comes in by the socket.
const TENANT: &str = "default";

/// Who may come in by the socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// Users by number.
    pub users: Vec<u32>,
    /// A group by number, all of whose members may.
    pub group: Option<u32>,
    /// Those of the users who may name any path of the machine.
    pub equals: Equals,
}

/// For whom paths of the machine are opened with the rights that he has himself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Equals {
    /// For everybody: the server was started by root, who can take on anybody's rights.
    Everybody,
    /// For those whose rights the server has: it is theirs.
    Users(Vec<u32>),
}

impl Default for Equals {
    fn default() -> Self {
        Self::Users(Vec::new())
    }
}

impl Equals {
    fn include(&self, user: u32) -> bool {
        match self {
            Self::Everybody => true,
            Self::Users(users) => users.contains(&user),
        }
    }
}

impl Peers {
    /// The daemon's own user, root, and the members of a group. `server` is the user who started the
    /// server, which makes sandboxes with his rights.
    pub fn of(server: u32, group: Option<u32>) -> Self {
        let own = rustix::process::geteuid().as_raw();
        let equals = if server == 0 { Equals::Everybody } else { Equals::Users(vec![0, server]) };
        Self { users: vec![0, own, server], group, equals }
    }

    fn may_enter(&self, user: u32, group: u32) -> bool {
        let is_in = |wanted: u32| {
            group == wanted
                || accounts::user(user).is_some_and(|user| accounts::is_member(&user.name, wanted))
        };
        self.users.contains(&user) || self.group.is_some_and(is_in)
    }
}

/// The socket as it was handed to the daemon, and who may use it.
#[derive(Debug)]
pub struct Door {
    path: PathBuf,
    listener: UnixListener,
    /// Kept for as long as the socket is.
    _lock: OwnedFd,
    peers: Peers,
}

impl Door {
    /// Takes over a socket that was opened by [`super::socket::open`].
    pub fn new(socket: Socket, peers: Peers) -> io::Result<Self> {
        let listener = UnixListener::from_std(StdListener::from(socket.listener))?;
        Ok(Self { path: socket.path, listener, _lock: socket.lock, peers })
    }

    /// Lets connections in until the server drains.
    pub(crate) async fn serve(
        self,
        grpc: Grpc,
        tasks: Tasks,
        (max_connections, limits): (usize, http2::Limits),
        refuser: Refuser,
        phase: watch::Receiver<Phase>,
    ) {
        tracing::info!(socket = %self.path.display(), "the agbox socket is open");
        let places = Arc::new(Semaphore::new(max_connections));
        let mut ending = phase.clone();
        let ending = ending.wait_for(|phase| *phase != Phase::Serving);
        tokio::pin!(ending);
        loop {
            let accepted = select! {
                biased;
                _ = &mut ending => return,
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(NO_DESCRIPTORS).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                tracing::warn!("no room for a connection by the socket");
                refuser.refuse(stream);
                continue;
            };
            let entrance = self.entrance(&stream, &grpc);
            let (grpc, phase) = (grpc.clone(), phase.clone());
            let talking = talk(stream, grpc, entrance, tasks.clone(), limits, phase);
            tasks.start("socket connection", async move {
                talking.await;
                drop(place);
            });
        }
    }

    /// Asks the kernel who is at the other end.
    fn entrance(&self, stream: &UnixStream, grpc: &Grpc) -> Entrance {
        let peer = match stream.peer_cred() {
            Ok(peer) => peer,
            Err(error) => {
                tracing::warn!(%error, "cannot tell who connects");
                return Entrance::Refused;
            }
        };
        let user = peer.uid();
        let Some(tenant) = TENANT.parse().ok().filter(|_| self.peers.may_enter(user, peer.gid()))
        else {
            tracing::warn!(user, "refused somebody at the socket");
            return Entrance::Refused;
        };
        let home = accounts::user(user).map(|user| user.home);
        let own_rights = self.peers.equals.include(user);
        let (host_paths, caller) = match stream.as_fd().try_clone_to_owned() {
            Ok(connection) if own_rights => {
                let (connection, home) = (Arc::new(connection), home.clone());
                (HostPaths::Any, Caller::Peer { connection, home })
            }
            Ok(_) | Err(_) => (grpc.host_paths().clone(), grpc.host_paths().stranger()),
        };
        let origin = Origin { home, host_paths };
        let actor = Actor { kind: ActorKind::Human, id: format!("uid:{user}") };
        let (key, quotas, revoked) = (None, Quotas::default(), None);
        Entrance::Socket(Box::new(Who { tenant, origin, caller, actor, key, quotas, revoked }))
    }
}

async fn talk(
    stream: UnixStream,
    grpc: Grpc,
    entrance: Entrance,
    tasks: Tasks,
    limits: http2::Limits,
    mut phase: watch::Receiver<Phase>,
) {
    let sniffed = select! {
        sniffed = sniff(stream, limits.first_within) => sniffed,
        _ = phase.wait_for(|phase| *phase != Phase::Serving) => None,
    };
    let Some((Version::Two, stream)) = sniffed else { return };
    let entrance = Arc::new(entrance);
    let service = service_fn(move |request| {
        let (grpc, entrance) = (grpc.clone(), Arc::clone(&entrance));
        async move {
            if is_call(&request) {
                return Ok(grpc.answer(request, &entrance).await);
            }
            Ok(Grpc::not_a_call())
        }
    });
    let stream = Readable::new(stream);
    http2::talk(stream, service, limits, tasks, phase).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_members_of_the_group_may_enter_and_others_may_not() {
        let peers = Peers { users: vec![0, 998], group: Some(77), equals: Equals::default() };
        let rows = [(0, 0, true), (998, 5, true), (4_000_000, 77, true), (4_000_000, 5, false)];
        for (user, group, expected) in rows {
            assert_eq!(peers.may_enter(user, group), expected, "{user} {group}");
        }
        assert!(!Peers::default().may_enter(0, 0));
    }
}
