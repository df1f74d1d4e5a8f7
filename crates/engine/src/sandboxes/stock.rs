//! Bodies that are there before anybody asks for them.
//!
//! The names of the next sandboxes are given beforehand, and the spawner has started a process for
//! each. Whoever creates a sandbox gets such a name; when none is left, any other, and what makes up
//! the difference is time.

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use isolate::{
    sandbox::{SandboxAnswer, SandboxOrder},
    wire::Report,
};
use model::{ids::SandboxId, image::HOST, spec::SandboxSpec};
use tokio::{sync::watch, time::timeout};

use super::{
    Defaults, Shared,
    machine::{Machine, MachineError, READY_WITHIN, settle},
    paths::has_paths,
    random,
};
use crate::{EngineError, spawner::Control};

/// For how long nobody may have taken one before others are made: they would take the processors
/// from whoever just did.
const QUIET: Duration = Duration::from_millis(100);

/// What a body that waits can be made into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A sandbox of the host's image with the usual limit and nothing of the machine or beside it: it is
    /// there as a whole.
    Usual,
    /// Any sandbox.
    Other,
}

impl Kind {
    pub(super) fn of(spec: &SandboxSpec) -> Self {
        let has_usual_files = spec.image == HOST && spec.resources.disk.is_none();
        let has_usual_limits = spec.resources.processes.is_none();
        let is_usual =
            has_usual_files && has_usual_limits && !has_paths(spec) && spec.companions.is_empty();
        if is_usual { Self::Usual } else { Self::Other }
    }
}

/// How far the making of a body that waits has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Body,
    /// It is the sandbox, ready but for its being somebody's.
    Whole,
}

/// The name of a body that waits.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) id: SandboxId,
    pub(super) readiness: Readiness,
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
                    Ok(readiness) => {
                        self.stock.ready().push_back(Prepared { id, readiness, kind });
                    }
                    Err(error) => return tracing::debug!(%error, "no body for the next sandbox"),
                }
            }
        }
    }
}

impl Machine {
    /// Starts a body for a sandbox that nobody has asked for yet.
    async fn prepare(
        &self,
        id: &SandboxId,
        kind: Kind,
        defaults: Defaults,
    ) -> Result<Readiness, MachineError> {
        // Only just after a start is it not known which volumes there are.
        let _ = timeout(READY_WITHIN, self.spawner().volumes()).await;
        let order = match kind {
            Kind::Usual => SandboxOrder::PrepareWhole(Box::new(self.usual(id.as_str(), defaults))),
            Kind::Other => {
                SandboxOrder::Prepare { sandbox: id.to_string(), max_processes: defaults.processes }
            }
        };
        let (answer, fds) = self.spawner().sandbox(order).await?;
        match settle(answer)? {
            SandboxAnswer::Done => Ok(Readiness::Body),
            SandboxAnswer::Whole => {
                let whole = is_whole(fds.into_iter().next()).await;
                if whole.is_err() {
                    // If this fails, the next server does it.
                    let _ = self.done(SandboxOrder::Remove { sandbox: id.to_string() }).await;
                }
                whole.map(|()| Readiness::Whole)
            }
            _ => Err(MachineError::Confused),
        }
    }
}

/// Waits until what is being made in advance is ready.
async fn is_whole(control: Option<OwnedFd>) -> Result<(), MachineError> {
    let control = control.ok_or(EngineError::MissingDescriptors)?;
    let control = Control::from_fd(control).map_err(MachineError::Link)?;
    match timeout(READY_WITHIN, control.peek()).await {
        Ok(Ok(Report::Ready)) => Ok(()),
        Ok(Ok(_)) => Err(MachineError::Confused),
        Ok(Err(error)) => Err(error.into()),
        Err(_elapsed) => Err(MachineError::NotInTime(READY_WITHIN)),
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

#[cfg(test)]
mod tests {
    use model::{
        spec::{Companion, Resources},
        units::ByteSize,
    };

    use super::*;

    #[test]
    fn only_what_has_nothing_of_its_own_is_usual() {
        let usual = || SandboxSpec { image: HOST.to_owned(), ..SandboxSpec::default() };
        let memory = Resources { memory: Some(ByteSize::mib(64)), ..Resources::default() };
        let disk = Resources { disk: Some(ByteSize::mib(64)), ..Resources::default() };
        let specs = [
            (usual(), Kind::Usual),
            (SandboxSpec { resources: memory, ..usual() }, Kind::Usual),
            (SandboxSpec { resources: disk, ..usual() }, Kind::Other),
            (SandboxSpec { image: "tar:/x".to_owned(), ..usual() }, Kind::Other),
            (SandboxSpec { tools: vec!["git".to_owned()], ..usual() }, Kind::Other),
            (SandboxSpec { companions: vec![Companion::default()], ..usual() }, Kind::Other),
        ];
        for (spec, kind) in specs {
            assert_eq!(Kind::of(&spec), kind, "{spec:?}");
        }
    }
}
