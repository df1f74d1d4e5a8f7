//! The task of one sandbox. It alone changes the sandbox: it answers requests by what `model`
//! decides, keeps what was decided, and only then does it.
//!
//! What there is to do follows from the phase and from whether there is a body, never from how the
//! sandbox got there. So a task that takes over after a crash is the same as one that went on.

mod companions;
mod deadlines;
mod execs;
mod farewell;
mod foreign;
mod freeze;
mod idleness;
mod lives;
mod losses;
mod main_process;
mod moments;
mod ports;
mod requests;
mod retention;
mod retries;
mod watchers;

use std::{
    future::Future,
    os::fd::OwnedFd,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use isolate::{
    failpoint,
    supervisor::wire::{Ask as Say, Tell},
};
use model::{
    adjustment::Adjusted,
    event::Sequence,
    exec::ExecState,
    ids::{Alias, ExecId, SandboxId, Tenant},
    life::{Crash, EndCause, Life, Phase},
    sandbox::{Request, Sandbox},
    spec::{Provider as Name, RunAs},
    transition::{Observation, Transition},
    units::Timestamp,
};
use store::StoreError;
use tokio::{
    select,
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep, sleep_until},
};

use super::{
    SandboxError, Shared, clock,
    companions::News,
    feeds::Feeds,
    link::Link,
    machine::{Found, MachineError},
    materials::{self, Materials},
    provider::Provider,
    way::Way,
};
use crate::images::{ImageError, Progress};
use companions::Beside;
use execs::Execs;
use farewell::Farewell;
use idleness::CpuSample;
use lives::Door;
use main_process::MainProcess;
pub(super) use main_process::NAME as MAIN;
use moments::Moments;
use ports::Ports;
use retries::Retry;
use watchers::Waiter;

/// What somebody says to the task.
#[derive(Debug)]
pub(super) enum Ask {
    Request(Wish),
    /// Asks for the stdin of a command. Nothing if it has none any more.
    Input {
        exec: ExecId,
        answer: oneshot::Sender<Option<OwnedFd>>,
    },
    /// Something for the supervisor that changes nothing of what is kept.
    Say(Say),
    /// Tells whoever follows the sandbox that it ends soon.
    Warn {
        cause: EndCause,
        seconds: u32,
    },
    /// Removes the output of a command that is over.
    ClearOutput(ExecId),
}

/// What somebody wants of the sandbox.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) request: Request,
    /// Until when it waits for a sandbox that is being started or stopped.
    pub(super) until: Instant,
    pub(super) answer: oneshot::Sender<Result<Option<Transition>, SandboxError>>,
}

/// How the others reach the task.
#[derive(Debug)]
pub(super) struct Contact {
    pub(super) tenant: Tenant,
    pub(super) provider: Name,
    pub(super) alias: Option<Alias>,
    /// How its commands are run that do not say it themselves.
    pub(super) run: RunAs,
    pub(super) asks: mpsc::Sender<Ask>,
    pub(super) feeds: Arc<Feeds>,
    /// How far its images have come.
    pub(super) progress: watch::Receiver<Progress>,
    /// What is in the store of its life. Nothing before its task has begun.
    pub(super) life: watch::Receiver<Option<Life>>,
    /// When it was last used, but for files and ports.
    pub(super) used: watch::Receiver<Instant>,
    /// How callers get to its ports.
    pub(super) way: Arc<Way>,
}

/// How long processes have to end by themselves when the sandbox is stopped.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// How long the supervisor may take beyond that.
pub(super) const LAST_WAIT: Duration = Duration::from_secs(5);

/// How long to wait before something is tried again that did not work.
const RETRY: Duration = Duration::from_secs(1);

/// Something slow that is under way. Its end is handled like everything else that happens.
pub(super) type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

/// What slow work came to.
#[derive(Debug)]
pub(super) enum Done {
    Gathered(Result<Materials, ImageError>),
    Made(Result<Link, MachineError>),
    Found(Result<Found, MachineError>),
    /// Every process is gone.
    Ended(Result<(), MachineError>),
    Removed(Result<(), MachineError>),
}

