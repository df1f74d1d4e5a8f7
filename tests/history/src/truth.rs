//! The first reading: what the events of each sandbox are, and who asked for what.
//!
//! What is kept grows with the events of a sandbox, not with how often they were read.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use crate::{
    entry::{Answer, Call, Entry, Expectation, Outcome, SandboxView, Time, What},
    event::{Event, Kind, Loss, State},
    path::Phase,
    report::{Findings, Summary},
    rule::Rule,
};

mod companions;
mod ends;
mod settle;

#[derive(Debug, Default)]
pub(crate) struct Truth {
    sandbox_numbers: HashMap<String, usize>,
    pub(crate) logs: Vec<Log>,
    exec_numbers: HashMap<String, usize>,
    pub(crate) execs: Vec<Exec>,
    kills: Vec<(Time, Time)>,
    /// Creates of unknown outcome for which the server was to find a name.
    unnamed_creates: u64,
    pub(crate) summary: Summary,
    last_end: Time,
}

/// What is known of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) id: String,
    pub(crate) events: BTreeMap<u64, Known>,
    /// The phase after each event from the first, as far as they are known and legal.
    pub(crate) phases: Vec<Phase>,
    /// How many commands run after each of these.
    pub(crate) running: Vec<u32>,
    /// The events that began to make it ready.
    pub(crate) starts: Vec<u64>,
    /// The highest sequence that anybody was shown, and where.
    pub(crate) shown: u64,
    pub(crate) shown_line: usize,
    /// How long the last whole replay was, and where it is.
    pub(crate) replayed: Option<(u64, usize)>,
    pub(crate) calls: Calls,
    unnamed_execs: u64,
    harmed: Option<Time>,
}

/// An event, and the line that first showed it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) fact: Fact,
    pub(crate) line: usize,
    seen: Time,
}

/// An event without what differs from reader to reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) kind: Kind,
    pub(crate) state: Option<State>,
    pub(crate) exec: Option<usize>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) loss: Option<Loss>,
    /// A digest of its name.
    pub(crate) companion: Option<u64>,
    pub(crate) occurred_at: i64,
    /// A digest: texts are compared, not kept.
    pub(crate) details: u64,
}

impl Fact {
    /// Names the fields in which two differ.
    pub(crate) fn differences(&self, other: &Self) -> String {
        let fields = [
            (self.kind != other.kind, "kind"),
            (self.state != other.state, "state"),
            (self.exec != other.exec, "exec"),
            (self.exit_code != other.exit_code, "exit_code"),
            (self.loss != other.loss, "loss"),
            (self.companion != other.companion, "companion"),
            (self.occurred_at != other.occurred_at, "occurred_at"),
            (self.details != other.details, "details"),
        ];
        let differing: Vec<&str> =
            fields.iter().filter(|(differ, _)| *differ).map(|(_, name)| *name).collect();
        differing.join(", ")
    }
}

/// What is known of one exec.
#[derive(Debug, Default)]
pub(crate) struct Exec {
    pub(crate) id: String,
    pub(crate) sandbox: Option<usize>,
    pub(crate) started: Option<u64>,
    pub(crate) ended: Option<u64>,
    pub(crate) calls: Calls,
    pub(crate) expect: Option<Expectation>,
    /// When a cancel that may have happened was first asked for.
    cancel_asked: Option<Time>,
}

/// The calls that may have made a thing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) first_start: Option<Time>,
    pub(crate) acknowledged: Option<(Time, usize)>,
    /// The end of the last one whose outcome is not known.
    pub(crate) unknown: Option<(Time, usize)>,
    pub(crate) refused: Option<usize>,
}

impl Calls {
    /// Notes a call; returns the line of an earlier acknowledgement if this is another one.
    fn note(&mut self, line: usize, entry: &Entry, outcome: &Outcome) -> Option<usize> {
        let first = self.first_start.map_or(entry.start, |first| first.min(entry.start));
        self.first_start = Some(first);
        match outcome {
            Outcome::Acknowledged(_) => {
                let before = self.acknowledged.replace((entry.end, line));
                return before.map(|(_, line)| line);
            }
            Outcome::Unknown(_) => self.unknown = Some((entry.end, line)),
            Outcome::Refused(_) => self.refused = Some(line),
        }
        None
    }

    fn may_have_made_it(&self) -> bool {
        self.acknowledged.is_some() || self.unknown.is_some()
    }
}

impl Truth {
    pub(crate) fn sandbox(&self, id: &str) -> Option<usize> {
        self.sandbox_numbers.get(id).copied()
    }

    pub(crate) fn exec(&self, id: &str) -> Option<usize> {
        self.exec_numbers.get(id).copied()
    }

    /// Returns what an event says, if its exec is known.
    pub(crate) fn fact(&self, event: &Event) -> Fact {
        let exec = event.exec.as_deref().and_then(|exec| self.exec(exec));
        fact(event, exec)
    }

