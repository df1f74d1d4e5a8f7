//! Many clients that start commands in one sandbox at the same time.

use std::{sync::Arc, time::Duration};

use engine::sandboxes::Taken;
use harness::load::Load;
use model::{
    event::{EventKind, Sequence},
    life::{EndCause, Phase},
    sandbox::{Sandbox, WhenStopped},
    spec::ExecSpec,
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::home::{Home, Server, tenant};

/// Far longer than any single call takes on a busy machine: only a deadlock takes this long.
const HANGS: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_that_start_commands_in_a_loop_never_block_the_sandbox() {
    start_commands(2, Load::of(1_000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_clients_that_start_commands_in_a_loop_never_block_the_sandbox() {
    start_commands(4, Load::of(250)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_clients_that_start_commands_in_a_loop_never_block_the_sandbox() {
    start_commands(32, Load::of(40)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clients_that_start_commands_in_a_loop_never_block_the_sandbox() {
    start_commands(100, Load::of(20)).await;
}

#[tokio::test]
async fn a_client_that_follows_a_quiet_sandbox_from_the_beginning_gets_every_event() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    // More events than are read from the store at once.
    let commands = 200;
    for _ in 0..commands {
        server.run(&sandbox, "true").await;
    }
    let followed = timeout(HANGS, until_all_ended(&server, &sandbox, commands)).await;
    assert_eq!(followed.expect("a follower waits for events that are there"), (commands, commands));
    server.end().await;
}

/// Starts commands without waiting for their ends, as a client does that only wants them accepted. Every
/// accepted command has its start and its end in the event log, and the sandbox can be stopped and deleted.
async fn start_commands(clients: usize, load: Load) {
    let home = Home::new();
    let server = Arc::new(home.start().await);
    let sandbox = server.ready().await;
    let mut running = JoinSet::new();
    for _ in 0..clients {
        running.spawn(client(Arc::clone(&server), sandbox.clone(), load));
    }
    let accepted = running.join_all().await.into_iter().sum();
    let counted = timeout(HANGS, until_all_ended(&server, &sandbox, accepted)).await;
    assert_eq!(counted.expect("accepted commands have no end"), (accepted, accepted));
    let (owner, name) = (tenant(), sandbox.id.as_str());
    let stop = timeout(HANGS, server.sandboxes.stop(&owner, name)).await;
    assert_eq!(stop.expect("stop hangs").unwrap(), Taken::Accepted);
    server.until(name, Phase::Stopped).await;
    let delete = server.sandboxes.delete(&owner, name, EndCause::Requested);
    assert_eq!(timeout(HANGS, delete).await.expect("delete hangs").unwrap(), Taken::Accepted);
    server.until(name, Phase::Terminated).await;
    Arc::into_inner(server).expect("every client has ended").end().await;
}

async fn client(server: Arc<Server>, sandbox: Sandbox, load: Load) -> usize {
    let (begun, mut commands) = (Instant::now(), 0);
    while load.goes_on(commands, begun.elapsed()) {
        let spec = ExecSpec { command: vec!["/bin/true".to_owned()], ..ExecSpec::default() };
        let (owner, name) = (tenant(), sandbox.id.as_str());
        let start = server.sandboxes.start_exec(&owner, name, None, spec, WhenStopped::Refuse);
        let started = timeout(HANGS, start).await;
        started.unwrap_or_else(|_| panic!("command {commands} of a client hangs")).unwrap();
        commands += 1;
    }
    commands
}

/// Reads events until as many commands have ended as were accepted. Returns the counts of starts and ends.
async fn until_all_ended(server: &Server, sandbox: &Sandbox, accepted: usize) -> (usize, usize) {
    let name = sandbox.id.as_str();
    let mut events = server.sandboxes.events(&tenant(), name, Sequence::ZERO).await.unwrap();
    let (mut started, mut ended) = (0, 0);
    while ended < accepted {
        match events.next().await.unwrap().expect("the sandbox is there").kind {
            EventKind::ExecStarted { .. } => started += 1,
            EventKind::ExecEnded { .. } => ended += 1,
            _ => {}
        }
    }
    (started, ended)
}
