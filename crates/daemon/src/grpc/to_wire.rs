//! Sandboxes, commands and events as the contract shows them.

use api::agbox::v1;
use model::{
    event::{Event, EventKind},
    exec::{Exec, ExecEnd, ExecState, Loss},
    execution::Exit,
    ids::ExecId,
    life::{EndCause, Failure, FailureCause, Phase, Standing},
    sandbox::Sandbox,
    spec::{Companion, Healthcheck, Resources},
    units::Timestamp,
};
use store::sandboxes::ExecAt;
use v1::sandbox_event::Details;

/// Returns the name that a sandbox has here: the caller's own, if he gave it one.
pub(crate) fn sandbox_id(sandbox: &Sandbox) -> String {
    match &sandbox.alias {
        Some(alias) => alias.to_string(),
        None => sandbox.id.to_string(),
    }
}

pub(crate) fn handle(sandbox: &Sandbox) -> v1::SandboxHandle {
    let life = &sandbox.life;
    let failure = life.broken_by();
    v1::SandboxHandle {
        sandbox_id: sandbox_id(sandbox),
        state: state(life.phase).into(),
        last_event_sequence: life.sequence.0,
        companion_containers: sandbox.spec.companions.iter().map(companion).collect(),
        labels: sandbox.spec.labels.clone(),
        created_at: Some(time(life.created_at)),
        image: sandbox.spec.image.clone(),
        error_code: failure.map_or("", |failure| failure_code(failure.cause)).to_owned(),
        error_message: failure.map_or_else(String::new, |failure| failure.message.clone()),
        state_changed_at: Some(time(life.standing_since)),
    }
}

fn state(phase: Phase) -> v1::SandboxState {
    match phase.standing() {
        Standing::Pending => v1::SandboxState::Pending,
        Standing::Ready => v1::SandboxState::Ready,
        Standing::Stopped => v1::SandboxState::Stopped,
        Standing::Failed => v1::SandboxState::Failed,
        Standing::Deleting => v1::SandboxState::Deleting,
        Standing::Deleted => v1::SandboxState::Deleted,
    }
}

pub(crate) fn time(time: Timestamp) -> prost_types::Timestamp {
    let millis = time.as_millis();
    // The rest of a division by a thousand fits, and times a million it still does.
    let nanos = i32::try_from(millis.rem_euclid(1000) * 1_000_000).unwrap_or(0);
    prost_types::Timestamp { seconds: millis.div_euclid(1000), nanos }
}

fn companion(companion: &Companion) -> v1::CompanionContainerSpec {
    let Resources { millicores, memory, disk, processes: _ } = companion.resources;
    let bytes = |size: Option<model::units::ByteSize>| {
        size.map_or_else(String::new, |size| size.as_bytes().to_string())
    };
    v1::CompanionContainerSpec {
        name: companion.name.clone(),
        image: companion.image.clone(),
        envs: companion.env.clone(),
        healthcheck: companion.healthcheck.as_ref().map(healthcheck),
        post_start_on_primary: companion.post_start_on_primary.clone(),
        command: companion.command.clone(),
        cpu_limit: millicores.map_or_else(String::new, cores),
        memory_limit: bytes(memory),
        disk_limit: bytes(disk),
    }
}

