//! The programs that slots of one tenant are forked from, replaced from time to time: all slots of one
//! have its hash seed and memory layout, and those must not stay the same for ever.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use isolate::plan::Program;

use crate::{EngineError, spawner::Spawner};

/// How many slots one zygote makes, and for how long.
const MAX_FORKS: u32 = 500;
const MAX_AGE: Duration = Duration::from_mins(10);

#[derive(Debug)]
pub(super) struct Zygotes {
    spawner: Spawner,
    program: Program,
    current: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    zygote: Option<Current>,
    /// No more are started.
    is_closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    number: u64,
    forks: u32,
    since: Instant,
}

impl Current {
    fn is_used_up(&self) -> bool {
        self.forks >= MAX_FORKS || self.since.elapsed() > MAX_AGE
    }
}

impl Zygotes {
    pub(super) fn new(spawner: Spawner, program: Program) -> Self {
        Self { spawner, program, current: Mutex::default() }
    }

    /// Returns the zygote to fork the next slot from. Starts one if there is none, or the last
    /// one is used up or gone.
    pub(super) async fn current(&self) -> Result<u64, EngineError> {
        let (number, old) = {
            let mut state = self.state();
            if state.is_closed {
                return Err(EngineError::PoolClosed);
            }
            let is_usable = |z: &Current| !z.is_used_up() && self.spawner.has_zygote(z.number);
            if let Some(Current { number, forks, since }) = state.zygote.filter(is_usable) {
                state.zygote = Some(Current { number, forks: forks + 1, since });
                return Ok(number);
            }
            let number = self.spawner.new_zygote();
            let next = Current { number, forks: 1, since: Instant::now() };
            (number, state.zygote.replace(next))
        };
        self.spawner.start_zygote(number, self.program.clone()).await?;
        if self.state().is_closed {
            self.spawner.end_zygote(number).await?;
            return Err(EngineError::PoolClosed);
        }
        if let Some(old) = old {
            self.spawner.end_zygote(old.number).await?;
        }
        Ok(number)
    }

    /// Starts no more, and ends the last one once what was forked from it has ended.
    pub(super) async fn close(&self) {
        let last = {
            let mut state = self.state();
            state.is_closed = true;
            state.zygote.take()
        };
        if let Some(last) = last {
            // If it cannot be told, the spawner is gone and all zygotes with it.
            let _ = self.spawner.end_zygote(last.number).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
