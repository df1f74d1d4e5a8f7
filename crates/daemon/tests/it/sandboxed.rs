//! A daemon with real sandboxes and a real Unix socket.

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::PathBuf,
};

use api::agbox::v1;
use daemon::{
    auth::Keyring,
    grpc::{
        Lifecycle,
        door::{Door, Peers},
        socket,
    },
    tokens::Tokens,
};
use engine::{
    Engine, Settings, images,
    languages::Languages,
    sandboxes::{self, Defaults, Key, Sandboxes},
    sessions::{self, Sessions},
};
use harness::{SpawnerProcess, remove_sandboxes, start_spawner_behind};
use model::{
    event::Sequence,
    ids::SandboxId,
    life::{EndCause, Life},
    policy::Policy,
    spec::SandboxSpec,
};
use rustix::{
    fs::{Gid, Uid},
    net::{AddressFamily, SocketAddrUnix, SocketType, sockopt::socket_peercred},
    process::Pid,
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use store::Store;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::{
    caller::{Client, Connection, next, subscribe},
    scripted::Scripted,
    support::{self, Daemon, PATIENCE},
};

/// Dropping it ends the spawner and removes every sandbox.
pub(crate) struct Sandboxed {
    pub(crate) daemon: Option<Daemon>,
    pub(crate) socket: PathBuf,
    pub(crate) sandboxes: Sandboxes,
    pub(crate) tokens: Tokens,
    pub(crate) sessions: Sessions,
    kept: Store,
    engine: Engine,
    spawner: SpawnerProcess,
    data: TempDir,
}

impl Drop for Sandboxed {
    fn drop(&mut self) {
        self.sandboxes.close();
        self.engine.close();
        let end = self.spawner.wait();
        let removed = remove_sandboxes(&self.data.path().join("sandboxes"));
        assert!(end.is_ok() || std::thread::panicking(), "spawner: {end:?}");
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

/// Opens a socket of its own for a daemon that has no sandboxes.
pub(crate) fn door(folder: &TempDir, peers: Peers) -> (PathBuf, Lifecycle) {
    let path = folder.path().join(socket::BELOW_RUNTIME_DIRECTORY);
    let socket = socket::open(&path, None).unwrap();
    let socket = Some(Door::new(socket, peers).unwrap());
    (path, Lifecycle { socket, ..Lifecycle::default() })
}

/// Lets in whoever runs the tests.
pub(crate) fn own() -> Peers {
    Peers::of(rustix::process::geteuid().as_raw(), None)
}

impl Sandboxed {
    /// Makes a sandbox of a tenant, and does not wait for it.
    pub(crate) async fn make(&self, tenant: &str, alias: Option<&str>) -> SandboxId {
        let spec = SandboxSpec { image: "host".to_owned(), ..SandboxSpec::default() };
        let (tenant, alias) = (tenant.parse().unwrap(), alias.map(|alias| alias.parse().unwrap()));
        self.sandboxes.create(&tenant, alias, spec).await.unwrap().id
    }

    pub(crate) async fn start() -> Self {
        Self::start_for(None).await
    }

    /// Starts one whose socket is open to a group as well.
    pub(crate) async fn start_for(group: Option<u32>) -> Self {
        Self::start_with(group, support::settings()).await
    }

    /// Starts one with these settings of its surfaces.
    pub(crate) async fn start_with(group: Option<u32>, surfaces: daemon::serve::Settings) -> Self {
        Self::start_by(group, surfaces, Defaults::default()).await
    }

    /// Starts one whose sessions are kept for so long.
    pub(crate) async fn start_on(terms: sessions::Settings) -> Self {
        let with = (terms, Policy::default());
        Self::start_all(None, support::settings(), Defaults::default(), with, None).await
    }

    /// Starts one as a node of this name, over a store that others have too.
    pub(crate) async fn start_over(store: Store, node: &str) -> Self {
        let (defaults, terms) = (Defaults::default(), sessions::Settings::default());
        let kept = Some((store, node));
        let with = (terms, Policy::default());
        Self::start_all(None, support::settings(), defaults, with, kept).await
    }

    /// Starts one whose sandboxes get this.
    pub(crate) async fn start_by(
        group: Option<u32>,
        surfaces: daemon::serve::Settings,
        defaults: Defaults,
    ) -> Self {
        let terms = sessions::Settings::default();
        Self::start_all(group, surfaces, defaults, (terms, Policy::default()), None).await
    }

    /// Starts one under this policy.
    pub(crate) async fn start_under(policy: Policy) -> Self {
        let terms = sessions::Settings::default();
        let settings = support::settings();
        Self::start_all(None, settings, Defaults::default(), (terms, policy), None).await
    }

    /// Starts one with these settings of its surfaces, under this policy, whose operator lists these registries.
    pub(crate) async fn start_ruled(
        surfaces: daemon::serve::Settings,
        policy: Policy,
        registries: &[String],
    ) -> Self {
        let with = (sessions::Settings::default(), policy);
        Self::start_of(listing(registries), None, surfaces, Defaults::default(), with, None).await
    }

    /// Starts one whose operator lists these registries, which are on the loopback of this machine.
    pub(crate) async fn start_listing(registries: &[String]) -> Self {
        let with = (sessions::Settings::default(), Policy::default());
        let (surfaces, defaults) = (support::settings(), Defaults::default());
        Self::start_of(listing(registries), None, surfaces, defaults, with, None).await
    }

    async fn start_all(
        group: Option<u32>,
        surfaces: daemon::serve::Settings,
        defaults: Defaults,
        with: (sessions::Settings, Policy),
        kept: Option<(Store, &str)>,
    ) -> Self {
        Self::start_of(images::Settings::default(), group, surfaces, defaults, with, kept).await
    }

    async fn start_of(
        images: images::Settings,
        group: Option<u32>,
        surfaces: daemon::serve::Settings,
        defaults: Defaults,
        (terms, policy): (sessions::Settings, Policy),
        kept: Option<(Store, &str)>,
    ) -> Self {
        let data = tempfile::tempdir().unwrap();
        fs::set_permissions(data.path(), Permissions::from_mode(0o711)).unwrap();
        let folder = data.path().join("sandboxes");
        let socket = data.path().join(socket::BELOW_RUNTIME_DIRECTORY);
        let opened = socket::open(&socket, group).unwrap();
        let (spawner_socket, spawner) = start_spawner_behind(&folder, &opened.listener).unwrap();
        let languages = Languages::installed().only(&["shell"]);
        let settings = Settings { languages, ..Settings::default() };
        let engine = Engine::start(settings, spawner_socket.into_fd()).await.unwrap();
        let (store, node) = kept
            .unwrap_or_else(|| (Store::open(&data.path().join("sandboxes.db")).unwrap(), "node_1"));
        let images = engine.open_images(images);
        let settings = sandboxes::Settings {
            node: node.parse().unwrap(),
            folder,
            screens: data.path().join("screens"),
            key: Key([7; 32]),
            defaults,
            resources: engine::machine_size::of(data.path()).policy(),
            prepared: 2,
            docker: None,
        };
        let sandboxes = engine.open_sandboxes(store.clone(), images, settings).await.unwrap();
        let peers = Peers::of(rustix::process::geteuid().as_raw(), group);
        let door = Some(Door::new(opened, peers).unwrap());
        let tokens =
            Tokens::kept(&[9; 32], store.clone(), vec!["opaque".to_owned()]).await.unwrap();
        let sessions = Sessions::open(sandboxes.clone(), terms).await.unwrap();
        let lifecycle = Lifecycle {
            sandboxes: Some(sandboxes.clone()),
            tokens: Some(tokens.clone()),
            sessions: Some(sessions.clone()),
            socket: door,
            sealer: None,
        };
        let (with, scripted) = ((engine.clone().into(), lifecycle), Scripted::default());
        let keys = tempfile::tempdir().unwrap();
        let keyring = Keyring::open_with(store.clone(), policy).await.unwrap();
        let daemon = Daemon::start_over(keyring, keys, with, scripted, surfaces).await;
        Self {
            daemon: Some(daemon),
            socket,
            sandboxes,
            tokens,
            sessions,
            kept: store,
            engine,
            spawner,
            data,
        }
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    /// Returns the store of its sandboxes.
    pub(crate) fn kept(&self) -> &Store {
        &self.kept
    }

    /// Returns where the store of its sandboxes is.
    pub(crate) fn store(&self) -> PathBuf {
        self.data.path().join("sandboxes.db")
    }

    /// Returns the process that supervises a sandbox.
    pub(crate) fn supervisor_of(&self, sandbox: &str) -> Pid {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let path = self.data.path().join("sandboxes").join(sandbox).join("socket");
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        socket_peercred(&socket).unwrap().pid
    }

    /// Waits until a sandbox of the default tenant is in a state like this.
    pub(crate) async fn until(&self, name: &str, is_so: impl Fn(&Life) -> bool) -> Life {
        let tenant = "default".parse().unwrap();
        let mut events = self.sandboxes.events(&tenant, name, Sequence::ZERO).await.unwrap();
        loop {
            let now = self.sandboxes.get(&tenant, name).await.unwrap().life;
            if is_so(&now) {
                return now;
            }
            let next = timeout(PATIENCE, events.next()).await;
            assert!(next.is_ok_and(|next| next.unwrap().is_some()), "{now:?}");
        }
    }

    /// Deletes a sandbox, and returns when there is nothing left of it.
    pub(crate) async fn delete(&self, tenant: &str, name: &str) {
        let tenant = tenant.parse().unwrap();
        let mut events = self.sandboxes.events(&tenant, name, Sequence::ZERO).await.unwrap();
        self.sandboxes.delete(&tenant, name, EndCause::Requested).await.unwrap();
        while timeout(PATIENCE, events.next()).await.unwrap().unwrap().is_some() {
            let now = self.sandboxes.get(&tenant, name).await.unwrap();
            if now.life.phase.is_terminal() {
                return;
            }
        }
        panic!("{name} has not come to its end");
    }

    /// Returns a caller by the socket.
    pub(crate) async fn local(&self) -> Client {
        Connection::unix(&self.socket).await.client()
    }

    /// Returns a caller by the socket who is another user: the kernel notes who connects.
    pub(crate) async fn user(&self, user: u32) -> Client {
        let path = self.socket.clone();
        let connecting = move || {
            let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            // Of this thread alone, which ends with it.
            set_thread_res_uid(uid, uid, uid).unwrap();
            UnixStream::connect(path).unwrap()
        };
        let stream = std::thread::spawn(connecting).join().unwrap();
        stream.set_nonblocking(true).unwrap();
        Connection::over(tokio::net::UnixStream::from_std(stream).unwrap(), &[]).await.client()
    }

    /// Returns a caller by the main port, with this key.
    pub(crate) async fn remote(&self, key: &str) -> Client {
        let bearer = format!("Bearer {key}");
        Connection::tcp(self.daemon().address, &[("authorization", &bearer)]).await.client()
    }
}

/// Lists these registries, which are on the loopback of this machine.
fn listing(registries: &[String]) -> images::Settings {
    let listed = registries.iter().map(|it| (it.clone(), images::Registry::default()));
    images::Settings { registries: listed.collect(), ..Default::default() }
}

pub(crate) fn create(name: &str) -> v1::CreateSandboxRequest {
    let spec = v1::CreateSpec { image: "host".into(), ..v1::CreateSpec::default() };
    let (create_spec, sandbox_id) = (Some(spec), name.to_owned());
    v1::CreateSandboxRequest { create_spec, sandbox_id, ..Default::default() }
}

pub(crate) fn shell(sandbox: &str, script: &str, exec: &str) -> v1::CreateExecRequest {
    v1::CreateExecRequest {
        sandbox_id: sandbox.to_owned(),
        command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        exec_id: exec.to_owned(),
        ..Default::default()
    }
}

/// Reads the state of a sandbox.
pub(crate) async fn get(client: &mut Client, name: &str) -> v1::SandboxHandle {
    let request = v1::GetSandboxRequest { sandbox_id: name.to_owned() };
    client.get_sandbox(request).await.unwrap().into_inner().sandbox.unwrap()
}

/// Waits as the SDKs do: a baseline, the events after it, the state again at each.
pub(crate) async fn until(
    client: &mut Client,
    name: &str,
    state: v1::SandboxState,
) -> v1::SandboxHandle {
    let mut now = get(client, name).await;
    let request = subscribe(name, now.last_event_sequence);
    let mut events = client.subscribe_sandbox_events(request).await.unwrap().into_inner();
    while now.state() != state {
        assert_ne!(now.state(), v1::SandboxState::Failed, "{now:?}");
        let event = next(&mut events).await;
        now = get(client, name).await;
        assert!(now.last_event_sequence >= event.sequence, "{now:?} is older than {event:?}");
    }
    now
}

pub(crate) async fn exec(client: &mut Client, id: &str) -> v1::ExecStatus {
    let request = v1::GetExecRequest { exec_id: id.to_owned() };
    client.get_exec(request).await.unwrap().into_inner().exec.unwrap()
}

/// Runs a command to its end; returns how it ended, and what it wrote.
pub(crate) async fn run(
    client: &mut Client,
    request: v1::CreateExecRequest,
) -> (v1::ExecStatus, String) {
    let sandbox = request.sandbox_id.clone();
    let created = client.create_exec(request).await.unwrap().into_inner();
    let end = ended(client, &sandbox, &created.exec_id).await;
    (end, fs::read_to_string(created.stdout_log_path).unwrap())
}

/// Waits until a command has ended; returns how.
pub(crate) async fn ended(client: &mut Client, sandbox: &str, id: &str) -> v1::ExecStatus {
    let mut now = exec(client, id).await;
    let request = subscribe(sandbox, now.last_event_sequence);
    let mut events = client.subscribe_sandbox_events(request).await.unwrap().into_inner();
    while now.state() == v1::ExecState::Running {
        next(&mut events).await;
        now = exec(client, id).await;
    }
    now
}
