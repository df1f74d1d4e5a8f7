//! How the agbox door shows what `model` says.

use history::event::{Event, Kind, Loss, State};
use model::{
    event::EventKind,
    exec::{self, ExecEnd},
    execution::Exit,
    life::{Phase, Standing},
};

pub(crate) fn state(phase: Phase) -> State {
    match phase.standing() {
        Standing::Pending => State::Pending,
        Standing::Ready => State::Ready,
        Standing::Stopped => State::Stopped,
        Standing::Failed => State::Failed,
        Standing::Deleting => State::Deleting,
        Standing::Deleted => State::Deleted,
    }
}

pub(crate) fn event(sandbox: &str, event: &model::event::Event) -> Event {
    let kind = kind(&event.kind);
    let mut shown = Event {
        sandbox: sandbox.to_owned(),
        sequence: event.sequence.0,
        kind,
        state: (kind != Kind::StopRequested).then(|| state(event.phase)),
        exec: None,
        exit_code: None,
        loss: None,
        companion: None,
        occurred_at: event.occurred_at.as_millis(),
        details: String::new(),
        replay: false,
        snapshot: false,
    };
    match &event.kind {
        EventKind::ExecStarted { exec, .. } => shown.exec = Some(exec.as_str().to_owned()),
        EventKind::ExecEnded { exec, end } => {
            shown.exec = Some(exec.as_str().to_owned());
            (shown.exit_code, shown.loss) = end_of(end);
        }
        EventKind::CompanionReady { name } | EventKind::CompanionFailed { name, .. } => {
            shown.companion = Some(name.clone());
        }
        EventKind::Preparing { step, .. } => shown.details.clone_from(step),
        EventKind::Failed(failure) => shown.details.clone_from(&failure.message),
        _ => {}
    }
    shown
}

pub(crate) fn kind(kind: &EventKind) -> Kind {
    match kind {
        EventKind::Accepted | EventKind::ResumeAccepted => Kind::Accepted,
        EventKind::Preparing { .. } => Kind::Preparing,
        EventKind::Ready => Kind::Ready,
        EventKind::Failed(_) => Kind::Failed,
        EventKind::StopRequested(_) => Kind::StopRequested,
        EventKind::Stopped(_) => Kind::Stopped,
        EventKind::DeleteRequested(_) => Kind::DeleteRequested,
        EventKind::Deleted(_) => Kind::Deleted,
        EventKind::Frozen(_) => Kind::Frozen,
        EventKind::Thawed => Kind::Thawed,
        EventKind::EndsSoon { .. } => Kind::EndsSoon,
        EventKind::Adjusted(_) => Kind::Note,
        EventKind::ExecStarted { .. } => Kind::ExecStarted,
        EventKind::ExecEnded { end, .. } => match end {
            ExecEnd::Exited(Exit::Code(0)) | ExecEnd::ExitedCut { exit: Exit::Code(0), .. } => {
                Kind::ExecFinished
            }
            ExecEnd::Exited(_)
            | ExecEnd::ExitedCut { .. }
            | ExecEnd::NotStarted { .. }
            | ExecEnd::TimedOut { .. }
            | ExecEnd::Lost(_) => Kind::ExecFailed,
            ExecEnd::Cancelled => Kind::ExecCancelled,
        },
        EventKind::CompanionReady { .. } => Kind::CompanionReady,
        EventKind::CompanionFailed { .. } => Kind::CompanionFailed,
    }
}

fn end_of(end: &ExecEnd) -> (Option<i32>, Option<Loss>) {
    match end {
        ExecEnd::Exited(Exit::Code(code)) | ExecEnd::ExitedCut { exit: Exit::Code(code), .. } => {
            (Some(*code), None)
        }
        ExecEnd::Exited(Exit::Signal(signal))
        | ExecEnd::ExitedCut { exit: Exit::Signal(signal), .. } => (Some(128 + signal), None),
        ExecEnd::Cancelled => (None, None),
        ExecEnd::TimedOut { .. } => (Some(137), None),
        ExecEnd::NotStarted { .. } => (None, Some(Loss::NotStarted)),
        ExecEnd::Lost(loss) => (None, Some(loss_of(*loss))),
    }
}

fn loss_of(loss: exec::Loss) -> Loss {
    match loss {
        exec::Loss::SandboxFailed => Loss::SandboxFailed,
        exec::Loss::SandboxStopped => Loss::SandboxStopped,
        exec::Loss::SandboxDeleted => Loss::SandboxDeleted,
        exec::Loss::SupervisorLost => Loss::SupervisorLost,
        exec::Loss::HostRebooted => Loss::HostRebooted,
    }
}
