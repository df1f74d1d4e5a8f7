//! How much of its own history a sandbox keeps while it lives.

use std::process::Command;

use engine::sandboxes::{Defaults, SandboxError};
use model::{event::Sequence, sandbox::Sandbox};

use crate::home::{Home, Server, shell, tenant};

const KEPT: u64 = 20;

/// Runs commands, each to its end, one after the other.
async fn run_commands(server: &Server, sandbox: &Sandbox, count: usize) {
    let id = sandbox.id.as_str();
    for _ in 0..count {
        let started = server.start(sandbox, shell("true")).await;
        let latest = server.sandboxes.get(&tenant(), id).await.unwrap().life.sequence;
        let mut events = server.sandboxes.events(&tenant(), id, latest).await.unwrap();
        let is_running = async || {
            let exec = server.sandboxes.exec(&tenant(), &started.exec.id).await.unwrap();
            exec.exec.life.ended_at.is_none()
        };
        while is_running().await {
            events.next().await.unwrap();
        }
    }
}

/// Returns the first and the last event that there are.
async fn log(server: &Server, sandbox: &Sandbox) -> (u64, u64) {
    let events = server.sandboxes.events(&tenant(), sandbox.id.as_str(), Sequence::ZERO).await;
    match events {
        Err(SandboxError::OutOfRange { earliest, latest, .. }) => (earliest.0, latest.0),
        Err(error) => panic!("{error}"),
        Ok(_) => {
            let now = server.sandboxes.get(&tenant(), sandbox.id.as_str()).await.unwrap();
            (1, now.life.sequence.0)
        }
    }
}

/// Has the store refuse to delete events, or not.
fn refuse_deletion(home: &Home, statement: &str) {
    let script =
        "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=30).executescript(sys.argv[2])";
    let store = home.data().join("store.db");
    let done = Command::new("python3").args(["-c", script]).arg(store).arg(statement).status();
    assert!(done.unwrap().success());
}

#[tokio::test]
async fn the_event_log_of_a_live_sandbox_is_bounded_and_a_failed_deletion_is_repeated() {
    let home = Home::new();
    let server = home.start_with(Defaults { events: KEPT, ..Defaults::default() }).await;
    let sandbox = server.ready().await;
    run_commands(&server, &sandbox, 30).await;
    let (earliest, latest) = log(&server, &sandbox).await;
    assert!(latest > 60 && earliest > 1, "{earliest} to {latest}");
    // The start and the end of the last command may not have been counted yet.
    assert!(latest - earliest < KEPT + 4, "{earliest} to {latest}");

    let refused =
        "CREATE TRIGGER keep BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'no'); END";
    refuse_deletion(&home, refused);
    run_commands(&server, &sandbox, 10).await;
    let (still, latest) = log(&server, &sandbox).await;
    assert!(still <= earliest + 4 && latest - still > KEPT + 4, "{still} to {latest}");
    refuse_deletion(&home, "DROP TRIGGER keep");
    run_commands(&server, &sandbox, 2).await;
    let (earliest, latest) = log(&server, &sandbox).await;
    assert!(latest - earliest < KEPT + 4, "{earliest} to {latest}");
    server.end().await;
}
