//! How requests reach the task of a sandbox, and how long they wait for it.

use std::time::Duration;

use model::{
    ids::{SandboxId, Tenant},
    sandbox::Request,
    transition::{Answer, Transition},
};
use tokio::{sync::oneshot, time::Instant};

use super::{
    SandboxError, Shared,
    actor::{Ask, Wish},
    clock,
};

/// Requests that may wait for one sandbox.
pub(super) const INBOX: usize = 64;

/// How long a request waits for a sandbox that is being started or stopped.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Returns how long a request waits for a sandbox that is being started or stopped. A command waits no
/// longer than it may run.
fn patience(request: &Request) -> Duration {
    match request {
        Request::StartExec { spec, .. } => spec.timeout.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT),
        Request::Stop(_)
        | Request::Resume
        | Request::Delete(_)
        | Request::Freeze(_)
        | Request::Thaw
        | Request::CancelExec(_)
        | Request::Adjust(_)
        | Request::Use(_) => LONGEST_WAIT,
    }
}

impl Shared {
    /// Has a request carried out by the task of the sandbox. Returns what was recorded; nothing if
    /// it is so already.
    pub(super) async fn request(
        &self,
        sandbox: &SandboxId,
        request: Request,
    ) -> Result<Option<Transition>, SandboxError> {
        self.request_before(sandbox, request, None).await
    }

    /// The same, for a caller that waits until `deadline` at most.
    pub(super) async fn request_before(
        &self,
        sandbox: &SandboxId,
        request: Request,
        deadline: Option<Instant>,
    ) -> Result<Option<Transition>, SandboxError> {
        let until = Instant::now() + patience(&request);
        let until = deadline.map_or(until, |deadline| until.min(deadline));
        let unanswered = match self.ask_living(sandbox, request.clone(), until).await {
            Some(Err(broken_off @ SandboxError::BrokenOff)) => broken_off,
            Some(answer) => return answer,
            None => SandboxError::Unavailable(format!("sandbox {sandbox} is not served here")),
        };
        let now = self.store.sandbox(sandbox).await?.ok_or(SandboxError::NotFound)?;
        if matches!(unanswered, SandboxError::BrokenOff) && !now.life.phase.is_terminal() {
            return Err(unanswered);
        }
        // It has come to its end, so that nothing can change any more.
        match now.request(request, clock::now())? {
            Answer::AlreadySo => Ok(None),
            Answer::Record(_) | Answer::Act | Answer::First(_) => Err(unanswered),
        }
    }

    /// Returns the sandbox of this tenant that has this id, if its task runs here: the task then knows the
    /// latest state, and the store need not be asked.
    pub(super) fn served(&self, tenant: &Tenant, name: &str) -> Option<SandboxId> {
        let id: SandboxId = name.parse().ok()?;
        let is_his = self.living().get(&id).is_some_and(|contact| contact.tenant == *tenant);
        is_his.then_some(id)
    }

    /// Asks the task of a sandbox, if it has one.
    async fn ask_living(
        &self,
        sandbox: &SandboxId,
        request: Request,
        until: Instant,
    ) -> Option<Result<Option<Transition>, SandboxError>> {
        let task = self.living().get(sandbox).map(|contact| contact.asks.clone())?;
        let (answer, answered) = oneshot::channel();
        // It ends when the sandbox does, and otherwise never before it has answered.
        let broken_off = || Err(SandboxError::BrokenOff);
        if task.send(Ask::Request(Wish { request, until, answer })).await.is_err() {
            return Some(broken_off());
        }
        Some(answered.await.unwrap_or_else(|_nobody| broken_off()))
    }

    /// Has the task of a sandbox do something that changes nothing of what is kept.
    pub(super) async fn send(&self, sandbox: &SandboxId, ask: Ask) -> Result<(), SandboxError> {
        let task = self.living().get(sandbox).map(|contact| contact.asks.clone());
        let task = task.ok_or(SandboxError::ExecEnded)?;
        task.send(ask).await.map_err(|_gone| SandboxError::ExecEnded)
    }

    /// The same, if there is room for it now. Returns whether there was.
    pub(super) fn try_send(&self, sandbox: &SandboxId, ask: Ask) -> bool {
        let living = self.living();
        living.get(sandbox).is_some_and(|contact| contact.asks.try_send(ask).is_ok())
    }

    /// Waits until the inbox of the sandbox has room, which another request may take first. Never returns for a
    /// sandbox without a task.
    pub(super) async fn room(&self, sandbox: &SandboxId) {
        let task = self.living().get(sandbox).map(|contact| contact.asks.clone());
        let has_room = match &task {
            Some(task) => task.reserve().await.is_ok(),
            None => false,
        };
        if !has_room {
            std::future::pending::<()>().await;
        }
    }
}
