//! Limits of a whole place: what all slots, or all sandboxes, may use together. They leave room for the server,
//! whatever the limits of each slot add up to.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::{Cgroups, Role, write_at};

/// What everything in one place may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TotalLimits {
    pub memory: u64,
    pub processes: u64,
}

impl TotalLimits {
    /// Returns limits of this much memory, and of three quarters of the processes that the kernel can have.
    pub fn with_memory(memory: u64) -> Self {
        let number = |file: &str| {
            let text = std::fs::read_to_string(file).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let kernel = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"];
        let most = kernel.into_iter().filter_map(number).min().unwrap_or(LEAST_PID_MAX);
        Self { memory, processes: most / 4 * 3 }
    }
}

/// What of everything is kept for tenants that have nothing, as with the places of executions.
const KEPT_FOR_OTHERS: u64 = 8;

impl TotalLimits {
    /// Returns what one tenant may use of all this.
    pub(super) fn of_one_tenant(self) -> Self {
        let part = |all: u64| all - all / KEPT_FOR_OTHERS;
        Self { memory: part(self.memory), processes: part(self.processes) }
    }
}

/// What every kernel can have by default.
const LEAST_PID_MAX: u64 = 32_768;

impl Cgroups {
    /// Sets what everything in this place may use together, and in each that is made beside it from now on.
    pub fn limit_total(&mut self, total: TotalLimits) -> Result<(), Errno> {
        self.total = Some(total);
        self.set_total_limits()
    }

    pub(super) fn set_total_limits(&self) -> Result<(), Errno> {
        let Some(total) = self.total else { return Ok(()) };
        self.trees.iter().try_for_each(|tree| tree.role.limit_total(&tree.dir, total))
    }
}

impl Role {
    /// Limits what everything in a cgroup of this hierarchy may use together.
    pub(super) fn limit_total(
        &self,
        dir: &OwnedFd,
        TotalLimits { memory, processes }: TotalLimits,
    ) -> Result<(), Errno> {
        let files: &[(&str, u64)] = match self {
            Self::V2 => &[("memory.max", memory), ("pids.max", processes)],
            Self::V2Beside => &[],
            Self::V1(controllers) => {
                let has = |name: &str| controllers.iter().any(|it| it == name);
                match (has("memory"), has("pids")) {
                    (true, true) => &[("memory.limit_in_bytes", memory), ("pids.max", processes)],
                    (true, false) => &[("memory.limit_in_bytes", memory)],
                    (false, true) => &[("pids.max", processes)],
                    (false, false) => &[],
                }
            }
        };
        for (file, limit) in files {
            match write_at(dir, file, &limit.to_string()) {
                // v1 refuses a limit below what is in use: sandboxes of an earlier server go on as they are.
                Ok(()) | Err(Errno::BUSY) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}
