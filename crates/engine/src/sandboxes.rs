//! Long-lived sandboxes: one task for each carries out what `model` decides, and keeps it in the
//! store before anybody is told.

mod actor;
mod adjusting;
pub mod attach;
mod bound;
pub(crate) mod clock;
mod command;
mod companions;
mod creating;
#[cfg(feature = "docker")]
mod docker;
mod error;
mod events;
mod feeds;
pub mod files;
mod forgetting;
mod group;
mod link;
mod listing;
mod machine;
mod materials;
mod orphans;
mod outputs;
mod paths;
mod places;
mod ports;
mod provider;
mod requests;
mod restarts;
mod settled;
pub mod shells;
pub mod snapshots;
mod stock;
mod tools;
mod way;

use std::{
    collections::{HashMap, HashSet},
    num::NonZeroU16,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use isolate::sandbox::{folder, sandbox_of};
use model::{
    event::Sequence,
    exec::Exec,
    ids::{ExecId, NodeId, SandboxId, Tenant},
    life::{EndCause, SuspendReason},
    resources::ResourcePolicy,
    sandbox::{Request, Sandbox, WhenStopped},
    spec::ExecSpec,
    units::ByteSize,
};
use rustix::rand::{GetRandomFlags, getrandom};
use store::{
    Store,
    sandboxes::{ExecAt, Filter, Page},
};
use tokio::time::Instant;

use crate::{
    images::{Collected, Images, InUse},
    tasks::Tasks,
};
use actor::{Actor, Contact};
pub use error::{FieldProblem, SandboxError};
pub use events::{EventStream, News};
use feeds::Feeds;
use files::Crews;
pub use machine::Key;
pub(crate) use machine::Machine;
use outputs::Outputs;
pub use paths::Caller;
use places::Places;
pub use places::Terms;
use provider::Provider;
use shells::Painters;
use stock::Stock;
pub use way::{ConnectError, Connection};

/// What sandboxes on this node have in common.
#[derive(Clone, Debug)]
pub struct Settings {
    pub node: NodeId,
    /// The folder in which each has its own, known to the spawner by the same name.
    pub folder: PathBuf,
    /// Where the screens of shells are kept; made if it is missing.
    pub screens: PathBuf,
    /// What the secrets of supervisors are derived from.
    pub key: Key,
    pub defaults: Defaults,
    /// What one sandbox may ask for.
    pub resources: ResourcePolicy,
    /// How many bodies are there before anybody asks for a sandbox.
    pub prepared: usize,
    /// Where to meet the supervisors of containers, which the spawner knows an engine for. Nothing: this
    /// server makes no containers.
    pub docker: Option<PathBuf>,
}

/// What a sandbox gets if nobody says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    pub memory: ByteSize,
    /// What it may write, if it is there: it is promised to nobody.
    pub disk: ByteSize,
    pub processes: u32,
    pub open_files: u32,
    /// How much of each stream of a command is kept.
    pub output: ByteSize,
    /// How much is kept of all commands that are over.
    pub outputs: ByteSize,
    /// For how long the sandbox's own command may keep ending.
    pub crash_window: Duration,
    /// How long a stopped sandbox is kept before it is deleted; nothing: until a request deletes it.
    pub keep_stopped: Option<Duration>,
    /// How long a sandbox that failed without files is kept before it is deleted; nothing: until a request deletes it.
    pub keep_failed: Option<Duration>,
    /// How many events are kept of each.
    pub events: u64,
    /// How long the record of a deleted one stays readable.
    pub keep_deleted: Duration,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            memory: ByteSize::mib(2048),
            disk: ByteSize::mib(4096),
            processes: 1024,
            open_files: 4096,
            output: ByteSize::mib(64),
            outputs: ByteSize::mib(256),
            crash_window: Duration::from_mins(5),
            keep_stopped: None,
            keep_failed: Some(Duration::from_hours(1)),
            events: 100_000,
            keep_deleted: Duration::from_hours(360),
        }
    }
}

/// The least that a sandbox can be limited to.
pub const LEAST_DISK: ByteSize = ByteSize::bytes(isolate::disk::LEAST.0);

/// The sandboxes of this node. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Sandboxes {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    images: Images,
    machine: Arc<Machine>,
    docker: Box<dyn Provider>,
    settings: Settings,
    tasks: Tasks,
    /// The tasks of those that have not come to their end.
    living: Mutex<HashMap<SandboxId, Contact>>,
    /// Whether a sandbox was deleted whose image nobody may need any more.
    is_littered: AtomicBool,
    stock: Stock,
    files: Crews,
    outputs: Outputs,
    painters: Painters,
    places: Places,
}