impl Done {
    /// Returns what went wrong with the machine.
    fn error(&self) -> Option<&MachineError> {
        match self {
            // The spawner's end is not an image's.
            Self::Gathered(_) => None,
            Self::Made(done) => done.as_ref().err(),
            Self::Found(done) => done.as_ref().err(),
            Self::Ended(done) | Self::Removed(done) => done.as_ref().err(),
        }
    }
}

/// What the task knows of the sandbox's processes.
#[derive(Debug)]
enum Presence {
    /// A daemon before this one knew.
    Unknown,
    /// There are none, or some that nobody talks to, to be ended.
    Remains,
    None,
    Link(Link),
    /// Some live that this server does not understand.
    Foreign {
        report: String,
    },
}

pub(super) struct Actor {
    shared: Arc<Shared>,
    sandbox: Sandbox,
    door: Door,
    presence: Presence,
    execs: Execs,
    inputs: Vec<Waiter>,
    main: MainProcess,
    ports: Ports,
    beside: Beside,
    work: Option<Work>,
    retry: Retry,
    /// Requests that wait until the sandbox has been made ready.
    waiting: Vec<Wish>,
    /// What it is made from, kept for as long as the record may not tell others so.
    materials: Materials,
    /// Until when its processes may take to stop.
    stop_until: Option<Instant>,
    farewell: Farewell,
    last_at: Timestamp,
    moments: Moments,
    /// The first event that is kept, as far as this task has seen to it.
    earliest: Sequence,
    /// Whether its followers were warned, since it stopped or failed, that it is deleted soon.
    is_warned_of_cleanup: bool,
    /// Its processor time when it was last looked at.
    sample: Option<CpuSample>,
    /// How often the supervisor hung up since it last said anything.
    hang_ups: u32,
    /// Why nobody can say what has become of its processes, while that is so.
    out_of_reach: Option<String>,
    /// The store was closed under it.
    is_over: bool,
}

/// What happened.
enum Happened {
    Asked(Option<Ask>),
    Done(Done),
    Told(std::io::Result<Option<(Tell, Option<OwnedFd>)>>),
    Companion(News),
    TimeIsUp,
}

impl Actor {
    /// Opens the door of a sandbox that is about to be accepted: whoever finds its record finds
    /// somebody to ask.
    pub(super) fn announce(shared: &Arc<Shared>, sandbox: &Sandbox) -> Door {
        let (door, contact) = Door::new(shared, sandbox);
        shared.living().insert(sandbox.id.clone(), contact);
        door
    }

    /// Makes the body of a sandbox.
    pub(super) fn make(shared: &Arc<Shared>, sandbox: &Sandbox) -> Work {
        let (shared, sandbox) = (Arc::clone(shared), sandbox.clone());
        Box::pin(async move {
            let defaults = shared.settings.defaults;
            Done::Made(shared.provider(&sandbox.spec).make(&sandbox, defaults).await)
        })
    }

    /// Starts the task of a sandbox that was accepted just now, and whose body may be on its way already.
    pub(super) fn begin(shared: &Arc<Shared>, sandbox: Sandbox, door: Door, body: Option<Work>) {
        let mut actor = Self::new(shared, sandbox, Presence::None, door);
        actor.work = body.map(|body| -> Work {
            Box::pin(async move {
                let done = body.await;
                failpoint::pass("c.prepared");
                done
            })
        });
        shared.tasks.start("sandbox", actor.live());
    }

    /// Starts the task of a sandbox that another daemon has left.
    pub(super) fn recover(shared: &Arc<Shared>, sandbox: Sandbox) {
        let door = Self::announce(shared, &sandbox);
        let actor = Self::new(shared, sandbox, Presence::Unknown, door);
        shared.tasks.start("sandbox", actor.live());
    }

