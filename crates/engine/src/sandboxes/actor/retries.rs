//! What could not be ended or removed. It is set aside: tried again ever less often, and said once,
//! while the sandbox answers as before and others notice nothing.

use std::time::Duration;

use tokio::time::Instant;

use super::{Actor, RETRY};
use crate::sandboxes::machine::MachineError;

/// The longest time between two tries.
const SELDOM: Duration = Duration::from_mins(1);

/// When something is tried again.
#[derive(Debug, Default)]
pub(super) struct Retry {
    at: Option<Instant>,
    tries: u32,
}

impl Retry {
    /// Returns when it is time, while it is not yet.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.at
    }

    /// Does not wait any longer: something else is to be done.
    pub(super) fn at_once(&mut self) {
        self.at = None;
    }

    /// Waits twice as long as the last time.
    fn later(&mut self, now: Instant) {
        let wait = RETRY.saturating_mul(1 << self.tries.min(16)).min(SELDOM);
        self.tries = self.tries.saturating_add(1);
        self.at = Some(now + wait);
    }
}

impl Actor {
    pub(super) fn set_aside(&mut self, doing: &'static str, error: &MachineError) {
        let (id, tries) = (&self.sandbox.id, self.retry.tries);
        if tries == 0 {
            let error: &dyn std::error::Error = error;
            tracing::error!(sandbox = %id, error, doing, "set aside, and tried again now and then");
        } else {
            tracing::debug!(sandbox = %id, %error, doing, tries, "still set aside");
        }
        self.retry.later(Instant::now());
    }

    /// It has worked after all, or at once.
    pub(super) fn is_cleared(&mut self) {
        if self.retry.tries > 0 {
            let tries = self.retry.tries;
            tracing::info!(sandbox = %self.sandbox.id, tries, "cleared away at last");
        }
        self.retry = Retry::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_become_fewer_and_never_end() {
        let (mut retry, now) = (Retry::default(), Instant::now());
        let waits: Vec<u64> = (0..40)
            .map(|_| {
                retry.later(now);
                (retry.deadline().unwrap() - now).as_secs()
            })
            .collect();
        assert_eq!(waits[..8], [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(waits.last(), Some(&60));
    }
}
