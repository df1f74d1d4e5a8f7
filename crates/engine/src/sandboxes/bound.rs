//! What sessions need of the sandboxes that they are bound to.

use std::time::Duration;

use model::{
    activity::{Clients, Commands, Consequence, Cpu, Facts, Heartbeats, Shells, Usage, judge},
    ids::{NodeId, SandboxId, Tenant},
    lease::Activity,
    life::{EndCause, Life, Phase, SuspendReason},
    policy::Quotas,
    sandbox::{Request, Sandbox},
    spec::{Provider, SandboxSpec},
    units::Timestamp,
};
use store::{Store, sessions::Binding};
use tokio::time::{Instant, sleep};

use super::{Caller, SandboxError, Sandboxes, actor::Ask, creating::Record};
use crate::tasks::Tasks;

impl Sandboxes {
    pub(crate) fn store(&self) -> &Store {
        &self.shared.store
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.shared.tasks
    }

    pub(crate) fn node(&self) -> &NodeId {
        &self.shared.settings.node
    }

    /// Accepts a new sandbox together with the binding that it is made for: both are kept, or neither. Whoever
    /// calls this stays until it is done.
    pub(crate) async fn create_bound(
        &self,
        tenant: &Tenant,
        spec: SandboxSpec,
        quotas: Quotas,
        binding: impl FnOnce(&Sandbox) -> Binding + Send + 'static,
    ) -> Result<Sandbox, SandboxError> {
        let record = Record::Bound(Box::new(binding), quotas);
        self.accept_here(&Caller::nobody(), tenant, spec, record).await
    }

    /// Returns something of the life of a sandbox that has a task here.
    pub(crate) fn look<T>(&self, id: &SandboxId, see: impl FnOnce(&Life) -> T) -> Option<T> {
        let life = self.shared.living().get(id).map(|contact| contact.life.clone())?;
        let life = life.borrow();
        life.as_ref().map(see)
    }

    /// Returns where a sandbox runs that has a task here.
    /// Refuses a provider that the operator has not enabled.
    pub(crate) fn check_enabled(&self, provider: Provider) -> Result<(), SandboxError> {
        match self.shared.provider_named(provider).disabled() {
            Some(why) => Err(SandboxError::ProviderDisabled(why.to_owned())),
            None => Ok(()),
        }
    }

    pub(crate) fn provider(&self, id: &SandboxId) -> Option<Provider> {
        self.shared.living().get(id).map(|contact| contact.provider)
    }

    /// Returns the state of a sandbox, wherever it runs; nothing if there is no record of it.
    pub(crate) async fn life(&self, id: &SandboxId) -> Result<Option<Life>, SandboxError> {
        let here = self.shared.living().get(id).map(|contact| contact.life.clone());
        if let Some(mut life) = here
            && let Ok(life) = life.wait_for(Option::is_some).await
            && let Some(life) = &*life
        {
            return Ok(Some(life.clone()));
        }
        Ok(self.shared.store.sandbox(id).await?.map(|sandbox| sandbox.life))
    }

    /// Waits until a sandbox can be used or never will, and starts it if it is stopped, or failed with its files
    /// kept. Returns its phase.
    pub(crate) async fn awake(&self, id: &SandboxId) -> Result<Phase, SandboxError> {
        let mut was_started = false;
        loop {
            let life = self.shared.living().get(id).map(|contact| contact.life.clone());
            let Some(mut life) = life else {
                return self.awake_elsewhere(id).await;
            };
            let is_still = |life: &Option<Life>| {
                life.as_ref().is_some_and(|life| {
                    !matches!(life.phase, Phase::Provisioning | Phase::Resuming | Phase::Stopping)
                })
            };
            let settled = match life.wait_for(is_still).await {
                Ok(life) => life.as_ref().map(|life| (life.phase, life.can_be_started())),
                // Its task has come to its end.
                Err(_) => None,
            };
            match settled {
                // A start that failed just now is not repeated until the next request.
                Some((Phase::Failed, _)) if was_started => return Ok(Phase::Failed),
                Some((_, true)) => match self.shared.request(id, Request::Resume).await {
                    Ok(_) => was_started = true,
                    Err(SandboxError::Refused(_)) => {}
                    Err(error) => return Err(error),
                },
                Some((phase, false)) => return Ok(phase),
                None => return self.awake_elsewhere(id).await,
            }
        }
    }

