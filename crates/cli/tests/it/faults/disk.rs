//! A disk that is full, broken, slow, cut off, or may not be written to.

use std::{
    fs::{self, File},
    process::{Child, Command, Stdio},
};

use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};

use super::ground::{Ground, Strace, must};
use crate::command::{ringfence, signal};

/// A command that writes numbers for some seconds, and its output.
const NUMBERS: &str = "i=0; while [ $i -lt 150 ]; do i=$((i+1)); echo $i; sleep 0.02; done; exit 7";

fn numbers() -> String {
    (1..=150).map(|number| format!("{number}\n")).collect()
}

/// Takes what room there is.
fn fill(path: &std::path::Path) {
    let file = File::create(path).unwrap();
    let (mut step, mut at) = (32 << 20, 0);
    while step >= 4096 {
        match fallocate(&file, FallocateFlags::empty(), at, step) {
            Ok(()) => at += step,
            Err(error) => {
                assert_eq!(error, Errno::NOSPC);
                step /= 2;
            }
        }
    }
}

/// F15, F58.
#[test]
fn f15_on_a_full_disk_new_work_is_refused_and_the_same_server_goes_on_when_there_is_room() {
    harness::needs::require_root();
    let mut ground = Ground::with_disk(96);
    ground.start();
    ground.create("demo");
    ground.create("other");
    let exec = ground.detach("demo", NUMBERS);
    // The first line takes the room that all of them need.
    let begun = "until [ -s \"$0\"/sandboxes/*/out/\"$1\".stdout.log ]; do sleep 0.02; done";
    must(Command::new("timeout").args(["60", "sh", "-c", begun]).arg(&ground.data).arg(&exec));
    let daemon = ground.daemon();
    let balloon = ground.data.join("balloon");
    fill(&balloon);

    let mut accepted = Vec::new();
    let refused = loop {
        assert!(accepted.len() < 300, "the disk has no end");
        let name = format!("late-{}", accepted.len());
        let said = ground.ask(&["create", "--image", "host", "--no-wait", "--name", &name]);
        match said.code {
            Some(0) => accepted.push(name),
            _ => break said,
        }
    };
    assert!(refused.err.contains("the disk of the store is full"), "{refused:?}");
    // A command is less to keep than a sandbox: some may still fit.
    let refused = (0..300).map(|_| ground.shell("demo", "true")).find(|said| said.code != Some(0));
    let refused = refused.expect("the disk has no end");
    assert!(refused.err.contains("the disk of the store is full"), "{refused:?}");
    // What runs ends, and what is not needed can be deleted.
    ground.until_ended("demo", &exec);
    let mut events = ground.events("demo");
    events.retain(|event| event["exec_id"] == exec.as_str());
    let end = events.pop().unwrap();
    assert_eq!((&end["exec_state"], &end["exit_code"]), (&"FAILED".into(), &7.into()), "{end}");
    assert_eq!(ground.ask(&["rm", "other"]).code, Some(0));
    for name in &accepted {
        assert_ne!(ground.state(name), "none", "{name} was accepted and is lost");
    }

    fs::remove_file(&balloon).unwrap();
    // A token for the output is on record before it is given out, so reading has to wait for room, and nothing is lost.
    let ended = ground.ask(&["logs", &exec, "--follow"]);
    assert_eq!((ended.code, ended.out), (Some(0), numbers()), "{}", ended.err);
    ground.create("again");
    assert_eq!(ground.shell("demo", "echo here").out, "here\n");
    assert_eq!(ground.daemon(), daemon, "it is the same server");
}

/// F15: output is whole, or the difference is told in bytes.
#[test]
fn f15_output_that_a_full_disk_did_not_take_is_told_in_bytes() {
    harness::needs::require_root();
    let mut ground = Ground::with_disk(96);
    ground.start();
    ground.create("demo");
    // By then the disk is full.
    let exec = ground.detach("demo", "sleep 10; head -c 20000000 /dev/zero");
    fill(&ground.data.join("balloon"));
    let kept = ground.ask(&["logs", &exec, "--follow"]).out.len();
    let end = ground.events("demo").pop().unwrap();
    assert_eq!((&end["exec_state"], &end["exit_code"]), (&"FINISHED".into(), &0.into()), "{end}");
    assert_eq!(end["error_code"], "OUTPUT_LOST", "{end}");
    let message = end["error_message"].as_str().unwrap();
    let lost: usize = message.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(kept + lost, 20_000_000, "{message}");
}

/// Changes what system calls of the daemon come to, until it is dropped.
struct Injection(Strace);

impl Injection {
    fn begin(ground: &Ground, what: &str) -> Self {
        Self(Strace::inject(ground.daemon(), "fsync,fdatasync", what))
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        signal(self.0.child.id(), "INT");
        let _ = self.0.child.wait();
    }
}

