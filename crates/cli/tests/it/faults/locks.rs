//! One server for one data directory, and the next one right after it.

use std::{
    io::Read as _,
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::process::{Signal, pidfd_send_signal};

use super::ground::Ground;
use crate::command::{open_process, ringfence};

/// F22: whoever comes second is told at once what it waits for, and refused when that stays.
#[test]
fn f22_a_second_server_waits_a_while_for_the_first_and_is_refused() {
    let mut ground = Ground::new();
    ground.start();
    ground.create("demo");
    let begin = Instant::now();
    let second = ringfence(&["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(&ground.data)
        .output()
        .unwrap();
    let took = begin.elapsed();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(125), "{said}");
    assert!(said.contains("waiting for the ringfence process that has"), "{said}");
    assert!(said.contains("is in use by another ringfence process"), "{said}");
    assert!(took >= Duration::from_secs(4), "{took:?}");
    assert_eq!(ground.shell("demo", "echo here").out, "here\n");
}

/// F22: the lock of a server that is about to die is waited for, and so is that of its socket.
#[test]
fn f22_a_server_that_is_started_while_the_last_one_dies_serves() {
    let mut ground = Ground::new();
    let runtime = ground.folder.path().join("run");
    std::fs::create_dir(&runtime).unwrap();
    let with_socket = || {
        let mut command = ringfence(&[]);
        command.env("XDG_RUNTIME_DIR", &runtime);
        command
    };
    ground.start_by(with_socket());
    ground.create("demo");
    // Its daemon stands still, and so lives on with its locks when the spawner is killed.
    let daemon = open_process(ground.daemon());
    pidfd_send_signal(&daemon, Signal::STOP).unwrap();
    let mut first = ground.take_server();
    first.kill().unwrap();
    first.wait().unwrap();

    let mut second = with_socket()
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(&ground.data)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut complaints = second.stderr.take().unwrap();
    let mut told = vec![0; 17];
    complaints.read_exact(&mut told).unwrap();
    assert_eq!(String::from_utf8_lossy(&told), "ringfence: waitin");
    pidfd_send_signal(&daemon, Signal::KILL).unwrap();
    // It comes to life and is asked to end again; the third finds both locks free at last.
    crate::command::read_until(&mut complaints, "serving");
    crate::command::signal(second.id(), "TERM");
    second.wait().unwrap();
    ground.start_by(with_socket());
    assert!(runtime.join("agbox/agboxd.sock").exists(), "{}", ground.log());
    assert_eq!(ground.shell("demo", "echo here").out, "here\n");
}
