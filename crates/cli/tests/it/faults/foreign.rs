//! A supervisor that speaks another version of the protocol than the server that finds it.

use std::{
    fs::{self, Permissions},
    os::{fd::OwnedFd, unix::fs::PermissionsExt as _},
    path::Path,
    process::Command,
    thread,
};

use isolate::{sandbox::folder, socket::PacketSocket};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketType, accept, bind,
    listen, shutdown, socket,
};

use super::ground::{Ground, must};

/// Listens at the place of a supervisor, and answers everybody in a version of its own.
fn pretend(path: &Path, version: u8) -> (OwnedFd, thread::JoinHandle<()>) {
    let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
    listen(&listener, 4).unwrap();
    let ours = listener.try_clone().unwrap();
    let answering = thread::spawn(move || {
        // Until it is shut down.
        while let Ok(connection) = accept(&ours) {
            let connection = PacketSocket::from_fd(connection);
            let _hello = connection.receive(RecvFlags::empty());
            let _ = connection.send(&[version, 0, 1, 2, 3], &[], SendFlags::empty());
        }
    });
    (listener, answering)
}

fn wait_for(script: &str, place: &str) {
    must(Command::new("timeout").args(["60", "sh", "-c", script, place]));
}

/// F81.
#[test]
fn f81_a_sandbox_of_a_server_that_is_not_understood_is_told_and_left_alone() {
    harness::needs::require_root();
    let mut ground = Ground::new();
    ground.start();
    ground.create("demo");
    let exec = ground.detach("demo", "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done");
    ground.shell("demo", "true");
    let sandbox = ground.only_sandbox();
    ground.kill();
    let (place, aside) = (sandbox.join(folder::SOCKET), sandbox.join("aside"));
    fs::rename(&place, &aside).unwrap();
    let (listener, answering) = pretend(&place, 9);

    ground.start();
    let log = ground.folder.path().join("log");
    wait_for("until grep -q 'is left alone' \"$0\"; do sleep 0.05; done", log.to_str().unwrap());
    let refused = ground.shell("demo", "true");
    assert!(refused.err.contains("speaks version 9"), "{refused:?}");
    assert_eq!(ground.state("demo"), "READY");
    assert_eq!(ground.log().matches("is left alone").count(), 1, "{}", ground.log());
    // Its processes go on.
    let output = sandbox.join(format!("out/{exec}.stdout.log"));
    let length = fs::metadata(&output).unwrap().len();
    let grows = format!("until [ $(stat -c %s \"$0\") -gt {length} ]; do sleep 0.05; done");
    wait_for(&grows, output.to_str().unwrap());
    ground.kill();
    shutdown(&listener, Shutdown::Both).unwrap();
    answering.join().unwrap();

    // A server that it understands comes.
    fs::rename(&aside, &place).unwrap();
    ground.start();
    assert_eq!(ground.shell("demo", "echo here").out, "here\n");
    let numbers = fs::read_to_string(&output).unwrap();
    let wrong = numbers.lines().zip(1..).find(|(line, number)| *line != number.to_string());
    assert_eq!(wrong, None);
    assert_eq!(ground.ask(&["rm", "demo"]).code, Some(0));
}
