//! Many clients that start commands in one sandbox at the same time.

use std::{fs, sync::Arc, time::Duration};

use engine::sandboxes::Taken;
use harness::load::Load;
use model::{
    event::{EventKind, Sequence},
    life::{EndCause, Phase},
    sandbox::{Sandbox, WhenStopped},
    spec::ExecSpec,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::home::{Home, Server, tenant};

/// Far longer than any single call takes on a busy machine: only a deadlock takes this long.
const HANGS: Duration = Duration::from_mins(1);

/// A call that takes so long waits for room in a queue.
const FULL: Duration = Duration::from_secs(2);

/// Messages that a socket of the usual size does not hold.
const MORE_THAN_A_QUEUE_HOLDS: usize = 400;

const UNTIL_GO: &str = "until [ -e /workspace/go ]; do sleep 2; done";

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

/// While the supervisor stands still, commands end and requests fill the queue to it. When it goes on, it has more to
/// tell than its own queue holds, and the server still waits for room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_go_on_after_the_queues_to_and_from_the_supervisor_were_full() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let supervisor = home.supervisor_of(sandbox.id.as_str());
    for _ in 0..MORE_THAN_A_QUEUE_HOLDS {
        start_one(&server, &sandbox, &["/bin/sh", "-c", UNTIL_GO]).await;
    }
    // It has started all of those once one after them has ended.
    server.run(&sandbox, "true").await;
    kill_process(supervisor, Signal::STOP).unwrap();
    let mut accepted = MORE_THAN_A_QUEUE_HOLDS + 1;
    // A command is not accepted while the server waits to send.
    let mut waiting = loop {
        let mut start = Box::pin(start_one(&server, &sandbox, &["/bin/true"]));
        match timeout(FULL, &mut start).await {
            Ok(()) => accepted += 1,
            Err(_elapsed) => break start,
        }
    };
    home.enter(sandbox.id.as_str(), &["touch", "/workspace/go"], b"");
    while ended_below(supervisor) < MORE_THAN_A_QUEUE_HOLDS {
        tokio::task::yield_now().await;
    }
    kill_process(supervisor, Signal::CONT).unwrap();
    timeout(HANGS, &mut waiting).await.expect("the queues block each other");
    drop(waiting);
    accepted += 1;
    let counted = timeout(HANGS, until_all_ended(&server, &sandbox, accepted)).await;
    assert_eq!(counted.expect("accepted commands have no end"), (accepted, accepted));
    server.end().await;
}

/// Counts the children of a process that have ended and were not waited for.
fn ended_below(parent: Pid) -> usize {
    let parent = parent.as_raw_nonzero().to_string();
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let stats = processes.filter_map(|process| fs::read_to_string(process.join("stat")).ok());
    let has_ended = |stat: &String| {
        let mut fields = stat.rsplit(')').next().unwrap().split_whitespace();
        (fields.next(), fields.next()) == (Some("Z"), Some(&parent))
    };
    stats.filter(has_ended).count()
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
        let started = timeout(HANGS, start_one(&server, &sandbox, &["/bin/true"])).await;
        started.unwrap_or_else(|_| panic!("command {commands} of a client hangs"));
        commands += 1;
    }
    commands
}

async fn start_one(server: &Server, sandbox: &Sandbox, command: &[&str]) {
    let command = command.iter().map(ToString::to_string).collect();
    let spec = ExecSpec { command, ..ExecSpec::default() };
    let (owner, name) = (tenant(), sandbox.id.as_str());
    server.sandboxes.start_exec(&owner, name, None, spec, WhenStopped::Refuse).await.unwrap();
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