    fn new(shared: &Arc<Shared>, sandbox: Sandbox, presence: Presence, door: Door) -> Self {
        let last_at = sandbox.life.phase_since.max(sandbox.life.last_used_at);
        door.life.send_replace(Some(sandbox.life.clone()));
        let moments = Moments::of(&sandbox.life, clock::now());
        door.used.send_replace(moments.used());
        Self {
            shared: Arc::clone(shared),
            sandbox,
            door,
            presence,
            execs: Execs::default(),
            inputs: Vec::new(),
            main: MainProcess::default(),
            ports: Ports::default(),
            beside: Beside::default(),
            work: None,
            retry: Retry::default(),
            waiting: Vec::new(),
            materials: Materials::default(),
            stop_until: None,
            farewell: Farewell::default(),
            last_at,
            moments,
            earliest: Sequence::ZERO.next(),
            is_warned_of_cleanup: false,
            sample: None,
            hang_ups: 0,
            out_of_reach: None,
            is_over: false,
        }
    }

    async fn run(mut self) {
        while !self.phase().is_terminal() && !self.is_over {
            self.trim_events().await;
            self.do_what_is_due().await;
            match self.next().await {
                Happened::Asked(Some(Ask::Request(wish))) => self.answer(wish).await,
                Happened::Asked(Some(Ask::Input { exec, answer })) => {
                    self.ask_for_input(exec, answer).await;
                }
                Happened::Asked(Some(Ask::Warn { cause, seconds })) => {
                    self.see(Observation::EndsSoon { cause, seconds }).await;
                }
                Happened::Asked(Some(Ask::Say(say))) => self.say(&say).await,
                Happened::Asked(Some(Ask::ClearOutput(exec))) => self.clear_output(&exec).await,
                // Nobody can ask any more: the engine is gone.
                Happened::Asked(None) => return,
                Happened::Done(done) => {
                    self.work = None;
                    self.finish(done).await;
                }
                Happened::Told(Ok(Some((tell, fd)))) => self.hear(tell, fd).await,
                Happened::Told(gone) => self.lose_supervisor(gone.map(drop)),
                Happened::Companion(news) => self.hear_of_companion(news).await,
                Happened::TimeIsUp => self.time_is_up().await,
            }
        }
        if !self.sandbox.life.images.is_empty() {
            self.shared.is_littered.store(true, Ordering::Relaxed);
        }
    }

    fn phase(&self) -> Phase {
        self.sandbox.life.phase
    }

    /// Returns where it runs.
    fn provider(&self) -> &dyn Provider {
        self.shared.provider(&self.sandbox.spec)
    }

    async fn next(&mut self) -> Happened {
        let deadline = self.deadline();
        let link = match &self.presence {
            Presence::Link(link) => Some(link),
            Presence::Unknown | Presence::Remains | Presence::None | Presence::Foreign { .. } => {
                None
            }
        };
        let told = async {
            match link {
                Some(link) => link.next().await,
                None => std::future::pending().await,
            }
        };
        let done = async {
            match &mut self.work {
                Some(work) => work.await,
                None => std::future::pending().await,
            }
        };
        let time_is_up = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        select! {
            biased;
            done = done => Happened::Done(done),
            told = told => Happened::Told(told),
            news = self.beside.next() => Happened::Companion(news),
            ask = self.door.next() => Happened::Asked(ask),
            () = time_is_up => Happened::TimeIsUp,
        }
    }

