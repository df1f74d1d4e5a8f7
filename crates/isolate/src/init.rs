//! PID 1 of a slot: carries out the plan, starts the user's program as PID 2, and tells the
//! daemon how it ended.
//!
//! The order of the steps is the security argument: each may need a right that a later one gives
//! up. Init knows no business rules; it reports the step that broke and ends.

mod collect;
mod copies;
mod counters;
mod ending;
mod exiting;
mod hosts;
mod image;
pub(crate) mod launch;
mod memory;
mod paths;
pub(crate) mod patterns;
pub(crate) mod privileges;
mod root;
mod sandbox;
mod supervise;
mod verify;
pub(crate) mod word;

use std::os::fd::OwnedFd;

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
        socket_with,
    },
    process::{Pid, WaitStatus},
};

use crate::{
    plan::{Broken, Exit, Launch, Plan, Step},
    socket::PacketSocket,
    supervisor::Supervision,
    sys::{self, process::Fork},
    wire::{self, Command, Report},
};

use word::Word;

/// The descriptors that come with a plan.
#[derive(Debug)]
struct Descriptors {
    root: OwnedFd,
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    code: OwnedFd,
    oom_event: Option<OwnedFd>,
    cgroups: Vec<OwnedFd>,
}

/// The user's program, as init holds it.
#[derive(Debug)]
struct Main {
    pid: Pid,
    /// Where the program's process says when it waits for its request, or which step broke. Gone
    /// before user code runs: nothing that user code writes is read by init.
    words: Option<PacketSocket>,
    /// The listener of the program's system call filter. It hangs up when every task that has the
    /// filter has begun to exit. `None` where the kernel gives none.
    filter_listener: Option<OwnedFd>,
}

/// Makes the slot, runs its program and reports, until the daemon lets go of the socket.
/// When this returns the process ends, and the kernel ends everything else in the slot.
pub fn run(control: PacketSocket) {
    let made = match read_command(&control) {
        Ok((Command::Plan(plan), fds)) => {
            let ready = prepare(&plan, fds).map_err(Report::Broken);
            ready.map(|ready| supervise::run(&control, &ready))
        }
        // A sandbox goes on without the socket that its init was started with.
        Ok((Command::Settle { groups, has_leaves }, fds)) => {
            match supervision(&control, groups, has_leaves, fds) {
                Ok((ready, waits)) => return sandbox::run(control, ready, waits),
                Err(why) => Err(why),
            }
        }
        Ok((Command::Contained(plan), fds)) => match sandbox::contain(&plan, fds) {
            Ok(ready) => return sandbox::run(control, ready, false),
            Err(broken) => Err(Report::Broken(broken)),
        },
        Ok((Command::Sandbox(_) | Command::Taken | Command::Go { .. } | Command::Kill, _)) => {
            Err(Report::Broken(Broken::at(Step::Plan)(Errno::BADMSG)))
        }
        Err(broken) => Err(Report::Broken(broken)),
    };
    if let Err(why) = made {
        // Nobody listens any more if this fails, and there is nobody else to tell.
        let _ = report(&control, &why);
        wait_for_the_end(&control);
    }
}

/// Does the same for whoever listens at this path: so begins the init of a container, which nobody
/// could give a socket.
pub fn run_for(door: &str) -> Result<(), Errno> {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(door)?)?;
    run(PacketSocket::from_fd(socket));
    Ok(())
}

/// Goes where a supervisor is, and becomes one when it is told of what. Returns also whether its sandbox
/// is nobody's yet.
fn supervision(
    control: &PacketSocket,
    groups: usize,
    has_leaves: bool,
    fds: Vec<OwnedFd>,
) -> Result<(Supervision, bool), Report> {
    let settled = sandbox::settle(groups, has_leaves, fds).map_err(Report::Broken)?;
    let (command, fds) = read_command(control).map_err(Report::Broken)?;
    let Command::Sandbox(plan) = command else {
        return Err(Report::Broken(Broken::at(Step::Plan)(Errno::BADMSG)));
    };
    match sandbox::prepare(settled, &plan, fds) {
        Ok(ready) => Ok((ready, plan.waits)),
        // There is no sandbox yet that it could fail for. The next one is made anew, and told.
        Err(_) if plan.waits => sys::process::exit_now(1),
        Err(why) => Err(why),
    }
}

/// What is left to watch over once the slot is made.
#[derive(Debug)]
struct Ready {
    main: Main,
    oom_event: Option<OwnedFd>,
    signals: OwnedFd,
}

