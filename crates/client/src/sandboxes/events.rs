//! Following a sandbox, and waiting for what becomes of it. Nothing polls: a state is read again
//! when an event says that something happened. A server that is away for a while is waited for.

use api::agbox::v1;
use tokio::time::Instant;
use tonic::Streaming;

use super::{
    Sandboxes,
    record::{Event, Exec, Sandbox, State},
};
use crate::{
    ClientError,
    away::{Away, Gone, LONG_PAUSE},
};

/// The events of a sandbox after a sequence, then those to come.
#[derive(Debug)]
pub struct Events {
    sandboxes: Sandboxes,
    name: String,
    last: u64,
    stream: Option<Stream>,
    away: Away,
}

#[derive(Debug)]
struct Stream {
    events: Streaming<v1::SandboxEvent>,
    since: Instant,
}

/// What who follows a sandbox is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Event(Box<Event>),
    /// How far something has come. It is told once, to whoever is there, and has no sequence.
    Progress(Box<Event>),
    /// The connection broke after this sequence. Whoever goes on misses nothing.
    Broken {
        after: u64,
    },
}

impl Events {
    pub(super) fn new(sandboxes: Sandboxes, name: &str, from: u64) -> Self {
        Self { sandboxes, name: name.to_owned(), last: from, stream: None, away: Away::default() }
    }

    /// Returns what comes next, or nothing once the server has forgotten the sandbox. After a
    /// broken connection it connects anew, for a minute. May be dropped and called again.
    pub async fn next(&mut self) -> Result<Option<Next>, ClientError> {
        loop {
            let Some(stream) = &mut self.stream else {
                match self.subscribe().await? {
                    Some(Gone::Just) => return Ok(Some(Next::Broken { after: self.last })),
                    Some(Gone::Still) | None => continue,
                }
            };
            match stream.events.message().await {
                Ok(Some(event)) => {
                    self.away = Away::default();
                    let event = Event::from(event);
                    // It has no sequence of its own; servers before this one gave it 0.
                    if event.sequence == 0 || event.phase == "pulling" {
                        return Ok(Some(Next::Progress(Box::new(event))));
                    }
                    // What was told before the connection broke is not told again.
                    if event.sequence > self.last {
                        self.last = event.sequence;
                        return Ok(Some(Next::Event(Box::new(event))));
                    }
                }
                Ok(None) => return Ok(None),
                Err(status) => {
                    // One that breaks at once, again and again, is of a server that is away.
                    if stream.since.elapsed() > LONG_PAUSE {
                        self.away = Away::default();
                    }
                    self.stream = None;
                    if self.away.bear(status.into())? == Gone::Just {
                        return Ok(Some(Next::Broken { after: self.last }));
                    }
                }
            }
        }
    }

    /// Connects. Tells that the server is away, if it is.
    async fn subscribe(&mut self) -> Result<Option<Gone>, ClientError> {
        if self.away.has_begun() {
            self.away.pause().await;
        }
        match self.sandboxes.subscribe(&self.name, self.last).await {
            Ok(events) => {
                self.stream = Some(Stream { events, since: Instant::now() });
                Ok(None)
            }
            Err(error) => self.away.bear(error).map(Some),
        }
    }
}

impl Sandboxes {
    /// Follows a sandbox from after this sequence; 0 is its whole history.
    pub fn events(&self, name: &str, from: u64) -> Events {
        Events::new(self.clone(), name, from)
    }

    /// Waits until a sandbox is where it was told to go, or cannot get there any more: who asks
    /// looks at its state. `saw` is told of everything on the way.
    pub async fn wait(
        &self,
        sandbox: Sandbox,
        goal: State,
        mut saw: impl FnMut(&Next),
    ) -> Result<Sandbox, ClientError> {
        let mut events = self.events(&sandbox.name, sandbox.sequence);
        let mut now = sandbox;
        while now.state != goal && now.state.is_on_the_way_to(goal) {
            let next = events.next().await?;
            if let Some(next) = &next {
                saw(next);
            }
            if matches!(next, Some(Next::Event(_)) | None) {
                let lost = || saw(&Next::Broken { after: now.sequence });
                now = patiently(async || self.get(&now.name).await, lost).await?;
            }
        }
        Ok(now)
    }

    /// Waits until a command has ended.
    pub async fn wait_for_exec(
        &self,
        id: &str,
        mut saw: impl FnMut(&Next),
    ) -> Result<Exec, ClientError> {
        let lost = || saw(&Next::Broken { after: 0 });
        let mut now = patiently(async || self.get_exec(id).await, lost).await?;
        let mut events = self.events(&now.sandbox, now.sequence);
        while !now.state.is_terminal() {
            let next = events.next().await?;
            if let Some(next) = &next {
                saw(next);
            }
            if matches!(next, Some(Next::Event(_)) | None) {
                let lost = || saw(&Next::Broken { after: now.sequence });
                now = patiently(async || self.get_exec(id).await, lost).await?;
            }
        }
        Ok(now)
    }
}

/// Reads, again if the connection breaks, which is told once.
async fn patiently<T>(
    read: impl AsyncFn() -> Result<T, ClientError>,
    mut lost: impl FnMut(),
) -> Result<T, ClientError> {
    let mut away = Away::default();
    loop {
        match read().await {
            Ok(read) => return Ok(read),
            Err(error) => {
                if away.bear(error)? == Gone::Just {
                    lost();
                }
            }
        }
        away.pause().await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tonic::Status;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_broken_connection_is_told_once_and_waited_out() {
        let (attempts, mut told) = (Cell::new(0), 0);
        let read = async || {
            attempts.set(attempts.get() + 1);
            if attempts.get() < 5 { Err(Status::unavailable("").into()) } else { Ok("read") }
        };
        let read = patiently(read, || told += 1).await.unwrap();
        assert_eq!((read, attempts.get(), told), ("read", 5, 1));
    }

    #[tokio::test]
    async fn a_refusal_is_not_waited_for() {
        let refused = || ClientError::Refused { code: "X".to_owned(), message: String::new() };
        let mut told = 0;
        assert!(patiently(async || Err::<(), _>(refused()), || told += 1).await.is_err());
        assert_eq!(told, 0);
    }
}
