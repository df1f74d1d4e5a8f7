//! The containment matrix (rows X01 to X33), run in real slots and judged by effect.

use std::{
    collections::BTreeSet,
    net::TcpListener,
    os::{linux::net::SocketAddrExt as _, unix::net::UnixListener},
};

use model::{execution::Execution, limits::Limits, units::ByteSize};
use serde_json::{Value, json};

use crate::node::{Node, python};

const PROBES: &str = include_str!("../../../../tests/escape/probes.py");

/// Things of the host that a probe tries to reach. They are there as long as this is.
struct Bait {
    facts: Value,
    _tcp: TcpListener,
    _abstract: UnixListener,
    _named: UnixListener,
    _files: tempfile::TempDir,
}

impl Bait {
    fn lay() -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = format!("ringfence-bait-{}", std::process::id());
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
    let bait = Bait::lay();
    let execution = Execution {
        env: vec![("PROBE_FACTS".into(), bait.facts.to_string())],
        limits: Limits { memory: ByteSize::mib(256), ..python("").limits },
        ..python(PROBES)
    };
    let seen = node.run(execution).await;
    let lines: Vec<Value> =
        seen.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let verdicts: Vec<&Value> = lines.iter().filter(|line| line.get("row").is_some()).collect();
    let failed: Vec<_> = verdicts.iter().filter(|line| line["verdict"] != "blocked").collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(verdicts.len() >= 120, "only {} probes; stderr: {}", verdicts.len(), seen.err());
    let rows: BTreeSet<&str> = verdicts.iter().filter_map(|line| line["row"].as_str()).collect();
    for row in ["X01", "X02", "X04", "X05", "X06", "X07", "X09", "X10", "X11", "X12", "X13", "X14"]
    {
        assert!(rows.contains(row), "{row}");
    }
    for row in ["X20", "X21", "X22", "X23", "X24", "X30", "X31"] {
        assert!(rows.contains(row), "{row}");
    }
}
