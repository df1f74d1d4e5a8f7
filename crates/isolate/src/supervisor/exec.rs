//! One command in the sandbox, as the supervisor holds it.
//!
//! ```text
//! held ──▶ starting ──▶ running ──▶ ended
//!               └────────────────────▲
//! ```

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, kill_process, kill_process_group},
    termios::tcgetpgrp,
};

use super::{
    Place,
    bud::{Bloom, Bud, Held},
    command::Streams,
    groups::Leaf,
    journal::{self, Record},
    output::Output,
    terminal,
    wire::{End, Input, Known, Start, Tell, Usage, Wanted, Whom, Written},
};
use crate::{
    init::word::Word,
    plan::{Broken, Exit, Identity, Step},
    sys::process::ChildrenUsage,
};

/// A command that was asked for, until it is forgotten.
#[derive(Debug)]
pub(super) struct Exec {
    id: String,
    leaf: Leaf,
    /// Until it may become the command.
    held: Option<Held>,
    /// Known once it has said so itself.
    pid: Option<Pid>,
    /// Until it has become the command: at its end then, or with the step that broke.
    words: Option<OwnedFd>,
    /// A signal that came before it had become the command.
    waiting: Option<(Signal, Whom)>,
    input: Option<OwnedFd>,
    has_terminal: bool,
    stdout: Output,
    stderr: Output,
    /// A step that broke. It has a process all the same, which is waited for.
    broken: Option<Broken>,
    time: Time,
    end: Option<End>,
    told: Told,
}

/// How long it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    Unlimited,
    Until(Instant),
    /// It was killed for it.
    IsUp,
}

/// Our ends of the streams of a command.
pub(super) struct Ours {
    pub(super) input: Option<OwnedFd>,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: Option<OwnedFd>,
}

/// What the daemon knows of an exec.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    is_known: bool,
    has_started: bool,
    written: Written,
    has_ended: bool,
}

impl Exec {
    /// Has a bud do everything but become the command. It is taken only then: what breaks before leaves it
    /// to the next.
    pub(super) fn prepare(
        place: &Place,
        bud: &mut Option<Bud>,
        start: &Start,
    ) -> Result<Self, Broken> {
        let fork = Broken::at(Step::Fork);
        let (ours, streams) = match start.terminal {
            Some(size) => terminal::open(size, start.user).map_err(&fork)?,
            None => pipes(start.input).map_err(&fork)?,
        };
        place.has_no_output(&start.exec).map_err(Broken::at(Step::Writable))?;
        let bud = bud.take().ok_or_else(|| fork(Errno::CHILD))?;
        let Bloom { words, leaf, files, held } =
            bud.prepare(place, start, &streams).map_err(&fork)?;
        let mut stdout = Output::new(Some(ours.stdout), files.stdout, start.keep);
        let mut stderr = Output::new(ours.stderr, files.stderr, start.keep);
        stdout.want(start.wanted.map(|wanted| wanted.stdout));
        stderr.want(start.wanted.map(|wanted| wanted.stderr));
        Ok(Self {
            id: start.exec.clone(),
            leaf,
            held: Some(held),
            pid: None,
            words: Some(words),
            waiting: None,
            input: ours.input,
            has_terminal: start.terminal.is_some(),
            stdout,
            stderr,
            broken: None,
            time: Time::Unlimited,
            end: None,
            told: Told::default(),
        })
    }

    /// Whether its process is there, or on its way, and waits for that.
    pub(super) fn can_go(&mut self, place: &Place) -> bool {
        self.hear(place);
        self.words.is_some()
    }

    /// Lets it become the command, which may take this long.
    pub(super) fn go(&mut self, at_most: Option<Duration>, place: &Place) {
        let Some(held) = self.held.take() else { return };
        // A time that is too far off to be said is never.
        let until = at_most.and_then(|at_most| Instant::now().checked_add(at_most));
        self.time = until.map_or(Time::Unlimited, Time::Until);
        held.go();
        // Nothing was read of what it writes, so that nobody looks for the files yet.
        if place.name_output(&self.id).is_err() {
            self.stdout.lose();
            self.stderr.lose();
        }
        if place.rights.identity == Identity::Shared {
            self.hear(place);
        }
    }

    /// Whether this is its process, which may have said so and not been heard yet.
    pub(super) fn is(&mut self, pid: Pid, place: &Place) -> bool {
        if self.pid.is_none() {
            self.hear(place);
        }
        self.pid == Some(pid)
    }

    /// Has its process go on, unless that is the command by now.
    pub(super) fn continue_start(&self) {
        self.pid.filter(|_| self.words.is_some()).into_iter().for_each(continue_process);
    }

    /// Whether its process has still to become the command.
    pub(super) fn is_starting(&self) -> bool {
        self.words.is_some()
    }

    /// Returns the group in which everything is that it has started.
    pub(super) fn leaf(&self) -> Leaf {
        self.leaf
    }

    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Returns what there is to watch: the words, then the two streams.
    pub(super) fn watched(&self) -> [Option<&OwnedFd>; 3] {
        [self.words.as_ref(), self.stdout.source(), self.stderr.source()]
    }

