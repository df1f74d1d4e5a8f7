//! The only place of the engine that asks what time it is.

use std::time::SystemTime;

use model::units::Timestamp;

/// Returns the time of day.
pub(super) fn now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    Timestamp::from(SystemTime::now())
}
