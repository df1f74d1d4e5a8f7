//! Changes of one scope take turns.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use model::{ids::Tenant, scope::Scope};
use tokio::sync::OwnedMutexGuard;

type Key = (Tenant, Scope);
type Gate = Arc<tokio::sync::Mutex<()>>;

#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    gates: Arc<Mutex<HashMap<Key, Gate>>>,
}

/// The next one's turn begins when this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    gates: Arc<Mutex<HashMap<Key, Gate>>>,
    key: Key,
    held: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for its turn among those who want the same scope.
    pub(super) async fn take(&self, tenant: &Tenant, scope: &Scope) -> Turn {
        let key = (tenant.clone(), scope.clone());
        let gate = {
            let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(gates.entry(key.clone()).or_default())
        };
        // Whoever is dropped while it waits leaves the gate to be removed by the next.
        let held = gate.lock_owned().await;
        Turn { gates: Arc::clone(&self.gates), key, held: Some(held) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.held.take());
        // Nobody can come to wait for it while the table is held.
        if gates.get(&self.key).is_some_and(|gate| Arc::strong_count(gate) == 1) {
            gates.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_has_a_scope_and_nothing_is_left_behind() {
        let turns = Turns::default();
        let tenant: Tenant = "default".parse().unwrap();
        let scope = |id: &str| Scope::thread(id.parse().unwrap());
        let one = turns.take(&tenant, &scope("a")).await;
        drop(turns.take(&tenant, &scope("b")).await);
        let a = scope("a");
        let mut waits = Box::pin(turns.take(&tenant, &a));
        let poll = futures_util::FutureExt::now_or_never(&mut waits);
        assert!(poll.is_none());
        drop(one);
        drop(waits.await);
        drop(turns.take(&tenant, &a).await);
        assert!(turns.gates.lock().unwrap().is_empty());
    }
}
