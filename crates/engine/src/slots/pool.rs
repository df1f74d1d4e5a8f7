//! Slots of one language that wait ahead of their requests.
//!
//! A request takes a waiting slot at once. If there is none it waits for the next that is made;
//! those who wait come before the pool. Nobody is ever held up by filling it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use super::{Slot, launch_warm, make, zygote::Zygotes};
use crate::{
    EngineError,
    languages::{Language, Warm, slot_spec},
    spawner::Spawner,
    tasks::Tasks,
};

/// How many slots are made at once: making one is work for a processor.
const AT_ONCE: usize = 4;

/// After this many failures in a row nothing is made ahead until somebody asks.
const GIVE_UP_AFTER: u32 = 3;

#[derive(Debug)]
pub(super) struct Pool {
    language: Language,
    spawner: Spawner,
    tasks: Tasks,
    zygotes: Option<Zygotes>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Slot>,
    waiting: VecDeque<oneshot::Sender<Result<Slot, EngineError>>>,
    being_made: usize,
    failures: u32,
}

impl Pool {
    pub(super) fn open(language: Language, spawner: Spawner, tasks: Tasks) -> Arc<Self> {
        let zygotes = match &language.warm {
            Warm::Fork(program) => Some(Zygotes::new(spawner.clone(), program.clone())),
            Warm::Park(_) | Warm::Wait | Warm::Never => None,
        };
        let state = Mutex::new(State::default());
        let pool = Arc::new(Self { language, spawner, tasks, zygotes, state });
        pool.fill();
        pool
    }

    /// Takes a slot: one that waits, or the next that is made.
    pub(super) async fn take(self: &Arc<Self>) -> Result<Slot, EngineError> {
        let mine = {
            let mut state = self.state();
            while let Some(slot) = state.ready.pop_front() {
                // Its zygote may have died, and it with it.
                if !slot.control.is_closed() {
                    return Ok(slot);
                }
            }
            let (slot, mine) = oneshot::channel();
            state.waiting.push_back(slot);
            state.failures = 0;
            mine
        };
        self.fill();
        mine.await.unwrap_or(Err(EngineError::SpawnerGone))
    }

    /// Starts as many makers as there are slots wanted.
    pub(super) fn fill(self: &Arc<Self>) {
        let mut state = self.state();
        while state.wants_more(self.language.pool_size) {
            state.being_made += 1;
            let pool = Arc::clone(self);
            self.tasks.start("make a slot", async move {
                let made = pool.make_one().await;
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
                make(&self.spawner, slot_spec(launch)).await
            }
            made => made,
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

    fn is_waited_for(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wants_more(&self, size: usize) -> bool {
        let ahead = if self.failures < GIVE_UP_AFTER { size } else { 0 };
        let wanted = (self.waiting.len() + ahead).saturating_sub(self.ready.len());
        self.being_made < wanted.min(AT_ONCE)
    }
}
