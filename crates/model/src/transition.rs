//! How a sandbox changes: a request that was accepted, or something that was seen to happen, gives
//! a [`Transition`]: the events, and the state that they lead to. It is what the store keeps in one
//! piece, and the only way to a new state.

use crate::{
    adjustment::Adjusted,
    event::{Event, EventKind, Sequence},
    exec::{Exec, ExecEnd, ExecLife, ExecState, Loss, LostOutput},
    execution::Exit,
    ids::{Alias, ExecId, NodeId, SandboxId, Tenant},
    image::UsedImages,
    life::{CompanionState, Crash, EndCause, Failure, Life, Phase, SuspendReason},
    sandbox::{Refusal, Request, Sandbox, Verdict, Wake},
    spec::SandboxSpec,
    units::Timestamp,
};

/// A new sandbox and its first events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creation {
    sandbox: Sandbox,
    events: Vec<Event>,
}

/// One step in the life of a sandbox: events that belong together, and what they lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    sandbox: SandboxId,
    tenant: Tenant,
    expected: Sequence,
    life: Life,
    events: Vec<Event>,
    started: Option<Exec>,
    ended: Vec<(ExecId, ExecLife)>,
    adjusted: Option<Box<Adjusted>>,
}

/// What a request that is not refused comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To be kept first, then carried out.
    Record(Box<Transition>),
    /// To be carried out now; what is then seen is kept.
    Act,
    /// To be asked again when this is done.
    First(Wake),
    AlreadySo,
}

/// What the engine saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Everything that it is made from is here.
    Preparing {
        step: String,
        images: UsedImages,
    },
    Ready,
    /// Anything that breaks the sandbox: its image, its main process, its provider.
    Failed(Failure),
    Stopped,
    /// Its processes are gone without a request; its files are kept.
    Crashed(Crash),
    Deleted,
    Frozen(SuspendReason),
    Thawed,
    EndsSoon {
        cause: EndCause,
        seconds: u32,
    },
    ExecExited {
        exec: ExecId,
        exit: Exit,
    },
    /// The same, but so many bytes of its output could not be kept.
    ExecExitedCut {
        exec: ExecId,
        exit: Exit,
        lost: LostOutput,
    },
    /// It was killed at the end of its time.
    ExecTimedOut {
        exec: ExecId,
        lost: LostOutput,
    },
    ExecNotStarted {
        exec: ExecId,
        message: String,
        exit_code: Option<i32>,
    },
    CompanionReady {
        name: String,
    },
    CompanionFailed {
        name: String,
        message: String,
    },
}

impl Creation {
    pub fn new(
        id: SandboxId,
        tenant: Tenant,
        alias: Option<Alias>,
        node: NodeId,
        spec: SandboxSpec,
        at: Timestamp,
    ) -> Self {
        let life = Life::accepted(at);
        let event = Event {
            sequence: life.sequence,
            occurred_at: at,
            phase: life.phase,
            kind: EventKind::Accepted,
        };
        Self { sandbox: Sandbox { id, tenant, alias, node, spec, life }, events: vec![event] }
    }

    /// Adds what was seen before it was kept.
    #[must_use]
    pub fn and(mut self, observation: Observation, at: Timestamp) -> Self {
        if let Some(transition) = self.sandbox.observe(observation, at) {
            self.sandbox = self.sandbox.after(&transition);
            self.events.extend(transition.events);
        }
        self
    }

    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Returns the events, at least one, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    pub fn into_sandbox(self) -> Sandbox {
        self.sandbox
    }
}

impl Transition {
    pub fn sandbox(&self) -> &SandboxId {
        &self.sandbox
    }

    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Returns the sequence that the sandbox must still have for this to be its next step.
    pub fn expected(&self) -> Sequence {
        self.expected
    }

    /// Returns the state that it leads to.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Returns the events, at least one, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    pub fn started(&self) -> Option<&Exec> {
        self.started.as_ref()
    }

    pub fn ended(&self) -> &[(ExecId, ExecLife)] {
        &self.ended
    }

    /// Returns what the sandbox is called and asked to be from now on, if that changes.
    pub fn adjusted(&self) -> Option<&Adjusted> {
        self.adjusted.as_deref()
    }
}

