use std::collections::{BTreeMap, BTreeSet};

use model::{
    event::Sequence,
    exec::ExecLife,
    ids::SandboxId,
    image::UsedImages,
    life::{Life, SuspendReason},
    spec::{ExecSpec, SandboxSpec},
    units::ByteSize,
};

use super::*;

fn life(phase: Phase) -> Life {
    Life {
        sequence: Sequence(7),
        phase,
        created_at: Timestamp::from_millis(1500),
        phase_since: Timestamp::from_millis(2000),
        standing_since: Timestamp::from_millis(2500),
        last_used_at: Timestamp::from_millis(3000),
        running: BTreeMap::new(),
        shells: BTreeMap::new(),
        with_timeout: BTreeSet::new(),
        suspended_for: None,
        failure: None,
        end: None,
        images: UsedImages::new(),
        images_are_known: true,
        companions: BTreeMap::new(),
        adjusted_at: None,
    }
}

fn sandbox(alias: Option<&str>, phase: Phase) -> Sandbox {
    Sandbox {
        id: SandboxId::from_random([1; 16]),
        tenant: "default".parse().unwrap(),
        alias: alias.map(|alias| alias.parse().unwrap()),
        node: "node_1".parse().unwrap(),
        spec: SandboxSpec { image: "host".into(), ..SandboxSpec::default() },
        life: life(phase),
    }
}

fn exec_id() -> ExecId {
    "exec-1".parse().unwrap()
}

fn failure(cause: FailureCause) -> Failure {
    Failure { cause, message: "it broke".into() }
}

fn show(kind: EventKind, phase: Phase) -> v1::SandboxEvent {
    let occurred_at = Timestamp::from_millis(1001);
    event(&Event { sequence: Sequence(3), occurred_at, phase, kind }, "my-box", Told::Live)
}

/// Writes the part of an event that its kind decides, on one line.
fn line(event: &v1::SandboxEvent) -> String {
    let details = match event.details.as_ref().unwrap() {
        Details::SandboxPhase(it) => {
            format!("phase({}|{}|{}|{})", it.phase, it.error_code, it.error_message, it.reason)
        }
        Details::Exec(it) => format!(
            "exec({}|{}|{}|{}|{})",
            it.exec_id,
            it.exit_code,
            it.exec_state().as_str_name(),
            it.error_code,
            it.error_message
        ),
        Details::CompanionContainer(it) => {
            format!("companion({}|{}|{})", it.name, it.error_code, it.error_message)
        }
    };
    let (kind, state) = (event.event_type(), event.sandbox_state());
    format!("{} {} {details}", kind.as_str_name(), state.as_str_name())
}

