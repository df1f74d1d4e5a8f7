//! The only place of the engine that asks what time it is.

use std::time::{Instant, SystemTime};

use model::units::Timestamp;

/// Returns the time of day.
pub(crate) fn now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    Timestamp::from(SystemTime::now())
}

/// The time of day, but never ahead of what has passed: a clock that is set ahead makes nothing
/// older than it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steady {
    wall: Timestamp,
    begin: Instant,
}

impl Steady {
    pub(super) fn begin() -> Self {
        Self { wall: now(), begin: Instant::now() }
    }

    pub(super) fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.begin.elapsed().as_millis()).unwrap_or(i64::MAX);
        now().min(Timestamp::from_millis(self.wall.as_millis().saturating_add(passed)))
    }
}
