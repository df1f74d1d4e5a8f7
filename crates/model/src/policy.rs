//! What keys may do and have, as the operator sets it: pure decisions over values.
//!
//! Every bound narrows. What somebody gets is what he asks for, as far as the kind of the actor, the
//! kind of the key's own actor and the role of the key all allow it.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    actor::{Actor, ActorKind},
    capability::{self, Asked, Capabilities, NothingGranted},
    token::Lifetime,
};

/// What the holder of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Admin,
    Broker,
    User,
}

impl Role {
    /// Says whether keys of this role act for others than their own actors.
    pub const fn acts_for_others(self) -> bool {
        match self {
            Self::Admin | Self::Broker => true,
            Self::User => false,
        }
    }
}

/// Everything that an operator can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub human: Capabilities,
    pub agent: Capabilities,
    pub admin: Rule,
    pub broker: Rule,
    pub user: Rule,
    /// How long tokens of threads, exchanged tokens and those of admins are valid: the default, and the maximum.
    pub token_ttl: Lifetime,
    /// How long tokens of sessions are valid.
    pub session_ttl: Lifetime,
    /// Those of tenants that have none of their own.
    pub quotas: Quotas,
    pub tenants: BTreeMap<String, Quotas>,
}

/// What keys of a role may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The most that they have; without it, what the kind of the actor has.
    pub capabilities: Option<Capabilities>,
    pub scopes: Scopes,
}

/// Which scopes of its tenant a key reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scopes {
    All,
    /// Those that it has created itself.
    Own,
    These(Vec<Pattern>),
}

/// Scopes of a type, or of all, whose ids begin with a text, or are it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    kind: Option<String>,
    id: String,
    is_beginning: bool,
}

/// How much of everything a tenant has at once. What is not said has no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Sandboxes that have not come to their end.
    pub sandboxes: Option<u32>,
    /// Executions that wait or run.
    pub executions: Option<u32>,
    /// Requests with one key, and with the tokens that were given out with it.
    pub requests_per_second: Option<u32>,
}

/// A tenant has all that it may have. Less is possible when something of it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    #[error("the tenant has {0} sandboxes, which is all that it may have; delete some first")]
    Sandboxes(u32),
    #[error("the tenant has {0} executions, which is all that it may have; wait for some to end")]
    Executions(u32),
}

/// A key acts for nobody but its own actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key of this role acts for nobody but its own actor")]
pub struct NotYourself;

/// No token lives so long or so short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token is valid for {} to {most} seconds", Lifetime::SHORTEST.as_secs())]
pub struct TtlError {
    most: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no pattern of scopes; one is like \"thread:*\", \"workspace:team-*\" or \"*\"")]
pub struct PatternError(String);

impl Default for Policy {
    fn default() -> Self {
        let rule = Rule { capabilities: None, scopes: Scopes::All };
        Self {
            human: Capabilities::usual(ActorKind::Human),
            agent: Capabilities::usual(ActorKind::Agent),
            admin: rule.clone(),
            broker: rule.clone(),
            user: rule,
            token_ttl: Lifetime::USUAL,
            session_ttl: Lifetime::USUAL_OF_SESSION,
            quotas: Quotas::default(),
            tenants: BTreeMap::new(),
        }
    }
}

/// The tenant that is there without being made. Its admins are those of the whole server.
pub const SERVER_TENANT: &str = "default";

impl Policy {
    /// Decides whether a key manages the whole server.
    pub fn operates(role: Role, own: &str) -> bool {
        role == Role::Admin && own == SERVER_TENANT
    }

    /// Decides whether a key manages the keys of a tenant, and reads what was done with them.
    pub fn manages(role: Role, own: &str, tenant: &str) -> bool {
        role == Role::Admin && (own == tenant || Self::operates(role, own))
    }

    fn rule(&self, role: Role) -> &Rule {
        match role {
            Role::Admin => &self.admin,
            Role::Broker => &self.broker,
            Role::User => &self.user,
        }
    }

    const fn of_kind(&self, kind: ActorKind) -> Capabilities {
        match kind {
            ActorKind::Human => self.human,
            ActorKind::Agent => self.agent,
        }
    }

    /// Returns the most that a key has when it acts for an actor of this kind. Nobody gains by acting
    /// for another.
    pub fn bound(&self, role: Role, own: ActorKind, acts_for: ActorKind) -> Capabilities {
        let both = self.of_kind(own).narrowed_to(self.of_kind(acts_for));
        match self.rule(role).capabilities {
            Some(most) => both.narrowed_to(most),
            None => both,
        }
    }

