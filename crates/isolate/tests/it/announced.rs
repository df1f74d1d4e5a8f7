//! A command that is announced is made ready, and begins when it is asked for and not before.

use std::io::Write as _;

use harness::supervisor::start_supervisor;
use isolate::{
    plan::{Broken, Exit, Step},
    supervisor::wire::{Ask, End, Start},
};

use crate::supervisor::{Daemon, exit_of, open_input, shell};

fn announce(daemon: &mut Daemon, start: &Start) {
    daemon.ask(&Ask::Prepare(Box::new(start.clone())));
}

#[test]
fn an_announced_command_begins_when_it_is_asked_for() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    let start = shell("ex_1", "echo $WHO; exit 3");
    announce(&mut daemon, &start);
    daemon.ask(&Ask::Start(Box::new(start)));
    assert_eq!(exit_of(&daemon.end("ex_1")), Exit::Code(3));
    assert_eq!(supervisor.output("ex_1", "stdout").unwrap(), b"me\n");
}

#[test]
fn an_announced_command_that_is_not_asked_for_never_begins() {
    let mut supervisor = start_supervisor().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let marking = shell("ex_1", &format!("echo > {}", mark.display()));
    let (mut daemon, _) = Daemon::greet(&supervisor);
    announce(&mut daemon, &marking);
    announce(&mut daemon, &shell("ex_2", "echo 2"));
    daemon.start("ex_3", "echo 3");
    assert_eq!(exit_of(&daemon.end("ex_3")), Exit::Code(0));
    announce(&mut daemon, &marking);
    drop(daemon);
    let (mut daemon, known) = Daemon::greet(&supervisor);
    assert_eq!(known.len(), 1, "{known:?}");
    announce(&mut daemon, &marking);
    daemon.ask(&Ask::Stop { grace: std::time::Duration::from_secs(10) });
    assert!(supervisor.wait().unwrap().success());
    assert!(!mark.exists());
    assert!(supervisor.output("ex_1", "stdout").is_err());
    assert!(supervisor.output("ex_2", "stdout").is_err());
}

#[test]
fn what_is_asked_for_is_what_begins_whatever_was_announced() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    announce(&mut daemon, &shell("ex_1", "echo announced"));
    daemon.start("ex_1", "echo asked for");
    assert_eq!(exit_of(&daemon.end("ex_1")), Exit::Code(0));
    assert_eq!(supervisor.output("ex_1", "stdout").unwrap(), b"asked for\n");
    // To announce what has run already takes nothing of it away.
    announce(&mut daemon, &shell("ex_1", "echo again"));
    daemon.ask(&Ask::Forget { exec: "ex_1".into() });
    announce(&mut daemon, &shell("ex_1", "echo again"));
    daemon.start("ex_2", "true");
    daemon.end("ex_2");
    assert_eq!(supervisor.output("ex_1", "stdout").unwrap(), b"asked for\n");
}

#[test]
fn what_breaks_while_it_is_made_ready_is_told_when_it_is_asked_for() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    let start = Start { directory: "/no/such".into(), ..shell("ex_1", "true") };
    announce(&mut daemon, &start);
    daemon.ask(&Ask::Start(Box::new(start)));
    let broken = Broken { step: Step::Directory, errno: libc::ENOENT };
    assert_eq!(daemon.end("ex_1"), End::NotStarted(broken));
}

/// Somebody inside may end what was made ready, and what it was to be forked from.
#[test]
fn a_command_begins_although_what_was_made_ready_for_it_was_killed() {
    let supervisor = start_supervisor().unwrap();
    let (mut daemon, _) = Daemon::greet(&supervisor);
    for round in 0..20 {
        let killer = format!("kill_{round}");
        // Everybody but itself, and then until they are gone.
        let code = "read _; for it in $(seq 2 400); do \
                    [ $it = $$ ] || ! kill -9 $it 2> /dev/null || gone=\"$gone $it\"; done; \
                    for it in $gone; do while kill -0 $it 2> /dev/null; do :; done; done; kill -9 $$";
        daemon.start(&killer, code);
        let mut input = std::fs::File::from(open_input(&mut daemon, &killer).unwrap());
        let exec = format!("ex_{round}");
        let start = shell(&exec, "echo begun");
        announce(&mut daemon, &start);
        input.write_all(b"now\n").unwrap();
        assert_eq!(exit_of(&daemon.end(&killer)), Exit::Signal(libc::SIGKILL));
        daemon.ask(&Ask::Start(Box::new(start)));
        assert_eq!(exit_of(&daemon.end(&exec)), Exit::Code(0), "{round}");
        assert_eq!(supervisor.output(&exec, "stdout").unwrap(), b"begun\n");
    }
}
