//! Watching over a running slot: reaping, deadlines, memory, the daemon's word.

use std::{os::fd::OwnedFd, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::RecvFlags,
    process::{Pid, WaitOptions, WaitStatus, wait},
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};

use super::{Ready, report, wait_for_the_end};
use crate::{
    plan::{Broken, Exit, Step},
    socket::PacketSocket,
    sys,
    wire::{self, Command, Report},
};

/// Runs until the program has ended and the daemon has let go, or the daemon is gone.
pub(super) fn run(control: &PacketSocket, ready: &Ready) {
    if report(control, &Report::Ready).is_err() {
        return;
    }
    let Ok(Some(ending)) = watch(control, ready) else { return };
    if report(control, &ending).is_ok() {
        wait_for_the_end(control);
    }
}

/// Waits for the end of the program. `None` when the daemon is gone before that.
fn watch(control: &PacketSocket, ready: &Ready) -> Result<Option<Report>, Errno> {
    let deadline =
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    let mut memory_ran_out = false;
    loop {
        let mut watched = vec![
            PollFd::new(control, PollFlags::IN),
            PollFd::new(&ready.signals, PollFlags::IN),
            PollFd::new(&deadline, PollFlags::IN),
        ];
        watched.extend(ready.oom_event.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut watched, None) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let happened: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
        if happened[0] {
            match control.receive(RecvFlags::empty())? {
                None => return Ok(None),
                Some(packet) => obey(&packet.bytes, &deadline)?,
            }
        }
        if happened[1] {
            while sys::signal::next(&ready.signals)?.is_some() {}
            if let Some(exit) = reap(ready.main.pid)? {
                return Ok(Some(ending(ready, exit, memory_ran_out)?));
            }
        }
        if happened[2] {
            drain(&deadline);
            kill_all()?;
        }
        // Half a program is no use: when memory runs out everything goes.
        if let Some(event) = &ready.oom_event
            && happened[3]
        {
            drain(event);
            memory_ran_out = true;
            kill_all()?;
        }
    }
}

fn obey(packet: &[u8], deadline: &OwnedFd) -> Result<(), Errno> {
    match wire::decode(packet).or(Err(Errno::BADMSG))? {
        Command::Plan(_) => Err(Errno::BADMSG),
        Command::Go { at_most } => arm(deadline, at_most),
        Command::Kill => kill_all(),
    }
}

fn arm(deadline: &OwnedFd, at_most: Duration) -> Result<(), Errno> {
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let at = Timespec::try_from(at_most).or(Err(Errno::INVAL))?;
    let timer = Itimerspec { it_interval: never, it_value: at };
    timerfd_settime(deadline, TimerfdTimerFlags::empty(), &timer).map(drop)
}

fn drain(fd: &OwnedFd) {
    let mut count = [0; 8];
    // It is readable; what it says does not matter.
    let _ = rustix::io::read(fd, &mut count);
}

fn kill_all() -> Result<(), Errno> {
    match sys::process::kill_all_others() {
        // Nobody is left to be killed.
        Err(Errno::SRCH) | Ok(()) => Ok(()),
        Err(other) => Err(other),
    }
}

/// Reaps whoever has ended, and returns how the program did, if it was among them.
fn reap(main: Pid) -> Result<Option<Exit>, Errno> {
    let mut exit = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == main => exit = exit_of(status),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) | Err(Errno::CHILD) => return Ok(exit),
            Err(other) => return Err(other),
        }
    }
}

fn exit_of(status: WaitStatus) -> Option<Exit> {
    status.exit_status().map(Exit::Code).or_else(|| status.terminating_signal().map(Exit::Signal))
}

/// Ends what the program left behind, and says how it ended.
fn ending(ready: &Ready, exit: Exit, memory_ran_out: bool) -> Result<Report, Errno> {
    kill_all()?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::CHILD) => break,
            Err(other) => return Err(other),
        }
    }
    // Every writer is dead, so this either has the whole word or is at its end.
    let mut word = [0; 64];
    let length = rustix::io::read(&ready.main.trouble, &mut word)?;
    if length > 0 {
        let unreadable = Broken { step: Step::Fork, errno: libc::EBADMSG };
        return Ok(Report::Broken(wire::decode(&word[..length]).unwrap_or(unreadable)));
    }
    let cpu_time = sys::process::children_cpu_time();
    Ok(Report::Exited { exit, cpu_time, memory_ran_out })
}
