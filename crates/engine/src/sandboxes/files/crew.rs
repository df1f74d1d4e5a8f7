//! The agents of a sandbox: they are kept for a short while after their work, since to start one costs
//! more than most of what they are asked for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use isolate::supervisor::wire::User;
use model::ids::SandboxId;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until, timeout},
};

use super::{FileError, agent::Agent};
use crate::{sandboxes::Shared, tasks::Tasks};

/// The most agents that a sandbox has at once. Whoever wants another waits.
const AGENTS: usize = 16;

/// The most that are kept without work, and for how long.
const KEPT: usize = 4;
const KEPT_FOR: Duration = Duration::from_secs(10);

/// How long somebody waits for others to be done.
const WAIT: Duration = Duration::from_secs(10);

/// The crews of all sandboxes that have one.
#[derive(Debug, Default)]
pub(in crate::sandboxes) struct Crews(Mutex<HashMap<SandboxId, Arc<Crew>>>);

/// The agents of one sandbox, and how it is used through them.
#[derive(Debug)]
pub(super) struct Crew {
    idle: Mutex<Idle>,
    room: Arc<Semaphore>,
    /// A supervisor lets few wait before its door, so they come one by one.
    pub(super) asking: Semaphore,
    /// Whoever changes a name holds it from the last look to the change, so that of two conditional
    /// writers one is told that he was too late.
    pub(super) changing: tokio::sync::Mutex<()>,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Idle {
    agents: Vec<(Instant, Agent)>,
    /// Whether somebody is there to end those that wait for too long.
    is_tended: bool,
}

#[derive(Debug)]
struct Used {
    now: usize,
    last: Instant,
}

impl Crews {
    pub(super) fn of(&self, sandbox: &SandboxId, shared: &Shared) -> Arc<Crew> {
        let mut crews = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(crew) = crews.get(sandbox) {
            return Arc::clone(crew);
        }
        {
            let living = shared.living();
            crews.retain(|id, _| living.contains_key(id));
        }
        let crew = Arc::new(Crew {
            idle: Mutex::default(),
            room: Arc::new(Semaphore::new(AGENTS)),
            asking: Semaphore::new(1),
            changing: tokio::sync::Mutex::new(()),
            used: Mutex::new(Used { now: 0, last: Instant::now() }),
        });
        crews.insert(sandbox.clone(), Arc::clone(&crew));
        crew
    }

    /// Returns when nobody will have used the files of this sandbox for so long.
    pub(in crate::sandboxes) fn unused_for(
        &self,
        sandbox: &SandboxId,
        time: Duration,
    ) -> Option<Instant> {
        let crews = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let used = crews.get(sandbox)?.used();
        let last = if used.now > 0 { Instant::now() } else { used.last };
        last.checked_add(time)
    }
}

impl Crew {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns one of this user that waits for work, if any does. The others end when they have waited
    /// for too long.
    pub(super) fn waiting(&self, user: User) -> Option<Agent> {
        loop {
            let mut idle = self.idle();
            let at = idle.agents.iter().rposition(|(_, agent)| agent.user() == user)?;
            let (_, agent) = idle.agents.remove(at);
            drop(idle);
            if agent.is_waiting() {
                return Some(agent);
            }
        }
    }

    /// Waits for room for another.
    pub(super) async fn room(&self) -> Result<OwnedSemaphorePermit, FileError> {
        match timeout(WAIT, Arc::clone(&self.room).acquire_owned()).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) | Err(_) => Err(FileError::TooMany),
        }
    }

    /// Keeps one that is done.
    pub(super) fn keep(self: &Arc<Self>, agent: Agent, tasks: &Tasks) {
        let mut idle = self.idle();
        if idle.agents.len() >= KEPT {
            return;
        }
        idle.agents.push((Instant::now(), agent));
        if !idle.is_tended {
            idle.is_tended = true;
            tasks.start("idle agents for files", tend(Arc::downgrade(self)));
        }
    }

    /// Counts a use, for as long as what is returned is held.
    pub(super) fn count(self: &Arc<Self>) -> Counted {
        self.used().now += 1;
        Counted(Arc::clone(self))
    }
}

/// Ends agents that nobody has needed for a while, and itself when there are none.
async fn tend(crew: Weak<Crew>) {
    loop {
        let next = {
            let Some(crew) = crew.upgrade() else { return };
            let mut idle = crew.idle();
            idle.agents.retain(|(since, _)| since.elapsed() < KEPT_FOR);
            let next = idle.agents.iter().map(|(since, _)| *since + KEPT_FOR).min();
            let Some(next) = next else {
                idle.is_tended = false;
                return;
            };
            next
        };
        sleep_until(next).await;
    }
}

/// One use of a sandbox's files, however it ends.
#[derive(Debug)]
pub(super) struct Counted(Arc<Crew>);

impl Drop for Counted {
    fn drop(&mut self) {
        let mut used = self.0.used();
        used.now -= 1;
        used.last = Instant::now();
    }
}
