//! The engine as a surface sees it: a few things to ask, as values that can be called.
//!
//! The real one is made from an [`Engine`]. Tests of the surface hand in a scripted one, because
//! what a frame does to a connection must be tested without making a sandbox for it.

use std::{fmt, sync::Arc};

use api::{
    errors::ErrorCode,
    fathom::{Execute, server::Posture},
};
use engine::{Engine, PoolLoad, executions::Event};
use model::{
    admission::{Load, Overloaded},
    execution::{Execution, StopReason},
    limits::LimitPolicy,
    units::ByteSize,
};
use tokio::sync::mpsc;

use crate::{
    auth::{Caller, ExecutionPlace},
    from_wire,
    serve::Phase,
    to_wire,
};

type FindLanguage = dyn Fn(&str) -> Option<ByteSize> + Send + Sync;
type ReadLoad = dyn Fn() -> Load + Send + Sync;
type ReadPools = dyn Fn() -> Vec<PoolLoad> + Send + Sync;
type OpenAccount = dyn Fn(&str) -> Account + Send + Sync;
type Submit = dyn Fn(Execution) -> Result<Running, Overloaded> + Send + Sync;
type Stop = dyn Fn(StopReason) + Send + Sync;

/// What keeps an execution within its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryLimit {
    /// The kernel: not a page more.
    #[default]
    Held,
    /// A look now and then.
    Watched,
}

/// Runs executions. Cheap to clone.
#[derive(Clone)]
pub struct Executor {
    limit_policy: LimitPolicy,
    memory_limit: MemoryLimit,
    /// What there is to say of the machine; a scripted executor has none.
    posture: Option<Posture>,
    find_language: Arc<FindLanguage>,
    read_load: Arc<ReadLoad>,
    read_pools: Arc<ReadPools>,
    open_account: Arc<OpenAccount>,
}

impl Executor {
    /// Makes an executor of its parts: the policy, how much memory a language needs if it is
    /// there at all, the load, and an account for one connection of a tenant. It has no pools.
    pub fn new(
        limit_policy: LimitPolicy,
        find_language: impl Fn(&str) -> Option<ByteSize> + Send + Sync + 'static,
        read_load: impl Fn() -> Load + Send + Sync + 'static,
        open_account: impl Fn(&str) -> Account + Send + Sync + 'static,
    ) -> Self {
        Self {
            limit_policy,
            memory_limit: MemoryLimit::Held,
            posture: None,
            find_language: Arc::new(find_language),
            read_load: Arc::new(read_load),
            read_pools: Arc::new(Vec::new),
            open_account: Arc::new(open_account),
        }
    }

    /// Returns what the operator allows at most.
    pub(crate) fn limit_policy(&self) -> LimitPolicy {
        self.limit_policy
    }

    /// Returns what keeps executions within their memory.
    pub(crate) fn memory_limit(&self) -> MemoryLimit {
        self.memory_limit
    }

    /// Returns what stands between executions and this machine.
    pub(crate) fn posture(&self) -> Option<Posture> {
        self.posture.clone()
    }

    /// Returns the least memory that this language can start with, if it is there.
    pub(crate) fn min_memory(&self, language: &str) -> Option<ByteSize> {
        (self.find_language)(language)
    }

    pub(crate) fn load(&self) -> Load {
        (self.read_load)()
    }

    /// Returns what the pools of slots have right now.
    pub(crate) fn pools(&self) -> Vec<PoolLoad> {
        (self.read_pools)()
    }

    /// Opens an account for one connection of this caller.
    pub(crate) fn account(&self, caller: &Caller) -> Account {
        (self.open_account)(caller.tenant())
    }

    /// Accepts what a caller asks for, if the language is there, the limits are allowed, and there is
    /// room for it. The place is to be kept until its end.
    pub(crate) fn admit(
        &self,
        account: &Account,
        caller: &Caller,
        phase: Phase,
        execute: Execute,
    ) -> Result<(Running, ExecutionPlace), (ErrorCode, String)> {
        let overloaded = |message: String| (ErrorCode::SandboxOverloaded, message);
        let min_memory = self.min_memory(&execute.language).ok_or_else(|| {
            let name: String = execute.language.chars().take(64).collect();
            let message = format!("Language '{name}' is not available in this sandbox");
            (ErrorCode::LanguageNotSupported, message)
        })?;
        let limits = self.limit_policy().check(from_wire::asked_limits(execute.limits), min_memory);
        let limits = limits.map_err(|refusal| (ErrorCode::InvalidRequest, refusal.to_string()))?;
        if phase != Phase::Serving {
            return Err(overloaded("the server is shutting down".to_owned()));
        }
        let place = caller.begin_execution().map_err(|quota| overloaded(quota.to_string()))?;
        let running = account.submit(from_wire::execution(execute, limits));
        let running = running.map_err(|refusal| overloaded(refusal.to_string()))?;
        Ok((running, place))
    }
}

impl From<Engine> for Executor {
    fn from(engine: Engine) -> Self {
        let (languages, load, pools) = (engine.clone(), engine.clone(), engine.clone());
        let has_soft_limits = engine.posture().has_soft_limits();
        let memory_limit = if has_soft_limits { MemoryLimit::Watched } else { MemoryLimit::Held };
        let posture = Some(to_wire::posture(engine.posture()));
        let executor = Self::new(
            engine.limit_policy(),
            move |name| languages.language(name).map(|language| language.min_memory),
            move || load.load(),
            move |tenant| {
                let client = engine.client(tenant);
                Account::new(move |execution| {
                    let submitted = client.submit(execution)?;
                    let canceller = submitted.canceller;
                    let stop = move |reason| canceller.cancel(reason);
                    Ok(Running::new(submitted.events, stop))
                })
            },
        );
        Self { memory_limit, posture, read_pools: Arc::new(move || pools.pools()), ..executor }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("limit_policy", &self.limit_policy).finish_non_exhaustive()
    }
}

/// One connection's account: its executions are counted and limited together.
pub struct Account {
    submit: Box<Submit>,
}

impl Account {
    pub fn new(
        submit: impl Fn(Execution) -> Result<Running, Overloaded> + Send + Sync + 'static,
    ) -> Self {
        Self { submit: Box::new(submit) }
    }

    /// Accepts an execution into the queue, or refuses it at once when there is no room.
    pub(crate) fn submit(&self, execution: Execution) -> Result<Running, Overloaded> {
        (self.submit)(execution)
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").finish_non_exhaustive()
    }
}

/// An accepted execution. Dropping its events ends it.
pub struct Running {
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) stop: Box<Stop>,
}

impl Running {
    pub fn new(
        events: mpsc::Receiver<Event>,
        stop: impl Fn(StopReason) + Send + Sync + 'static,
    ) -> Self {
        Self { events, stop: Box::new(stop) }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}
