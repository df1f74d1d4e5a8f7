//! The limits of an execution: what may be asked for, and what is given.

use std::time::Duration;

use crate::units::ByteSize;

/// The limits that an execution runs under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub timeout: Duration,
    pub memory: ByteSize,
    pub cpu_shares: u32,
    pub max_output: ByteSize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            memory: ByteSize::mib(256),
            cpu_shares: 512,
            max_output: ByteSize::mib(1),
        }
    }
}

/// The limits as a caller wrote them: numbers of any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedLimits {
    pub timeout_ms: u64,
    pub memory_mb: u64,
    pub cpu_shares: Option<u64>,
    pub max_output_bytes: Option<u64>,
}

/// What the operator allows at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitPolicy {
    pub max_timeout: Duration,
    pub max_memory: ByteSize,
    pub max_output: ByteSize,
}

impl Default for LimitPolicy {
    fn default() -> Self {
        Self {
            max_timeout: Duration::from_hours(1),
            max_memory: ByteSize::mib(4096),
            max_output: ByteSize::mib(64),
        }
    }
}

/// One field of the limits is out of range. The text names the field and the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limits.{field} must be from {min} to {max}")]
pub struct LimitRefusal {
    pub field: &'static str,
    pub min: u64,
    pub max: u64,
}

impl LimitPolicy {
    /// Turns what was asked for into limits, or names the first field that is out of range.
    /// `min_memory` is what the language needs to start at all.
    pub fn check(&self, asked: AskedLimits, min_memory: ByteSize) -> Result<Limits, LimitRefusal> {
        let max_timeout_ms = u64::try_from(self.max_timeout.as_millis()).unwrap_or(u64::MAX);
        let timeout_ms = within("timeout_ms", asked.timeout_ms, 1, max_timeout_ms)?;
        let max_mb = self.max_memory.as_bytes() >> 20;
        let memory_mb = within("memory_mb", asked.memory_mb, min_memory.as_mib_ceil(), max_mb)?;
        let default = Limits::default();
        let cpu_shares = match asked.cpu_shares {
            None => default.cpu_shares,
            Some(shares) => u32::try_from(within("cpu_shares", shares, 2, 262_144)?)
                .unwrap_or(default.cpu_shares),
        };
        let max_output = match asked.max_output_bytes {
            None => default.max_output,
            Some(bytes) => {
                ByteSize::bytes(within("max_output_bytes", bytes, 1, self.max_output.as_bytes())?)
            }
        };
        Ok(Limits {
            timeout: Duration::from_millis(timeout_ms),
            memory: ByteSize::mib(memory_mb),
            cpu_shares,
            max_output,
        })
    }
}

fn within(field: &'static str, value: u64, min: u64, max: u64) -> Result<u64, LimitRefusal> {
    if (min..=max).contains(&value) { Ok(value) } else { Err(LimitRefusal { field, min, max }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: AskedLimits =
        AskedLimits { timeout_ms: 1000, memory_mb: 64, cpu_shares: None, max_output_bytes: None };

    fn refused(asked: AskedLimits) -> String {
        let refusal = LimitPolicy::default().check(asked, ByteSize::mib(16)).unwrap_err();
        refusal.to_string()
    }

    #[test]
    fn what_is_in_range_is_given_as_asked() {
        let asked = AskedLimits { cpu_shares: Some(2), max_output_bytes: Some(7), ..ASKED };
        let limits = LimitPolicy::default().check(asked, ByteSize::mib(16)).unwrap();
        let expected = Limits {
            timeout: Duration::from_secs(1),
            memory: ByteSize::mib(64),
            cpu_shares: 2,
            max_output: ByteSize::bytes(7),
        };
        assert_eq!(limits, expected);
    }

    #[test]
    fn what_is_out_of_range_is_refused_with_the_range() {
        let rows = [
            (AskedLimits { timeout_ms: 0, ..ASKED }, "limits.timeout_ms must be from 1 to 3600000"),
            (
                AskedLimits { timeout_ms: 3_600_001, ..ASKED },
                "limits.timeout_ms must be from 1 to 3600000",
            ),
            (AskedLimits { memory_mb: 15, ..ASKED }, "limits.memory_mb must be from 16 to 4096"),
            (AskedLimits { memory_mb: 4097, ..ASKED }, "limits.memory_mb must be from 16 to 4096"),
            (
                AskedLimits { cpu_shares: Some(1), ..ASKED },
                "limits.cpu_shares must be from 2 to 262144",
            ),
            (
                AskedLimits { max_output_bytes: Some(0), ..ASKED },
                "limits.max_output_bytes must be from 1 to 67108864",
            ),
        ];
        for (asked, text) in rows {
            assert_eq!(refused(asked), text);
        }
    }

    #[test]
    fn a_memory_size_that_would_wrap_in_bytes_is_refused() {
        let asked = AskedLimits { memory_mb: 1 << 54, ..ASKED };
        assert_eq!(refused(asked), "limits.memory_mb must be from 16 to 4096");
    }
}
