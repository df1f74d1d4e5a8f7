//! The network of an execution: made for it, and for no other.

use std::{collections::HashSet, fs::File, path::Path};

use engine::executions::{Event, Submitted};
use model::execution::{Status, StopReason};

use crate::node::{Node, python, see, submit};

/// Does everything with a network that leaves something behind in it: a connection that waits for
/// its end, a datagram, an attempt without a way, a socket that only its own message holds.
const USE: &str = r"
import array, socket
server = socket.create_server(('127.0.0.1', 34567))
client = socket.create_connection(('127.0.0.1', 34567))
server.accept()[0].sendall(b'x'); client.recv(1); client.close()
socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('::1', 34567))
for family, address in (socket.AF_INET, '10.0.0.1'), (socket.AF_INET6, '2001:db8::1'):
    try: socket.socket(family).connect((address, 9))
    except OSError: pass
a, b = socket.socketpair()
kept = array.array('i', [a.fileno(), b.fileno(), server.fileno()])
a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, kept)])
print('used')
";

/// Prints what a network tells of its past, and takes the port that others had.
const LOOK: &str = r"
import socket
for file in 'snmp', 'snmp6', 'netstat', 'dev', 'unix', 'tcp', 'udp': print(open(f'/proc/net/{file}').read())
print(open('/proc/net/sockstat').readline())
socket.socket().bind(('127.0.0.1', 34567))
";

const NUMBER: &str = "import os; print(os.readlink('/proc/self/ns/net'))";

#[tokio::test]
async fn whoever_comes_after_an_execution_that_used_its_network_finds_a_new_one() {
    let node = Node::start().await;
    let new = node.run(python(LOOK)).await;
    assert_eq!(new.err(), "");
    for _ in 0..12 {
        assert_eq!(node.run(python(USE)).await.out(), "used\n");
    }
    for _ in 0..24 {
        let seen = node.run(python(LOOK)).await;
        assert_eq!((seen.out(), seen.err()), (new.out(), ""));
    }
}

#[tokio::test]
async fn no_execution_gets_the_network_of_an_earlier_one() {
    let node = Node::start().await;
    let code = format!("{NUMBER}\nimport sys, time; sys.stdout.flush(); time.sleep(1000)");
    for _ in 0..3 {
        let mut earlier = submit(&node.engine.client("default"), python(&code));
        let number = first_line(&mut earlier).await;
        let _kept = keep(str::from_utf8(&number).unwrap().trim());
        earlier.canceller.cancel(StopReason::Cancelled);
        see(earlier).await;
        for _ in 0..12 {
            assert_ne!(node.run(python(NUMBER)).await.stdout, number);
        }
    }
}

/// Keeps a network, and with it its number from being another's, as long as the file is open.
fn keep(number: &str) -> File {
    let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let mut networks = processes.map(|process| process.join("ns/net"));
    let found = networks.find(|at| std::fs::read_link(at).is_ok_and(|is| is == Path::new(number)));
    File::open(found.unwrap()).unwrap()
}

#[tokio::test]
async fn no_two_executions_have_one_network_at_once() {
    let node = Node::start().await;
    let code = format!("{NUMBER}\nimport sys, time; sys.stdout.flush(); time.sleep(1000)");
    for _ in 0..3 {
        let client = node.engine.client("default");
        let mut running: Vec<_> = (0..12).map(|_| submit(&client, python(&code))).collect();
        let mut numbers = HashSet::new();
        // None ends before all have told theirs.
        for submitted in &mut running {
            numbers.insert(first_line(submitted).await);
        }
        assert_eq!(numbers.len(), 12, "{numbers:?}");
        for submitted in running {
            submitted.canceller.cancel(StopReason::Cancelled);
            assert_eq!(see(submitted).await.outcome.status, Status::Cancelled);
        }
    }
}

/// Returns the first line that an execution writes, while it goes on.
async fn first_line(submitted: &mut Submitted) -> Vec<u8> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        match submitted.events.recv().await {
            Some(Event::Output { data, .. }) => line.extend(data),
            Some(Event::Started) => {}
            other => panic!("{other:?}"),
        }
    }
    line
}
