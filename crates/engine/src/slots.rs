//! Where executions get their slots: ready ones from a pool, or new ones.

mod budget;
mod pool;
mod tenants;
mod zygote;

use std::{os::fd::OwnedFd, sync::Arc};

use isolate::{
    cgroup::handles::Handles,
    plan::{Launch, SlotSpec},
    slot::SlotEnds,
    wire::Report,
};
use model::{
    execution::{Execution, Freshness},
    limits::Limits,
};
use rustix::io::Errno;

use crate::{
    EngineError, PoolLoad, Settings,
    languages::{Language, Warm, slot_spec},
    spawner::{Control, SlotNumber, Spawner},
    tasks::Tasks,
};
pub(crate) use pool::InLine;
use pool::Pool;
use tenants::TenantPools;

/// The slots of this node.
#[derive(Debug)]
pub(crate) struct Slots {
    spawner: Spawner,
    pools: Arc<TenantPools>,
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
    /// Opens the pools of the server's own tenant, and lets them fill. Where every execution is strict
    /// no pool of runtimes that have started is ever used.
    pub(crate) async fn open(
        spawner: Spawner,
        settings: &Settings,
        tasks: &Tasks,
    ) -> Result<Self, EngineError> {
        let mut pooled = Vec::new();
        for language in settings.languages.iter() {
            for (path, content) in &language.files {
                spawner.add_file(path, content).await?;
            }
            let has_pool = match language.warm {
                Warm::Never => false,
                Warm::Wait => true,
                Warm::Park(_) | Warm::Fork(_) => settings.freshness == Freshness::Shared,
            };
            if has_pool {
                pooled.push(language.clone());
            }
        }
        let pools = TenantPools::open(pooled, spawner.clone(), tasks.clone(), settings);
        Ok(Self { spawner, pools })
    }

    /// Notes that this execution is going to need a slot of its tenant's pool, as long as what is
    /// returned is kept. `None`: it gets a new slot.
    pub(crate) fn line_up(&self, tenant: &Arc<str>, execution: &Execution) -> Option<InLine> {
        let language = self.pools.language(&execution.language)?;
        if needs_new(language, execution) || execution.limits.fixed != self.pools.slot_limits() {
            return None;
        }
        self.pools.line_up(tenant, language)
    }

    /// Returns a slot for this execution that is ready to be let go.
    pub(crate) async fn obtain(
        &self,
        tenant: &str,
        language: &Language,
        execution: &Execution,
        in_line: Option<&InLine>,
    ) -> Result<Slot, EngineError> {
        if let Some(in_line) = in_line {
            return in_line.pool().take(&execution.limits).await;
        }
        let spec = slot_spec(language.launch_anew(), tenant, execution.limits.fixed);
        make(&self.spawner, spec).await
    }

    /// Returns what the pools of every language have right now, of all tenants together.
    pub(crate) fn pools(&self) -> Vec<PoolLoad> {
        self.pools.loads()
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

/// Says that an execution has ended, so that there is time to make the next slot.
pub(crate) fn has_ended(pool: Option<&Arc<Pool>>) {
    if let Some(pool) = pool {
        pool.fill();
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
