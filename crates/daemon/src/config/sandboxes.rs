//! What sandboxes may write, what holds them to it, and how many are prepared: `[sandboxes]`.

use std::time::Duration;

use engine::{machine_size::Measured, posture::DiskKind, sandboxes::Defaults};
use model::{
    resources::{LEAST_MEMORY, LEAST_PROCESSES, Range, ResourcePolicy},
    units::ByteSize,
};
use serde::{Deserialize, Serialize};

use super::units;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxesConfig {
    /// What a sandbox may write that was created without a `disk_limit`. It is promised to nobody:
    /// in a pool these may add up to more than there is.
    #[serde(with = "units::size")]
    pub default_disk: ByteSize,
    /// The memory of a sandbox that was created without a limit of its own.
    #[serde(with = "units::size")]
    pub default_memory: ByteSize,
    /// The processes and threads of a sandbox that was created without a limit of its own.
    pub default_processes: u32,
    /// The most memory that one sandbox may ask for. Default: the machine's, less an eighth for the server.
    #[serde(with = "units::optional_size")]
    pub max_memory: Option<ByteSize>,
    /// The most processors that one sandbox may ask for, in thousandths. Default: all of the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu: Option<u64>,
    /// The most processes and threads that one sandbox may ask for.
    pub max_processes: u32,
    /// The most disk space that one sandbox may ask for. Default: the size of the data file system.
    #[serde(with = "units::optional_size")]
    pub max_disk: Option<ByteSize>,
    /// What holds the limits: `quota`, `btrfs`, `image`, `tmpfs` or `unlimited`. Without it, the
    /// first of these that works and is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskKind>,
    /// How much of the data file system stays free of sandboxes' files.
    #[serde(with = "units::size")]
    pub keep_free: ByteSize,
    /// By how many times limits may together exceed what is free, under `quota` and as `image`.
    pub disk_overcommit: u32,
    /// Whether sandboxes may have their files in memory, where they are lost at a stop.
    pub allow_tmpfs: bool,
    /// Whether sandboxes may write as much as there is.
    pub allow_unlimited_disk: bool,
    /// How many processes wait for a sandbox to be made of them.
    pub prepared: u8,
    /// How much is kept of what commands have written that are over, for each sandbox.
    #[serde(with = "units::size")]
    pub outputs: ByteSize,
    /// What an answer to `POST /execute` has of each stream of a command.
    #[serde(with = "units::size")]
    pub execute_output: ByteSize,
    /// How long a stopped sandbox without a session is kept before it is deleted with its files; zero: for ever.
    #[serde(with = "units::duration")]
    pub keep_stopped: Duration,
    /// How long a sandbox that failed and cannot be resumed is kept before it is deleted; zero: until it is deleted.
    #[serde(with = "units::duration")]
    pub keep_failed: Duration,
    /// How many events are kept of each sandbox.
    pub events: u64,
}

/// Of the processes that a kernel can have by default, few enough to leave room for others.
const MAX_PROCESSES: u32 = 16_384;

/// More than that save no time that anybody notices.
const MOST_PREPARED: u8 = 16;

/// What an answer to `POST /execute` has of each stream, if the operator does not set it. The clients of
/// LangSmith know of no limit, and answers are made in memory.
pub const EXECUTE_OUTPUT: ByteSize = ByteSize::mib(8);
/// The least that langchain's tests of sandboxes take, and as much as is kept of a stream.
const LEAST_EXECUTE_OUTPUT: ByteSize = ByteSize::mib(1);
const MOST_EXECUTE_OUTPUT: ByteSize = ByteSize::mib(64);

/// With fewer a client that is away for a moment could not go on where it was.
const LEAST_EVENTS: u64 = 1000;