    /// Tells whether the server was being killed at some moment from `start` to `end`.
    pub(crate) fn was_killed(&self, start: Time, end: Time) -> bool {
        let first = self.kills.partition_point(|(_, ready)| *ready < start);
        self.kills.get(first).is_some_and(|(killed, _)| *killed <= end)
    }

    /// Tells whether there were such calls and none of them can have an effect from then on. A
    /// kill ends what the killed server had begun.
    pub(crate) fn is_past(&self, calls: &Calls, then: Time) -> bool {
        let unknown = calls.unknown.map(|(end, _)| {
            let next = self.kills.partition_point(|(_, ready)| *ready < end);
            self.kills.get(next).map_or(Time(u64::MAX), |(_, ready)| *ready)
        });
        let last = unknown.max(calls.acknowledged.map(|(end, _)| end));
        last.is_some_and(|last| last < then)
    }

    /// Takes over what one entry says about the events and about who asked for what.
    pub(crate) fn learn(&mut self, line: usize, entry: &Entry, findings: &mut Findings) {
        self.summary.entries += 1;
        if entry.end < self.last_end || entry.end < entry.start {
            let message = "ends before its start, or before the line above it".to_owned();
            findings.add(Rule::RecordingIsWhole, "", [line], message);
        }
        self.last_end = self.last_end.max(entry.end);
        match &entry.what {
            What::Call { call, outcome } => {
                match outcome {
                    Outcome::Acknowledged(_) => self.summary.acknowledged += 1,
                    Outcome::Refused(_) => self.summary.refused += 1,
                    Outcome::Unknown(_) => self.summary.unknown += 1,
                }
                self.learn_call(line, entry, call, outcome, findings);
            }
            What::Subscribed(subscribed) => {
                self.summary.subscriptions += 1;
                self.enter_sandbox(&subscribed.sandbox);
            }
            What::Event { subscription: _, event } => {
                self.summary.events += 1;
                if event.snapshot {
                    let sandbox = self.enter_sandbox(&event.sandbox);
                    self.logs[sandbox].show(event.sequence, line);
                } else {
                    self.learn_event(line, entry.end, event, findings);
                }
            }
            What::Ended { .. } | What::Output(_) | What::Processes(_) => {}
            What::Killed => {
                self.summary.kills += 1;
                self.kills.push((entry.start, entry.end));
            }
            What::Harmed { sandbox } => {
                let sandbox = self.enter_sandbox(sandbox);
                let harmed = &mut self.logs[sandbox].harmed;
                *harmed = Some(harmed.map_or(entry.start, |first| first.min(entry.start)));
            }
            What::Machine(_) => self.summary.audits += 1,
            What::Replay { sandbox, events } => {
                for event in events {
                    self.learn_event(line, entry.end, event, findings);
                }
                let sandbox = self.enter_sandbox(sandbox);
                let length = events.last().map_or(0, |event| event.sequence);
                self.logs[sandbox].replayed = Some((length, line));
            }
            What::Closed => self.summary.closed = true,
        }
    }

    fn learn_call(
        &mut self,
        line: usize,
        entry: &Entry,
        call: &Call,
        outcome: &Outcome,
        findings: &mut Findings,
    ) {
        match (call, outcome) {
            (Call::Create { sandbox }, _) => {
                let named = match outcome {
                    Outcome::Acknowledged(Answer::Sandbox(view)) => Some(&view.sandbox),
                    Outcome::Acknowledged(_) | Outcome::Refused(_) | Outcome::Unknown(_) => {
                        sandbox.as_ref()
                    }
                };
                if let Some(id) = named {
                    let number = self.enter_sandbox(id);
                    let before = self.logs[number].calls.note(line, entry, outcome);
                    twice_acknowledged(id, before, line, findings);
                } else if matches!(outcome, Outcome::Unknown(_)) {
                    self.unnamed_creates += 1;
                }
            }
            (Call::Exec { sandbox, exec, expect }, _) => {
                let sandbox = self.enter_sandbox(sandbox);
                let named = match outcome {
                    Outcome::Acknowledged(Answer::Started { exec }) => Some(exec),
                    Outcome::Acknowledged(_) | Outcome::Refused(_) | Outcome::Unknown(_) => {
                        exec.as_ref()
                    }
                };
                if let Some(id) = named {
                    let number = self.enter_exec(id);
                    let exec = &mut self.execs[number];
                    let before = exec.calls.note(line, entry, outcome);
                    if !matches!(outcome, Outcome::Refused(_)) {
                        exec.sandbox = exec.sandbox.or(Some(sandbox));
                        exec.expect = exec.expect.take().or_else(|| expect.clone());
                    }
                    twice_acknowledged(id, before, line, findings);
                } else if matches!(outcome, Outcome::Unknown(_)) {
                    self.logs[sandbox].unnamed_execs += 1;
                }
            }
            (Call::Cancel { exec }, Outcome::Acknowledged(_) | Outcome::Unknown(_)) => {
                let number = self.enter_exec(exec);
                let asked = &mut self.execs[number].cancel_asked;
                *asked = Some(asked.map_or(entry.start, |first| first.min(entry.start)));
            }
            (
                Call::Stop { sandbox }
                | Call::Resume { sandbox }
                | Call::Delete { sandbox }
                | Call::Get { sandbox },
                _,
            ) => {
                self.enter_sandbox(sandbox);
            }
            (Call::Cancel { exec } | Call::GetExec { exec }, _) => {
                self.enter_exec(exec);
            }
            (Call::List { .. } | Call::ListActive { .. }, _) => {}
        }
        if let Outcome::Acknowledged(answer) = outcome {
            self.learn_answer(line, answer);
        }
    }

