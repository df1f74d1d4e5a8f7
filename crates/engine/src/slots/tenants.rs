//! The pools of each tenant: warm slots and the zygotes that they are forked from are never shared
//! between tenants.
//!
//! The server's own tenant has its pools from the start and for ever. Another tenant gets the pool of a
//! language with its first execution in it, which itself is made anew. When there is no room for it,
//! the pool that was not used for the longest time is closed; if all are in use, the tenant's executions
//! are made anew. A pool that is not used for a while is closed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use model::{limits::FixedLimits, policy::SERVER_TENANT};

use super::{
    budget::Budget,
    pool::{InLine, Pool, PoolParts},
};
use crate::{PoolLoad, Settings, languages::Language, spawner::Spawner, tasks::Tasks};

/// Which pool: the tenant, and the name of the language.
type Key = (Arc<str>, String);

/// See [`PoolLoad`].
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    made_anew: u64,
    waited_for: u64,
}

/// All pools of this node.
#[derive(Debug)]
pub(super) struct TenantPools {
    languages: Vec<Language>,
    spawner: Spawner,
    tasks: Tasks,
    budget: Arc<Budget>,
    /// What every waiting slot is made with.
    slot_limits: FixedLimits,
    /// How long the pool of a tenant is kept that is not used.
    idle: Duration,
    pools: Mutex<HashMap<Key, Arc<Pool>>>,
    /// What pools that are closed have counted, by language.
    counted: Mutex<HashMap<String, Counted>>,
}

impl TenantPools {
    pub(super) fn open(
        languages: Vec<Language>,
        spawner: Spawner,
        tasks: Tasks,
        settings: &Settings,
    ) -> Arc<Self> {
        let all = Arc::new(Self {
            languages,
            spawner,
            tasks,
            budget: Arc::new(Budget::new(settings.pool_memory.0)),
            slot_limits: settings.limits.fixed,
            idle: settings.pool_idle.0,
            pools: Mutex::default(),
            counted: Mutex::default(),
        });
        let tenant: Arc<str> = SERVER_TENANT.into();
        for language in &all.languages {
            let key = (Arc::clone(&tenant), language.name.clone());
            all.pools().insert(key, all.new_pool(&tenant, language));
        }
        all
    }

    /// Returns the language of that name, if it has pools.
    pub(super) fn language(&self, name: &str) -> Option<&Language> {
        self.languages.iter().find(|language| language.name == name)
    }

    /// Returns the limits that every waiting slot is made with.
    pub(super) fn slot_limits(&self) -> FixedLimits {
        self.slot_limits
    }

    /// Lines up for a slot of this tenant's pool. `None` if it has none yet, or cannot have one.
    pub(super) fn line_up(
        self: &Arc<Self>,
        tenant: &Arc<str>,
        language: &Language,
    ) -> Option<InLine> {
        let key = (Arc::clone(tenant), language.name.clone());
        let mut pools = self.pools();
        if let Some(pool) = pools.get(&key) {
            // Under the lock: a pool that a request is in line for is never closed.
            return Some(pool.line_up());
        }
        if self.make_room(&mut pools, language) {
            let pool = self.new_pool(tenant, language);
            pools.insert(key.clone(), pool);
            self.give_back_surplus(&pools);
            let all = Arc::clone(self);
            self.tasks.start("close an unused pool", async move { all.close_when_idle(key).await });
        }
        None
    }

    /// Returns what the pools of each language have, of all tenants together.
    pub(super) fn loads(&self) -> Vec<PoolLoad> {
        let pools = self.pools();
        let load_of = |language: &Language| {
            let name = &language.name;
            let Counted { made_anew, waited_for } =
                self.counted().get(name).copied().unwrap_or_default();
            let language = name.clone();
            let none = PoolLoad { language, ready: 0, being_made: 0, made_anew, waited_for };
            pools.iter().filter(|((_, of), _)| of == name).fold(none, |sum, (_, pool)| {
                let load = pool.load();
                PoolLoad {
                    ready: sum.ready + load.ready,
                    being_made: sum.being_made + load.being_made,
                    made_anew: sum.made_anew + load.made_anew,
                    waited_for: sum.waited_for + load.waited_for,
                    ..sum
                }
            })
        };
        self.languages.iter().map(load_of).collect()
    }

    fn new_pool(&self, tenant: &Arc<str>, language: &Language) -> Arc<Pool> {
        Pool::open(PoolParts {
            tenant: Arc::clone(tenant),
            language: language.clone(),
            limits: self.slot_limits,
            budget: Arc::clone(&self.budget),
            spawner: self.spawner.clone(),
            tasks: self.tasks.clone(),
        })
    }

    /// Closes pools that no request is in line for, those first that were not used for the longest
    /// time, until a pool of this language fits. The pools of the server's own tenant stay.
    fn make_room(&self, pools: &mut HashMap<Key, Arc<Pool>>, language: &Language) -> bool {
        while !self.budget.fits(Pool::smallest(language)) {
            let unused = pools
                .iter()
                .filter(|((tenant, _), pool)| **tenant != *SERVER_TENANT && pool.is_unused())
                .min_by_key(|(_, pool)| pool.last_used())
                .map(|(key, _)| key.clone());
            let Some(unused) = unused else { return false };
            self.close(pools, &unused);
        }
        true
    }

    /// Another tenant has come: those that have more than their share now have fewer slots waiting.
    fn give_back_surplus(&self, pools: &HashMap<Key, Arc<Pool>>) {
        for ((tenant, _), pool) in pools {
            if self.budget.is_over_share(tenant) {
                pool.shrink_to_least();
            }
        }
    }

    fn close(&self, pools: &mut HashMap<Key, Arc<Pool>>, key: &Key) {
        let Some(pool) = pools.remove(key) else { return };
        let load = pool.load();
        let mut counted = self.counted();
        let counted = counted.entry(key.1.clone()).or_default();
        counted.made_anew += load.made_anew;
        counted.waited_for += load.waited_for;
        pool.close();
    }

    async fn close_when_idle(&self, key: Key) {
        loop {
            let Some(last_used) = self.pools().get(&key).map(|pool| pool.last_used()) else {
                return;
            };
            tokio::select! {
                () = tokio::time::sleep_until(last_used + self.idle) => {}
                () = self.spawner.gone() => return,
            }
            let mut pools = self.pools();
            let is_idle =
                |pool: &Arc<Pool>| pool.is_unused() && pool.last_used().elapsed() >= self.idle;
            if pools.get(&key).is_some_and(is_idle) {
                self.close(&mut pools, &key);
            }
        }
    }

    fn pools(&self) -> MutexGuard<'_, HashMap<Key, Arc<Pool>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counted(&self) -> MutexGuard<'_, HashMap<String, Counted>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
