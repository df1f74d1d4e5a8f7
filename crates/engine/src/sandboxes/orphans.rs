//! What providers still have of sandboxes that no record knows of, or that have come to their end.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use model::ids::SandboxId;
use tokio::time::sleep;

use super::{Shared, machine::MachineError, provider::Provider};

/// How long to wait for a provider that does not answer, at first and at most.
const FIRST: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_mins(1);

/// Removes it once the provider answers. A sandbox is recorded before anything of it is made, so what has
/// no record then is nobody's.
pub(super) async fn clear(shared: Weak<Shared>) {
    let mut wait = FIRST;
    loop {
        let Some(shared) = shared.upgrade() else { return };
        match shared.clear_orphans(&*shared.docker).await {
            Ok(()) => return,
            Err(error) => tracing::debug!(%error, "cannot see yet which sandboxes a provider has"),
        }
        drop(shared);
        sleep(wait).await;
        wait = (wait * 2).min(SELDOM);
    }
}

impl Shared {
    async fn clear_orphans(self: &Arc<Self>, provider: &dyn Provider) -> Result<(), MachineError> {
        for name in provider.list().await? {
            if !self.is_orphan(&name).await {
                continue;
            }
            provider.remove_unknown(&name).await?;
            tracing::warn!(sandbox = name, "removed what no record knows of");
        }
        Ok(())
    }

    /// What cannot be looked up is left alone.
    async fn is_orphan(&self, name: &str) -> bool {
        let Ok(id) = name.parse::<SandboxId>() else { return false };
        match self.store.sandbox(&id).await {
            Ok(found) => found.is_none_or(|sandbox| sandbox.life.phase.is_terminal()),
            Err(error) => {
                tracing::warn!(sandbox = %id, %error, "cannot look up whose container this is");
                false
            }
        }
    }
}
