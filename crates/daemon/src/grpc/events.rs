//! Following a sandbox: how it stands, what happened, what happens.

use std::{collections::VecDeque, pin::Pin};

use api::{agbox::v1, errors::agbox::Reason};
use engine::sandboxes::{EventStream, News, SandboxError, Sandboxes};
use futures_util::{Stream, stream};
use model::{event::Sequence, ids::Tenant, sandbox::Sandbox};
use tokio::{
    select,
    sync::watch,
    time::{Instant, sleep_until},
};
use tonic::Status;

use super::{
    errors::{About, of_sandbox, status},
    progress::{self, Place},
    to_wire::{self, Told},
};
use crate::{clock, serve::Phase};

/// Events as they are sent.
pub(crate) type Events = Pin<Box<dyn Stream<Item = Result<v1::SandboxEvent, Status>> + Send>>;

/// What ends a stream that has no end of its own.
pub(crate) struct Until {
    pub(crate) deadline: Option<Instant>,
    pub(crate) revoked: Option<watch::Receiver<bool>>,
    pub(crate) phase: watch::Receiver<Phase>,
}

/// Follows a sandbox: how it stands, if that is asked for, then every event after the one that is
/// named, then those to come.
pub(crate) async fn follow(
    sandboxes: &Sandboxes,
    tenant: &Tenant,
    sandbox: &Sandbox,
    request: &v1::SubscribeSandboxEventsRequest,
    until: Until,
) -> Result<Events, SandboxError> {
    let id = sandbox.id.as_str();
    let events = sandboxes.events(tenant, id, Sequence(request.from_sequence)).await?;
    let first = if request.include_current_snapshot {
        snapshot(sandboxes, tenant, sandbox).await?
    } else {
        VecDeque::new()
    };
    let name = to_wire::sandbox_id(sandbox);
    let (known, last) = (sandbox.life.sequence, Sequence(request.from_sequence));
    let follower = Follower { first, events, name, known, last, notices: 0, until };
    Ok(Box::pin(stream::unfold(Some(follower), async |follower| {
        let mut follower = follower?;
        match follower.next().await {
            Ok(Some(event)) => Some((Ok(event), Some(follower))),
            Ok(None) => None,
            Err(status) => Some((Err(status), None)),
        }
    })))
}

/// Tells how a sandbox stands: its last event, and each command that runs. Both are of the moment
/// at which its record was read.
async fn snapshot(
    sandboxes: &Sandboxes,
    tenant: &Tenant,
    sandbox: &Sandbox,
) -> Result<VecDeque<v1::SandboxEvent>, SandboxError> {
    let before = Sequence(sandbox.life.sequence.0.saturating_sub(1));
    let mut events = sandboxes.events(tenant, sandbox.id.as_str(), before).await?;
    let last = events.next_known().await?.map(|last| {
        let name = to_wire::sandbox_id(sandbox);
        v1::SandboxEvent { snapshot: true, ..to_wire::event(&last, &name, Told::Before) }
    });
    let running = sandbox.life.running.iter();
    let running = running.map(|(exec, since)| to_wire::running(sandbox, exec, *since));
    Ok(last.into_iter().chain(running).collect())
}

struct Follower {
    first: VecDeque<v1::SandboxEvent>,
    events: EventStream,
    name: String,
    /// The last event that had happened when this began.
    known: Sequence,
    /// The last event that was told, or where this began.
    last: Sequence,
    /// How often progress was told.
    notices: u64,
    until: Until,
}

impl Follower {
    async fn next(&mut self) -> Result<Option<v1::SandboxEvent>, Status> {
        if let Some(event) = self.first.pop_front() {
            return Ok(Some(event));
        }
        let news = select! {
            biased;
            ended = self.until.reached() => return Err(ended),
            news = self.events.next_news() => news,
        };
        match news {
            Ok(news) => Ok(news.map(|news| self.show(news))),
            Err(error) => Err(of_sandbox(&error, &self.name, About::Life)),
        }
    }

    fn show(&mut self, news: News) -> v1::SandboxEvent {
        let event = match news {
            News::Event(event) => event,
            News::Progress(told) => {
                let place = Place { after: self.last, number: self.notices };
                self.notices += 1;
                return progress::event(&told, &self.name, place, clock::timestamp());
            }
        };
        self.last = event.sequence;
        let told = if event.sequence <= self.known { Told::Before } else { Told::Live };
        to_wire::event(&event, &self.name, told)
    }
}

impl Until {
    /// Waits for what ends the stream, and says what it is.
    pub(crate) async fn reached(&mut self) -> Status {
        let revoked = async {
            match &mut self.revoked {
                Some(revoked) => drop(revoked.wait_for(|revoked| *revoked).await),
                None => std::future::pending().await,
            }
        };
        let late = async {
            match self.deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        select! {
            () = revoked => status(Reason::Unauthenticated, "the API key was revoked", &[]),
            () = late => {
                let message = "the deadline of the stream is over; go on from the last sequence";
                status(Reason::DeadlineExceeded, message, &[])
            }
            _ = self.phase.wait_for(|phase| *phase != Phase::Serving) => {
                let message = "the server is shutting down; go on from the last sequence";
                status(Reason::Unavailable, message, &[])
            }
        }
    }
}
