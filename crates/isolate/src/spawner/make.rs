//! Making one slot: everything that the spawner does for it.

use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Gid, MemfdFlags, Mode, OFlags, SealFlags, Uid, fchown, fcntl_add_seals, memfd_create},
    io::Errno,
    net::{RecvFlags, SendFlags},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, pidfd_send_signal},
    thread::{ThreadNameSpaceType, move_into_thread_name_spaces},
};

use super::{Origin, Slot, Spawner, process};
use crate::{
    cgroup::Group,
    identity,
    oom::Priority,
    plan::{
        Broken, Disk, Identity, Launch, NamespaceLimits, Plan, Program, Rights, Rlimits, SlotSpec,
        Step,
    },
    socket::PacketSocket,
    sys::{
        self,
        process::{CStrings, Fork},
    },
    wire::{self, CgroupFile, Command},
};

/// What a slot is put together from, before it has a process.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) number: u64,
    pub(super) id: u32,
    pub(super) group: Option<Group>,
    cgroup_kinds: Vec<CgroupFile>,
    cgroup_files: Vec<OwnedFd>,
    for_daemon: PacketSocket,
    pub(super) for_init: PacketSocket,
    pub(super) pipes: Pipes,
}

/// What is handed to the daemon: init's control socket, stdin, stdout, stderr, code, then the
/// cgroup files.
pub(super) struct Ends {
    pub(super) cgroup: Vec<CgroupFile>,
    pub(super) fds: Vec<OwnedFd>,
}

impl Parts {
    /// Gets everything together. On failure nothing is left.
    pub(super) fn gather(
        spawner: &mut Spawner,
        number: u64,
        spec: &SlotSpec,
    ) -> Result<Self, Broken> {
        let id = spawner.ids.take().ok_or(Broken { step: Step::Fork, errno: libc::EAGAIN })?;
        let group = match &spawner.cgroups {
            Some(cgroups) => cgroups.make_slot(spec.tenant, number, spec.max_processes).map(Some),
            None => Ok(None),
        };
        let group = group.map_err(|errno| {
            spawner.ids.give_back(id);
            Broken::at(Step::Cgroup)(errno)
        })?;
        let files = group.as_ref().map_or(Ok(Vec::new()), Group::files);
        let pipes = Pipes::new().and_then(|pipes| match spawner.slot_identity() {
            Identity::Apart => pipes.belonging_to(id + 1),
            Identity::Shared => Ok(pipes),
        });
        match (files, PacketSocket::pair(), pipes) {
            (Ok(files), Ok((for_daemon, for_init)), Ok(pipes)) => {
                let (cgroup_kinds, cgroup_files) = files.into_iter().unzip();
                Ok(Self {
                    number,
                    id,
                    group,
                    cgroup_kinds,
                    cgroup_files,
                    for_daemon,
                    for_init,
                    pipes,
                })
            }
            (Err(errno), _, _) | (_, Err(errno), _) | (_, _, Err(errno)) => {
                spawner.forget(id, group);
                Err(Broken::at(Step::Plan)(errno))
            }
        }
    }

    /// Puts the plan into init's socket. It waits there until init reads it.
    pub(super) fn send_plan(&self, spawner: &Spawner, spec: &SlotSpec) -> Result<(), Errno> {
        let group = self.group.as_ref();
        let procs = group.map_or(Ok(Vec::new()), Group::procs)?;
        let oom_event = group.map_or(Ok(None), Group::oom_event)?;
        let plan = Plan {
            cgroups: procs.len(),
            has_oom_event: oom_event.is_some(),
            ..plan_for(spawner, spec)
        };
        let fds: Vec<&OwnedFd> = self.pipes.theirs.iter().chain(&oom_event).chain(&procs).collect();
        send(spawner, &plan, &self.for_daemon, &fds)
    }

    /// Separates what the daemon gets from what the spawner keeps.
    pub(super) fn into_slot(self, origin: Origin, pidfd: OwnedFd) -> (Slot, Ends) {
        let mut fds = vec![self.for_daemon.into_fd()];
        fds.extend(self.pipes.ours);
        fds.extend(self.cgroup_files);
        let (pid, zygote) = match origin {
            Origin::Fork(pid) => (Some(pid), None),
            Origin::Zygote(zygote) => (None, Some(zygote)),
        };
        let slot = Slot { pid, pidfd, group: self.group, id: self.id, zygote };
        (slot, Ends { cgroup: self.cgroup_kinds, fds })
    }
}

