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

use model::{ids::SandboxId, image::HOST, spec::SandboxSpec};
use tokio::{sync::watch, time::timeout};

use super::{Shared, random};

/// For how long nobody may have taken one before others are made: they would take the processors
/// from whoever just did.
const QUIET: Duration = Duration::from_millis(100);

/// What a body that waits can be made into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A sandbox of the host's image with the usual limit: its root is there too.
    Usual,
    /// Any sandbox.
    Other,
}

impl Kind {
    pub(super) fn of(spec: &SandboxSpec) -> Self {
        let is_usual = spec.image == HOST && spec.resources.disk.is_none();
        if is_usual { Self::Usual } else { Self::Other }
    }
}

/// The name of a body that waits.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) id: SandboxId,
    kind: Kind,
}

#[derive(Debug)]
pub(super) struct Stock {
    ready: Mutex<VecDeque<Prepared>>,
    taken: watch::Sender<()>,
}

impl Stock {
    pub(super) fn new() -> Self {
        Self { ready: Mutex::default(), taken: watch::Sender::new(()) }
    }

    /// Returns the name of the next sandbox, if there is one in stock that can be made into this kind.
    pub(super) fn take(&self, wanted: Kind) -> Option<Prepared> {
        let mut ready = self.ready();
        let at = |kind| ready.iter().position(|prepared| prepared.kind == kind);
        let found = at(wanted).or_else(|| at(Kind::Other));
        let taken = found.and_then(|index| ready.remove(index));
        drop(ready);
        self.taken.send_replace(());
        taken
    }

    /// Takes back what no sandbox was made of.
    pub(super) fn give_back(&self, prepared: Option<Prepared>) {
        self.ready().extend(prepared);
    }

    pub(super) fn count(&self, kind: Kind) -> usize {
        self.ready().iter().filter(|prepared| prepared.kind == kind).count()
    }

    fn ready(&self) -> MutexGuard<'_, VecDeque<Prepared>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Makes what is missing. One that cannot be made is missed when the next is taken.
    async fn fill_stock(&self) {
        for kind in [Kind::Usual, Kind::Other] {
            while self.stock.count(kind) < self.settings.prepared {
                let Ok(bytes) = random() else { return };
                let id = SandboxId::from_random(bytes);
                match self.machine.prepare(&id, kind, self.settings.defaults).await {
                    Ok(()) => self.stock.ready().push_back(Prepared { id, kind }),
                    Err(error) => return tracing::debug!(%error, "no body for the next sandbox"),
                }
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
