//! A server that runs out of descriptors.

use std::{
    io::Read as _,
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{
    command::{Server, data_folder, limited},
    keeper::Keeper,
    websocket::WebSocket,
};

/// More connections than a server with 1024 descriptors has left beside its slots, and fewer than
/// this process may have.
const CROWD: u64 = 1_000;

/// Nothing here takes this long unless it is broken.
const PATIENCE: Duration = Duration::from_mins(1);

/// Tells whether the server sends this connection away, without having been asked anything. One that is let
/// in and says nothing is closed too, but not with this answer.
fn is_sent_away(mut stream: TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).is_ok() && answer.starts_with(b"HTTP/1.1 503 ")
}

#[test]
fn f45_without_descriptors_new_clients_are_sent_away_and_others_live_on() {
    let server = Keeper(Server::start_with_limit("-n 1024"));
    assert_eq!(server.ask(&["create", "--image", "host", "--name", "demo"]).code, Some(0));
    let minted = server.json(&["token", "mint", "--sandbox", "demo", "--scope", "process"]);
    let (sandbox, token) =
        (minted["sandbox_id"].as_str().unwrap(), minted["token"].as_str().unwrap());
    let mut watched = WebSocket::watch_narrow(&server, sandbox, token);
    let ticks = "while sleep 0.05; do echo tick; done";
    watched.send(&json!({"type": "start", "command": ticks, "exec_id": "ticks"}));
    watched.until("stdout");
    let mut stream = WebSocket::connect(&server);
    let limits = json!({"timeout_ms": 60_000, "memory_mb": 64});
    stream.execute("lives", "shell", "while sleep 0.05; do echo tick; done", &limits);
    stream.until("stdout");

    let mut crowd: Vec<_> = (0..CROWD).map(|_| server.connect()).collect();
    assert!(is_sent_away(server.connect()));
    stream.until("stdout");
    stream.send(&json!({"v": 1, "type": "ping", "ts": "2026-01-01T00:00:00.000Z"}));
    stream.until("pong");
    // A command in a sandbox is told as well: what it writes to was open before.
    watched.until("stdout");
    watched.send(&json!({"type": "ping", "id": "1"}));
    watched.until("pong");

    crowd.clear();
    let start = Instant::now();
    let mut said = server.call(&["run", "-l", "shell", "-c", "echo back"]);
    while said.out != "back\n" {
        assert!(start.elapsed() < PATIENCE, "{said:?}");
        said = server.call(&["run", "-l", "shell", "-c", "echo back"]);
    }
    stream.until("stdout");
    watched.until("stdout");
}

#[test]
fn a_server_raises_a_low_limit_of_descriptors_as_far_as_it_may() {
    let server = Server::start_with_limit("-Sn 256");
    let _crowd: Vec<_> = (0..300).map(|_| server.connect()).collect();
    let said = server.call(&["run", "-l", "shell", "-c", "ulimit -n"]);
    // What a program has is its own matter.
    assert_eq!(said.out, "1024\n", "{said:?}");
}

#[test]
fn commands_of_a_sandbox_run_also_if_the_server_may_have_few_descriptors() {
    let server = Keeper(Server::start_with_limit("-n 1024"));
    assert_eq!(server.ask(&["create", "--image", "host", "--name", "demo"]).code, Some(0));
    let said = server.ask(&["exec", "demo", "--", "sh", "-c", "ulimit -Hn"]);
    assert_eq!(said.out, "1024\n", "{said:?}");
}

#[test]
fn a_server_that_may_have_too_few_descriptors_says_so_and_does_not_start() {
    let data = data_folder();
    let said = limited("-n 512").args(["serve", "--data"]).arg(data.path()).output().unwrap();
    let error = String::from_utf8(said.stderr).unwrap();
    assert!(!said.status.success());
    assert!(error.contains("512 open files at most") && error.contains("ulimit -Hn"), "{error}");
}