#[test]
fn every_event_is_told_with_its_type_state_and_details() {
    use Phase::{
        Active, Deleting, Failed, Frozen, Provisioning, Resuming, Stopped, Stopping, Terminated,
    };
    let ended = |end: ExecEnd| EventKind::ExecEnded { exec: exec_id(), end };
    let name = || "db".to_owned();
    let rows = [
        (EventKind::Accepted, Provisioning, "SANDBOX_ACCEPTED SANDBOX_STATE_PENDING phase(|||)"),
        (
            EventKind::Preparing { step: "materialize".into(), images: UsedImages::new() },
            Provisioning,
            "SANDBOX_PREPARING SANDBOX_STATE_PENDING phase(materialize|||)",
        ),
        (EventKind::Ready, Active, "SANDBOX_READY SANDBOX_STATE_READY phase(|||)"),
        (
            EventKind::Failed(failure(FailureCause::ImageFailed)),
            Failed,
            "SANDBOX_FAILED SANDBOX_STATE_FAILED \
             phase(|SANDBOX_CREATE_FAILED|it broke|image_failed)",
        ),
        (
            EventKind::StopRequested(SuspendReason::Requested),
            Stopping,
            "SANDBOX_STOP_REQUESTED SANDBOX_STATE_READY phase(|||stop_requested)",
        ),
        (
            EventKind::Stopped(SuspendReason::Idle),
            Stopped,
            "SANDBOX_STOPPED SANDBOX_STATE_STOPPED phase(|||idle_ttl)",
        ),
        (EventKind::ResumeAccepted, Resuming, "SANDBOX_ACCEPTED SANDBOX_STATE_PENDING phase(|||)"),
        (
            EventKind::DeleteRequested(EndCause::Requested),
            Deleting,
            "SANDBOX_DELETE_REQUESTED SANDBOX_STATE_DELETING phase(|||delete_requested)",
        ),
        (
            EventKind::Deleted(EndCause::CleanupTtl),
            Terminated,
            "SANDBOX_DELETED SANDBOX_STATE_DELETED phase(|||cleanup_ttl)",
        ),
        (
            EventKind::Frozen(SuspendReason::Idle),
            Frozen,
            "EVENT_TYPE_UNSPECIFIED SANDBOX_STATE_READY phase(frozen|||idle_ttl)",
        ),
        (EventKind::Thawed, Active, "EVENT_TYPE_UNSPECIFIED SANDBOX_STATE_READY phase(thawed|||)"),
        (
            EventKind::EndsSoon { cause: EndCause::HardTtl, seconds: 60 },
            Active,
            "EVENT_TYPE_UNSPECIFIED SANDBOX_STATE_READY phase(ends_soon|||hard_ttl in 60 s)",
        ),
        (
            EventKind::ExecStarted { exec: exec_id(), shell: None, has_timeout: false },
            Active,
            "EXEC_STARTED SANDBOX_STATE_READY exec(exec-1|0|EXEC_STATE_RUNNING||)",
        ),
        (
            ended(ExecEnd::Exited(Exit::Code(0))),
            Active,
            "EXEC_FINISHED SANDBOX_STATE_READY exec(exec-1|0|EXEC_STATE_FINISHED||)",
        ),
        (
            ended(ExecEnd::ExitedCut { exit: Exit::Code(0), lost: 5, lost_stderr: 2 }),
            Active,
            "EXEC_FINISHED SANDBOX_STATE_READY exec(exec-1|0|EXEC_STATE_FINISHED|OUTPUT_LOST|\
             5 bytes of its output could not be kept: the disk was full or broken)",
        ),
        (
            ended(ExecEnd::Exited(Exit::Code(7))),
            Active,
            "EXEC_FAILED SANDBOX_STATE_READY exec(exec-1|7|EXEC_STATE_FAILED|EXEC_RUN_FAILED|\
             the command failed: exit code 7)",
        ),
        (
            ended(ExecEnd::Exited(Exit::Signal(9))),
            Active,
            "EXEC_FAILED SANDBOX_STATE_READY exec(exec-1|137|EXEC_STATE_FAILED|EXEC_RUN_FAILED|\
             the command was ended by signal 9)",
        ),
        (
            ended(ExecEnd::Cancelled),
            Active,
            "EXEC_CANCELLED SANDBOX_STATE_READY exec(exec-1|0|EXEC_STATE_CANCELLED||)",
        ),
        (
            ended(ExecEnd::NotStarted { message: "no file".into(), exit_code: Some(127) }),
            Active,
            "EXEC_FAILED SANDBOX_STATE_READY exec(exec-1|127|EXEC_STATE_FAILED|EXEC_RUN_FAILED|\
             the command could not be started: no file)",
        ),
        (
            ended(ExecEnd::Lost(Loss::HostRebooted)),
            Failed,
            "EXEC_FAILED SANDBOX_STATE_FAILED exec(exec-1|0|EXEC_STATE_FAILED|HOST_REBOOTED|\
             how the command ended cannot be known: the machine was restarted)",
        ),
        (
            EventKind::CompanionReady { name: name() },
            Provisioning,
            "COMPANION_CONTAINER_READY SANDBOX_STATE_PENDING companion(db||)",
        ),
        (
            EventKind::CompanionFailed { name: name(), message: "gone".into() },
            Active,
            "COMPANION_CONTAINER_FAILED SANDBOX_STATE_READY \
             companion(db|COMPANION_CONTAINER_FAILED|gone)",
        ),
    ];
    for (kind, phase, expected) in rows {
        assert_eq!(line(&show(kind, phase)), expected);
    }
}

#[test]
fn an_event_has_its_id_sequence_and_time() {
    let event = show(EventKind::Ready, Phase::Active);
    assert_eq!(event.event_id, "my-box-3");
    assert_eq!((event.sequence, event.sandbox_id.as_str()), (3, "my-box"));
    let time = prost_types::Timestamp { seconds: 1, nanos: 1_000_000 };
    assert_eq!(event.occurred_at, Some(time));
    assert_eq!((event.replay, event.snapshot), (false, false));
}

#[test]
fn every_phase_has_its_state() {
    let states = Phase::ALL.map(|phase| state(phase).as_str_name());
    let expected = [
        "PENDING", "READY", "READY", "READY", "STOPPED", "PENDING", "FAILED", "DELETING", "DELETED",
    ];
    assert_eq!(states, expected.map(|name| format!("SANDBOX_STATE_{name}")));
}