    /// Begins what the phase asks for, unless something is under way.
    async fn do_what_is_due(&mut self) {
        self.tend_ports();
        self.tend_companions();
        if self.work.is_some() || self.retry.deadline().is_some() || self.says_farewell().await {
            return;
        }
        let (shared, sandbox) = (Arc::clone(&self.shared), self.sandbox.clone());
        let work: Option<Work> = match (&self.presence, self.phase()) {
            (_, Phase::Terminated) => None,
            (_, Phase::Deleting) => {
                let companions = std::mem::take(&mut self.beside).companions;
                Some(Box::pin(async move {
                    if let Some(companions) = companions {
                        companions.let_go().await;
                    }
                    Done::Removed(shared.provider(&sandbox.spec).remove(&sandbox).await)
                }))
            }
            (Presence::Unknown, _) => Some(Box::pin(async move {
                let defaults = shared.settings.defaults;
                Done::Found(shared.provider(&sandbox.spec).find(&sandbox, defaults).await)
            })),
            (Presence::Remains, _)
            | (Presence::Link(_), Phase::Stopped | Phase::Failed)
            | (Presence::Foreign { .. }, Phase::Stopping | Phase::Stopped | Phase::Failed) => {
                let companions = std::mem::take(&mut self.beside).companions;
                Some(Box::pin(async move {
                    if let Some(companions) = companions {
                        companions.stopped().await;
                    }
                    Done::Ended(shared.provider(&sandbox.spec).end(&sandbox).await)
                }))
            }
            (Presence::None, Phase::Provisioning) if !sandbox.life.images_are_known => {
                let (sandbox, progress) = (self.sandbox.clone(), self.door.progress.clone());
                Some(Box::pin(async move {
                    let provider = shared.provider(&sandbox.spec);
                    Done::Gathered(provider.gather(&shared.images, &sandbox, &progress).await)
                }))
            }
            (Presence::None, Phase::Provisioning | Phase::Resuming) => {
                failpoint::pass("c.prepared");
                if let Err(error) = self.take_ports() {
                    return self.not_made(&error).await;
                }
                Some(Self::make(&shared, &sandbox))
            }
            (Presence::None, Phase::Stopping) => {
                self.see_ends_in_journal().await;
                self.see(Observation::Stopped).await;
                // A request that waited for this may have asked for the next thing already.
                return Box::pin(self.do_what_is_due()).await;
            }
            (Presence::Link(_), Phase::Stopping) => {
                self.ask_to_stop().await;
                None
            }
            // Nothing lives, and nothing is to.
            (Presence::None, Phase::Stopped | Phase::Failed) => None,
            // Its body was lost; what that means was seen already.
            (Presence::None, Phase::Active | Phase::Frozen) => None,
            (
                Presence::Link(_) | Presence::Foreign { .. },
                Phase::Provisioning | Phase::Resuming | Phase::Active | Phase::Frozen,
            ) => None,
        };
        if self.phase() == Phase::Deleting {
            // What the supervisor has to say is of no interest any more.
            self.let_go(Presence::Remains);
        }
        self.work = work;
    }

    async fn finish(&mut self, done: Done) {
        let id = self.sandbox.id.clone();
        if done.error().is_some_and(MachineError::is_our_own_end) {
            return self.is_over = true;
        }
        match done {
            Done::Gathered(Ok(materials)) => self.prepare(materials).await,
            Done::Gathered(Err(ImageError::SpawnerGone)) => self.is_over = true,
            Done::Gathered(Err(error)) => {
                tracing::warn!(sandbox = %id, %error, "no image");
                self.presence = Presence::Remains;
                self.fail(error.failure_cause(), &error.to_string()).await;
            }
            Done::Made(Ok(link)) => {
                failpoint::pass("c.connected");
                self.let_go(Presence::Link(link));
                self.knows_nothing().await;
            }
            Done::Found(Ok(found)) => {
                self.is_cleared();
                self.out_of_reach = None;
                self.found(found).await;
            }
            Done::Made(Err(error)) => self.not_made(&error).await,
            Done::Found(Err(error)) if error.is_out_of_reach() => {
                self.out_of_reach = Some(error.to_string());
                self.set_aside("find its processes", &error);
            }
            Done::Found(Err(error)) => {
                tracing::warn!(sandbox = %id, error = &error as &dyn std::error::Error, "not found");
                self.presence = Presence::Remains;
                self.crashed(Crash::SupervisorLost).await;
            }
            Done::Ended(Ok(())) => {
                self.is_cleared();
                self.presence = Presence::None;
                self.stop_until = None;
            }
            Done::Ended(Err(error)) => self.set_aside("end its processes", &error),
            Done::Removed(Ok(())) => {
                self.is_cleared();
                failpoint::pass("d.terminal_event");
                self.see(Observation::Deleted).await;
            }
            Done::Removed(Err(error)) => self.set_aside("remove its files", &error),
        }
    }

