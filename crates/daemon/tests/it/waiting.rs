//! Commands that come while their sandbox is being started or stopped: they wait for it, on every surface.

use std::time::Duration;

use api::agbox::v1;
use model::{ids::SandboxId, life::Phase, spec::SandboxSpec};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    caller::{refused, within},
    exec::Wire,
    sandboxed::{Sandboxed, create, ended, run, shell, until},
    sessions::{post, slow_image},
};

const BOXES: &str = "/v2/sandboxes/boxes";

/// Runs a command over LangSmith's WebSocket; returns what it wrote and its last frame.
async fn execute(sandboxed: &Sandboxed, id: &SandboxId, frame: &Value) -> (String, Value) {
    let daemon = sandboxed.daemon();
    let key = Some(("x-api-key", daemon.key.clone()));
    let mut socket = Wire::open_with(daemon, id, "/execute/ws", key).await;
    socket.send(frame.clone()).await;
    let (stdout, _, last) = socket.rest().await;
    (stdout, last)
}

fn echo() -> Value {
    json!({"type": "execute", "command": "echo here", "timeout_seconds": 60})
}

/// Creates a box and returns its id at once.
async fn create_box(sandboxed: &Sandboxed, name: &str) -> SandboxId {
    let body = json!({"name": name, "snapshot": "host", "wait_for_ready": false});
    let made = post(sandboxed.daemon(), BOXES, &body).await;
    assert_eq!(made.status, 201, "{}", made.body);
    made.json()["id"].as_str().unwrap().parse().unwrap()
}

/// A server, and a sandbox of it whose image comes once the sender is dropped.
async fn with_slow_sandbox() -> (Sandboxed, std::sync::mpsc::Sender<()>, SandboxId) {
    let (closed, image) = slow_image();
    let registry = image.split_once('/').unwrap().0.to_owned();
    let sandboxed = Sandboxed::start_listing(&[registry]).await;
    let spec = SandboxSpec { image, ..SandboxSpec::default() };
    let (tenant, alias) = ("default".parse().unwrap(), Some("slow-box".parse().unwrap()));
    let id = sandboxed.sandboxes.create(&tenant, alias, spec).await.unwrap().id;
    (sandboxed, closed, id)
}

#[tokio::test]
async fn a_command_over_langsmiths_websocket_waits_for_a_box_that_is_being_created() {
    let sandboxed = Sandboxed::start().await;
    for number in 0..8 {
        let id = create_box(&sandboxed, &format!("box-{number}")).await;
        let (stdout, last) = execute(&sandboxed, &id, &echo()).await;
        assert_eq!((stdout.as_str(), &last["exit_code"]), ("here\n", &json!(0)), "{last}");
    }
}

#[tokio::test]
async fn a_command_over_langsmiths_websocket_waits_for_a_box_that_is_being_stopped() {
    let sandboxed = Sandboxed::start().await;
    let id = create_box(&sandboxed, "my-box").await;
    execute(&sandboxed, &id, &echo()).await;
    for _ in 0..4 {
        let stopped = post(sandboxed.daemon(), &format!("{BOXES}/my-box/stop"), &json!({})).await;
        assert_eq!(stopped.status, 200, "{}", stopped.body);
        let (stdout, last) = execute(&sandboxed, &id, &echo()).await;
        assert_eq!((stdout.as_str(), &last["exit_code"]), ("here\n", &json!(0)), "{last}");
    }
}

#[tokio::test]
async fn a_command_waits_for_its_sandbox_no_longer_than_its_own_timeout() {
    let (sandboxed, closed, id) = with_slow_sandbox().await;
    let begun = Instant::now();
    let frame = json!({"type": "execute", "command": "echo here", "timeout_seconds": 1});
    let (_, last) = execute(&sandboxed, &id, &frame).await;
    assert_eq!(last["type"], "error", "{last}");
    let body = json!({"command": "echo here", "timeout_seconds": 1});
    let refused = post(sandboxed.daemon(), &format!("/dp/{id}/execute"), &body).await;
    assert!(refused.status >= 400, "{}", refused.body);
    let waited = begun.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(30)).contains(&waited), "{waited:?}");
    drop(closed);
}

