//! The limits of an execution: what may be asked for, and what is given. [`TABLE`] has every one of them.

use std::time::Duration;

use crate::{
    resources::{MachineSize, Range},
    units::ByteSize,
};

/// One limit: its name, its field in a request, and its values in the unit of that field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitRow {
    pub name: &'static str,
    pub field: &'static str,
    pub min: u64,
    /// What an execution gets that does not ask.
    pub default: u64,
    /// The most that a request may ask for.
    pub max: u64,
}

/// Every limit of an execution, with the values of a server whose operator has set none. The least memory
/// is that of the language; the most follows from the machine ([`LimitPolicy::of_machine`]).
pub const TABLE: [LimitRow; 7] = [TIME, MEMORY, CPU, OUTPUT, PROCESSES, DISK, INODES];

const TIME: LimitRow = row("time", "timeout_ms", [1, 30_000, 3_600_000]);
const MEMORY: LimitRow = row("memory", "memory_mb", [1, 256, 4096]);
const CPU: LimitRow = row("cpu", "cpu_shares", [2, 512, 1024]);
const OUTPUT: LimitRow = row("output", "max_output_bytes", [1, 1 << 20, 64 << 20]);
const PROCESSES: LimitRow = row("processes", "processes", [1, 256, 4096]);
const DISK: LimitRow = row("disk", "disk_mb", [1, 64, 1024]);
const INODES: LimitRow = row("inodes", "inodes", [64, 16_384, 262_144]);

const fn row(name: &'static str, field: &'static str, [min, default, max]: [u64; 3]) -> LimitRow {
    LimitRow { name, field, min, default, max }
}

/// The limits that an execution runs under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub timeout: Duration,
    pub memory: ByteSize,
    pub cpu_shares: u32,
    pub max_output: ByteSize,
    pub fixed: FixedLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(TIME.default),
            memory: ByteSize::mib(MEMORY.default),
            cpu_shares: to_u32(CPU.default),
            max_output: ByteSize::bytes(OUTPUT.default),
            fixed: FixedLimits::default(),
        }
    }
}

/// Limits that a slot is made with and that stay as they are: a request for others than those of
/// waiting slots gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedLimits {
    /// Processes and threads.
    pub processes: u32,
    /// What its files may take together. They count as memory too.
    pub disk: ByteSize,
    /// How many files and folders there may be.
    pub inodes: u64,
}

impl Default for FixedLimits {
    fn default() -> Self {
        Self {
            processes: to_u32(PROCESSES.default),
            disk: ByteSize::mib(DISK.default),
            inodes: INODES.default,
        }
    }
}

fn to_u32(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The limits as a caller wrote them: numbers of any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedLimits {
    pub timeout_ms: u64,
    pub memory_mb: u64,
    pub cpu_shares: Option<u64>,
    pub max_output_bytes: Option<u64>,
    pub processes: Option<u64>,
    pub disk_mb: Option<u64>,
    pub inodes: Option<u64>,
}

/// What the operator allows at most, and what executions get that do not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitPolicy {
    pub max_timeout: Duration,
    pub max_memory: ByteSize,
    pub max_cpu_shares: u32,
    pub max_output: ByteSize,
    /// The most of each.
    pub max_fixed: FixedLimits,
    pub fixed: FixedLimits,
}

impl Default for LimitPolicy {
    fn default() -> Self {
        Self {
            max_timeout: Duration::from_millis(TIME.max),
            max_memory: ByteSize::mib(MEMORY.max),
            max_cpu_shares: to_u32(CPU.max),
            max_output: ByteSize::bytes(OUTPUT.max),
            max_fixed: FixedLimits {
                processes: to_u32(PROCESSES.max),
                disk: ByteSize::mib(DISK.max),
                inodes: INODES.max,
            },
            fixed: FixedLimits::default(),
        }
    }
}

