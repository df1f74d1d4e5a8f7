//! Slots driven to their end, without a daemon.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    path::Path,
    time::Duration,
};

use harness::{
    SpawnerProcess, start_spawner, start_spawner_with_soft_limits, start_spawner_with_total_memory,
    start_spawner_without_v2,
};
use isolate::{
    cgroup::handles::Handles,
    plan::{Broken, Disk, Exit, Launch, Program, SlotSpec, Usage},
    posture::{Limits, Posture},
    slot::{SlotEnds, request},
    socket::PacketSocket,
    wire::{self, Command, Notice, Order, Report, Seen},
};
use rustix::net::{RecvFlags, SendFlags};

/// A running spawner. Dropping it ends it and every slot.
pub(crate) struct Host {
    socket: Option<PacketSocket>,
    process: SpawnerProcess,
    posture: Posture,
    next: u64,
}

/// What slots could leave behind on a machine, as far as it belongs to one spawner.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Traces {
    children: usize,
    descriptors: usize,
    mounts: usize,
    cgroups: usize,
}

/// What one program printed and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) exit: Exit,
    pub(crate) seen: Seen,
    pub(crate) usage: Usage,
}

impl Ran {
    /// Whether memory ran out, by the word of whoever looks after it.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        self.seen.memory_ran_out || self.usage.oom_kills > 0
    }
}

/// What is to be run, and under which limits.
pub(crate) struct Run<'a> {
    pub(crate) argv: &'a [&'a str],
    pub(crate) code: &'a str,
    pub(crate) env: &'a [(&'a str, &'a str)],
    pub(crate) stdin: &'a str,
    pub(crate) memory: u64,
    pub(crate) at_most: Duration,
    pub(crate) max_processes: u32,
}

pub(crate) const SHELL: Run<'_> = Run {
    argv: &["/bin/sh", "/workspace/main"],
    code: "",
    env: &[],
    stdin: "",
    memory: 256 << 20,
    at_most: Duration::from_mins(2),
    max_processes: 64,
};

impl Host {
    pub(crate) fn start() -> Self {
        Self::greet(start_spawner().unwrap())
    }

    /// Starts a spawner whose slots may use this many bytes of memory together.
    pub(crate) fn start_with_total_memory(bytes: u64) -> Self {
        Self::greet(start_spawner_with_total_memory(bytes).unwrap())
    }

    /// Starts a spawner that can neither limit nor freeze slots.
    pub(crate) fn start_with_soft_limits() -> Self {
        Self::greet(start_spawner_with_soft_limits().unwrap())
    }

    /// Starts a spawner for every freezer of this machine: the one that is chosen, and that of v1, which a machine with
    /// v2 alone does not have.
    pub(crate) fn start_on_each_freezer() -> Vec<Self> {
        let without_v2 = Self::greet(start_spawner_without_v2().unwrap());
        let limits = &without_v2.posture.limits;
        // Only root can hide v2.
        let is_hidden = !matches!(limits, Limits::Cgroups { has_kill: true, .. });
        assert!(is_hidden || !rustix::process::getuid().is_root(), "{limits:?}");
        let mut hosts = vec![Self::start()];
        if is_hidden && without_v2.has_cgroups() {
            hosts.push(without_v2);
        }
        hosts
    }

