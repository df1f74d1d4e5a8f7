//! Forgets deleted sandboxes, and images that nobody needs any more.

use std::{sync::Weak, time::Duration};

use model::units::Timestamp;
use store::StoreError;

use super::{Shared, clock};

/// Forgets the records of sandboxes that were deleted long ago, and their images, now and then.
pub(super) async fn keep(shared: Weak<Shared>) {
    const OFTEN: Duration = Duration::from_mins(1);
    const AT_ONCE: u32 = 1000;
    let steady = clock::Steady::begin();
    loop {
        let Some(keep) = shared.upgrade().map(|shared| shared.settings.defaults.keep_deleted)
        else {
            return;
        };
        tokio::time::sleep(keep.min(OFTEN)).await;
        let Some(shared) = shared.upgrade() else { return };
        let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        shared.tidy_images().await;
        let before = Timestamp::from_millis(steady.now().as_millis().saturating_sub(keep));
        match shared.store.purge_sandboxes(before, AT_ONCE).await {
            Ok(forgotten) if forgotten.is_empty() => {}
            Ok(forgotten) => tracing::info!(count = forgotten.len(), "forgot deleted sandboxes"),
            Err(StoreError::Closed) => return,
            Err(error) => tracing::warn!(%error, "cannot forget deleted sandboxes"),
        }
    }
}
