//! Tokens that end before their time: which do, from when on, and what their streams go on with.
//!
//! All of it is about one sandbox, but for [`EndedKeys`]. What ends every token of a sandbox is its
//! key's [`Epoch`].

use std::{collections::HashMap, time::Duration};

use crate::{
    actor::Actor,
    ids::SandboxId,
    token::{Claims, Epoch, LEEWAY, Lifetime},
    units::Timestamp,
};

/// Which tokens of a sandbox end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The one of this id, and those that were made of it.
    Token(String),
    /// All of this actor that were given out up to the end.
    Actor(Actor),
}

/// A token that takes over the streams of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Successor {
    pub id: String,
    pub expires_at: Timestamp,
}

/// Says that tokens end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    pub sandbox: SandboxId,
    pub subject: Subject,
    /// From when on they are worth nothing.
    pub ends_at: Timestamp,
    /// When they would have ended by themselves, so that this need not be known any more.
    pub keep_until: Timestamp,
    pub successor: Option<Successor>,
}

impl Revocation {
    /// Ends one token, of which nothing but its id may be known.
    pub fn of_token(sandbox: &SandboxId, id: &str, now: Timestamp) -> Self {
        Self {
            sandbox: sandbox.clone(),
            subject: Subject::Token(id.to_owned()),
            ends_at: now,
            keep_until: longest_after(now),
            successor: None,
        }
    }

    /// Ends all tokens that an actor has now.
    pub fn of_actor(sandbox: &SandboxId, actor: &Actor, now: Timestamp) -> Self {
        let subject = Subject::Actor(actor.clone());
        Self { subject, ..Self::of_token(sandbox, "", now) }
    }

    /// Ends a token after a while, because its holder has got another. Streams go on with that one at
    /// once, if it lets them do as much.
    pub fn of_replaced(old: &Claims, new: &Claims, now: Timestamp, after: Duration) -> Self {
        let successor = old
            .is_succeeded_by(new)
            .then(|| Successor { id: new.id.clone(), expires_at: new.expires_at });
        let ends_at = now.plus(after);
        Self { ends_at, successor, ..Self::of_token(&old.sandbox, &old.id, now) }
    }

    /// Tells whether nothing would be different without it.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.keep_until < now
    }
}

/// Returns when no token is good any more that is good now, or was made just before.
fn longest_after(now: Timestamp) -> Timestamp {
    now.plus(Lifetime::LONGEST + 2 * LEEWAY)
}

/// API keys that were revoked of late: whatever was given out with one is worth nothing, whenever that
/// was. A key is never valid again, so that no time has to be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndedKeys(HashMap<String, Timestamp>);

impl EndedKeys {
    /// Takes note that a key was revoked then.
    pub fn add(&mut self, key: &str, revoked_at: Timestamp) {
        self.0.insert(key.to_owned(), longest_after(revoked_at));
    }

    /// Forgets those whose tokens would have ended by themselves.
    pub fn tidy(&mut self, now: Timestamp) {
        self.0.retain(|_, keep_until| *keep_until >= now);
    }

    /// Tells whether what was given out with a key has ended.
    pub fn contains(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }
}

/// What is known about the tokens of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub epoch: Epoch,
    tokens: HashMap<String, Ending>,
    actors: HashMap<Actor, Ending>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Ending {
    ends_at: Timestamp,
    keep_until: Timestamp,
    successor: Option<Successor>,
}

impl Default for Standing {
    fn default() -> Self {
        Self { epoch: Epoch::FIRST, tokens: HashMap::new(), actors: HashMap::new() }
    }
}

impl Standing {
    /// Collects what was kept.
    pub fn new(epoch: Epoch, revocations: impl IntoIterator<Item = Revocation>) -> Self {
        let mut standing = Self { epoch, ..Self::default() };
        for revocation in revocations {
            standing.add(revocation);
        }
        standing
    }

