//! Connections of callers to ports inside a sandbox.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    num::NonZeroU16,
    time::Duration,
};

use engine::sandboxes::{ConnectError, Connection, SandboxError};
use model::{
    event::EventKind,
    ids::SandboxId,
    life::{EndCause, Phase, SuspendReason},
    sandbox::{Refusal, Sandbox, WhenStopped},
    spec::{Idle, SandboxSpec, Suspend},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::home::{Home, Server, host, shell, tenant};

const INSIDE: NonZeroU16 = NonZeroU16::new(8000).unwrap();
/// Longer than anything takes that works.
const SOON: Duration = Duration::from_mins(1);

/// Greets, then says everything again in capitals until there is no more.
fn echoing(address: &str) -> SandboxSpec {
    let family = if address.contains(':') { "AF_INET6" } else { "AF_INET" };
    let script = format!(
        "import socket, threading\n\
         listener = socket.create_server(('{address}', {INSIDE}), family=socket.{family}, backlog=512)\n\
         def echo(client):\n\
         \x20   client.sendall(b'>')\n\
         \x20   for heard in iter(lambda: client.recv(65536), b''):\n\
         \x20       client.sendall(heard.upper())\n\
         \x20   client.close()\n\
         while True:\n\
         \x20   threading.Thread(target=echo, args=(listener.accept()[0],)).start()\n"
    );
    SandboxSpec {
        command: shell(&format!("exec /usr/bin/python3 -c \"{script}\"")).command,
        ..host()
    }
}

async fn create(server: &Server, spec: SandboxSpec) -> Sandbox {
    let sandbox = server.sandboxes.create(&tenant(), None, spec).await.unwrap();
    let sandbox = server.until(sandbox.id.as_str(), Phase::Active).await;
    until_it_listens(server, &sandbox).await;
    sandbox
}

async fn until_it_listens(server: &Server, sandbox: &Sandbox) {
    let script = format!("until grep -q :{INSIDE:04X} /proc/net/tcp /proc/net/tcp6; do :; done");
    server.run(sandbox, &script).await;
}

async fn connect(server: &Server, sandbox: &Sandbox) -> Result<Connection, ConnectError> {
    server.sandboxes.connect(&sandbox.id, INSIDE, WhenStopped::Refuse).await
}

/// Waits for the greeting: then whoever is inside has taken the connection.
async fn greeted(server: &Server, sandbox: &Sandbox) -> Connection {
    let mut connection = connect(server, sandbox).await.unwrap();
    assert_eq!(timeout(SOON, connection.read_u8()).await.unwrap().unwrap(), b'>');
    connection
}

async fn say(connection: &mut Connection, what: &[u8]) -> Vec<u8> {
    connection.write_all(what).await.unwrap();
    let mut answer = vec![0; what.len()];
    timeout(SOON, connection.read_exact(&mut answer)).await.unwrap().unwrap();
    answer
}

#[tokio::test]
async fn a_caller_is_connected_to_whoever_listens_on_either_loopback() {
    let home = Home::new();
    let server = home.start().await;
    for address in ["127.0.0.1", "::1"] {
        let sandbox = create(&server, echoing(address)).await;
        let mut connection = greeted(&server, &sandbox).await;
        assert_eq!(say(&mut connection, b"hello").await, b"HELLO", "{address}");
        connection.write_all(b"bye").await.unwrap();
        connection.shutdown().await.unwrap();
        let mut rest = String::new();
        timeout(SOON, connection.read_to_string(&mut rest)).await.unwrap().unwrap();
        assert_eq!(rest, "BYE", "{address}");
    }
    server.end().await;
}

#[tokio::test]
async fn a_server_of_the_machine_at_the_same_port_is_not_reached() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let outside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    outside.set_nonblocking(true).unwrap();
    let port = NonZeroU16::new(outside.local_addr().unwrap().port()).unwrap();
    let answer = server.sandboxes.connect(&sandbox.id, port, WhenStopped::Refuse).await;
    assert!(matches!(answer, Err(ConnectError::NobodyListens(at)) if at == port), "{answer:?}");
    assert_eq!(outside.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    server.end().await;
}

#[tokio::test]
async fn a_stopped_sandbox_is_started_for_those_who_want_that_and_refused_to_others() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = create(&server, echoing("127.0.0.1")).await;
    let name = sandbox.id.as_str();
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    let refused = connect(&server, &sandbox).await;
    let expected = Refusal::WrongPhase(Phase::Stopped);
    assert!(
        matches!(&refused, Err(ConnectError::Sandbox(SandboxError::Refused(why))) if *why == expected),
        "{refused:?}"
    );
    // Its own command runs again, but may not listen yet.
    let woken = server.sandboxes.connect(&sandbox.id, INSIDE, WhenStopped::Resume).await;
    assert!(matches!(woken, Ok(_) | Err(ConnectError::NobodyListens(_))), "{woken:?}");
    until_it_listens(&server, &sandbox).await;
    assert_eq!(say(&mut greeted(&server, &sandbox).await, b"again").await, b"AGAIN");
    server.end().await;
}