#[test]
fn a_handle_shows_the_callers_name_and_an_error_only_while_failed() {
    let mut broken = sandbox(Some("my-box"), Phase::Failed);
    broken.life.failure = Some(failure(FailureCause::ResumeFailed));
    let shown = handle(&broken);
    let expected = v1::SandboxHandle {
        sandbox_id: "my-box".into(),
        state: v1::SandboxState::Failed.into(),
        last_event_sequence: 7,
        companion_containers: Vec::new(),
        labels: BTreeMap::new(),
        created_at: Some(prost_types::Timestamp { seconds: 1, nanos: 500_000_000 }),
        image: "host".into(),
        error_code: "SANDBOX_RESUME_FAILED".into(),
        error_message: "it broke".into(),
        state_changed_at: Some(prost_types::Timestamp { seconds: 2, nanos: 500_000_000 }),
    };
    assert_eq!(shown, expected);
    broken.life.phase = Phase::Deleting;
    let shown = handle(&broken);
    assert_eq!((shown.error_code.as_str(), shown.error_message.as_str()), ("", ""));
    let nameless = sandbox(None, Phase::Active);
    assert_eq!(handle(&nameless).sandbox_id, nameless.id.to_string());
}

#[test]
fn every_failure_has_a_code_of_the_contract() {
    let codes = [
        FailureCause::CreateFailed,
        FailureCause::ImageFailed,
        FailureCause::ImageNotFound,
        FailureCause::ImageNotAllowed,
        FailureCause::ImageUnusable,
        FailureCause::ResumeFailed,
        FailureCause::MainProcessCrashed,
        FailureCause::SupervisorLost,
        FailureCause::HostRebooted,
        FailureCause::ProviderLost,
        FailureCause::DiskFull,
    ]
    .map(failure_code);
    let expected = [
        "SANDBOX_CREATE_FAILED",
        "SANDBOX_CREATE_FAILED",
        "SANDBOX_CREATE_FAILED",
        "SANDBOX_CREATE_FAILED",
        "SANDBOX_CREATE_FAILED",
        "SANDBOX_RESUME_FAILED",
        "CONTAINER_CRASHLOOP",
        "CONTAINER_NOT_RUNNING",
        "CONTAINER_NOT_RUNNING",
        "CONTAINER_NOT_RUNNING",
        "SANDBOX_CREATE_FAILED",
    ];
    assert_eq!(codes, expected);
}

#[test]
fn every_loss_of_a_command_has_a_code_of_its_own_and_no_exit_code() {
    let codes = [
        Loss::SandboxFailed,
        Loss::SandboxStopped,
        Loss::SandboxDeleted,
        Loss::SupervisorLost,
        Loss::HostRebooted,
    ]
    .map(|loss| outcome(&ExecEnd::Lost(loss)))
    .map(|it| (it.error_code, it.state, it.exit_code));
    let expected = [
        "SANDBOX_FAILED",
        "SANDBOX_STOPPED",
        "SANDBOX_DELETED",
        "SUPERVISOR_LOST",
        "HOST_REBOOTED",
    ];
    assert_eq!(codes, expected.map(|code| (code, v1::ExecState::Failed, 0)));
}

#[test]
fn a_command_is_shown_with_the_last_sequence_of_its_sandbox() {
    let exec = |state| Exec {
        id: exec_id(),
        sandbox: SandboxId::from_random([1; 16]),
        tenant: "default".parse().unwrap(),
        spec: ExecSpec {
            command: vec!["true".into()],
            working_directory: "/workspace".into(),
            ..ExecSpec::default()
        },
        life: ExecLife {
            state,
            started_at: Timestamp::from_millis(1),
            ended_at: None,
            sequence: Sequence(4),
        },
    };
    let at = |state| ExecAt { exec: exec(state), latest: Sequence(9) };
    let running = exec_status(&at(ExecState::Running), "my-box".into());
    assert_eq!(running.last_event_sequence, 9);
    assert_eq!((running.sandbox_id.as_str(), running.cwd.as_str()), ("my-box", "/workspace"));
    assert_eq!(running.state(), v1::ExecState::Running);
    let end = ExecState::Ended(ExecEnd::Exited(Exit::Code(3)));
    let ended = exec_status(&at(end), "my-box".into());
    assert_eq!((ended.state(), ended.exit_code), (v1::ExecState::Failed, 3));
    assert_eq!(ended.error, "the command failed: exit code 3");
}

#[test]
fn a_companion_is_shown_as_it_was_asked_for() {
    let own = Companion {
        name: "db".into(),
        image: "postgres".into(),
        resources: Resources {
            millicores: Some(1500),
            memory: Some(ByteSize::mib(1)),
            ..Resources::default()
        },
        ..Companion::default()
    };
    let shown = companion(&own);
    assert_eq!(
        (shown.cpu_limit.as_str(), shown.memory_limit.as_str(), shown.disk_limit.as_str()),
        ("1.5", "1048576", "")
    );
    assert_eq!([cores(2000), cores(1), cores(250)], ["2", "0.001", "0.25"]);
}
