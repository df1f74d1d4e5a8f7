//! Carries out what `model` decides, through `isolate`.
//!
//! Knows no HTTP, WebSocket or gRPC: surfaces translate to and from these types.

pub mod collect;
pub mod executions;
pub mod images;
pub mod languages;
pub mod machine_size;
mod outbound;
mod queue;
mod run;
pub mod sandboxes;
pub mod sessions;
mod slots;
mod spawner;
pub mod tasks;
mod tenant_number;
pub mod tools;

/// What stands between executions and the machine.
pub mod posture {
    pub use isolate::{
        plan::Identity,
        posture::{CgroupVersion, Limits, Posture, Volumes},
        volume::{DiskKind, Refused},
    };
}

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use isolate::socket::PacketSocket;
use model::{
    admission::{Capacity, Load},
    execution::Freshness,
    limits::LimitPolicy,
    units::ByteSize,
};

use images::Images;
use languages::{Language, Languages};
use posture::{Posture, Volumes};
use queue::Queue;
use sandboxes::{SandboxError, Sandboxes};
use slots::Slots;
use spawner::Spawner;
use store::Store;
use tasks::Tasks;

/// What an engine is started with.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub capacity: Capacity,
    pub limits: LimitPolicy,
    pub languages: Languages,
    /// What every execution gets at least.
    pub freshness: Freshness,
    /// What slots that wait for their requests may take together.
    pub pool_memory: PoolMemory,
    pub pool_idle: PoolIdle,
}

/// Memory for slots that wait, in all pools together. They have what they need at least in any
/// case; beyond that they grow with the load. If nobody says how far: to an eighth of what the
/// machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolMemory(pub ByteSize);

impl Default for PoolMemory {
    fn default() -> Self {
        Self(ByteSize::bytes(machine_size::memory().as_bytes() / 8))
    }
}

/// How long a tenant's slots wait for its next request before they are ended. Those of the server's own
/// tenant wait for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolIdle(pub Duration);

impl Default for PoolIdle {
    fn default() -> Self {
        Self(Duration::from_mins(10))
    }
}

/// What the pool of one language has right now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolLoad {
    pub language: String,
    /// Slots that wait for a request.
    pub ready: usize,
    pub being_made: usize,
    /// Slots that could not be made the warm way and were made anew, since the start.
    pub made_anew: u64,
    /// Requests that found no slot ready and waited for one, since the start.
    pub waited_for: u64,
}

/// The engine of this node. Cheap to clone; all clones are the same engine.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    posture: Posture,
    limits: LimitPolicy,
    languages: Languages,
    freshness: Freshness,
    queue: Arc<Queue>,
    slots: Slots,
    spawner: Spawner,
    tasks: Tasks,
}

/// What went wrong on our side.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("no such language")]
    UnknownLanguage,
    #[error("the spawner is gone")]
    SpawnerGone,
    #[error("the socket to the spawner cannot be used")]
    Socket(#[source] std::io::Error),
    #[error("a slot cannot be made")]
    Slot(#[from] isolate::plan::Broken),
    #[error("a slot came without its descriptors")]
    MissingDescriptors,
    #[error("the pool of slots was closed")]
    PoolClosed,
    #[error("the init of a slot is gone")]
    InitGone,
    #[error("the init of a slot said something that cannot be understood")]
    InitConfused(#[source] isolate::wire::WireError),
    #[error("cannot {doing}")]
    System {
        doing: &'static str,
        #[source]
        source: std::io::Error,
    },
}

impl Engine {
    /// Starts an engine over the socket to its spawner, once that has said hello.
    pub async fn start(settings: Settings, spawner: OwnedFd) -> Result<Self, EngineError> {
        let tasks = Tasks::default();
        let spawner = spawner::connect(PacketSocket::from_fd(spawner), &tasks)?;
        let posture = spawner.posture().await?;
        let slots = Slots::open(spawner.clone(), &settings, &tasks).await?;
        let inner = Inner {
            posture,
            limits: settings.limits,
            languages: settings.languages,
            freshness: settings.freshness,
            queue: Queue::new(settings.capacity),
            slots,
            spawner,
            tasks,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Takes over the sandboxes of this node, as the store knows them.
    pub async fn open_sandboxes(
        &self,
        store: Store,
        images: Images,
        settings: sandboxes::Settings,
    ) -> Result<Sandboxes, SandboxError> {
        let (spawner, tasks) = (self.inner.spawner.clone(), self.inner.tasks.clone());
        let machine = sandboxes::Machine::new(spawner, &self.inner.posture, &settings);
        Sandboxes::open(store, images, machine, settings, tasks).await
    }

    /// Returns the images of this node. Nothing is started or read before the first is wanted.
    pub fn open_images(&self, settings: images::Settings) -> Images {
        let (spawner, tasks) = (self.inner.spawner.clone(), self.inner.tasks.clone());
        Images::new(settings, self.inner.posture.identity, spawner, tasks)
    }

    /// Returns the language of that name, if its runtime is installed.
    pub fn language(&self, name: &str) -> Option<&Language> {
        self.inner.languages.get(name)
    }

    /// Returns the languages whose runtimes are installed.
    pub fn languages(&self) -> impl Iterator<Item = &Language> {
        self.inner.languages.iter()
    }

    /// Returns which layers of isolation are active on this machine.
    pub fn posture(&self) -> &Posture {
        &self.inner.posture
    }

    /// Returns what holds the limits of sandboxes' files, once that was found out.
    pub async fn volumes(&self) -> Result<Volumes, EngineError> {
        self.inner.spawner.volumes().await
    }

    /// Returns what the operator allows at most.
    pub fn limit_policy(&self) -> LimitPolicy {
        self.inner.limits
    }

    pub fn load(&self) -> Load {
        self.inner.queue.load()
    }

    /// Returns what the pool of every language has that has one.
    pub fn pools(&self) -> Vec<PoolLoad> {
        self.inner.slots.pools()
    }

    /// Returns when the spawner is gone: nothing can be run any more.
    pub async fn spawner_gone(&self) {
        self.inner.slots.spawner_gone().await;
    }

    /// Ends every execution and the spawner. Nothing can be run afterwards.
    pub fn close(&self) {
        self.inner.slots.close();
    }

    /// Opens an account for one connection of a tenant: its executions are counted and limited together.
    /// Tenants take turns, and share no warm slot and no zygote.
    pub fn client(&self, tenant: &str) -> executions::Client {
        executions::Client::new(self.clone(), tenant)
    }
}