    fn greet((socket, process): (PacketSocket, SpawnerProcess)) -> Self {
        let hello = socket.receive(RecvFlags::empty()).unwrap().expect("a live spawner");
        match wire::decode(&hello.bytes).unwrap() {
            Notice::Hello { posture } => Self { socket: Some(socket), process, posture, next: 0 },
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn posture(&self) -> &Posture {
        &self.posture
    }

    pub(crate) fn has_cgroups(&self) -> bool {
        !self.posture.has_soft_limits()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn destroy(&self, slot: u64) {
        self.order(&Order::Destroy { slot });
    }

    pub(crate) fn wait_until_gone(&self, slot: u64) {
        assert_eq!(self.notice().0, Notice::Gone { slot });
    }

    /// Counts what there is now.
    pub(crate) fn traces(&self) -> Traces {
        let pid = self.pid();
        let lines = |path: String| std::fs::read_to_string(path).unwrap().lines().count();
        let children = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(children).unwrap();
        Traces {
            children: children.split_whitespace().count(),
            descriptors: std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(),
            mounts: lines(format!("/proc/{pid}/mountinfo")),
            cgroups: cgroups_named(&format!("ringfence-{pid}")),
        }
    }

    fn socket(&self) -> &PacketSocket {
        self.socket.as_ref().unwrap()
    }

    pub(crate) fn order(&self, order: &Order) {
        self.socket().send(&wire::encode(order).unwrap(), &[], SendFlags::empty()).unwrap();
    }

    pub(crate) fn notice(&self) -> (Notice, Vec<OwnedFd>) {
        let packet = self.socket().receive(RecvFlags::empty()).unwrap().expect("a live spawner");
        (wire::decode(&packet.bytes).unwrap(), packet.fds)
    }

    pub(crate) fn make(&mut self, run: &Run<'_>) -> (u64, SlotEnds) {
        self.next += 1;
        let slot = self.next;
        let program = Program {
            argv: run.argv.iter().map(ToString::to_string).collect(),
            env: vec!["PATH=/usr/bin:/bin".into()],
        };
        let launch = Launch::Exec { program, code_path: "/workspace/main".into() };
        let disk = Disk { bytes: 64 << 20, inodes: 16 * 1024 };
        let max_processes = run.max_processes;
        let spec = SlotSpec { launch, tenant: 1, disk, max_processes, max_open_files: 256 };
        self.order(&Order::Make { slot, spec });
        match self.notice() {
            (Notice::Made { slot: made, cgroup }, fds) if made == slot => {
                (slot, SlotEnds::new(cgroup, fds).expect("all descriptors"))
            }
            (other, _) => panic!("{other:?}"),
        }
    }

    /// Runs one program to its end, and waits until nothing is left of its slot.
    pub(crate) fn run(&mut self, run: &Run<'_>) -> Result<Ran, Broken> {
        let (slot, ends) = self.make(run);
        let ran = let_in(ends, run).and_then(Running::finish);
        self.wait_until_gone(slot);
        ran
    }
}

pub(crate) fn report(control: &PacketSocket) -> Report {
    let packet = control.receive(RecvFlags::empty()).unwrap().expect("a live init");
    wire::decode(&packet.bytes).unwrap()
}

pub(crate) fn command(control: &PacketSocket, command: &Command) {
    control.send(&wire::encode(command).unwrap(), &[], SendFlags::empty()).unwrap();
}

fn blocking(fd: OwnedFd) -> File {
    rustix::io::ioctl_fionbio(&fd, false).unwrap();
    File::from(fd)
}

/// A slot whose program is running.
pub(crate) struct Running {
    pub(crate) control: PacketSocket,
    pub(crate) cgroup: Handles,
    pub(crate) stdout: File,
    pub(crate) stderr: File,
}

/// Waits until the slot is ready and lets the program in.
pub(crate) fn let_in(ends: SlotEnds, run: &Run<'_>) -> Result<Running, Broken> {
    match report(&ends.control) {
        Report::Ready => {}
        Report::Broken(broken) => return Err(broken),
        other @ (Report::NoPath(_) | Report::Exited { .. }) => panic!("{other:?}"),
    }
    ends.cgroup.limit_memory(run.memory).unwrap();
    let watch_memory = ends.cgroup.is_empty().then_some(run.memory);
    let go = Command::Go { at_most: run.at_most, watch_memory, collect: None };
    command(&ends.control, &go);
    let bytes = request(run.env.iter().copied(), run.code.as_bytes());
    blocking(ends.code).write_all(&bytes).unwrap();
    blocking(ends.stdin).write_all(run.stdin.as_bytes()).unwrap();
    let (stdout, stderr) = (blocking(ends.stdout), blocking(ends.stderr));
    Ok(Running { control: ends.control, cgroup: ends.cgroup, stdout, stderr })
}

/// Counts the slots below every cgroup of that name.
fn cgroups_named(name: &str) -> usize {
    fn walk(dir: &Path, name: &str, found: &mut usize) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let is_below = dir.file_name().is_some_and(|parent| parent == name);
                *found += usize::from(is_below);
                walk(&entry.path(), name, found);
            }
        }
    }
    let mut found = 0;
    walk(Path::new("/sys/fs/cgroup"), name, &mut found);
    found
}

impl Running {
    /// Reads exactly this much, which must be what is expected.
    pub(crate) fn wait_for_output(&mut self, expected: &str) {
        let mut bytes = vec![0; expected.len()];
        self.stdout.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, expected.as_bytes());
    }

    /// Reads what is left of the output, until every writer is gone.
    pub(crate) fn read_to_end(&mut self) -> String {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        text
    }

    /// Reads everything to the end.
    pub(crate) fn finish(mut self) -> Result<Ran, Broken> {
        let mut stdout = Vec::new();
        let mut stderr = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| self.stderr.read_to_end(&mut stderr).unwrap());
            self.stdout.read_to_end(&mut stdout).unwrap();
        });
        match report(&self.control) {
            Report::Exited { exit, seen, .. } => Ok(Ran {
                seen,
                stdout: String::from_utf8_lossy(&stdout).into_owned(),
                stderr: String::from_utf8_lossy(&stderr).into_owned(),
                exit,
                usage: self.cgroup.usage().unwrap(),
            }),
            Report::Broken(broken) => Err(broken),
            other @ (Report::Ready | Report::NoPath(_)) => panic!("{other:?}"),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.socket = None;
        let end = self.process.wait();
        assert!(end.is_ok() || std::thread::panicking(), "spawner: {end:?}");
    }
}
