//! Many clients that start commands in one sandbox at the same time, over gRPC.

use std::time::Duration;

use api::agbox::v1;
use harness::load::Load;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::{
    caller::{Client, next, subscribe},
    sandboxed::{Sandboxed, create, until},
};

/// Far longer than any single call takes on a busy machine: only a deadlock takes this long.
const HANGS: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_that_call_create_exec_in_a_loop_never_block_the_sandbox() {
    call_create_exec(2, Load::of(500)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_clients_that_call_create_exec_in_a_loop_never_block_the_sandbox() {
    call_create_exec(4, Load::of(150)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_clients_that_call_create_exec_in_a_loop_never_block_the_sandbox() {
    call_create_exec(32, Load::of(20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clients_that_call_create_exec_in_a_loop_never_block_the_sandbox() {
    call_create_exec(100, Load::of(10)).await;
}

/// Has clients start commands, each on its own connection. Every accepted command ends, and the sandbox can be
/// stopped and deleted.
async fn call_create_exec(clients: usize, load: Load) {
    let server = Sandboxed::start().await;
    let mut client = server.local().await;
    client.create_sandbox(create("busy-box")).await.unwrap();
    until(&mut client, "busy-box", v1::SandboxState::Ready).await;
    let mut running = JoinSet::new();
    for _ in 0..clients {
        running.spawn(start_commands(server.local().await, load));
    }
    let accepted: usize = running.join_all().await.into_iter().sum();
    let ended = timeout(HANGS, until_all_ended(&mut client, accepted)).await;
    assert_eq!(ended.expect("accepted commands have no end"), accepted);
    let sandbox_id = "busy-box".to_owned();
    let stop = client.stop_sandbox(v1::StopSandboxRequest { sandbox_id: sandbox_id.clone() });
    timeout(HANGS, stop).await.expect("stop hangs").unwrap();
    until(&mut client, "busy-box", v1::SandboxState::Stopped).await;
    let delete = client.delete_sandbox(v1::DeleteSandboxRequest { sandbox_id });
    timeout(HANGS, delete).await.expect("delete hangs").unwrap();
    until(&mut client, "busy-box", v1::SandboxState::Deleted).await;
}

/// Starts commands without waiting for their ends. Returns how many were accepted.
async fn start_commands(mut client: Client, load: Load) -> usize {
    let (begun, mut commands) = (Instant::now(), 0);
    while load.goes_on(commands, begun.elapsed()) {
        let request = v1::CreateExecRequest {
            sandbox_id: "busy-box".into(),
            command: vec!["/bin/true".into()],
            ..v1::CreateExecRequest::default()
        };
        let started = timeout(HANGS, client.create_exec(request)).await;
        started.unwrap_or_else(|_| panic!("command {commands} of a client hangs")).unwrap();
        commands += 1;
    }
    commands
}

/// Reads events until as many commands have ended as were accepted. Returns how many have.
async fn until_all_ended(client: &mut Client, accepted: usize) -> usize {
    let request = subscribe("busy-box", 0);
    let mut events = client.subscribe_sandbox_events(request).await.unwrap().into_inner();
    let mut ended = 0;
    while ended < accepted {
        match next(&mut events).await.event_type() {
            v1::EventType::ExecFinished | v1::EventType::ExecFailed => ended += 1,
            _ => {}
        }
    }
    ended
}
