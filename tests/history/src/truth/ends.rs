//! Whether the ends of execs and the failures of sandboxes have a cause, and whether all is at an
//! end when the run is.

use super::{Exec, Known, Log, Truth};
use crate::{
    entry::Time,
    event::{Kind, Loss},
    path::Phase,
    report::Findings,
    rule::Rule,
};

/// What a command is told to have exited with that was ended by SIGTERM, or SIGKILL.
const BY_SIGNAL: [i32; 2] = [128 + 15, 128 + 9];

impl Truth {
    pub(super) fn judge_ends(&self, findings: &mut Findings) {
        for exec in &self.execs {
            let Some(log) = exec.sandbox.map(|sandbox| &self.logs[sandbox]) else { continue };
            if let Some(why) = exec.ended.and_then(|ended| self.wrong_end(exec, log, ended)) {
                findings.add(Rule::EndsAreTrue, &exec.id, log.end_lines(exec), why);
            } else if exec.started.is_some() && exec.ended.is_none() && self.is_over(log) {
                let message = "has no end although the run is over".to_owned();
                findings.add(Rule::EverythingEnds, &exec.id, log.end_lines(exec), message);
            }
        }
        for log in &self.logs {
            self.judge_failure(log, findings);
            self.judge_last_phase(log, findings);
        }
    }

    fn is_over(&self, log: &Log) -> bool {
        self.summary.closed && log.is_complete()
    }

    /// Says what is wrong with the end of an exec.
    fn wrong_end(&self, exec: &Exec, log: &Log, ended: u64) -> Option<String> {
        let Known { fact: end, seen, .. } = *log.events.get(&ended)?;
        if let Some(loss) = end.loss {
            if end.exit_code.is_some() {
                return Some("has both an exit code and a reason for having none".to_owned());
            }
            let allowed = self.allows(exec, log, ended, seen, loss);
            return (!allowed).then(|| format!("is lost by {loss:?}, which did not happen to it"));
        }
        if end.kind == Kind::ExecCancelled {
            let asked = exec.cancel_asked.is_some_and(|asked| asked <= seen);
            return (!asked).then(|| "was cancelled although nobody asked for it".to_owned());
        }
        let Some(code) = end.exit_code else {
            return Some("ended without exit code and without reason".to_owned());
        };
        if (code == 0) != (end.kind == Kind::ExecFinished) {
            return Some(format!("ended as {:?} with exit code {code}", end.kind));
        }
        // A sandbox that is stopped asks its commands to end, and then makes them.
        let was_made_to = log.phase(ended) == Some(Phase::Stopping);
        if was_made_to && BY_SIGNAL.contains(&code) {
            return None;
        }
        let expected = exec.expect.as_ref()?.exit_code;
        (code != expected).then(|| format!("ended with {code}; its command exits with {expected}"))
    }

    /// Tells whether what happened to the sandbox explains that the end of an exec was lost.
    fn allows(&self, exec: &Exec, log: &Log, ended: u64, seen: Time, loss: Loss) -> bool {
        let phase = log.phase(ended);
        match loss {
            Loss::SandboxStopped => phase == Some(Phase::Stopping),
            Loss::SandboxDeleted => phase == Some(Phase::Deleting),
            // The failure or stop that follows is judged by itself.
            Loss::SandboxFailed | Loss::SupervisorLost | Loss::HostRebooted => {
                let mut after = log.events.range(ended.saturating_add(1)..);
                let next = after.find(|(_, known)| !known.fact.kind.is_exec_end());
                let fails = |known: &Known| matches!(known.fact.kind, Kind::Failed | Kind::Stopped);
                log.was_harmed(seen) || next.map_or(!log.is_complete(), |(_, known)| fails(known))
            }
            // Killed between the promise and the first process, the server must not run it later.
            Loss::NotStarted => {
                let asked = exec.calls.first_start.unwrap_or_default();
                let dies = matches!(phase, Some(Phase::Stopping | Phase::Deleting));
                dies || log.was_harmed(seen) || self.was_killed(asked, seen)
            }
            Loss::ServerRestarted | Loss::Unnamed => false,
        }
    }

    /// A sandbox fails, or stops without a request, because the run broke it, or because the server was
    /// killed before it was ready and could not go on; never because the server was killed.
    fn judge_failure(&self, log: &Log, findings: &mut Findings) {
        let is_failure = |(sequence, known): &(&u64, &Known)| {
            let before = log.phase(sequence.saturating_sub(1));
            let is_stop = known.fact.kind == Kind::Stopped && before != Some(Phase::Stopping);
            known.fact.kind == Kind::Failed || is_stop
        };
        let mut events = log.events.range(..=log.known());
        let Some((sequence, Known { line, seen, .. })) = events.find(is_failure) else { return };
        let before = log.phase(sequence.saturating_sub(1));
        let asked = log.calls.first_start.unwrap_or_default();
        let was_pending = matches!(before, Some(Phase::Provisioning | Phase::Resuming));
        let interrupted = was_pending && self.was_killed(asked, *seen);
        if !log.was_harmed(*seen) && !interrupted {
            let message = format!("failed at event {sequence} although the run did not break it");
            findings.add(Rule::SandboxesOutliveTheServer, &log.id, [*line], message);
        }
    }

    fn judge_last_phase(&self, log: &Log, findings: &mut Findings) {
        if !self.summary.closed {
            return;
        }
        if let (Some((_, line)), None) = (log.calls.acknowledged, log.replayed) {
            let message = "was acknowledged and is not in the final replays".to_owned();
            findings.add(Rule::AcknowledgedIsKept, &log.id, [line], message);
        }
        let Some(last) = log.phases.last().filter(|_| log.is_complete()) else { return };
        if !last.is_settled() {
            let message = format!("is still {last:?} although the run is over");
            findings.add(Rule::EverythingEnds, &log.id, log.end_line(), message);
        }
    }
}

impl Log {
    fn was_harmed(&self, before: Time) -> bool {
        self.harmed.is_some_and(|harmed| harmed <= before)
    }

    fn end_line(&self) -> Option<usize> {
        self.replayed.map(|(_, line)| line).or(Some(self.shown_line))
    }

    /// Returns where an exec was asked for and where its end, or that it has none, can be seen.
    fn end_lines(&self, exec: &Exec) -> impl Iterator<Item = usize> + use<> {
        let asked = exec.calls.acknowledged.or(exec.calls.unknown).map(|(_, line)| line);
        let end = exec.ended.and_then(|ended| self.events.get(&ended)).map(|known| known.line);
        asked.into_iter().chain(end.or(self.end_line()))
    }
}