#[tokio::test]
async fn connecting_thaws_a_frozen_sandbox() {
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("cgroups", server.has_cgroups());
    let sandbox = create(&server, echoing("127.0.0.1")).await;
    server.sandboxes.freeze(&tenant(), sandbox.id.as_str()).await.unwrap();
    greeted(&server, &sandbox).await;
    let kinds = server.history(&sandbox).await;
    assert_eq!(kinds.iter().filter(|kind| matches!(kind, EventKind::Thawed)).count(), 1);
    server.end().await;
}

#[tokio::test]
async fn an_open_connection_keeps_a_sandbox_from_being_idle() {
    let home = Home::new();
    let server = home.start().await;
    let idle = Some(Idle { after: Duration::from_secs(3), then: Suspend::Stop });
    let sandbox = create(&server, SandboxSpec { idle, ..echoing("127.0.0.1") }).await;
    let held = greeted(&server, &sandbox).await;
    // Another sandbox of the same idle time, made later, is stopped before this one.
    let spec = SandboxSpec { idle, ..host() };
    let other = server.sandboxes.create(&tenant(), None, spec).await.unwrap();
    server.until(other.id.as_str(), Phase::Stopped).await;
    let now = server.sandboxes.get(&tenant(), sandbox.id.as_str()).await.unwrap();
    assert_eq!(now.life.phase, Phase::Active);
    drop(held);
    let stopped = server.until(sandbox.id.as_str(), Phase::Stopped).await;
    assert_eq!(stopped.life.suspended_for, Some(SuspendReason::Idle));
    server.end().await;
}

#[tokio::test]
async fn connections_beyond_the_bound_are_refused_until_one_ends() {
    const BOUND: usize = 256;
    let home = Home::new();
    let server = home.start().await;
    let sandbox = create(&server, echoing("127.0.0.1")).await;
    let mut held = Vec::new();
    for _ in 0..BOUND {
        held.push(connect(&server, &sandbox).await.unwrap());
    }
    let refused = connect(&server, &sandbox).await;
    assert!(matches!(refused, Err(ConnectError::TooMany)), "{refused:?}");
    held.pop();
    greeted(&server, &sandbox).await;
    server.end().await;
}

#[tokio::test]
async fn whoever_is_connected_when_a_sandbox_is_deleted_is_cut_off() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = create(&server, echoing("127.0.0.1")).await;
    let mut connection = greeted(&server, &sandbox).await;
    let cause = EndCause::Requested;
    server.sandboxes.delete(&tenant(), sandbox.id.as_str(), cause).await.unwrap();
    server.until(sandbox.id.as_str(), Phase::Terminated).await;
    // What was said before the end may be heard, and then there is an end.
    let mut rest = Vec::new();
    let _ = timeout(SOON, connection.read_to_end(&mut rest)).await.unwrap();
    let told = async { while connection.write_all(b"x").await.is_ok() {} };
    timeout(SOON, told).await.unwrap();
    let gone = connect(&server, &sandbox).await;
    let expected = Refusal::Gone;
    assert!(
        matches!(&gone, Err(ConnectError::Sandbox(SandboxError::Refused(why))) if *why == expected),
        "{gone:?}"
    );
    server.end().await;
}

#[tokio::test]
async fn a_sandbox_that_never_was_has_no_ports() {
    let home = Home::new();
    let server = home.start().await;
    let nobody = SandboxId::from_random([7; 16]);
    let answer = server.sandboxes.connect(&nobody, INSIDE, WhenStopped::Resume).await;
    let is_none = matches!(answer, Err(ConnectError::Sandbox(SandboxError::NotFound)));
    assert!(is_none, "{answer:?}");
    server.end().await;
}
