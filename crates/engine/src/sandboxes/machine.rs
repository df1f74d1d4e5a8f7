//! What sandboxes are made of on this machine: orders to the spawner, and what the machine can do.

mod groups;

use std::{
    fmt, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use isolate::{
    cgroup::handles::FreezeError,
    paths::{NoPath, Problem},
    plan::Broken,
    sandbox::{BodySpec, HostPaths, Image, SandboxAnswer, SandboxOrder, companion_name, folder},
    supervisor::{
        journal::{self, Record},
        wire::Secret,
    },
    volume::{ByteCount, DiskKind, DiskLimit, Reason},
    wire::Report,
};
use model::{
    ids::{ExecId, SandboxId, Tenant},
    image::HOST,
    life::Phase,
    sandbox::Sandbox,
    spec::{Companion, Protocol, Resources, SandboxSpec},
    units::ByteSize,
};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::{
    Defaults, LEAST_DISK, SandboxError, Settings,
    actor::chain,
    command,
    group::Group,
    link::Link,
    paths::{has_paths, root_of},
    ports::MAX_PORTS,
};
use crate::{
    EngineError,
    posture::{Identity, Limits, Posture, Volumes},
    spawner::{Control, Spawner},
    tenant_number::tenant_number,
};

/// What every sandbox's secret is derived from. Whoever has it can talk to every supervisor.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub [u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// How long a supervisor may take to say that it is ready.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(30);

/// How long it may take if it has files to copy first.
const COPIED_WITHIN: Duration = Duration::from_mins(10);

/// What a sandbox takes itself for.
pub(super) const HOSTNAME: &str = "sandbox";

/// The most companions that one sandbox has.
const MAX_COMPANIONS: usize = 16;

const SOFT: &str = "this server has no control groups, so that it cannot hold a sandbox to a limit \
    of memory or processors: leave the limits out, or run the server where it has them (see \
    ringfence doctor)";

const NO_DISK_LIMIT: &str = "this server holds no limits of disk space (allow_unlimited_disk): leave \
    disk_limit out, or run the server as root where btrfs-progs or e2fsprogs is installed";

#[derive(Debug)]
pub(crate) struct Machine {
    spawner: Spawner,
    folder: PathBuf,
    key: Key,
    /// Whether the kernel holds what sandboxes use to a limit.
    has_limits: bool,
    /// Whether sandboxes have users of their own.
    has_users: bool,
}

/// Why a sandbox has no body.
#[derive(Debug, thiserror::Error)]
pub(super) enum MachineError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("cannot make the sandbox: {0}")]
    Broken(#[from] Broken),
    #[error("cannot clear it away: {0}")]
    Left(Broken),
    #[error("its supervisor was not ready within {0:?}")]
    NotInTime(Duration),
    #[error("cannot give the sandbox a path of the machine: {0}")]
    NoPath(#[from] NoPath),
    #[error("cannot set the limits of the sandbox")]
    Limits(#[source] io::Error),
    #[error("cannot talk to its supervisor")]
    Link(#[source] io::Error),
    /// The data directory has no room for its files.
    #[error("{said}")]
    Full { said: String },
    #[error("it has no files: {said}")]
    Volume { said: String },
    #[error("which image {image} it was made from is not known")]
    NoImage { image: String },
    #[error(transparent)]
    Freeze(#[from] FreezeError),
    /// It may answer later. What it has of the sandbox is as it was.
    #[error("{why}")]
    Provider { why: String },
    #[error("its provider has it no more")]
    Gone,
    #[cfg_attr(not(feature = "docker"), expect(dead_code, reason = "only engines answer so"))]
    #[error("the provider could not {doing}: it answered {status}")]
    Container { doing: &'static str, status: u16 },
    #[error("the spawner answered something else")]
    Confused,
    #[error("cannot publish a port at port {port} of this machine")]
    Port {
        port: u16,
        #[source]
        source: io::Error,
    },
}

impl MachineError {
    /// Whether the spawner is gone, and with it this server: then nothing is known of the sandbox.
    pub(super) fn is_our_own_end(&self) -> bool {
        matches!(self, Self::Engine(EngineError::SpawnerGone | EngineError::Socket(_)))
    }

    /// Whether the sandbox is as it was, and can only not be reached.
    pub(super) fn is_out_of_reach(&self) -> bool {
        matches!(self, Self::Provider { .. })
    }
}

impl From<MachineError> for SandboxError {
    fn from(error: MachineError) -> Self {
        match error {
            MachineError::Provider { why } => Self::Provider(why),
            other => Self::Unavailable(chain(&other)),
        }
    }
}

/// What was found of a sandbox.
#[derive(Debug)]
pub(super) enum Found {
    Link(Link),
    Nothing {
        rebooted: bool,
    },
    /// Its provider has ended its processes, and kept its files.
    #[cfg_attr(not(feature = "docker"), expect(dead_code, reason = "only containers are so"))]
    Stopped,
    /// Its provider has nothing of it.
    #[cfg_attr(not(feature = "docker"), expect(dead_code, reason = "only containers are so"))]
    Gone,
}

impl Machine {
    pub(crate) fn new(spawner: Spawner, posture: &Posture, settings: &Settings) -> Self {
        Self {
            spawner,
            folder: settings.folder.clone(),
            key: settings.key.clone(),
            has_limits: matches!(posture.limits, Limits::Cgroups { .. }),
            has_users: posture.identity == Identity::Apart,
        }
    }

    pub(super) fn spawner(&self) -> &Spawner {
        &self.spawner
    }

    /// Opens a place of images with the rights of who asked for the sandbox. None if it was not he who
    /// is to open it.
    pub(super) async fn open_granted(
        &self,
        id: &SandboxId,
        path: String,
    ) -> Result<Option<OwnedFd>, MachineError> {
        let order = SandboxOrder::OpenGranted { sandbox: id.to_string(), path };
        match self.spawner.sandbox(order).await? {
            (SandboxAnswer::Path, fds) => Ok(fds.into_iter().next()),
            (SandboxAnswer::NoPath(NoPath { problem: Problem::NotAllowed, .. }), _) => Ok(None),
            (answer, _) => settle(answer).and(Err(MachineError::Confused)),
        }
    }

    /// Refuses what cannot be made here.
    pub(super) async fn check(&self, spec: &SandboxSpec) -> Result<(), SandboxError> {
        self.check_disk(spec.resources.disk).await?;
        for companion in &spec.companions {
            self.check_disk(companion.resources.disk).await?;
        }
        self.check_all_but_disk(spec)
    }

    fn check_all_but_disk(&self, spec: &SandboxSpec) -> Result<(), SandboxError> {
        let Resources { millicores, memory, processes, disk: _ } = spec.resources;
        let limits = [
            ("cpu_limit", millicores.is_some()),
            ("memory_limit", memory.is_some()),
            ("processes", processes.is_some()),
        ];
        if let Some((field, _)) = limits.into_iter().find(|(_, is_asked)| *is_asked)
            && !self.has_limits
        {
            return Err(SandboxError::not_supported(field, SOFT));
        }
        check_kind(spec)?;
        let mut companions = spec.companions.iter();
        companions.try_for_each(|companion| self.check_all_but_disk(&as_sandbox(companion)))
    }

    /// Refuses a limit of disk space that cannot be held, and everything where there are no volumes.
    async fn check_disk(&self, limit: Option<ByteSize>) -> Result<(), SandboxError> {
        let unavailable = |why: &str| {
            SandboxError::Unavailable(format!("there are no disks for sandboxes: {why}"))
        };
        // Only just after a start is this not known.
        let volumes = match timeout(READY_WITHIN, self.spawner.volumes()).await {
            Ok(volumes) => volumes.map_err(|error| unavailable(&error.to_string()))?,
            Err(_elapsed) => return Err(unavailable("the server is still looking for them")),
        };
        match (volumes, limit) {
            // It can be only when the server is started in another way.
            (Volumes::None { why }, _) => refuse(&why),
            (Volumes::Held { kind: DiskKind::Unlimited, .. }, Some(_)) => {
                Err(SandboxError::not_supported("disk_limit", NO_DISK_LIMIT))
            }
            (_, Some(limit)) if limit < LEAST_DISK => {
                let message = format!("a sandbox's disk_limit is at least {LEAST_DISK}");
                Err(SandboxError::field("disk_limit", message))
            }
            // Whatever is broken may not be so any more when it is made.
            (Volumes::Held { .. } | Volumes::Broken { .. }, _) => Ok(()),
        }
    }

    /// Whether sandboxes have users of their own.
    pub(super) fn has_users(&self) -> bool {
        self.has_users
    }

    /// Says why no command can be root, if none can.
    pub(super) fn no_root(&self) -> Option<&'static str> {
        (!self.has_users).then_some(command::ONE_USER)
    }

    /// Starts the supervisor of a sandbox and connects to it.
    pub(super) async fn make(
        &self,
        sandbox: &Sandbox,
        defaults: Defaults,
    ) -> Result<Link, MachineError> {
        let body = Body {
            name: sandbox.id.to_string(),
            hostname: HOSTNAME.to_owned(),
            beside: None,
            hosts: names_of(sandbox),
        };
        self.make_body(body, sandbox, defaults).await
    }

    /// Starts the supervisor of a companion beside that of its sandbox, and connects to it.
    pub(super) async fn make_companion(
        &self,
        sandbox: &Sandbox,
        number: usize,
        companion: &Companion,
        defaults: Defaults,
    ) -> Result<Link, MachineError> {
        let body = Body {
            name: companion_name(sandbox.id.as_str(), number),
            hostname: companion.name.clone(),
            beside: Some(sandbox.id.to_string()),
            hosts: names_of(sandbox),
        };
        let like_a_sandbox = Sandbox { spec: as_sandbox(companion), ..sandbox.clone() };
        self.make_body(body, &like_a_sandbox, defaults).await
    }

    async fn make_body(
        &self,
        body: Body,
        sandbox: &Sandbox,
        defaults: Defaults,
    ) -> Result<Link, MachineError> {
        let usual = self.usual(&body.name, &sandbox.tenant, defaults);
        let spec = BodySpec {
            hostname: body.hostname,
            image: image_of(sandbox)?,
            paths: match sandbox.life.phase {
                _ if !has_paths(&sandbox.spec) => HostPaths::None,
                Phase::Resuming => HostPaths::Again,
                _ => HostPaths::New,
            },
            beside: body.beside,
            hosts: body.hosts,
            max_processes: sandbox.spec.resources.processes.unwrap_or(usual.max_processes),
            disk: match sandbox.spec.resources.disk {
                Some(limit) => DiskLimit::Promised(ByteCount(limit.as_bytes())),
                None => usual.disk,
            },
            ..usual
        };
        let (answer, fds) = self.spawner.sandbox(SandboxOrder::Make(Box::new(spec))).await?;
        let SandboxAnswer::Body { cgroup } = settle(answer)? else {
            return Err(MachineError::Confused);
        };
        let mut fds = fds.into_iter();
        let control = fds.next().ok_or(EngineError::MissingDescriptors)?;
        let group = Group::new(cgroup, fds.collect())?;
        group.limit(&sandbox.spec.resources, defaults).map_err(MachineError::Limits)?;
        let within = if sandbox.spec.copies.is_empty() { READY_WITHIN } else { COPIED_WITHIN };
        self.connect_when_ready(&body.name, control, within).await
    }

    /// What a sandbox is that has nothing but what all have.
    pub(super) fn usual(&self, name: &str, tenant: &Tenant, defaults: Defaults) -> BodySpec {
        BodySpec {
            sandbox: name.to_owned(),
            tenant: tenant_number(tenant.as_str()),
            secret: self.secret(name),
            hostname: HOSTNAME.to_owned(),
            max_processes: defaults.processes,
            max_open_files: defaults.open_files,
            image: Image::Host,
            beside: None,
            hosts: Vec::new(),
            disk: DiskLimit::UpTo(ByteCount(defaults.disk.as_bytes())),
            paths: HostPaths::None,
        }
    }

    /// Waits until the init at the other end supervises, and connects to it.
    pub(super) async fn connect_when_ready(
        &self,
        name: &str,
        control: OwnedFd,
        within: Duration,
    ) -> Result<Link, MachineError> {
        let control = Control::from_fd(control).map_err(MachineError::Link)?;
        match timeout(within, control.receive()).await {
            Ok(report) => match report? {
                Report::Ready => {}
                Report::Broken(broken) => return Err(broken.into()),
                Report::NoPath(no_path) => return Err(no_path.into()),
                Report::Exited { .. } => return Err(MachineError::Confused),
            },
            Err(_elapsed) => return Err(MachineError::NotInTime(within)),
        }
        self.connect(name).map(Link::of_this_build)
    }

    /// Finds the supervisor that a daemon before this one has left, if it lives. That one may have
    /// died before it had set the limits.
    pub(super) async fn open(
        &self,
        name: &str,
        resources: &Resources,
        defaults: Defaults,
    ) -> Result<Found, MachineError> {
        match self.look(name).await? {
            (SandboxAnswer::Body { cgroup }, fds) => {
                let group = Group::new(cgroup, fds)?;
                group.limit(resources, defaults).map_err(MachineError::Limits)?;
                Ok(Found::Link(self.connect(name)?))
            }
            (SandboxAnswer::NoBody { rebooted }, _) => Ok(Found::Nothing { rebooted }),
            _ => Err(MachineError::Confused),
        }
    }

    async fn look(&self, name: &str) -> Result<(SandboxAnswer, Vec<OwnedFd>), MachineError> {
        let order = SandboxOrder::Open { sandbox: name.to_owned() };
        let (answer, fds) = self.spawner.sandbox(order).await?;
        Ok((settle(answer)?, fds))
    }

    pub(super) fn connect(&self, name: &str) -> Result<Link, MachineError> {
        let (folder, secret) = self.door(name);
        Link::open(&folder, secret).map_err(MachineError::Link)
    }

    /// Returns where a supervisor listens, and what to say there.
    pub(super) fn door(&self, name: &str) -> (PathBuf, Secret) {
        (self.folder.join(name), self.secret(name))
    }

    /// Ends every process of a body and keeps its files.
    pub(super) async fn end(&self, name: &str) -> Result<(), MachineError> {
        self.done(SandboxOrder::End { sandbox: name.to_owned() }).await
    }

    /// Ends every process of a sandbox and of its companions, and keeps their files.
    pub(super) async fn end_all(&self, sandbox: &Sandbox) -> Result<(), MachineError> {
        for name in companions_of(sandbox) {
            self.end(&name).await?;
        }
        self.end(sandbox.id.as_str()).await
    }

    /// Ends every process of a sandbox and of its companions, and removes their files.
    pub(super) async fn remove_all(&self, sandbox: &Sandbox) -> Result<(), MachineError> {
        for name in companions_of(sandbox) {
            self.remove(&name).await?;
        }
        self.remove(sandbox.id.as_str()).await
    }

    /// Ends every process of a sandbox and removes its files.
    pub(super) async fn remove(&self, name: &str) -> Result<(), MachineError> {
        self.done(SandboxOrder::Remove { sandbox: name.to_owned() }).await
    }

    /// Removes the output of a command that is over, of a sandbox whose supervisor does not.
    pub(super) async fn clear_output(
        &self,
        id: &SandboxId,
        exec: &ExecId,
    ) -> Result<(), MachineError> {
        let (sandbox, exec) = (id.to_string(), exec.to_string());
        self.done(SandboxOrder::Clear { sandbox, exec }).await
    }

    pub(super) async fn done(&self, order: SandboxOrder) -> Result<(), MachineError> {
        match self.spawner.sandbox(order).await?.0 {
            SandboxAnswer::Failed { broken } => Err(MachineError::Left(broken)),
            _ => Ok(()),
        }
    }

    /// Names what has files or processes here.
    pub(super) async fn list(&self) -> Result<Vec<String>, MachineError> {
        let (answer, _) = self.spawner.sandbox(SandboxOrder::List).await?;
        match settle(answer)? {
            SandboxAnswer::List { sandboxes } => Ok(sandboxes),
            _ => Err(MachineError::Confused),
        }
    }

    /// Returns what a supervisor wrote down. Without a journal that is nothing.
    pub(super) async fn journal(&self, id: &SandboxId) -> Vec<Record> {
        let path = self.folder.join(id.as_str()).join(folder::JOURNAL);
        let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
        match read.map_err(io::Error::other).and_then(|read| read) {
            Ok(bytes) => journal::read(&bytes),
            Err(error) => {
                tracing::debug!(sandbox = %id, %error, "no journal");
                Vec::new()
            }
        }
    }

    /// Has the output of a command on disk before its end is told.
    pub(super) async fn sync_outputs(&self, id: &SandboxId, exec: &ExecId) -> io::Result<()> {
        let folder = self.folder.join(id.as_str()).join(folder::OUTPUTS);
        let files = ["stdout", "stderr"].map(|s| folder.join(format!("{exec}.{s}.log")));
        tokio::task::spawn_blocking(move || files.iter().try_for_each(|file| sync(file)))
            .await
            // The runtime ends, and this server with it.
            .unwrap_or(Err(io::ErrorKind::Interrupted.into()))
    }

    pub(super) fn secret(&self, name: &str) -> Secret {
        let mut hash = Sha256::new();
        hash.update(self.key.0);
        hash.update(name);
        Secret(hash.finalize().into())
    }
}

/// One of the bodies that a sandbox has: its own, or a companion's.
struct Body {
    name: String,
    hostname: String,
    beside: Option<String>,
    hosts: Vec<String>,
}

fn names_of(sandbox: &Sandbox) -> Vec<String> {
    sandbox.spec.companions.iter().map(|companion| companion.name.clone()).collect()
}

fn companions_of(sandbox: &Sandbox) -> impl Iterator<Item = String> {
    let (id, count) = (sandbox.id.to_string(), sandbox.spec.companions.len());
    (0..count).map(move |number| companion_name(&id, number))
}

/// What a companion is, in the words for a sandbox.
pub(super) fn as_sandbox(companion: &Companion) -> SandboxSpec {
    SandboxSpec {
        image: companion.image.clone(),
        env: companion.env.clone(),
        command: companion.command.clone(),
        resources: companion.resources,
        ..SandboxSpec::default()
    }
}

/// Returns what the root of a sandbox is made of. Which image its name led to is in its record.
fn image_of(sandbox: &Sandbox) -> Result<Image, MachineError> {
    let name = &sandbox.spec.image;
    if name == HOST {
        return Ok(Image::Host);
    }
    if root_of(&sandbox.spec).is_some() {
        return Ok(Image::Folder);
    }
    let used = sandbox.life.images.get(name);
    let used = used.ok_or_else(|| MachineError::NoImage { image: name.clone() })?;
    Ok(Image::Layers(used.layers.clone()))
}

pub(super) fn settle(answer: SandboxAnswer) -> Result<SandboxAnswer, MachineError> {
    match answer {
        SandboxAnswer::Failed { broken } => Err(broken.into()),
        SandboxAnswer::NoPath(no_path) => Err(no_path.into()),
        SandboxAnswer::NoVolume { reason: Reason::Full, said } => Err(MachineError::Full { said }),
        SandboxAnswer::NoVolume { said, .. } => Err(MachineError::Volume { said }),
        other => Ok(other),
    }
}

fn sync(path: &Path) -> io::Result<()> {
    match std::fs::File::open(path) {
        Ok(file) => file.sync_data(),
        // A command that never ran has written nothing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn refuse<T>(what: &str) -> Result<T, SandboxError> {
    Err(SandboxError::Invalid(what.to_owned()))
}

/// Refuses what no machine makes yet.
fn check_kind(spec: &SandboxSpec) -> Result<(), SandboxError> {
    if spec.companions.len() > MAX_COMPANIONS {
        let message = format!("a sandbox has at most {MAX_COMPANIONS} companions");
        return Err(SandboxError::field("companion_containers", message));
    }
    if let Some(place) = spec.ports.iter().position(|port| port.protocol != Protocol::Tcp) {
        let field = format!("ports[{place}].protocol");
        return Err(SandboxError::not_supported(field, "this server publishes ports of TCP only"));
    }
    if spec.ports.len() > MAX_PORTS {
        let message = format!("a sandbox publishes at most {MAX_PORTS} ports");
        return Err(SandboxError::field("ports", message));
    }
    Ok(())
}