    /// Takes note that tokens end. Nothing comes back to life by it.
    pub fn add(&mut self, revocation: Revocation) {
        let Revocation { subject, ends_at, keep_until, successor, .. } = revocation;
        let new = Ending { ends_at, keep_until, successor };
        match subject {
            Subject::Token(id) => {
                let ending = self.tokens.entry(id).or_insert_with(|| new.clone());
                ending.ends_at = ending.ends_at.min(new.ends_at);
                ending.keep_until = ending.keep_until.max(new.keep_until);
                // Nothing takes over from what was ended without a successor.
                if ending.successor.is_some() {
                    ending.successor = new.successor;
                }
            }
            // The later one is about more tokens.
            Subject::Actor(actor) => {
                let ending = self.actors.entry(actor).or_insert_with(|| new.clone());
                ending.ends_at = ending.ends_at.max(new.ends_at);
                ending.keep_until = ending.keep_until.max(new.keep_until);
            }
        }
    }

    /// Takes over what another has read, which may be older or newer than what is known here.
    pub fn absorb(&mut self, read: Self) {
        fn add<K: std::hash::Hash + Eq>(
            known: &mut HashMap<K, Ending>,
            read: HashMap<K, Ending>,
            join: fn(Timestamp, Timestamp) -> Timestamp,
        ) {
            for (key, new) in read {
                let ending = known.entry(key).or_insert_with(|| new.clone());
                ending.ends_at = join(ending.ends_at, new.ends_at);
                ending.keep_until = ending.keep_until.max(new.keep_until);
            }
        }
        self.raise(read.epoch);
        add(&mut self.tokens, read.tokens, Ord::min);
        add(&mut self.actors, read.actors, Ord::max);
    }

    /// Takes over a later epoch; an earlier one is old news.
    pub fn raise(&mut self, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
    }

    /// Forgets what is over.
    pub fn tidy(&mut self, now: Timestamp) {
        self.tokens.retain(|_, ending| ending.keep_until >= now);
        self.actors.retain(|_, ending| ending.keep_until >= now);
    }

    /// Tells whether it says no more than that nothing is known.
    pub fn is_plain(&self) -> bool {
        self.epoch == Epoch::FIRST && self.tokens.is_empty() && self.actors.is_empty()
    }

    /// Returns from when on a token is worth nothing, if that is before its end. The id is that of the
    /// token whose life counts: the one of the claims, or a successor.
    pub fn ends_at(&self, id: &str, claims: &Claims) -> Option<Timestamp> {
        let parents = claims.parents.iter().map(String::as_str);
        let ids = parents.chain([id]).filter_map(|id| self.tokens.get(id));
        let actor = self.actors.get(&claims.actor);
        let actor = actor.filter(|ending| claims.issued_at <= ending.ends_at);
        ids.chain(actor).map(|ending| ending.ends_at).min()
    }

    /// Returns what the streams of a token go on with.
    pub fn successor(&self, id: &str) -> Option<&Successor> {
        self.tokens.get(id)?.successor.as_ref()
    }