/// A default of the operator is out of range. The text names the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "executions.{0} must be within the least that an execution can have and executions.max_{0}"
)]
pub struct DefaultRefusal(pub &'static str);

/// One field of the limits is out of range. The text names the field and the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limits.{field} must be from {min} to {max}")]
pub struct LimitRefusal {
    pub field: &'static str,
    pub min: u64,
    pub max: u64,
}

impl LimitPolicy {
    /// Returns the policy of a machine whose operator sets nothing.
    pub fn of_machine(machine: MachineSize) -> Self {
        let least = ByteSize::mib(MEMORY.default);
        Self { max_memory: machine.memory_for_one_tenant().max(least), ..Self::default() }
    }

    /// Returns the table as it is on this server.
    pub fn rows(&self) -> [LimitRow; 7] {
        let millis = u64::try_from(self.max_timeout.as_millis()).unwrap_or(u64::MAX);
        let mib = |size: ByteSize| size.as_bytes() >> 20;
        let (fixed, most) = (self.fixed, self.max_fixed);
        [
            LimitRow { max: millis, ..TIME },
            LimitRow { max: mib(self.max_memory), ..MEMORY },
            LimitRow { max: self.max_cpu_shares.into(), ..CPU },
            LimitRow { max: self.max_output.as_bytes(), ..OUTPUT },
            LimitRow { default: fixed.processes.into(), max: most.processes.into(), ..PROCESSES },
            LimitRow { default: mib(fixed.disk), max: mib(most.disk), ..DISK },
            LimitRow { default: fixed.inodes, max: most.inodes, ..INODES },
        ]
    }

    /// Checks that what executions get that do not ask is in range.
    pub fn check_defaults(&self) -> Result<(), DefaultRefusal> {
        let [_, _, _, _, processes, disk, inodes] = self.rows();
        for row in [processes, disk, inodes] {
            within(row, row.default).map_err(|_refusal| DefaultRefusal(row.name))?;
        }
        Ok(())
    }

    /// Turns what was asked for into limits, or names the first field that is out of range.
    /// `min_memory` is what the language needs to start at all.
    pub fn check(&self, asked: AskedLimits, min_memory: ByteSize) -> Result<Limits, LimitRefusal> {
        let [time, memory, cpu, output, processes, disk, inodes] = self.rows();
        let memory = LimitRow { min: min_memory.as_mib_ceil(), ..memory };
        let or_default = |row: LimitRow, asked: Option<u64>| {
            asked.map_or(Ok(row.default), |value| within(row, value))
        };
        Ok(Limits {
            timeout: Duration::from_millis(within(time, asked.timeout_ms)?),
            memory: ByteSize::mib(within(memory, asked.memory_mb)?),
            cpu_shares: to_u32(or_default(cpu, asked.cpu_shares)?),
            max_output: ByteSize::bytes(or_default(output, asked.max_output_bytes)?),
            fixed: FixedLimits {
                processes: to_u32(or_default(processes, asked.processes)?),
                disk: match asked.disk_mb {
                    // To the byte, as the operator set it.
                    None => self.fixed.disk,
                    Some(asked) => ByteSize::mib(within(disk, asked)?),
                },
                inodes: or_default(inodes, asked.inodes)?,
            },
        })
    }
}

impl LimitPolicy {
    /// Returns the range of every field, by its name in requests.
    pub fn ranges(&self) -> Vec<(&'static str, Range)> {
        let range =
            |row: LimitRow| Range { min: row.min, default: Some(row.default), max: row.max };
        self.rows().into_iter().map(|row| (row.field, range(row))).collect()
    }
}

fn within(row: LimitRow, value: u64) -> Result<u64, LimitRefusal> {
    let LimitRow { field, min, max, .. } = row;
    if (min..=max).contains(&value) { Ok(value) } else { Err(LimitRefusal { field, min, max }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: AskedLimits = AskedLimits {
        timeout_ms: 1000,
        memory_mb: 64,
        cpu_shares: None,
        max_output_bytes: None,
        processes: None,
        disk_mb: None,
        inodes: None,
    };

    fn refused(asked: AskedLimits) -> String {
        let refusal = LimitPolicy::default().check(asked, ByteSize::mib(16)).unwrap_err();
        refusal.to_string()
    }

    #[test]
    fn the_most_memory_of_an_execution_follows_from_the_machine() {
        // Memory of the machine, and the most of an execution, in MiB.
        for (memory, most) in [(256, 256), (1024, 448), (4096, 3136), (65_536, 50_176)] {
            let memory = ByteSize::mib(memory);
            let machine = MachineSize { memory, processors: 2, disk: ByteSize::mib(1) };
            let policy = LimitPolicy::of_machine(machine);
            assert_eq!(policy.max_memory, ByteSize::mib(most), "{memory}");
            assert_eq!(
                LimitPolicy { max_memory: ByteSize::mib(4096), ..policy },
                LimitPolicy::default()
            );
        }
    }

    #[test]
    fn what_is_in_range_is_given_as_asked() {
        let asked = AskedLimits {
            cpu_shares: Some(2),
            max_output_bytes: Some(7),
            processes: Some(1),
            disk_mb: Some(1024),
            inodes: Some(64),
            ..ASKED
        };
        let limits = LimitPolicy::default().check(asked, ByteSize::mib(16)).unwrap();
        let expected = Limits {
            timeout: Duration::from_secs(1),
            memory: ByteSize::mib(64),
            cpu_shares: 2,
            max_output: ByteSize::bytes(7),
            fixed: FixedLimits { processes: 1, disk: ByteSize::mib(1024), inodes: 64 },
        };
        assert_eq!(limits, expected);
        let limits = LimitPolicy::default().check(ASKED, ByteSize::mib(16)).unwrap();
        assert_eq!(limits.fixed, FixedLimits::default());
    }

    #[test]
    fn every_default_is_in_range_and_the_table_is_that_of_a_server_without_settings() {
        assert_eq!(LimitPolicy::default().rows(), TABLE);
        for row in TABLE {
            assert!((row.min..=row.max).contains(&row.default), "{row:?}");
        }
    }

    #[test]
    fn what_the_operator_sets_is_what_executions_get_and_may_ask_for() {
        let small = FixedLimits { processes: 16, disk: ByteSize::mib(2), inodes: 100 };
        let most = FixedLimits { processes: 32, disk: ByteSize::mib(4), inodes: 200 };
        let policy = LimitPolicy { fixed: small, max_fixed: most, ..LimitPolicy::default() };
        assert_eq!(policy.check_defaults(), Ok(()));
        assert_eq!(policy.check(ASKED, ByteSize::mib(1)).unwrap().fixed, small);
        let rows = [
            (AskedLimits { processes: Some(33), ..ASKED }, "limits.processes must be from 1 to 32"),
            (AskedLimits { disk_mb: Some(5), ..ASKED }, "limits.disk_mb must be from 1 to 4"),
            (AskedLimits { inodes: Some(201), ..ASKED }, "limits.inodes must be from 64 to 200"),
        ];
        for (asked, text) in rows {
            assert_eq!(policy.check(asked, ByteSize::mib(1)).unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn a_default_above_the_most_is_refused_by_its_name() {
        let policy = LimitPolicy::default();
        let rows = [
            (FixedLimits { processes: 4097, ..policy.fixed }, "processes"),
            (FixedLimits { processes: 0, ..policy.fixed }, "processes"),
            (FixedLimits { disk: ByteSize::mib(1025), ..policy.fixed }, "disk"),
            (FixedLimits { inodes: 63, ..policy.fixed }, "inodes"),
        ];
        for (fixed, name) in rows {
            let refused = LimitPolicy { fixed, ..policy }.check_defaults();
            assert_eq!(refused, Err(DefaultRefusal(name)), "{fixed:?}");
        }
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
                "limits.cpu_shares must be from 2 to 1024",
            ),
            (
                AskedLimits { max_output_bytes: Some(0), ..ASKED },
                "limits.max_output_bytes must be from 1 to 67108864",
            ),
            (
                AskedLimits { processes: Some(0), ..ASKED },
                "limits.processes must be from 1 to 4096",
            ),
            (AskedLimits { disk_mb: Some(0), ..ASKED }, "limits.disk_mb must be from 1 to 1024"),
            (AskedLimits { inodes: Some(63), ..ASKED }, "limits.inodes must be from 64 to 262144"),
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
