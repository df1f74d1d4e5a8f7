//! What one sandbox may ask for: the least, the operator's default and the operator's maximum of each resource.

use crate::{
    spec::{Resources, SandboxSpec},
    units::ByteSize,
};

/// A resource that a request can limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Memory,
    Cpu,
    Processes,
    Disk,
}

impl Resource {
    pub const ALL: [Self; 4] = [Self::Memory, Self::Cpu, Self::Processes, Self::Disk];

    /// Returns the name in requests and in `GET /v1/limits`, with its unit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory_mb",
            Self::Cpu => "cpu_millicores",
            Self::Processes => "processes",
            Self::Disk => "disk_mb",
        }
    }

    /// Returns the setting that holds the operator's maximum.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Memory => "sandboxes.max_memory",
            Self::Cpu => "sandboxes.max_cpu",
            Self::Processes => "sandboxes.max_processes",
            Self::Disk => "sandboxes.max_disk",
        }
    }

    /// Writes an amount as people read it.
    fn show(self, amount: u64) -> String {
        match self {
            Self::Memory | Self::Disk => ByteSize::bytes(amount).to_string(),
            Self::Cpu => format!("{amount} thousandths of a processor"),
            Self::Processes => amount.to_string(),
        }
    }
}

/// The range of one resource, in bytes, thousandths of a processor, or processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub min: u64,
    /// What a sandbox gets that does not ask; nothing: it shares what there is, up to the maximum.
    pub default: Option<u64>,
    pub max: u64,
}

impl Range {
    /// Returns the range in the unit of the resource's name in requests: whole MiB instead of bytes.
    #[must_use]
    pub fn in_wire_units(self, resource: Resource) -> Self {
        let unit = match resource {
            Resource::Memory | Resource::Disk => 1 << 20,
            Resource::Cpu | Resource::Processes => 1,
        };
        Self {
            min: self.min.div_ceil(unit),
            default: self.default.map(|default| default / unit),
            max: self.max / unit,
        }
    }
}

/// The ranges of all resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourcePolicy {
    pub memory: Range,
    pub millicores: Range,
    pub processes: Range,
    pub disk: Range,
}

/// The size of the machine, from which the maxima follow that the operator does not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineSize {
    pub memory: ByteSize,
    pub processors: u32,
    /// The size of the file system with the data directory.
    pub disk: ByteSize,
}

/// A resource is asked for outside of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} must be from {} to {} (the maximum is the operator's setting {})",
    .resource.name(), .resource.show(*.min), .resource.show(*.max), .resource.setting()
)]
pub struct ResourceRefusal {
    pub resource: Resource,
    pub min: u64,
    pub max: u64,
}

/// Below this not even a shell starts.
pub const LEAST_MEMORY: ByteSize = ByteSize::mib(16);

/// A shell, its pipeline, and what serves it.
pub const LEAST_PROCESSES: u32 = 8;

impl MachineSize {
    /// Returns what sandboxes and executions may use together: the rest is for the server itself.
    pub fn memory_for_tenants(self) -> ByteSize {
        const LEAST_FOR_SERVER: ByteSize = ByteSize::mib(512);
        let eighth = ByteSize::bytes(self.memory.as_bytes() / 8);
        let left = self.memory.saturating_sub(eighth.max(LEAST_FOR_SERVER));
        // Even a very small machine gives something: half of it.
        left.max(ByteSize::bytes(self.memory.as_bytes() / 2))
    }

    /// Returns what one tenant may use of that: an eighth is kept for the others.
    pub fn memory_for_one_tenant(self) -> ByteSize {
        let all = self.memory_for_tenants().as_bytes();
        ByteSize::bytes(all - all / 8)
    }
}

impl ResourcePolicy {
    /// Returns the policy of a machine whose operator sets nothing. `least_disk` is what a volume needs.
    pub fn of_machine(machine: MachineSize, least_disk: ByteSize) -> Self {
        let range = |min: u64, default: u64, max: u64| {
            let max = max.max(min);
            Range { min, default: Some(default.clamp(min, max)), max }
        };
        let memory = machine.memory_for_one_tenant().as_bytes();
        Self {
            memory: range(LEAST_MEMORY.as_bytes(), ByteSize::mib(2048).as_bytes(), memory),
            millicores: Range {
                min: 1,
                default: None,
                max: u64::from(machine.processors.max(1)) * 1000,
            },
            processes: range(LEAST_PROCESSES.into(), 1024, 16_384),
            disk: range(
                least_disk.as_bytes(),
                ByteSize::mib(4096).as_bytes(),
                machine.disk.as_bytes(),
            ),
        }
    }

