//! Commands as those see them who watch: what they write, from any byte on, and how they end.
//!
//! Output is read from the files that the supervisor writes, so that it does not matter who watched
//! before, or whether this server was there.

mod input;
pub(super) mod minding;
mod output;

use std::{sync::Arc, time::Duration};

use isolate::supervisor::wire::{Ask as Say, Whom};
use model::{
    exec::{Exec, ExecEnd, ExecState},
    ids::{ExecId, SandboxId, Tenant},
    outputs::is_readable,
    sandbox::{Request, WhenStopped},
    spec::{ExecSpec, OnFull},
};
use tokio::sync::{oneshot, watch};

use super::{
    SandboxError, Sandboxes, Shared, actor::Ask, clock, feeds::Feed, outputs::Hold, random,
};
pub use input::{InputError, InputPipe};
pub use output::{Output, Part};

/// One of the two that a command writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Stdout => 0,
            Self::Stderr => 1,
        }
    }
}

/// How much of a stream there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The first byte that is still kept.
    pub start: u64,
    /// One past the last byte that was kept.
    pub end: u64,
    /// Bytes after that which could not be kept.
    pub lost: u64,
}

/// What a command and those that it waited for have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu_time: Duration,
    /// Of the largest of them, in bytes.
    pub peak_memory: u64,
}

/// How far a command has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Inside the sandbox. None before it has started, and long after it.
    pub pid: Option<u32>,
    pub extents: [Extent; 2],
    pub usage: Usage,
    /// Once it is in the store.
    pub end: Option<ExecEnd>,
    /// Whether what it has written was removed after its end.
    pub is_cleared: bool,
}

/// A command that is being watched. Whoever drops this watches it no more.
#[derive(Debug)]
pub struct Attached {
    shared: Arc<Shared>,
    exec: Exec,
    flow: watch::Receiver<Flow>,
    /// None of one that was over before.
    seat: Option<Seat>,
    /// What it has written is not removed to make room meanwhile.
    _hold: Hold,
}

/// A place among those who watch.
#[derive(Debug)]
struct Seat {
    feed: Arc<Feed>,
    number: u64,
}

impl Seat {
    fn take(feed: Arc<Feed>) -> Self {
        let number = feed.attend();
        Self { feed, number }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.feed.leave(self.number);
    }
}

/// Says whether an exec was asked for with this. The variables of one that has ended are not kept, and not compared.
fn is_of(exec: &Exec, mut asked: ExecSpec) -> bool {
    if exec.life.state.is_terminal() {
        asked.env.clone_from(&exec.spec.env);
    }
    exec.spec == asked
}

