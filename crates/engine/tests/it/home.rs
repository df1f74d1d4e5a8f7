//! A node with sandboxes: its data directory, and what is started over it, once or again.

use std::{
    io::Write as _,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use engine::{
    Engine, Settings, images,
    languages::Languages,
    posture::{DiskKind, Limits, Volumes},
    sandboxes::{self, Defaults, Key, Sandboxes, Started},
};
use harness::{
    SpawnerProcess, remove_sandboxes, start_spawner_behind, start_spawner_on_disks,
    start_spawner_without_cgroups,
};
use isolate::socket::PacketSocket;
use model::{
    event::{EventKind, Sequence},
    exec::{ExecEnd, ExecState},
    ids::{ExecId, Tenant},
    life::Phase,
    sandbox::{Sandbox, WhenStopped},
    spec::{ExecSpec, SandboxSpec},
};
use rustix::{
    net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket},
    process::Pid,
};
use store::Store;
use tempfile::TempDir;
use tokio::time::timeout;

/// Longer than anything takes that works.
const SOON: Duration = Duration::from_mins(1);

/// What outlives a server. Everything in it is removed at the end.
pub(crate) struct Home {
    data: TempDir,
    images: images::Settings,
}

/// A server over a home.
pub(crate) struct Server {
    pub(crate) engine: Engine,
    pub(crate) sandboxes: Sandboxes,
    pub(crate) store: Store,
    spawner: SpawnerProcess,
}

impl Drop for Home {
    fn drop(&mut self) {
        let removed = remove_sandboxes(&self.folder());
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

impl Home {
    pub(crate) fn new() -> Self {
        Self::with_images(images::Settings::default())
    }

    /// A node whose callers may choose these images.
    pub(crate) fn with_images(images: images::Settings) -> Self {
        Self { data: tempfile::tempdir().unwrap(), images }
    }

    /// Names the folders of sandboxes that are there.
    pub(crate) fn folders(&self) -> Vec<String> {
        let all = std::fs::read_dir(self.folder()).unwrap();
        let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with('.')).collect()
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.data.path().join("sandboxes")
    }

    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// Finds the supervisor of a sandbox: it is who listens on its socket.
    pub(crate) fn supervisor_of(&self, name: &str) -> Pid {
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let path = self.folder().join(name).join("socket");
        connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        rustix::net::sockopt::socket_peercred(&socket).unwrap().pid
    }

    /// Runs a program among the files of a sandbox, whether a server is there or not. It is none of
    /// the sandbox's processes. Returns what it wrote.
    pub(crate) fn enter(&self, name: &str, command: &[&str], input: &[u8]) -> Vec<u8> {
        let supervisor = self.supervisor_of(name).to_string();
        let mut enter = Command::new("/usr/bin/nsenter");
        enter.args(["--target", &supervisor, "--user", "--mount"]);
        if !rustix::process::getuid().is_root() {
            // The one user that there is inside is the one outside.
            enter.arg("--preserve-credentials");
        }
        enter.args(command).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = enter.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
        output.stdout
    }

    pub(crate) async fn start(&self) -> Server {
        self.start_with(Defaults::default()).await
    }

    pub(crate) async fn start_with(&self, defaults: Defaults) -> Server {
        self.start_on(None, defaults).await
    }

    /// Starts a server whose volumes are of this kind, or the best that there is.
    pub(crate) async fn start_on(&self, kind: Option<DiskKind>, defaults: Defaults) -> Server {
        let spawner = start_spawner_on_disks(&self.folder(), kind).unwrap();
        self.start_over(spawner, defaults).await
    }

    /// Starts a server that can neither limit nor freeze sandboxes, as without cgroups.
    pub(crate) async fn start_without_cgroups(&self) -> Server {
        let spawner = start_spawner_without_cgroups(&self.folder()).unwrap();
        let server = self.start_over(spawner, Defaults::default()).await;
        assert!(!server.has_cgroups());
        server
    }

    /// Starts a server whose callers connect to this socket.
    pub(crate) async fn start_behind(&self, door: &UnixListener) -> Server {
        let spawner = start_spawner_behind(&self.folder(), door).unwrap();
        self.start_over(spawner, Defaults::default()).await
    }

    async fn start_over(
        &self,
        (socket, spawner): (PacketSocket, SpawnerProcess),
        defaults: Defaults,
    ) -> Server {
        let languages = Languages::installed().only(&["shell"]);
        let settings = Settings { languages, ..Settings::default() };
        let engine = Engine::start(settings, socket.into_fd()).await.unwrap();
        let store = Store::open(&self.data.path().join("store.db")).unwrap();
        let images = engine.open_images(self.images.clone());
        let settings = sandboxes::Settings {
            node: "node_1".parse().unwrap(),
            folder: self.folder(),
            screens: self.data.path().join("screens"),
            key: Key([7; 32]),
            defaults,
            resources: engine::machine_size::of(self.data.path()).policy(),
            prepared: 2,
            docker: None,
        };
        let sandboxes = engine.open_sandboxes(store.clone(), images, settings).await.unwrap();
        Server { engine, sandboxes, store, spawner }
    }
}

pub(crate) fn tenant() -> Tenant {
    "default".parse().unwrap()
}

pub(crate) fn host() -> SandboxSpec {
    SandboxSpec { image: "host".to_owned(), ..SandboxSpec::default() }
}

pub(crate) fn shell(script: &str) -> ExecSpec {
    let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    ExecSpec { command, ..ExecSpec::default() }
}

impl Server {
    /// Whether the kernel can limit, freeze and kill a sandbox. An ordinary user may do without.
    pub(crate) fn has_cgroups(&self) -> bool {
        matches!(self.engine.posture().limits, Limits::Cgroups { .. })
    }

