//! A slot stops where it stands, goes on as if nothing had been, and can be killed meanwhile.
//!
//! Each test goes through every freezer that this machine has.

use std::{io::Read as _, time::Duration};

use isolate::{
    cgroup::handles::{FreezeError, Handles},
    plan::Exit,
    wire::Command,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::ioctl_fionbio,
};

use crate::host::{Host, Run, Running, SHELL, command, let_in};

/// Counts as fast as it is read. No process but the shell, which never waits for another.
const COUNT: Run<'_> = Run { code: "while :; do i=$((i+1)); echo $i; done", ..SHELL };

/// Has more to say than a pipe holds, so it is there until it is read.
const COUNT_TO_THE_END: Run<'_> =
    Run { code: "while [ \"$i\" != 20000 ]; do i=$((i+1)); echo $i; done; exit 3", ..SHELL };

/// Counts in a shell below the program's own, with a stopped and a deaf one beside it. The sleeper is in
/// the background: for one in the foreground dash waits in vfork, and the freezer of v1 would never say
/// that it stands still.
const FAMILY: Run<'_> = Run {
    code: "trap '' HUP INT QUIT TERM
        sh -c 'kill -STOP $$' &
        (while :; do sleep 1000 & wait; done) &
        sh -c 'while :; do i=$((i+1)); echo $i; done'",
    ..SHELL
};

const LONG: Duration = Duration::from_mins(1);

/// Long enough for a program that runs to write many times, also on a slow machine.
const MOMENT: Duration = Duration::from_millis(200);

/// Starts the program and waits until it has written something.
fn start(host: &mut Host, run: &Run<'_>) -> (u64, Running) {
    let (slot, ends) = host.make(run);
    let mut running = let_in(ends, run).unwrap();
    running.wait_for_output("1\n2\n3\n");
    (slot, running)
}

/// Freezes the slot and waits until the kernel reports that all of it is frozen.
fn freeze(host: &Host, cgroup: &Handles) {
    harness::needs::require("cgroups", host.has_cgroups());
    cgroup.freeze().unwrap();
    cgroup.wait_until_frozen(LONG).unwrap();
}

/// Whether there is something to read within that time.
fn writes_within(running: &Running, time: Duration) -> bool {
    let time = Timespec::try_from(time).unwrap();
    poll(&mut [PollFd::new(&running.stdout, PollFlags::IN)], Some(&time)).unwrap() > 0
}

/// Reads what is in the pipe now.
fn read_dry(running: &mut Running, bytes: &mut Vec<u8>) {
    ioctl_fionbio(&running.stdout, true).unwrap();
    let end = running.stdout.read_to_end(bytes).unwrap_err();
    assert_eq!(end.kind(), std::io::ErrorKind::WouldBlock);
    ioctl_fionbio(&running.stdout, false).unwrap();
}

/// Whether the numbers go on from 4 without a gap. The last one may be cut.
fn counts_on(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.pop();
    lines.iter().zip(4..).all(|(line, number)| line.parse() == Ok(number))
}

#[test]
fn a_frozen_program_stops_and_goes_on_where_it_was() {
    for mut host in Host::start_on_each_freezer() {
        let (_, mut running) = start(&mut host, &COUNT);
        freeze(&host, &running.cgroup);
        let mut bytes = Vec::new();
        read_dry(&mut running, &mut bytes);
        assert!(!writes_within(&running, MOMENT));
        running.cgroup.thaw().unwrap();
        for _ in 0..10 {
            assert!(writes_within(&running, LONG));
            read_dry(&mut running, &mut bytes);
        }
        assert!(counts_on(&bytes), "{}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn a_frozen_slot_is_killed_like_any_other() {
    for mut host in Host::start_on_each_freezer() {
        let before = host.traces();
        let (slot, running) = start(&mut host, &FAMILY);
        freeze(&host, &running.cgroup);
        running.cgroup.kill().unwrap();
        command(&running.control, &Command::Kill);
        assert_eq!(running.finish().unwrap().exit, Exit::Signal(9));
        host.wait_until_gone(slot);
        assert_eq!(host.traces(), before);
    }
}

#[test]
fn a_frozen_slot_ends_when_it_is_let_go() {
    for mut host in Host::start_on_each_freezer() {
        let before = host.traces();
        let (slot, running) = start(&mut host, &FAMILY);
        freeze(&host, &running.cgroup);
        drop(running);
        host.wait_until_gone(slot);
        assert_eq!(host.traces(), before);
    }
}

#[test]
fn the_spawner_ends_a_frozen_slot() {
    for mut host in Host::start_on_each_freezer() {
        let before = host.traces();
        let (slot, mut running) = start(&mut host, &FAMILY);
        freeze(&host, &running.cgroup);
        host.destroy(slot);
        host.wait_until_gone(slot);
        assert_eq!(host.traces(), before);
        running.read_to_end();
    }
}

#[test]
fn frozen_slots_end_with_their_spawner() {
    for mut host in Host::start_on_each_freezer() {
        let (_, mut running) = start(&mut host, &FAMILY);
        freeze(&host, &running.cgroup);
        drop(host);
        running.read_to_end();
    }
}

#[test]
fn freezing_and_thawing_twice_is_doing_it_once() {
    for mut host in Host::start_on_each_freezer() {
        let (slot, running) = start(&mut host, &COUNT_TO_THE_END);
        for _ in 0..2 {
            freeze(&host, &running.cgroup);
        }
        for _ in 0..2 {
            running.cgroup.thaw().unwrap();
            assert_eq!(running.cgroup.is_frozen(), Ok(false));
        }
        let ran = running.finish().unwrap();
        assert_eq!((ran.stdout.lines().last(), ran.exit), (Some("20000"), Exit::Code(3)));
        host.wait_until_gone(slot);
    }
}

#[test]
fn thawing_what_was_never_frozen_changes_nothing() {
    for mut host in Host::start_on_each_freezer() {
        harness::needs::require("cgroups", host.has_cgroups());
        let (_, running) = start(&mut host, &COUNT);
        assert_eq!(running.cgroup.thaw(), Ok(()));
        assert!(writes_within(&running, LONG));
    }
}

#[test]
fn without_cgroups_freezing_is_refused_and_the_program_goes_on() {
    let mut host = Host::start_with_soft_limits();
    assert!(!host.has_cgroups());
    let (_, running) = start(&mut host, &COUNT);
    assert_eq!(running.cgroup.freeze(), Err(FreezeError::NoFreezer));
    assert_eq!(running.cgroup.is_frozen(), Err(FreezeError::NoFreezer));
    assert_eq!(running.cgroup.thaw(), Err(FreezeError::NoFreezer));
    assert!(writes_within(&running, LONG));
}