impl Sandbox {
    /// Answers a request.
    pub fn request(&self, request: Request, at: Timestamp) -> Result<Answer, Refusal> {
        match self.life.decide(&request)? {
            Verdict::AlreadySo => Ok(Answer::AlreadySo),
            Verdict::First(wake) => Ok(Answer::First(wake)),
            Verdict::Do => Ok(self.accept(request, at)),
        }
    }

    fn accept(&self, request: Request, at: Timestamp) -> Answer {
        let draft = Draft::new(self, at);
        let draft = match request {
            // Whether it froze or thawed is seen at once, and only then true.
            Request::Freeze(_) | Request::Thaw => return Answer::Act,
            // Using a sandbox that is awake changes nothing.
            Request::Use(_) => return Answer::AlreadySo,
            Request::Stop(reason) => draft.push(EventKind::StopRequested(reason)),
            Request::Resume => draft.push(EventKind::ResumeAccepted),
            Request::Delete(cause) => draft.push(EventKind::DeleteRequested(cause)),
            Request::CancelExec(exec) => draft.end(exec, ExecEnd::Cancelled),
            Request::Adjust(adjustment) => match adjustment.applied_to(self) {
                None => return Answer::AlreadySo,
                Some((adjusted, changed)) => {
                    let mut draft = draft.push(EventKind::Adjusted(changed));
                    draft.adjusted = Some(Box::new(adjusted));
                    draft
                }
            },
            Request::StartExec { exec, spec, when_stopped: _ } => {
                let shell = spec.shell.clone();
                let has_timeout = shell.is_none() && spec.has_timeout();
                let started = EventKind::ExecStarted { exec: exec.clone(), shell, has_timeout };
                let mut draft = draft.push(started);
                let life = ExecLife {
                    state: ExecState::Running,
                    started_at: at,
                    ended_at: None,
                    sequence: draft.life.sequence,
                };
                let (sandbox, tenant) = (self.id.clone(), self.tenant.clone());
                draft.started = Some(Exec { id: exec, sandbox, tenant, spec, life });
                draft
            }
        };
        Answer::Record(Box::new(draft.finish()))
    }

    /// Returns what a thing seen changes; nothing if it is no news, or came too late.
    pub fn observe(&self, observation: Observation, at: Timestamp) -> Option<Transition> {
        if !self.life.expects(&observation) {
            return None;
        }
        let draft = Draft::new(self, at);
        let draft = match observation {
            Observation::Preparing { step, images } => {
                draft.push(EventKind::Preparing { step, images })
            }
            Observation::Ready => draft.push(EventKind::Ready),
            Observation::Failed(failure) => {
                draft.end_all(Loss::SandboxFailed).push(EventKind::Failed(failure))
            }
            Observation::Stopped => {
                let reason = self.life.suspended_for.unwrap_or(SuspendReason::Requested);
                draft.end_all(Loss::SandboxStopped).push(EventKind::Stopped(reason))
            }
            Observation::Crashed(crash) => {
                draft.end_all(crash.into()).push(EventKind::Stopped(crash.into()))
            }
            Observation::Deleted => {
                let cause = self.life.end.clone().unwrap_or(EndCause::Requested);
                draft.end_all(Loss::SandboxDeleted).push(EventKind::Deleted(cause))
            }
            Observation::Frozen(reason) => draft.push(EventKind::Frozen(reason)),
            Observation::Thawed => draft.push(EventKind::Thawed),
            Observation::EndsSoon { cause, seconds } => {
                draft.push(EventKind::EndsSoon { cause, seconds })
            }
            Observation::ExecExited { exec, exit } => draft.end(exec, ExecEnd::Exited(exit)),
            Observation::ExecExitedCut { exec, exit, lost } => {
                let (lost, lost_stderr) = (lost.total(), lost.stderr);
                draft.end(exec, ExecEnd::ExitedCut { exit, lost, lost_stderr })
            }
            Observation::ExecTimedOut { exec, lost } => {
                let (lost, lost_stderr) = (lost.total(), lost.stderr);
                draft.end(exec, ExecEnd::TimedOut { lost, lost_stderr })
            }
            Observation::ExecNotStarted { exec, message, exit_code } => {
                draft.end(exec, ExecEnd::NotStarted { message, exit_code })
            }
            Observation::CompanionReady { name } => draft.push(EventKind::CompanionReady { name }),
            Observation::CompanionFailed { name, message } => {
                draft.push(EventKind::CompanionFailed { name, message })
            }
        };
        Some(draft.finish())
    }

