//! Quantities that carry their unit in the type.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ByteSize(u64);

impl ByteSize {
    pub const fn bytes(count: u64) -> Self {
        Self(count)
    }

    /// Returns that many mebibytes; saturates instead of wrapping.
    pub const fn mib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 20))
    }

    pub const fn as_bytes(self) -> u64 {
        self.0
    }

    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns whole mebibytes, rounded up, so that anything above zero shows as at least one.
    pub const fn as_mib_ceil(self) -> u64 {
        self.0.div_ceil(1 << 20)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= 1 << 20 && self.0.is_multiple_of(1 << 20) {
            write!(f, "{} MiB", self.0 >> 20)
        } else {
            write!(f, "{} bytes", self.0)
        }
    }
}

/// A time of day to the millisecond, as it is kept and shown. Never used to put events in order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Returns that many milliseconds after the beginning of 1970.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Returns the time so much later, to the millisecond and never before it.
    #[must_use]
    pub fn plus(self, later: Duration) -> Self {
        let millis = later.as_nanos().div_ceil(1_000_000);
        Self(self.0.saturating_add(i64::try_from(millis).unwrap_or(i64::MAX)))
    }

    /// Returns how long ago that was; nothing if it is yet to come.
    pub fn since(self, earlier: Self) -> Duration {
        let millis = self.as_millis().saturating_sub(earlier.as_millis());
        Duration::from_millis(u64::try_from(millis).unwrap_or_default())
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }
}

/// A time before 1970 becomes the beginning of 1970: such a clock is wrong anyway.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(timestamp: Timestamp) -> Self {
        UNIX_EPOCH + Duration::from_millis(u64::try_from(timestamp.0).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_later_is_never_before_it_and_has_an_end() {
        let at = Timestamp::from_millis(1000);
        assert_eq!(at.plus(Duration::ZERO), at);
        assert_eq!(at.plus(Duration::from_nanos(1)), Timestamp::from_millis(1001));
        assert_eq!(at.plus(Duration::from_millis(5)), Timestamp::from_millis(1005));
        assert_eq!(at.plus(Duration::MAX), Timestamp::from_millis(i64::MAX));
    }
}
