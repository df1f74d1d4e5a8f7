//! Where executions get their slots: ready ones from a pool, or new ones.

mod pool;
mod zygote;

use std::{collections::HashMap, os::fd::OwnedFd, sync::Arc};

use isolate::{
    cgroup::handles::Handles,
    plan::{Launch, SlotSpec},
    slot::SlotEnds,
    wire::Report,
};
use model::{
    execution::{Execution, Freshness},
    limits::Limits,
    units::ByteSize,
};
use rustix::io::Errno;

use crate::{
    EngineError, PoolLoad,
    languages::{Language, Languages, Warm, slot_spec},
    spawner::{Control, SlotNumber, Spawner},
    tasks::Tasks,
};
pub(crate) use pool::InLine;
use pool::{Budget, Pool};

/// The slots of this node.
#[derive(Debug)]
pub(crate) struct Slots {
    spawner: Spawner,
    pools: HashMap<String, Arc<Pool>>,
}

/// A slot that waits for its one request. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) number: SlotNumber,
    pub(crate) control: Control,
    pub(crate) ends: Ends,
    pub(crate) cgroup: Handles,
}

impl Slot {
    /// Sets what the kernel is to hold the slot to.
    pub(crate) fn limit(&self, limits: &Limits) -> Result<(), EngineError> {
        let cannot =
            |doing| move |errno: Errno| EngineError::System { doing, source: errno.into() };
        let (memory, shares) = (limits.memory.as_bytes(), limits.cpu_shares);
        self.cgroup.limit_memory(memory).map_err(cannot("limit memory"))?;
        self.cgroup.set_cpu_shares(shares).map_err(cannot("set cpu shares"))
    }
}

/// The pipes of a slot.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) code: OwnedFd,
}

impl Slots {
    /// Opens a pool for every language that has one, and lets them fill. Where every execution is
    /// strict nobody would ever take from a pool of runtimes that have started.
    pub(crate) async fn open(
        spawner: Spawner,
        languages: &Languages,
        least: Freshness,
        pool_memory: ByteSize,
        tasks: &Tasks,
    ) -> Result<Self, EngineError> {
        let mut pools = HashMap::new();
        let budget = Arc::new(Budget::new(pool_memory));
        for language in languages.iter() {
            for (path, content) in &language.files {
                spawner.add_file(path, content).await?;
            }
            let has_pool = match language.warm {
                Warm::Never => false,
                Warm::Wait => true,
                Warm::Park(_) | Warm::Fork(_) => least == Freshness::Shared,
            };
            if has_pool {
                let (spawner, budget) = (spawner.clone(), Arc::clone(&budget));
                let pool = Pool::open(language.clone(), spawner, tasks.clone(), budget);
                pools.insert(language.name.clone(), pool);
            }
        }
        Ok(Self { spawner, pools })
    }

    /// Notes that this execution is going to need a slot, as long as what is returned is kept.
    pub(crate) fn line_up(&self, execution: &Execution) -> Option<InLine> {
        self.pool_for(execution).map(Pool::line_up)
    }

    fn pool_for(&self, execution: &Execution) -> Option<&Arc<Pool>> {
        let pool = self.pools.get(&execution.language)?;
        (!needs_new(pool.language(), execution)).then_some(pool)
    }

    /// Returns a slot for this execution that is ready to be let go.
    pub(crate) async fn obtain(
        &self,
        language: &Language,
        execution: &Execution,
    ) -> Result<Slot, EngineError> {
        match self.pool_for(execution) {
            Some(pool) => pool.take(&execution.limits).await,
            None => make(&self.spawner, slot_spec(language.launch_anew())).await,
        }
    }

    /// Returns what every pool has right now.
    pub(crate) fn pools(&self) -> Vec<PoolLoad> {
        self.pools.values().map(|pool| pool.load()).collect()
    }

    /// Says that an execution has ended, so that there is time to make the next slot.
    pub(crate) fn has_ended(&self, language: &str) {
        if let Some(pool) = self.pools.get(language) {
            pool.fill();
        }
    }

    pub(crate) async fn spawner_gone(&self) {
        self.spawner.gone().await;
    }

    /// Ends every slot, for good.
    pub(crate) fn close(&self) {
        self.spawner.close();
    }

    /// Has a slot ended whose own init does not answer.
    pub(crate) async fn destroy(&self, slot: SlotNumber) -> Result<(), EngineError> {
        self.spawner.destroy(slot).await
    }
}

/// Whether a runtime that has started already would not do: it was asked for, or a variable is
/// given that a runtime looks at only when it starts. Where slots wait before their runtime starts
/// there is no such thing.
fn needs_new(language: &Language, execution: &Execution) -> bool {
    language.warm != Warm::Wait
        && (execution.freshness == Freshness::Strict
            || execution.env.iter().any(|(name, _)| language.reads_at_start(name)))
}

/// Has a slot made, and waits until it is ready.
async fn make(spawner: &Spawner, spec: SlotSpec) -> Result<Slot, EngineError> {
    let (number, ends) = spawner.make(spec).await?;
    let SlotEnds { control, stdin, stdout, stderr, code, cgroup } = ends;
    let control = Control::new(control)
        .map_err(|source| EngineError::System { doing: "watch a slot", source })?;
    match control.receive().await? {
        Report::Ready => {}
        Report::Broken(broken) => return Err(broken.into()),
        Report::NoPath(_) | Report::Exited { .. } => return Err(EngineError::InitGone),
    }
    Ok(Slot { number, control, ends: Ends { stdin, stdout, stderr, code }, cgroup })
}

/// Returns how a slot of the pool is launched.
fn launch_warm(language: &Language, zygote: Option<u64>, hurried: bool) -> Launch {
    match (&language.warm, zygote) {
        (Warm::Fork(_), Some(zygote)) => Launch::Fork { zygote, hurried },
        (Warm::Park(program), _) => Launch::Park { program: program.clone() },
        (Warm::Wait | Warm::Never | Warm::Fork(_), _) => language.launch_anew(),
    }
}
