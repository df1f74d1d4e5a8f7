//! What lists had, and what they had not.

use std::collections::BTreeSet;

use super::{At, Judge};
use crate::{
    entry::{ExecView, SandboxView, Which},
    event::{ExecState, Kind},
    floor::Source,
    path::Phase,
    rule::Rule,
};

/// What lists must have.
#[derive(Debug)]
pub(super) struct Lists {
    /// The sandboxes that are there and not known to be deleted.
    present: BTreeSet<usize>,
    /// For each sandbox, its execs that began and are not known to have ended.
    running: Vec<Running>,
    /// The line of the last list that each sandbox was in.
    listed: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
struct Running {
    /// Up to which event starts were looked for.
    looked: u64,
    execs: BTreeSet<usize>,
}

impl Lists {
    pub(super) fn new(sandboxes: usize) -> Self {
        Self {
            present: BTreeSet::new(),
            running: vec![Running::default(); sandboxes],
            listed: vec![0; sandboxes],
        }
    }

    pub(super) fn note_present(&mut self, sandbox: usize) {
        // Only what a list has not yet shown to be deleted is looked for in the next.
        if self.listed[sandbox] != usize::MAX {
            self.present.insert(sandbox);
        }
    }

    fn forget(&mut self, sandbox: usize) {
        self.present.remove(&sandbox);
        self.listed[sandbox] = usize::MAX;
    }
}

impl Judge<'_> {
    pub(super) fn judge_list(&mut self, at: At, which: Which, views: &[SandboxView]) {
        for view in views {
            if let Some(sandbox) = self.truth.sandbox(&view.sandbox)
                && self.lists.listed[sandbox] != usize::MAX
            {
                self.lists.listed[sandbox] = at.line;
            }
            self.judge_view(at, view, Source::Shown);
        }
        match which {
            Which::Chosen => {}
            Which::All => self.judge_missing_of_all(at, views),
            Which::Live => self.judge_missing(at),
        }
    }

    /// A list of everything has what was there before it was asked for, deleted or not.
    fn judge_missing_of_all(&mut self, at: At, views: &[SandboxView]) {
        let named: BTreeSet<usize> =
            views.iter().filter_map(|view| self.truth.sandbox(&view.sandbox)).collect();
        for sandbox in 0..self.truth.logs.len() {
            if !named.contains(&sandbox) && self.floor(sandbox, at.start) > 0 {
                self.not_listed(at, sandbox);
            }
        }
    }

    /// What is not in a list of the living is deleted, and stays so.
    fn judge_missing(&mut self, at: At) {
        let missing: Vec<usize> = self.lists.present.iter().copied().collect();
        for sandbox in missing {
            let floor = self.floor(sandbox, at.start);
            if self.lists.listed[sandbox] == at.line || floor == 0 {
                continue;
            }
            if self.truth.logs[sandbox].phase(floor) == Some(Phase::Terminated) {
                self.lists.forget(sandbox);
            } else if !self.claim(at, sandbox, Source::Implied, |phase| phase == Phase::Terminated)
            {
                self.not_listed(at, sandbox);
            }
        }
    }

    fn not_listed(&mut self, at: At, sandbox: usize) {
        let witness = self.floors[sandbox].witness(1).map_or(0, |mark| mark.line);
        let message = "was there, was not deleted, and is not in the list".to_owned();
        let id = &self.truth.logs[sandbox].id;
        self.findings.add(Rule::AcknowledgedIsKept, id, [witness, at.line], message);
    }

    pub(super) fn judge_active(&mut self, at: At, only: Option<&str>, views: &[ExecView]) {
        let listed: BTreeSet<usize> =
            views.iter().filter_map(|view| self.truth.exec(&view.exec)).collect();
        for view in views {
            if view.state != ExecState::Running {
                let message = "is in the list of what runs, and does not".to_owned();
                self.findings.add(Rule::StateIsTheSum, &view.exec, [at.line], message);
            }
            self.judge_exec_view(at, view);
        }
        match only.map(|id| self.truth.sandbox(id)) {
            None => {
                let present: Vec<usize> = self.lists.present.iter().copied().collect();
                for sandbox in present {
                    self.judge_inactive(at, sandbox, &listed);
                }
            }
            Some(Some(sandbox)) => self.judge_inactive(at, sandbox, &listed),
            Some(None) => {}
        }
    }

    /// What is not in the list of execs that run has ended.
    fn judge_inactive(&mut self, at: At, sandbox: usize, listed: &BTreeSet<usize>) {
        let floor = self.floor(sandbox, at.start);
        let log = &self.truth.logs[sandbox];
        let running = &mut self.lists.running[sandbox];
        let last = floor.min(log.known());
        if running.looked < last {
            for (_, known) in log.events.range(running.looked + 1..=last) {
                if known.fact.kind == Kind::ExecStarted {
                    running.execs.extend(known.fact.exec);
                }
            }
            running.looked = last;
        }
        let execs = &self.truth.execs;
        // What had ended before this call had ended before every later one too.
        running.execs.retain(|exec| execs[*exec].ended.is_none_or(|ended| ended > floor));
        let missing: Vec<usize> = running.execs.difference(listed).copied().collect();
        for exec in missing {
            let exec = &execs[exec];
            if exec.started.is_none_or(|started| started > floor) {
                continue;
            }
            if let Some(ended) = exec.ended {
                self.raise(sandbox, at, ended, Source::Implied);
            } else if log.is_complete() {
                let asked = exec.calls.acknowledged.map_or(0, |(_, line)| line);
                let message = "runs, and is not in the list of what runs".to_owned();
                self.findings.add(Rule::AcknowledgedIsKept, &exec.id, [asked, at.line], message);
            }
        }
    }
}
