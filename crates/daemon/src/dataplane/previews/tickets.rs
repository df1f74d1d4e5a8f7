//! Links that let somebody in once. They live for a minute, and only in memory.

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroU16,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::errors::ErrorCode;
use model::{ids::SandboxId, units::Timestamp};
use tokio::time::Instant;

use crate::{
    http::problem::ApiError,
    keys::{Secret, random_hex},
    tokens::masters::KeyAge,
};

/// The most links that wait to be opened.
const MOST: usize = 4096;
/// Random bytes in a link.
const RANDOM: usize = 32;

/// What a link is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) sandbox: SandboxId,
    pub(crate) port: NonZeroU16,
    /// Until when it lets see that port.
    pub(crate) until: Timestamp,
    pub(crate) path: String,
    /// The keys that were in use when the link was made: with others it leads nowhere.
    pub(crate) age: KeyAge,
    /// The API key that it was made with: it ends with it.
    pub(crate) key: String,
}

/// Links that wait to be opened. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Tickets(Arc<Mutex<HashMap<store::keys::KeyHash, (Instant, Ticket)>>>);

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets(…)")
    }
}

impl Tickets {
    /// Returns the secret that this is given out for, once, in this time.
    pub(crate) fn issue(&self, ticket: Ticket, life: Duration) -> Result<String, ApiError> {
        let secret = random_hex(RANDOM)?;
        let now = Instant::now();
        let mut waiting = self.waiting();
        if waiting.len() >= MOST {
            waiting.retain(|_, (end, _)| *end > now);
        }
        if waiting.len() >= MOST {
            let message = "too many links wait to be opened; try again in a minute";
            return Err(ApiError::new(ErrorCode::Unavailable, message));
        }
        // Whoever reads this memory learns no link from it.
        waiting.insert(Secret::hash_of(&secret), (now + life, ticket));
        Ok(secret)
    }

    /// Returns what a secret is for, and forgets it.
    pub(crate) fn redeem(&self, secret: &str) -> Option<Ticket> {
        let (end, ticket) = self.waiting().remove(&Secret::hash_of(secret))?;
        (Instant::now() < end).then_some(ticket)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<store::keys::KeyHash, (Instant, Ticket)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> Ticket {
        Ticket {
            sandbox: SandboxId::from_random([1; 16]),
            port: NonZeroU16::new(80).unwrap(),
            until: Timestamp::from_millis(1),
            path: "/".to_owned(),
            age: KeyAge::FIRST,
            key: "key_1".to_owned(),
        }
    }

    #[test]
    fn a_link_is_opened_once_and_in_time() {
        let tickets = Tickets::default();
        let secret = tickets.issue(ticket(), Duration::from_mins(1)).unwrap();
        assert_eq!(tickets.redeem("another"), None);
        assert_eq!(tickets.redeem(&secret), Some(ticket()));
        assert_eq!(tickets.redeem(&secret), None);
        let late = tickets.issue(ticket(), Duration::ZERO).unwrap();
        assert_eq!(tickets.redeem(&late), None);
    }

    #[test]
    fn links_that_nobody_opens_make_room_when_their_time_is_over() {
        let tickets = Tickets::default();
        for _ in 0..MOST {
            tickets.issue(ticket(), Duration::ZERO).unwrap();
        }
        for _ in 0..MOST {
            tickets.issue(ticket(), Duration::from_mins(1)).unwrap();
        }
        assert!(tickets.issue(ticket(), Duration::from_mins(1)).is_err());
    }
}
