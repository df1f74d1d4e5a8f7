//! What every use case goes through.

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use api::errors::ErrorCode;
use engine::tasks::Tasks;
use model::{
    audit::{Action, Entry, Outcome},
    units::Timestamp,
};
use tokio::sync::oneshot;

use crate::{
    principal::{Principal, right_for},
    problem::Problem,
};

/// Where records of use cases go.
#[derive(Clone)]
pub struct Journal {
    write: Arc<dyn Fn(Entry) + Send + Sync>,
    now: fn() -> Timestamp,
}

impl Journal {
    pub fn new(write: impl Fn(Entry) + Send + Sync + 'static, now: fn() -> Timestamp) -> Self {
        Self { write: Arc::new(write), now }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.now)()
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

/// The record of the use case that is being carried out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    object: Arc<Mutex<Option<String>>>,
}

impl Record {
    /// Says what the use case is about: the id of a tool or a run.
    pub(crate) fn about(&self, object: impl fmt::Display) {
        // No code panics while it holds the lock.
        *self.object.lock().unwrap_or_else(PoisonError::into_inner) = Some(object.to_string());
    }

    fn object(&self) -> Option<String> {
        self.object.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Carries out use cases.
#[derive(Clone, Debug)]
pub(crate) struct UseCases {
    pub(crate) tasks: Tasks,
    pub(crate) journal: Journal,
}

impl UseCases {
    /// Authorises the caller, carries out the use case in a task that goes on if the caller goes away, and writes one
    /// record of it.
    pub(crate) async fn run<T, F>(
        &self,
        caller: &Principal,
        action: Action,
        use_case: impl FnOnce(Record) -> F,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Problem>> + Send + 'static,
    {
        let record = Record::default();
        if !right_for(action).is_some_and(|right| caller.may(right)) {
            let refused = Err(Problem::new(
                ErrorCode::Forbidden,
                "this key may not use tools; use a key of the role user",
            ));
            self.write(caller, action, &record, &refused);
            return refused;
        }
        let work = use_case(record.clone());
        let (done, outcome) = oneshot::channel();
        let (this, caller) = (self.clone(), caller.clone());
        self.tasks.start("use case", async move {
            let result = work.await;
            this.write(&caller, action, &record, &result);
            // A caller that has gone away needs no answer.
            let _ = done.send(result);
        });
        outcome.await.unwrap_or_else(|_ended| Err(Problem::internal()))
    }

    fn write<T>(
        &self,
        caller: &Principal,
        action: Action,
        record: &Record,
        result: &Result<T, Problem>,
    ) {
        let (outcome, reason) = match result {
            Ok(_) => (Outcome::Granted, None),
            Err(problem) if problem.code.http_status() < 500 => {
                (Outcome::Denied, Some(problem.code))
            }
            Err(problem) => (Outcome::Failed, Some(problem.code)),
        };
        let entry = Entry {
            request: caller.request.clone(),
            actor: Some(caller.actor.clone()),
            key: caller.key.clone(),
            tenant: Some(caller.tenant.to_string()),
            object: record.object(),
            reason: reason.map(|code| code.wire_name().to_owned()),
            ..Entry::new(self.journal.now(), action, outcome)
        };
        (self.journal.write)(entry);
    }
}
