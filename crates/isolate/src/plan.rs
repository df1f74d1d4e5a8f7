//! What is to be done to make one slot, as plain values.
//!
//! The daemon says what it wants as a [`SlotSpec`]; the spawner adds what only it knows and makes
//! a [`Plan`] of it; init carries the plan out.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What the daemon wants a slot to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotSpec {
    pub launch: Launch,
    /// A number for the tenant, whose slots are in one cgroup: tenants get equal shares of the processors,
    /// however many slots each has.
    pub tenant: u64,
    pub disk: Disk,
    pub max_processes: u32,
    pub max_open_files: u32,
}

/// How the user's program comes into the slot, and how it gets its code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Launch {
    /// Waits for the request, writes the code where the program expects it, and becomes the
    /// program: everything about it is new.
    Exec { program: Program, code_path: String },
    /// Becomes the program at once, which waits for the request in its own start-up.
    Park { program: Program },
    /// Is forked from a program that waits in its own start-up.
    /// If `hurried`, a request is waiting already, and memory is not brought in ahead.
    Fork { zygote: u64, hurried: bool },
    /// Not a slot: the program that slots are forked from. It never sees a request.
    Zygote { program: Program },
}

/// A program with its arguments and variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Absolute path and arguments.
    pub argv: Vec<String>,
    /// The variables every execution has, as `KEY=VALUE`; those of the request come after.
    pub env: Vec<String>,
}

/// How much the writable layer of a slot may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    pub bytes: u64,
    pub inodes: u64,
}

/// The user's home and working directory inside.
pub const HOME: &str = "/home/agbox";
pub const WORKSPACE: &str = "/workspace";

/// The user and group that user code has inside.
pub const INSIDE_USER: u32 = 1000;

/// The user inside that the processes have which serve a sandbox. No program inside can become this user (the filter
/// sees to it), so none can signal them or change their limits, not even as root.
pub const SERVICE_USER: u32 = 65_535;

/// Everything init needs to know to turn itself into a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub hostname: String,
    pub disk: Disk,
    pub namespace: NamespaceLimits,
    pub rights: Rights,
    /// The filter for init itself, loaded last.
    pub init_filter: Vec<u8>,
    /// How many `cgroup.procs` descriptors come with the plan. None: limits are soft.
    pub cgroups: usize,
    /// Whether a descriptor that becomes readable when memory ran out comes with the plan.
    pub has_oom_event: bool,
    pub launch: Launch,
}

/// What is left to user code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    pub limits: Rlimits,
    /// Whether init and user code have different users. Without a range of ids they cannot.
    pub identity: Identity,
    /// The raw seccomp filter.
    pub filter: Vec<u8>,
}

/// The users of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identity {
    /// Init is user 0 inside, user code is [`INSIDE_USER`]; both are other users on the host.
    Apart,
    /// Both are [`INSIDE_USER`], and on the host the one ordinary user who runs the server.
    Shared,
}

/// Resource limits of every process of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimits {
    pub open_files: u64,
    pub processes: u64,
}

impl Rlimits {
    /// Returns every limit by its number, as the kernel wants it.
    pub fn all(self) -> [(u32, u64); 8] {
        [
            (libc::RLIMIT_NOFILE, self.open_files),
            (libc::RLIMIT_NPROC, self.processes),
            (libc::RLIMIT_CORE, 0),
            // Memory that cannot be swapped is of no use here and is counted per user.
            (libc::RLIMIT_MEMLOCK, 64 * 1024),
            (libc::RLIMIT_MSGQUEUE, 0),
            // Queued signals and timers. Where all slots belong to one user, they count together.
            (libc::RLIMIT_SIGPENDING, 512),
            (libc::RLIMIT_NICE, 0),
            (libc::RLIMIT_RTPRIO, 0),
        ]
    }
}

/// What the users of one user namespace may have of what the kernel counts for each user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceLimits {
    pub inotify_instances: u32,
    pub inotify_watches: u32,
    /// Pairs of terminals: not counted for users, but by the file system that each namespace has for them.
    pub terminals: u32,
}

impl NamespaceLimits {
    /// For a slot, which runs one program for a short time.
    pub const SLOT: Self = Self { inotify_instances: 16, inotify_watches: 8192, terminals: 16 };
    /// For a sandbox, which may have editors and servers in it.
    pub const SANDBOX: Self =
        Self { inotify_instances: 128, inotify_watches: 65536, terminals: 64 };
    /// For a sandbox whose user is also that of every other one.
    pub const SHARED_SANDBOX: Self = Self { inotify_instances: 32, ..Self::SANDBOX };

    /// Returns the files below `/proc/sys/user` that hold these limits, and those that nothing inside may have at all.
    /// Without a user namespace of its own, no program can make a namespace of another kind.
    pub fn settings(self) -> [(&'static str, u32); 4] {
        [
            ("max_inotify_instances", self.inotify_instances),
            ("max_inotify_watches", self.inotify_watches),
            ("max_fanotify_groups", 0),
            ("max_user_namespaces", 0),
        ]
    }
}

/// The steps of making a slot, in order. Each may need a right that a later one gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Step {
    /// Reading the plan and its descriptors.
    Plan,
    /// Putting the image's root in place.
    Root,
    /// The writable layer.
    Writable,
    /// `/proc` and what is hidden in it.
    Proc,
    /// Terminals.
    Devices,
    /// Leaving the old root for good.
    Pivot,
    /// Host name and loopback.
    Network,
    /// Forking the process that becomes the user's program.
    Fork,
    /// Joining the cgroup.
    Cgroup,
    /// Resource limits.
    Limits,
    /// Users, capabilities, `no_new_privs`.
    Privileges,
    /// The system call filter.
    Seccomp,
    /// What a runtime does between its start and its first request.
    Runtime,
    /// Making sure that a forked program has given up what it must.
    Verify,
    /// Reading the request and writing the code where the program finds it.
    Code,
    /// Becoming the user's program.
    Exec,
    /// Going to the folder that a command is to run in.
    Directory,
    /// Paths of the machine that a sandbox was given.
    HostPath,
}

/// A step could not be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("step {step:?}: {}", std::io::Error::from_raw_os_error(*errno))]
pub struct Broken {
    pub step: Step,
    pub errno: i32,
}

impl Broken {
    pub(crate) fn at(step: Step) -> impl Fn(rustix::io::Errno) -> Self {
        move |errno| Self { step, errno: errno.raw_os_error() }
    }
}

/// How a process ended, by its wait status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// What the kernel says of a slot's use, when it is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub peak_memory: u64,
    pub cpu_time: Duration,
    pub oom_kills: u64,
}
