//! What the pools of all tenants may take together, and how it is shared.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use model::{
    pools::{self, Room},
    units::ByteSize,
};
use rustix::process::{Resource, getrlimit};

/// What pools may take together.
#[derive(Debug)]
pub(super) struct Budget {
    all: Room,
    /// What each tenant's pools have taken. A tenant without pools is not in it.
    taken: Mutex<HashMap<Arc<str>, Taken>>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    pools: usize,
    room: Room,
}

const NOTHING: Taken = Taken { pools: 0, room: Room { memory: ByteSize::bytes(0), slots: 0 } };

/// A waiting slot has about this many descriptors in the daemon.
const DESCRIPTORS: u64 = 16;

impl Budget {
    /// Half of the descriptors that this process may have are left to connections and to what runs.
    pub(super) fn new(memory: ByteSize) -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let slots = usize::try_from(descriptors / 2 / DESCRIPTORS).unwrap_or(usize::MAX);
        Self { all: Room { memory, slots }, taken: Mutex::default() }
    }

    /// Returns whether a new pool fits beside all others.
    pub(super) fn fits(&self, pool: pools::Pool) -> bool {
        let left = self.left(&self.taken());
        pool.memory() <= left.memory && pool.size <= left.slots
    }

    /// Returns what the pools of this tenant may grow by.
    pub(super) fn room(&self, tenant: &Arc<str>) -> Room {
        let taken = self.taken();
        let own = taken.get(tenant).copied().unwrap_or(NOTHING);
        pools::room_of_tenant(self.all, self.left(&taken), own.room, taken.len())
    }

    /// Returns whether a tenant has more than its share.
    pub(super) fn is_over_share(&self, tenant: &Arc<str>) -> bool {
        let taken = self.taken();
        let tenants = u64::try_from(taken.len()).unwrap_or(u64::MAX).max(1);
        let share = self.all.memory.as_bytes() / tenants;
        taken.get(tenant).is_some_and(|own| own.room.memory.as_bytes() > share)
    }

    /// Notes that a pool was opened, closed, or has another size. Two that grow at once may go past
    /// the budget by one step; the next one sees it.
    pub(super) fn note(
        &self,
        tenant: &Arc<str>,
        before: Option<pools::Pool>,
        after: Option<pools::Pool>,
    ) {
        let size = |pool: Option<pools::Pool>| {
            pool.map_or((ByteSize::default(), 0), |pool| (pool.memory(), pool.size))
        };
        let ((old_memory, old_slots), (memory, slots)) = (size(before), size(after));
        let mut taken = self.taken();
        let own = taken.entry(Arc::clone(tenant)).or_insert(NOTHING);
        own.pools = (own.pools + usize::from(after.is_some())) - usize::from(before.is_some());
        own.room.memory = own.room.memory.saturating_sub(old_memory).saturating_add(memory);
        own.room.slots = own.room.slots.saturating_sub(old_slots).saturating_add(slots);
        if own.pools == 0 {
            taken.remove(tenant);
        }
    }

    fn left(&self, taken: &HashMap<Arc<str>, Taken>) -> Room {
        taken.values().fold(self.all, |left, own| Room {
            memory: left.memory.saturating_sub(own.room.memory),
            slots: left.slots.saturating_sub(own.room.slots),
        })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Arc<str>, Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
