//! Watching over a running slot: reaping, deadlines, memory, the daemon's word.

use std::{os::fd::OwnedFd, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::RecvFlags,
    process::{Pid, WaitOptions, wait},
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};

use super::{Ready, collect, ending::end_all, exit_of, exiting, report, wait_for_the_end};
use super::{
    memory::{self, MemoryWatch},
    word::Word,
};
use crate::{
    collect::Collect,
    plan::{Broken, Exit},
    socket::PacketSocket,
    sys,
    wire::{self, Command, Report, Seen},
};

/// Runs until the program has ended and the daemon has let go, or the daemon is gone.
pub(super) fn run(control: &PacketSocket, ready: &Ready) {
    // Before the daemon can hand in the code: a short program may be over before init is scheduled again.
    let cpu_before = sys::process::cpu_time_of(ready.main.pid).unwrap_or_default();
    if report(control, &Report::Ready).is_err() {
        return;
    }
    let Ok(Some(ProgramEnd { report: how, collect })) = watch(control, ready, cpu_before) else {
        return;
    };
    let told = report(control, &how)
        .and_then(|()| collect.map_or(Ok(()), |collect| collect::send(control, &collect)));
    if told.is_ok() {
        wait_for_the_end(control);
    }
}

/// How a program ended, and what is collected of it. Nothing of the program runs any more.
struct ProgramEnd {
    report: Report,
    collect: Option<Collect>,
}

/// What may end a program while it runs, and what init saw of it.
struct Watch<'a> {
    control: &'a PacketSocket,
    ready: &'a Ready,
    deadline: OwnedFd,
    memory: Option<MemoryWatch>,
    /// What the program had used when it was ready for its request: the runtime's own start.
    cpu_before: Duration,
    memory_ran_out: bool,
    collect: Option<Collect>,
    /// Whether the filter's listener has not hung up yet.
    has_filtered_tasks: bool,
}

/// Waits for the end of the program. `None` when the daemon is gone before that.
fn watch(
    control: &PacketSocket,
    ready: &Ready,
    cpu_before: Duration,
) -> Result<Option<ProgramEnd>, Errno> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let deadline = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let mut watch = Watch {
        control,
        ready,
        deadline,
        memory: None,
        cpu_before,
        memory_ran_out: false,
        collect: None,
        has_filtered_tasks: ready.main.filter_listener.is_some(),
    };
    loop {
        let happened = watch.wait()?;
        if happened.control {
            match control.receive(RecvFlags::empty())? {
                None => return Ok(None),
                Some(packet) => watch.obey(&packet.bytes)?,
            }
        }
        if happened.child {
            while sys::signal::next(&ready.signals)?.is_some() {}
            if let Some(exit) = reap(ready.main.pid)? {
                return watch.ending(exit).map(Some);
            }
        }
        if happened.all_exiting
            && let Some(report) = watch.early_report()
        {
            return Ok(Some(ProgramEnd { report, collect: watch.collect }));
        }
        if happened.deadline {
            drain(&watch.deadline);
            watch.end_all()?;
        }
        // Half a program is no use: when memory runs out everything goes.
        if happened.memory {
            ready.oom_event.as_ref().inspect(|event| drain(event));
            watch.memory_ran_out = true;
            watch.end_all()?;
        }
    }
}

/// The events that init waits for.
#[expect(clippy::struct_excessive_bools, reason = "one for each source of events")]
struct Happened {
    control: bool,
    child: bool,
    deadline: bool,
    /// Every task that has the filter has begun to exit: no user code runs any more.
    all_exiting: bool,
    memory: bool,
}

impl Watch<'_> {
    fn wait(&mut self) -> Result<Happened, Errno> {
        let (oom, listener) = (&self.ready.oom_event, &self.ready.main.filter_listener);
        // One that has hung up would be ready for ever.
        let listener = listener.as_ref().filter(|_| self.has_filtered_tasks);
        let mut watched = vec![
            PollFd::new(self.control, PollFlags::IN),
            PollFd::new(&self.ready.signals, PollFlags::IN),
            PollFd::new(&self.deadline, PollFlags::IN),
        ];
        watched.extend(oom.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        // To hang up is all that a listener does whose filter notifies of no call.
        watched.extend(listener.map(|fd| PollFd::new(fd, PollFlags::empty())));
        let pause = self.memory.as_ref().map(|_| memory::PAUSE);
        match poll(&mut watched, pause.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(other) => return Err(other),
        }
        let is_set = |index: usize| watched.get(index).is_some_and(|fd| !fd.revents().is_empty());
        let (oom_at, listener_at) = (3, 3 + usize::from(oom.is_some()));
        let passed = self.memory.as_mut().is_some_and(MemoryWatch::look);
        Ok(Happened {
            control: is_set(0),
            child: is_set(1),
            deadline: is_set(2),
            all_exiting: listener.is_some() && is_set(listener_at),
            memory: (oom.is_some() && is_set(oom_at)) || (passed && !self.memory_ran_out),
        })
    }

    /// Returns how the program ended, when all of it has begun to exit and before it can be waited for.
    /// Without a cgroup what it has used is known only then, so there is nothing to report earlier.
    fn early_report(&mut self) -> Option<Report> {
        self.has_filtered_tasks = false;
        if self.memory.is_some() {
            return None;
        }
        if let Some(broken) = self.broken_step() {
            return Some(Report::Broken(broken));
        }
        let exit = exiting::exit_status(self.ready.main.pid)?;
        Some(Report::Exited { exit, seen: self.seen(), all_gone: false })
    }

    /// Returns the step that broke on the way to the program, if one did. What is to be read is there
    /// once no process of the slot can write.
    fn broken_step(&self) -> Option<Broken> {
        match self.ready.main.next_word(RecvFlags::DONTWAIT) {
            Ok(Some((Word::Error(broken), _))) => Some(broken),
            _ => None,
        }
    }

    fn seen(&self) -> Seen {
        let used = sys::process::children_usage();
        Seen {
            cpu_time: used.cpu_time.saturating_sub(self.cpu_before),
            // A short program may end between two looks.
            peak_memory: self.memory.as_ref().map_or(0, |memory| memory.peak().max(used.largest)),
            memory_ran_out: self.memory_ran_out,
        }
    }

    fn obey(&mut self, packet: &[u8]) -> Result<(), Errno> {
        match wire::decode(packet).or(Err(Errno::BADMSG))? {
            Command::Plan(_)
            | Command::Settle { .. }
            | Command::Sandbox(_)
            | Command::Taken
            | Command::Contained(_) => Err(Errno::BADMSG),
            Command::Go { at_most, watch_memory, collect } => {
                self.collect = collect;
                self.memory = watch_memory.map(MemoryWatch::new);
                arm(&self.deadline, at_most)
            }
            Command::Kill => self.end_all(),
        }
    }

    fn end_all(&self) -> Result<(), Errno> {
        end_all(self.ready.main.pid)
    }

    /// Ends what the program left behind, and says how it ended.
    fn ending(self, exit: Exit) -> Result<ProgramEnd, Errno> {
        self.end_all()?;
        loop {
            match wait(WaitOptions::empty()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::CHILD) => break,
                Err(other) => return Err(other),
            }
        }
        if let Some(broken) = self.broken_step() {
            return Ok(ProgramEnd { report: Report::Broken(broken), collect: None });
        }
        let report = Report::Exited { exit, seen: self.seen(), all_gone: true };
        Ok(ProgramEnd { report, collect: self.collect })
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
