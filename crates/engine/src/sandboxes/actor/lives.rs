//! The lives of a sandbox's task. One that breaks off by a panic is followed by another, which takes
//! over from the store and from what the kernel knows, as the task of a new server does.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use model::{ids::SandboxId, life::Life, sandbox::Sandbox};
use store::StoreError;
use tokio::{
    sync::{Mutex, mpsc, watch},
    time::{Instant, sleep},
};

use super::{Actor, Ask, Contact, Presence, RETRY};
use crate::{
    images::Progress,
    sandboxes::{Shared, feeds::Feeds, requests::INBOX, way::Way},
};

/// How often a task may break off in a time. One that does so more often would do so for ever.
const MOST: usize = 5;
const WITHIN: Duration = Duration::from_mins(10);

/// What all lives of a task have in common: requests that none has taken up are the next one's.
#[derive(Clone, Debug)]
pub(in crate::sandboxes) struct Door {
    inbox: Arc<Mutex<mpsc::Receiver<Ask>>>,
    pub(super) feeds: Arc<Feeds>,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) life: watch::Sender<Option<Life>>,
    pub(super) used: watch::Sender<Instant>,
    pub(super) way: Arc<Way>,
}

impl Door {
    pub(super) fn new(shared: &Arc<Shared>, sandbox: &Sandbox) -> (Self, Contact) {
        let (asks, inbox) = mpsc::channel(INBOX);
        let (progress, seen) = watch::channel(Progress::default());
        let (life, lived) = watch::channel(None);
        let (used, seen_used) = watch::channel(Instant::now());
        let feeds = Arc::new(Feeds::default());
        let way = Way::new(shared, sandbox.id.clone());
        let contact = Contact {
            tenant: sandbox.tenant.clone(),
            provider: sandbox.spec.provider,
            alias: sandbox.alias.clone(),
            run: sandbox.spec.run.clone(),
            asks,
            feeds: Arc::clone(&feeds),
            progress: seen,
            life: lived,
            used: seen_used,
            way: Arc::clone(&way),
        };
        (Self { inbox: Arc::new(Mutex::new(inbox)), feeds, progress, life, used, way }, contact)
    }

    /// Returns the next request; `None` when nobody can ask any more.
    pub(super) async fn next(&self) -> Option<Ask> {
        self.inbox.lock().await.recv().await
    }
}

impl Actor {
    /// Runs the task of a sandbox, and the next one whenever it breaks off.
    ///
    /// Whoever it was about to answer is told that there is no answer. What broke is not said here:
    /// it may be about what somebody asked for.
    pub(super) async fn live(self) {
        let (shared, id) = (Arc::clone(&self.shared), self.sandbox.id.clone());
        let door = self.door.clone();
        let (mut breaks, mut actor) = (Breaks::default(), self);
        while let Ended::BrokeOff = to_its_end(actor.run()).await {
            if !breaks.may_go_on(Instant::now()) {
                tracing::error!(
                    sandbox = %id, "its task broke off too often: it is served after a restart"
                );
                break;
            }
            tracing::error!(sandbox = %id, "its task broke off, and another takes over");
            let Some(sandbox) = read(&shared, &id).await else { break };
            actor = Self::new(&shared, sandbox, Presence::Unknown, door.clone());
        }
        shared.living().remove(&id);
        shared.outputs.forget(&id);
    }
}

/// Reads the record of a sandbox, unless it cannot be had.
async fn read(shared: &Shared, id: &SandboxId) -> Option<Sandbox> {
    for _ in 0..MOST {
        match shared.store.sandbox(id).await {
            Ok(found) => return found,
            Err(StoreError::Closed) => return None,
            Err(error) => {
                tracing::error!(sandbox = %id, %error, "cannot read its record");
                sleep(RETRY).await;
            }
        }
    }
    None
}

/// When the task broke off.
#[derive(Debug, Default)]
struct Breaks(VecDeque<Instant>);

impl Breaks {
    /// Counts one more. Returns whether there may be another life.
    fn may_go_on(&mut self, now: Instant) -> bool {
        self.0.retain(|then| now.duration_since(*then) < WITHIN);
        self.0.push_back(now);
        self.0.len() <= MOST
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Orderly,
    BrokeOff,
}

/// Runs a task until it ends or panics. What it held is dropped then; nothing of it is used again.
async fn to_its_end(task: impl Future<Output = ()> + Send) -> Ended {
    let mut task = Box::pin(task);
    let ended =
        poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(Ended::Orderly),
            Err(_panic) => Poll::Ready(Ended::BrokeOff),
        })
        .await;
    // What a broken task leaves may break again when it is dropped.
    match catch_unwind(AssertUnwindSafe(|| drop(task))) {
        Ok(()) => ended,
        Err(_panic) => Ended::BrokeOff,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_told_from_one_that_ends() {
        assert_eq!(to_its_end(async {}).await, Ended::Orderly);
        let broken = async {
            tokio::task::yield_now().await;
            assert!(std::hint::black_box(false), "a test of panics");
        };
        assert_eq!(to_its_end(broken).await, Ended::BrokeOff);
    }

    #[test]
    fn only_those_breaks_count_that_are_close_together() {
        let begin = Instant::now();
        let mut breaks = Breaks::default();
        for _ in 0..MOST {
            assert!(breaks.may_go_on(begin));
        }
        assert!(!breaks.may_go_on(begin));
        assert!(breaks.may_go_on(begin + WITHIN));
    }
}