    /// Takes what came on one of those.
    pub(super) fn take(&mut self, index: usize, place: &Place, buffer: &mut [u8]) {
        match index {
            0 => self.hear(place),
            1 => _ = self.stdout.pump(buffer),
            _ => _ = self.stderr.pump(buffer),
        }
    }

    /// Hears who it is, and whether it has become the command.
    fn hear(&mut self, place: &Place) {
        while let Some(words) = &self.words {
            let mut said = [0; 128];
            match rustix::io::read(words, &mut said) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Ok(length) if length > 0 => {
                    let said = said.get(..length).unwrap_or_default();
                    said.split_inclusive(|byte| *byte == b'\n')
                        .for_each(|line| self.take_word(line));
                }
                Ok(_) | Err(_) => self.has_become(place),
            }
        }
    }

    fn take_word(&mut self, line: &[u8]) {
        match Word::from_bytes(line) {
            Some(Word::Process(number)) if self.pid.is_none() => self.pid = Pid::from_raw(number),
            Some(Word::Error(broken)) => self.broken = Some(broken),
            _ => self.broken = Some(Broken { step: Step::Exec, errno: libc::EPROTO }),
        }
    }

    /// There is nothing more to hear: it is the command now, a step broke, or its process was killed before it said
    /// its number.
    fn has_become(&mut self, place: &Place) {
        self.words = None;
        match self.pid.filter(|_| self.held.is_none()) {
            Some(pid) if self.broken.is_none() => {
                place.note(&Record::Started { exec: self.id.clone(), pid: number(pid) });
            }
            None if self.held.is_none() => self.give_up_unborn(place),
            Some(_) | None => {}
        }
        if let Some((signal, whom)) = self.waiting.take() {
            self.signal(signal, whom, place);
        }
    }

    /// Ends a command that never had a process: nothing else would ever end it.
    fn give_up_unborn(&mut self, place: &Place) {
        let broken = self.broken.unwrap_or(Broken { step: Step::Fork, errno: libc::ECHILD });
        self.input = None;
        self.leftovers().for_each(drop);
        let end = End::NotStarted(broken);
        place.note(&Record::Ended { exec: self.id.clone(), end: end.clone() });
        self.end = Some(end);
    }

    /// Its process has ended. What it has written is in the pipes, in full; what others go on
    /// writing there is none of its output.
    pub(super) fn exited(
        &mut self,
        exit: Exit,
        used: ChildrenUsage,
        place: &Place,
        buffer: &mut [u8],
    ) {
        // It may have said something that was not heard yet.
        self.hear(place);
        self.words = None;
        self.stdout.take_rest(buffer);
        self.stderr.take_rest(buffer);
        self.input = None;
        let usage = Usage { cpu_time: used.cpu_time, peak_memory: used.largest };
        let written = self.written();
        let end = match (self.broken, self.time, exit) {
            (Some(broken), _, _) => End::NotStarted(broken),
            // One that had ended by itself just before was not killed.
            (None, Time::IsUp, Exit::Signal(libc::SIGKILL)) => End::TimedOut { usage, written },
            (None, _, exit) => End::Exited { exit, usage, written },
        };
        place.note(&Record::Ended { exec: self.id.clone(), end: end.clone() });
        self.end = Some(end);
    }

    /// Gives away the streams that others may still write to.
    pub(super) fn leftovers(&mut self) -> impl Iterator<Item = OwnedFd> + use<> {
        [self.stdout.take_source(), self.stderr.take_source()].into_iter().flatten()
    }

    fn written(&self) -> Written {
        Written { stdout: self.stdout.stored(), stderr: self.stderr.stored() }
    }

    /// Signals it, as soon as it is what is meant. A process that is to die dies at once.
    pub(super) fn signal(&mut self, signal: Signal, whom: Whom, place: &Place) {
        if self.words.is_some() {
            if self.waiting.is_none_or(|(earlier, _)| earlier != Signal::KILL) {
                self.waiting = Some((signal, whom));
            }
            if let Some(pid) = self.pid.filter(|_| signal == Signal::KILL) {
                let _ = kill_process(pid, signal);
            }
            return;
        }
        let Some(pid) = self.pid.filter(|_| self.end.is_none()) else { return };
        // Whoever is gone already needs no signal.
        let _ = match whom {
            Whom::Leader => kill_process(pid, signal),
            Whom::Group => kill_process_group(self.foreground().unwrap_or(pid), signal),
            Whom::All => place.signal_all(self.leaf, pid, signal),
        };
    }

    /// Tells whoever sits at its terminal that it is taken away. Shells do not hear that they are to end.
    pub(super) fn hang_up(&mut self, place: &Place) {
        if !self.has_terminal {
            return;
        }
        match self.pid.filter(|_| self.words.is_none() && self.end.is_none()) {
            // All in its own group, whatever is in the foreground: a shell passes it on.
            Some(pid) => drop(kill_process_group(pid, Signal::HUP)),
            None => self.signal(Signal::HUP, Whom::Leader, place),
        }
    }

    /// Returns the process group that is in the foreground of its terminal, if it has one: a shell puts each
    /// program that it waits for into a group of its own.
    fn foreground(&self) -> Option<Pid> {
        self.stdout.source().filter(|_| self.has_terminal).and_then(|it| tcgetpgrp(it).ok())
    }

    /// Returns when its time is up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.time {
            Time::Until(until) if self.end.is_none() => Some(until),
            Time::Until(_) | Time::Unlimited | Time::IsUp => None,
        }
    }

    /// Kills it if its time is up.
    pub(super) fn end_when_due(&mut self, now: Instant, place: &Place) {
        if self.deadline().is_some_and(|until| until <= now) {
            self.time = Time::IsUp;
            self.signal(Signal::KILL, Whom::All, place);
        }
    }

    /// Says from where on somebody wants its output.
    pub(super) fn pace(&mut self, wanted: Option<Wanted>) {
        self.stdout.want(wanted.map(|wanted| wanted.stdout));
        self.stderr.want(wanted.map(|wanted| wanted.stderr));
    }

    pub(super) fn input(&self) -> Option<&OwnedFd> {
        self.input.as_ref()
    }

    pub(super) fn close_input(&mut self) {
        self.input = None;
    }

    /// Nobody knows anything of it any more: another daemon has come.
    pub(super) fn untell(&mut self) {
        self.told = Told::default();
    }

    /// Returns the next thing to tell, if there is any, and takes it for told.
    pub(super) fn next_to_tell(&mut self) -> Option<Tell> {
        let (exec, written) = (self.id.clone(), self.written());
        let pid = self.pid.filter(|_| self.words.is_none() && self.broken.is_none()).map(number);
        if !self.told.is_known {
            self.told = Told {
                is_known: true,
                has_started: pid.is_some(),
                written,
                has_ended: self.end.is_some(),
            };
            return Some(Tell::Known(Known { exec, pid, written, end: self.end.clone() }));
        }
        if let Some(pid) = pid.filter(|_| !self.told.has_started) {
            self.told.has_started = true;
            return Some(Tell::Started { exec, pid });
        }
        if let Some(end) = self.end.clone().filter(|_| !self.told.has_ended) {
            self.told.has_ended = true;
            return Some(Tell::Ended { exec, end });
        }
        if self.end.is_none() && written != self.told.written {
            self.told.written = written;
            return Some(Tell::Output { exec, written });
        }
        None
    }
}