    /// Returns the sandbox after a step of its own.
    #[must_use]
    pub fn after(self, transition: &Transition) -> Self {
        let life = transition.life.clone();
        match transition.adjusted() {
            None => Self { life, ..self },
            Some(Adjusted { alias, spec }) => {
                Self { life, alias: alias.clone(), spec: spec.clone(), ..self }
            }
        }
    }
}

impl Life {
    /// Says whether a companion can come to anything now.
    fn has_companions(&self) -> bool {
        use Phase::{Active, Frozen, Provisioning, Resuming, Stopping};
        matches!(self.phase, Provisioning | Resuming | Active | Frozen | Stopping)
    }

    /// Says which things seen are news in which phase. What is seen twice, or after the end, or
    /// overtaken by a deletion, changes nothing.
    fn expects(&self, observation: &Observation) -> bool {
        use Phase::{Active, Frozen, Provisioning, Resuming, Stopped, Stopping};
        let phase = self.phase;
        match observation {
            Observation::Preparing { .. } | Observation::Ready => {
                matches!(phase, Provisioning | Resuming)
            }
            Observation::Failed(_) => {
                matches!(phase, Provisioning | Resuming | Active | Frozen | Stopping | Stopped)
            }
            Observation::EndsSoon { .. } => !phase.is_deleted(),
            // Each start has one outcome for each companion; one that was ready may fail after it.
            Observation::CompanionReady { name } => {
                self.has_companions() && !self.companions.contains_key(name)
            }
            Observation::CompanionFailed { name, .. } => {
                let told = self.companions.get(name);
                self.has_companions() && told != Some(&CompanionState::Failed)
            }
            Observation::Stopped => phase == Stopping,
            Observation::Crashed(_) => matches!(phase, Active | Frozen),
            Observation::Deleted => phase == Phase::Deleting,
            Observation::Frozen(_) => matches!(phase, Active),
            Observation::Thawed => phase == Frozen,
            Observation::ExecExited { exec, .. }
            | Observation::ExecExitedCut { exec, .. }
            | Observation::ExecTimedOut { exec, .. }
            | Observation::ExecNotStarted { exec, .. } => self.running.contains_key(exec),
        }
    }
}

/// A transition that is being put together. Each event is added up at once, so that the state is
/// never anything but the sum of the events.
struct Draft<'a> {
    sandbox: &'a Sandbox,
    at: Timestamp,
    life: Life,
    events: Vec<Event>,
    started: Option<Exec>,
    ended: Vec<(ExecId, ExecLife)>,
    adjusted: Option<Box<Adjusted>>,
}

impl<'a> Draft<'a> {
    fn new(sandbox: &'a Sandbox, at: Timestamp) -> Self {
        let life = sandbox.life.clone();
        let (events, ended) = (Vec::new(), Vec::new());
        Self { sandbox, at, life, events, started: None, ended, adjusted: None }
    }

    fn push(mut self, kind: EventKind) -> Self {
        let event = Event {
            sequence: self.life.sequence.next(),
            occurred_at: self.at,
            phase: self.life.phase.after(&kind),
            kind,
        };
        self.life.add(&event);
        self.events.push(event);
        self
    }

    fn end(self, exec: ExecId, end: ExecEnd) -> Self {
        let started_at = self.life.running.get(&exec).copied().unwrap_or(self.at);
        let mut draft = self.push(EventKind::ExecEnded { exec: exec.clone(), end: end.clone() });
        let life = ExecLife {
            state: ExecState::Ended(end),
            started_at,
            ended_at: Some(draft.at),
            sequence: draft.life.sequence,
        };
        draft.ended.push((exec, life));
        draft
    }

    /// Every command gets its one end before the sandbox gets to where none can run.
    fn end_all(self, loss: Loss) -> Self {
        let running: Vec<ExecId> = self.life.running.keys().cloned().collect();
        running.into_iter().fold(self, |draft, exec| draft.end(exec, ExecEnd::Lost(loss)))
    }

    fn finish(self) -> Transition {
        Transition {
            sandbox: self.sandbox.id.clone(),
            tenant: self.sandbox.tenant.clone(),
            expected: self.sandbox.life.sequence,
            life: self.life,
            events: self.events,
            started: self.started,
            ended: self.ended,
            adjusted: self.adjusted,
        }
    }
}

#[cfg(test)]
mod tests;