    /// The same for one that another server has, or nobody any more.
    async fn awake_elsewhere(&self, id: &SandboxId) -> Result<Phase, SandboxError> {
        let found = self.shared.store.sandbox(id).await?.ok_or(SandboxError::NotFound)?;
        if found.life.phase.is_terminal() {
            return Ok(found.life.phase);
        }
        Ok(self.settled(found).await?.life.phase)
    }

    /// Says whether somebody uses a sandbox, or when somebody did, by a clock on which it is this late now.
    pub(crate) fn activity(&self, id: &SandboxId, now: Timestamp) -> Option<Activity> {
        let (used, clients, commands, shells) = {
            let living = self.shared.living();
            let contact = living.get(id)?;
            let life = contact.life.borrow();
            let commands = life.as_ref().map_or(Commands::None, Life::commands);
            let shells = life.as_ref().map_or(Shells::None, Life::shells_running);
            let way = contact.way.unused_for(Duration::ZERO);
            let feeds = contact.feeds.unused_for(Duration::ZERO);
            (*contact.used.borrow(), [way, feeds], commands, shells)
        };
        let now_here = Instant::now();
        let files = self.shared.files.unused_for(id, Duration::ZERO);
        let clients = clients.into_iter().chain([files]).flatten().max();
        let is_attached = clients.is_some_and(|last| last >= now_here);
        let facts = Facts {
            clients: if is_attached { Clients::Attached } else { Clients::None },
            commands,
            shells,
            // Whoever looks at it notes processor time that was used as its last use.
            cpu: Cpu::Quiet,
            // They are noted by the session.
            heartbeats: Heartbeats::None,
        };
        if judge(facts, Consequence::EndLease) == Usage::Active {
            return Some(Activity::Now);
        }
        let last = clients.map_or(used, |last| last.max(used));
        let ago = now_here.saturating_duration_since(last);
        let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
        Some(Activity::Last(Timestamp::from_millis(now.as_millis().saturating_sub(ago))))
    }

    /// Stops a sandbox that nobody is bound to for the moment.
    pub(crate) async fn rest(&self, id: &SandboxId) -> Result<(), SandboxError> {
        self.shared.request(id, Request::Stop(SuspendReason::Released)).await.map(drop)
    }

    /// Deletes a sandbox. One that is gone is as good.
    pub(crate) async fn end(&self, id: &SandboxId, cause: EndCause) -> Result<(), SandboxError> {
        match self.shared.request(id, Request::Delete(cause)).await {
            Ok(_) | Err(SandboxError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns when a sandbox is gone, or nobody here has it.
    pub(crate) async fn until_gone(&self, id: &SandboxId) {
        let life = self.shared.living().get(id).map(|contact| contact.life.clone());
        let Some(mut life) = life else { return };
        let is_gone =
            |life: &Option<Life>| life.as_ref().is_some_and(|life| life.phase.is_terminal());
        // An error means that its task has come to its end.
        let _ = life.wait_for(is_gone).await;
    }

    /// Deletes a sandbox as soon as that can be kept. If the server ends before, the next one does it.
    pub(crate) fn end_later(&self, id: SandboxId, cause: EndCause) {
        const RETRY: Duration = Duration::from_secs(5);
        let sandboxes = self.clone();
        self.shared.tasks.start("end of a sandbox", async move {
            while let Err(error) = sandboxes.end(&id, cause.clone()).await {
                let is_served = sandboxes.shared.living().contains_key(&id);
                if !is_served || matches!(error, SandboxError::Store(_)) {
                    return tracing::error!(sandbox = %id, %error, "cannot end a sandbox");
                }
                sleep(RETRY).await;
            }
        });
    }

    /// Tells whoever follows a sandbox that it ends soon. One that is too busy to hear it goes without.
    pub(crate) fn warn(&self, id: &SandboxId, cause: EndCause, seconds: u32) {
        let _ = self.shared.try_send(id, Ask::Warn { cause, seconds });
    }
}
