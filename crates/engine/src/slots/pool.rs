//! Slots of one language that wait ahead of their requests.
//!
//! A request takes a waiting slot at once. If there is none it waits for the next that is made;
//! those who wait come before the pool, which is filled when nobody is in line. How many there are
//! follows the load, within the memory that all pools share.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use model::{
    limits::Limits,
    pools::{self, Room, Seen},
    units::ByteSize,
};
use rustix::process::{Resource, getrlimit};
use tokio::{sync::oneshot, time::Instant};

use super::{Slot, launch_warm, make, zygote::Zygotes};
use crate::{
    EngineError, PoolLoad,
    languages::{Language, Warm, slot_spec},
    spawner::Spawner,
    tasks::Tasks,
};

/// How many slots are made at once: making one is work for a processor.
const AT_ONCE: usize = 4;

/// After this many failures in a row nothing is made ahead until somebody asks.
const GIVE_UP_AFTER: u32 = 3;

/// How long a pool must not need a slot before it has fewer.
const QUIET: Duration = Duration::from_secs(30);

/// What pools may take together.
#[derive(Debug)]
pub(super) struct Budget {
    memory: ByteSize,
    slots: usize,
    taken: Mutex<(ByteSize, usize)>,
}

/// A waiting slot has about this many descriptors in the daemon.
const DESCRIPTORS: u64 = 16;

impl Budget {
    /// Half of the descriptors that this process may have are left to connections and to what runs.
    pub(super) fn new(memory: ByteSize) -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let slots = usize::try_from(descriptors / 2 / DESCRIPTORS).unwrap_or(usize::MAX);
        Self { memory, slots, taken: Mutex::default() }
    }

    fn room(&self) -> Room {
        let (memory, slots) = *self.taken();
        Room { memory: self.memory.saturating_sub(memory), slots: self.slots.saturating_sub(slots) }
    }

    /// Notes that a pool has another size. Two that grow at once may go past the budget by one
    /// step; the next one sees it.
    fn note(&self, before: Option<pools::Pool>, after: pools::Pool) {
        let (old_memory, old_slots) =
            before.map_or_else(Default::default, |pool| (pool.memory(), pool.size));
        let mut taken = self.taken();
        taken.0 = taken.0.saturating_sub(old_memory).saturating_add(after.memory());
        taken.1 = taken.1.saturating_sub(old_slots).saturating_add(after.size);
    }

    fn taken(&self) -> MutexGuard<'_, (ByteSize, usize)> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct Pool {
    language: Language,
    budget: Arc<Budget>,
    spawner: Spawner,
    tasks: Tasks,
    zygotes: Option<Zygotes>,
    /// How many requests are without a slot, whether it is their turn or not.
    in_line: AtomicUsize,
    state: Mutex<State>,
}

/// A request that is in line for a slot of a pool, until this is dropped.
#[derive(Debug)]
pub(crate) struct InLine(Arc<Pool>);

impl Drop for InLine {
    fn drop(&mut self) {
        self.0.in_line.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Slot>,
    waiting: VecDeque<oneshot::Sender<Result<Slot, EngineError>>>,
    being_made: usize,
    failures: u32,
    /// Slots that could not be made the warm way, ever.
    made_anew: u64,
    /// How many slots there are to be.
    size: usize,
    fewest_ready: usize,
    last_limits: Option<Limits>,
    /// Whether somebody comes back to look whether there are too many.
    is_watched: bool,
}

impl Pool {
    pub(super) fn open(
        language: Language,
        spawner: Spawner,
        tasks: Tasks,
        budget: Arc<Budget>,
    ) -> Arc<Self> {
        let zygotes = match &language.warm {
            Warm::Fork(program) => Some(Zygotes::new(spawner.clone(), program.clone())),
            Warm::Park(_) | Warm::Wait | Warm::Never => None,
        };
        let state = State { size: language.pool_size, ..State::default() };
        let (in_line, state) = (AtomicUsize::new(0), Mutex::new(state));
        let pool = Arc::new(Self { language, budget, spawner, tasks, zygotes, in_line, state });
        pool.budget.note(None, pool.policy(&pool.state()));
        pool.fill();
        pool
    }

    pub(super) fn language(&self) -> &Language {
        &self.language
    }

    /// Notes that a request is going to need a slot.
    pub(super) fn line_up(self: &Arc<Self>) -> InLine {
        self.in_line.fetch_add(1, Ordering::Relaxed);
        InLine(Arc::clone(self))
    }

    /// Takes a slot: one that waits, or the next that is made.
    pub(super) async fn take(self: &Arc<Self>, limits: &Limits) -> Result<Slot, EngineError> {
        let mine = {
            let mut state = self.state();
            state.last_limits = Some(*limits);
            while let Some(slot) = state.ready.pop_front() {
                // Its zygote may have died, and it with it.
                if !slot.control.is_closed() {
                    state.fewest_ready = state.fewest_ready.min(state.ready.len());
                    return Ok(slot);
                }
            }
            let (slot, mine) = oneshot::channel();
            state.waiting.push_back(slot);
            state.failures = 0;
            self.grow(&mut state);
            mine
        };
        self.fill();
        mine.await.unwrap_or(Err(EngineError::SpawnerGone))
    }

