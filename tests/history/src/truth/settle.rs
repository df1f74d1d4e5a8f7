//! Between the readings: whether the events of a sandbox are a life, and whether somebody asked
//! for it.

use super::{Calls, Exec, Fact, Known, Log, Truth};
use crate::{
    event::Kind,
    path::{Commands, Phase},
    report::Findings,
    rule::Rule,
};

impl Truth {
    pub(crate) fn settle(&mut self, findings: &mut Findings) {
        for number in 0..self.logs.len() {
            self.logs[number].add_up(number, &mut self.execs, findings);
        }
        self.judge_makers(findings);
        self.judge_ends(findings);
        self.judge_companions(findings);
        self.summary.sandboxes = count(self.logs.iter().filter(|log| log.shown > 0));
        self.summary.execs = count(self.execs.iter().filter(|exec| exec.started.is_some()));
        self.summary.replays = count(self.logs.iter().filter(|log| log.replayed.is_some()));
    }

    /// Says of everything that is there whether a call can have made it.
    fn judge_makers(&mut self, findings: &mut Findings) {
        for log in self.logs.iter().filter(|log| log.shown > 0) {
            self.summary.unknown_that_happened += u64::from(is_only_unknown(&log.calls));
            if !log.calls.may_have_made_it() && !take_one(&mut self.unnamed_creates) {
                made_by_nobody(&log.id, log.shown_line, &log.calls, findings);
            }
        }
        for exec in self.execs.iter().filter(|exec| exec.started.is_some()) {
            self.summary.unknown_that_happened += u64::from(is_only_unknown(&exec.calls));
            let Some(log) = exec.sandbox.map(|sandbox| &mut self.logs[sandbox]) else { continue };
            if !exec.calls.may_have_made_it() && !take_one(&mut log.unnamed_execs) {
                made_by_nobody(&exec.id, log.shown_line, &exec.calls, findings);
            }
        }
    }
}

fn count<T>(things: impl Iterator<Item = T>) -> u64 {
    u64::try_from(things.count()).unwrap_or(u64::MAX)
}

fn is_only_unknown(calls: &Calls) -> bool {
    calls.unknown.is_some() && calls.acknowledged.is_none()
}

/// Uses up one call for which the server was to find a name.
fn take_one(unnamed: &mut u64) -> bool {
    let left = unnamed.checked_sub(1);
    *unnamed = left.unwrap_or(0);
    left.is_some()
}

fn made_by_nobody(id: &str, shown: usize, calls: &Calls, findings: &mut Findings) {
    if let Some(refused) = calls.refused {
        let message = "is there although every call for it was refused".to_owned();
        findings.add(Rule::RefusalsAreTrue, id, [refused, shown], message);
    } else {
        let message = "is there although nobody asked for it".to_owned();
        findings.add(Rule::UnknownIsOnceOrNever, id, [shown], message);
    }
}

impl Log {
    /// Follows the events from the first as long as they are known and legal. After the first that
    /// is not, nothing is known: one mistake is told once.
    fn add_up(&mut self, number: usize, execs: &mut [Exec], findings: &mut Findings) {
        let mut phase = None;
        let mut running: u32 = 0;
        let mut line_before = 0;
        for (expected, (sequence, Known { fact, line, .. })) in (1..).zip(&self.events) {
            if *sequence != expected {
                break;
            }
            let commands = if running == 0 { Commands::None } else { Commands::Run };
            let step = match Phase::after(phase, fact.kind, commands) {
                Some(next) => follow_exec(fact, *sequence, number, execs)
                    .map(|change| (next, running.saturating_add_signed(change))),
                None => Err(illegal(phase, fact.kind, running)),
            };
            match step {
                Ok(step) => (phase, running) = (Some(step.0), step.1),
                Err((rule, why)) => {
                    let message = format!("event {sequence}, {:?}, {why}", fact.kind);
                    findings.add(rule, &self.id, [line_before, *line], message);
                    break;
                }
            }
            let Some(phase) = phase else { break };
            self.phases.push(phase);
            self.running.push(running);
            if fact.kind == Kind::Accepted {
                self.starts.push(*sequence);
            }
            if let Some(message) = wrong_state(*sequence, fact, phase) {
                findings.add(Rule::StateIsTheSum, &self.id, [line_before, *line], message);
            }
            line_before = *line;
        }
    }
}

fn wrong_state(sequence: u64, fact: &Fact, phase: Phase) -> Option<String> {
    let (kind, expected) = (fact.kind, phase.state());
    let says = match fact.state {
        Some(state) if state != expected => format!("says {state:?}"),
        None if kind.names_its_state() => "says no state".to_owned(),
        Some(_) | None => return None,
    };
    Some(format!("event {sequence}, {kind:?}, {says}; the events up to it add up to {expected:?}"))
}

/// Notes the start or end of an exec; returns by how much the number of commands changes.
fn follow_exec(
    fact: &Fact,
    sequence: u64,
    sandbox: usize,
    execs: &mut [Exec],
) -> Result<i32, (Rule, String)> {
    let is_start = fact.kind == Kind::ExecStarted;
    if !is_start && !fact.kind.is_exec_end() {
        return Ok(0);
    }
    let Some(number) = fact.exec else {
        return Err((Rule::PhasesAreLegal, "names no exec".to_owned()));
    };
    let exec = &mut execs[number];
    let id = &exec.id;
    if is_start {
        if let Some(before) = exec.started {
            let why = format!("starts {id}, which event {before} had started");
            return Err((Rule::UnknownIsOnceOrNever, why));
        }
        (exec.sandbox, exec.started) = (Some(sandbox), Some(sequence));
        return Ok(1);
    }
    if exec.started.is_none() || exec.sandbox != Some(sandbox) {
        return Err((Rule::ExecsEndOnce, format!("ends {id}, which was not started here")));
    }
    if let Some(before) = exec.ended {
        return Err((Rule::ExecsEndOnce, format!("ends {id}, which event {before} had ended")));
    }
    exec.ended = Some(sequence);
    Ok(-1)
}

fn illegal(phase: Option<Phase>, kind: Kind, running: u32) -> (Rule, String) {
    let Some(phase) = phase else {
        return (Rule::PhasesAreLegal, "is the first, and no acceptance".to_owned());
    };
    if phase == Phase::Terminated {
        return (Rule::SandboxesEndOnce, "comes after the sandbox was deleted".to_owned());
    }
    if Phase::after(Some(phase), kind, Commands::None).is_some() {
        return (Rule::ExecsEndOnce, format!("comes while {running} commands have no end yet"));
    }
    (Rule::PhasesAreLegal, format!("cannot come while the sandbox is {phase:?}"))
}
