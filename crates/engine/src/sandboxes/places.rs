//! How many sandboxes a tenant has, counted so that no two requests take the last place.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use model::{
    audit::Entry,
    ids::Tenant,
    policy::{QuotaError, Quotas},
};

use super::Shared;

/// On which terms a sandbox is accepted.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What the audit log is to say of it. The sandbox is put in when it is known.
    pub entry: Entry,
    /// What its tenant may have.
    pub quotas: Quotas,
}

/// Places of sandboxes that are about to be accepted.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<HashMap<Tenant, usize>>);

impl Places {
    fn lock(&self) -> MutexGuard<'_, HashMap<Tenant, usize>> {
        // The map is whole after every step, so that a panic elsewhere does not make it wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that is held until the sandbox is there, or is not to be.
#[derive(Debug)]
pub(super) struct Place {
    shared: Arc<Shared>,
    /// None if nobody counts.
    tenant: Option<Tenant>,
}

impl Place {
    pub(super) fn take(
        shared: &Arc<Shared>,
        tenant: &Tenant,
        quotas: Quotas,
    ) -> Result<Self, QuotaError> {
        let mut place = Self { shared: Arc::clone(shared), tenant: None };
        if quotas.sandboxes.is_some() {
            let mut held = shared.places.lock();
            let living = shared.living();
            let there_are = living.values().filter(|contact| contact.tenant == *tenant).count();
            quotas.admit_sandbox(there_are + held.get(tenant).copied().unwrap_or(0))?;
            *held.entry(tenant.clone()).or_default() += 1;
            place.tenant = Some(tenant.clone());
        }
        Ok(place)
    }

    /// Has the sandbox take it: nobody counts it twice, or not at all.
    pub(super) fn fill<T>(mut self, announce: impl FnOnce() -> T) -> T {
        let shared = Arc::clone(&self.shared);
        let mut held = shared.places.lock();
        let announced = announce();
        if let Some(tenant) = self.tenant.take() {
            release(&mut held, &tenant);
        }
        announced
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(tenant) = &self.tenant {
            release(&mut self.shared.places.lock(), tenant);
        }
    }
}

fn release(held: &mut HashMap<Tenant, usize>, tenant: &Tenant) {
    if let Some(count) = held.get_mut(tenant) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            held.remove(tenant);
        }
    }
}
