//! Executions: submitted by a client, queued, run in a slot, told as a stream of events.

use std::sync::Arc;

use isolate::collect::Collect;
use model::{
    admission::Overloaded,
    execution::{Execution, Outcome, StopReason, Stream},
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    Engine,
    collect::CollectedFiles,
    queue::QueueClient,
    run::{self, Collection, Stop, Waiting},
};

/// How many events of one execution may wait for its client. When they are full the pipe is not
/// read any more, and the program waits in its next write.
const WAITING_EVENTS: usize = 4;

/// One connection's account with the engine.
#[derive(Debug)]
pub struct Client {
    engine: Engine,
    queued_as: QueueClient,
}

/// An accepted execution: its events in order, and the way to cancel it.
/// Dropping it cancels the execution.
#[derive(Debug)]
pub struct Submitted {
    pub events: mpsc::Receiver<Event>,
    pub canceller: Canceller,
}

/// An accepted execution whose files are collected at its end.
#[derive(Debug)]
pub struct CollectedSubmission {
    pub submitted: Submitted,
    /// Has its value before `Ended` is sent, however the program ended. It is closed without a value if the
    /// execution never started or is `Broken`.
    pub files: oneshot::Receiver<CollectedFiles>,
}

/// Cancels one execution, from anywhere. Cancelling twice, or after the end, does nothing.
#[derive(Clone, Debug)]
pub struct Canceller {
    reason: mpsc::Sender<StopReason>,
}

impl Canceller {
    /// Ends the execution for this reason, unless it has ended for another already.
    pub fn cancel(&self, reason: StopReason) {
        // A full channel holds an earlier reason, and the first one wins.
        let _ = self.reason.try_send(reason);
    }
}

/// What happens to an execution, in this order: `Started`, any number of `Output`, then exactly
/// one of `Ended` and `Broken`. One that is cancelled in the queue goes straight to `Ended`.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Started,
    Output {
        stream: Stream,
        data: Vec<u8>,
    },
    Ended(Outcome),
    /// Our own failure: nothing is known of how the code would have ended.
    Broken {
        message: String,
    },
}

impl Client {
    pub(crate) fn new(engine: Engine, tenant: &str) -> Self {
        let queued_as = engine.inner.queue.new_client(tenant);
        Self { engine, queued_as }
    }

    /// Accepts an execution into the queue, or refuses it at once when there is no room.
    pub fn submit(&self, execution: Execution) -> Result<Submitted, Overloaded> {
        self.accept(execution, None)
    }

    /// Does the same for an execution whose files are collected at its end.
    pub fn submit_and_collect(
        &self,
        execution: Execution,
        collect: Collect,
    ) -> Result<CollectedSubmission, Overloaded> {
        let (to, files) = oneshot::channel();
        let submitted = self.accept(execution, Some(Collection { collect, to }))?;
        Ok(CollectedSubmission { submitted, files })
    }

    fn accept(
        &self,
        mut execution: Execution,
        collection: Option<Collection>,
    ) -> Result<Submitted, Overloaded> {
        execution.freshness = execution.freshness.at_least(self.engine.inner.freshness);
        let place = self.engine.inner.queue.line_up(&self.queued_as, execution.size())?;
        let (events_in, events) = mpsc::channel(WAITING_EVENTS);
        let (reason, stop) = mpsc::channel(1);
        let engine = self.engine.clone();
        // Before it is anybody's turn: pools are to see the whole line.
        let in_line = engine.inner.slots.line_up(self.queued_as.tenant(), &execution);
        let tenant = Arc::clone(self.queued_as.tenant());
        self.engine.inner.tasks.start("execution", async move {
            let waiting = Waiting { tenant, place, in_line, collection };
            run::execution(&engine, execution, waiting, events_in, Stop::new(stop)).await;
        });
        Ok(Submitted { events, canceller: Canceller { reason } })
    }
}