/// What a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    Accepted,
    AlreadySo,
}

/// A command that was accepted, and where its output is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    pub exec: Exec,
    pub stdout: PathBuf,
    pub stderr: PathBuf,
}

/// Returns where the output of a command is: what it writes to stdout, and to stderr.
fn outputs_in(folder: &Path, sandbox: &SandboxId, exec: &ExecId) -> [PathBuf; 2] {
    let folder = folder.join(sandbox.as_str()).join(folder::OUTPUTS);
    ["stdout", "stderr"].map(|stream| folder.join(format!("{exec}.{stream}.log")))
}

impl Sandboxes {
    /// Takes over what is on this node: every sandbox that has not come to its end gets its task,
    /// which finds out what became of it. What nobody knows is removed.
    pub(crate) async fn open(
        store: Store,
        images: Images,
        machine: Machine,
        settings: Settings,
        tasks: Tasks,
    ) -> Result<Self, SandboxError> {
        let (living, is_littered) = (Mutex::default(), AtomicBool::new(false));
        let (outputs, ends) = Outputs::new();
        let machine = Arc::new(machine);
        let docker = provider::docker(&machine, &settings, &tasks);
        let stock = Stock::new(settings.prepared);
        let shared = Arc::new(Shared {
            store,
            images,
            machine,
            docker,
            settings,
            tasks,
            living,
            is_littered,
            stock,
            files: Crews::default(),
            painters: Painters::default(),
            places: Places::default(),
            outputs,
        });
        let unfinished = shared.store.unfinished_sandboxes(&shared.settings.node).await?;
        for id in &unfinished.damaged {
            tracing::error!(sandbox = id, "the record of a sandbox is damaged: it is left alone");
        }
        if unfinished.damaged.is_empty() {
            shells::tidy(&shared.settings.screens, &unfinished.sandboxes).await;
        }
        let known: HashSet<String> = unfinished
            .sandboxes
            .iter()
            .map(|sandbox| sandbox.id.to_string())
            .chain(unfinished.damaged)
            .collect();
        for sandbox in unfinished.sandboxes {
            Actor::recover(&shared, sandbox);
        }
        shared.remove_unknown(&known).await;
        snapshots::go_on(&shared).await?;
        shared.tasks.start("forgetting sandboxes", forgetting::keep(Arc::downgrade(&shared)));
        shared.tasks.start("stock of bodies", stock::keep(Arc::downgrade(&shared)));
        shared.tasks.start("orphans of providers", orphans::clear(Arc::downgrade(&shared)));
        shared.tasks.start("outputs", outputs::keep(Arc::downgrade(&shared), ends));
        Ok(Self { shared })
    }

    /// Returns how many bodies wait for a sandbox.
    pub fn prepared(&self) -> usize {
        self.shared.stock.count()
    }

    /// Returns the sandbox of this tenant that has this alias or id, deleted or not.
    pub async fn get(&self, tenant: &Tenant, name: &str) -> Result<Sandbox, SandboxError> {
        let found = self.shared.store.find_sandbox(tenant, name).await?;
        found.ok_or(SandboxError::NotFound)
    }

    /// The same, unless it is deleted or about to be.
    pub async fn undeleted(&self, tenant: &Tenant, name: &str) -> Result<Sandbox, SandboxError> {
        let found = self.get(tenant, name).await?;
        if found.life.phase.is_deleted() { Err(SandboxError::NotFound) } else { Ok(found) }
    }

    /// The same, unless it has come to its end.
    pub async fn unended(&self, tenant: &Tenant, name: &str) -> Result<Sandbox, SandboxError> {
        let found = self.get(tenant, name).await?;
        if found.life.phase.is_terminal() { Err(SandboxError::NotFound) } else { Ok(found) }
    }

    /// Returns whose sandbox this is, unless it has come to its end.
    pub async fn owner(&self, id: &SandboxId) -> Result<Option<Tenant>, SandboxError> {
        let served = self.shared.living().get(id).map(|contact| contact.tenant.clone());
        if served.is_some() {
            return Ok(served);
        }
        let found = self.shared.store.sandbox(id).await?;
        Ok(found.filter(|sandbox| !sandbox.life.phase.is_terminal()).map(|sandbox| sandbox.tenant))
    }

    pub async fn list(&self, filter: Filter) -> Result<Page, SandboxError> {
        Ok(self.shared.store.sandboxes(filter).await?)
    }

    /// Returns what one sandbox may ask for.
    pub fn resource_policy(&self) -> ResourcePolicy {
        self.shared.settings.resources
    }

