//! What a token says, and whether that holds now, here, for this sandbox.
//!
//! Signing and reading tokens is the daemon's. By the time that claims come here they are genuine.

use std::time::Duration;

use crate::{
    actor::Actor,
    capability::{Asked, Capabilities},
    ids::SandboxId,
    reach::Reach,
    units::Timestamp,
};

/// A token is good for so long after its end, and so long before its beginning: clocks differ.
pub const LEEWAY: Duration = Duration::from_secs(5);

/// For so long who asks for the same gets the token that he has: a tenth of the shortest life.
pub const GIVEN_AGAIN: Duration = Duration::from_secs(30);

/// Counts the sandboxes that a scope has had; a token for an earlier one is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl Generation {
    pub const FIRST: Self = Self(1);

    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Counts the keys that a sandbox has had; what was signed with an earlier one is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    pub const FIRST: Self = Self(1);
}

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Names this token in logs, and to revoke it: `jti`.
    pub id: String,
    /// On whose behalf: `sub`.
    pub actor: Actor,
    /// The key that asked for it: `act`.
    pub key: String,
    /// The one sandbox that it is for: `aud`.
    pub sandbox: SandboxId,
    pub capabilities: Capabilities,
    pub reach: Reach,
    /// The conversation that it belongs to, if it does: `thread_id`.
    pub thread: Option<String>,
    pub generation: Generation,
    /// To the second: `iat`.
    pub issued_at: Timestamp,
    /// To the second: `exp`.
    pub expires_at: Timestamp,
    /// The tokens that it was made of, the first one first: it ends with each of them. `parents`.
    pub parents: Vec<String>,
}

/// Why a genuine token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    #[error("the token is for another sandbox")]
    OtherSandbox,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
    /// It was given out for longer than any token is.
    #[error("the token is valid for too long")]
    TooLong,
    #[error("the token is for a sandbox that was replaced")]
    StaleGeneration,
}

impl Claims {
    /// Checks the claims for a request to this sandbox. That it was replaced is only said to
    /// somebody whose token is good otherwise.
    pub fn check(
        &self,
        now: Timestamp,
        sandbox: &SandboxId,
        generation: Generation,
    ) -> Result<(), TokenRefusal> {
        let (issued, expires) = (self.issued_at.as_millis(), self.expires_at.as_millis());
        let leeway = millis(LEEWAY);
        if self.sandbox != *sandbox {
            return Err(TokenRefusal::OtherSandbox);
        }
        if expires.saturating_sub(issued) > millis(Lifetime::LONGEST) || issued >= expires {
            return Err(TokenRefusal::TooLong);
        }
        if now.as_millis().saturating_add(leeway) < issued {
            return Err(TokenRefusal::NotYet);
        }
        if now.as_millis().saturating_sub(leeway) > expires {
            return Err(TokenRefusal::Expired);
        }
        if self.generation != generation {
            return Err(TokenRefusal::StaleGeneration);
        }
        Ok(())
    }
}

/// What the holder of a token wants another for: less than he has.
#[derive(Clone, Debug, Default)]
pub struct Narrowing {
    /// Without it, all that the token has.
    pub asked: Option<Asked>,
    /// Everywhere means as far as the token reaches.
    pub reach: Reach,
    /// Without it, until the token ends.
    pub ttl: Option<Duration>,
}

/// Why a token is not made of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WiderThanParent {
    #[error("the token has \"{held}\" and can be narrowed to less, not to more")]
    Scope { held: Capabilities },
    #[error("a path is not below those of the token")]
    Reach,
    #[error("the token ends in {left} seconds; ask for 1 to so many")]
    Life { left: u64 },
    #[error("a token is made of another {MOST_PARENTS} times at most")]
    Depth,
}

/// How often a token can be made of one that was made of another.
pub const MOST_PARENTS: usize = 8;