/// F18: what the disk may have dropped is never acknowledged, also not later.
#[test]
fn f18_after_an_error_of_the_disk_nothing_is_acknowledged_until_the_next_start() {
    harness::needs::require_root();
    let mut ground = Ground::new();
    ground.start();
    ground.create("demo");
    let exec = ground.detach("demo", NUMBERS);
    assert_eq!(ground.get("/readyz").0, 200);
    let injection = Injection::begin(&ground, "error=EIO");
    for name in ["lost-1", "lost-2"] {
        let refused = ground.ask(&["create", "--image", "host", "--no-wait", "--name", name]);
        assert!(refused.err.contains("takes no more writes"), "{refused:?}");
    }
    drop(injection);
    // The disk is well again, and what it has is still not known.
    let refused = ground.ask(&["create", "--image", "host", "--no-wait", "--name", "lost-3"]);
    assert!(refused.err.contains("takes no more writes"), "{refused:?}");
    let (status, text) = ground.get("/readyz");
    assert_eq!(status, 503, "{text}");
    assert_eq!(ground.state("demo"), "READY");

    ground.stop();
    ground.start();
    assert_eq!(ground.get("/readyz").0, 200);
    // The command went on, and its end was not told before it could be kept.
    assert_eq!(ground.output(&exec), numbers());
    let end = ground.events("demo").pop().unwrap();
    assert_eq!((&end["exec_state"], &end["exit_code"]), (&"FAILED".into(), &7.into()), "{end}");
    assert_eq!(ground.state("lost-2"), "none");
    assert_eq!(ground.state("lost-3"), "none");
    ground.create("again");
}

/// F19: who waits for the disk holds up nobody else.
#[test]
fn f19_a_slow_disk_holds_up_only_those_who_wait_for_it() {
    harness::needs::require_root();
    let mut ground = Ground::new();
    ground.start();
    ground.create("demo");
    let injection = Injection::begin(&ground, "delay_enter=2000000");
    let mut waiting: Vec<Child> = (0..4)
        .map(|number| {
            let name = format!("slow-{number}");
            let arguments = ["create", "--image", "host", "--no-wait", "--name", &name];
            ground.command(&arguments).stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let mut asked = 0;
    while waiting.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        assert_eq!(ground.get("/healthz").0, 200);
        asked += 1;
    }
    // Whoever waited for the disk as well would have had one answer for each of its writes.
    assert!(asked > 2 * waiting.len(), "{asked}");
    for mut child in waiting {
        assert!(child.wait().unwrap().success());
    }
    drop(injection);
    assert_eq!(ground.shell("demo", "echo here").out, "here\n");
}

/// F20.
#[test]
fn f20_data_that_cannot_be_written_to_is_refused_at_the_start() {
    harness::needs::require_root();
    let mut ground = Ground::with_disk(64);
    ground.start();
    ground.create("demo");
    ground.stop();
    harness::remove_sandboxes(&ground.data.join("sandboxes")).unwrap();
    ground.unmount();
    ground.mount(&["-o", "ro"]);
    let ended = ground.try_start(ringfence(&[])).unwrap_err();
    assert!(ended.contains("125"), "{ended}");
    let log = ground.log();
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains("Read-only file system"), "{last}");
    ground.unmount();
    ground.mount(&[]);
}

/// F12, F20: from one moment on nothing reaches the disk any more, and what was not synced is lost.
#[test]
fn f12_what_was_acknowledged_is_there_after_the_power_was_cut() {
    harness::needs::require_root();
    let mut ground = Ground::with_disk(96);
    ground.start();
    ground.create("demo");
    let exec = ground.detach("demo", "seq 1 20000; exit 7");
    assert_eq!(ground.output(&exec).lines().count(), 20000);
    let names: Vec<String> = (0..6).map(|number| format!("kept-{number}")).collect();
    for name in &names {
        let said = ground.ask(&["create", "--image", "host", "--no-wait", "--name", name]);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    cut_power(&ground.data);
    let refused = ground.ask(&["create", "--image", "host", "--no-wait", "--name", "lost"]);
    assert!(refused.err.contains("takes no more writes"), "{refused:?}");
    assert_eq!(ground.get("/readyz").0, 503);

    let sandboxes = folders(&ground.data);
    ground.kill();
    kill_all(&sandboxes);
    ground.unmount();
    ground.mount(&[]);
    ground.start();
    for name in &names {
        assert_ne!(ground.state(name), "none", "{name}");
    }
    let status = ground.events("demo");
    let end = status.iter().find(|event| event["exit_code"] == 7);
    assert!(end.is_some(), "{status:?}");
    assert_eq!(ground.output(&exec).lines().count(), 20000, "a command that ended is whole");
    ground.create("again");
}

/// Has the file system drop everything that is not on its disk, and take nothing more.
fn cut_power(data: &std::path::Path) {
    let script = "import fcntl, os, struct, sys\n\
                  EXT4_IOC_SHUTDOWN, WITHOUT_FLUSH = 0x8004587D, 2\n\
                  folder = os.open(sys.argv[1], os.O_RDONLY)\n\
                  fcntl.ioctl(folder, EXT4_IOC_SHUTDOWN, struct.pack('I', WITHOUT_FLUSH))\n";
    must(Command::new("/usr/bin/python3").args(["-c", script]).arg(data));
}

fn folders(data: &std::path::Path) -> Vec<String> {
    let all = fs::read_dir(data.join("sandboxes")).unwrap();
    all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Kills every process of these sandboxes, and waits until they are gone.
pub(super) fn kill_all(sandboxes: &[String]) {
    for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let group = fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        let is_supervisor = fs::read_link(entry.path().join("exe"))
            .is_ok_and(|exe| exe.to_string_lossy().starts_with("/memfd:init"));
        if !is_supervisor || !sandboxes.iter().any(|sandbox| group.contains(sandbox.as_str())) {
            continue;
        }
        let process = crate::command::open_process(u32::try_from(pid).unwrap());
        rustix::process::pidfd_send_signal(&process, rustix::process::Signal::KILL)
            .unwrap_or_default();
        assert!(crate::command::gone(&process));
    }
}
