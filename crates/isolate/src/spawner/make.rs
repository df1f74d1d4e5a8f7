//! Making one slot: everything that the spawner does for it.

use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::Errno,
    net::SendFlags,
    pipe::{PipeFlags, pipe_with},
    process::Pid,
};

use super::{Slot, Spawner, process};
use crate::{
    cgroup::Group,
    plan::{Broken, Identity, Plan, Rlimits, SlotSpec, Step},
    socket::PacketSocket,
    sys::{
        self,
        process::{CStrings, Fork},
    },
    wire::{self, CgroupFile, Command},
};

/// A slot that init is now setting up.
pub(super) struct Made {
    pub(super) pid: Pid,
    pub(super) slot: Slot,
    pub(super) cgroup: Vec<CgroupFile>,
    /// For the daemon: init's control socket, stdin, stdout, stderr, code, then the cgroup files.
    pub(super) fds: Vec<OwnedFd>,
}

/// Entries of `/proc` that tell of the host or of other tenants, or that only a host needs.
const MASKED: &[&str] = &[
    "acpi/",
    "asound/",
    "bus/",
    "cmdline",
    "config.gz",
    "diskstats",
    "driver/",
    "fs/",
    "interrupts",
    "iomem",
    "ioports",
    "irq/",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "modules",
    "partitions",
    "sched_debug",
    "scsi/",
    "slabinfo",
    "swaps",
    "sys/kernel/random/boot_id",
    "sysrq-trigger",
    "timer_list",
    "vmallocinfo",
];

pub(super) fn slot(spawner: &mut Spawner, number: u64, spec: &SlotSpec) -> Result<Made, Broken> {
    let id = spawner.ids.take().ok_or(Broken { step: Step::Fork, errno: libc::EAGAIN })?;
    let group = match &spawner.cgroups {
        Some(cgroups) => cgroups.make(&format!("s{number}"), spec.max_processes).map(Some),
        None => Ok(None),
    };
    let group = group.map_err(|errno| {
        spawner.ids.give_back(id);
        Broken::at(Step::Cgroup)(errno)
    })?;
    match start(spawner, spec, group.as_ref(), id) {
        Ok(Started { pid, pidfd, cgroup, fds }) => {
            Ok(Made { pid, slot: Slot { number, pidfd, group, id }, cgroup, fds })
        }
        Err(broken) => {
            // Init has not been let in yet, so the group is empty; it ends with its socket.
            if let (Some(cgroups), Some(group)) = (&spawner.cgroups, &group) {
                let _ = cgroups.remove(group);
            }
            spawner.ids.give_back(id);
            Err(broken)
        }
    }
}

struct Started {
    pid: Pid,
    pidfd: OwnedFd,
    cgroup: Vec<CgroupFile>,
    fds: Vec<OwnedFd>,
}

fn start(
    spawner: &Spawner,
    spec: &SlotSpec,
    group: Option<&Group>,
    id: u32,
) -> Result<Started, Broken> {
    let at_plan = Broken::at(Step::Plan);
    let (for_daemon, for_init) = PacketSocket::pair().map_err(&at_plan)?;
    let pipes = Pipes::new().map_err(&at_plan)?;
    let files = group.map_or(Ok(Vec::new()), Group::files).map_err(Broken::at(Step::Cgroup))?;
    let (kinds, files): (Vec<_>, Vec<_>) = files.into_iter().unzip();
    let identity = if spawner.ids.are_apart() { Identity::Apart } else { Identity::Shared };
    let fork = sys::process::fork(sys::process::ALL_NAMESPACES);
    let (pid, pidfd) = match fork.map_err(Broken::at(Step::Fork))? {
        Fork::Parent { child, pidfd } => (child, pidfd),
        Fork::Child => become_init(spawner, &for_init, identity),
    };
    drop(for_init);
    process::map_ids(pid, identity, id).map_err(Broken::at(Step::Fork))?;
    send_plan(spawner, spec, group, identity, &for_daemon, &pipes).map_err(at_plan)?;
    let mut fds = vec![for_daemon.into_fd()];
    fds.extend(pipes.ours);
    fds.extend(files);
    Ok(Started { pid, pidfd, cgroup: kinds, fds })
}