    pub fn range(&self, resource: Resource) -> Range {
        match resource {
            Resource::Memory => self.memory,
            Resource::Cpu => self.millicores,
            Resource::Processes => self.processes,
            Resource::Disk => self.disk,
        }
    }

    /// Refuses a sandbox that asks for more, or less, of something than it may have. Its companions count like
    /// sandboxes of their own.
    pub fn check(&self, spec: &SandboxSpec) -> Result<(), ResourceRefusal> {
        self.check_one(&spec.resources)?;
        spec.companions.iter().try_for_each(|companion| self.check_one(&companion.resources))
    }

    fn check_one(&self, asked: &Resources) -> Result<(), ResourceRefusal> {
        let Resources { millicores, memory, disk, processes } = *asked;
        let rows = [
            (Resource::Memory, memory.map(ByteSize::as_bytes)),
            (Resource::Cpu, millicores),
            (Resource::Processes, processes.map(u64::from)),
            (Resource::Disk, disk.map(ByteSize::as_bytes)),
        ];
        rows.into_iter().try_for_each(|(resource, asked)| self.check_amount(resource, asked))
    }

    fn check_amount(&self, resource: Resource, asked: Option<u64>) -> Result<(), ResourceRefusal> {
        let Range { min, max, default: _ } = self.range(resource);
        match asked {
            Some(asked) if !(min..=max).contains(&asked) => {
                Err(ResourceRefusal { resource, min, max })
            }
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Companion;

    const MACHINE: MachineSize = MachineSize {
        memory: ByteSize::mib(24 << 10),
        processors: 2,
        disk: ByteSize::mib(100 << 10),
    };

    fn policy() -> ResourcePolicy {
        ResourcePolicy::of_machine(MACHINE, ByteSize::mib(16))
    }

    fn asked(resources: Resources) -> SandboxSpec {
        SandboxSpec { resources, ..SandboxSpec::default() }
    }

    fn memory(mib: u64) -> Resources {
        Resources { memory: Some(ByteSize::mib(mib)), ..Resources::default() }
    }

    #[test]
    fn maxima_follow_from_the_machine_and_leave_room_for_the_server() {
        let rows = [(24 << 10, 21 << 10), (4 << 10, 3584), (1 << 10, 512), (512, 256)];
        for (machine, tenants) in rows {
            let size = MachineSize { memory: ByteSize::mib(machine), ..MACHINE };
            assert_eq!(size.memory_for_tenants(), ByteSize::mib(tenants), "{machine}");
            let one = ByteSize::mib(tenants - tenants / 8);
            assert_eq!(size.memory_for_one_tenant(), one, "{machine}");
        }
        let small = MachineSize { memory: ByteSize::mib(1024), ..MACHINE };
        let small = ResourcePolicy::of_machine(small, ByteSize::mib(16));
        assert_eq!(small.memory.default, Some(small.memory.max), "the default fits the machine");
    }

    #[test]
    fn what_a_request_asks_for_is_within_the_operators_range() {
        let processes =
            |processes| Resources { processes: Some(processes), ..Resources::default() };
        let cpu = |millicores| Resources { millicores: Some(millicores), ..Resources::default() };
        let disk = |mib| Resources { disk: Some(ByteSize::mib(mib)), ..Resources::default() };
        let rows = [
            (Resources::default(), None),
            (memory(16), None),
            (memory(18_816), None),
            (memory(15), Some(Resource::Memory)),
            (memory(18_817), Some(Resource::Memory)),
            (memory(900 << 10), Some(Resource::Memory)),
            (cpu(2000), None),
            (cpu(2001), Some(Resource::Cpu)),
            (processes(8), None),
            (processes(7), Some(Resource::Processes)),
            (processes(16_385), Some(Resource::Processes)),
            (disk(100 << 10), None),
            (disk((100 << 10) + 1), Some(Resource::Disk)),
            (disk(15), Some(Resource::Disk)),
        ];
        for (resources, refused) in rows {
            let answer = policy().check(&asked(resources));
            assert_eq!(answer.err().map(|it| it.resource), refused, "{resources:?}");
        }
    }

    #[test]
    fn a_companion_is_held_to_the_same_maxima() {
        let companion = Companion { resources: memory(900 << 10), ..Companion::default() };
        let spec = SandboxSpec { companions: vec![companion], ..SandboxSpec::default() };
        assert!(policy().check(&spec).is_err());
    }

    #[test]
    fn a_refusal_names_the_range_and_the_setting() {
        let refusal = policy().check(&asked(memory(1))).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "memory_mb must be from 16 MiB to 18816 MiB (the maximum is the operator's setting \
             sandboxes.max_memory)"
        );
    }
}
