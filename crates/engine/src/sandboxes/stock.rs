//! Bodies of sandboxes that are made before a request needs them.
//!
//! A body has the name of the next sandbox, and the spawner has started a process for it in the control group of its
//! tenant. A request without a waiting body takes longer, and nothing else is different.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use isolate::{
    sandbox::{MAX_WAITING, SandboxAnswer, SandboxOrder},
    wire::Report,
};
use model::{
    ids::{SandboxId, Tenant},
    image::HOST,
    policy::SERVER_TENANT,
    spec::SandboxSpec,
};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use super::{
    Defaults, Shared,
    machine::{Machine, MachineError, READY_WITHIN, settle},
    paths::has_paths,
    random,
};
use crate::{EngineError, spawner::Control, tenant_number::tenant_number};

/// For how long nobody may have taken one before others are made: they would take the processors
/// from whoever just did.
const QUIET: Duration = Duration::from_millis(100);

/// How long a tenant has taken none before another tenant may have bodies instead of it.
const UNUSED: Duration = Duration::from_mins(1);

/// What a body that waits can be made into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// Bodies for each of the tenants that created a sandbox last. The server's own tenant always has some.
#[derive(Debug)]
pub(super) struct Stock {
    /// How many of each kind a tenant has.
    wanted: usize,
    shelves: Mutex<Shelves>,
    taken: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Shelves {
    of_tenants: HashMap<Tenant, Shelf>,
    /// Bodies that no tenant has any more, to be removed.
    discarded: Vec<SandboxId>,
}

/// The bodies of one tenant.
#[derive(Debug)]
struct Shelf {
    ready: VecDeque<Prepared>,
    last_used: Instant,
}

impl Stock {
    pub(super) fn new(wanted: usize) -> Self {
        let server: Option<Tenant> = SERVER_TENANT.parse().ok();
        let mut shelves = Shelves::default();
        shelves.of_tenants.extend(server.map(|tenant| (tenant, Shelf::new(Instant::now()))));
        Self { wanted, shelves: Mutex::new(shelves), taken: watch::Sender::new(()) }
    }

    /// Returns a body that can be made into this kind of sandbox, if the tenant has one.
    pub(super) fn take(&self, tenant: &Tenant, wanted: Kind) -> Option<Prepared> {
        let most = (MAX_WAITING / (2 * self.wanted).max(1)).max(1);
        let taken = self.shelves().take(tenant, wanted, most, Instant::now());
        self.taken.send_replace(());
        taken
    }

    /// Adds a body, or one that no sandbox was made of.
    pub(super) fn put(&self, tenant: &Tenant, prepared: Prepared) {
        self.shelves().put(tenant, prepared);
    }

    /// Returns how many bodies all tenants have together.
    pub(super) fn count(&self) -> usize {
        self.shelves().of_tenants.values().map(|shelf| shelf.ready.len()).sum()
    }

    /// Returns what is to be made next.
    fn missing(&self) -> Option<(Tenant, Kind)> {
        self.shelves().missing(self.wanted)
    }

