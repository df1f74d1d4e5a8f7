//! Limits hold, whatever the program does, and each has its own sign.

use std::time::{Duration, Instant};

use isolate::{
    plan::Exit,
    posture::{CgroupVersion, Limits},
    wire::Command,
};

use crate::host::{Host, Run, SHELL, command, let_in};

const HOG: &str = "dd if=/dev/zero of=/dev/null bs=200M count=1 2>/dev/null";

fn with_memory(code: &str) -> Run<'_> {
    Run { code, memory: 64 << 20, ..SHELL }
}

/// A stage that brings its own machine or user says here what limits it must have.
#[test]
fn limits_are_held_by_what_this_machine_has() {
    let limits = Host::start().posture().limits.clone();
    let expected = std::env::var("RINGFENCE_TEST_LIMITS").unwrap_or_else(|_| {
        let is_root = rustix::process::getuid().is_root();
        if is_root { "cgroups".to_owned() } else { String::new() }
    });
    let found = match limits {
        Limits::Cgroups { version: CgroupVersion::V1, .. } => "cgroups v1",
        Limits::Cgroups { version: CgroupVersion::V2, .. } => "cgroups v2",
        Limits::Soft { .. } => "soft",
    };
    assert!(found.starts_with(&expected), "{limits:?}");
}

#[test]
fn a_program_within_its_memory_is_left_alone() {
    let ran = Host::start().run(&with_memory("head -c 20000000 /dev/zero | wc -c")).unwrap();
    assert_eq!((ran.stdout.trim(), ran.exit), ("20000000", Exit::Code(0)));
    assert!(!ran.ran_out_of_memory(), "{ran:?}");
}

#[test]
fn a_program_beyond_its_memory_is_ended_and_said_to_be() {
    let ran = Host::start().run(&with_memory(&format!("exec {HOG}"))).unwrap();
    assert_eq!((ran.exit, ran.ran_out_of_memory()), (Exit::Signal(9), true), "{ran:?}");
}

#[test]
fn a_child_beyond_the_memory_takes_the_program_down_with_it() {
    let code = format!("({HOG}); echo survived; sleep 100");
    let ran = Host::start().run(&with_memory(&code)).unwrap();
    assert!(ran.ran_out_of_memory(), "{ran:?}");
    assert_eq!(ran.exit, Exit::Signal(9));
}

#[test]
fn a_program_that_kills_itself_has_not_run_out_of_memory() {
    let ran = Host::start().run(&with_memory("kill -9 $$")).unwrap();
    assert_eq!((ran.exit, ran.ran_out_of_memory()), (Exit::Signal(9), false), "{ran:?}");
}

#[test]
fn files_in_the_writable_layer_count_as_memory() {
    let code = "head -c 60000000 /dev/zero > /dev/shm/a; head -c 60000000 /dev/zero > /tmp/b";
    let host = &mut Host::start();
    let ran = host.run(&with_memory(code)).unwrap();
    // Where init looks after the memory it sees that of processes alone.
    if host.has_cgroups() {
        assert!(ran.ran_out_of_memory(), "{ran:?}");
    }
}

#[test]
fn more_processes_than_allowed_cannot_be_started() {
    let code = "i=0; while [ $i -lt 100 ]; do sleep 100 & i=$((i+1)); echo $i; done";
    let ran = Host::start().run(&Run { code, max_processes: 20, ..SHELL }).unwrap();
    let started: usize = ran.stdout.lines().count();
    assert!((10..20).contains(&started), "{started} {ran:?}");
}

#[test]
fn the_disk_is_full_at_its_size() {
    let code = "dd if=/dev/zero of=/workspace/a bs=1M count=66; wc -c < /workspace/a";
    let ran = Host::start().run(&Run { code, ..SHELL }).unwrap();
    let size: u64 = ran.stdout.trim().parse().unwrap();
    assert!((60 << 20..=64 << 20).contains(&size), "{ran:?}");
    assert!(ran.stderr.to_lowercase().contains("no space left"), "{ran:?}");
}

