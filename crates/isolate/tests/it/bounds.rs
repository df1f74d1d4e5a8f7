//! What bounds a command: its time, the room for its output, and how much can be said of it.

use std::{os::fd::AsFd as _, time::Duration};

use harness::supervisor::start_supervisor;
use isolate::{
    plan::Exit,
    supervisor::{
        large,
        wire::{self, Ask, End, Input, Start, Wanted},
    },
};
use rustix::net::SendFlags;

use crate::supervisor::{Daemon, exit_of, shell};

#[test]
fn a_command_is_killed_at_the_end_of_its_time_and_only_then() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    let limited = |exec: &str, code: &str, at_most| Start {
        at_most: Some(Duration::from_millis(at_most)),
        ..shell(exec, code)
    };
    let slow = limited("slow", "trap '' TERM; echo begun; (sleep 1000 & sleep 1000)", 2000);
    daemon.ask(&Ask::Start(Box::new(slow)));
    let End::TimedOut { written, .. } = daemon.end("slow") else { panic!() };
    assert_eq!(written.stdout.end, 6);
    daemon.ask(&Ask::Start(Box::new(limited("fast", "exit 3", 60_000))));
    assert_eq!(exit_of(&daemon.end("fast")), Exit::Code(3));
    // A daemon need not be there.
    daemon.ask(&Ask::Start(Box::new(limited("alone", "echo begun; sleep 1000", 2000))));
    daemon.written("alone", 6);
    drop(daemon);
    let (mut daemon, known) = Daemon::greet(&supervisor);
    let end = known.into_iter().find(|known| known.exec == "alone").and_then(|known| known.end);
    assert!(matches!(end.unwrap_or_else(|| daemon.end("alone")), End::TimedOut { .. }));
}

#[test]
fn a_command_that_is_given_no_input_reads_the_end_at_once() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    let start = Start { input: Input::Closed, ..shell("cat", "cat; echo over") };
    daemon.ask(&Ask::Start(Box::new(start)));
    assert_eq!(exit_of(&daemon.end("cat")), Exit::Code(0));
    assert_eq!(supervisor.output("cat", "stdout").unwrap(), b"over\n");
}

/// So much is kept, and so much written.
const KEPT: u64 = 2 << 20;
const WRITTEN: u64 = 16 << 20;

#[test]
fn what_somebody_wants_to_read_is_kept_and_the_command_waits_meanwhile() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    let code = format!("read go; head -c {WRITTEN} /dev/zero; echo over");
    let wanted = Some(Wanted::default());
    let start = Start { keep: KEPT, wanted, ..shell("zeros", &code) };
    daemon.ask(&Ask::Start(Box::new(start)));
    let pace =
        |stdout| Ask::Pace { exec: "zeros".into(), wanted: Some(Wanted { stdout, stderr: 0 }) };
    let input = crate::supervisor::open_input(&mut daemon, "zeros").unwrap();
    rustix::io::write(&input, b"go\n").unwrap();
    let mut seen = 0;
    // The last of it may come with its end.
    while seen + KEPT < WRITTEN {
        // It stops when there is no more room, and goes on when something was read.
        daemon.written("zeros", seen + KEPT);
        seen += KEPT;
        daemon.ask(&pace(seen));
    }
    daemon.ask(&pace(WRITTEN));
    let End::Exited { exit: Exit::Code(0), written, .. } = daemon.end("zeros") else { panic!() };
    assert_eq!((written.stdout.end, written.stdout.lost), (WRITTEN + 5, 0));
    let file = supervisor.output("zeros", "stdout").unwrap();
    assert!(file.ends_with(b"\0over\n"));
}

#[test]
fn without_anybody_who_wants_it_the_oldest_output_goes() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    let start = Start { keep: KEPT, ..shell("zeros", &format!("head -c {WRITTEN} /dev/zero")) };
    daemon.ask(&Ask::Start(Box::new(start)));
    let End::Exited { written, .. } = daemon.end("zeros") else { panic!() };
    assert_eq!(written.stdout.end, WRITTEN);
    assert!(written.stdout.start >= WRITTEN - KEPT - (2 << 20), "{written:?}");
}

#[test]
fn a_command_that_is_too_long_for_a_packet_comes_in_a_file() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    let text = "x".repeat(100_000);
    let start = Start {
        argv: ["sh", "-c", "echo ${#1} ${#2}", "sh", &text, &text].map(Into::into).into(),
        ..shell("long", "")
    };
    let file = large::pack(&wire::encode(&Ask::Start(Box::new(start))).unwrap()).unwrap();
    let packet = wire::encode(&Ask::InFile).unwrap();
    daemon.socket.send(&packet, &[file.as_fd()], SendFlags::empty()).unwrap();
    assert_eq!(exit_of(&daemon.end("long")), Exit::Code(0));
    assert_eq!(supervisor.output("long", "stdout").unwrap(), b"100000 100000\n");
}

#[test]
fn the_output_of_a_forgotten_command_is_removed_when_it_is_asked_for() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    daemon.start("ex_1", "echo out");
    daemon.end("ex_1");
    daemon.ask(&Ask::Clear { exec: "ex_1".into() });
    daemon.start("ex_2", "true");
    daemon.end("ex_2");
    assert_eq!(supervisor.output("ex_1", "stdout").unwrap(), b"out\n");
    daemon.ask(&Ask::Forget { exec: "ex_1".into() });
    for exec in ["ex_1", "../journal"] {
        daemon.ask(&Ask::Clear { exec: exec.into() });
    }
    daemon.start("ex_3", "true");
    daemon.end("ex_3");
    assert!(supervisor.output("ex_1", "stdout").is_err());
}