    /// Ends its processes and keeps its files.
    pub async fn stop(&self, tenant: &Tenant, name: &str) -> Result<Taken, SandboxError> {
        self.take(tenant, name, Request::Stop(SuspendReason::Requested)).await
    }

    pub async fn resume(&self, tenant: &Tenant, name: &str) -> Result<Taken, SandboxError> {
        self.take(tenant, name, Request::Resume).await
    }

    /// Stops its processes where they stand.
    pub async fn freeze(&self, tenant: &Tenant, name: &str) -> Result<Taken, SandboxError> {
        self.take(tenant, name, Request::Freeze(SuspendReason::Requested)).await
    }

    pub async fn thaw(&self, tenant: &Tenant, name: &str) -> Result<Taken, SandboxError> {
        self.take(tenant, name, Request::Thaw).await
    }

    pub async fn delete(
        &self,
        tenant: &Tenant,
        name: &str,
        cause: EndCause,
    ) -> Result<Taken, SandboxError> {
        self.take(tenant, name, Request::Delete(cause)).await
    }

    /// Accepts a command. Without an id it gets a new one.
    pub async fn start_exec(
        &self,
        tenant: &Tenant,
        name: &str,
        exec: Option<ExecId>,
        spec: ExecSpec,
        when_stopped: WhenStopped,
    ) -> Result<Started, SandboxError> {
        self.start_exec_before(tenant, name, exec, spec, when_stopped, None).await
    }

    /// The same, for a caller that waits until `deadline` at most.
    pub async fn start_exec_before(
        &self,
        tenant: &Tenant,
        name: &str,
        exec: Option<ExecId>,
        spec: ExecSpec,
        when_stopped: WhenStopped,
        deadline: Option<Instant>,
    ) -> Result<Started, SandboxError> {
        let exec = match exec {
            Some(exec) => exec,
            None => ExecId::from_random(random()?),
        };
        let sandbox = if let Some(sandbox) = self.shared.served(tenant, name) {
            sandbox
        } else {
            let sandbox = self.get(tenant, name).await?;
            command::check(&sandbox, &spec, self.shared.provider(&sandbox.spec).no_root())?;
            sandbox.id
        };
        let request = Request::StartExec { exec, spec, when_stopped };
        let recorded = self.shared.request_before(&sandbox, request, deadline).await?;
        let started = recorded.and_then(|transition| transition.started().cloned());
        // Only what is new is accepted, so there always is one.
        let exec = started.ok_or(SandboxError::ExecExists)?;
        let [stdout, stderr] = self.outputs(&exec.sandbox, &exec.id);
        Ok(Started { exec, stdout, stderr })
    }

    /// Returns where the output of a command is: what it writes to stdout, and to stderr.
    pub fn outputs(&self, sandbox: &SandboxId, exec: &ExecId) -> [PathBuf; 2] {
        outputs_in(&self.shared.settings.folder, sandbox, exec)
    }

    /// Ends a command. It counts as cancelled when this returns; its processes end after it.
    pub async fn cancel_exec(&self, tenant: &Tenant, exec: &ExecId) -> Result<(), SandboxError> {
        let found = self.exec(tenant, exec).await?.exec;
        if found.life.state.is_terminal() {
            return Err(SandboxError::ExecEnded);
        }
        self.shared.request(&found.sandbox, Request::CancelExec(exec.clone())).await.map(drop)
    }

    /// Returns a command of this tenant, and the last event of its sandbox at the same moment.
    pub async fn exec(&self, tenant: &Tenant, exec: &ExecId) -> Result<ExecAt, SandboxError> {
        let found = self.shared.store.exec(tenant, exec).await?;
        found.ok_or(SandboxError::ExecNotFound)
    }

    /// Returns the commands that run, in one sandbox or in all of this tenant.
    pub async fn running_execs(
        &self,
        tenant: &Tenant,
        name: Option<&str>,
    ) -> Result<Vec<ExecAt>, SandboxError> {
        let sandbox = match name {
            Some(name) => Some(self.get(tenant, name).await?.id),
            None => None,
        };
        Ok(self.shared.store.running_execs(tenant, sandbox.as_ref()).await?)
    }

    /// Follows a sandbox from the event after this one.
    pub async fn events(
        &self,
        tenant: &Tenant,
        name: &str,
        after: Sequence,
    ) -> Result<EventStream, SandboxError> {
        let sandbox = self.get(tenant, name).await?;
        let progress = self.shared.living().get(&sandbox.id).map(|it| it.progress.clone());
        EventStream::open(self.shared.store.clone(), sandbox.id, after, progress).await
    }

