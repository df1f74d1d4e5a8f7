//! Settings of sandboxes that are there.

use std::time::Duration;

use model::{
    adjustment::Adjustment,
    ids::Tenant,
    sandbox::{Request, Sandbox},
};

use super::{SandboxError, Sandboxes};

impl Sandboxes {
    /// Changes settings of a sandbox, and returns it as it is then.
    pub async fn adjust(
        &self,
        tenant: &Tenant,
        name: &str,
        adjustment: Adjustment,
    ) -> Result<Sandbox, SandboxError> {
        let sandbox = self.get(tenant, name).await?;
        self.shared.request(&sandbox.id, Request::Adjust(Box::new(adjustment))).await?;
        self.get(tenant, sandbox.id.as_str()).await
    }

    /// Returns how long a stopped sandbox is kept that does not say it itself; nothing: for ever.
    pub fn keeps_stopped(&self) -> Option<Duration> {
        self.shared.settings.defaults.keep_stopped
    }
}
