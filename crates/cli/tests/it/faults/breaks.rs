//! Tasks of sandboxes that break off, and sandboxes that cannot be removed.

use std::fs;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::ground::Ground;
use crate::command::ringfence;

/// A word of a caller's. It must be in no log.
const SECRET: &str = "swordfish";

/// F07: whoever waits for the task that breaks off is told so; all that was asked for is done once,
/// and what is asked for next works.
#[test]
fn f07_a_task_that_breaks_off_over_a_creation_is_followed_by_another_and_nobody_notices() {
    // The first time is the other sandbox's.
    for place in ["c.prepared", "c.connected", "c.ready_handshake", "c.active_event"] {
        break_off_at(place, 2);
    }
}

#[test]
fn f07_a_task_that_breaks_off_over_a_command_is_followed_by_another_and_others_go_on() {
    // The other sandbox has a command that runs all the time.
    for (place, time) in [("e.row", 2), ("e.asked", 2), ("e.exit_seen", 1), ("e.log_synced", 1)] {
        break_off_at(place, time);
    }
}

#[test]
fn f07_a_task_that_breaks_off_over_an_end_is_followed_by_another_and_others_go_on() {
    for place in ["e.terminal_event", "d.intent", "d.terminal_event"] {
        break_off_at(place, 1);
    }
}

fn break_off_at(place: &str, time: u32) {
    let mut ground = Ground::new();
    let mut server = ringfence(&[]);
    server.env("RF_FAILPOINT", format!("panic:{place}:{time}"));
    ground.start_by(server);
    ground.create("other");
    let long = ground.detach("other", "for i in $(seq 1 100); do echo $i; sleep 0.02; done");
    ground.create("demo");

    let said = ground.shell("demo", &format!("echo {SECRET} >> note; echo one"));
    match place {
        "e.row" | "e.asked" => assert!(said.err.contains("broke off"), "{place}: {said:?}"),
        _ => assert_eq!((said.code, &*said.out), (Some(0), "one\n"), "{place}: {said:?}"),
    }
    // What was accepted is run once, although nobody was told so.
    let script = "until [ -s note ]; do sleep 0.02; done; wc -l < note";
    let said = ground.shell("demo", script);
    assert_eq!((said.code, &*said.out), (Some(0), "1\n"), "{place}: {said:?}");

    let said = ground.ask(&["rm", "demo"]);
    match place {
        "d.intent" => assert!(said.err.contains("broke off"), "{place}: {said:?}"),
        _ => assert_eq!(said.code, Some(0), "{place}: {said:?}"),
    }
    // Told until the sandbox is gone, every event once.
    let said = ground.ask(&["events", "demo", "--follow", "--json"]);
    assert_eq!(said.code, Some(0), "{place}: {said:?}");
    let ends = said.out.lines().filter(|line| line.contains("\"EXEC_FINISHED\"")).count();
    assert_eq!(ends, 2, "{place}: {}", said.out);

    let numbers: String = (1..=100).map(|number| format!("{number}\n")).collect();
    assert_eq!(ground.output(&long), numbers, "{place}");
    assert_eq!(ground.state("other"), "READY", "{place}");
    let log = ground.log();
    assert_eq!(log.matches("its task broke off").count(), 1, "{place}: {log}");
    assert!(!log.contains(SECRET), "{place}: {log}");
}

/// F25: a sandbox that cannot be removed is told once and keeps its name; others go on, and it is
/// gone when what held it is.
#[test]
fn f25_what_cannot_be_removed_is_set_aside_and_goes_when_it_can() {
    harness::needs::require_root();
    let mut ground = Ground::with_disk(64);
    ground.start();
    ground.create("held");
    let folder = ground.only_sandbox();
    let file = folder.join("out/held");
    let file = fs::File::create(file).unwrap();
    // By its descriptor, because whoever tries to remove it moves it about.
    let make_immutable = |is_immutable| {
        let mut flags = ioctl_getflags(&file).unwrap();
        flags.set(IFlags::IMMUTABLE, is_immutable);
        ioctl_setflags(&file, flags).unwrap();
    };
    make_immutable(true);
    ground.create("other");
    let removing = ["rm", "held"];
    let mut first = ground.command(&removing).spawn().unwrap();
    while !ground.log().contains("set aside") {
        assert_eq!(ground.shell("other", "echo here").out, "here\n");
        assert_eq!(ground.state("held"), "DELETING");
    }
    // Far longer than a few tries take.
    assert_eq!(ground.shell("other", "sleep 2; echo here").out, "here\n");
    assert_eq!(ground.state("held"), "DELETING");
    let again = ground.ask(&["create", "--image", "host", "--name", "held"]);
    assert!(
        again.code != Some(0) && again.err.contains("another sandbox has this name"),
        "{again:?}"
    );
    let log = ground.log();
    assert_eq!(log.matches("set aside").count(), 1, "{log}");

    make_immutable(false);
    let said = ground.ask(&["events", "held", "--follow", "--json"]);
    assert!(said.code == Some(0) && said.out.contains("DELETED"), "{said:?}");
    assert!(first.wait().unwrap().success());
    assert!(!folder.exists());
    assert!(ground.log().contains("cleared away at last"));
}