    /// Connects to a port inside a sandbox, on its own loopback. It is in use until the connection
    /// is dropped: a frozen one is thawed, a stopped one started if that is wanted.
    pub async fn connect(
        &self,
        sandbox: &SandboxId,
        port: NonZeroU16,
        when_stopped: WhenStopped,
    ) -> Result<Connection, ConnectError> {
        let way = self.shared.living().get(sandbox).map(|contact| Arc::clone(&contact.way));
        match way {
            Some(way) => way.visit(port, when_stopped).await,
            // Nobody is connected to what does not live; why, the same request says as anywhere.
            None => match self.shared.request(sandbox, Request::Use(when_stopped)).await {
                Ok(_) => Err(SandboxError::NotFound.into()),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Takes a tenant's name of an image away, and deletes what nothing needs any more.
    pub async fn remove_image(
        &self,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Collected, SandboxError> {
        let in_use = self.shared.images_in_use(None).await?;
        let own = self.shared.images_in_use(Some(tenant)).await?;
        Ok(self.shared.images.remove(tenant, name, &own, &in_use).await?)
    }

    /// Returns the images that sandboxes are made from.
    pub fn images(&self) -> &Images {
        &self.shared.images
    }

    /// Lets go of every sandbox. Their supervisors go on.
    pub fn close(&self) {
        self.shared.living().clear();
    }

    async fn take(
        &self,
        tenant: &Tenant,
        name: &str,
        request: Request,
    ) -> Result<Taken, SandboxError> {
        let sandbox = match self.shared.served(tenant, name) {
            Some(sandbox) => sandbox,
            None => self.get(tenant, name).await?.id,
        };
        let recorded = self.shared.request(&sandbox, request).await?;
        Ok(if recorded.is_some() { Taken::Accepted } else { Taken::AlreadySo })
    }
}

impl Shared {
    /// Returns what is told of the commands of a sandbox of this tenant that has a task here.
    fn feeds(&self, sandbox: &SandboxId, tenant: &Tenant) -> Option<Arc<Feeds>> {
        let living = self.living();
        let contact = living.get(sandbox).filter(|contact| contact.tenant == *tenant)?;
        Some(Arc::clone(&contact.feeds))
    }

    /// Removes what is on this machine and in no record: a sandbox is recorded before it is made.
    async fn remove_unknown(&self, known: &HashSet<String>) {
        let there = match self.machine.list().await {
            Ok(there) => there,
            Err(error) => return tracing::error!(%error, "cannot see which sandboxes are there"),
        };
        for name in there.into_iter().filter(|name| !known.contains(sandbox_of(name))) {
            match self.machine.remove(&name).await {
                Ok(()) => tracing::warn!(sandbox = name, "removed what no record knows of"),
                Err(error) => tracing::error!(sandbox = name, %error, "cannot remove what is left"),
            }
        }
    }

    /// Names what the sandboxes of this node, or those of one tenant, are made from. A sandbox that is
    /// being made holds its images itself.
    async fn images_in_use(&self, tenant: Option<&Tenant>) -> Result<InUse, SandboxError> {
        let mut there = self.store.unfinished_sandboxes(&self.settings.node).await?;
        if there.damaged.is_empty() {
            let mut snapshots = self.store.ready_snapshots().await?;
            if let Some(tenant) = tenant {
                there.sandboxes.retain(|sandbox| sandbox.tenant == *tenant);
                snapshots.retain(|snapshot| snapshot.tenant == *tenant);
            }
            let mut in_use = materials::in_use(&there.sandboxes);
            in_use.images.extend(snapshots::images_of(&snapshots));
            return Ok(in_use);
        }
        let count = there.damaged.len();
        Err(SandboxError::Unavailable(format!(
            "what {count} sandboxes are made from cannot be read, so that no image is deleted"
        )))
    }

    /// Deletes the images that only deleted sandboxes were made from.
    async fn tidy_images(&self) {
        if !self.is_littered.swap(false, Ordering::Relaxed) {
            return;
        }
        let collected = match self.images_in_use(None).await {
            Ok(in_use) => self.images.collect(&in_use).await.map_err(SandboxError::from),
            Err(error) => Err(error),
        };
        match collected {
            Ok(collected) => tracing::info!(?collected, "deleted what no image needs any more"),
            Err(error) => tracing::warn!(%error, "cannot delete what no image needs any more"),
        }
    }

    fn living(&self) -> MutexGuard<'_, HashMap<SandboxId, Contact>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn random() -> Result<[u8; 16], SandboxError> {
    let mut bytes = [0; 16];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(16) => Ok(bytes),
        _ => Err(SandboxError::Unavailable("the kernel has no random numbers".to_owned())),
    }
}