    /// Notes what it is made from, before anything is made from it.
    async fn prepare(&mut self, materials: Materials) {
        let gathered = materials::gathered(materials.used.clone());
        self.materials = materials;
        self.see(gathered).await;
    }

    async fn see_one(&mut self, observation: Observation) -> Result<Transition, SandboxError> {
        match self.sandbox.observe(observation, self.now()) {
            Some(transition) => Ok(self.record(transition).await?),
            None => Err(SandboxError::Unavailable("the sandbox has gone on meanwhile".to_owned())),
        }
    }

    /// Keeps a step. The sandbox is what it leads to from then on.
    async fn record(&mut self, transition: Transition) -> Result<Transition, StoreError> {
        keep(&self.shared, &self.sandbox.id, &transition).await?;
        self.follow(&transition);
        Ok(transition)
    }

    /// Becomes what a step that was kept leads to.
    fn follow(&mut self, transition: &Transition) {
        for (exec, life) in transition.ended() {
            if let ExecState::Ended(end) = &life.state {
                self.door.feeds.end(exec, end);
                self.shared.outputs.end(&self.sandbox.id, &self.sandbox.tenant, exec);
            }
        }
        self.moments.follow(&self.sandbox.life, transition);
        self.is_warned_of_cleanup &= transition.life().phase == self.phase();
        self.door.used.send_replace(self.moments.used());
        self.sandbox.life = transition.life().clone();
        if let Some(Adjusted { alias, spec }) = transition.adjusted() {
            (self.sandbox.alias, self.sandbox.spec) = (alias.clone(), spec.clone());
            if let Some(contact) = self.shared.living().get_mut(&self.sandbox.id) {
                contact.alias.clone_from(alias);
                contact.run.clone_from(&spec.run);
            }
        }
        self.door.life.send_replace(Some(self.sandbox.life.clone()));
        for event in transition.events() {
            self.last_at = self.last_at.max(event.occurred_at);
            // They are kept, and can be followed; the log need not repeat them.
            tracing::debug!(
                sandbox = %self.sandbox.id, sequence = event.sequence.0, phase = event.phase.name(),
                "event"
            );
        }
    }

    /// Keeps what was seen, however long that takes: it has happened, whether it can be kept or
    /// not. Nothing if it is no news.
    async fn see(&mut self, observation: Observation) {
        while let Some(transition) = self.sandbox.observe(observation.clone(), self.now()) {
            match self.record(transition).await {
                Ok(_) => break,
                Err(StoreError::Stale { current }) => self.become_current(*current),
                Err(StoreError::Closed) => return self.is_over = true,
                Err(error) => {
                    tracing::error!(sandbox = %self.sandbox.id, %error, "cannot keep an event");
                    sleep(RETRY).await;
                }
            }
        }
        self.ask_again().await;
    }

    /// Somebody else changed the sandbox; when, is known by the time of day alone.
    fn become_current(&mut self, current: Sandbox) {
        self.moments = Moments::of(&current.life, clock::now());
        self.door.life.send_replace(Some(current.life.clone()));
        if let Some(contact) = self.shared.living().get_mut(&self.sandbox.id) {
            contact.run.clone_from(&current.spec.run);
        }
        self.sandbox = current;
    }

    /// Clocks may be set back; what happened later is never told as earlier.
    fn now(&self) -> Timestamp {
        clock::now().max(self.last_at)
    }

    async fn ask_ourselves(&mut self, request: Request) {
        let (answer, _nobody) = oneshot::channel();
        // Nothing here waits for a sandbox that is being started or stopped.
        self.answer(Wish { request, until: Instant::now(), answer }).await;
    }
}

/// Has a step of a sandbox kept.
async fn keep(shared: &Shared, id: &SandboxId, step: &Transition) -> Result<(), StoreError> {
    match shared.store.change_sandbox(step.clone()).await {
        // It may have been kept: then the store knows what this leads to.
        Err(error @ StoreError::Unclear { .. }) => match shared.store.sandbox(id).await? {
            Some(now) if now.life == *step.life() => Ok(()),
            _ => Err(error),
        },
        other => other,
    }
}

/// Writes an error with its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
