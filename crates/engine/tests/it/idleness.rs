//! What counts as use of a sandbox, seen from outside. The table is `model::activity`.

use std::time::Duration;

use engine::sandboxes::{
    SandboxError,
    shells::{Shell, ShellSpec},
};
use model::{
    life::{Phase, SuspendReason},
    sandbox::{Refusal, Sandbox, WhenStopped},
    spec::{ExecSpec, Idle, SandboxSpec, Suspend},
};
use tokio::time::timeout;

use crate::home::{Home, Server, host, shell, tenant};

const IDLE: Duration = Duration::from_secs(2);

/// Long enough that a sandbox that is idle would have been suspended by then.
const LONGER: Duration = Duration::from_secs(6);

async fn create(server: &Server, then: Suspend) -> Sandbox {
    let spec = SandboxSpec { idle: Some(Idle { after: IDLE, then }), ..host() };
    let sandbox = server.sandboxes.create(&tenant(), None, spec).await.unwrap();
    server.until(sandbox.id.as_str(), Phase::Active).await
}

async fn suspended(server: &Server, sandbox: &Sandbox, phase: Phase) {
    let suspended = server.until(sandbox.id.as_str(), phase).await;
    assert_eq!(suspended.life.suspended_for, Some(SuspendReason::Idle));
}

/// Sees that it is not suspended although it has had the time for it.
async fn stays_active(server: &Server, sandbox: &Sandbox, phase: Phase) {
    let suspended = timeout(LONGER, server.until(sandbox.id.as_str(), phase)).await;
    assert!(suspended.is_err(), "it was suspended: {:?}", suspended.map(|it| it.life));
}

async fn open_shell(server: &Server, sandbox: &Sandbox) -> Shell {
    let (name, resume) = ("one".parse().unwrap(), WhenStopped::Resume);
    let spec = ShellSpec { command: vec!["/bin/sh".to_owned()], ..ShellSpec::default() };
    server.sandboxes.start_shell(&tenant(), &sandbox.id, &name, spec, resume).await.unwrap()
}

#[tokio::test]
async fn a_shell_at_its_prompt_is_use_while_a_client_is_attached_and_not_after() {
    let home = Home::new();
    let server = home.start().await;
    for (then, phase) in [(Suspend::Freeze, Phase::Frozen), (Suspend::Stop, Phase::Stopped)] {
        let sandbox = create(&server, then).await;
        let shell = open_shell(&server, &sandbox).await;
        stays_active(&server, &sandbox, phase).await;
        drop(shell);
        suspended(&server, &sandbox, phase).await;
    }
    server.end().await;
}

#[tokio::test]
async fn a_background_job_that_uses_the_processor_is_use_until_it_ends() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = create(&server, Suspend::Freeze).await;
    let script = "setsid sh -c 'while [ ! -e /tmp/over ]; do :; done' > /dev/null 2>&1 &";
    server.run(&sandbox, script).await;
    stays_active(&server, &sandbox, Phase::Frozen).await;
    server.run(&sandbox, "touch /tmp/over").await;
    suspended(&server, &sandbox, Phase::Frozen).await;
    server.end().await;
}

#[tokio::test]
async fn a_quiet_command_without_a_timeout_is_frozen_and_never_stopped() {
    let home = Home::new();
    let server = home.start().await;
    let frozen = create(&server, Suspend::Freeze).await;
    server.start(&frozen, shell("sleep 1000")).await;
    suspended(&server, &frozen, Phase::Frozen).await;
    let kept = create(&server, Suspend::Stop).await;
    server.start(&kept, shell("sleep 1000")).await;
    stays_active(&server, &kept, Phase::Stopped).await;
    server.end().await;
}

#[tokio::test]
async fn a_command_with_a_timeout_is_use_until_it_ends() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = create(&server, Suspend::Freeze).await;
    let timeout = Some(Duration::from_secs(8));
    server.start(&sandbox, ExecSpec { timeout, ..shell("sleep 1000") }).await;
    stays_active(&server, &sandbox, Phase::Frozen).await;
    suspended(&server, &sandbox, Phase::Frozen).await;
    server.end().await;
}

#[tokio::test]
async fn a_request_that_comes_while_the_sandbox_stops_waits_and_is_carried_out() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let name = sandbox.id.as_str();
    for _ in 0..5 {
        // Until it has given up waiting for this, the sandbox is being stopped.
        server.start(&sandbox, shell("trap '' TERM; sleep 1 & wait; wait")).await;
        server.sandboxes.stop(&tenant(), name).await.unwrap();
        let (spec, resume) = (shell("echo here"), WhenStopped::Resume);
        let started = server.sandboxes.start_exec(&tenant(), name, None, spec, resume).await;
        let exec = started.unwrap().exec;
        assert_eq!(server.end_of(&exec.id).await.exit_code(), Some(0));
    }
    // Whoever wants no stopped sandbox to be started is told at once.
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    let (spec, refuse) = (shell("true"), WhenStopped::Refuse);
    let refused = server.sandboxes.start_exec(&tenant(), name, None, spec, refuse).await;
    let is_refused = matches!(
        refused,
        Err(SandboxError::Refused(
            Refusal::NotYet(Phase::Stopping) | Refusal::WrongPhase(Phase::Stopped)
        ))
    );
    assert!(is_refused, "{refused:?}");
    server.end().await;
}

#[tokio::test]
async fn a_request_that_comes_before_a_new_sandbox_is_ready_waits_and_is_carried_out() {
    let home = Home::new();
    let server = home.start().await;
    for _ in 0..20 {
        let sandbox = server.sandboxes.create(&tenant(), None, host()).await.unwrap();
        let (spec, resume) = (shell("echo here"), WhenStopped::Resume);
        let name = sandbox.id.as_str();
        let started = server.sandboxes.start_exec(&tenant(), name, None, spec, resume).await;
        assert_eq!(server.end_of(&started.unwrap().exec.id).await.exit_code(), Some(0));
    }
    server.end().await;
}
