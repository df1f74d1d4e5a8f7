//! Slots of one language that wait ahead of the requests of one tenant.
//!
//! A request takes a waiting slot at once. If there is none it waits for the next that is made;
//! requests come before the pool, which is filled on processors that no request needs. How many there
//! are follows the load, within the tenant's share of the memory that all pools have.

use std::{
    collections::VecDeque,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use model::{
    limits::{FixedLimits, Limits},
    pools::{self, Seen},
};
use tokio::{sync::oneshot, time::Instant};

use super::{Slot, budget::Budget, launch_warm, make, zygote::Zygotes};
use crate::{
    EngineError, PoolLoad,
    languages::{Language, Warm, slot_spec},
    spawner::Spawner,
    tasks::Tasks,
};

/// How many slots are made at once. Making one is mostly waiting, unless a runtime starts in it.
const AT_ONCE: usize = 4;

/// After this many failures in a row nothing is made ahead until somebody asks.
const GIVE_UP_AFTER: u32 = 3;

/// How long a pool must not need a slot before it has fewer.
const QUIET: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Pool {
    tenant: Arc<str>,
    language: Language,
    limits: FixedLimits,
    budget: Arc<Budget>,
    spawner: Spawner,
    tasks: Tasks,
    zygotes: Option<Zygotes>,
    /// How many requests are without a slot, whether it is their turn or not.
    in_line: AtomicUsize,
    state: Mutex<State>,
}

/// What a pool is opened with.
pub(super) struct PoolParts {
    pub(super) tenant: Arc<str>,
    pub(super) language: Language,
    /// What every slot of it is made with.
    pub(super) limits: FixedLimits,
    pub(super) budget: Arc<Budget>,
    pub(super) spawner: Spawner,
    pub(super) tasks: Tasks,
}

/// A request that is in line for a slot of a pool, until this is dropped.
#[derive(Debug)]
pub(crate) struct InLine(Arc<Pool>);

impl InLine {
    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.0
    }

    /// Leaves the line, and returns the pool.
    pub(crate) fn leave(self) -> Arc<Pool> {
        Arc::clone(&self.0)
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        self.0.in_line.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct State {
    ready: VecDeque<Slot>,
    waiting: VecDeque<oneshot::Sender<Result<Slot, EngineError>>>,
    being_made: usize,
    failures: u32,
    /// Slots that could not be made the warm way, ever.
    made_anew: u64,
    /// Requests that found no slot ready, ever.
    waited_for: u64,
    /// How many slots are made at once.
    at_once: usize,
    /// How many slots there are to be.
    size: usize,
    fewest_ready: usize,
    last_limits: Option<Limits>,
    last_used: Instant,
    /// Whether a task comes back to look whether there are too many.
    is_watched: bool,
    /// Nothing is made or kept any more.
    is_closed: bool,
}

impl Pool {
    pub(super) fn open(parts: PoolParts) -> Arc<Self> {
        let PoolParts { tenant, language, limits, budget, spawner, tasks } = parts;
        let zygotes = match &language.warm {
            Warm::Fork(program) => Some(Zygotes::new(spawner.clone(), program.clone())),
            Warm::Park(_) | Warm::Wait | Warm::Never => None,
        };
        budget.note(&tenant, None, Some(Self::smallest(&language)));
        let at_once = at_once(&language.warm, *PROCESSORS);
        let state = Mutex::new(State::new(language.pool_size, at_once));
        let in_line = AtomicUsize::new(0);
        let pool = Arc::new(Self {
            tenant,
            language,
            limits,
            budget,
            spawner,
            tasks,
            zygotes,
            in_line,
            state,
        });
        pool.fill();
        pool
    }

    /// Returns what a new pool of this language is.
    pub(super) fn smallest(language: &Language) -> pools::Pool {
        pools::Pool {
            least: language.pool_size,
            size: language.pool_size,
            slot_memory: language.slot_memory,
            base_memory: language.zygote_memory,
        }
    }

    /// Notes that a request is going to need a slot.
    pub(super) fn line_up(self: &Arc<Self>) -> InLine {
        self.in_line.fetch_add(1, Ordering::Relaxed);
        self.state().last_used = Instant::now();
        InLine(Arc::clone(self))
    }

    /// Whether no request is in line for a slot.
    pub(super) fn is_unused(&self) -> bool {
        self.in_line.load(Ordering::Relaxed) == 0
    }

    pub(super) fn last_used(&self) -> Instant {
        self.state().last_used
    }

    /// Ends every slot that waits, and the zygote once what was forked from it has ended.
    pub(super) fn close(self: &Arc<Self>) {
        let ready = {
            let mut state = self.state();
            state.is_closed = true;
            self.budget.note(&self.tenant, Some(self.policy(&state)), None);
            std::mem::take(&mut state.ready)
        };
        drop(ready);
        let pool = Arc::clone(self);
        self.tasks.start("end a zygote", async move {
            if let Some(zygotes) = &pool.zygotes {
                zygotes.close().await;
            }
        });
    }

    /// Has as few slots waiting as a new pool.
    pub(super) fn shrink_to_least(&self) {
        let surplus = {
            let mut state = self.state();
            self.resize(&mut state, self.language.pool_size);
            let kept = state.size.min(state.ready.len());
            state.ready.split_off(kept)
        };
        drop(surplus);
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
            state.waited_for += 1;
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
        while state.wants_more(self.in_line.load(Ordering::Relaxed), *PROCESSORS) {
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
            make(&self.spawner, slot_spec(launch, &self.tenant, self.limits)).await
        };
        match warm.await {
            Err(error) if self.is_waited_for() => {
                tracing::warn!(
                    language = self.language.name,
                    error = &error as &dyn std::error::Error,
                    "no slot could be made ahead; making one anew"
                );
                let launch = self.language.launch_anew();
                let made = make(&self.spawner, slot_spec(launch, &self.tenant, self.limits)).await;
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
        if state.is_closed {
            return;
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
            waited_for: state.waited_for,
        }
    }

    fn policy(&self, state: &State) -> pools::Pool {
        pools::Pool { size: state.size, ..Self::smallest(&self.language) }
    }

    /// A request has found no slot: the next ones are to.
    fn grow(self: &Arc<Self>, state: &mut State) {
        let policy = self.policy(state);
        let in_line = self.in_line.load(Ordering::Relaxed);
        self.resize(state, policy.grown(in_line, self.budget.room(&self.tenant)));
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
                if state.is_closed {
                    return;
                }
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
        self.budget.note(&self.tenant, Some(before), Some(self.policy(state)));
    }

    fn is_waited_for(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new(size: usize, at_once: usize) -> Self {
        Self {
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            being_made: 0,
            failures: 0,
            made_anew: 0,
            waited_for: 0,
            at_once,
            size,
            fewest_ready: 0,
            last_limits: None,
            last_used: Instant::now(),
            is_watched: false,
            is_closed: false,
        }
    }

    /// While requests are in line only processors that they leave free make slots ahead.
    fn wants_more(&self, in_line: usize, processors: usize) -> bool {
        if self.is_closed {
            return false;
        }
        let ahead = match in_line {
            _ if self.failures >= GIVE_UP_AFTER => 0,
            0 => self.size,
            _ => self.size.min(processors.saturating_sub(in_line)),
        };
        let wanted = (self.waiting.len() + ahead).saturating_sub(self.ready.len());
        self.being_made < wanted.min(self.at_once)
    }
}

/// The start of a runtime takes a processor for itself: more of them at once would all be ready later.
fn at_once(warm: &Warm, processors: usize) -> usize {
    match warm {
        Warm::Park(_) => AT_ONCE.min(processors),
        Warm::Fork(_) | Warm::Wait | Warm::Never => AT_ONCE,
    }
}

static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are made at once for so many that wait, in a pool of this size without slots.
    fn made_at_once(size: usize, waiting: usize, processors: usize) -> usize {
        let mut state = State::new(size, AT_ONCE);
        state.waiting.extend((0..waiting).map(|_| oneshot::channel().0));
        while state.wants_more(waiting, processors) {
            state.being_made += 1;
        }
        state.being_made
    }

    #[test]
    fn a_client_in_a_loop_has_its_next_slots_made_on_the_processors_that_it_leaves_free() {
        for (size, waiting, processors, expected) in [
            (2, 0, 2, 2),
            (2, 1, 1, 1),
            (2, 1, 2, 2),
            (2, 1, 8, 3),
            (1, 1, 8, 2),
            (8, 1, 8, AT_ONCE),
            (8, 9, 2, AT_ONCE),
        ] {
            let made = made_at_once(size, waiting, processors);
            assert_eq!(made, expected, "{size} {waiting} {processors}");
        }
    }

    #[test]
    fn no_more_runtimes_start_at_once_than_there_are_processors() {
        let parked = Warm::Park(isolate::plan::Program { argv: Vec::new(), env: Vec::new() });
        for (warm, processors, expected) in
            [(&parked, 1, 1), (&parked, 2, 2), (&parked, 64, AT_ONCE), (&Warm::Wait, 1, AT_ONCE)]
        {
            assert_eq!(at_once(warm, processors), expected, "{warm:?} {processors}");
        }
        let mut state = State::new(8, 2);
        state.being_made = 2;
        assert!(!state.wants_more(0, 2));
    }

    #[test]
    fn a_closed_pool_makes_nothing() {
        let mut state = State::new(8, AT_ONCE);
        state.is_closed = true;
        assert!(!state.wants_more(0, 8) && !state.wants_more(3, 8));
    }
}