/// stdin, stdout, stderr and the code, each with an end for the daemon and one for the program.
struct Pipes {
    ours: Vec<OwnedFd>,
    theirs: Vec<OwnedFd>,
}

impl Pipes {
    fn new() -> Result<Self, Errno> {
        let mut pipes = Self { ours: Vec::new(), theirs: Vec::new() };
        for program_reads in [true, false, false, true] {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            let (ours, theirs) = if program_reads { (write, read) } else { (read, write) };
            rustix::io::ioctl_fionbio(&ours, true)?;
            pipes.ours.push(ours);
            pipes.theirs.push(theirs);
        }
        Ok(pipes)
    }
}

fn send_plan(
    spawner: &Spawner,
    spec: &SlotSpec,
    group: Option<&Group>,
    identity: Identity,
    control: &PacketSocket,
    pipes: &Pipes,
) -> Result<(), Errno> {
    let tree = spawner.template.clone_tree()?;
    let procs = group.map_or(Ok(Vec::new()), Group::procs)?;
    let oom_event = group.map_or(Ok(None), Group::oom_event)?;
    let plan = Plan {
        hostname: "sandbox".to_owned(),
        disk: spec.disk,
        masked: MASKED.iter().map(ToString::to_string).collect(),
        limits: Rlimits {
            open_files: spec.max_open_files.into(),
            processes: spec.max_processes.into(),
        },
        user_filters: spawner.user_filters.clone(),
        init_filter: spawner.init_filter.clone(),
        identity,
        cgroups: procs.len(),
        has_oom_event: oom_event.is_some(),
        launch: spec.launch.clone(),
    };
    let fds: Vec<BorrowedFd<'_>> = std::iter::once(&tree)
        .chain(&pipes.theirs)
        .chain(&oom_event)
        .chain(&procs)
        .map(AsFd::as_fd)
        .collect();
    let packet = wire::encode(&Command::Plan(Box::new(plan))).or(Err(Errno::BADMSG))?;
    control.send(&packet, &fds, SendFlags::DONTWAIT)
}

/// The number at which init finds its control socket.
const CONTROL: i32 = 3;

/// In the new namespaces: waits until the plan is there, which is sent only after the user ids
/// were mapped, and becomes init.
fn become_init(spawner: &Spawner, control: &PacketSocket, identity: Identity) -> ! {
    if let Err(_errno) = prepare_init(spawner, control, identity) {
        sys::process::exit_now(1);
    }
    let argv = CStrings::new(vec![CString::from(c"init")]);
    let _errno = sys::process::exec_fd(spawner.init.as_fd(), &argv, &CStrings::new(Vec::new()));
    sys::process::exit_now(1)
}

fn prepare_init(
    spawner: &Spawner,
    control: &PacketSocket,
    identity: Identity,
) -> Result<(), Errno> {
    loop {
        match poll(&mut [PollFd::new(control, PollFlags::IN)], None) {
            Err(Errno::INTR) => {}
            other => break other.map(drop),
        }
    }?;
    process::take_inside_identity(identity)?;
    for standard in 0..=2 {
        sys::process::place(spawner.null.as_fd(), standard)?;
    }
    let control = out_of_the_way(control)?;
    sys::process::place(control.as_fd(), CONTROL)
}

/// Stores a program where nobody can change it, not even through `/proc/1/exe`.
pub(super) fn sealed_program(bytes: &[u8]) -> Result<OwnedFd, Errno> {
    let fd = memfd_create("init", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = rustix::io::write(&fd, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    let all = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&fd, all)?;
    out_of_the_way(fd)
}

pub(super) fn open_null() -> Result<OwnedFd, Errno> {
    out_of_the_way(rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Moves a descriptor above the numbers that a child puts others at.
fn out_of_the_way(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(fd, 64)
}
