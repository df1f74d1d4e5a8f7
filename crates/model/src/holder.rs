//! The holder of a key, as decisions see him: what he reaches, and what he has himself.

use crate::{
    actor::Actor,
    capability::{Capabilities, Capability},
    policy::{Policy, Role},
    scope::Scope,
    session::Session,
};

/// Whoever shows a key, and what the operator has set for all of them.
#[derive(Clone, Copy, Debug)]
pub struct Holder<'a> {
    pub policy: &'a Policy,
    pub role: Role,
    /// What the key is called.
    pub key: &'a str,
    pub actor: &'a Actor,
}

/// The operator keeps a scope from a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key does not reach this scope; see policy.roles in the configuration")]
pub struct OutOfReach {
    pub scope: Scope,
}

/// A key has not what it would give out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this takes the capability {0}, which the key has not")]
pub struct Lacks(pub Capability);

impl Holder<'_> {
    /// Says whether every scope of the tenant is reached, so that nobody has to look.
    pub fn reaches_all(&self) -> bool {
        self.policy.reaches_all(self.role)
    }

    /// Decides whether a scope is reached which the key of this name has begun to use. One that nobody
    /// uses is anybody's own.
    pub fn reaches(&self, scope: &Scope, creator: Option<&str>) -> Result<(), OutOfReach> {
        let named = (scope.kind.name(), scope.id.as_str());
        if self.policy.reaches(self.role, self.key, named, creator) {
            return Ok(());
        }
        Err(OutOfReach { scope: scope.clone() })
    }

    /// Decides whether the last session that there is of a scope is reached. One that has ended holds the
    /// scope for nobody. What is asked for by a name that means nothing has no scope to be kept from anybody.
    pub fn reaches_last(
        &self,
        asked: Option<&Scope>,
        last: Option<&Session>,
    ) -> Result<(), OutOfReach> {
        let Some(scope) = asked.or(last.map(|session| &session.scope)) else { return Ok(()) };
        let holding = last.filter(|session| !session.has_ended());
        self.reaches(scope, holding.map(|session| session.created_by.as_str()))
    }

    /// Returns all that the key has when its own actor acts.
    pub fn capabilities(&self) -> Capabilities {
        self.policy.bound(self.role, self.actor.kind, self.actor.kind)
    }

    /// Decides whether the key may give this out: only what it has itself.
    pub fn gives(&self, needed: Capability) -> Result<(), Lacks> {
        if self.capabilities().allows(needed) { Ok(()) } else { Err(Lacks(needed)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        actor::ActorKind,
        capability::Asked,
        ids::{SandboxId, SessionId},
        lease::Terms,
        policy::{Pattern, Rule, Scopes},
        session::{New, SessionEnd, State, Step},
        units::Timestamp,
    };

    fn user(scopes: Scopes, capabilities: Option<&str>) -> Policy {
        let capabilities = capabilities.map(|text| Asked::scope(text).unwrap().capabilities());
        Policy { user: Rule { capabilities, scopes }, ..Policy::default() }
    }

    #[test]
    fn what_is_reached_is_decided_by_the_scope_and_by_who_holds_it() {
        let actor = Actor { kind: ActorKind::Human, id: "ada".to_owned() };
        let [room, hall] = ["room", "hall"].map(|name| Scope::thread(name.parse().unwrap()));
        let session = |creator: &str, state| {
            let new = New {
                id: SessionId::from_random([1; 16]),
                tenant: "default".parse().unwrap(),
                scope: room.clone(),
                sandbox: SandboxId::from_random([1; 16]),
                node: "node_1".parse().unwrap(),
                created_by: creator.to_owned(),
            };
            let now = Timestamp::from_millis(0);
            let begun = Step::begin(None, new, SessionEnd::Destroyed, Terms::default(), now);
            Session { state, ..begun.begun().unwrap().clone() }
        };
        let released = State::Released { kept_until: Timestamp::from_millis(1) };
        let (mine, theirs) = (session("key_1", State::Live), session("key_2", State::Live));
        let kept = session("key_2", released);
        let ended = session("key_2", State::Ended(SessionEnd::Released));
        let own = user(Scopes::Own, None);
        let these = user(Scopes::These(vec![Pattern::read("thread:room").unwrap()]), None);
        let rows = [
            (&own, Role::User, Some(&room), None, true),
            (&own, Role::User, Some(&room), Some(&mine), true),
            (&own, Role::User, Some(&room), Some(&theirs), false),
            (&own, Role::User, Some(&room), Some(&kept), false),
            (&own, Role::User, Some(&room), Some(&ended), true),
            (&own, Role::User, None, Some(&theirs), false),
            (&own, Role::User, None, None, true),
            (&own, Role::Broker, Some(&room), Some(&theirs), true),
            (&these, Role::User, Some(&room), Some(&theirs), true),
            (&these, Role::User, Some(&hall), None, false),
            (&these, Role::User, None, Some(&theirs), true),
        ];
        for (policy, role, asked, last, expected) in rows {
            let holder = Holder { policy, role, key: "key_1", actor: &actor };
            let reached = holder.reaches_last(asked, last);
            assert_eq!(reached.is_ok(), expected, "{role:?} {asked:?} {last:?}");
            assert!(!holder.reaches_all() || reached.is_ok());
        }
    }

    #[test]
    fn a_key_gives_out_what_it_has_itself() {
        use ActorKind::{Agent, Human};
        let policy = user(Scopes::All, Some("fs:ro ports"));
        let rows = [
            (Role::User, Human, Capability::FsRead, true),
            (Role::User, Human, Capability::FsWrite, false),
            (Role::User, Human, Capability::Ports, true),
            (Role::User, Agent, Capability::Ports, true),
            (Role::Admin, Human, Capability::Shell, true),
            (Role::Admin, Agent, Capability::Shell, false),
            (Role::Broker, Human, Capability::FsWrite, true),
        ];
        for (role, kind, needed, expected) in rows {
            let actor = Actor { kind, id: "ada".to_owned() };
            let holder = Holder { policy: &policy, role, key: "key_1", actor: &actor };
            let expected = if expected { Ok(()) } else { Err(Lacks(needed)) };
            assert_eq!(holder.gives(needed), expected, "{role:?} {kind:?} {needed}");
        }
    }
}