    fn discarded(&self) -> Option<SandboxId> {
        self.shelves().discarded.pop()
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelves {
    fn take(
        &mut self,
        tenant: &Tenant,
        wanted: Kind,
        most: usize,
        now: Instant,
    ) -> Option<Prepared> {
        self.make_room(tenant, most, now);
        let shelf = self.of_tenants.get_mut(tenant)?;
        shelf.last_used = now;
        let at = |kind| shelf.ready.iter().position(|prepared| prepared.kind == kind);
        let found = at(wanted).or_else(|| at(Kind::Other));
        found.and_then(|index| shelf.ready.remove(index))
    }

    fn put(&mut self, tenant: &Tenant, prepared: Prepared) {
        match self.of_tenants.get_mut(tenant) {
            Some(shelf) => shelf.ready.push_back(prepared),
            None => self.discarded.push(prepared.id),
        }
    }

    fn missing(&self, wanted: usize) -> Option<(Tenant, Kind)> {
        let all = self.of_tenants.iter().flat_map(|(tenant, shelf)| {
            [Kind::Usual, Kind::Other].map(|kind| (shelf.count(kind), kind, tenant))
        });
        let missing = all.filter(|(count, ..)| *count < wanted);
        missing.min().map(|(_, kind, tenant)| (tenant.clone(), kind))
    }

    /// Gives a tenant a shelf. If there are too many, it replaces the one that has not been used for the longest time;
    /// while all are in use, the tenant gets none.
    fn make_room(&mut self, tenant: &Tenant, most: usize, now: Instant) {
        if self.of_tenants.contains_key(tenant) {
            return;
        }
        if self.of_tenants.len() >= most {
            let others = self.of_tenants.iter().filter(|(it, _)| it.as_str() != SERVER_TENANT);
            let unused = others.filter(|(_, shelf)| now - shelf.last_used >= UNUSED);
            let oldest = unused.min_by_key(|(_, shelf)| shelf.last_used);
            let Some(oldest) = oldest.map(|(it, _)| it.clone()) else { return };
            let shelf = self.of_tenants.remove(&oldest);
            let bodies = shelf.into_iter().flat_map(|shelf| shelf.ready);
            self.discarded.extend(bodies.map(|prepared| prepared.id));
        }
        self.of_tenants.insert(tenant.clone(), Shelf::new(now));
    }
}

impl Shelf {
    fn new(now: Instant) -> Self {
        Self { ready: VecDeque::new(), last_used: now }
    }

    fn count(&self, kind: Kind) -> usize {
        self.ready.iter().filter(|prepared| prepared.kind == kind).count()
    }
}

impl Shared {
    /// Makes what is missing, after removing what no tenant has any more. What cannot be made is tried again when the
    /// next body is taken.
    async fn fill_stock(&self) {
        while let Some(id) = self.stock.discarded() {
            // If this fails, the next server does it.
            let _ = self.machine.done(SandboxOrder::Remove { sandbox: id.to_string() }).await;
        }
        while let Some((tenant, kind)) = self.stock.missing() {
            let Ok(bytes) = random() else { return };
            let id = SandboxId::from_random(bytes);
            match self.machine.prepare(&id, &tenant, kind, self.settings.defaults).await {
                Ok(readiness) => self.stock.put(&tenant, Prepared { id, readiness, kind }),
                Err(error) => return tracing::debug!(%error, "no body for the next sandbox"),
            }
        }
    }
}

impl Machine {
    /// Starts a body for a sandbox that nobody has asked for yet.
    async fn prepare(
        &self,
        id: &SandboxId,
        tenant: &Tenant,
        kind: Kind,
        defaults: Defaults,
    ) -> Result<Readiness, MachineError> {
        // Only just after a start is it not known which volumes there are.
        let _ = timeout(READY_WITHIN, self.spawner().volumes()).await;
        let order = match kind {
            Kind::Usual => {
                SandboxOrder::PrepareWhole(Box::new(self.usual(id.as_str(), tenant, defaults)))
            }
            Kind::Other => SandboxOrder::Prepare {
                sandbox: id.to_string(),
                tenant: tenant_number(tenant.as_str()),
                max_processes: defaults.processes,
            },
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

    fn tenant(number: usize) -> Tenant {
        format!("tenant-{number}").parse().unwrap()
    }

    fn prepared(kind: Kind) -> Prepared {
        Prepared { id: SandboxId::from_random([7; 16]), readiness: Readiness::Body, kind }
    }

    #[test]
    fn a_body_is_for_one_tenant_and_for_no_other() {
        let (mut shelves, now) = (Shelves::default(), Instant::now());
        let (one, other) = (tenant(1), tenant(2));
        assert!(shelves.take(&one, Kind::Usual, 8, now).is_none());
        assert_eq!(shelves.missing(1), Some((one.clone(), Kind::Usual)));
        shelves.put(&one, prepared(Kind::Usual));
        assert!(shelves.take(&other, Kind::Usual, 8, now).is_none());
        assert!(shelves.take(&one, Kind::Usual, 8, now).is_some());
    }

    #[test]
    fn a_tenant_takes_the_place_of_one_that_creates_nothing_any_more() {
        let (mut shelves, start) = (Shelves::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for number in 0..3 {
            shelves.take(&tenant(number), Kind::Usual, 3, at(0));
        }
        shelves.put(&tenant(0), prepared(Kind::Other));
        shelves.take(&tenant(1), Kind::Usual, 3, at(10));
        shelves.take(&tenant(2), Kind::Usual, 3, at(20));
        let has = |shelves: &Shelves, number| shelves.of_tenants.contains_key(&tenant(number));
        shelves.take(&tenant(3), Kind::Usual, 3, at(30));
        assert!(!has(&shelves, 3), "all are in use");
        shelves.take(&tenant(3), Kind::Usual, 3, at(65));
        assert!(has(&shelves, 3) && !has(&shelves, 0));
        // One that was being made meanwhile is removed too.
        shelves.put(&tenant(0), prepared(Kind::Usual));
        assert_eq!(shelves.discarded.len(), 2);
    }

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
