//! The second reading: every answer is held against the events, and against what was known before
//! it was asked for.

use std::collections::HashMap;

use crate::{
    entry::{Entry, Time, What},
    floor::{Floor, Mark, Source},
    path::Phase,
    report::{Findings, Report},
    rule::Rule,
    truth::Truth,
};

mod calls;
mod lists;
mod machine;
mod streams;

pub(crate) struct Judge<'a> {
    truth: &'a Truth,
    findings: Findings,
    /// For each sandbox, the highest sequence that it is known to have reached, and since when.
    floors: Vec<Floor>,
    lives: Floor,
    streams: HashMap<u64, streams::Stream>,
    lists: lists::Lists,
    machine: machine::Seen,
}

/// Where and when something was asked and answered.
#[derive(Clone, Copy, Debug)]
struct At {
    line: usize,
    start: Time,
    end: Time,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(truth: &'a Truth, findings: Findings) -> Self {
        Self {
            truth,
            findings,
            floors: vec![Floor::default(); truth.logs.len()],
            lives: Floor::default(),
            streams: HashMap::new(),
            lists: lists::Lists::new(truth.logs.len()),
            machine: machine::Seen::default(),
        }
    }

    pub(crate) fn judge(&mut self, line: usize, entry: &Entry) {
        let at = At { line, start: entry.start, end: entry.end };
        if let Some(life) = entry.life {
            self.judge_life(at, u64::from(life));
        }
        match &entry.what {
            What::Call { call, outcome } => self.judge_call(at, call, outcome),
            What::Subscribed(subscribed) => self.open_stream(at, subscribed),
            What::Event { subscription, event } => self.judge_event(at, *subscription, event),
            What::Ended { subscription, how } => self.end_stream(at, *subscription, how),
            What::Replay { sandbox, events } => self.judge_replay(at, sandbox, events),
            What::Output(output) => self.judge_output(at, output),
            What::Processes(processes) => self.judge_processes(at, processes),
            What::Machine(machine) => self.judge_machine(at, machine),
            What::Killed | What::Harmed { .. } | What::Closed => {}
        }
    }

    pub(crate) fn finish(self) -> Report {
        self.findings.into_report(self.truth.summary)
    }

    fn judge_life(&mut self, at: At, life: u64) {
        if let Some(mark) = self.lives.before(at.start).filter(|mark| mark.value > life) {
            let message = format!("life {life} answers after life {} had", mark.value);
            let first = self.lives.witness(life + 1).map_or(mark.line, |mark| mark.line);
            self.findings.add(Rule::OneServerAtATime, "", [first, at.line], message);
        }
        self.lives.raise(Mark { time: at.end, value: life, line: at.line, source: Source::Shown });
    }

    /// Returns the sequence that a sandbox was known to have before a call began; zero if it was
    /// not known to be there.
    fn floor(&self, sandbox: usize, start: Time) -> u64 {
        self.floors[sandbox].before(start).map_or(0, |mark| mark.value)
    }

    /// Notes that from now on a sandbox is known to have reached this sequence.
    fn raise(&mut self, sandbox: usize, at: At, sequence: u64, source: Source) {
        let mark = Mark { time: at.end, value: sequence, line: at.line, source };
        self.floors[sandbox].raise(mark);
        self.lists.note_present(sandbox);
    }

    /// Holds a sequence that a client was told against what was known before it asked.
    fn judge_age(&mut self, at: At, sandbox: usize, sequence: u64) {
        if self.floor(sandbox, at.start) <= sequence {
            return;
        }
        let Some(witness) = self.floors[sandbox].witness(sequence + 1) else { return };
        let known = witness.value;
        let (rule, how) = match witness.source {
            Source::Shown => (Rule::ReadsNeverGoBack, "somebody had been shown"),
            Source::Acknowledged => (Rule::AcknowledgedIsKept, "a call was acknowledged that is"),
            Source::Implied => (Rule::ReadsNeverGoBack, "an answer was only true with"),
        };
        let message = format!("tells event {sequence} as the last after {how} event {known}");
        let id = &self.truth.logs[sandbox].id;
        self.findings.add(rule, id, [witness.line, at.line], message);
    }

    /// Says of a sandbox that was not found whether it can have been away.
    fn judge_absence(&mut self, at: At, sandbox: usize) {
        let log = &self.truth.logs[sandbox];
        if self.floor(sandbox, at.start) > 0 {
            let witness = self.floors[sandbox].witness(1).map_or(0, |mark| mark.line);
            let message = "was there and is not found any more".to_owned();
            self.findings.add(Rule::AcknowledgedIsKept, &log.id, [witness, at.line], message);
        } else if log.shown > 0 && self.truth.is_past(&log.calls, at.start) {
            self.came_later(at, &log.id, log.shown_line);
        }
    }

    /// Tells of a thing that was not there once nothing could make it any more, and is there later.
    fn came_later(&mut self, at: At, id: &str, shown: usize) {
        let message = "was not there after the last call for it was over, and came later";
        self.findings.add(Rule::UnknownIsOnceOrNever, id, [at.line, shown], message.to_owned());
    }

    /// Looks for the first sequence, from what was known when the call began, at which its answer
    /// is true. From the end of the call on the sandbox is known to be there. Returns whether the
    /// answer can be true.
    fn claim(
        &mut self,
        at: At,
        sandbox: usize,
        source: Source,
        is_so: impl Fn(Phase) -> bool,
    ) -> bool {
        let log = &self.truth.logs[sandbox];
        let first = self.floor(sandbox, at.start).max(1);
        for sequence in first..=log.known() {
            if log.phase(sequence).is_some_and(&is_so) {
                self.raise(sandbox, at, sequence, source);
                return true;
            }
        }
        !log.is_complete()
    }
}