    /// Whether limits of disk space hold here. An ordinary user has to do without.
    pub(crate) async fn has_disk_limits(&self) -> bool {
        let volumes = self.engine.volumes().await.unwrap();
        assert!(matches!(volumes, Volumes::Held { .. }), "{volumes:?}");
        !matches!(volumes, Volumes::Held { kind: DiskKind::Unlimited, .. })
    }

    /// Ends the server as a crash does: the spawner at once, the rest without a word to anybody.
    pub(crate) async fn crash(mut self) {
        self.spawner.kill().unwrap();
        self.sandboxes.close();
        self.store.close().await;
    }

    /// Ends the server in order. Sandboxes go on.
    pub(crate) async fn end(mut self) {
        self.sandboxes.close();
        self.engine.close();
        self.spawner.wait().unwrap();
        self.store.close().await;
    }

    /// Creates a sandbox and waits until it is ready.
    pub(crate) async fn ready(&self) -> Sandbox {
        let sandbox = self.sandboxes.create(&tenant(), None, host()).await.unwrap();
        self.until(sandbox.id.as_str(), Phase::Active).await
    }

    /// Creates a sandbox of another tenant and waits until it is ready.
    pub(crate) async fn ready_for(&self, tenant: &Tenant) -> Sandbox {
        let sandbox = self.sandboxes.create(tenant, None, host()).await.unwrap();
        self.until_for(tenant, sandbox.id.as_str(), Phase::Active).await
    }

    /// Follows a sandbox until it is in this phase.
    pub(crate) async fn until(&self, name: &str, phase: Phase) -> Sandbox {
        self.until_for(&tenant(), name, phase).await
    }

    async fn until_for(&self, tenant: &Tenant, name: &str, phase: Phase) -> Sandbox {
        let mut events = self.sandboxes.events(tenant, name, Sequence::ZERO).await.unwrap();
        loop {
            let now = self.sandboxes.get(tenant, name).await.unwrap();
            if now.life.phase == phase {
                return now;
            }
            assert!(
                now.life.phase != Phase::Failed || phase == Phase::Failed,
                "{:?}",
                now.life.failure
            );
            timeout(SOON, events.next()).await.expect("no event in time").unwrap();
        }
    }

    pub(crate) async fn start(&self, sandbox: &Sandbox, spec: ExecSpec) -> Started {
        let (tenant, name) = (&sandbox.tenant, sandbox.id.as_str());
        self.sandboxes.start_exec(tenant, name, None, spec, WhenStopped::Refuse).await.unwrap()
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, sandbox: &Sandbox, script: &str) -> (ExecEnd, String) {
        let started = self.start(sandbox, shell(script)).await;
        let end = self.end_for(&sandbox.tenant, &started.exec.id).await;
        (end, std::fs::read_to_string(started.stdout).unwrap())
    }

    /// Waits for the end of a command.
    pub(crate) async fn end_of(&self, exec: &ExecId) -> ExecEnd {
        self.end_for(&tenant(), exec).await
    }

    /// The same, of another tenant.
    pub(crate) async fn end_for(&self, tenant: &Tenant, exec: &ExecId) -> ExecEnd {
        let at = self.sandboxes.exec(tenant, exec).await.unwrap();
        let name = at.exec.sandbox.to_string();
        let mut events = self.sandboxes.events(tenant, &name, Sequence::ZERO).await.unwrap();
        loop {
            let now = self.sandboxes.exec(tenant, exec).await.unwrap();
            if let ExecState::Ended(end) = now.exec.life.state {
                return end;
            }
            timeout(SOON, events.next()).await.expect("no event in time").unwrap();
        }
    }

    /// Returns what has happened so far.
    pub(crate) async fn history(&self, sandbox: &Sandbox) -> Vec<EventKind> {
        let name = sandbox.id.as_str();
        let mut events = self.sandboxes.events(&tenant(), name, Sequence::ZERO).await.unwrap();
        let mut history = Vec::new();
        while let Some(event) = events.next_known().await.unwrap() {
            history.push(event.kind);
        }
        history
    }
}
