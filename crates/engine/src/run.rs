//! One execution from its turn in the queue to its last event.

mod collect;
mod output;

use std::{
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use isolate::{
    cgroup::handles::Handles,
    slot::request,
    wire::{Command, Report, Seen},
};
use model::{
    execution::{Execution, Exit, Facts, Outcome, StopReason, Stream, Usage},
    limits::Limits,
    units::ByteSize,
};
use tokio::{io::AsyncWriteExt as _, net::unix::pipe, sync::mpsc};

use crate::{
    Engine, EngineError,
    executions::Event,
    queue::Place,
    slots::{self, Ends, InLine, Slot},
    spawner::Control,
};
pub(crate) use collect::Collection;
use output::{Budget, LastWords};

/// How long init may take to end a slot before the spawner is asked to.
const KILL_PATIENCE: Duration = Duration::from_secs(1);

/// The same for a slot whose files are collected: they are lost with its init.
const KILL_PATIENCE_WITH_FILES: Duration = Duration::from_secs(5);

/// How much later than the daemon's own clock init ends a program: only if the daemon hangs.
const BACKSTOP: Duration = Duration::from_millis(250);

/// The reason to stop, once there is one.
#[derive(Debug)]
pub(crate) struct Stop {
    reasons: mpsc::Receiver<StopReason>,
}

impl Stop {
    pub(crate) fn new(reasons: mpsc::Receiver<StopReason>) -> Self {
        Self { reasons }
    }

    /// Returns when there is a reason: one that was given, or that nobody listens any more.
    async fn reason(&mut self, events: &mpsc::Sender<Event>) -> StopReason {
        tokio::select! {
            Some(reason) = self.reasons.recv() => reason,
            () = events.closed() => StopReason::ClientGone,
        }
    }
}

/// How long the end of an execution waits for the connection to take the last event.
const TOLD_WITHIN: Duration = Duration::from_millis(5);

/// What an execution has while it waits for its turn and then for a slot.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) tenant: Arc<str>,
    pub(crate) place: Place,
    pub(crate) in_line: Option<InLine>,
    /// What to collect at the end, if anything.
    pub(crate) collection: Option<Collection>,
}

/// Waits for its turn, runs the code and tells everything through `events`.
pub(crate) async fn execution(
    engine: &Engine,
    execution: Execution,
    Waiting { tenant, mut place, in_line, collection }: Waiting,
    events: mpsc::Sender<Event>,
    mut stop: Stop,
) {
    let slot = tokio::select! {
        slot = slot_in_turn(engine, &tenant, &execution, &mut place, in_line.as_ref()) => slot,
        reason = stop.reason(&events) => {
            let pool = in_line.map(InLine::leave);
            drop(place);
            send(&events, Event::Ended(never_started(reason))).await;
            return slots::has_ended(pool.as_ref());
        }
    };
    let pool = in_line.map(InLine::leave);
    let last = match slot {
        Ok(slot) => run(engine, slot, execution, collection, &events, stop).await,
        Err(error) => Err(error),
    };
    // The place is free before the client hears of the end: its next request finds room.
    drop(place);
    let remains = match last {
        Ok((outcome, remains)) => {
            send(&events, Event::Ended(outcome)).await;
            Some(remains)
        }
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "execution broke");
            send(&events, Event::Broken { message: error.to_string() }).await;
            None
        }
    };
    // Taking the slot down and making the next one occupies both processors, and the kernel does not interrupt it for
    // the client, which would get the last frame later.
    let taken = events.reserve_many(events.max_capacity());
    let _ = tokio::time::timeout(TOLD_WITHIN, taken).await;
    drop(remains);
    slots::has_ended(pool.as_ref());
}

async fn send(events: &mpsc::Sender<Event>, event: Event) {
    // Nobody listens any more: the execution has been ended for that reason.
    let _ = events.send(event).await;
}

async fn slot_in_turn(
    engine: &Engine,
    tenant: &str,
    execution: &Execution,
    place: &mut Place,
    in_line: Option<&InLine>,
) -> Result<Slot, EngineError> {
    place.turn().await;
    let language = engine.language(&execution.language).ok_or(EngineError::UnknownLanguage)?;
    engine.inner.slots.obtain(tenant, language, execution, in_line).await
}

