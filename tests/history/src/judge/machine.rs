//! What was found on the machine: processes, output, leftovers.

use std::collections::{HashMap, HashSet};

use super::{At, Judge};
use crate::{
    entry::{Has, Machine, Output, Process, Processes, Resource, Says},
    event::State,
    rule::Rule,
};

/// How long the server may take to bring records and machine together, in microseconds.
const RECONCILED: u64 = 5_000_000;

/// Processes that were seen before.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// By sandbox and the event that began to make it ready.
    sandboxes: HashMap<(usize, u64), Identity>,
    execs: HashMap<usize, Identity>,
}

#[derive(Clone, Copy, Debug)]
struct Identity {
    pid: u32,
    started: u64,
    line: usize,
}

impl Judge<'_> {
    pub(super) fn judge_processes(&mut self, at: At, seen: &Processes) {
        let Some(sandbox) = self.truth.sandbox(&seen.sandbox) else { return };
        let log = &self.truth.logs[sandbox];
        let starts = log.starts.partition_point(|start| *start <= seen.last_event_sequence);
        let start = starts.checked_sub(1).map_or(0, |last| log.starts[last]);
        for process in &seen.processes {
            let Process { pid, started, .. } = *process;
            let now = Identity { pid, started, line: at.line };
            let (id, before) = if let Some(exec) = &process.exec {
                let Some(number) = self.truth.exec(exec) else { continue };
                (exec, *self.machine.execs.entry(number).or_insert(now))
            } else {
                let key = (sandbox, start);
                (&seen.sandbox, *self.machine.sandboxes.entry(key).or_insert(now))
            };
            if (before.pid, before.started) != (pid, started) {
                let message = format!(
                    "was pid {} started at {}, and is pid {pid} started at {started}",
                    before.pid, before.started
                );
                let lines = [before.line, at.line];
                self.findings.add(Rule::SandboxesOutliveTheServer, id, lines, message);
            }
        }
    }

    pub(super) fn judge_output(&mut self, at: At, output: &Output) {
        let Some(number) = self.truth.exec(&output.exec) else { return };
        let exec = &self.truth.execs[number];
        let end = exec.sandbox.zip(exec.ended).and_then(|(sandbox, ended)| {
            self.truth.logs[sandbox].events.get(&ended).map(|known| known.fact)
        });
        let Some(expect) = &exec.expect else { return };
        // One that was made to end has another code, and has printed what it came to.
        let exited = end.is_some_and(|end| end.exit_code == Some(expect.exit_code));
        let wrong = if let (Some(line), Some(_)) = (output.wrong_line, expect.lines) {
            Some(format!("line {line} of its output is not the number {line}"))
        } else if expect.lines.is_some_and(|lines| output.lines > lines) {
            Some(format!("printed {} lines, more than its command does", output.lines))
        } else if exited && expect.lines.is_some_and(|lines| output.lines < lines) {
            let (found, lines) = (output.lines, expect.lines.unwrap_or(0));
            Some(format!("ended by itself, and {found} of its {lines} lines are there"))
        } else if exited && expect.digest.is_some() && output.digest != expect.digest {
            Some("ended by itself, and its output is not what its command prints".to_owned())
        } else {
            None
        };
        if let Some(message) = wrong {
            let asked = exec.calls.acknowledged.or(exec.calls.unknown).map_or(0, |(_, line)| line);
            self.findings.add(Rule::OutputIsWhole, &output.exec, [asked, at.line], message);
        }
    }

    pub(super) fn judge_machine(&mut self, at: At, machine: &Machine) {
        if machine.since_ready < RECONCILED {
            return;
        }
        let says: HashMap<&str, &Says> =
            machine.says.iter().map(|says| (says.sandbox.as_str(), says)).collect();
        for has in &machine.has {
            if let Some(why) = ghost(has, &says) {
                let subject = has.sandbox.as_deref().unwrap_or(&has.name);
                let message = format!("the machine has {:?} {}, {why}", has.resource, has.name);
                self.findings.add(Rule::NoGhosts, subject, [at.line], message);
            }
        }
        let processes = || machine.has.iter().filter(|has| has.resource == Resource::Process);
        let sandboxes: HashSet<&str> =
            processes().filter_map(|has| has.sandbox.as_deref()).collect();
        let execs: HashSet<&str> = processes().filter_map(|has| has.exec.as_deref()).collect();
        for says in &machine.says {
            if says.state == State::Ready && !sandboxes.contains(says.sandbox.as_str()) {
                let message = "is ready and has no process".to_owned();
                self.findings.add(Rule::NoPhantoms, &says.sandbox, [at.line], message);
            }
            for exec in says.execs.iter().filter(|exec| !execs.contains(exec.as_str())) {
                let message = "runs and has no process".to_owned();
                self.findings.add(Rule::NoPhantoms, exec, [at.line], message);
            }
        }
    }
}

/// Says why no record explains a thing.
fn ghost(has: &Has, says: &HashMap<&str, &Says>) -> Option<String> {
    let Some(sandbox) = has.sandbox.as_deref() else {
        return Some("which names no sandbox".to_owned());
    };
    let Some(record) = says.get(sandbox) else {
        return Some(format!("and there is no sandbox {sandbox}"));
    };
    let may_have = match record.state {
        State::Pending | State::Ready | State::Deleting => true,
        // Files are kept; nothing runs.
        State::Stopped | State::Failed => has.resource == Resource::Directory,
        State::Deleted => false,
    };
    let runs = has.exec.as_ref().is_none_or(|exec| record.execs.contains(exec));
    if !may_have {
        Some(format!("and sandbox {sandbox} is {:?}", record.state))
    } else if !runs && has.resource == Resource::Process {
        Some(format!("of exec {}, which does not run", has.exec.as_deref().unwrap_or("")))
    } else {
        None
    }
}
