//! Waiting for a sandbox that is on its way.

use model::{
    ids::{SandboxId, Tenant},
    life::{Life, Phase},
    sandbox::{Refusal, Sandbox},
};

use tokio::time::{Instant, timeout_at};

use super::{SandboxError, Sandboxes, Taken};

impl Sandboxes {
    /// Waits until a sandbox is ready that is on its way to it, or will not be. Returns it as it is then.
    pub async fn settled(&self, mut sandbox: Sandbox) -> Result<Sandbox, SandboxError> {
        let life = self.shared.living().get(&sandbox.id).map(|contact| contact.life.clone());
        let settled = match life {
            Some(mut life) => {
                let life = life.wait_for(|life| life.as_ref().is_some_and(has_settled)).await;
                life.ok().and_then(|life| life.clone())
            }
            None => None,
        };
        match settled {
            Some(life) => sandbox.life = life,
            // It is another server's, or its task has come to its end.
            None => sandbox = self.settled_elsewhere(&sandbox).await?,
        }
        Ok(sandbox)
    }

    /// Starts a sandbox that is stopped, or will be in a moment: then that is waited for.
    pub async fn start(&self, tenant: &Tenant, name: &str) -> Result<Taken, SandboxError> {
        let id = self.get(tenant, name).await?.id;
        loop {
            let life = self.shared.living().get(&id).map(|contact| contact.life.clone());
            let started = self.resume(tenant, id.as_str()).await;
            match (started, life) {
                (Err(SandboxError::Refused(Refusal::NotYet(Phase::Stopping))), Some(mut life)) => {
                    let has_stopped = |life: &Option<Life>| {
                        life.as_ref().is_some_and(|life| life.phase != Phase::Stopping)
                    };
                    // Its task comes to its end only with the sandbox, which the next try tells.
                    let _ = life.wait_for(has_stopped).await;
                }
                (answer, _) => return answer,
            }
        }
    }

    /// Waits while a sandbox is being created, started or stopped, until `deadline` at most. Nothing that others need is
    /// held meanwhile.
    pub async fn until_steady(&self, sandbox: &SandboxId, deadline: Instant) {
        let life = self.shared.living().get(sandbox).map(|contact| contact.life.clone());
        let Some(mut life) = life else { return };
        let is_steady = |life: &Option<Life>| {
            life.as_ref().is_some_and(|life| has_settled(life) && life.phase != Phase::Stopping)
        };
        // What the sandbox is then, the next request tells.
        let _ = timeout_at(deadline, life.wait_for(is_steady)).await;
    }

    async fn settled_elsewhere(&self, sandbox: &Sandbox) -> Result<Sandbox, SandboxError> {
        let (tenant, id) = (&sandbox.tenant, sandbox.id.as_str());
        let mut events = self.events(tenant, id, sandbox.life.sequence).await?;
        let mut now = self.get(tenant, id).await?;
        while !has_settled(&now.life) {
            if events.next().await?.is_none() {
                break;
            }
            now = self.get(tenant, id).await?;
        }
        Ok(now)
    }
}

/// Whether it is not on its way to be ready.
fn has_settled(life: &Life) -> bool {
    !matches!(life.phase, Phase::Provisioning | Phase::Resuming)
}