fn never_started(reason: StopReason) -> Outcome {
    let facts = Facts { stopped_for: Some(reason), oom_kills: 0, exit: None };
    Outcome {
        status: facts.status(),
        exit: None,
        stopped_for: Some(reason),
        duration: Duration::ZERO,
        usage: Usage::default(),
        output_bytes: 0,
        truncated: false,
    }
}

async fn run(
    engine: &Engine,
    slot: Slot,
    execution: Execution,
    collection: Option<Collection>,
    events: &mpsc::Sender<Event>,
    mut stop: Stop,
) -> Result<(Outcome, Remains), EngineError> {
    let limits = execution.limits;
    slot.limit(&limits)?;
    let Slot { number, control, ends, cgroup } = slot;
    let Ends { stdin, stdout, stderr, code } = ends;
    let stdout = pipe::Receiver::from_owned_fd(stdout).map_err(cannot("read stdout"))?;
    let stderr = pipe::Receiver::from_owned_fd(stderr).map_err(cannot("read stderr"))?;

    send(events, Event::Started).await;
    let mut watch = Watch::start(control, cgroup, &limits, collection.as_ref())?;
    let env = execution.env.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let code = feed(code, request(env, execution.code.as_bytes()));
    let stdin = feed(stdin, execution.stdin);
    let mut feeding = std::pin::pin!(async { tokio::join!(code, stdin) });
    let budget = Budget::new(limits.max_output.as_bytes());
    let last_words = LastWords::default();
    let mut pumping = std::pin::pin!(async {
        tokio::join!(
            output::pump(Stream::Stdout, stdout, &budget, events, &last_words),
            output::pump(Stream::Stderr, stderr, &budget, events, &last_words),
        )
    });
    let (mut is_fed, mut is_pumped) = (false, false);
    let report = loop {
        let is_running = watch.stopped_for.is_none();
        tokio::select! {
            report = watch.control.receive() => break report,
            _ = &mut feeding, if !is_fed => is_fed = true,
            _ = &mut pumping, if !is_pumped => is_pumped = true,
            () = budget.is_spent(), if is_running => watch.stop(StopReason::OutputLimit)?,
            reason = stop.reason(events), if is_running => watch.stop(reason)?,
            () = tokio::time::sleep_until(watch.until) => {
                if is_running {
                    watch.stop(StopReason::Deadline)?;
                } else {
                    watch.until += watch.patience;
                    engine.inner.slots.destroy(number).await?;
                }
            }
        }
    };
    if let Ok(Report::Exited { all_gone: false, .. }) = report {
        last_words.are_written();
    }
    let (end, remains) = watch.end(report)?;
    if let Some(collection) = collection {
        let is_told = end.exit.is_some();
        let received = collection.receive(is_told.then_some(&remains.control)).await;
        if received.is_err() {
            engine.inner.slots.destroy(number).await?;
        }
    }
    if !is_pumped {
        pumping.await;
    }
    Ok((end.outcome(&budget), remains))
}

/// What is left of a slot when its program has ended. Dropping it lets init go.
struct Remains {
    control: Control,
    _cgroup: Handles,
}

/// A running program: what may end it, and how it is ended.
struct Watch {
    control: Control,
    cgroup: Handles,
    started: Instant,
    /// What the slot had used before its request: the start of the runtime and its warm-up.
    cpu_before: Duration,
    stopped_for: Option<StopReason>,
    /// How long init may take to end the slot.
    patience: Duration,
    /// The deadline; once stopped, when to ask for more force.
    until: tokio::time::Instant,
}

/// What is known when the last process of a slot is gone.
struct End {
    exit: Option<Exit>,
    stopped_for: Option<StopReason>,
    duration: Duration,
    usage: isolate::plan::Usage,
}

