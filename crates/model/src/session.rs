//! A session: the binding of a scope to a sandbox. Two names on the wire, one thing.
//!
//! ```text
//!                    release            grace over
//! (none) ─▶ live ──────────▶ released ───────────▶ ended
//!             │                  │ ensure: the next one, with the same sandbox
//!             └─ lease end, hard ttl, destroyed, sandbox gone ─▶ ended
//! ```
//!
//! The bindings of a scope follow each other, each with a higher generation, and a next one begins only
//! when the one before it ends in the same step. So at most one of a scope has not ended.

use serde::{Deserialize, Serialize};

use crate::{
    ids::{NodeId, SandboxId, SessionId, Tenant},
    lease::{Lease, Over, Terms},
    life::{EndCause, Life, Phase},
    scope::Scope,
    token::Generation,
    units::Timestamp,
};

/// A binding as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub tenant: Tenant,
    pub scope: Scope,
    pub sandbox: SandboxId,
    /// Where the sandbox lives.
    pub node: NodeId,
    pub generation: Generation,
    /// Counts its changes: one that was decided from an earlier state is refused.
    pub revision: u64,
    pub state: State,
    pub lease: Lease,
    /// The key that it was made with.
    pub created_by: String,
    pub created_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Live,
    /// It is over for its holders; its sandbox is kept for whoever ensures the scope again.
    Released {
        kept_until: Timestamp,
    },
    Ended(SessionEnd),
}

/// Why a binding came to its end. Stays readable after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEnd {
    Released,
    /// Its sandbox has a binding again.
    TakenBack,
    LeaseExpired,
    HardTtl,
    /// Somebody ended the thread, or its sandbox.
    Destroyed,
    KilledByAdmin,
    /// The sandbox has failed, or was deleted by another way.
    SandboxGone,
}

impl SessionEnd {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::TakenBack => "taken_back",
            Self::LeaseExpired => "lease_expired",
            Self::HardTtl => "hard_ttl",
            Self::Destroyed => "destroyed",
            Self::KilledByAdmin => "killed_by_admin",
            Self::SandboxGone => "sandbox_gone",
        }
    }

    /// Says whether it ended although nobody who holds it wanted that.
    const fn is_expiry(self) -> bool {
        match self {
            Self::LeaseExpired | Self::HardTtl | Self::SandboxGone => true,
            Self::Released | Self::TakenBack | Self::Destroyed | Self::KilledByAdmin => false,
        }
    }

    /// Returns what the sandbox is deleted for; nothing if it is not.
    pub const fn cause(self) -> Option<EndCause> {
        match self {
            Self::Released => Some(EndCause::Released),
            Self::TakenBack => None,
            Self::LeaseExpired => Some(EndCause::LeaseExpired),
            Self::HardTtl => Some(EndCause::HardTtl),
            Self::Destroyed | Self::SandboxGone => Some(EndCause::Requested),
            Self::KilledByAdmin => Some(EndCause::KilledByAdmin),
        }
    }
}

impl From<Over> for SessionEnd {
    fn from(over: Over) -> Self {
        match over {
            Over::Expired => Self::LeaseExpired,
            Over::HardTtl => Self::HardTtl,
        }
    }
}

/// What a session shows of its sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shows {
    Provisioning,
    Active,
    Suspended,
    Failed,
}

impl Shows {
    pub const ALL: [Self; 4] = [Self::Provisioning, Self::Active, Self::Suspended, Self::Failed];

    /// Returns nothing for a sandbox that is gone: its session has ended, or is about to.
    pub fn of(life: &Life) -> Option<Self> {
        if life.is_gone() && life.failed_creation().is_none() {
            return None;
        }
        match life.phase {
            Phase::Provisioning | Phase::Resuming => Some(Self::Provisioning),
            Phase::Active => Some(Self::Active),
            Phase::Frozen | Phase::Stopping | Phase::Stopped => Some(Self::Suspended),
            Phase::Failed => Some(Self::Failed),
            Phase::Deleting | Phase::Terminated => None,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Provisioning => "provisioning",
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Failed => "failed",
        }
    }
}

/// What may be asked of a scope or of one of its bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The binding that there is: `get`, `attach_only`.
    Attach,
    /// That, or a new one.
    Ensure,
    /// A new one, or nothing.
    CreateOnly,
    /// One binding by its name, to be seen or for a new token.
    Show,
    Heartbeat,
    Release,
    Destroy,
}

/// What a request comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A new binding with a new sandbox; one that was kept is given up.
    Begin,
    /// A new binding with the sandbox that was kept.
    TakeBack,
    Renew,
    Release,
    End,
    AlreadySo,
}

/// Why a request is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no such session")]
    NotFound,
    #[error("the session has ended: {}", .0.name())]
    Expired(SessionEnd),
    #[error("the scope has a session already")]
    Conflict,
}