#[tokio::test]
async fn a_command_over_grpc_waits_for_a_sandbox_that_is_being_created() {
    let (sandboxed, closed, _id) = with_slow_sandbox().await;
    let mut client = sandboxed.local().await;
    let motd = ["/bin/busybox", "cat", "/etc/motd"].map(str::to_owned).to_vec();
    let request = v1::CreateExecRequest { command: motd, ..shell("slow-box", "", "run-1") };
    let open = async {
        // The command is asked for before the image may come.
        tokio::task::yield_now().await;
        drop(closed);
    };
    let (created, ()) = tokio::join!(client.create_exec(request), open);
    let life = sandboxed.sandboxes.get(&"default".parse().unwrap(), "slow-box").await.unwrap().life;
    let created =
        created.unwrap_or_else(|error| panic!("{error}: {:?}", life.failure)).into_inner();
    let end = ended(&mut client, "slow-box", "run-1").await;
    assert_eq!(end.exit_code, 0);
    assert_eq!(std::fs::read_to_string(created.stdout_log_path).unwrap(), "changed");
}

#[tokio::test]
async fn a_command_over_grpc_whose_deadline_passes_while_it_waits_is_never_started() {
    let (sandboxed, closed, id) = with_slow_sandbox().await;
    let mut client = sandboxed.local().await;
    let request = within(shell("slow-box", "true", "run-1"), Duration::from_millis(300));
    client.create_exec(request).await.unwrap_err();
    drop(closed);
    sandboxed.until(id.as_str(), |life| life.phase == Phase::Active).await;
    let missing = client.get_exec(v1::GetExecRequest { exec_id: "run-1".into() }).await;
    assert_eq!(refused(missing), "NotFound EXEC_NOT_FOUND exec_id=run-1");
}

#[tokio::test]
async fn commands_that_wait_for_slow_sandboxes_leave_room_for_the_changes_of_other_callers() {
    let (sandboxed, closed, _id) = with_slow_sandbox().await;
    let tenant = "default".parse().unwrap();
    let image = sandboxed.sandboxes.get(&tenant, "slow-box").await.unwrap().spec.image;
    let mut waiting = JoinSet::new();
    // More than the changes that may be under way for all callers together.
    for number in 0..20 {
        let name = format!("slow-{number}");
        let spec = SandboxSpec { image: image.clone(), ..SandboxSpec::default() };
        let alias = Some(name.parse().unwrap());
        sandboxed.sandboxes.create(&tenant, alias, spec).await.unwrap();
        let client = sandboxed.local().await;
        for _ in 0..60 {
            let (mut client, request) = (client.clone(), shell(&name, "true", ""));
            waiting.spawn(async move { client.create_exec(request).await });
        }
    }
    let mut client = sandboxed.local().await;
    for number in 0..4 {
        // Each answer comes after calls that were sent before.
        client.ping(v1::PingRequest {}).await.unwrap();
        client.create_sandbox(create(&format!("other-{number}"))).await.unwrap();
    }
    waiting.abort_all();
    drop(closed);
}

#[tokio::test]
async fn a_command_over_grpc_waits_for_a_stop_and_runs_only_if_a_resume_follows() {
    let sandboxed = Sandboxed::start().await;
    let mut client = sandboxed.local().await;
    client.create_sandbox(create("my-box")).await.unwrap();
    let sandbox_id = "my-box".to_owned();
    let (stop, resume) = (
        v1::StopSandboxRequest { sandbox_id: sandbox_id.clone() },
        v1::ResumeSandboxRequest { sandbox_id },
    );
    until(&mut client, "my-box", v1::SandboxState::Ready).await;
    client.stop_sandbox(stop.clone()).await.unwrap();
    let stopped = client.create_exec(shell("my-box", "true", "")).await;
    assert_eq!(refused(stopped), "FailedPrecondition SANDBOX_NOT_READY sandbox_id=my-box");
    client.resume_sandbox(resume.clone()).await.unwrap();
    assert_eq!(run(&mut client, shell("my-box", "echo one", "")).await.1, "one\n");
    client.stop_sandbox(stop).await.unwrap();
    client.resume_sandbox(resume).await.unwrap();
    assert_eq!(run(&mut client, shell("my-box", "echo two", "")).await.1, "two\n");
}
