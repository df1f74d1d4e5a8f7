//! Processes of the server that are killed, stopped, or die again and again.

use std::fs;

use rustix::process::{Signal, pidfd_send_signal};

use super::ground::Ground;
use crate::command::{gone, open_process, ringfence};

/// F06: taking over can be broken off as often as one likes.
#[test]
fn f06_a_server_that_dies_while_it_takes_over_leaves_everything_for_the_next() {
    let mut ground = Ground::new();
    ground.start();
    ground.create("demo");
    let script = "echo $$ >&2; for i in $(seq 1 200); do echo $i; sleep 0.02; done; exit 7";
    let exec = ground.detach("demo", script);
    let before = ground.events("demo");
    ground.kill();
    for _ in 0..5 {
        let mut dying = ringfence(&[]);
        dying.env("RF_FAILPOINT", "c.connected");
        // It may come to serving before it dies.
        if ground.try_start(dying).is_ok() {
            let mut server = ground.take_server();
            server.wait().unwrap();
        }
    }
    ground.start();
    assert_eq!(ground.events("demo")[..before.len()], before);
    let numbers: String = (1..=200).map(|number| format!("{number}\n")).collect();
    assert_eq!(ground.output(&exec), numbers);
    let events = ground.events("demo");
    assert_eq!(events.len(), before.len() + 1, "{events:?}");
    assert_eq!(events.last().unwrap()["exit_code"], 7);
}

/// F08: the kernel may kill the daemon for its memory; a sandbox has a limit of its own.
#[test]
fn f08_a_sandbox_is_not_in_the_memory_of_the_daemon_and_outlives_it() {
    harness::needs::require_root();
    let mut ground = Ground::new();
    ground.start();
    ground.create("demo");
    let exec = ground.detach("demo", "for i in $(seq 1 50); do echo $i; sleep 0.02; done");
    ground.shell("demo", "true");
    let sandbox = ground.only_sandbox().file_name().unwrap().to_string_lossy().into_owned();
    // By the tree of the controller, or of all of them.
    let memory = |pid: &str| {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let of_memory = |line: &&str| line.contains(":memory:") || line.starts_with("0::");
        groups.lines().find(of_memory).map(str::to_owned)
    };
    let of_daemon = memory(&ground.daemon().to_string()).unwrap();
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let groups = processes.filter_map(|entry| memory(&entry.file_name().to_string_lossy()));
    let own: Vec<String> = groups.filter(|group| group.contains(&sandbox)).collect();
    assert!(!own.is_empty() && !own.contains(&of_daemon), "{own:?} {of_daemon}");

    let daemon = open_process(ground.daemon());
    pidfd_send_signal(&daemon, Signal::KILL).unwrap();
    let mut server = ground.take_server();
    server.wait().unwrap();
    assert!(gone(&daemon));
    ground.start();
    assert_eq!(ground.output(&exec).lines().count(), 50);
    assert_eq!(ground.state("demo"), "READY");
}

/// F10: not even PID 1 of the sandbox can be ended from inside.
#[test]
fn f10_a_sandbox_cannot_end_its_own_supervisor() {
    let mut ground = Ground::new();
    ground.start();
    ground.create("demo");
    ground.shell("demo", "kill -9 1; kill -TERM 1; kill -SEGV 1");
    assert_eq!(ground.shell("demo", "echo here").out, "here\n");
    assert_eq!(ground.state("demo"), "READY");
}

/// F11: a daemon that stood still catches up with what happened meanwhile.
#[test]
fn f11_a_daemon_that_stood_still_tells_what_happened_meanwhile() {
    let mut ground = Ground::new();
    ground.start();
    ground.create("demo");
    let exec = ground.detach("demo", "for i in $(seq 1 50); do echo $i; sleep 0.02; done; exit 7");
    let daemon = open_process(ground.daemon());
    pidfd_send_signal(&daemon, Signal::STOP).unwrap();
    let log = ground.only_sandbox().join(format!("out/{exec}.stdout.log"));
    super::ground::must(std::process::Command::new("timeout").args(["60", "sh", "-c"]).args([
        "until [ \"$(tail -n 1 \"$0\")\" = 50 ]; do sleep 0.05; done",
        log.to_str().unwrap(),
    ]));
    pidfd_send_signal(&daemon, Signal::CONT).unwrap();
    assert_eq!(ground.output(&exec).lines().count(), 50);
    let events = ground.events("demo");
    assert_eq!(events.last().unwrap()["exit_code"], 7, "{events:?}");
}

