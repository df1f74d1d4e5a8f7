//! The programs that slots are forked from, replaced from time to time: all slots of one have its
//! hash seed and memory layout, and those must not stay the same for ever.

use std::{
    sync::{Mutex, PoisonError},
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
    current: Mutex<Option<Current>>,
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
        Self { spawner, program, current: Mutex::new(None) }
    }

    /// Returns the zygote to fork the next slot from. Starts one if there is none, or the last
    /// one is used up or gone.
    pub(super) async fn current(&self) -> Result<u64, EngineError> {
        let (number, old) = {
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            let usable = current.filter(|z| !z.is_used_up() && self.spawner.has_zygote(z.number));
            if let Some(Current { number, forks, since }) = usable {
                *current = Some(Current { number, forks: forks + 1, since });
                return Ok(number);
            }
            let number = self.spawner.new_zygote();
            let next = Current { number, forks: 1, since: Instant::now() };
            (number, current.replace(next))
        };
        self.spawner.start_zygote(number, self.program.clone()).await?;
        if let Some(old) = old {
            self.spawner.end_zygote(old.number).await?;
        }
        Ok(number)
    }
}
