//! One connection: reads frames, submits executions, tells their events.
//!
//! One task does it all. It takes no more events while the peer does not read what was told
//! already; the engine then stops reading the program's pipes, and the program waits.

use std::{pin::pin, sync::Arc, time::Duration};

use api::{
    errors::ErrorCode,
    fathom::{Cancel, ClientFrame, Execute, Ping, parse},
};
use engine::executions::Event;
use futures_util::{StreamExt as _, stream::SelectAll};
use model::execution::StopReason;
use tokio::{
    select,
    sync::watch,
    task::yield_now,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tokio_tungstenite::tungstenite::Message;

use super::{
    book::{self, Book, Events},
    end::End,
    health::Health,
    limits::{Rate, Strikes},
    socket::{Socket, Step, Stream},
    telling,
};
use crate::{
    auth::Caller,
    clock,
    executor::{Account, Executor},
    metrics::{Metrics, count_refusal},
    serve::{Phase, Settings},
};

/// After the drain time, executions have this long to be told as ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Skew that is not worth telling.
const SMALL_SKEW_MS: u64 = 1000;

/// What a connection is given.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) caller: Caller,
    pub(crate) executor: Executor,
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) phase: watch::Receiver<Phase>,
}

/// Serves one peer until it goes, or is sent away, and its executions have ended.
pub(crate) async fn run(stream: Stream, given: Given) {
    let now = Instant::now();
    let mut connection = Connection {
        account: given.executor.account(&given.caller),
        revoked: given.caller.revoked(),
        caller: given.caller.clone(),
        executor: given.executor,
        settings: given.settings,
        metrics: given.metrics,
        phase: given.phase,
        book: Book::default(),
        events: SelectAll::new(),
        strikes: Strikes::default(),
        rate: Rate::new(now),
        health: Health::new(now),
    };
    let mut socket = Socket::new(stream).await;
    let end = connection.converse(&mut socket).await;
    tracing::debug!(key = %given.caller.key_id(), ?end, "connection ends");
    tokio::join!(end.tell(socket), connection.linger(end));
}

struct Connection {
    caller: Caller,
    executor: Executor,
    account: Account,
    settings: Arc<Settings>,
    metrics: Arc<Metrics>,
    phase: watch::Receiver<Phase>,
    revoked: watch::Receiver<bool>,
    book: Book,
    events: SelectAll<Events>,
    strikes: Strikes,
    rate: Rate,
    health: Health,
}

/// The key does not hold any more, nor does what was begun with it.
const REVOKED: End = End::Closed(4401, "the key was revoked");

impl Connection {
    async fn converse(&mut self, socket: &mut Socket) -> End {
        let mut tick = interval(self.settings.timing.tick);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut revoked = pin!(until(self.revoked.clone(), |revoked| *revoked));
        let mut draining = pin!(until(self.phase.clone(), |phase| *phase != Phase::Serving));
        let mut closing = pin!(until(self.phase.clone(), |phase| *phase == Phase::Closing));
        let mut silence = pin!(sleep(Duration::MAX));
        let (mut is_draining, mut is_closing) = (false, false);
        loop {
            if is_draining && self.book.is_empty() {
                return End::Closed(1012, "restarting");
            }
            select! {
                biased;
                () = &mut revoked => return REVOKED,
                () = &mut draining, if !is_draining => is_draining = true,
                () = &mut closing, if !is_closing => {
                    is_closing = true;
                    self.book.stop_all(StopReason::ShuttingDown);
                    silence.as_mut().reset(Instant::now() + LAST_WORDS);
                }
                () = &mut silence, if is_closing => return End::Closed(1012, "restarting"),
                Some((id, event)) = self.events.next(), if socket.has_room() => {
                    self.tell(&id, &event, socket);
                }
                step = socket.step() => {
                    let heard = match step {
                        Step::Message(message) => {
                            let heard = self.hear(message, socket);
                            // What was submitted may start at once; then one write tells both.
                            yield_now().await;
                            heard
                        }
                        Step::Flushed => Ok(()),
                        Step::Gone(gone) => Err(gone.into()),
                    };
                    if let Err(end) = heard {
                        return end;
                    }
                }
                _ = tick.tick() => {
                    if let Err(reason) = self.health.check(&self.settings.timing, socket) {
                        return End::Closed(4408, reason);
                    }
                }
            }
        }
    }

    fn tell(&mut self, id: &str, event: &Event, socket: &mut Socket) {
        self.note(id, event);
        self.book.tell(id, &clock::stamp(), event, &mut |frame| socket.queue(frame));
    }

    fn note(&self, id: &str, event: &Event) {
        self.metrics.event(event);
        match event {
            Event::Ended(outcome) => tracing::debug!(id, status = ?outcome.status, "ended"),
            Event::Broken { message } => tracing::error!(id, cause = message, "an execution broke"),
            Event::Started | Event::Output { .. } => {}
        }
    }