/// Writes thousandths as a number of cores.
fn cores(millicores: u64) -> String {
    let text = format!("{}.{:03}", millicores / 1000, millicores % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn healthcheck(check: &Healthcheck) -> v1::HealthcheckConfig {
    let time = |time: Option<std::time::Duration>| time.and_then(|time| time.try_into().ok());
    v1::HealthcheckConfig {
        test: check.test.clone(),
        interval: time(check.interval),
        timeout: time(check.timeout),
        retries: check.retries.unwrap_or_default(),
        start_period: time(check.start_period),
        start_interval: time(check.start_interval),
    }
}

/// How a command stands, in the words of the contract.
struct Outcome {
    event: v1::EventType,
    state: v1::ExecState,
    exit_code: i32,
    error_code: &'static str,
    error: String,
}

/// Zero is success, so that whatever is not has another code; it comes with an error where the
/// kernel gave none.
fn outcome(end: &ExecEnd) -> Outcome {
    let failed = |exit_code, error_code, error: String| Outcome {
        event: v1::EventType::ExecFailed,
        state: v1::ExecState::Failed,
        exit_code,
        error_code,
        error,
    };
    match end {
        ExecEnd::Exited(Exit::Code(0)) => Outcome {
            event: v1::EventType::ExecFinished,
            state: v1::ExecState::Finished,
            exit_code: 0,
            error_code: "",
            error: String::new(),
        },
        ExecEnd::Exited(Exit::Code(code)) => {
            failed(*code, "EXEC_RUN_FAILED", format!("the command failed: exit code {code}"))
        }
        // As a shell tells it, and with it the clients of the contract.
        ExecEnd::Exited(Exit::Signal(signal)) => {
            let error = format!("the command was ended by signal {signal}");
            failed(128_i32.saturating_add(*signal), "EXEC_RUN_FAILED", error)
        }
        // The code is the command's own; that its output is not whole is told beside it.
        ExecEnd::ExitedCut { exit, lost, .. } => {
            let told = outcome(&ExecEnd::Exited(*exit));
            let error = format!(
                "{lost} bytes of its output could not be kept: the disk was full or broken"
            );
            Outcome { error_code: "OUTPUT_LOST", error, ..told }
        }
        ExecEnd::Cancelled => Outcome {
            event: v1::EventType::ExecCancelled,
            state: v1::ExecState::Cancelled,
            exit_code: 0,
            error_code: "",
            error: String::new(),
        },
        ExecEnd::NotStarted { message, exit_code } => failed(
            exit_code.unwrap_or(0),
            "EXEC_RUN_FAILED",
            format!("the command could not be started: {message}"),
        ),
        ExecEnd::Lost(loss) => {
            let (code, what) = match loss {
                Loss::SandboxFailed => ("SANDBOX_FAILED", "the sandbox failed"),
                Loss::SandboxStopped => ("SANDBOX_STOPPED", "the sandbox was stopped"),
                Loss::SandboxDeleted => ("SANDBOX_DELETED", "the sandbox was deleted"),
                Loss::SupervisorLost => ("SUPERVISOR_LOST", "its supervisor was lost"),
                Loss::HostRebooted => ("HOST_REBOOTED", "the machine was restarted"),
            };
            failed(0, code, format!("how the command ended cannot be known: {what}"))
        }
        // As a shell tells it of what was killed.
        ExecEnd::TimedOut { .. } => failed(
            137,
            "EXEC_TIMED_OUT",
            "the command was killed at the end of its time".to_owned(),
        ),
    }
}

/// Shows a command. `sandbox` is the name of its sandbox here.
pub(crate) fn exec_status(ExecAt { exec, latest }: &ExecAt, sandbox: String) -> v1::ExecStatus {
    let Exec { id, spec, life, .. } = exec;
    let (state, exit_code, error) = match &life.state {
        ExecState::Running => (v1::ExecState::Running, 0, String::new()),
        ExecState::Ended(end) => {
            let Outcome { state, exit_code, error, .. } = outcome(end);
            (state, exit_code, error)
        }
    };
    v1::ExecStatus {
        exec_id: id.to_string(),
        sandbox_id: sandbox,
        state: state.into(),
        command: spec.command.clone(),
        cwd: spec.working_directory.clone(),
        env_overrides: spec.env.clone(),
        exit_code,
        error,
        last_event_sequence: latest.0,
    }
}

/// Whether an event had happened when somebody began to follow the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Before,
    Live,
}

/// Shows an event of the sandbox that has this name here.
pub(crate) fn event(event: &Event, sandbox: &str, told: Told) -> v1::SandboxEvent {
    let (kind, details) = kind(&event.kind);
    v1::SandboxEvent {
        event_id: format!("{sandbox}-{}", event.sequence),
        sequence: event.sequence.0,
        sandbox_id: sandbox.to_owned(),
        event_type: kind.into(),
        occurred_at: Some(time(event.occurred_at)),
        replay: told == Told::Before,
        snapshot: false,
        sandbox_state: state(event.phase).into(),
        details: Some(details),
    }
}

/// Shows that a command runs at the moment of a snapshot.
pub(crate) fn running(sandbox: &Sandbox, exec: &ExecId, since: Timestamp) -> v1::SandboxEvent {
    let name = sandbox_id(sandbox);
    v1::SandboxEvent {
        event_id: format!("{name}-snapshot-{exec}"),
        sequence: sandbox.life.sequence.0,
        sandbox_id: name,
        event_type: v1::EventType::ExecStarted.into(),
        occurred_at: Some(time(since)),
        replay: true,
        snapshot: true,
        sandbox_state: state(sandbox.life.phase).into(),
        details: Some(started(exec)),
    }
}

fn kind(kind: &EventKind) -> (v1::EventType, Details) {
    use v1::EventType as Type;

    match kind {
        EventKind::Accepted | EventKind::ResumeAccepted => {
            (Type::SandboxAccepted, phase("", String::new()))
        }
        EventKind::Preparing { step, images: _ } => {
            (Type::SandboxPreparing, phase(step, String::new()))
        }
        EventKind::Ready => (Type::SandboxReady, phase("", String::new())),
        EventKind::Failed(failure) => (Type::SandboxFailed, failed(failure)),
        EventKind::StopRequested(reason) => {
            (Type::SandboxStopRequested, phase("", reason.name().to_owned()))
        }
        EventKind::Stopped(reason) => (Type::SandboxStopped, phase("", reason.name().to_owned())),
        EventKind::DeleteRequested(cause) => {
            (Type::SandboxDeleteRequested, phase("", end_reason(cause)))
        }
        EventKind::Deleted(cause) => (Type::SandboxDeleted, phase("", end_reason(cause))),
        // The list of the contract has no number for these.
        EventKind::Frozen(reason) => (Type::Unspecified, phase("frozen", reason.name().to_owned())),
        EventKind::Thawed => (Type::Unspecified, phase("thawed", String::new())),
        EventKind::EndsSoon { cause, seconds } => {
            let reason = format!("{} in {seconds} s", end_reason(cause));
            (Type::Unspecified, phase("ends_soon", reason))
        }
        EventKind::Adjusted(settings) => {
            let names: Vec<&str> = settings.iter().map(|setting| setting.name()).collect();
            (Type::Unspecified, phase("adjusted", names.join(" ")))
        }
        EventKind::ExecStarted { exec, .. } => (Type::ExecStarted, started(exec)),
        EventKind::ExecEnded { exec, end } => {
            let Outcome { event, state, exit_code, error_code, error } = outcome(end);
            let details = v1::ExecEventDetails {
                exec_id: exec.to_string(),
                exit_code,
                exec_state: state.into(),
                error_code: error_code.to_owned(),
                error_message: error,
            };
            (event, Details::Exec(details))
        }
        EventKind::CompanionReady { name } => {
            (Type::CompanionContainerReady, of_companion(name, "", String::new()))
        }
        EventKind::CompanionFailed { name, message } => {
            let details = of_companion(name, "COMPANION_CONTAINER_FAILED", message.clone());
            (Type::CompanionContainerFailed, details)
        }
    }
}

pub(crate) fn phase(phase: &str, reason: String) -> Details {
    let phase = phase.to_owned();
    Details::SandboxPhase(v1::SandboxPhaseDetails { phase, reason, ..Default::default() })
}

/// The code is the contract's; our own cause, which says more, stands beside it.
fn failed(failure: &Failure) -> Details {
    Details::SandboxPhase(v1::SandboxPhaseDetails {
        phase: String::new(),
        error_code: failure_code(failure.cause).to_owned(),
        error_message: failure.message.clone(),
        reason: failure.cause.name().to_owned(),
    })
}

fn started(exec: &ExecId) -> Details {
    Details::Exec(v1::ExecEventDetails {
        exec_id: exec.to_string(),
        exec_state: v1::ExecState::Running.into(),
        ..Default::default()
    })
}

fn of_companion(name: &str, error_code: &str, error_message: String) -> Details {
    Details::CompanionContainer(v1::CompanionContainerEventDetails {
        name: name.to_owned(),
        error_code: error_code.to_owned(),
        error_message,
    })
}

fn end_reason(cause: &EndCause) -> String {
    match cause {
        EndCause::Requested | EndCause::DeletedBy { .. } => "delete_requested",
        EndCause::Released => "released",
        EndCause::LeaseExpired => "lease_expired",
        EndCause::HardTtl => "hard_ttl",
        EndCause::CleanupTtl => "cleanup_ttl",
        EndCause::KilledByAdmin => "killed_by_admin",
    }
    .to_owned()
}

fn failure_code(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::CreateFailed
        | FailureCause::ImageFailed
        | FailureCause::ImageNotFound
        | FailureCause::ImageNotAllowed
        | FailureCause::ImageUnusable
        | FailureCause::DiskFull => "SANDBOX_CREATE_FAILED",
        FailureCause::ResumeFailed => "SANDBOX_RESUME_FAILED",
        FailureCause::MainProcessCrashed => "CONTAINER_CRASHLOOP",
        FailureCause::SupervisorLost | FailureCause::HostRebooted | FailureCause::ProviderLost => {
            "CONTAINER_NOT_RUNNING"
        }
    }
}

#[cfg(test)]
mod tests;
