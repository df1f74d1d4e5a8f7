//! Executions: submitted by a client, queued, run in a slot, told as a stream of events.

use model::{
    admission::Overloaded,
    execution::{Execution, Outcome, Stream},
};
use tokio::sync::mpsc;

use crate::Engine;

/// One connection's account with the engine. Executions go on when it is dropped; whoever holds
/// their [`Submitted`] ends them.
#[derive(Debug)]
pub struct Client {
    _engine: Engine,
}

/// An accepted execution: its events in order, and the way to cancel it.
/// Dropping it cancels the execution.
#[derive(Debug)]
pub struct Submitted {
    pub events: mpsc::Receiver<Event>,
    pub canceller: Canceller,
}

/// Cancels one execution, from anywhere. Cancelling twice, or after the end, does nothing.
#[derive(Clone, Debug)]
pub struct Canceller {
    reason: mpsc::Sender<model::execution::StopReason>,
}

impl Canceller {
    /// Ends the execution for this reason, unless it has ended for another already.
    pub fn cancel(&self, reason: model::execution::StopReason) {
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
    pub(crate) fn new(engine: Engine) -> Self {
        Self { _engine: engine }
    }

    /// Accepts an execution into the queue, or refuses it at once when there is no room.
    pub fn submit(&self, _execution: Execution) -> Result<Submitted, Overloaded> {
        Err(Overloaded::Server(0))
    }
}