/// Forks init into new namespaces and lets it have the plan once its users are mapped.
pub(super) fn fork_init(
    spawner: &Spawner,
    parts: &Parts,
    spec: &SlotSpec,
) -> Result<(Pid, OwnedFd), Broken> {
    let identity = spawner.slot_identity();
    let map = identity::slot_map(identity, parts.id);
    let users = Users { map: &map, identity, creator: spawner.creator(parts.id) };
    let (pid, pidfd) = fork(spawner, &parts.for_init, &parts.for_daemon, users)?;
    let prepared = Priority::Execution.set_of(pid).and_then(|()| parts.send_plan(spawner, spec));
    prepared.map_err(|errno| {
        kill(&pidfd);
        Broken::at(Step::Plan)(errno)
    })?;
    Ok((pid, pidfd))
}

/// A zygote, which is made like a slot but for its users and its rights.
pub(super) struct ZygoteParts {
    pub(super) pidfd: OwnedFd,
    pub(super) control: PacketSocket,
    pub(super) socket: PacketSocket,
    /// The other ends of its stdin, stdout and stderr, which nobody uses.
    pub(super) pipes: Vec<OwnedFd>,
}

/// Starts a program that slots can be forked from. Its user namespace, in which those of its slots are, is created by
/// the first of these two users.
pub(super) fn zygote(spawner: &Spawner, program: Program, id: u32) -> Result<ZygoteParts, Broken> {
    let at = Broken::at(Step::Plan);
    let (control, for_init) = PacketSocket::pair().map_err(&at)?;
    let (socket, for_zygote) = PacketSocket::pair().map_err(&at)?;
    let mut pipes = Pipes::new().map_err(&at)?;
    pipes.theirs.pop();
    pipes.theirs.push(for_zygote.into_fd());
    let map = process::zygote_map(spawner.ids.range());
    let identity = spawner.slot_identity();
    let users = Users { map: &map, identity, creator: spawner.creator(id) };
    let (pid, pidfd) = fork(spawner, &for_init, &control, users)?;
    let spec = SlotSpec {
        launch: Launch::Zygote { program },
        tenant: 0,
        disk: Disk { bytes: 16 << 20, inodes: 1024 },
        max_processes: u32::MAX,
        max_open_files: 1024,
    };
    let plan = plan_for(spawner, &spec);
    let fds: Vec<&OwnedFd> = pipes.theirs.iter().collect();
    // Its slots inherit it.
    let prepared = Priority::Execution.set_of(pid);
    prepared.and_then(|()| send(spawner, &plan, &control, &fds)).map_err(|errno| {
        kill(&pidfd);
        at(errno)
    })?;
    Ok(ZygoteParts { pidfd, control, socket, pipes: pipes.ours })
}

/// The users of a new user namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Users<'a> {
    pub(super) map: &'a str,
    pub(super) identity: Identity,
    /// The user of the host that creates it. None: this process's own.
    pub(super) creator: Option<u32>,
}

/// Forks a process that becomes init once there is a plan in `ours`, which is its end of `other`.
pub(super) fn fork(
    spawner: &Spawner,
    ours: &PacketSocket,
    other: &PacketSocket,
    users: Users<'_>,
) -> Result<(Pid, OwnedFd), Broken> {
    let at = Broken::at(Step::Fork);
    let all = sys::process::ALL_NAMESPACES;
    match identity::fork_as_creator(users.creator, all).map_err(&at)? {
        Fork::Parent { child, pidfd } => {
            identity::map_ids(child, users.map).map_err(|errno| {
                kill(&pidfd);
                at(errno)
            })?;
            Ok((child, pidfd))
        }
        Fork::Child => {
            // Else it would never see that nobody is at the other end any more.
            sys::process::let_go(other.as_fd());
            become_init(spawner, ours, users.identity)
        }
    }
}