    /// Acts upon one message. An error is why the connection ends.
    fn hear(&mut self, message: Message, socket: &mut Socket) -> Result<(), End> {
        match message {
            Message::Text(text) => match parse::parse(&text) {
                Ok(frame) => {
                    self.strikes.clear();
                    self.act(frame, socket)
                }
                Err(refused) => self.refuse(&refused, socket),
            },
            Message::Binary(_) => Err(End::Closed(1003, "text frames only")),
            Message::Ping(_) => self.spend(),
            Message::Close(_) => Err(End::Peer),
            Message::Pong(_) | Message::Frame(_) => Ok(()),
        }
    }

    fn refuse(&mut self, refused: &parse::Refused, socket: &mut Socket) -> Result<(), End> {
        Self::error(refused.id.as_deref(), refused.code, &refused.message, socket);
        if self.strikes.are_out(refused.part) {
            return Err(End::Closed(4400, "three invalid frames in a row"));
        }
        self.spend()
    }

    /// Takes from what a client may send without purpose.
    fn spend(&mut self) -> Result<(), End> {
        if self.rate.is_exceeded(Instant::now()) {
            return Err(End::Closed(4429, "too many pings or invalid frames"));
        }
        Ok(())
    }

    fn act(&mut self, frame: ClientFrame, socket: &mut Socket) -> Result<(), End> {
        match frame {
            ClientFrame::Execute(execute) => {
                let id = execute.id.clone();
                if let Err((code, message)) = self.execute(execute, socket) {
                    Self::error(Some(&id), code, &message, socket);
                }
                Ok(())
            }
            ClientFrame::Cancel(Cancel { id, .. }) => {
                if self.book.cancel(&id) {
                    return Ok(());
                }
                let message = "no execution of this id is running on this connection";
                Self::error(Some(&id), ErrorCode::UnknownExecution, message, socket);
                self.spend()
            }
            ClientFrame::Ping(Ping { .. }) => {
                socket.queue(telling::pong(&clock::stamp(), self.executor.load()));
                self.spend()
            }
        }
    }

    fn execute(
        &mut self,
        execute: Execute,
        socket: &mut Socket,
    ) -> Result<(), (ErrorCode, String)> {
        let bytes = book::weight(&execute);
        self.book
            .check(&execute.id, bytes)
            .map_err(|(code, message)| (code, message.to_owned()))?;
        let id: Arc<str> = execute.id.as_str().into();
        let posture = execute.posture.then(|| self.executor.posture()).flatten();
        let now = clock::now();
        let skew =
            clock::skew_ms(&execute.ts, now).filter(|skew| skew.unsigned_abs() > SMALL_SKEW_MS);
        let phase = *self.phase.borrow();
        let (running, place) = self.executor.admit(&self.account, &self.caller, phase, execute)?;
        let grace = u64::try_from(self.settings.grace.as_millis()).unwrap_or(u64::MAX);
        socket.queue(telling::ack(&id, &clock::text(now), grace, skew));
        self.metrics.accepted();
        let telling = telling::Telling::new(self.executor.memory_limit(), posture);
        self.book.open(Arc::clone(&id), bytes, running.stop, telling);
        self.events.push(Events::new(id, running.events).with_place(place));
        Ok(())
    }

    fn error(id: Option<&str>, code: ErrorCode, message: &str, socket: &mut Socket) {
        count_refusal(code);
        socket.queue(telling::error(id, &clock::stamp(), code, message));
    }

    /// Lets executions go on for the grace period without their client, then ends them.
    async fn linger(&mut self, end: End) {
        let grace = if end == REVOKED { Duration::ZERO } else { self.settings.grace };
        let mut over = pin!(sleep(grace));
        let mut closing = pin!(until(self.phase.clone(), |phase| *phase == Phase::Closing));
        let mut is_over = false;
        while !self.book.is_empty() {
            select! {
                biased;
                Some((id, event)) = self.events.next() => {
                    self.note(&id, &event);
                    self.book.tell(&id, "", &event, &mut drop);
                }
                () = &mut over, if !is_over => {
                    is_over = true;
                    tracing::info!(executions = self.book.len(), "ending what lost its client");
                    self.book.stop_all(StopReason::ClientGone);
                }
                () = &mut closing, if !is_over => {
                    is_over = true;
                    self.book.stop_all(StopReason::ShuttingDown);
                }
            }
        }
    }
}

/// Waits for a value that will do. If nobody is left to send one, it is never there.
pub(crate) async fn until<T>(mut receiver: watch::Receiver<T>, will_do: impl FnMut(&T) -> bool) {
    if receiver.wait_for(will_do).await.is_err() {
        std::future::pending::<()>().await;
    }
}
