//! Quantities that carry their unit in the type.

use std::fmt;

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
