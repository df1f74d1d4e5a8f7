//! The containment matrix (rows X01 to X33), run in real slots and judged by effect.

use std::{
    collections::BTreeSet,
    net::TcpListener,
    os::{linux::net::SocketAddrExt as _, unix::net::UnixListener},
    sync::atomic::{AtomicU32, Ordering},
};

use model::{execution::Execution, limits::Limits, spec::ExecSpec, units::ByteSize};
use serde_json::{Value, json};

use crate::{
    home::Home,
    node::{Node, python},
};

/// One program, in parts that can be read.
const PROBES: &str = concat!(
    include_str!("../../../../tests/escape/judge.py"),
    include_str!("../../../../tests/escape/calls.py"),
    include_str!("../../../../tests/escape/system.py"),
    include_str!("../../../../tests/escape/rights.py"),
    include_str!("../../../../tests/escape/network.py"),
    include_str!("../../../../tests/escape/machine.py"),
);

/// Things of the host that a probe tries to reach. They are there as long as this is.
struct Bait {
    facts: Value,
    _tcp: TcpListener,
    _abstract: UnixListener,
    _named: UnixListener,
    _files: tempfile::TempDir,
}

/// How many were laid: tests of one process may do so at the same time.
static LAID: AtomicU32 = AtomicU32::new(0);

impl Bait {
    /// `has_low_ports`: whether what is probed may listen on ports below 1024.
    fn lay(has_low_ports: bool) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = LAID.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringfence-bait-{}-{number}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let files = tempfile::tempdir().unwrap();
        let socket = files.path().join("socket");
        let file = files.path().join("secret");
        std::fs::write(&file, "bait").unwrap();
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let facts = json!({
            "host_port": tcp.local_addr().unwrap().port(),
            "abstract_socket": name,
            "unix_socket": socket,
            "host_file": file,
            "host_pid": std::process::id(),
            "canary": "CARGO_MANIFEST_DIR",
            "hostname": hostname,
            "host_words": [files.path(), "target/debug", "/var/lib"],
            "shm_key": 0x7266_0001,
            "has_low_ports": has_low_ports,
        });
        Self {
            facts,
            _tcp: tcp,
            _abstract: UnixListener::bind_addr(&address).unwrap(),
            _named: UnixListener::bind(socket).unwrap(),
            _files: files,
        }
    }
}

#[tokio::test]
async fn nothing_in_a_slot_reaches_beyond_it() {
    let node = Node::start().await;
    let bait = Bait::lay(false);
    let execution = Execution {
        env: vec![("PROBE_FACTS".into(), bait.facts.to_string())],
        limits: Limits { memory: ByteSize::mib(256), ..python("").limits },
        ..python(PROBES)
    };
    let seen = node.run(execution).await;
    judge(seen.out(), seen.err(), &[]);
}

#[tokio::test]
async fn nothing_in_a_sandbox_reaches_beyond_it() {
    let is_root = rustix::process::getuid().is_root();
    probe_sandbox(None, if is_root { &OF_A_SANDBOX } else { &OF_ONE_USER }).await;
}

#[tokio::test]
async fn not_even_root_in_a_sandbox_reaches_beyond_it() {
    // Without users of their own sandboxes have no root.
    if rustix::process::getuid().is_root() {
        let known: Vec<&str> = OF_A_SANDBOX.into_iter().chain(OF_ROOT).collect();
        probe_sandbox(Some("root".to_owned()), &known).await;
    }
}

/// What a sandbox has and a slot has not: folders of its own, empty at first, and a control group
/// for each command, by the name that its caller gave it.
const OF_A_SANDBOX: [&str; 3] =
    ["/var/log is not there", "/var/lib is not there", "the cgroup path says nothing"];

/// What a sandbox has where everything belongs to one user, and there are no control groups.
const OF_ONE_USER: [&str; 5] = [
    "/var/log is not there",
    "/var/lib is not there",
    "create /home/probe",
    "create /root/probe",
    "create /var/probe",
];

/// What root has inside, by design: its user, the rights to install packages, its own folders, and a
/// root whose changes are in a layer of its own.
const OF_ROOT: [&str; 15] = [
    "CapPrm is empty",
    "CapEff is empty",
    "CapBnd is empty",
    "setuid(0)",
    "setgid(0)",
    "setgroups",
    "setresuid(0)",
    "chown to root",
    "create /home/probe",
    "create /root/probe",
    "create /var/probe",
    "create /etc/probe",
    "create /probe",
    "create /run/probe",
    "write into a file of the system",
];

async fn probe_sandbox(user: Option<String>, known: &[&str]) {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let bait = Bait::lay(true);
    home.enter(sandbox.id.as_str(), &["tee", "/workspace/probes.py"], PROBES.as_ref());
    let spec = ExecSpec {
        command: ["/usr/bin/python3", "/workspace/probes.py"].map(str::to_owned).to_vec(),
        env: [("PROBE_FACTS".to_owned(), bait.facts.to_string())].into(),
        user,
        ..ExecSpec::default()
    };
    let started = server.start(&sandbox, spec).await;
    server.end_of(&started.exec.id).await;
    let read = |path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    judge(&read(started.stdout), &read(started.stderr), known);
    server.end().await;
}

/// Every probe must have been made, and none come through but those that are known to.
fn judge(out: &str, err: &str, known: &[&str]) {
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let verdicts: Vec<&Value> = lines.iter().filter(|line| line.get("row").is_some()).collect();
    let (open, failed): (Vec<&Value>, Vec<&Value>) = verdicts
        .iter()
        .filter(|line| line["verdict"] != "blocked")
        .partition(|line| known.iter().any(|name| line["name"] == *name));
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(open.len(), known.len(), "{open:#?}");
    assert!(verdicts.len() >= 120, "only {} probes; stderr: {err}", verdicts.len());
    let rows: BTreeSet<&str> = verdicts.iter().filter_map(|line| line["row"].as_str()).collect();
    for row in ["X01", "X02", "X04", "X05", "X06", "X07", "X09", "X10", "X11", "X12", "X13", "X14"]
    {
        assert!(rows.contains(row), "{row}");
    }
    for row in ["X20", "X21", "X22", "X23", "X24", "X30", "X31"] {
        assert!(rows.contains(row), "{row}");
    }
}
