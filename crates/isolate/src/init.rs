//! PID 1 of a slot: carries out the plan, starts the user's program as PID 2, and tells the
//! daemon how it ended.
//!
//! The order of the steps is the security argument: each may need a right that a later one gives
//! up. Init knows no business rules; it reports the step that broke and ends.

mod launch;
mod memory;
mod privileges;
mod root;
mod supervise;

use std::os::fd::OwnedFd;

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags},
    process::{Pid, WaitStatus},
};

use crate::{
    plan::{Broken, Exit, Plan, Step},
    socket::PacketSocket,
    sys::{self, process::Fork},
    wire::{self, Command, Report},
};

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
    /// Where the program's process says which step broke before it became the program.
    trouble: OwnedFd,
}

/// Makes the slot, runs its program and reports, until the daemon lets go of the socket.
/// When this returns the process ends, and the kernel ends everything else in the slot.
pub fn run(control: &PacketSocket) {
    match prepare(control) {
        Ok(ready) => supervise::run(control, &ready),
        Err(broken) => {
            // Nobody listens any more if this fails, and there is nobody else to tell.
            let _ = report(control, &Report::Broken(broken));
            wait_for_the_end(control);
        }
    }
}

/// What is left to watch over once the slot is made.
#[derive(Debug)]
struct Ready {
    main: Main,
    oom_event: Option<OwnedFd>,
    signals: OwnedFd,
}

fn prepare(control: &PacketSocket) -> Result<Ready, Broken> {
    let (plan, mut fds) = read_plan(control)?;
    root::build(&plan, &fds.root)?;
    rustix::system::sethostname(plan.hostname.as_bytes()).map_err(Broken::at(Step::Network))?;
    sys::net::bring_loopback_up().map_err(Broken::at(Step::Network))?;
    let signals = sys::signal::as_descriptor(&[libc::SIGCHLD]).map_err(Broken::at(Step::Fork))?;
    let main = start_main(&plan, &fds)?;
    let oom_event = fds.oom_event.take();
    drop(fds);
    privileges::of_init(&plan)?;
    Ok(Ready { main, oom_event, signals })
}

fn read_plan(control: &PacketSocket) -> Result<(Plan, Descriptors), Broken> {
    let at = Broken::at(Step::Plan);
    let packet =
        control.receive(RecvFlags::empty()).map_err(&at)?.ok_or_else(|| at(Errno::PIPE))?;
    let Ok(Command::Plan(plan)) = wire::decode(&packet.bytes) else {
        return Err(at(Errno::BADMSG));
    };
    let mut fds = packet.fds.into_iter();
    let mut next = || fds.next().ok_or_else(|| at(Errno::BADF));
    let mut descriptors = Descriptors {
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
    Ok((*plan, descriptors))
}

fn start_main(plan: &Plan, fds: &Descriptors) -> Result<Main, Broken> {
    let at = Broken::at(Step::Fork);
    let (trouble, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(&at)?;
    match sys::process::fork(0).map_err(&at)? {
        Fork::Parent { child, pidfd: _ } => Ok(Main { pid: child, trouble }),
        Fork::Child => {
            launch::become_program(plan, fds, &tell);
            sys::process::exit_now(127)
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