fn prepare(plan: &Plan, fds: Vec<OwnedFd>) -> Result<Ready, Broken> {
    let mut fds = Descriptors::of(plan, fds)?;
    // A zygote's namespace has those of its slots in it.
    if !matches!(plan.launch, Launch::Zygote { .. }) {
        counters::set(plan.namespace).map_err(Broken::at(Step::Limits))?;
    }
    root::build(plan, &fds.root)?;
    rustix::system::sethostname(plan.hostname.as_bytes()).map_err(Broken::at(Step::Network))?;
    sys::net::bring_loopback_up().map_err(Broken::at(Step::Network))?;
    let signals = sys::signal::as_descriptor(&[libc::SIGCHLD]).map_err(Broken::at(Step::Fork))?;
    let mut main = match &plan.launch {
        Launch::Fork { .. } => adopt_main()?,
        Launch::Exec { .. } | Launch::Park { .. } | Launch::Zygote { .. } => {
            start_main(plan, &fds)?
        }
    };
    let oom_event = fds.oom_event.take();
    drop(fds);
    if !matches!(plan.launch, Launch::Zygote { .. }) {
        wait_until_ready(&mut main)?;
        // Only a process that still has to become its program reports a step after this.
        main.words.take_if(|_| !matches!(plan.launch, Launch::Exec { .. }));
        if matches!(plan.launch, Launch::Fork { .. }) {
            verify::main_has_given_up_its_rights()?;
        }
        privileges::of_init(plan)?;
    }
    Ok(Ready { main, oom_event, signals })
}

fn read_command(control: &PacketSocket) -> Result<(Command, Vec<OwnedFd>), Broken> {
    let at = Broken::at(Step::Plan);
    let packet =
        control.receive(RecvFlags::empty()).map_err(&at)?.ok_or_else(|| at(Errno::PIPE))?;
    let command = wire::decode(&packet.bytes).map_err(|_unreadable| at(Errno::BADMSG))?;
    Ok((command, packet.fds))
}

impl Descriptors {
    fn of(plan: &Plan, fds: Vec<OwnedFd>) -> Result<Self, Broken> {
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or_else(|| Broken::at(Step::Plan)(Errno::BADF));
        let mut descriptors = Self {
            root: next()?,
            stdin: next()?,
            stdout: next()?,
            stderr: next()?,
            code: next()?,
            oom_event: None,
            cgroups: Vec::new(),
        };
        if plan.has_oom_event {
            descriptors.oom_event = Some(next()?);
        }
        for _ in 0..plan.cgroups {
            descriptors.cgroups.push(next()?);
        }
        Ok(descriptors)
    }
}

fn start_main(plan: &Plan, fds: &Descriptors) -> Result<Main, Broken> {
    let at = Broken::at(Step::Fork);
    let (words, tell) = PacketSocket::pair().map_err(&at)?;
    match sys::process::fork(0).map_err(&at)? {
        Fork::Parent { child, pidfd: _ } => Ok(Main::new(child, words)),
        Fork::Child => {
            launch::become_program(plan, fds, &tell);
            sys::process::exit_now(127)
        }
    }
}

/// Where a zygote leaves its end of the pipe and of the socket to PID 2.
const GO: i32 = 4;
const WORDS: i32 = 5;

/// Takes over the process that the zygote forked before it became init. It shares this mount
/// namespace and waits for the word that the root is there.
fn adopt_main() -> Result<Main, Broken> {
    let at = Broken::at(Step::Fork);
    let go = sys::process::inherited(GO).map_err(&at)?;
    let words = sys::process::inherited(WORDS).map_err(&at)?;
    let pid = Pid::from_raw(2).ok_or_else(|| at(Errno::CHILD))?;
    rustix::io::write(&go, b"g").map_err(&at)?;
    Ok(Main::new(pid, PacketSocket::from_fd(words)))
}

impl Main {
    fn new(pid: Pid, words: PacketSocket) -> Self {
        Self { pid, words: Some(words), filter_listener: None }
    }

    /// Reads the next word, and the descriptors that come with it. `None` at the end.
    fn next_word(&self, flags: RecvFlags) -> Result<Option<(Word, Vec<OwnedFd>)>, Errno> {
        let Some(words) = &self.words else { return Ok(None) };
        let Some(packet) = words.receive(flags)? else { return Ok(None) };
        let word = Word::from_bytes(&packet.bytes).ok_or(Errno::BADMSG)?;
        Ok(Some((word, packet.fds)))
    }
}

/// Waits for the program's word that it waits for its request.
fn wait_until_ready(main: &mut Main) -> Result<(), Broken> {
    let at = Broken::at(Step::Runtime);
    loop {
        match main.next_word(RecvFlags::empty()).map_err(&at)? {
            Some((Word::Filtered, fds)) => main.filter_listener = fds.into_iter().next(),
            Some((Word::Ready, _)) => return Ok(()),
            Some((Word::Error(broken), _)) => return Err(broken),
            Some((Word::Process(_), _)) => return Err(at(Errno::BADMSG)),
            None => return Err(at(Errno::PIPE)),
        }
    }
}

fn report(control: &PacketSocket, report: &Report) -> Result<(), Errno> {
    let packet = wire::encode(report).or(Err(Errno::BADMSG))?;
    control.send(&packet, &[], SendFlags::empty())
}

/// Stays until the daemon closes the socket, so that it can read what it needs first.
fn wait_for_the_end(control: &PacketSocket) {
    while let Ok(Some(_)) = control.receive(RecvFlags::empty()) {}
}

/// Reads a wait status.
pub(crate) fn exit_of(status: WaitStatus) -> Option<Exit> {
    status.exit_status().map(Exit::Code).or_else(|| status.terminating_signal().map(Exit::Signal))
}