    /// Returns from when on a token for this actor is not among those that were ended.
    pub fn first_after(&self, actor: &Actor) -> Option<Timestamp> {
        let end = self.actors.get(actor)?.ends_at.as_millis();
        // Tokens are dated to the second.
        let next = end.saturating_sub(end.rem_euclid(1000)).saturating_add(1000);
        Some(Timestamp::from_millis(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{actor::ActorKind, capability::Capabilities, reach::Reach, token::Generation};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + seconds * 1000)
    }

    fn sandbox() -> SandboxId {
        SandboxId::from_random([1; 16])
    }

    fn actor(id: &str) -> Actor {
        Actor { kind: ActorKind::Human, id: id.to_owned() }
    }

    fn claims(id: &str, actor_id: &str, parents: &[&str]) -> Claims {
        Claims {
            id: id.to_owned(),
            actor: actor(actor_id),
            key: "key_1".to_owned(),
            sandbox: sandbox(),
            capabilities: Capabilities::of_scope("shell"),
            reach: Reach::Everywhere,
            thread: None,
            generation: Generation::FIRST,
            issued_at: at(0),
            expires_at: at(900),
            parents: parents.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    #[test]
    fn a_token_ends_with_itself_its_parents_and_its_actor() {
        let token = Revocation::of_token(&sandbox(), "tok_1", at(10));
        let person = Revocation::of_actor(&sandbox(), &actor("ada"), at(20));
        let standing = Standing::new(Epoch(3), [token, person]);
        let rows = [
            (claims("tok_1", "ada", &[]), Some(at(10))),
            (claims("tok_1", "bob", &[]), Some(at(10))),
            (claims("tok_2", "bob", &["tok_1"]), Some(at(10))),
            (claims("tok_3", "bob", &["tok_1", "tok_2"]), Some(at(10))),
            (claims("tok_2", "ada", &[]), Some(at(20))),
            (claims("tok_2", "bob", &["tok_9"]), None),
            (Claims { issued_at: at(20), ..claims("tok_4", "ada", &[]) }, Some(at(20))),
            (Claims { issued_at: at(21), ..claims("tok_4", "ada", &[]) }, None),
        ];
        for (claims, expected) in rows {
            assert_eq!(standing.ends_at(&claims.id, &claims), expected, "{claims:?}");
        }
        // Who gets a token next gets one of the next second.
        assert_eq!(standing.first_after(&actor("ada")), Some(at(21)));
        assert_eq!(standing.first_after(&actor("bob")), None);
    }

    #[test]
    fn nothing_comes_back_to_life() {
        let mut standing = Standing::default();
        let old = claims("tok_1", "ada", &[]);
        let new = Claims { expires_at: at(1200), ..claims("tok_2", "ada", &[]) };
        let after = Duration::from_mins(1);
        standing.add(Revocation::of_replaced(&old, &new, at(300), after));
        assert_eq!(standing.ends_at("tok_1", &old), Some(at(360)));
        let successor = Successor { id: "tok_2".to_owned(), expires_at: at(1200) };
        assert_eq!(standing.successor("tok_1"), Some(&successor));
        standing.add(Revocation::of_token(&sandbox(), "tok_1", at(301)));
        assert_eq!(standing.ends_at("tok_1", &old), Some(at(301)));
        assert_eq!(standing.successor("tok_1"), None);
        standing.add(Revocation::of_replaced(&old, &new, at(305), after));
        assert_eq!(standing.ends_at("tok_1", &old), Some(at(301)));
        standing.add(Revocation::of_actor(&sandbox(), &actor("bob"), at(20)));
        standing.add(Revocation::of_actor(&sandbox(), &actor("bob"), at(10)));
        let bobs = Claims { issued_at: at(15), ..claims("tok_5", "bob", &[]) };
        assert_eq!(standing.ends_at("tok_5", &bobs), Some(at(20)));
        let older = Revocation::of_replaced(&old, &new, at(306), after);
        standing.absorb(Standing::new(Epoch(3), [older]));
        assert_eq!(standing.ends_at("tok_1", &old), Some(at(301)));
        assert_eq!((standing.successor("tok_1"), standing.epoch), (None, Epoch(3)));
        standing.raise(Epoch(4));
        standing.raise(Epoch(2));
        assert_eq!(standing.epoch, Epoch(4));
    }

    #[test]
    fn a_revoked_key_is_remembered_as_long_as_a_token_of_it_could_last() {
        let mut keys = EndedKeys::default();
        keys.add("key_1", at(0));
        keys.tidy(at(3_605));
        assert_eq!([keys.contains("key_1"), keys.contains("key_2")], [true, false]);
        keys.tidy(at(3_611));
        assert_eq!(keys, EndedKeys::default());
    }

    #[test]
    fn what_ended_is_remembered_until_it_would_have_ended_anyway() {
        let revocation = Revocation::of_token(&sandbox(), "tok_1", at(0));
        let mut standing = Standing::new(Epoch::FIRST, [revocation.clone()]);
        let token = Claims { expires_at: at(3_600), ..claims("tok_1", "ada", &[]) };
        // The longest token that could have that id is good until then.
        let last = Timestamp::from_millis(at(3_605).as_millis());
        assert!(token.check(last, &sandbox(), Generation::FIRST).is_ok());
        assert!(!revocation.is_over(last));
        standing.tidy(last);
        assert!(standing.ends_at("tok_1", &token).is_some());
        assert!(revocation.is_over(at(3_611)));
        standing.tidy(at(3_611));
        assert!(standing.is_plain());
    }
}