/// Makes the streams of a command without a terminal.
fn pipes(input: Input) -> Result<(Ours, Streams), Errno> {
    let (stdin, writing) = pipe_with(PipeFlags::CLOEXEC)?;
    let (from_stdout, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (from_stderr, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    for ours in [&writing, &from_stdout, &from_stderr] {
        rustix::io::ioctl_fionbio(ours, true)?;
    }
    let input = match input {
        Input::Open => Some(writing),
        Input::Closed => None,
    };
    let ours = Ours { input, stdout: from_stdout, stderr: Some(from_stderr) };
    Ok((ours, Streams { stdin, stdout, stderr }))
}

/// Ends what SIGSTOP began. The process may be gone already.
pub(super) fn continue_process(pid: Pid) {
    let _ = kill_process(pid, Signal::CONT);
}

pub(super) fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

impl Place {
    /// Writes down what happened. Without a journal less is known of a supervisor that died.
    pub(super) fn note(&self, record: &Record) {
        let _ = journal::append(&self.journal, record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::{Rights, Rlimits},
        supervisor::{groups::Groups, wire::Secret},
    };

    fn file() -> OwnedFd {
        tempfile::tempfile().unwrap().into()
    }

    fn place() -> Place {
        let limits = Rlimits { open_files: 64, processes: 64 };
        Place {
            sandbox: "sb_1".to_owned(),
            secret: Secret([1; 32]),
            rights: Rights { limits, identity: Identity::Shared, filter: Vec::new() },
            filter: Vec::new(),
            outputs: file(),
            journal: file(),
            groups: Groups::default(),
        }
    }

    /// A command whose process ended before it said its number. Nothing was read of that yet.
    fn without_a_process(place: &Place) -> Exec {
        let (words, tell) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        drop(tell);
        Exec {
            id: "ex_1".to_owned(),
            leaf: place.make_leaf().unwrap().0,
            held: None,
            pid: None,
            words: Some(words),
            waiting: None,
            input: None,
            has_terminal: false,
            stdout: Output::new(None, file(), 0),
            stderr: Output::new(None, file(), 0),
            broken: None,
            time: Time::Unlimited,
            end: None,
            told: Told::default(),
        }
    }

    #[test]
    fn a_command_whose_process_was_killed_early_ends_whatever_notices_it_first() {
        let place = place();
        let by_its_words = |exec: &mut Exec| exec.take(0, &place, &mut []);
        let by_the_end_of_another = |exec: &mut Exec| _ = exec.is(Pid::INIT, &place);
        let by_its_start = |exec: &mut Exec| exec.hear(&place);
        for notice in [&by_its_words as &dyn Fn(&mut Exec), &by_the_end_of_another, &by_its_start] {
            let mut exec = without_a_process(&place);
            notice(&mut exec);
            assert!(exec.has_ended(), "{exec:?}");
        }
    }
}
