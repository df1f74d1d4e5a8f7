//! Neighbours on one machine: one takes all it can get of a kernel resource, and another one of the same
//! machine, and the machine's own root, have what they need.

use std::{path::Path, process::Command, time::Duration};

use engine::{
    executions::{Event, Submitted},
    sandboxes::attach::{Part, Stream},
};
use model::{
    execution::{Execution, Status, StopReason},
    life::EndCause,
    limits::Limits,
    sandbox::{Sandbox, WhenStopped},
    spec::{ExecSpec, OnFull},
    units::ByteSize,
};
use tokio::time::timeout;

use crate::{
    home::{Home, Server, tenant},
    node::{Node, python, see, submit},
};

/// Nothing here takes this long unless it is broken.
const PATIENCE: Duration = Duration::from_mins(1);

const PROGRAM: &str = include_str!("../../../../tests/escape/neighbours.py");

/// Runs the program on the host. What it takes there it gives back at its end.
fn on_host(role: &str, row: &str) -> String {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-I", "-c", PROGRAM]);
    command.env("AT", "host").env("ROLE", role).env("ROW", row);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{row}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn rows() -> Vec<String> {
    let rows: Vec<String> = on_host("rows", "").lines().map(str::to_owned).collect();
    assert!(rows.len() >= 24, "{rows:?}");
    rows
}

fn execution(role: &str, row: &str) -> Execution {
    let memory = ByteSize::mib(256);
    let timeout = Duration::from_mins(2);
    Execution {
        env: vec![("ROLE".into(), role.into()), ("ROW".into(), row.into())],
        limits: Limits { memory, timeout, ..Limits::default() },
        ..python(PROGRAM)
    }
}

/// Returns what an execution says that it has taken. It goes on, or has been ended for taking too much.
async fn taken(submitted: &mut Submitted) -> String {
    let mut said = Vec::new();
    while said.last() != Some(&b'\n') {
        match submitted.events.recv().await {
            Some(Event::Output { data, .. }) => said.extend(data),
            Some(Event::Started) => {}
            Some(Event::Ended(outcome)) => return format!("{:?}", outcome.status),
            other => panic!("{other:?}"),
        }
    }
    String::from_utf8(said).unwrap()
}

#[tokio::test]
async fn an_execution_that_takes_all_it_can_get_takes_nothing_from_others() {
    let node = Node::with(&["python"]).await;
    for row in rows() {
        let mut hostile = submit(&node.engine.client("hostile"), execution("take", &row));
        let taken = taken(&mut hostile).await;
        println!("{row}: {taken}");
        assert!(taken.starts_with("taken") || taken == "Oom", "{row}: {taken}");
        let neighbour = node.run(execution("use", &row)).await;
        assert_eq!(neighbour.out(), "works\n", "{row}: {taken} {}", neighbour.err());
        assert_eq!(neighbour.outcome.status, Status::Completed, "{row}");
        assert_eq!(on_host("use", &row), "works\n", "{row}");
        hostile.canceller.cancel(StopReason::Cancelled);
        if taken != "Oom" {
            see(hostile).await;
        }
    }
}

#[tokio::test]
async fn a_sandbox_that_takes_all_it_can_get_takes_nothing_from_others() {
    beside_a_sandbox(None).await;
}

#[tokio::test]
async fn not_even_root_in_a_sandbox_takes_anything_from_others() {
    let user = if rustix::process::getuid().is_root() { Some("root".to_owned()) } else { None };
    beside_a_sandbox(user).await;
}

async fn beside_a_sandbox(user: Option<String>) {
    let home = Home::new();
    let server = home.start().await;
    let neighbour = server.ready().await;
    let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    for row in rows() {
        let hostile = server.ready().await;
        let taken = taken_in(&server, &hostile, command("take", &row, user.clone())).await;
        println!("{row}: {taken}");
        assert!(taken.starts_with("taken"), "{row}: {taken}");
        let used = server.start(&neighbour, command("use", &row, user.clone())).await;
        server.end_of(&used.exec.id).await;
        assert_eq!(read(&used.stdout), "works\n", "{row}: {taken} {}", read(&used.stderr));
        assert_eq!(on_host("use", &row), "works\n", "{row}");
        let (tenant, name) = (tenant(), hostile.id.as_str());
        server.sandboxes.delete(&tenant, name, EndCause::Requested).await.unwrap();
    }
    server.end().await;
}

/// Returns what a command says that it has taken. It goes on.
async fn taken_in(server: &Server, sandbox: &Sandbox, spec: ExecSpec) -> String {
    let tenant = tenant();
    let run = server.sandboxes.run(&tenant, &sandbox.id, None, spec, WhenStopped::Refuse);
    let attached = run.await.unwrap();
    let mut output = attached.output(Stream::Stdout, 0, OnFull::Drop);
    let mut said = String::new();
    while !said.ends_with('\n') {
        match timeout(PATIENCE, output.next()).await.expect("nothing comes").unwrap() {
            Part::Bytes { bytes, .. } => said.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("{other:?} after {said:?}"),
        }
    }
    said
}

fn command(role: &str, row: &str, user: Option<String>) -> ExecSpec {
    let command = ["/usr/bin/python3", "-I", "-c", PROGRAM, role, row];
    let command = command.map(str::to_owned).to_vec();
    ExecSpec { command, user, ..ExecSpec::default() }
}
