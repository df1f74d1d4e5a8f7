//! One command in the sandbox, as the supervisor holds it.
//!
//! ```text
//! starting ──▶ running ──▶ ended
//!      └────────────────────▲
//! ```

use std::{os::fd::OwnedFd, time::Duration};

use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, kill_process, kill_process_group},
};

use super::{
    Place, command,
    journal::{self, Record},
    output::Output,
    wire::{End, Known, Start, Tell, Whom, Written},
};
use crate::{
    init::word::Word,
    plan::{Broken, Exit, Step},
    sys::{self, process::Fork},
};

/// A command that was asked for, from its fork until it is forgotten.
#[derive(Debug)]
pub(super) struct Exec {
    id: String,
    pid: Option<Pid>,
    /// Until it has become the command: at its end then, or with the step that broke.
    words: Option<OwnedFd>,
    input: Option<OwnedFd>,
    stdout: Output,
    stderr: Output,
    /// A step that broke. It has a process all the same, which is waited for.
    broken: Option<Broken>,
    end: Option<End>,
    told: Told,
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
    /// Forks the process that becomes the command.
    pub(super) fn start(place: &Place, start: &Start) -> Result<Self, Broken> {
        let fork = Broken::at(Step::Fork);
        let (stdin, input) = pipe_with(PipeFlags::CLOEXEC).map_err(&fork)?;
        let (from_stdout, stdout) = pipe_with(PipeFlags::CLOEXEC).map_err(&fork)?;
        let (from_stderr, stderr) = pipe_with(PipeFlags::CLOEXEC).map_err(&fork)?;
        let (words, tell) = pipe_with(PipeFlags::CLOEXEC).map_err(&fork)?;
        for ours in [&from_stdout, &from_stderr, &words] {
            rustix::io::ioctl_fionbio(ours, true).map_err(&fork)?;
        }
        let keep = |source, stream| {
            let file = create(&place.outputs, &format!("{}.{stream}.log", start.exec))?;
            Ok(Output::new(source, file, start.keep))
        };
        let stdout_kept = keep(from_stdout, "stdout").map_err(Broken::at(Step::Writable))?;
        let stderr_kept = keep(from_stderr, "stderr").map_err(Broken::at(Step::Writable))?;
        match sys::process::fork(0).map_err(&fork)? {
            Fork::Parent { child, pidfd: _ } => Ok(Self {
                id: start.exec.clone(),
                pid: Some(child),
                words: Some(words),
                input: Some(input),
                stdout: stdout_kept,
                stderr: stderr_kept,
                broken: None,
                end: None,
                told: Told::default(),
            }),
            Fork::Child => {
                let streams = command::Streams { stdin, stdout, stderr, tell };
                command::become_command(place, start, &streams)
            }
        }
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        self.pid
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

    /// Hears whether it has become the command.
    fn hear(&mut self, place: &Place) {
        let Some(words) = &self.words else { return };
        let mut line = [0; 64];
        match rustix::io::read(words, &mut line) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(length) if length > 0 => {
                let word = Word::from_bytes(line.get(..length).unwrap_or_default());
                self.broken = Some(match word {
                    Some(Word::Error(broken)) => broken,
                    _ => Broken { step: Step::Exec, errno: libc::EPROTO },
                });
                self.words = None;
            }
            Ok(_) | Err(_) => {
                self.words = None;
                if let Some(pid) = self.pid {
                    place.note(&Record::Started { exec: self.id.clone(), pid: number(pid) });
                }
            }
        }
    }

    /// Its process has ended. What it has written is in the pipes, in full; what others go on
    /// writing there is none of its output.
    pub(super) fn exited(
        &mut self,
        exit: Exit,
        cpu_time: Duration,
        place: &Place,
        buffer: &mut [u8],
    ) {
        // It may have said something that was not heard yet.
        self.hear(place);
        self.words = None;
        self.stdout.take_rest(buffer);
        self.stderr.take_rest(buffer);
        self.input = None;
        let end = match self.broken {
            Some(broken) => End::NotStarted(broken),
            None => End::Exited { exit, cpu_time, written: self.written() },
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

    pub(super) fn signal(&self, signal: Signal, whom: Whom, place: &Place) {
        let Some(pid) = self.pid.filter(|_| self.end.is_none()) else { return };
        // Whoever is gone already needs no signal.
        let _ = match whom {
            Whom::Leader => kill_process(pid, signal),
            Whom::Group => kill_process_group(pid, signal),
            Whom::All => place.signal_all(&self.id, pid, signal),
        };
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

pub(super) fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

fn create(folder: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(folder, name, flags | OFlags::NOFOLLOW, Mode::from_raw_mode(0o644))
}

impl Place {
    /// Writes down what happened. Without a journal less is known of a supervisor that died.
    pub(super) fn note(&self, record: &Record) {
        let _ = journal::append(&self.journal, record);
    }
}