/// Decides what a request comes to when this is the last binding of the scope, or the one that is
/// named. The whole policy is this one table.
pub fn decide(latest: Option<State>, request: Request) -> Result<Verdict, Refusal> {
    use Request::{Attach, CreateOnly, Destroy, Ensure, Heartbeat, Release, Show};
    use State::{Ended, Live, Released};

    match (request, latest) {
        (Attach | Ensure | Show, Some(Live)) => Ok(Verdict::AlreadySo),
        (Ensure, Some(Released { .. })) => Ok(Verdict::TakeBack),
        (Ensure, None | Some(Ended(_))) => Ok(Verdict::Begin),

        (CreateOnly, Some(Live)) => Err(Refusal::Conflict),
        (CreateOnly, None | Some(Released { .. } | Ended(_))) => Ok(Verdict::Begin),

        (Heartbeat, Some(Live)) => Ok(Verdict::Renew),
        (Release, Some(Live)) => Ok(Verdict::Release),
        (Destroy, Some(Live | Released { .. })) => Ok(Verdict::End),

        (Show | Heartbeat, Some(Ended(end))) if end.is_expiry() => Err(Refusal::Expired(end)),
        (Attach | Show | Heartbeat | Release, None | Some(Released { .. } | Ended(_)))
        | (Destroy, None | Some(Ended(_))) => Err(Refusal::NotFound),
    }
}

/// One step of the bindings of a scope: how one goes on, and which begins. It is what the store
/// keeps in one piece, and the only way to a new state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    changed: Option<Session>,
    begun: Option<Session>,
}

/// What a new binding is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct New {
    pub id: SessionId,
    pub tenant: Tenant,
    pub scope: Scope,
    pub sandbox: SandboxId,
    pub node: NodeId,
    pub created_by: String,
}

impl Step {
    /// Begins a binding with a sandbox of its own. The one before it in its scope, if it has not ended,
    /// ends by it for this reason.
    pub fn begin(
        latest: Option<&Session>,
        new: New,
        end: SessionEnd,
        terms: Terms,
        now: Timestamp,
    ) -> Self {
        Self::follow(latest, new, end, Lease::begin(now, terms), now)
    }

    /// Begins a binding with the sandbox of one that was released, whose hard end stays.
    pub fn take_back(released: &Session, new: New, terms: Terms, now: Timestamp) -> Self {
        let lease = released.lease.again(now, terms);
        let (sandbox, node) = (released.sandbox.clone(), released.node.clone());
        let new = New { sandbox, node, ..new };
        Self::follow(Some(released), new, SessionEnd::TakenBack, lease, now)
    }

    fn follow(
        latest: Option<&Session>,
        new: New,
        end: SessionEnd,
        lease: Lease,
        now: Timestamp,
    ) -> Self {
        let changed = latest.filter(|latest| !latest.has_ended());
        let changed = changed.map(|latest| latest.changed(State::Ended(end), latest.lease));
        let generation = latest.map_or(Generation::FIRST, |latest| latest.generation.next());
        let New { id, tenant, scope, sandbox, node, created_by } = new;
        let begun = Session {
            id,
            tenant,
            scope,
            sandbox,
            node,
            generation,
            revision: 1,
            state: State::Live,
            lease,
            created_by,
            created_at: now,
        };
        Self { changed, begun: Some(begun) }
    }

    fn only(changed: Session) -> Self {
        Self { changed: Some(changed), begun: None }
    }

    /// Returns the binding that goes on or ends, as it is after this. It must be in the revision before.
    pub fn changed(&self) -> Option<&Session> {
        self.changed.as_ref()
    }

    /// Returns the binding that begins. It must be the first of its generation.
    pub fn begun(&self) -> Option<&Session> {
        self.begun.as_ref()
    }
}

impl Session {
    /// Tells whether what it has opened goes on until its sandbox is gone, to hear how that ends: its time is
    /// over, and nobody has taken it away.
    pub const fn ends_with_its_sandbox(&self) -> bool {
        match self.state {
            State::Ended(SessionEnd::LeaseExpired | SessionEnd::HardTtl) => true,
            State::Ended(_) | State::Live | State::Released { .. } => false,
        }
    }

    pub const fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended(_))
    }

    pub fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Moves its end, unless that has passed.
    pub fn renew(&self, terms: Terms, now: Timestamp) -> Result<Step, Refusal> {
        let lease = self.lease.renew(now, terms).map_err(|over| Refusal::Expired(over.into()))?;
        Ok(self.go_on(lease))
    }

    /// Goes on with this lease.
    pub fn go_on(&self, lease: Lease) -> Step {
        Step::only(self.changed(self.state, lease))
    }

    pub fn release(&self, terms: Terms, now: Timestamp) -> Step {
        // Nobody's sandbox lives longer by being released.
        let kept_until = now.plus(terms.release_grace).min(self.lease.hard);
        Step::only(self.changed(State::Released { kept_until }, self.lease))
    }

    pub fn end(&self, end: SessionEnd) -> Step {
        Step::only(self.changed(State::Ended(end), self.lease))
    }

    fn changed(&self, state: State, lease: Lease) -> Self {
        Self { state, lease, revision: self.revision.saturating_add(1), ..self.clone() }
    }
}

#[cfg(test)]
mod tests;