impl Claims {
    /// Returns the claims of a token that the holder of this one makes of it: for the same actor and
    /// sandbox, never wider, never longer. What would be more is refused, not cut to size, so that
    /// nobody believes to have what he has not.
    pub fn narrowed(
        &self,
        id: String,
        narrowing: Narrowing,
        now: Timestamp,
    ) -> Result<Self, WiderThanParent> {
        if self.parents.len() >= MOST_PARENTS {
            return Err(WiderThanParent::Depth);
        }
        let capabilities = match &narrowing.asked {
            None => self.capabilities,
            Some(asked) => asked.capabilities(),
        };
        if capabilities.narrowed_to(self.capabilities) != capabilities {
            return Err(WiderThanParent::Scope { held: self.capabilities });
        }
        let reach = match narrowing.reach {
            Reach::Everywhere => self.reach.clone(),
            wanted @ Reach::Below(_) if wanted.is_within(&self.reach) => wanted,
            Reach::Below(_) => return Err(WiderThanParent::Reach),
        };
        let issued_at = whole_second(now).max(self.issued_at);
        let left = self.expires_at.since(issued_at);
        let life = narrowing.ttl.unwrap_or(left);
        if life > left || life < Duration::from_secs(1) {
            return Err(WiderThanParent::Life { left: left.as_secs() });
        }
        Ok(Self {
            id,
            capabilities,
            reach,
            issued_at,
            expires_at: issued_at.plus(life),
            parents: self.parents.iter().chain([&self.id]).cloned().collect(),
            ..self.clone()
        })
    }

    /// Tells whether this token will do for somebody who would be given this other one now: it says the same,
    /// and he hardly has it.
    pub fn serves_as(&self, wanted: &Self) -> bool {
        let is_young = self.issued_at <= wanted.issued_at
            && wanted.issued_at.since(self.issued_at) < GIVEN_AGAIN;
        let lives_as_long =
            self.expires_at.since(self.issued_at) == wanted.expires_at.since(wanted.issued_at);
        let Self { id, issued_at, expires_at, .. } = self.clone();
        let says_the_same = *self == Self { id, issued_at, expires_at, ..wanted.clone() };
        is_young && lives_as_long && says_the_same
    }

    /// Tells whether streams of this token may go on with another one: it lets its holder do all that
    /// this one does.
    pub fn is_succeeded_by(&self, other: &Self) -> bool {
        let holds_all = self.capabilities.narrowed_to(other.capabilities) == self.capabilities;
        let is_same = (&self.sandbox, &self.actor, self.generation)
            == (&other.sandbox, &other.actor, other.generation);
        is_same && holds_all && self.reach.is_within(&other.reach)
    }
}

fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_millis(time.as_millis() - time.as_millis().rem_euclid(1000))
}

/// How long a token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime(Duration);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a token is valid for {} to {} seconds",
    Lifetime::SHORTEST.as_secs(),
    Lifetime::LONGEST.as_secs()
)]
pub struct LifetimeError;

impl Lifetime {
    pub const SHORTEST: Duration = Duration::from_mins(5);
    /// The longest of any token: those of sessions.
    pub const LONGEST: Duration = Duration::from_hours(1);
    /// The longest of tokens that are not of a session: of threads, exchanged, or minted by an admin.
    pub const LONGEST_OTHER: Duration = Duration::from_mins(15);
    pub const USUAL: Self = Self(Self::LONGEST_OTHER);
    pub const USUAL_OF_SESSION: Self = Self(Duration::from_mins(30));

    /// Reads what somebody asks for. What is out of bounds is refused: nobody is to find out later
    /// that his token ended before he thought.
    pub fn seconds(seconds: u64) -> Result<Self, LifetimeError> {
        let asked = Duration::from_secs(seconds);
        if (Self::SHORTEST..=Self::LONGEST).contains(&asked) {
            Ok(Self(asked))
        } else {
            Err(LifetimeError)
        }
    }

    pub const fn length(self) -> Duration {
        self.0
    }