    /// Decides what a key gets of what is asked for. Who asks for nothing in particular gets all that
    /// there is, who asks for nothing at all gets nothing.
    pub fn grant(
        &self,
        role: Role,
        own: ActorKind,
        acts_for: ActorKind,
        asked: Option<&Asked>,
    ) -> Result<Capabilities, NothingGranted> {
        capability::grant(asked, self.bound(role, own, acts_for))
    }

    /// Decides whether a key may act for somebody.
    pub fn act_for(role: Role, own: &Actor, other: &Actor) -> Result<(), NotYourself> {
        if role.acts_for_others() || own == other { Ok(()) } else { Err(NotYourself) }
    }

    /// Says whether keys of this role reach every scope of their tenant, whoever has created it.
    pub(crate) fn reaches_all(&self, role: Role) -> bool {
        self.rule(role).scopes == Scopes::All
    }

    /// Decides whether a key reaches a scope of its own tenant. One that nobody has created yet is
    /// anybody's own.
    pub(crate) fn reaches(
        &self,
        role: Role,
        key: &str,
        scope: (&str, &str),
        creator: Option<&str>,
    ) -> bool {
        match &self.rule(role).scopes {
            Scopes::All => true,
            Scopes::Own => creator.is_none_or(|creator| creator == key),
            Scopes::These(patterns) => patterns.iter().any(|pattern| pattern.matches(scope)),
        }
    }

    /// Decides how long a token is good for. More than is allowed is refused and not cut: nobody is to
    /// find out later that his token ended before he thought.
    pub fn lifetime(&self, asked: Option<u64>) -> Result<Lifetime, TtlError> {
        let most = self.token_ttl.length().as_secs();
        match asked {
            None => Ok(self.token_ttl),
            Some(asked) if asked > most => Err(TtlError { most }),
            Some(asked) => Lifetime::seconds(asked).map_err(|_too_short| TtlError { most }),
        }
    }

    /// Tells whether any tenant has a bound of requests.
    pub fn bounds_requests(&self) -> bool {
        let all = self.tenants.values().chain([&self.quotas]);
        all.into_iter().any(|quotas| quotas.requests_per_second.is_some())
    }

    pub fn quotas(&self, tenant: &str) -> Quotas {
        self.tenants.get(tenant).copied().unwrap_or(self.quotas)
    }
}

impl Pattern {
    /// Reads `TYPE:ID` or `*`, where the id may end with a star.
    pub fn read(text: &str) -> Result<Self, PatternError> {
        let wrong = || PatternError(text.to_owned());
        let (kind, id) = match text {
            "*" => (None, "*"),
            _ => text.split_once(':').map(|(kind, id)| (Some(kind), id)).ok_or_else(wrong)?,
        };
        let kind = match kind {
            None | Some("*") => None,
            Some(kind) if ["thread", "workspace", "assistant", "deployment"].contains(&kind) => {
                Some(kind.to_owned())
            }
            Some(_) => return Err(wrong()),
        };
        let (id, is_beginning) = match id.strip_suffix('*') {
            Some(beginning) => (beginning, true),
            None => (id, false),
        };
        if id.contains('*') || (id.is_empty() && !is_beginning) {
            return Err(wrong());
        }
        Ok(Self { kind, id: id.to_owned(), is_beginning })
    }

    fn matches(&self, (kind, id): (&str, &str)) -> bool {
        let is_id = if self.is_beginning { id.starts_with(&self.id) } else { id == self.id };
        is_id && self.kind.as_deref().is_none_or(|own| own == kind)
    }
}

impl Quotas {
    /// Decides whether there may be one more besides so many.
    pub fn admit_sandbox(self, there_are: usize) -> Result<(), QuotaError> {
        is_below(self.sandboxes, there_are).map_err(QuotaError::Sandboxes)
    }

    /// Decides whether there may be one more besides so many.
    pub fn admit_execution(self, there_are: usize) -> Result<(), QuotaError> {
        is_below(self.executions, there_are).map_err(QuotaError::Executions)
    }
}

fn is_below(most: Option<u32>, there_are: usize) -> Result<(), u32> {
    match (most, u32::try_from(there_are)) {
        (Some(most), Ok(there_are)) if there_are < most => Ok(()),
        (Some(_), there_are) => Err(there_are.unwrap_or(u32::MAX)),
        (None, _) => Ok(()),
    }
}

/// What is left of the requests of a second: as many as may come at once, refilled steadily.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// In thousandths of a request.
    left: u64,
    /// When it was looked at last, since some beginning.
    at: Duration,
}

impl Bucket {
    /// A full one, whatever its size: it is cut to that when it is first taken from.
    pub const FULL: Self = Self { left: u64::MAX, at: Duration::ZERO };