impl Watch {
    fn start(
        control: Control,
        cgroup: Handles,
        limits: &Limits,
        collection: Option<&Collection>,
    ) -> Result<Self, EngineError> {
        let watch_memory = cgroup.is_empty().then_some(limits.memory.as_bytes());
        let cpu_before = cgroup.cpu_time().map_err(cannot("read the usage"))?;
        let at_most = limits.timeout + BACKSTOP;
        let (collect, patience) = match collection {
            Some(collection) => (Some(collection.collect.clone()), KILL_PATIENCE_WITH_FILES),
            None => (None, KILL_PATIENCE),
        };
        control.send(&Command::Go { at_most, watch_memory, collect })?;
        let started = Instant::now();
        let until = tokio::time::Instant::from_std(started) + limits.timeout;
        Ok(Self { control, cgroup, started, cpu_before, stopped_for: None, patience, until })
    }

    /// Has everything in the slot killed. The first reason is the one that counts.
    fn stop(&mut self, reason: StopReason) -> Result<(), EngineError> {
        self.stopped_for.get_or_insert(reason);
        self.until = tokio::time::Instant::now() + self.patience;
        // Either alone would do: the first is quicker, the second needs no support of the kernel.
        let _ = self.cgroup.kill();
        self.control.send(&Command::Kill)
    }

    /// Reads what can be known only while init is still there.
    fn end(self, report: Result<Report, EngineError>) -> Result<(End, Remains), EngineError> {
        let duration = self.started.elapsed();
        let (exit, seen) = match report {
            Ok(Report::Exited { exit, seen, .. }) => (Some(from_slot(exit)), seen),
            // The spawner had to end the whole slot, init with it.
            Err(EngineError::InitGone) if self.stopped_for.is_some() => (None, Seen::default()),
            Ok(Report::Broken(broken)) => return Err(broken.into()),
            Ok(Report::Ready | Report::NoPath(_)) => return Err(EngineError::InitGone),
            Err(error) => return Err(error),
        };
        let counted = self.cgroup.usage().map_err(cannot("read the usage"))?;
        let usage = isolate::plan::Usage {
            peak_memory: counted.peak_memory.max(seen.peak_memory),
            cpu_time: if self.cgroup.is_empty() {
                seen.cpu_time
            } else {
                counted.cpu_time.saturating_sub(self.cpu_before)
            },
            oom_kills: counted.oom_kills.max(seen.memory_ran_out.into()),
        };
        let end = End { exit, stopped_for: self.stopped_for, duration, usage };
        Ok((end, Remains { control: self.control, _cgroup: self.cgroup }))
    }
}

impl End {
    fn outcome(self, budget: &Budget) -> Outcome {
        let over = budget.was_passed().then_some(StopReason::OutputLimit);
        let stopped_for = self.stopped_for.or(over);
        let facts = Facts { stopped_for, oom_kills: self.usage.oom_kills, exit: self.exit };
        Outcome {
            status: facts.status(),
            exit: self.exit,
            stopped_for,
            duration: self.duration,
            usage: Usage {
                peak_memory: ByteSize::bytes(self.usage.peak_memory),
                cpu_time: self.usage.cpu_time,
            },
            output_bytes: budget.used(),
            truncated: budget.was_passed(),
        }
    }
}

fn from_slot(exit: isolate::plan::Exit) -> Exit {
    match exit {
        isolate::plan::Exit::Code(code) => Exit::Code(code),
        isolate::plan::Exit::Signal(signal) => Exit::Signal(signal),
    }
}

fn cannot<E: Into<std::io::Error>>(doing: &'static str) -> impl Fn(E) -> EngineError {
    move |error| EngineError::System { doing, source: error.into() }
}

/// Writes all of it and closes the pipe. A program that does not read it is not our concern.
async fn feed(pipe: OwnedFd, bytes: Vec<u8>) {
    // Nearly always it fits the pipe, and then there is nothing to wait for.
    let written = match rustix::io::write(&pipe, &bytes) {
        Ok(written) => written,
        Err(rustix::io::Errno::AGAIN) => 0,
        Err(_) => return,
    };
    let rest = bytes.get(written..).unwrap_or_default();
    if !rest.is_empty()
        && let Ok(mut pipe) = pipe::Sender::from_owned_fd(pipe)
    {
        let _ = pipe.write_all(rest).await;
    }
}