/// Forks a process as [`fork`] does, but into the network and to the users of a body that lives. One
/// in between goes there and forks it: what has gone there cannot come back.
pub(super) fn fork_beside(
    spawner: &Spawner,
    ours: &PacketSocket,
    other: &PacketSocket,
    body: &OwnedFd,
) -> Result<(Pid, OwnedFd), Broken> {
    let at = Broken::at(Step::Fork);
    let (told, tell) = PacketSocket::pair().map_err(&at)?;
    if let Fork::Child = sys::process::fork(0).map_err(&at)? {
        let there = ThreadNameSpaceType::USER | ThreadNameSpaceType::NETWORK;
        let forked = move_into_thread_name_spaces(body.as_fd(), there)
            .and_then(|()| sys::process::fork(sys::process::BESIDE_ANOTHER));
        let (number, pidfd) = match forked {
            Ok(Fork::Child) => {
                for fd in [other.as_fd(), told.as_fd(), tell.as_fd()] {
                    sys::process::let_go(fd);
                }
                become_init(spawner, ours, spawner.identity())
            }
            Ok(Fork::Parent { child, pidfd }) => (child.as_raw_nonzero().get(), Some(pidfd)),
            Err(errno) => (-errno.raw_os_error(), None),
        };
        let fds: Vec<BorrowedFd<'_>> = pidfd.iter().map(AsFd::as_fd).collect();
        // If this fails, the other side sees that nobody is there any more.
        let _ = tell.send(&number.to_ne_bytes(), &fds, SendFlags::empty());
        sys::process::exit_now(0)
    }
    drop(tell);
    // It is a copy of ourselves and waits for nothing, so neither do we.
    let packet = told.receive(RecvFlags::empty()).map_err(&at)?.ok_or_else(|| at(Errno::CHILD))?;
    let number = packet.bytes.try_into().map_or(-libc::EPROTO, i32::from_ne_bytes);
    match (Pid::from_raw(number.max(0)), packet.fds.into_iter().next()) {
        (Some(pid), Some(pidfd)) => Ok((pid, pidfd)),
        _ => Err(at(Errno::from_raw_os_error(number.saturating_neg().max(1)))),
    }
}

fn kill(pidfd: &OwnedFd) {
    // It may be gone already.
    let _ = pidfd_send_signal(pidfd, Signal::KILL);
}

pub(super) fn rights(spawner: &Spawner, spec: &SlotSpec) -> Rights {
    let limits =
        Rlimits { open_files: spec.max_open_files.into(), processes: spec.max_processes.into() };
    Rights { limits, identity: spawner.slot_identity(), filter: spawner.user_filter.clone() }
}

fn plan_for(spawner: &Spawner, spec: &SlotSpec) -> Plan {
    Plan {
        hostname: "sandbox".to_owned(),
        disk: spec.disk,
        namespace: NamespaceLimits::SLOT,
        rights: rights(spawner, spec),
        init_filter: spawner.init_filter.clone(),
        cgroups: 0,
        has_oom_event: false,
        launch: spec.launch.clone(),
    }
}

fn send(
    spawner: &Spawner,
    plan: &Plan,
    control: &PacketSocket,
    rest: &[&OwnedFd],
) -> Result<(), Errno> {
    let tree = spawner.template.new_root()?;
    let mut fds: Vec<BorrowedFd<'_>> = vec![tree.as_fd()];
    fds.extend(rest.iter().map(AsFd::as_fd));
    let packet = wire::encode(&Command::Plan(Box::new(plan.clone()))).or(Err(Errno::BADMSG))?;
    control.send(&packet, &fds, SendFlags::DONTWAIT)
}

/// stdin, stdout, stderr and the code, each with an end for the daemon and one for the program.
#[derive(Debug)]
pub(super) struct Pipes {
    ours: Vec<OwnedFd>,
    pub(super) theirs: Vec<OwnedFd>,
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

    /// Gives them to the user of the program: a path such as `/dev/stdout` opens a pipe anew, and
    /// the kernel lets only its owner do that.
    fn belonging_to(self, user: u32) -> Result<Self, Errno> {
        for pipe in &self.theirs {
            fchown(pipe, Some(Uid::from_raw(user)), Some(Gid::from_raw(user)))?;
        }
        Ok(self)
    }
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
    identity::take_inside_identity(identity)?;
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
pub(super) fn out_of_the_way(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(fd, 64)
}
