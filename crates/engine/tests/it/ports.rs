//! Published ports, used from outside as anybody would.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    time::Duration,
};

use engine::sandboxes::{Defaults, SandboxError};
use model::{
    event::{EventKind, Sequence},
    life::{EndCause, FailureCause, Phase, SuspendReason},
    sandbox::Sandbox,
    spec::{Idle, Port, Protocol, SandboxSpec, Suspend},
};

use store::audit::{Order, Part};

use crate::home::{Home, Server, host, shell, tenant};

/// What a sandbox's own command listens at.
const INSIDE: u16 = 8000;

/// Answers in capitals, once it has heard everything.
fn answering(address: &str) -> Vec<String> {
    let family = if address.contains(':') { "AF_INET6" } else { "AF_INET" };
    let script = format!(
        "import socket\n\
         listener = socket.create_server(('{address}', {INSIDE}), family=socket.{family})\n\
         while True:\n\
         \x20   client, _ = listener.accept()\n\
         \x20   heard = b''.join(iter(lambda: client.recv(65536), b''))\n\
         \x20   client.sendall(heard.upper())\n\
         \x20   client.close()\n"
    );
    shell(&format!("exec /usr/bin/python3 -c \"{script}\"")).command
}

/// Finds a port of the machine that nobody has or takes while it is held.
fn free_port() -> (harness::ports::Port, u16) {
    let port = harness::ports::Port::take();
    let number = port.number;
    (port, number)
}

fn publishing(host_port: u16) -> SandboxSpec {
    let port = Port { inside: INSIDE, host: host_port, protocol: Protocol::Tcp };
    SandboxSpec { ports: vec![port], command: answering("127.0.0.1"), ..host() }
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

/// Says something, and returns what is answered after the last word.
async fn say(port: u16, what: &'static str) -> io::Result<String> {
    let said = move || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_mins(1)))?;
        stream.write_all(what.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    tokio::task::spawn_blocking(said).await.unwrap()
}

#[tokio::test]
async fn a_published_port_carries_both_directions_to_their_own_ends() {
    let home = Home::new();
    let server = home.start().await;
    let (_held, port) = free_port();
    let sandbox = create(&server, publishing(port)).await;
    // It answers only once it has seen the end of what is said.
    assert_eq!(say(port, "hello").await.unwrap(), "HELLO");
    let (one, other) = tokio::join!(say(port, "one"), say(port, "other"));
    assert_eq!((one.unwrap(), other.unwrap()), ("ONE".to_owned(), "OTHER".to_owned()));
    let kinds = server.history(&sandbox).await;
    let ready = kinds.iter().filter(|kind| matches!(kind, EventKind::Ready)).count();
    assert_eq!(ready, 1, "{kinds:?}");
    server.end().await;
}

#[tokio::test]
async fn whoever_listens_on_the_other_loopback_is_found_too() {
    let home = Home::new();
    let server = home.start().await;
    let (_held, port) = free_port();
    create(&server, SandboxSpec { command: answering("::1"), ..publishing(port) }).await;
    assert_eq!(say(port, "six").await.unwrap(), "SIX");
    server.end().await;
}

#[tokio::test]
async fn where_nobody_listens_a_connection_is_reset() {
    let home = Home::new();
    let server = home.start().await;
    let (_held, port) = free_port();
    let spec = SandboxSpec { command: Vec::new(), ..publishing(port) };
    let sandbox = server.sandboxes.create(&tenant(), None, spec).await.unwrap();
    server.until(sandbox.id.as_str(), Phase::Active).await;
    let refused = say(port, "").await.unwrap_err();
    // Whether it was there already when the other end was to be told that nothing more comes.
    let kinds = [io::ErrorKind::ConnectionReset, io::ErrorKind::NotConnected];
    assert!(kinds.contains(&refused.kind()), "{refused}");
    server.end().await;
}

#[tokio::test]
async fn a_port_that_another_has_fails_the_creation_and_is_named() {
    let home = Home::new();
    let server = home.start().await;
    let (_held, port) = free_port();
    create(&server, publishing(port)).await;
    let second = server.sandboxes.create(&tenant(), None, publishing(port)).await.unwrap();
    let failed = server.until(second.id.as_str(), Phase::Failed).await;
    let failure = failed.life.failure.unwrap();
    assert_eq!(failure.cause, FailureCause::CreateFailed);
    assert!(failure.message.contains(&port.to_string()), "{}", failure.message);
    assert_eq!(say(port, "first").await.unwrap(), "FIRST");
    server.end().await;
}