    /// Takes one request, or says how long to wait for it.
    pub fn take(&mut self, now: Duration, per_second: u32) -> Result<(), Duration> {
        self.left = self.refilled(now, per_second);
        self.at = self.at.max(now);
        if let Some(left) = self.left.checked_sub(Self::ONE) {
            self.left = left;
            return Ok(());
        }
        let missing = Self::ONE.saturating_sub(self.left);
        Err(Duration::from_millis(missing.div_ceil(u64::from(per_second.max(1)))))
    }

    /// Tells whether it is as if nothing had been taken.
    pub fn is_full(&self, now: Duration, per_second: u32) -> bool {
        self.refilled(now, per_second) >= Self::size(per_second)
    }

    const ONE: u64 = 1000;

    fn size(per_second: u32) -> u64 {
        u64::from(per_second.max(1)).saturating_mul(Self::ONE)
    }

    fn refilled(&self, now: Duration, per_second: u32) -> u64 {
        let passed = u64::try_from(now.saturating_sub(self.at).as_millis()).unwrap_or(u64::MAX);
        let refill = passed.saturating_mul(u64::from(per_second.max(1)));
        self.left.saturating_add(refill).min(Self::size(per_second))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(scope: &str) -> Capabilities {
        Asked::scope(scope).unwrap().capabilities()
    }

    fn policy() -> Policy {
        let user = Rule { capabilities: Some(set("fs:ro process shell")), scopes: Scopes::Own };
        Policy { user, ..Policy::default() }
    }

    #[test]
    fn what_is_granted_is_asked_for_and_allowed_by_kind_and_role() {
        use ActorKind::{Agent, Human};
        let rows = [
            (Role::Admin, Human, Human, None, Ok("fs:rw process shell ports snapshot")),
            (Role::Admin, Human, Agent, None, Ok("fs:rw process ports")),
            (Role::Broker, Agent, Human, None, Ok("fs:rw process ports")),
            (Role::User, Human, Human, None, Ok("fs:ro process shell")),
            (Role::User, Agent, Agent, None, Ok("fs:ro process")),
            (Role::User, Human, Human, Some(""), Ok("")),
            (Role::User, Human, Human, Some("fs:rw"), Ok("fs:ro")),
            (Role::User, Human, Human, Some("upload exec ports"), Ok("fs:ro process")),
            (Role::User, Human, Human, Some("ports snapshot"), Err(())),
            (Role::User, Agent, Agent, Some("shell"), Err(())),
        ];
        for (role, own, acts_for, asked, expected) in rows {
            let read = asked.map(|text| Asked::scope(text).unwrap());
            let granted = policy().grant(role, own, acts_for, read.as_ref());
            let granted = granted.map(|granted| granted.to_string()).map_err(drop);
            let expected = expected.map(str::to_owned);
            assert_eq!(granted, expected, "{role:?} {own:?} {acts_for:?} {asked:?}");
        }
    }

    #[test]
    fn admins_manage_their_tenant_and_those_of_the_server_every_one() {
        let rows = [
            (Role::Admin, "default", "default", true),
            (Role::Admin, "default", "theirs", true),
            (Role::Admin, "theirs", "theirs", true),
            (Role::Admin, "theirs", "default", false),
            (Role::Admin, "theirs", "others", false),
            (Role::Broker, "default", "default", false),
            (Role::User, "theirs", "theirs", false),
        ];
        for (role, own, tenant, expected) in rows {
            assert_eq!(Policy::manages(role, own, tenant), expected, "{role:?} {own} {tenant}");
        }
        assert!(Policy::operates(Role::Admin, "default"));
        assert!(!Policy::operates(Role::Admin, "theirs"));
        assert!(!Policy::operates(Role::Broker, "default"));
    }

    #[test]
    fn brokers_and_admins_act_for_others_and_users_for_themselves() {
        let actor = |id: &str| Actor { kind: ActorKind::Human, id: id.to_owned() };
        for (role, other, expected) in [
            (Role::Admin, "eve", Ok(())),
            (Role::Broker, "eve", Ok(())),
            (Role::User, "ada", Ok(())),
            (Role::User, "eve", Err(NotYourself)),
        ] {
            assert_eq!(Policy::act_for(role, &actor("ada"), &actor(other)), expected);
        }
        let robot = Actor { kind: ActorKind::Agent, id: "ada".to_owned() };
        assert_eq!(Policy::act_for(Role::User, &actor("ada"), &robot), Err(NotYourself));
    }

    #[test]
    fn keys_reach_the_scopes_that_their_role_may() {
        let with = |scopes| {
            let user = Rule { capabilities: None, scopes };
            Policy { user, ..Policy::default() }
        };
        let patterns = ["thread:*", "workspace:team-*", "assistant:exactly"];
        let patterns = patterns.map(|text| Pattern::read(text).unwrap()).into();
        let (these, own, none) =
            (with(Scopes::These(patterns)), with(Scopes::Own), with(Scopes::These(vec![])));
        let rows = [
            (&these, ("thread", "t-1"), None, true),
            (&these, ("workspace", "team-a"), Some("key_2"), true),
            (&these, ("workspace", "other"), None, false),
            (&these, ("assistant", "exactly"), None, true),
            (&these, ("assistant", "exactly-not"), None, false),
            (&these, ("deployment", "d"), Some("key_1"), false),
            (&own, ("thread", "t-1"), None, true),
            (&own, ("thread", "t-1"), Some("key_1"), true),
            (&own, ("thread", "t-1"), Some("key_2"), false),
            (&none, ("thread", "t-1"), Some("key_1"), false),
            (&Policy::default(), ("thread", "t-1"), Some("key_2"), true),
        ];
        for (policy, scope, creator, expected) in rows {
            assert_eq!(policy.reaches(Role::User, "key_1", scope, creator), expected, "{scope:?}");
        }
        assert!(own.reaches(Role::Broker, "key_1", ("thread", "t"), Some("key_2")));
        assert!(Pattern::read("*").unwrap().matches(("deployment", "anything")));
        for wrong in ["", "thread", "thread:", "room:*", "thread:a*b", "thread:**"] {
            assert!(Pattern::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tokens_live_no_longer_than_is_allowed() {
        let policy = Policy { token_ttl: Lifetime::seconds(600).unwrap(), ..Policy::default() };
        let seconds = |seconds| Ok(Lifetime::seconds(seconds).unwrap());
        assert_eq!(policy.lifetime(None), seconds(600));
        assert_eq!(policy.lifetime(Some(300)), seconds(300));
        for refused in [0, 299, 601, 900, 901, u64::MAX] {
            assert_eq!(policy.lifetime(Some(refused)), Err(TtlError { most: 600 }), "{refused}");
        }
        assert_eq!(Policy::default().lifetime(Some(900)), seconds(900));
    }

    #[test]
    fn a_tenant_has_what_it_may_have_and_no_more() {
        let own = Quotas { sandboxes: Some(2), executions: Some(0), ..Quotas::default() };
        let tenants = BTreeMap::from([("acme".to_owned(), own)]);
        let policy = Policy { tenants, ..Policy::default() };
        assert_eq!(policy.quotas("acme").admit_sandbox(1), Ok(()));
        assert_eq!(policy.quotas("acme").admit_sandbox(2), Err(QuotaError::Sandboxes(2)));
        assert_eq!(policy.quotas("acme").admit_execution(0), Err(QuotaError::Executions(0)));
        assert_eq!(policy.quotas("other").admit_sandbox(usize::MAX), Ok(()));
    }

    #[test]
    fn requests_come_as_fast_as_they_may_and_then_wait() {
        let mut bucket = Bucket::FULL;
        let at = Duration::from_millis;
        for _ in 0..5 {
            assert_eq!(bucket.take(at(1000), 5), Ok(()));
        }
        assert_eq!(bucket.take(at(1000), 5), Err(at(200)));
        assert_eq!(bucket.take(at(1100), 5), Err(at(100)));
        assert_eq!(bucket.take(at(1200), 5), Ok(()));
        // A clock that goes back gives nothing.
        assert!(bucket.take(at(0), 5).is_err());
        for _ in 0..5 {
            assert_eq!(bucket.take(at(60_000), 5), Ok(()));
        }
        assert!(bucket.take(at(60_000), 5).is_err());
    }

    proptest! {
        #[test]
        fn no_grant_is_more_than_is_asked_for_or_allowed(
            human in 0_usize..128, role in 0_usize..128, asked in 0_usize..128,
        ) {
            use capability::Capability;
            let chosen = |bits: usize| -> Capabilities {
                let all = Capability::ALL.into_iter().enumerate();
                all.filter(|(place, _)| bits >> place & 1 == 1).map(|(_, it)| it).collect()
            };
            let (human, role, asked) = (chosen(human), chosen(role), chosen(asked));
            let user = Rule { capabilities: Some(role), scopes: Scopes::All };
            let policy = Policy { human, user, ..Policy::default() };
            let wanted = Asked::scope(&asked.to_string()).unwrap();
            let own = ActorKind::Human;
            if let Ok(granted) = policy.grant(Role::User, own, own, Some(&wanted)) {
                for capability in Capability::ALL {
                    let may = human.allows(capability) && role.allows(capability);
                    prop_assert_eq!(granted.allows(capability), may && asked.allows(capability));
                }
            }
        }
    }
}