    /// Returns beginning and end of a token that is made now, to the second.
    pub fn from(self, now: Timestamp) -> (Timestamp, Timestamp) {
        let issued = whole_second(now);
        (issued, issued.plus(self.0))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::actor::ActorKind;

    const NOW: i64 = 1_800_000_000_000;

    fn claims(issued: i64, expires: i64) -> Claims {
        Claims {
            id: "tok_1".to_owned(),
            actor: Actor { kind: ActorKind::Human, id: "ada".to_owned() },
            key: "key_1".to_owned(),
            sandbox: SandboxId::from_random([1; 16]),
            capabilities: Capabilities::NONE,
            reach: Reach::Everywhere,
            thread: None,
            generation: Generation(2),
            issued_at: Timestamp::from_millis(NOW + issued * 1000),
            expires_at: Timestamp::from_millis(NOW + expires * 1000),
            parents: Vec::new(),
        }
    }

    fn check(claims: &Claims) -> Result<(), TokenRefusal> {
        let sandbox = SandboxId::from_random([1; 16]);
        claims.check(Timestamp::from_millis(NOW), &sandbox, Generation(2))
    }

    #[test]
    fn j07_to_j09_a_token_is_good_from_its_beginning_to_its_end_and_five_seconds_around() {
        let rows = [
            (0, 900, Ok(())),
            (0, 3600, Ok(())),
            (-600, 300, Ok(())),
            (-900, 0, Ok(())),
            (-900, -4, Ok(())),
            (-900, -5, Ok(())),
            (-900, -6, Err(TokenRefusal::Expired)),
            (-3000, -2100, Err(TokenRefusal::Expired)),
            (5, 300, Ok(())),
            (6, 300, Err(TokenRefusal::NotYet)),
            (0, 3601, Err(TokenRefusal::TooLong)),
            (0, i64::MAX / 4000, Err(TokenRefusal::TooLong)),
            (10, 10, Err(TokenRefusal::TooLong)),
            (10, -10, Err(TokenRefusal::TooLong)),
        ];
        for (issued, expires, expected) in rows {
            assert_eq!(check(&claims(issued, expires)), expected, "{issued} {expires}");
        }
        let extreme = Claims {
            issued_at: Timestamp::from_millis(i64::MIN),
            expires_at: Timestamp::from_millis(i64::MAX),
            ..claims(0, 1)
        };
        assert_eq!(check(&extreme), Err(TokenRefusal::TooLong));
    }

    #[test]
    fn a_stale_generation_is_only_told_to_whoever_has_a_good_token() {
        let stale = |claims: Claims| Claims { generation: Generation(1), ..claims };
        let elsewhere = |claims: Claims| {
            let sandbox = SandboxId::from_random([2; 16]);
            Claims { sandbox, ..claims }
        };
        let rows = [
            (stale(claims(0, 300)), TokenRefusal::StaleGeneration),
            (stale(claims(-900, -60)), TokenRefusal::Expired),
            (stale(elsewhere(claims(0, 300))), TokenRefusal::OtherSandbox),
            (elsewhere(claims(-900, -60)), TokenRefusal::OtherSandbox),
            (Claims { generation: Generation(3), ..claims(0, 9) }, TokenRefusal::StaleGeneration),
        ];
        for (claims, expected) in rows {
            assert_eq!(check(&claims), Err(expected), "{claims:?}");
        }
    }

    #[test]
    fn a_token_serves_as_another_that_says_the_same_while_it_is_young() {
        let wanted = || Claims { id: String::new(), ..claims(0, 300) };
        let actor = Actor { kind: ActorKind::Agent, id: "ada".to_owned() };
        let rows = [
            (claims(0, 300), true),
            (claims(-29, 271), true),
            (claims(-30, 270), false),
            // Clocks may be set back.
            (claims(1, 301), false),
            // It ends sooner, or later, than what would be given out.
            (claims(0, 299), false),
            (claims(0, 900), false),
            (Claims { actor, ..claims(0, 300) }, false),
            (Claims { key: "key_2".to_owned(), ..claims(0, 300) }, false),
            (Claims { sandbox: SandboxId::from_random([2; 16]), ..claims(0, 300) }, false),
            (Claims { capabilities: Capabilities::of_scope("fs:ro"), ..claims(0, 300) }, false),
            (Claims { reach: Reach::below(["/a"]).unwrap(), ..claims(0, 300) }, false),
            (Claims { thread: Some("t".to_owned()), ..claims(0, 300) }, false),
            (Claims { generation: Generation(1), ..claims(0, 300) }, false),
            (Claims { parents: vec!["tok_0".to_owned()], ..claims(0, 300) }, false),
        ];
        for (given, expected) in rows {
            assert_eq!(given.serves_as(&wanted()), expected, "{given:?}");
        }
    }

    #[test]
    fn tokens_live_for_five_to_sixty_minutes() {
        for bad in [0, 1, 299, 3601, u64::MAX] {
            assert_eq!(Lifetime::seconds(bad), Err(LifetimeError), "{bad}");
        }
        for good in [300, 600, 900, 3600] {
            let (issued, expires) =
                Lifetime::seconds(good).unwrap().from(Timestamp::from_millis(NOW + 999));
            assert_eq!(issued.as_millis(), NOW);
            assert_eq!(u64::try_from(expires.as_millis() - NOW).unwrap(), good * 1000);
        }
        assert_eq!(Lifetime::seconds(900), Ok(Lifetime::USUAL));
    }

    #[test]
    fn j13_what_would_be_more_than_its_parent_is_refused() {
        let parent = Claims {
            capabilities: Capabilities::of_scope("fs:rw process"),
            reach: Reach::below(["/a", "/b/c"]).unwrap(),
            ..claims(-300, 600)
        };
        let of = |scope: Option<&str>, paths: &[&str], ttl: Option<u64>| Narrowing {
            asked: scope.map(|scope| Asked::scope(scope).unwrap()),
            reach: if paths.is_empty() { Reach::Everywhere } else { Reach::below(paths).unwrap() },
            ttl: ttl.map(Duration::from_secs),
        };
        let scope = WiderThanParent::Scope { held: parent.capabilities };
        let life = WiderThanParent::Life { left: 600 };
        let rows = [
            (of(None, &[], None), Ok("fs:rw process")),
            (of(Some("fs_read"), &["/a/x", "/b/c"], Some(1)), Ok("fs:ro")),
            (of(Some(""), &[], Some(600)), Ok("")),
            (of(Some("fs:rw shell"), &[], None), Err(scope)),
            (of(Some("shell:ro"), &[], None), Err(scope)),
            (of(None, &["/b"], None), Err(WiderThanParent::Reach)),
            (of(None, &["/a", "/"], None), Err(WiderThanParent::Reach)),
            (of(None, &["/ab"], None), Err(WiderThanParent::Reach)),
            (of(None, &[], Some(601)), Err(life)),
            (of(None, &[], Some(0)), Err(life)),
            (of(None, &[], Some(u64::MAX)), Err(life)),
        ];
        let now = Timestamp::from_millis(NOW + 1);
        for (narrowing, expected) in rows {
            let text = format!("{narrowing:?}");
            let made = parent.narrowed("tok_2".to_owned(), narrowing, now);
            let scope = made.as_ref().map(|it| it.capabilities.to_string()).map_err(|it| *it);
            assert_eq!(scope, expected.map(str::to_owned), "{text}");
        }
        let mut last = parent;
        for depth in 0..MOST_PARENTS {
            let child = last.narrowed(format!("tok_{depth}x"), Narrowing::default(), now).unwrap();
            assert_eq!(child.parents.last(), Some(&last.id));
            last = child;
        }
        let refused = last.narrowed("tok_9".to_owned(), Narrowing::default(), now);
        assert_eq!(refused, Err(WiderThanParent::Depth));
    }

    #[test]
    fn streams_go_on_with_a_token_that_lets_them_do_as_much() {
        let old = Claims {
            capabilities: Capabilities::of_scope("fs:ro shell"),
            reach: Reach::below(["/a/b"]).unwrap(),
            ..claims(-300, 600)
        };
        let new = Claims { id: "tok_2".to_owned(), ..old.clone() };
        let with =
            |scope: &str| Claims { capabilities: Capabilities::of_scope(scope), ..new.clone() };
        let below = |path: &str| Claims { reach: Reach::below([path]).unwrap(), ..new.clone() };
        let somebody = Actor { kind: ActorKind::Human, id: "eve".to_owned() };
        let rows = [
            (new.clone(), true),
            (with("fs:rw shell ports"), true),
            (below("/a"), true),
            (with("fs:ro shell:ro"), false),
            (below("/a/b/c"), false),
            (Claims { actor: somebody, ..new.clone() }, false),
            (Claims { generation: Generation(3), ..new.clone() }, false),
        ];
        for (new, expected) in rows {
            assert_eq!(old.is_succeeded_by(&new), expected, "{new:?}");
        }
    }

    fn scope() -> impl Strategy<Value = String> {
        let names = ["fs:ro", "fs:rw", "process", "shell", "shell:ro", "ports", "snapshot"];
        proptest::collection::vec(proptest::sample::select(names.to_vec()), 0..4)
            .prop_map(|names| names.join(" "))
    }

    fn folders() -> impl Strategy<Value = Reach> {
        let part = proptest::sample::select(vec!["a", "b", "ab"]);
        let path =
            proptest::collection::vec(part, 0..4).prop_map(|it| format!("/{}", it.join("/")));
        proptest::collection::vec(path, 0..3)
            .prop_map(|paths| Reach::below(paths).unwrap_or(Reach::Everywhere))
    }

    fn narrowing() -> impl Strategy<Value = Narrowing> {
        let asked = proptest::option::of(scope());
        (asked, folders(), proptest::option::of(0..1000_u64)).prop_map(|(asked, reach, ttl)| {
            let asked = asked.map(|asked| Asked::scope(&asked).unwrap());
            Narrowing { asked, reach, ttl: ttl.map(Duration::from_secs) }
        })
    }

    proptest! {
        #[test]
        fn a_token_made_of_another_never_has_more(
            held in scope(), reach in folders(), begun in -900..0_i64,
            steps in proptest::collection::vec((narrowing(), 0..600_000_i64), 1..4),
            path in proptest::collection::vec(proptest::sample::select(vec!["a", "b", "ab"]), 0..5),
            at in -1_000_000..2_000_000_i64,
        ) {
            let capabilities = Capabilities::of_scope(&held);
            let mut parent = Claims { capabilities, reach, ..claims(begun, begun + 900) };
            let path = format!("/{}", path.join("/"));
            let at = Timestamp::from_millis(NOW + at);
            for (number, (narrowing, later)) in steps.into_iter().enumerate() {
                let now = Timestamp::from_millis(NOW + later);
                let Ok(child) = parent.narrowed(format!("tok_x{number}"), narrowing, now) else {
                    continue;
                };
                for capability in crate::capability::Capability::ALL {
                    prop_assert!(
                        !child.capabilities.allows(capability)
                            || parent.capabilities.allows(capability)
                    );
                }
                let (inner, outer) = (&child.reach, &parent.reach);
                prop_assert!(!inner.contains(path.as_bytes()) || outer.contains(path.as_bytes()));
                let good = |claims: &Claims| claims.check(at, &claims.sandbox, Generation(2)).is_ok();
                prop_assert!(!good(&child) || good(&parent), "{child:?} {parent:?}");
                prop_assert_eq!(
                    (&child.sandbox, &child.actor, &child.key, &child.thread, child.generation),
                    (&parent.sandbox, &parent.actor, &parent.key, &parent.thread, parent.generation)
                );
                prop_assert!(child.parents.contains(&parent.id));
                prop_assert!(parent.parents.iter().all(|id| child.parents.contains(id)));
                parent = child;
            }
        }
    }
}