    fn learn_answer(&mut self, line: usize, answer: &Answer) {
        match answer {
            Answer::Accepted | Answer::Started { .. } => {}
            Answer::Sandbox(view) => self.learn_view(line, view),
            Answer::Sandboxes(views) => views.iter().for_each(|view| self.learn_view(line, view)),
            Answer::Exec(view) => {
                self.enter_exec(&view.exec);
                let sandbox = self.enter_sandbox(&view.sandbox);
                self.logs[sandbox].show(view.last_event_sequence, line);
            }
            Answer::Execs(views) => {
                for view in views {
                    self.enter_exec(&view.exec);
                    let sandbox = self.enter_sandbox(&view.sandbox);
                    self.logs[sandbox].show(view.last_event_sequence, line);
                }
            }
        }
    }

    fn learn_view(&mut self, line: usize, view: &SandboxView) {
        let sandbox = self.enter_sandbox(&view.sandbox);
        self.logs[sandbox].show(view.last_event_sequence, line);
    }

    fn learn_event(&mut self, line: usize, seen: Time, event: &Event, findings: &mut Findings) {
        let exec = event.exec.as_deref().map(|exec| self.enter_exec(exec));
        let new = fact(event, exec);
        let sandbox = self.enter_sandbox(&event.sandbox);
        let log = &mut self.logs[sandbox];
        log.show(event.sequence, line);
        let old = *log.events.entry(event.sequence).or_insert(Known { fact: new, line, seen });
        if old.fact != new {
            let differences = old.fact.differences(&new);
            let message =
                format!("event {} is not the same for all: {differences}", event.sequence);
            findings.add(Rule::EveryoneSeesTheSame, &event.sandbox, [old.line, line], message);
        }
    }

    fn enter_sandbox(&mut self, id: &str) -> usize {
        if let Some(number) = self.sandbox(id) {
            return number;
        }
        let number = self.logs.len();
        self.sandbox_numbers.insert(id.to_owned(), number);
        self.logs.push(Log { id: id.to_owned(), ..Log::default() });
        number
    }

    fn enter_exec(&mut self, id: &str) -> usize {
        if let Some(number) = self.exec(id) {
            return number;
        }
        let number = self.execs.len();
        self.exec_numbers.insert(id.to_owned(), number);
        self.execs.push(Exec { id: id.to_owned(), ..Exec::default() });
        number
    }
}

impl Log {
    fn show(&mut self, sequence: u64, line: usize) {
        if sequence > self.shown {
            (self.shown, self.shown_line) = (sequence, line);
        }
    }

    /// Returns the phase as of an event, if all events up to it are known and legal.
    pub(crate) fn phase(&self, sequence: u64) -> Option<Phase> {
        let place = usize::try_from(sequence.checked_sub(1)?).ok()?;
        self.phases.get(place).copied()
    }

    /// Returns how many commands run as of an event.
    pub(crate) fn running(&self, sequence: u64) -> Option<u32> {
        let place = usize::try_from(sequence.checked_sub(1)?).ok()?;
        self.running.get(place).copied()
    }

    /// Returns up to which event all are known and legal.
    pub(crate) fn known(&self) -> u64 {
        u64::try_from(self.phases.len()).unwrap_or(u64::MAX)
    }

    /// Tells whether everything that ever happened is known, so that what is not there is not so.
    pub(crate) fn is_complete(&self) -> bool {
        self.replayed.is_some_and(|(length, _)| length == self.known() && self.shown <= length)
    }
}

fn fact(event: &Event, exec: Option<usize>) -> Fact {
    let digest = |text: &String| {
        let mut digest = DefaultHasher::new();
        text.hash(&mut digest);
        digest.finish()
    };
    Fact {
        kind: event.kind,
        state: event.state,
        exec,
        exit_code: event.exit_code,
        loss: event.loss,
        companion: event.companion.as_ref().map(digest),
        occurred_at: event.occurred_at,
        details: digest(&event.details),
    }
}

fn twice_acknowledged(id: &str, before: Option<usize>, line: usize, findings: &mut Findings) {
    if let Some(before) = before {
        let message = "was acknowledged as new twice".to_owned();
        findings.add(Rule::UnknownIsOnceOrNever, id, [before, line], message);
    }
}