/// F55, F57: those who follow a sandbox are told the same, also over the end of the server, and one
/// who does not read holds up nobody.
#[test]
fn f57_many_followers_are_told_the_same_and_one_that_does_not_read_holds_up_nobody() {
    let mut ground = Ground::new();
    ground.start();
    ground.create("demo");
    let follow = |ground: &Ground| {
        let mut command = ground.command(&["events", "demo", "--follow", "--json"]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
        command.spawn().unwrap()
    };
    let idle = follow(&ground);
    pidfd_send_signal(open_process(idle.id()), Signal::STOP).unwrap();
    let followers: Vec<_> = (0..30).map(|_| follow(&ground)).collect();
    for _ in 0..5 {
        assert_eq!(ground.shell("demo", "true").code, Some(0));
    }
    ground.kill();
    ground.start();
    assert_eq!(ground.ask(&["rm", "demo"]).code, Some(0));
    let expected = ground.ask(&["events", "demo", "--json"]).out;
    for mut follower in followers {
        let told = crate::command::read_rest(follower.stdout.take().unwrap());
        assert_eq!(told, expected);
        assert!(follower.wait().unwrap().success());
    }
    pidfd_send_signal(open_process(idle.id()), Signal::CONT).unwrap();
    let told = idle.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(told.stdout).unwrap(), expected);
}

/// F02: a server that dies while it makes a body for a sandbox that had one has lost none of its files.
#[test]
fn f02_files_are_there_after_a_server_was_killed_over_a_resume() {
    let mut ground = Ground::new();
    ground.start();
    ground.create("demo");
    assert_eq!(ground.shell("demo", "echo kept > note").code, Some(0));
    let places = ["c.supervisor_recorded", "c.dirs", "c.plan_sent"];
    for (index, place) in places.into_iter().enumerate() {
        assert_eq!(ground.ask(&["stop", "demo"]).code, Some(0), "{place}");
        ground.stop();
        let mut dying = ringfence(&[]);
        // Else it would die over what it prepares.
        dying.env("RF_FAILPOINT", place).env("RINGFENCE_SANDBOXES__PREPARED", "0");
        ground.start_by(dying);
        assert!(!ground.patiently(&["resume", "demo"]), "{place}");
        ground.kill_rest();
        ground.start();
        ground.until_ready_again("demo", index + 2);
        assert_eq!(ground.shell("demo", "cat note").out, "kept\n", "{place}\n{}", ground.log());
    }
    assert_eq!(ground.ask(&["rm", "demo"]).code, Some(0));
}

/// F02: a server that dies while it gives a sandbox what was made in advance has either not accepted it, or
/// the next one makes it as it was accepted.
#[test]
fn f02_what_was_made_in_advance_is_a_sandboxs_or_is_made_anew() {
    let mut ground = Ground::new();
    for (place, times) in [("c.made_early", 1), ("c.plan_sent", 2), ("c.dirs", 1)] {
        for round in 0..times {
            let mut dying = ringfence(&[]);
            dying.env("RF_FAILPOINT", place);
            ground.start_by(dying);
            ground.until_stocked();
            let name = format!("demo-{}-{round}", place.trim_start_matches("c.").replace('_', "-"));
            assert!(!ground.patiently(&["create", "--image", "host", "--name", &name]), "{place}");
            ground.kill_rest();
            ground.start();
            let is_accepted = ground.ask(&["events", &name, "--json"]).code == Some(0);
            if !is_accepted {
                ground.create(&name);
            }
            ground.until_ready(&name);
            // When this is over it has a folder for output, if it is made anew.
            let told = || ground.ask(&["events", &name, "--json"]).out;
            let said = ground.shell(&name, "true");
            assert_eq!(said.code, Some(0), "{place} {said:?}\n{}\n{}", told(), ground.log());
            let said = ground.shell(&name, "echo here");
            assert_eq!(said.out, "here\n", "{place} {said:?}\n{}\n{}", told(), ground.log());
            assert_eq!(ground.ask(&["rm", &name]).code, Some(0));
            ground.stop();
        }
    }
}
