//! The messages between daemon, spawner and init.
//!
//! Each travels as one packet of a SEQPACKET socket: the version, then the message; descriptors
//! go beside it. All three are parts of one build, so a packet of another version is refused.

use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    collect::Collect,
    paths::NoPath,
    plan::{Broken, Exit, Plan, Program, Rights, SlotSpec},
    posture::{Posture, Volumes},
    sandbox::{ContainedPlan, SandboxAnswer, SandboxOrder, SandboxPlan},
};

const VERSION: u8 = 1;

/// The largest packet there is: a plan with its filters stays far below.
pub const MAX_PACKET: usize = 32 * 1024;

/// The most descriptors that go with one packet.
pub const MAX_FDS: usize = 240;

/// The period over which processor time is limited, which is the kernel's own default.
pub const CPU_PERIOD: Duration = Duration::from_millis(100);

/// What the daemon asks of the spawner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Adds a file to the root of all slots that are made from now on. Read-only, for everybody.
    AddFile {
        path: String,
        content: Vec<u8>,
    },
    /// Starts a program that slots can be forked from.
    StartZygote {
        zygote: u64,
        program: Program,
    },
    /// Lets it end, once the slots that were forked from it have.
    EndZygote {
        zygote: u64,
    },
    Make {
        slot: u64,
        spec: SlotSpec,
    },
    Destroy {
        slot: u64,
    },
    /// About a long-lived sandbox; answered by the same number.
    Sandbox {
        ticket: u64,
        order: SandboxOrder,
    },
    /// Starts the process that images are unpacked in; answered by the same number. One that is
    /// there already is ended first.
    StartImageWorker {
        ticket: u64,
    },
}

/// What the spawner tells the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// The first notice: what slots are made of here.
    Hello {
        posture: Posture,
    },
    /// The slot is being made; its descriptors come along. Init says `Ready` when it is.
    Made {
        slot: u64,
        cgroup: Vec<CgroupFile>,
    },
    /// The slot cannot be made.
    Failed {
        slot: u64,
        broken: Broken,
    },
    /// No more slots can be forked from it.
    ZygoteGone {
        zygote: u64,
    },
    /// Nothing is left of the slot: processes, cgroup, users.
    Gone {
        slot: u64,
    },
    Sandbox {
        ticket: u64,
        answer: SandboxAnswer,
    },
    /// What holds the limits of sandboxes' files, as far as it was found out.
    Volumes {
        posture: Volumes,
    },
    /// The process that images are unpacked in is on its way, and its socket comes along. Its first
    /// word there is a [`Report`]: ready or broken.
    ImageWorker {
        ticket: u64,
        started: Result<(), Broken>,
    },
}

/// What the daemon can do to a slot's cgroup through a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupFile {
    MemoryLimit,
    /// v1: memory and swap together. v2: swap alone.
    SwapLimitV1,
    SwapLimitV2,
    MemoryPeak,
    /// A file with a line `oom_kill N`.
    OomKills,
    CpuShares,
    CpuWeight,
    /// v1: microseconds of processor time in every period of [`CPU_PERIOD`].
    CpuQuotaV1,
    /// v2: `QUOTA PERIOD`, both in microseconds.
    CpuMaxV2,
    /// v1: nanoseconds.
    CpuUsageV1,
    /// v2: a file with a line `usage_usec N`.
    CpuUsageV2,
    Kill,
    /// v2: `1` freezes, `0` thaws.
    FreezeV2,
    /// v2: a file with a line `frozen N`.
    EventsV2,
    /// v1: `FROZEN` or `THAWED`, and `FREEZING` in between.
    FreezerStateV1,
}

/// What the spawner or the daemon tells init.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    Plan(Box<Plan>),
    /// Puts it where the supervisor of a sandbox is. With it come the descriptors of control groups:
    /// those of commands, as many of its own, the folder for groups of single commands.
    Settle {
        groups: usize,
        has_leaves: bool,
    },
    /// Makes it the supervisor of a sandbox, after `Settle`.
    Sandbox(Box<SandboxPlan>),
    /// The sandbox that it waits with is somebody's now.
    Taken,
    /// Makes it the supervisor of the container that it was started in.
    Contained(Box<ContainedPlan>),
    /// The request is on its way to the program; it may run this long. Without a cgroup init
    /// itself looks after the memory. With `collect`, the files of the program follow the report of its
    /// end, which then comes when all of its processes are gone.
    Go {
        at_most: Duration,
        watch_memory: Option<u64>,
        collect: Option<Collect>,
    },
    Kill,
}

/// What the spawner asks of a zygote: the processes of one slot. With it come init's program and its
/// control socket, then stdin, stdout, stderr, the code, and the `cgroup.procs` files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Birth {
    /// The users inside, as the zygote sees them.
    pub map: String,
    /// The user that creates its user namespace, as the zygote sees it. None: the zygote's own.
    pub creator: Option<u32>,
    pub rights: Rights,
    /// A request is waiting: no time is spent on bringing memory in.
    pub hurried: bool,
}

/// What a zygote answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Born {
    /// Comes with a descriptor of init's process.
    Alive,
    Failed(Broken),
}

/// What init tells the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    Ready,
    Broken(Broken),
    /// The sandbox cannot have a path of the machine.
    NoPath(NoPath),
    /// The program ended. `all_gone`: so has every other process of the slot, and the pipes are at
    /// their end. If not, the program said its exit code as its last act, and what it wrote is in
    /// the pipes; taking it down goes on behind.
    Exited {
        exit: Exit,
        seen: Seen,
        all_gone: bool,
    },
}

/// What init itself saw of a program. The cgroup's counters, where there is one, say more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Since the request came.
    pub cpu_time: Duration,
    /// Only where init looked after the memory.
    pub peak_memory: u64,
    pub memory_ran_out: bool,
}

/// A packet could not be understood.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("a packet of version {0}, this is version {VERSION}")]
    Version(u8),
    #[error("a packet that cannot be read")]
    Malformed(#[source] postcard::Error),
    #[error("an empty packet")]
    Empty,
}

/// Encodes a message. Only a message larger than memory could fail to encode.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, WireError> {
    postcard::to_extend(message, vec![VERSION]).map_err(WireError::Malformed)
}

/// Decodes a packet.
pub fn decode<T: DeserializeOwned>(packet: &[u8]) -> Result<T, WireError> {
    match packet.split_first() {
        None => Err(WireError::Empty),
        Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(WireError::Malformed),
        Some((&other, _)) => Err(WireError::Version(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_as_it_was() {
        let order = Order::Destroy { slot: 7 };
        assert_eq!(decode::<Order>(&encode(&order).unwrap()).unwrap(), order);
    }

    #[test]
    fn a_packet_of_another_version_is_refused() {
        let mut packet = encode(&Command::Kill).unwrap();
        packet[0] = 9;
        assert!(matches!(decode::<Command>(&packet), Err(WireError::Version(9))));
    }

    #[test]
    fn a_cut_or_empty_packet_is_refused() {
        let go =
            Command::Go { at_most: Duration::from_secs(9), watch_memory: Some(1), collect: None };
        let packet = encode(&go).unwrap();
        assert!(matches!(decode::<Command>(&[]), Err(WireError::Empty)));
        for end in 1..packet.len() {
            assert!(decode::<Command>(&packet[..end]).is_err(), "{end}");
        }
    }
}
