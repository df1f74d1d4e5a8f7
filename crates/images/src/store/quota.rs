//! How much of the disk images may take: those of one tenant, and all of them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Store, StoreError};
use crate::{digest::Digest, unpack::Report};

/// What an entry takes beside its bytes, as file systems round up.
const ENTRY: u64 = 4096;

/// Of the disk, this part stays free for everything else.
const FREE_PART: u64 = 20;

/// The most that images may take. A layer that several tenants use counts for each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    pub tenant: u64,
    pub store: u64,
}

impl Default for Quota {
    fn default() -> Self {
        Self { tenant: 32 << 30, store: 256 << 30 }
    }
}

/// What a new layer may take, and what it has outgrown if it takes more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
    is_tenants: bool,
    quota: Quota,
}

impl Room {
    pub(crate) fn outgrown(self) -> StoreError {
        let Quota { tenant, store } = self.quota;
        if self.is_tenants {
            StoreError::TenantFull { most: tenant }
        } else {
            StoreError::StoreFull { most: store }
        }
    }
}

impl Quota {
    pub(super) fn check(self, taken: u64) -> Result<(), StoreError> {
        let most = self.tenant;
        if taken > most { Err(StoreError::TenantFull { most }) } else { Ok(()) }
    }
}

/// What a layer takes on disk, about.
fn cost(report: &Report) -> u64 {
    report.bytes.saturating_add(report.entries.saturating_mul(ENTRY))
}

impl Store {
    /// Returns how much a new layer of a tenant may take.
    pub(crate) fn room_for(&self, tenant: &str, quota: Quota) -> Result<Room, StoreError> {
        let lock = self.lock()?;
        let of_tenant = self.cost(&self.layers_of(tenant)?)?;
        let of_all = self.cost(&self.all_layers()?)?;
        drop(lock);
        let own = quota.tenant.saturating_sub(of_tenant);
        let shared = quota.store.saturating_sub(of_all).min(self.free_space()?);
        let bytes = own.min(shared);
        let room = Room { bytes, entries: bytes / ENTRY, is_tenants: own <= shared, quota };
        if bytes == 0 { Err(room.outgrown()) } else { Ok(room) }
    }

    /// Adds up what layers take. The store is locked.
    pub(super) fn cost(&self, layers: &BTreeSet<Digest>) -> Result<u64, StoreError> {
        let mut all = 0_u64;
        for layer in layers {
            let taken = self.layer(*layer)?.map_or(0, |layer| cost(&layer.report));
            all = all.saturating_add(taken);
        }
        Ok(all)
    }

    /// Returns how much of the disk is left for images.
    fn free_space(&self) -> Result<u64, StoreError> {
        let disk = rustix::fs::statvfs(&self.0.root)
            .map_err(|errno| super::files::failed(&self.0.root)(errno.into()))?;
        let size = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Ok(size(disk.f_bavail).saturating_sub(size(disk.f_blocks) / FREE_PART))
    }
}