impl Default for SandboxesConfig {
    fn default() -> Self {
        Self {
            default_disk: Defaults::default().disk,
            default_memory: Defaults::default().memory,
            default_processes: Defaults::default().processes,
            max_memory: None,
            max_cpu: None,
            max_processes: MAX_PROCESSES,
            max_disk: None,
            disk: None,
            keep_free: ByteSize::mib(1024),
            disk_overcommit: 1,
            allow_tmpfs: false,
            allow_unlimited_disk: false,
            prepared: 2,
            outputs: Defaults::default().outputs,
            execute_output: EXECUTE_OUTPUT,
            keep_stopped: Duration::ZERO,
            keep_failed: Defaults::default().keep_failed.unwrap_or_default(),
            events: Defaults::default().events,
        }
    }
}

impl SandboxesConfig {
    /// Says what makes no sense.
    pub(super) fn problem(&self) -> Option<String> {
        if self.default_disk < engine::sandboxes::LEAST_DISK {
            let least = engine::sandboxes::LEAST_DISK;
            return Some(format!("sandboxes.default_disk must be at least {least}"));
        }
        if let Some(problem) = self.maximum_below_minimum() {
            return Some(problem);
        }
        if self.prepared > MOST_PREPARED {
            return Some(format!("sandboxes.prepared must be at most {MOST_PREPARED}"));
        }
        if !(LEAST_EXECUTE_OUTPUT..=MOST_EXECUTE_OUTPUT).contains(&self.execute_output) {
            return Some(format!(
                "sandboxes.execute_output must be {LEAST_EXECUTE_OUTPUT} to {MOST_EXECUTE_OUTPUT}"
            ));
        }
        if self.events < LEAST_EVENTS {
            return Some(format!("sandboxes.events must be at least {LEAST_EVENTS}"));
        }
        if self.disk_overcommit == 0 {
            return Some("sandboxes.disk_overcommit must be at least 1".to_owned());
        }
        let must_allow = match self.disk? {
            DiskKind::Tmpfs if !self.allow_tmpfs => "allow_tmpfs",
            DiskKind::Unlimited if !self.allow_unlimited_disk => "allow_unlimited_disk",
            _ => return None,
        };
        Some(format!("sandboxes.disk names what sandboxes.{must_allow} does not allow"))
    }

    fn maximum_below_minimum(&self) -> Option<String> {
        let rows = [
            ("max_memory", self.max_memory.is_some_and(|max| max < LEAST_MEMORY)),
            ("max_cpu", self.max_cpu == Some(0)),
            ("max_processes", self.max_processes < LEAST_PROCESSES),
            ("max_disk", self.max_disk.is_some_and(|max| max < engine::sandboxes::LEAST_DISK)),
            ("default_memory", self.default_memory < LEAST_MEMORY),
            ("default_processes", self.default_processes < LEAST_PROCESSES),
        ];
        let (setting, _) = rows.into_iter().find(|(_, is_too_small)| *is_too_small)?;
        Some(format!(
            "sandboxes.{setting} is too small: a sandbox needs at least {LEAST_MEMORY} of memory, \
             {LEAST_PROCESSES} processes, {} of disk space and some processor time",
            engine::sandboxes::LEAST_DISK
        ))
    }

    /// Returns what one sandbox may ask for, and what it gets if it does not ask.
    pub fn resources(&self, machine: Measured) -> ResourcePolicy {
        let of_machine = machine.policy();
        let range = |of_machine: Range, default: u64, max: Option<u64>| {
            let max = max.unwrap_or(of_machine.max);
            // A small machine, or a small maximum, lowers the default too.
            Range { default: Some(default.min(max)), max, ..of_machine }
        };
        let bytes = |size: Option<ByteSize>| size.map(ByteSize::as_bytes);
        ResourcePolicy {
            memory: range(
                of_machine.memory,
                self.default_memory.as_bytes(),
                bytes(self.max_memory),
            ),
            millicores: Range {
                max: self.max_cpu.unwrap_or(of_machine.millicores.max),
                ..of_machine.millicores
            },
            processes: range(
                of_machine.processes,
                self.default_processes.into(),
                Some(self.max_processes.into()),
            ),
            disk: range(of_machine.disk, self.default_disk.as_bytes(), bytes(self.max_disk)),
        }
    }

