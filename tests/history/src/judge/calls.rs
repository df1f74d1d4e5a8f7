//! What calls were told.

use super::{At, Judge};
use crate::{
    entry::{Answer, Call, Doubt, ExecView, Outcome, Refusal, SandboxView},
    event::{ExecState, Kind},
    floor::Source,
    path::Phase,
    rule::Rule,
};

impl Judge<'_> {
    pub(super) fn judge_call(&mut self, at: At, call: &Call, outcome: &Outcome) {
        match outcome {
            Outcome::Acknowledged(answer) => self.judge_answer(at, call, answer),
            Outcome::Refused(refusal) => self.judge_refusal(at, call, refusal),
            Outcome::Unknown(Doubt::ConnectionBroke) => {
                if self.truth.summary.closed && !self.truth.was_killed(at.start, at.end) {
                    let message =
                        format!("the connection of a {} broke without a kill", call.name());
                    self.findings.add(Rule::ConnectionsEndForAReason, "", [at.line], message);
                }
            }
            Outcome::Unknown(Doubt::DeadlinePassed) => {}
        }
    }

    fn judge_answer(&mut self, at: At, call: &Call, answer: &Answer) {
        match (call, answer) {
            (Call::Create { sandbox }, Answer::Sandbox(view)) => {
                let is_it = sandbox.as_ref().is_none_or(|asked| *asked == view.sandbox);
                self.judge_name(at, is_it, &view.sandbox);
                self.judge_view(at, view, Source::Acknowledged);
            }
            (Call::Get { sandbox }, Answer::Sandbox(view)) => {
                self.judge_name(at, *sandbox == view.sandbox, &view.sandbox);
                self.judge_view(at, view, Source::Shown);
            }
            (Call::Exec { sandbox: _, exec, .. }, Answer::Started { exec: started }) => {
                let is_it = exec.as_ref().is_none_or(|asked| asked == started);
                self.judge_name(at, is_it, started);
                self.judge_started(at, started);
            }
            (Call::Cancel { exec }, Answer::Accepted) => self.judge_cancelled(at, exec),
            (Call::Stop { sandbox }, Answer::Accepted) => {
                self.judge_accepted(at, call, sandbox, |phase| {
                    matches!(phase, Phase::Stopping | Phase::Stopped)
                });
            }
            // A contract may take a resume of what is ready already as done.
            (Call::Resume { sandbox }, Answer::Accepted) => {
                self.judge_accepted(at, call, sandbox, |phase| {
                    phase == Phase::Resuming || phase.takes_commands()
                });
            }
            (Call::Delete { sandbox }, Answer::Accepted) => {
                self.judge_accepted(at, call, sandbox, |phase| {
                    matches!(phase, Phase::Deleting | Phase::Terminated)
                });
            }
            (Call::GetExec { exec }, Answer::Exec(view)) => {
                self.judge_name(at, *exec == view.exec, &view.exec);
                self.judge_exec_view(at, view);
            }
            (Call::List { which }, Answer::Sandboxes(views)) => self.judge_list(at, *which, views),
            (Call::ListActive { sandbox }, Answer::Execs(views)) => {
                self.judge_active(at, sandbox.as_deref(), views);
            }
            (
                Call::Create { .. }
                | Call::Exec { .. }
                | Call::Cancel { .. }
                | Call::Stop { .. }
                | Call::Resume { .. }
                | Call::Delete { .. }
                | Call::Get { .. }
                | Call::List { .. }
                | Call::GetExec { .. }
                | Call::ListActive { .. },
                _,
            ) => {
                let message = format!("a {} has the answer of another call", call.name());
                self.findings.add(Rule::RecordingIsWhole, "", [at.line], message);
            }
        }
    }

    fn judge_name(&mut self, at: At, is_it: bool, answered: &str) {
        if !is_it {
            let message = "is the answer about something else".to_owned();
            self.findings.add(Rule::AcknowledgedIsKept, answered, [at.line], message);
        }
    }

    /// Judges what a client was told about a sandbox.
    pub(super) fn judge_view(&mut self, at: At, view: &SandboxView, source: Source) {
        let Some(sandbox) = self.truth.sandbox(&view.sandbox) else { return };
        let sequence = view.last_event_sequence;
        self.judge_age(at, sandbox, sequence);
        let log = &self.truth.logs[sandbox];
        let expected = log.phase(sequence).map(Phase::state);
        if let Some(expected) = expected.filter(|expected| *expected != view.state) {
            let shown = log.events.get(&sequence).map_or(0, |known| known.line);
            let state = view.state;
            let message = format!("is told as {state:?}; at event {sequence} it is {expected:?}");
            self.findings.add(Rule::StateIsTheSum, &log.id, [shown, at.line], message);
        } else if sequence == 0 {
            let message = "is told with no event at all".to_owned();
            self.findings.add(Rule::StateIsTheSum, &log.id, [at.line], message);
        }
        self.raise(sandbox, at, sequence, source);
    }

    /// Judges what a client was told about an exec.
    pub(super) fn judge_exec_view(&mut self, at: At, view: &ExecView) {
        let (Some(sandbox), Some(number)) =
            (self.truth.sandbox(&view.sandbox), self.truth.exec(&view.exec))
        else {
            return;
        };
        let sequence = view.last_event_sequence;
        self.judge_age(at, sandbox, sequence);
        let (log, exec) = (&self.truth.logs[sandbox], &self.truth.execs[number]);
        if sequence <= log.known() {
            let ended = exec.ended.filter(|ended| *ended <= sequence);
            let end = ended.and_then(|ended| log.events.get(&ended));
            let state = end.map_or(ExecState::Running, |end| ExecState::after(end.fact.kind));
            let code = end.and_then(|end| end.fact.exit_code);
            let lives = exec.started.is_some_and(|started| started <= sequence);
            if exec.sandbox != Some(sandbox) || !lives {
                let message = format!("is told as of event {sequence}, which is before its start");
                self.findings.add(Rule::StateIsTheSum, &view.exec, [at.line], message);
            } else if (state, code) != (view.state, view.exit_code) {
                let (told, told_code) = (view.state, view.exit_code);
                let shown = end.map_or(0, |end| end.line);
                let message = format!(
                    "is told as {told:?}, {told_code:?}; at event {sequence} it is {state:?}, {code:?}"
                );
                self.findings.add(Rule::StateIsTheSum, &view.exec, [shown, at.line], message);
            }
        }
        self.raise(sandbox, at, sequence, Source::Shown);
    }

    fn judge_started(&mut self, at: At, id: &str) {
        let Some(number) = self.truth.exec(id) else { return };
        let exec = &self.truth.execs[number];
        match (exec.sandbox, exec.started) {
            (Some(sandbox), Some(started)) => {
                self.raise(sandbox, at, started, Source::Acknowledged);
            }
            (Some(sandbox), None) if self.truth.logs[sandbox].is_complete() => {
                self.lost(at, id, sandbox, "was acknowledged and never started");
            }
            (_, None) | (None, Some(_)) => {}
        }
    }

    fn judge_cancelled(&mut self, at: At, id: &str) {
        let Some(number) = self.truth.exec(id) else { return };
        let exec = &self.truth.execs[number];
        let Some(sandbox) = exec.sandbox else { return };
        let log = &self.truth.logs[sandbox];
        let end = exec.ended.and_then(|ended| log.events.get(&ended));
        match (exec.ended, end.map(|end| end.fact.kind)) {
            (Some(ended), Some(Kind::ExecCancelled)) => {
                self.raise(sandbox, at, ended, Source::Acknowledged);
            }
            (Some(_), Some(_)) => {
                self.lost(at, id, sandbox, "had its cancel acknowledged and ended otherwise");
            }
            (Some(_) | None, None) | (None, Some(_)) if log.is_complete() => {
                self.lost(at, id, sandbox, "had its cancel acknowledged and never ended");
            }
            (Some(_) | None, None) | (None, Some(_)) => {}
        }
    }

    fn judge_accepted(&mut self, at: At, call: &Call, id: &str, is_so: impl Fn(Phase) -> bool) {
        let Some(sandbox) = self.truth.sandbox(id) else { return };
        if !self.claim(at, sandbox, Source::Acknowledged, is_so) {
            let what = format!("had its {} acknowledged, which no event tells", call.name());
            self.lost(at, id, sandbox, &what);
        }
    }

    fn lost(&mut self, at: At, id: &str, sandbox: usize, what: &str) {
        let replay = self.truth.logs[sandbox].replayed.map_or(0, |(_, line)| line);
        self.findings.add(Rule::AcknowledgedIsKept, id, [at.line, replay], what.to_owned());
    }

    fn judge_refusal(&mut self, at: At, call: &Call, refusal: &Refusal) {
        match (call, refusal) {
            (
                Call::Exec { sandbox, .. }
                | Call::Stop { sandbox }
                | Call::Resume { sandbox }
                | Call::Delete { sandbox }
                | Call::Get { sandbox },
                Refusal::NotFound,
            ) => {
                if let Some(sandbox) = self.truth.sandbox(sandbox) {
                    self.judge_absence(at, sandbox);
                }
            }
            (Call::Cancel { exec } | Call::GetExec { exec }, Refusal::NotFound) => {
                self.judge_exec_absence(at, exec);
            }
            (Call::Create { sandbox: Some(sandbox) }, Refusal::AlreadyExists) => {
                self.judge_existing(at, sandbox);
            }
            (Call::Exec { exec: Some(exec), .. }, Refusal::AlreadyExists) => {
                let started = |number: usize| self.truth.execs[number].started;
                let known = self.truth.exec(exec).and_then(started);
                self.judge_exec_claim(at, exec, known, "is said to be there already");
            }
            (Call::Cancel { exec }, Refusal::AlreadyTerminal) => {
                let ended = |number: usize| self.truth.execs[number].ended;
                let known = self.truth.exec(exec).and_then(ended);
                self.judge_exec_claim(at, exec, known, "is said to have ended");
            }
            (Call::Exec { sandbox, .. }, Refusal::NotReady | Refusal::InvalidState) => {
                self.judge_reason(at, call, sandbox, |phase| !phase.takes_commands());
            }
            (Call::Stop { sandbox }, Refusal::NotReady | Refusal::InvalidState) => {
                self.judge_reason(at, call, sandbox, |phase| !phase.takes_commands());
            }
            (Call::Resume { sandbox }, Refusal::NotReady | Refusal::InvalidState) => {
                self.judge_reason(at, call, sandbox, |phase| phase != Phase::Stopped);
            }
            // The others say nothing about the sandbox.
            (
                Call::Create { .. }
                | Call::Exec { .. }
                | Call::Cancel { .. }
                | Call::Stop { .. }
                | Call::Resume { .. }
                | Call::Delete { .. }
                | Call::Get { .. }
                | Call::List { .. }
                | Call::GetExec { .. }
                | Call::ListActive { .. },
                _,
            ) => {}
        }
    }

    fn judge_reason(&mut self, at: At, call: &Call, id: &str, is_so: impl Fn(Phase) -> bool) {
        let Some(sandbox) = self.truth.sandbox(id) else { return };
        if !self.claim(at, sandbox, Source::Implied, is_so) {
            let known = self.floors[sandbox].before(at.start).map_or(0, |mark| mark.line);
            let message =
                format!("had a {} refused for its state, in which it never was", call.name());
            self.findings.add(Rule::RefusalsAreTrue, id, [known, at.line], message);
        }
    }

    fn judge_existing(&mut self, at: At, id: &str) {
        let Some(sandbox) = self.truth.sandbox(id) else { return };
        if self.truth.logs[sandbox].shown > 0 {
            self.raise(sandbox, at, 1, Source::Implied);
        } else if self.truth.summary.closed {
            let message = "is said to be there already, and never is".to_owned();
            self.findings.add(Rule::RefusalsAreTrue, id, [at.line], message);
        }
    }

    /// Judges a refusal that is true only once a certain event of an exec has come.
    fn judge_exec_claim(&mut self, at: At, id: &str, sequence: Option<u64>, what: &str) {
        let Some(number) = self.truth.exec(id) else { return };
        let sandbox = self.truth.execs[number].sandbox;
        // An exec that was never shown in a sandbox could be in any.
        let is_known = sandbox
            .map_or(self.truth.summary.closed, |sandbox| self.truth.logs[sandbox].is_complete());
        if let (Some(sandbox), Some(sequence)) = (sandbox, sequence) {
            self.raise(sandbox, at, sequence, Source::Implied);
        } else if is_known {
            let message = format!("{what}, which no event tells");
            self.findings.add(Rule::RefusalsAreTrue, id, [at.line], message);
        }
    }

    fn judge_exec_absence(&mut self, at: At, id: &str) {
        let Some(number) = self.truth.exec(id) else { return };
        let exec = &self.truth.execs[number];
        let (Some(sandbox), Some(started)) = (exec.sandbox, exec.started) else { return };
        let shown = self.truth.logs[sandbox].events.get(&started).map_or(0, |known| known.line);
        if self.floor(sandbox, at.start) >= started {
            let witness = self.floors[sandbox].witness(started).map_or(0, |mark| mark.line);
            let message = "was there and is not found any more".to_owned();
            self.findings.add(Rule::AcknowledgedIsKept, id, [witness, at.line], message);
        } else if self.truth.is_past(&exec.calls, at.start) {
            self.came_later(at, id, shown);
        }
    }
}
