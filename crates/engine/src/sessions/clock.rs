//! A clock that goes on from the time of day at the start, whatever becomes of that meanwhile.

use std::time::{Duration, SystemTime};

use model::units::Timestamp;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) struct Steady {
    wall: Timestamp,
    begin: Instant,
}

/// A time too far off to be said is a year from now, when it is asked for again.
const FAR: Duration = Duration::from_hours(365 * 24);

impl Steady {
    pub(super) fn begin() -> Self {
        #[expect(clippy::disallowed_methods, reason = "leases begin with the time of day")]
        let now = SystemTime::now();
        Self { wall: Timestamp::from(now), begin: Instant::now() }
    }

    pub(super) fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.begin.elapsed().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.wall.as_millis().saturating_add(passed))
    }

    /// Returns when it will be so late; now, if it was.
    pub(super) fn instant(&self, at: Timestamp) -> Instant {
        let now = Instant::now();
        now.checked_add(at.since(self.now()).min(FAR)).unwrap_or(now)
    }
}