    /// Returns what a sandbox gets that does not ask.
    pub fn defaults(&self, machine: Measured) -> Defaults {
        let ResourcePolicy { memory, processes, disk, millicores: _ } = self.resources(machine);
        let size = |range: Range| ByteSize::bytes(range.default.unwrap_or(range.max));
        let processes = processes.default.unwrap_or(processes.max);
        let unless_zero = |kept: Duration| (!kept.is_zero()).then_some(kept);
        Defaults {
            memory: size(memory),
            disk: size(disk),
            processes: u32::try_from(processes).unwrap_or(u32::MAX),
            outputs: self.outputs,
            keep_stopped: unless_zero(self.keep_stopped),
            keep_failed: unless_zero(self.keep_failed),
            events: self.events,
            ..Defaults::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use model::resources::MachineSize;

    use super::*;

    #[test]
    fn a_kind_of_disks_that_is_not_allowed_makes_no_sense() {
        let config = SandboxesConfig { disk: Some(DiskKind::Unlimited), ..Default::default() };
        assert!(config.problem().is_some_and(|it| it.contains("allow_unlimited_disk")));
        let allowed = SandboxesConfig { allow_unlimited_disk: true, ..config };
        assert_eq!(allowed.problem(), None);
        let small = SandboxesConfig { default_disk: ByteSize::mib(1), ..Default::default() };
        assert!(small.problem().is_some());
        let many = SandboxesConfig { prepared: 17, ..Default::default() };
        assert!(many.problem().is_some());
        assert_eq!(SandboxesConfig::default().problem(), None);
    }

    #[test]
    fn by_default_stopped_sandboxes_are_kept_and_those_that_failed_without_files_for_an_hour() {
        let machine = Measured(MachineSize {
            memory: ByteSize::mib(8192),
            processors: 4,
            disk: ByteSize::mib(100_000),
        });
        let of = |config: SandboxesConfig| {
            let defaults = config.defaults(machine);
            (defaults.keep_stopped, defaults.keep_failed)
        };
        assert_eq!(of(SandboxesConfig::default()), (None, Some(Duration::from_hours(1))));
        let day = Duration::from_hours(24);
        let set = SandboxesConfig {
            keep_stopped: day,
            keep_failed: Duration::ZERO,
            ..SandboxesConfig::default()
        };
        assert_eq!(of(set), (Some(day), None));
    }

    #[test]
    fn a_maximum_of_the_operator_lowers_the_default_and_replaces_that_of_the_machine() {
        let machine = Measured(MachineSize {
            memory: ByteSize::mib(8192),
            processors: 4,
            disk: ByteSize::mib(100_000),
        });
        let unset = SandboxesConfig::default().resources(machine);
        assert_eq!((unset.memory.max, unset.millicores.max), (6272 << 20, 4000));
        let config = SandboxesConfig {
            max_memory: Some(ByteSize::mib(1024)),
            max_cpu: Some(500),
            max_processes: 100,
            ..SandboxesConfig::default()
        };
        let set = config.resources(machine);
        assert_eq!((set.memory.default, set.memory.max), (Some(1 << 30), 1 << 30));
        assert_eq!((set.millicores.max, set.processes.max), (500, 100));
        let defaults = config.defaults(machine);
        assert_eq!((defaults.memory, defaults.processes), (ByteSize::mib(1024), 100));
    }

    #[test]
    fn a_maximum_below_what_a_sandbox_needs_is_refused() {
        let rows = [
            SandboxesConfig { max_memory: Some(ByteSize::mib(1)), ..Default::default() },
            SandboxesConfig { max_cpu: Some(0), ..Default::default() },
            SandboxesConfig { max_processes: 1, ..Default::default() },
            SandboxesConfig { max_disk: Some(ByteSize::mib(1)), ..Default::default() },
        ];
        for config in rows {
            assert!(config.problem().is_some_and(|it| it.contains("too small")), "{config:?}");
        }
    }
}