    /// Starts as many makers as there are slots wanted.
    pub(super) fn fill(self: &Arc<Self>) {
        let mut state = self.state();
        while state.wants_more(self.in_line.load(Ordering::Relaxed)) {
            state.being_made += 1;
            let pool = Arc::clone(self);
            self.tasks.start("make a slot", async move {
                let made = pool.make_one().await.inspect(|slot| pool.prepare(slot));
                pool.put(made);
                pool.fill();
            });
        }
    }

    /// Makes a slot the warm way, or if that fails for somebody who waits, the plain way.
    async fn make_one(&self) -> Result<Slot, EngineError> {
        let warm = async {
            let zygote = match &self.zygotes {
                Some(zygotes) => Some(zygotes.current().await?),
                None => None,
            };
            let launch = launch_warm(&self.language, zygote, self.is_waited_for());
            make(&self.spawner, slot_spec(launch)).await
        };
        match warm.await {
            Err(error) if self.is_waited_for() => {
                tracing::warn!(
                    language = self.language.name,
                    error = &error as &dyn std::error::Error,
                    "no slot could be made ahead; making one anew"
                );
                let launch = self.language.launch_anew();
                let made = make(&self.spawner, slot_spec(launch)).await;
                made.inspect(|_| self.state().made_anew += 1)
            }
            made => made,
        }
    }

    /// Sets limits ahead: the next request often has those of the last. If it does not, or this
    /// fails, they are set when it comes.
    fn prepare(&self, slot: &Slot) {
        let expected = {
            let state = self.state();
            state.last_limits.filter(|_| state.waiting.is_empty())
        };
        if let Some(limits) = expected {
            let _ = slot.limit(&limits);
        }
    }

    fn put(&self, made: Result<Slot, EngineError>) {
        let mut state = self.state();
        state.being_made -= 1;
        match &made {
            Ok(_) => state.failures = 0,
            Err(_) => state.failures += 1,
        }
        let mut made = Some(made);
        // Whoever has gone away in the meantime is passed over.
        while let Some(one) = made.take() {
            match (state.waiting.pop_front(), one) {
                (Some(waiting), one) => made = waiting.send(one).err(),
                (None, Ok(slot)) => state.ready.push_back(slot),
                (None, Err(error)) => tracing::warn!(
                    language = self.language.name,
                    error = &error as &dyn std::error::Error,
                    "no slot could be made ahead"
                ),
            }
        }
    }

    pub(super) fn load(&self) -> PoolLoad {
        let state = self.state();
        PoolLoad {
            language: self.language.name.clone(),
            ready: state.ready.len(),
            being_made: state.being_made,
            made_anew: state.made_anew,
        }
    }

    fn policy(&self, state: &State) -> pools::Pool {
        pools::Pool {
            least: self.language.pool_size,
            size: state.size,
            slot_memory: self.language.slot_memory,
        }
    }

    /// A request has found no slot: the next ones are to.
    fn grow(self: &Arc<Self>, state: &mut State) {
        let policy = self.policy(state);
        let in_line = self.in_line.load(Ordering::Relaxed);
        self.resize(state, policy.grown(in_line, self.budget.room()));
        if state.size > self.language.pool_size && !state.is_watched {
            state.is_watched = true;
            let pool = Arc::clone(self);
            self.tasks.start("shrink a pool", async move { pool.shrink().await });
        }
    }

    /// Has fewer slots again, step by step, until there are as few as there are at least.
    async fn shrink(&self) {
        loop {
            let quiet_until = Instant::now() + QUIET;
            tokio::select! {
                () = tokio::time::sleep_until(quiet_until) => {}
                () = self.spawner.gone() => return,
            }
            let surplus = {
                let mut state = self.state();
                let seen = Seen { waiting: state.waiting.len(), fewest_ready: state.fewest_ready };
                let size = self.policy(&state).shrunk(seen);
                self.resize(&mut state, size);
                state.fewest_ready = state.ready.len();
                state.is_watched = size > self.language.pool_size;
                let kept = size.min(state.ready.len());
                state.ready.split_off(kept)
            };
            drop(surplus);
            if !self.state().is_watched {
                return;
            }
        }
    }

    fn resize(&self, state: &mut State, size: usize) {
        let before = self.policy(state);
        state.size = size;
        self.budget.note(Some(before), self.policy(state));
    }

    fn is_waited_for(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// While requests are in line nothing is made ahead: that would take the processors from them.
    fn wants_more(&self, in_line: usize) -> bool {
        let ahead = if in_line == 0 && self.failures < GIVE_UP_AFTER { self.size } else { 0 };
        let wanted = (self.waiting.len() + ahead).saturating_sub(self.ready.len());
        self.being_made < wanted.min(AT_ONCE)
    }
}
