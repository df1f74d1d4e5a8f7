//! The sessions of this node that have not ended, in memory, and when each is to be looked at.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use model::{
    ids::{SandboxId, SessionId, Tenant},
    scope::Scope,
    session::Session,
    units::Timestamp,
};
use tokio::{sync::watch, time::Instant};

use super::Which;

/// Of so many scopes it is remembered that they had a session.
const PAST: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Known {
    sessions: HashMap<SessionId, Held>,
    scopes: HashMap<(Tenant, Scope), SessionId>,
    sandboxes: HashMap<SandboxId, SessionId>,
    deadlines: BTreeSet<(Instant, SessionId)>,
    /// Sandboxes that had a session and are about to end.
    left: HashSet<SandboxId>,
    /// What turns true when those are gone whose time is over, and what they have opened with them.
    parting: HashMap<SandboxId, watch::Sender<bool>>,
    /// Scopes that had a session, by what they are hashed to.
    past: HashSet<u64>,
    hasher: RandomState,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) session: Session,
    pub(super) image: String,
    pub(super) idle: Option<Duration>,
    /// When somebody last wanted it, since that was last kept.
    pub(super) touched: Option<Timestamp>,
    /// For which end whoever follows the sandbox was warned, and how many seconds before it.
    pub(super) warned: Option<(Timestamp, u32)>,
    /// Turns true when the session is over.
    pub(super) over: watch::Sender<bool>,
    look_at: Instant,
}

impl Known {
    pub(super) fn get(&self, id: &SessionId) -> Option<&Held> {
        self.sessions.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &SessionId) -> Option<&mut Held> {
        self.sessions.get_mut(id)
    }

    pub(super) fn with_sandbox(&self, sandbox: &SandboxId) -> Option<&Held> {
        self.sessions.get(self.sandboxes.get(sandbox)?)
    }

    /// Says whether a sandbox had a session, and has none any more.
    pub(super) fn is_left(&self, sandbox: &SandboxId) -> bool {
        self.left.contains(sandbox)
    }

    /// Has what was opened by a session end that ended with its time: its sandbox is gone.
    pub(super) fn part(&mut self, sandbox: &SandboxId) {
        if let Some(over) = self.parting.remove(sandbox) {
            over.send_replace(true);
        }
    }

    /// Forgets sandboxes that are gone.
    pub(super) fn tidy(&mut self, is_there: impl Fn(&SandboxId) -> bool) {
        self.left.retain(is_there);
    }

    /// Returns a session of this tenant that has not ended.
    pub(super) fn find(&self, tenant: &Tenant, which: &Which) -> Option<Session> {
        let id = match which {
            Which::Id(id) => id,
            Which::Scope(scope) => self.scopes.get(&(tenant.clone(), scope.clone()))?,
        };
        let held = self.sessions.get(id)?;
        (held.session.tenant == *tenant).then(|| held.session.clone())
    }

    /// Notes that a scope has had a session.
    pub(super) fn note_past(&mut self, session: &Session) {
        if self.past.len() >= PAST {
            self.past.clear();
        }
        self.past.insert(self.hasher.hash_one((&session.tenant, &session.scope)));
    }

    /// Says whether a scope has no session, and had none as far as is known.
    pub(super) fn is_new(&self, tenant: &Tenant, scope: &Scope) -> bool {
        !self.scopes.contains_key(&(tenant.clone(), scope.clone()))
            && !self.past.contains(&self.hasher.hash_one((tenant, scope)))
    }

    /// Notes what a session is now; one that has ended is forgotten. Returns whether the first deadline
    /// is another one.
    pub(super) fn put(
        &mut self,
        session: Session,
        image: String,
        idle: Option<Duration>,
        look_at: Instant,
    ) -> bool {
        let id = session.id.clone();
        let before = self.take(&id);
        let (over, touched, warned) = match before {
            Some(Held { over, touched, warned, .. }) => (over, touched, warned),
            None => (watch::Sender::new(false), None, None),
        };
        if session.ends_with_its_sandbox() {
            self.parting.insert(session.sandbox.clone(), over);
            self.note_past(&session);
            self.left.insert(session.sandbox);
            return false;
        }
        if !session.is_live() {
            over.send_replace(true);
        }
        if session.has_ended() {
            self.note_past(&session);
            self.left.insert(session.sandbox);
            return false;
        }
        self.left.remove(&session.sandbox);
        self.scopes.insert((session.tenant.clone(), session.scope.clone()), id.clone());
        self.sandboxes.insert(session.sandbox.clone(), id.clone());
        self.deadlines.insert((look_at, id.clone()));
        let held = Held { session, image, idle, touched, warned, over, look_at };
        self.sessions.insert(id.clone(), held);
        self.deadlines.first().is_some_and(|(_, first)| *first == id)
    }

    fn take(&mut self, id: &SessionId) -> Option<Held> {
        let held = self.sessions.remove(id)?;
        self.deadlines.remove(&(held.look_at, id.clone()));
        let scope = (held.session.tenant.clone(), held.session.scope.clone());
        if self.scopes.get(&scope) == Some(id) {
            self.scopes.remove(&scope);
        }
        if self.sandboxes.get(&held.session.sandbox) == Some(id) {
            self.sandboxes.remove(&held.session.sandbox);
        }
        Some(held)
    }

    /// Notes that somebody wants a session, and when it is to be looked at for that.
    pub(super) fn touch(&mut self, id: &SessionId, now: Timestamp, at: Option<Instant>) -> bool {
        let Some(held) = self.sessions.get_mut(id) else { return false };
        held.touched = Some(now);
        match at {
            Some(at) => self.look_again(id, at),
            None => false,
        }
    }

    /// Has a session looked at then. Returns whether that is the first deadline.
    pub(super) fn look_again(&mut self, id: &SessionId, at: Instant) -> bool {
        let Some(held) = self.sessions.get_mut(id) else { return false };
        self.deadlines.remove(&(held.look_at, id.clone()));
        held.look_at = at;
        self.deadlines.insert((at, id.clone()));
        self.deadlines.first().is_some_and(|(_, first)| first == id)
    }

    /// Returns when the first of them is to be looked at.
    pub(super) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Takes those that are to be looked at now. They have no deadline until they were.
    pub(super) fn due(&mut self, now: Instant) -> Vec<SessionId> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.deadlines.first()
            && *at <= now
        {
            due.extend(self.deadlines.pop_first().map(|(_, id)| id));
        }
        due
    }
}