impl Sandboxes {
    /// Starts a command and watches it. One of this id that is there already is watched instead, if it
    /// is the same command; it is never run twice.
    pub async fn run(
        &self,
        tenant: &Tenant,
        sandbox: &SandboxId,
        exec: Option<ExecId>,
        spec: ExecSpec,
        when_stopped: WhenStopped,
    ) -> Result<Attached, SandboxError> {
        let exec = match exec {
            Some(exec) => exec,
            None => ExecId::from_random(random()?),
        };
        match self.begin(tenant, sandbox, &exec, spec.clone(), when_stopped).await {
            Ok(Some(attached)) => Ok(attached),
            Ok(None) | Err(SandboxError::ExecExists) => {
                let attached = self.attach(tenant, sandbox, &exec).await?;
                if is_of(&attached.exec, spec) {
                    Ok(attached)
                } else {
                    Err(SandboxError::ExecExists)
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Starts a command and watches it. Nothing if it is so already.
    pub(super) async fn begin(
        &self,
        tenant: &Tenant,
        sandbox: &SandboxId,
        exec: &ExecId,
        spec: ExecSpec,
        when_stopped: WhenStopped,
    ) -> Result<Option<Attached>, SandboxError> {
        // Before it is asked for, so that it is never taken for one that nobody watches.
        let seat = self.shared.feeds(sandbox, tenant).map(|feeds| Seat::take(feeds.open(exec)));
        let request = Request::StartExec { exec: exec.clone(), spec, when_stopped };
        let recorded = self.shared.request(sandbox, request).await;
        let started = recorded.map(|recorded| recorded.and_then(|it| it.started().cloned()));
        match (started, seat) {
            (Ok(Some(exec)), Some(seat)) => Ok(Some(Attached::to(&self.shared, exec, seat))),
            (Ok(Some(exec)), None) => self.attach_any(tenant, sandbox, &exec.id).await.map(Some),
            (not_started, seat) => {
                drop(seat);
                self.shared.forget_unreal(tenant, sandbox, exec);
                not_started.map(|_nothing| None)
            }
        }
    }

    /// Watches a command that was started before, running or not. A shell is none: whoever may run
    /// commands may not for that reason look over the shoulder of somebody, nor type for him.
    pub async fn attach(
        &self,
        tenant: &Tenant,
        sandbox: &SandboxId,
        exec: &ExecId,
    ) -> Result<Attached, SandboxError> {
        let attached = self.attach_any(tenant, sandbox, exec).await?;
        match attached.exec.spec.shell {
            None => Ok(attached),
            Some(_) => Err(SandboxError::ExecNotFound),
        }
    }

    /// Watches a command or a shell that was started before.
    pub(super) async fn attach_any(
        &self,
        tenant: &Tenant,
        sandbox: &SandboxId,
        exec: &ExecId,
    ) -> Result<Attached, SandboxError> {
        let shared = &self.shared;
        // Before the store is asked, so that no end falls between the two.
        let seat = shared.feeds(sandbox, tenant).map(|feeds| Seat::take(feeds.open(exec)));
        let found = self.exec(tenant, exec).await;
        let found = found.map(|found| found.exec).and_then(|found| {
            let is_there = found.sandbox == *sandbox && is_readable(&found, clock::now());
            if is_there { Ok(found) } else { Err(SandboxError::ExecNotFound) }
        });
        let is_running = found.as_ref().is_ok_and(|found| !found.life.state.is_terminal());
        if is_running && let (Ok(exec), Some(seat)) = (&found, seat) {
            return Ok(Attached::to(shared, exec.clone(), seat));
        }
        shared.forget_unreal(tenant, sandbox, exec);
        Ok(Attached::after(shared, found?).await)
    }
}

impl Shared {
    /// Opens the stdin of a command.
    pub(super) async fn open_input(&self, exec: &Exec) -> Result<InputPipe, SandboxError> {
        let (answer, input) = oneshot::channel();
        let ask = Ask::Input { exec: exec.id.clone(), answer };
        self.send(&exec.sandbox, ask).await?;
        let input = input.await.map_err(|_gone| SandboxError::ExecEnded)?;
        InputPipe::new(input.ok_or(SandboxError::ExecEnded)?)
    }

    fn forget_unreal(&self, tenant: &Tenant, sandbox: &SandboxId, exec: &ExecId) {
        if let Some(feeds) = self.feeds(sandbox, tenant) {
            feeds.forget_unreal(exec);
        }
    }
}

impl Attached {
    fn to(shared: &Arc<Shared>, exec: Exec, seat: Seat) -> Self {
        minding::begin(shared, &exec, &seat.feed);
        let (flow, hold) = (seat.feed.flow.subscribe(), shared.outputs.hold(&exec.id));
        Self { shared: Arc::clone(shared), exec, flow, seat: Some(seat), _hold: hold }
    }

    /// Watches a command that is over, or whose sandbox has no task here.
    async fn after(shared: &Arc<Shared>, exec: Exec) -> Self {
        let end = match &exec.life.state {
            ExecState::Ended(end) => Some(end.clone()),
            ExecState::Running => None,
        };
        // Before it is looked for: what is there stays.
        let hold = shared.outputs.hold(&exec.id);
        let (extents, is_cleared) = output::extents(shared, &exec).await;
        let (_, flow) = watch::channel(Flow { extents, end, is_cleared, ..Flow::default() });
        Self { shared: Arc::clone(shared), exec, flow, seat: None, _hold: hold }
    }

    pub fn id(&self) -> &ExecId {
        &self.exec.id
    }

    pub fn exec(&self) -> &Exec {
        &self.exec
    }

    /// Returns how far it has come.
    pub fn flow(&self) -> Flow {
        self.flow.borrow().clone()
    }

    /// Waits until it has a process, or is over, and returns its number inside the sandbox.
    pub async fn started(&mut self) -> Option<u32> {
        let started = self.flow.wait_for(|flow| flow.pid.is_some() || flow.end.is_some()).await;
        started.ok().and_then(|flow| flow.pid)
    }

    /// Waits until its end is in the store. Nothing if this server is not told of it any more.
    pub async fn ended(&mut self) -> Option<(ExecEnd, Usage)> {
        let ended = self.flow.wait_for(|flow| flow.end.is_some()).await.ok()?;
        ended.end.clone().map(|end| (end, ended.usage))
    }

    /// Reads one of its streams from a byte on.
    pub fn output(&self, stream: Stream, from: u64, on_full: OnFull) -> Output {
        let seat = match on_full {
            OnFull::Wait => self.seat.as_ref().map(|seat| (Arc::clone(&seat.feed), seat.number)),
            OnFull::Drop => None,
        };
        Output::new(&self.shared, &self.exec, stream, from, self.flow.clone(), seat)
    }

    /// Returns what is told of it while it runs.
    pub(super) fn feed(&self) -> Option<&Arc<Feed>> {
        self.seat.as_ref().map(|seat| &seat.feed)
    }

    /// Opens its stdin.
    pub async fn input(&self) -> Result<InputPipe, SandboxError> {
        self.shared.open_input(&self.exec).await
    }

    /// Nobody writes to its stdin any more.
    pub async fn close_input(&self) -> Result<(), SandboxError> {
        self.say(Say::CloseInput { exec: self.exec.id.to_string() }).await
    }

    /// Signals its process group.
    pub async fn signal(&self, signal: i32) -> Result<(), SandboxError> {
        let exec = self.exec.id.to_string();
        self.say(Say::Signal { exec, signal, whom: Whom::Group }).await
    }

    /// Ends it and everything that it has started.
    pub async fn cancel(&self) -> Result<(), SandboxError> {
        let request = Request::CancelExec(self.exec.id.clone());
        self.shared.request(&self.exec.sandbox, request).await.map(drop)
    }

    async fn say(&self, say: Say) -> Result<(), SandboxError> {
        self.shared.send(&self.exec.sandbox, Ask::Say(say)).await
    }
}
