//! Requests: what is answered, what is put off until the sandbox is ready, and what is done at once.

use isolate::failpoint;
use model::{
    life::Phase,
    sandbox::{Refusal, Request, Wake},
    transition::{Answer, Transition},
};
use store::StoreError;
use tokio::time::Instant;

use super::{Actor, Wish, keep};
use crate::sandboxes::{SandboxError, requests::INBOX};

impl Actor {
    /// Answers a request, and does what there is to do at once.
    pub(super) async fn answer(&mut self, ask: Wish) {
        if let Err(error) = self.check(&ask.request) {
            if self.out_of_reach.is_some() {
                // Somebody wants it, so that it is looked for now.
                self.retry.at_once();
            }
            let _ = ask.answer.send(Err(error));
            return;
        }
        let answer = loop {
            match self.sandbox.request(ask.request.clone(), self.now()) {
                Err(Refusal::NotYet(_)) if ask.request.may_wait() => return self.wait(ask),
                Err(refusal) => break Err(refusal.into()),
                Ok(Answer::AlreadySo) => break Ok(None),
                Ok(Answer::First(Wake::Thaw)) => match self.thaw().await {
                    Ok(_) => {}
                    Err(error) => break Err(error),
                },
                Ok(Answer::First(Wake::Resume)) => match self.provider().health().await {
                    Ok(()) => return self.resume_first(ask).await,
                    Err(error) => break Err(error.into()),
                },
                Ok(Answer::Act) => break self.act(&ask.request).await.map(Some),
                Ok(Answer::Record(transition)) => {
                    if ask.request == Request::Resume
                        && let Err(error) = self.provider().health().await
                    {
                        break Err(error.into());
                    }
                    match self.record_request(&transition).await {
                        Ok(()) => {
                            self.carry_out(&ask.request, &transition).await;
                            break Ok(Some(*transition));
                        }
                        Err(StoreError::Stale { current }) => self.become_current(*current),
                        Err(StoreError::Conflict { .. }) if transition.adjusted().is_some() => {
                            break Err(SandboxError::AlreadyExists);
                        }
                        Err(StoreError::Conflict { .. }) => break Err(SandboxError::ExecExists),
                        Err(error) => break Err(error.into()),
                    }
                }
            }
        };
        // Whoever asked may have gone; what was done is done.
        let _ = ask.answer.send(answer);
    }

    /// Keeps what a request leads to. Meanwhile its command is made ready to begin.
    async fn record_request(&mut self, transition: &Transition) -> Result<(), StoreError> {
        let kept = keep(&self.shared, &self.sandbox.id, transition);
        let kept = match self.announcement(transition) {
            Some((link, say)) => {
                let (kept, announced) = tokio::join!(kept, link.ask(&say));
                if let Err(error) = announced {
                    tracing::debug!(sandbox = %self.sandbox.id, %error, "not announced");
                }
                kept
            }
            None => kept.await,
        };
        kept.map(|()| self.follow(transition))
    }

    /// Answers a request once the sandbox is ready, or will not be.
    fn wait(&mut self, wish: Wish) {
        if self.waiting.len() >= INBOX {
            let full = "too many requests wait for the sandbox".to_owned();
            let _ = wish.answer.send(Err(SandboxError::Unavailable(full)));
            return;
        }
        self.waiting.push(wish);
    }

    async fn resume_first(&mut self, ask: Wish) {
        self.wait(ask);
        let resumed = self.sandbox.request(Request::Resume, self.now());
        if let Ok(Answer::Record(transition)) = resumed
            && let Err(error) = self.record(*transition).await
        {
            self.refuse_waiting(|| SandboxError::Unavailable(error.to_string()));
        }
    }

    pub(super) fn refuse_waiting(&mut self, why: impl Fn() -> SandboxError) {
        for waiting in self.waiting.drain(..) {
            let _ = waiting.answer.send(Err(why()));
        }
    }

    /// Returns when the first of those who wait has waited for long enough.
    pub(super) fn end_of_waiting(&self) -> Option<Instant> {
        self.waiting.iter().map(|waiting| waiting.until).min()
    }

    /// Refuses those that have waited for long enough, as those are refused that do not wait.
    pub(super) fn refuse_late(&mut self) {
        let (now, phase) = (Instant::now(), self.phase());
        let late = self.waiting.extract_if(.., |waiting| waiting.until <= now);
        for waiting in late.collect::<Vec<_>>() {
            let _ = waiting.answer.send(Err(Refusal::NotYet(phase).into()));
        }
    }

    /// Once a sandbox is ready, or will never be, those who waited for it are answered.
    pub(super) async fn ask_again(&mut self) {
        if self.phase() == Phase::Resuming {
            return;
        }
        for wish in std::mem::take(&mut self.waiting) {
            // A caller that has given up must not find out later that it was done all the same.
            if wish.answer.is_closed() {
                continue;
            }
            Box::pin(self.answer(wish)).await;
        }
    }

    /// Does what a request comes to that was kept just now. What the phase asks for is done by
    /// [`Self::do_what_is_due`].
    async fn carry_out(&mut self, request: &Request, transition: &Transition) {
        match request {
            Request::StartExec { .. } => {
                if let Some(exec) = transition.started() {
                    self.start_exec(exec).await;
                }
            }
            Request::CancelExec(exec) => {
                failpoint::pass("e.cancelled");
                self.kill_exec(exec).await;
            }
            // Whatever is under way has no purpose any more.
            Request::Delete(_) => {
                failpoint::pass("d.intent");
                self.work = None;
                self.retry.at_once();
            }
            Request::Stop(_)
            | Request::Resume
            | Request::Freeze(_)
            | Request::Thaw
            | Request::Adjust(_)
            | Request::Use(_) => {}
        }
    }
}
