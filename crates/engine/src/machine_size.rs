//! How large this machine is: what the operator's maxima follow from.

use std::{num::NonZero, path::Path, thread::available_parallelism};

use model::{
    resources::{MachineSize, ResourcePolicy},
    units::ByteSize,
};

use crate::sandboxes::LEAST_DISK;

/// The size of this machine, and of the file system with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured(pub MachineSize);

/// Measures this machine. `data` is the data directory.
pub fn of(data: &Path) -> Measured {
    let processors = available_parallelism().map_or(1, NonZero::get);
    let disk = rustix::fs::statvfs(data).map_or(u64::MAX, |disk| {
        // What cannot be measured is no limit: the volume itself is one.
        disk.f_frsize.saturating_mul(disk.f_blocks)
    });
    Measured(MachineSize {
        memory: memory(),
        processors: u32::try_from(processors).unwrap_or(u32::MAX),
        disk: ByteSize::bytes(disk),
    })
}

/// Returns how much memory the machine has.
pub fn memory() -> ByteSize {
    let machine = rustix::system::sysinfo();
    ByteSize::bytes(u64::from(machine.mem_unit).saturating_mul(machine.totalram))
}

impl Measured {
    /// Returns the policy of this machine if its operator sets nothing.
    pub fn policy(self) -> ResourcePolicy {
        ResourcePolicy::of_machine(self.0, LEAST_DISK)
    }
}
