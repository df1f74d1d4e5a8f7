//! Bodies that are there before anybody asks for them.
//!
//! The names of the next sandboxes are given beforehand, and the spawner has started a process for
//! each. Whoever creates a sandbox gets such a name; when none is left, any other, and what makes up
//! the difference is time.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use model::ids::SandboxId;
use tokio::{sync::watch, time::timeout};

use super::{Shared, random};

/// For how long nobody may have taken one before others are made: they would take the processors
/// from whoever just did.
const QUIET: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Stock {
    ready: Mutex<VecDeque<SandboxId>>,
    taken: watch::Sender<()>,
}

impl Stock {
    pub(super) fn new() -> Self {
        Self { ready: Mutex::default(), taken: watch::Sender::new(()) }
    }

    /// Returns the name of the next sandbox, if there is one in stock.
    pub(super) fn take(&self) -> Option<SandboxId> {
        let ready = self.ready().pop_front();
        self.taken.send_replace(());
        ready
    }

    /// Takes back a name that no sandbox got.
    pub(super) fn give_back(&self, prepared: Option<SandboxId>) {
        self.ready().extend(prepared);
    }

    pub(super) fn count(&self) -> usize {
        self.ready().len()
    }

    fn ready(&self) -> MutexGuard<'_, VecDeque<SandboxId>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Makes what is missing. One that cannot be made is missed when the next is taken.
    async fn fill_stock(&self) {
        while self.stock.count() < self.settings.prepared {
            let Ok(bytes) = random() else { return };
            let id = SandboxId::from_random(bytes);
            match self.machine.prepare(&id, self.settings.defaults).await {
                Ok(()) => self.stock.ready().push_back(id),
                Err(error) => return tracing::debug!(%error, "no body for the next sandbox"),
            }
        }
    }
}

/// Keeps the stock full, for as long as there are sandboxes.
pub(super) async fn keep(shared: Weak<Shared>) {
    let Some(mut taken) = shared.upgrade().map(|shared| shared.stock.taken.subscribe()) else {
        return;
    };
    loop {
        match shared.upgrade() {
            Some(shared) => shared.fill_stock().await,
            None => return,
        }
        if taken.changed().await.is_err() {
            return;
        }
        while let Ok(Ok(())) = timeout(QUIET, taken.changed()).await {}
    }
}