#[tokio::test]
async fn a_sandbox_that_failed_without_files_is_deleted_after_a_warning_and_its_name_is_free() {
    let home = Home::new();
    let keep_failed = Some(Duration::from_secs(2));
    let server = home.start_with(Defaults { keep_failed, ..Defaults::default() }).await;
    let (_held, port) = free_port();
    create(&server, publishing(port)).await;
    let alias = || Some("box-1".parse().unwrap());
    let second = server.sandboxes.create(&tenant(), alias(), publishing(port)).await.unwrap();
    let name = second.id.as_str();
    let mut events = server.sandboxes.events(&tenant(), name, Sequence::ZERO).await.unwrap();
    let mut told = Vec::new();
    while told.last() != Some(&EventKind::Deleted(EndCause::CleanupTtl)) {
        told.push(events.next().await.unwrap().unwrap().kind);
    }
    let is_warning =
        |kind: &&EventKind| matches!(kind, EventKind::EndsSoon { cause: EndCause::CleanupTtl, .. });
    assert_eq!(told.iter().filter(is_warning).count(), 1, "{told:?}");
    let all = Part { order: Order::OldestFirst, beyond: None, limit: 100 };
    let records = server.store.audit(all).await.unwrap();
    let ends = records.iter().filter(|record| record.action == "sandbox.delete");
    let ends: Vec<_> = ends.map(|it| (it.sandbox.as_deref(), it.reason.as_deref())).collect();
    assert_eq!(ends, [(Some(name), Some("cleanup_ttl"))]);
    server.sandboxes.create(&tenant(), alias(), host()).await.unwrap();
    server.end().await;
}

#[tokio::test]
async fn ports_are_the_machines_while_a_sandbox_is_stopped_and_its_own_when_it_is_resumed() {
    let home = Home::new();
    let server = home.start().await;
    let (_held, port) = free_port();
    let sandbox = create(&server, publishing(port)).await;
    let name = sandbox.id.as_str();
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    drop(taken);
    server.sandboxes.resume(&tenant(), name).await.unwrap();
    server.until(name, Phase::Active).await;
    until_it_listens(&server, &sandbox).await;
    assert_eq!(say(port, "again").await.unwrap(), "AGAIN");
    server.end().await;
}

#[tokio::test]
async fn a_new_server_publishes_the_ports_of_those_that_live_again() {
    let home = Home::new();
    let server = home.start().await;
    let (_held, port) = free_port();
    let sandbox = create(&server, publishing(port)).await;
    server.crash().await;
    let server = home.start().await;
    // Whoever is answered here has been connected to, and its ports are open by then.
    server.run(&sandbox, "true").await;
    assert_eq!(say(port, "hello").await.unwrap(), "HELLO");
    server.end().await;
}

#[tokio::test]
async fn connecting_to_a_frozen_sandbox_thaws_it() {
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("cgroups", server.has_cgroups());
    let (_held, port) = free_port();
    let sandbox = create(&server, publishing(port)).await;
    server.sandboxes.freeze(&tenant(), sandbox.id.as_str()).await.unwrap();
    assert_eq!(say(port, "awake").await.unwrap(), "AWAKE");
    let kinds = server.history(&sandbox).await;
    let thawed = kinds.iter().filter(|kind| matches!(kind, EventKind::Thawed)).count();
    assert_eq!(thawed, 1, "{kinds:?}");
    server.end().await;
}

#[tokio::test]
async fn a_sandbox_with_a_connection_is_not_idle_and_one_without_is() {
    let home = Home::new();
    let server = home.start().await;
    let (_held, port) = free_port();
    let idle = Idle { after: Duration::from_secs(3), then: Suspend::Stop };
    let sandbox = create(&server, SandboxSpec { idle: Some(idle), ..publishing(port) }).await;
    let held = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    // Another sandbox of the same idle time, made later, is stopped before this one.
    let spec = SandboxSpec { idle: Some(idle), ..host() };
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
async fn ports_that_cannot_be_published_are_refused() {
    let home = Home::new();
    let server = home.start().await;
    let port = |host, protocol| Port { inside: INSIDE, host, protocol };
    let many: Vec<Port> = (20000..20065).map(|host| port(host, Protocol::Tcp)).collect();
    let refused = [vec![port(20000, Protocol::Udp)], vec![port(20000, Protocol::Sctp)], many];
    for ports in refused {
        let answer =
            server.sandboxes.create(&tenant(), None, SandboxSpec { ports, ..host() }).await;
        assert!(matches!(answer, Err(SandboxError::Field { .. })), "{answer:?}");
    }
    server.end().await;
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_for_one_to_end() {
    const BOUND: usize = 256;
    let home = Home::new();
    let server = home.start().await;
    let (_held, port) = free_port();
    let script = format!(
        "import socket, threading\n\
         listener = socket.create_server(('127.0.0.1', {INSIDE}), backlog=512)\n\
         def greet(client):\n\
         \x20   client.sendall(b'x')\n\
         \x20   client.recv(1)\n\
         \x20   client.close()\n\
         while True:\n\
         \x20   threading.Thread(target=greet, args=(listener.accept()[0],)).start()\n"
    );
    let command = shell(&format!("exec /usr/bin/python3 -c \"{script}\"")).command;
    create(&server, SandboxSpec { command, ..publishing(port) }).await;
    let connect = move || {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream
    };
    let greeted = |stream: &mut TcpStream| stream.read_exact(&mut [0; 1]);
    let bounded = move || {
        let mut held: Vec<TcpStream> = (0..BOUND).map(|_| connect()).collect();
        for stream in &mut held {
            greeted(stream).unwrap();
        }
        let mut late = connect();
        late.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        assert_eq!(greeted(&mut late).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        late.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        drop(held.pop());
        greeted(&mut late).unwrap();
    };
    tokio::task::spawn_blocking(bounded).await.unwrap();
    server.end().await;
}
