//! What subscriptions got, in which order, and how they ended.

use std::collections::BTreeSet;

use super::{At, Judge};
use crate::{
    entry::{Ending, Refusal, Subscribed, Time},
    event::{Event, Kind},
    floor::Source,
    path::Phase,
    rule::Rule,
};

/// A subscription that is open.
#[derive(Debug)]
pub(super) struct Stream {
    sandbox: usize,
    opened: At,
    from: u64,
    /// The last sequence that it got, or began after.
    last: u64,
    last_line: usize,
    last_time: Time,
    snapshot: Snapshot,
}

/// How far the snapshot at the beginning of a subscription has come.
#[derive(Debug)]
enum Snapshot {
    NotAskedFor,
    Awaited,
    /// The last event, and then one for each exec that runs.
    Coming {
        sequence: u64,
        line: usize,
        execs: BTreeSet<usize>,
    },
    Over,
}

impl Judge<'_> {
    pub(super) fn open_stream(&mut self, at: At, subscribed: &Subscribed) {
        let Some(sandbox) = self.truth.sandbox(&subscribed.sandbox) else { return };
        let snapshot = if subscribed.snapshot { Snapshot::Awaited } else { Snapshot::NotAskedFor };
        let stream = Stream {
            sandbox,
            opened: at,
            from: subscribed.from_sequence,
            last: subscribed.from_sequence,
            last_line: at.line,
            last_time: at.start,
            snapshot,
        };
        if let Some(before) = self.streams.insert(subscribed.subscription, stream) {
            let message = format!("subscription {} is there twice", subscribed.subscription);
            let lines = [before.opened.line, at.line];
            self.findings.add(Rule::RecordingIsWhole, "", lines, message);
        }
    }

    pub(super) fn judge_event(&mut self, at: At, subscription: u64, event: &Event) {
        let Some(mut stream) = self.streams.remove(&subscription) else {
            let message = format!("subscription {subscription} was not begun, or is over");
            self.findings.add(Rule::RecordingIsWhole, "", [at.line], message);
            return;
        };
        let id = &self.truth.logs[stream.sandbox].id;
        if *id != event.sandbox {
            let message = format!("an event of {} came in its subscription", event.sandbox);
            self.findings.add(Rule::SequencesAreWhole, id, [stream.opened.line, at.line], message);
        } else if event.snapshot {
            self.judge_snapshot_event(at, &mut stream, event);
        } else {
            self.judge_snapshot_end(at, &mut stream);
            self.judge_next(at, &stream, event.sequence);
            (stream.last, stream.last_line) = (event.sequence, at.line);
            self.raise(stream.sandbox, at, event.sequence, Source::Shown);
        }
        stream.last_time = at.end;
        self.streams.insert(subscription, stream);
    }

    fn judge_next(&mut self, at: At, stream: &Stream, found: u64) {
        let last = stream.last;
        if Some(found) == last.checked_add(1) {
            return;
        }
        let what = if found > last {
            format!("event {found} follows event {last}: {} are missing", found - last - 1)
        } else if stream.last_line == stream.opened.line {
            format!("event {found} comes although only those after {last} were asked for")
        } else if found == last {
            format!("event {found} comes twice")
        } else {
            format!("event {found} comes after event {last}")
        };
        let id = &self.truth.logs[stream.sandbox].id;
        self.findings.add(Rule::SequencesAreWhole, id, [stream.last_line, at.line], what);
    }

    fn judge_snapshot_event(&mut self, at: At, stream: &mut Stream, event: &Event) {
        let wrong = match &mut stream.snapshot {
            Snapshot::NotAskedFor => Some("a snapshot comes that was not asked for".to_owned()),
            Snapshot::Over => Some("a snapshot comes after other events".to_owned()),
            Snapshot::Awaited => {
                let sequence = event.sequence;
                let execs = BTreeSet::new();
                stream.snapshot = Snapshot::Coming { sequence, line: at.line, execs };
                let asked = At { start: stream.opened.start, ..at };
                self.judge_age(asked, stream.sandbox, sequence);
                self.raise(stream.sandbox, at, sequence, Source::Shown);
                let known = self.truth.logs[stream.sandbox].events.get(&sequence);
                let differences =
                    known.map(|known| known.fact.differences(&self.truth.fact(event)));
                differences.filter(|fields| !fields.is_empty()).map(|fields| {
                    format!("the snapshot as of event {sequence} is not that event: {fields}")
                })
            }
            Snapshot::Coming { sequence, execs, .. } => {
                let exec = event.exec.as_deref().and_then(|exec| self.truth.exec(exec));
                let runs = exec.is_some_and(|exec| {
                    let exec = &self.truth.execs[exec];
                    exec.started.is_some_and(|started| started <= *sequence)
                        && exec.ended.is_none_or(|ended| ended > *sequence)
                });
                let is_known = *sequence <= self.truth.logs[stream.sandbox].known();
                let is_new = exec.is_some_and(|exec| execs.insert(exec));
                let fits = event.kind == Kind::ExecStarted && event.sequence == *sequence;
                let right = fits && is_new && (runs || !is_known);
                (!right).then(|| {
                    let exec = event.exec.as_deref().unwrap_or("none");
                    format!("a snapshot as of event {sequence} has exec {exec}, wrongly")
                })
            }
        };
        if let Some(message) = wrong {
            let id = &self.truth.logs[stream.sandbox].id;
            let lines = [stream.opened.line, at.line];
            self.findings.add(Rule::SnapshotsComeFirst, id, lines, message);
        }
    }

    /// Judges a snapshot as a whole once another event has come.
    fn judge_snapshot_end(&mut self, at: At, stream: &mut Stream) {
        let log = &self.truth.logs[stream.sandbox];
        let (wrong, line) = match std::mem::replace(&mut stream.snapshot, Snapshot::Over) {
            Snapshot::NotAskedFor => {
                stream.snapshot = Snapshot::NotAskedFor;
                return;
            }
            Snapshot::Over => return,
            Snapshot::Awaited => ("no snapshot comes first".to_owned(), stream.opened.line),
            Snapshot::Coming { sequence, line, execs } => {
                let running =
                    log.running(sequence).map(|count| usize::try_from(count).unwrap_or(0));
                let found = execs.len();
                let Some(running) = running.filter(|running| *running > found) else { return };
                let message = format!(
                    "the snapshot as of event {sequence} has {found} of {running} execs that run"
                );
                (message, line)
            }
        };
        self.findings.add(Rule::SnapshotsComeFirst, &log.id, [line, at.line], wrong);
    }

    pub(super) fn end_stream(&mut self, at: At, subscription: u64, how: &Ending) {
        let Some(stream) = self.streams.remove(&subscription) else {
            let message = format!("subscription {subscription} was not begun, or is over");
            self.findings.add(Rule::RecordingIsWhole, "", [at.line], message);
            return;
        };
        let asked = At { start: stream.opened.start, ..at };
        let log = &self.truth.logs[stream.sandbox];
        let killed = self.truth.was_killed(stream.last_time, at.end);
        let wrong = match how {
            Ending::Dropped => None,
            Ending::Silent { since } => {
                self.judge_silence(at, &stream, *since);
                None
            }
            Ending::Refused(Refusal::NotFound) => {
                self.judge_absence(asked, stream.sandbox);
                None
            }
            Ending::Refused(_) => None,
            Ending::Clean => {
                let last = log.phase(stream.last);
                let is_early = last.is_some_and(|phase| phase != Phase::Terminated);
                (is_early && !killed).then(|| {
                    format!(
                        "a subscription ended after event {}, which is not the last",
                        stream.last
                    )
                })
            }
            Ending::ConnectionBroke => (self.truth.summary.closed && !killed)
                .then(|| "a subscription broke without a kill".to_owned()),
            Ending::OutOfRange => {
                let floor = self.floor(stream.sandbox, stream.opened.start);
                (floor >= stream.from).then(|| {
                    let from = stream.from;
                    format!("event {from} is said to be out of range; there were {floor}")
                })
            }
        };
        if let Some(message) = wrong {
            let lines = [stream.last_line, at.line];
            self.findings.add(Rule::ConnectionsEndForAReason, &log.id, lines, message);
        }
    }

    /// What somebody else had been shown before a subscriber began to wait should have come.
    fn judge_silence(&mut self, at: At, stream: &Stream, since: Time) {
        let floor = &self.floors[stream.sandbox];
        let known = floor.before(since).filter(|mark| mark.value > stream.last);
        let Some(witness) = known.and_then(|_| floor.witness(stream.last + 1)) else { return };
        let message = format!("event {} was there and did not come", stream.last + 1);
        let id = &self.truth.logs[stream.sandbox].id;
        self.findings.add(Rule::SequencesAreWhole, id, [witness.line, at.line], message);
    }

    /// A replay is a subscription from the beginning that was read to the end.
    pub(super) fn judge_replay(&mut self, at: At, id: &str, events: &[Event]) {
        let Some(sandbox) = self.truth.sandbox(id) else { return };
        let last = events.last().map_or(0, |event| event.sequence);
        for (expected, event) in (1..).zip(events) {
            if event.sequence != expected {
                let message =
                    format!("the replay has event {} in the place of {expected}", event.sequence);
                self.findings.add(Rule::SequencesAreWhole, id, [at.line], message);
                break;
            }
        }
        self.judge_age(at, sandbox, last);
        self.raise(sandbox, at, last, Source::Shown);
    }
}
