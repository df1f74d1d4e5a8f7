//! The only place that asks what time it is.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tokio::time::sleep;

/// The time of day may be set while somebody waits for it, and so may what is waited for.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Returns the time of day.
pub(crate) fn now() -> SystemTime {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
    SystemTime::now()
}

/// Returns the time of day as it stands in events.
pub(crate) fn timestamp() -> model::units::Timestamp {
    let since = now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    model::units::Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Returns when that time of day is there.
pub(crate) async fn until(end: impl Fn() -> model::units::Timestamp) {
    loop {
        let left = end().since(timestamp());
        if left.is_zero() {
            return;
        }
        sleep(left.min(LOOK_AGAIN)).await;
    }
}

/// Returns the time of day as it stands in frames: ISO 8601 with milliseconds, in UTC.
pub fn stamp() -> String {
    text(now())
}

/// Writes a time as ISO 8601 with milliseconds, in UTC.
pub(crate) fn text(time: SystemTime) -> String {
    let timestamp = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{timestamp:.3}")
}

/// Writes a time that is given in milliseconds since 1970.
pub fn text_of_millis(millis: i64) -> String {
    text(model::units::Timestamp::from_millis(millis).into())
}

/// Returns by how many milliseconds a client's timestamp is behind a time of ours, if it names
/// an instant at all.
pub(crate) fn skew_ms(client: &str, now: SystemTime) -> Option<i64> {
    let client: Timestamp = client.parse().ok()?;
    let now = Timestamp::try_from(now).ok()?;
    Some(now.as_millisecond() - client.as_millisecond())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn times_are_written_with_milliseconds_in_utc() {
        let time = UNIX_EPOCH + Duration::from_millis(1_766_835_000_007);
        assert_eq!(text(time), "2025-12-27T11:30:00.007Z");
        assert_eq!(text(UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn skew_is_told_for_what_names_an_instant() {
        let now = UNIX_EPOCH + Duration::from_mins(29_447_250);
        assert_eq!(skew_ms("2025-12-27T11:29:58.500Z", now), Some(1500));
        assert_eq!(skew_ms("2025-12-27T12:30:01+01:00", now), Some(-1000));
        assert_eq!(skew_ms("2025-12-27T11:30:00.000", now), None);
        assert_eq!(skew_ms("100000-01-01T00:00:00.000Z", now), None);
    }
}