#[test]
fn the_disk_is_full_at_its_number_of_files() {
    let code = "i=0; while : > /tmp/$i; do i=$((i+1)); done 2>/dev/null; echo $i";
    let ran = Host::start().run(&Run { code: &format!("({code}); ls /tmp | wc -l"), ..SHELL });
    let count: u64 = ran.unwrap().stdout.lines().last().unwrap().trim().parse().unwrap();
    assert!((16_000..16_384).contains(&count), "{count}");
}

#[test]
fn the_deadline_of_init_ends_a_program_when_the_daemon_says_nothing() {
    let at_most = Duration::from_millis(200);
    let code = "trap '' HUP INT QUIT TERM; while :; do sleep 100; done";
    let ran = Host::start().run(&Run { code, at_most, ..SHELL }).unwrap();
    assert_eq!(ran.exit, Exit::Signal(9));
}

/// On a busy machine everything takes longer now and then, and so the best of a few attempts counts.
#[test]
fn killing_takes_everything_down_within_a_second() {
    let mut host = Host::start();
    // Stopped, daemonised, deaf to signals, forking on: nobody gets away.
    let code = "trap '' HUP INT QUIT TERM
        (setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' &)
        sh -c 'kill -STOP $$' &
        (while :; do sh -c 'sleep 0.1 & sleep 1000' & sleep 0.01; done) 2>/dev/null &
        echo on; while :; do sleep 1000; done";
    let run = Run { code, ..SHELL };
    let mut attempt = || {
        let (slot, ends) = host.make(&run);
        let mut running = let_in(ends, &run).unwrap();
        running.wait_for_output("on\n");
        let begin = Instant::now();
        command(&running.control, &Command::Kill);
        let ran = running.finish().unwrap();
        assert_eq!(ran.exit, Exit::Signal(9));
        let took = begin.elapsed();
        host.wait_until_gone(slot);
        took
    };
    let times: Vec<_> = std::iter::repeat_with(&mut attempt).take(5).collect();
    assert!(times.iter().any(|time| *time < Duration::from_secs(1)), "{times:?}");
}

#[test]
fn the_spawner_ends_a_slot_whose_init_is_not_asked() {
    let mut host = Host::start();
    let run = Run { code: "sleep 1000", ..SHELL };
    let (slot, ends) = host.make(&run);
    let running = let_in(ends, &run).unwrap();
    host.destroy(slot);
    host.wait_until_gone(slot);
    drop(running);
}

#[test]
fn processor_time_is_measured() {
    let code = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let ran = Host::start().run(&Run { code, ..SHELL }).unwrap();
    let measured = ran.usage.cpu_time.max(ran.seen.cpu_time);
    assert!(measured > Duration::from_millis(10), "{ran:?}");
}

#[test]
fn the_memory_of_all_slots_together_is_limited_whatever_each_may_use() {
    let mut host = Host::start_with_total_memory(64 << 20);
    harness::needs::require("cgroups", matches!(host.posture().limits, Limits::Cgroups { .. }));
    let ran = host.run(&Run { code: HOG, memory: 1 << 30, ..SHELL }).unwrap();
    assert!(ran.ran_out_of_memory(), "200 MiB fit where all together have 64: {ran:?}");
    let fits =
        Host::start_with_total_memory(1 << 30).run(&Run { code: HOG, memory: 1 << 30, ..SHELL });
    assert_eq!(fits.unwrap().exit, Exit::Code(0));
}

#[test]
fn one_tenant_cannot_use_all_the_memory_that_tenants_share() {
    let mut host = Host::start_with_total_memory(224 << 20);
    harness::needs::require("cgroups", host.has_cgroups());
    let ran = host.run(&Run { code: HOG, memory: 1 << 30, ..SHELL }).unwrap();
    assert!(ran.ran_out_of_memory(), "200 of 224 MiB are more than seven eighths: {ran:?}");
}
