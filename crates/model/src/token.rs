//! What a token says, and whether that holds now, here, for this sandbox.
//!
//! Signing and reading tokens is the daemon's. By the time that claims come here they are genuine.

use std::time::Duration;

use crate::{
    actor::Actor, capability::Capabilities, ids::SandboxId, reach::Reach, units::Timestamp,
};

/// A token is good for so long after its end, and so long before its beginning: clocks differ.
pub const LEEWAY: Duration = Duration::from_secs(5);

/// Counts the sandboxes that a scope has had; a token for an earlier one is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl Generation {
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
    pub const LONGEST: Duration = Duration::from_mins(15);
    pub const USUAL: Self = Self(Self::LONGEST);

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

    /// Returns beginning and end of a token that is made now, to the second.
    pub fn from(self, now: Timestamp) -> (Timestamp, Timestamp) {
        let issued = now.as_millis() - now.as_millis().rem_euclid(1000);
        let expires = issued.saturating_add(millis(self.0));
        (Timestamp::from_millis(issued), Timestamp::from_millis(expires))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
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
            (-600, 300, Ok(())),
            (-900, 0, Ok(())),
            (-900, -4, Ok(())),
            (-900, -5, Ok(())),
            (-900, -6, Err(TokenRefusal::Expired)),
            (-3000, -2100, Err(TokenRefusal::Expired)),
            (5, 300, Ok(())),
            (6, 300, Err(TokenRefusal::NotYet)),
            (0, 901, Err(TokenRefusal::TooLong)),
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
    fn tokens_live_for_five_to_fifteen_minutes() {
        for bad in [0, 1, 299, 901, u64::MAX] {
            assert_eq!(Lifetime::seconds(bad), Err(LifetimeError), "{bad}");
        }
        for good in [300, 600, 900] {
            let (issued, expires) =
                Lifetime::seconds(good).unwrap().from(Timestamp::from_millis(NOW + 999));
            assert_eq!(issued.as_millis(), NOW);
            assert_eq!(u64::try_from(expires.as_millis() - NOW).unwrap(), good * 1000);
        }
        assert_eq!(Lifetime::seconds(900), Ok(Lifetime::USUAL));
    }
}
