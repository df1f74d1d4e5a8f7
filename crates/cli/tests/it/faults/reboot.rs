//! Reboots of the machine, simulated: every process is killed, and what was written down about them is of
//! another boot.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{disk::kill_all, ground::Ground};
use crate::command::Said;

/// How many reboots the test of many cycles makes.
const CYCLES: &str = "RINGFENCE_REBOOT_CYCLES";

/// A sandbox of the test of many cycles is deleted after this many reboots.
const REBOOTS_OF_EACH: usize = 5;

/// Writes files of many kinds and sizes, then prints a line for every one: type, mode, owner, size, time and
/// link target, then the checksums of all contents.
const FILL: &str = r#"
set -eu
cd /workspace
mkdir -p deep/er/est empty "a name with spaces"
for size in 0 1 4095 4096 4097 65537 1000003; do head -c $size /dev/urandom > deep/$size; done
printf 'line\nwithout an end' > "a name with spaces/ümläut"
head -c 3000 /dev/urandom > deep/er/est/program && chmod 755 deep/er/est/program
truncate -s 3M sparse
ln -s ../nowhere deep/link && ln deep/4096 hard
echo home > ~/.profile-of-mine
sync
"#;

const LIST: &str = r"
cd / && find workspace home -printf '%y %m %u %g %s %T@ %p %l\n' | sort
find workspace home -type f -print0 | sort -z | xargs -0 sha256sum
";

fn list(ground: &Ground, sandbox: &str) -> String {
    let listed = ground.shell(sandbox, LIST);
    assert_eq!(listed.code, Some(0), "{listed:?}\n{}", ground.log());
    assert!(listed.out.lines().count() > 20, "{listed:?}");
    listed.out
}

fn fill(ground: &Ground, sandbox: &str) -> String {
    let filled = ground.shell(sandbox, FILL);
    assert_eq!(filled.code, Some(0), "{filled:?}\n{}", ground.log());
    list(ground, sandbox)
}

fn bodies(data: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(data.join("sandboxes")).unwrap().map(|entry| entry.unwrap());
    let named = all.filter(|entry| entry.file_name().to_string_lossy().starts_with("sb_"));
    named.map(|entry| entry.path()).collect()
}

/// Kills the server and every sandbox, has what is written down be of another boot, and starts the server.
fn reboot(ground: &mut Ground) {
    ground.kill();
    let folders = bodies(&ground.data);
    let names = folders.iter().map(|folder| folder.file_name().unwrap().to_string_lossy());
    kill_all(&names.map(std::borrow::Cow::into_owned).collect::<Vec<_>>());
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let boot = boot.trim().as_bytes();
    for body in folders.iter().map(|folder| folder.join("body")).filter(|body| body.exists()) {
        let mut bytes = fs::read(&body).unwrap();
        let Some(at) = bytes.windows(boot.len()).position(|part| part == boot) else { continue };
        bytes[at] = if boot[0] == b'0' { b'1' } else { b'0' };
        fs::write(&body, bytes).unwrap();
    }
    ground.start();
}

/// Follows a sandbox until its last event is of this type.
fn until(ground: &Ground, sandbox: &str, event_type: &str) -> Vec<Value> {
    loop {
        // A client is the clock.
        let events = ground.events(sandbox);
        if events.last().is_some_and(|event| event["event_type"] == event_type) {
            return events;
        }
    }
}

fn resume(ground: &Ground, sandbox: &str) {
    let said: Said = ground.ask(&["resume", sandbox]);
    assert_eq!(said.code, Some(0), "{said:?}\n{}", ground.log());
}

/// F30: a reboot stops a sandbox and keeps its files; no process of another boot is taken for its own.
#[test]
fn f30_a_reboot_stops_sandboxes_with_a_cause_reports_lost_commands_and_keeps_files() {
    harness::needs::require_root();
    let mut ground = Ground::new();
    ground.start();
    ground.create("demo");
    let before = fill(&ground, "demo");
    let exec = ground.detach("demo", "sleep 1000");
    reboot(&mut ground);
    let events = until(&ground, "demo", "SANDBOX_STOPPED");
    let (lost, stopped) = (&events[events.len() - 2], events.last().unwrap());
    assert_eq!((&lost["exec_id"], &lost["error_code"]), (&exec.into(), &"HOST_REBOOTED".into()));
    assert_eq!(
        (&stopped["reason"], &stopped["sandbox_state"]),
        (&"host_rebooted".into(), &"STOPPED".into())
    );
    resume(&ground, "demo");
    assert_eq!(list(&ground, "demo"), before);
    assert_eq!(ground.ask(&["rm", "demo"]).code, Some(0));
}

/// A sandbox of the test of many cycles, and the files it must have.
struct Kept {
    name: String,
    files: String,
    reboots: usize,
}

impl Kept {
    fn create(ground: &Ground, name: String) -> Self {
        ground.create(&name);
        let files = fill(ground, &name);
        Self { name, files, reboots: 0 }
    }

    /// Adds files, and starts a command that the next reboot ends. Returns its id.
    fn change(&mut self, ground: &Ground) -> String {
        let script = format!(
            "set -eu; cd /workspace; date +%N >> log; head -c 50021 /dev/urandom > deep/after-{}; sync",
            self.reboots
        );
        let changed = ground.shell(&self.name, &script);
        assert_eq!(changed.code, Some(0), "{changed:?}\n{}", ground.log());
        self.files = list(ground, &self.name);
        ground.detach(&self.name, "sleep 100000")
    }

    /// After a reboot: the command is lost, the sandbox is stopped with the cause, and has its files once it is resumed.
    fn check(&mut self, ground: &Ground, command: &str, cycle: usize) {
        let name = &self.name;
        self.reboots += 1;
        let events = until(ground, name, "SANDBOX_STOPPED");
        let (lost, stopped) = (&events[events.len() - 2], events.last().unwrap());
        let lost = (lost["exec_id"].as_str(), lost["error_code"].as_str());
        assert_eq!(lost, (Some(command), Some("HOST_REBOOTED")), "{name}, cycle {cycle}");
        let stopped = (stopped["reason"].as_str(), stopped["sandbox_state"].as_str());
        assert_eq!(stopped, (Some("host_rebooted"), Some("STOPPED")), "{name}, cycle {cycle}");
        assert_eq!(ground.state(name), "STOPPED", "{name}, cycle {cycle}");
        resume(ground, name);
        let files = list(ground, name);
        assert!(
            files == self.files,
            "the files of {name} differ after its reboot {} in cycle {cycle}\nbefore:\n{}\nafter:\n{files}",
            self.reboots,
            self.files
        );
    }
}

/// Each cycle creates a sandbox, uses it and all others, reboots, and resumes and compares every one of them.
/// One sandbox lives through all cycles, the others through [`REBOOTS_OF_EACH`]. docs/faults.md says how to run a
/// thousand cycles.
#[test]
fn files_survive_any_number_of_reboots_byte_for_byte() {
    harness::needs::require_root();
    let cycles: usize = std::env::var(CYCLES).map_or(3, |text| text.parse().expect(CYCLES));
    let mut ground = Ground::new();
    ground.start();
    let mut kept = vec![Kept::create(&ground, "lasting".to_owned())];
    let (mut reboots, began) = (0, std::time::Instant::now());
    for cycle in 1..=cycles {
        kept.push(Kept::create(&ground, format!("cycle-{cycle}")));
        let commands: Vec<_> = kept.iter_mut().map(|sandbox| sandbox.change(&ground)).collect();
        reboot(&mut ground);
        for (sandbox, command) in kept.iter_mut().zip(&commands) {
            sandbox.check(&ground, command, cycle);
        }
        reboots += kept.len();
        // The first one is the lasting one.
        if kept.len() > REBOOTS_OF_EACH {
            let oldest = kept.remove(1);
            assert_eq!(oldest.reboots, REBOOTS_OF_EACH);
            assert_eq!(ground.ask(&["rm", &oldest.name]).code, Some(0));
        }
        if cycle % 50 == 0 {
            println!(
                "{cycle} cycles, {reboots} sandboxes resumed, {} s",
                began.elapsed().as_secs()
            );
        }
    }
    assert_eq!(kept[0].reboots, cycles);
    assert!(!ground.log().contains("panicked"), "{}", ground.log());
}

/// Whatever holds the limits of disks, the files are on a disk; only those of `tmpfs` are in memory.
#[test]
fn files_survive_a_reboot_on_every_kind_of_volume_but_tmpfs() {
    harness::needs::require_root();
    for kind in ["btrfs", "image", "unlimited", "tmpfs"] {
        let mut ground = Ground::new();
        ground.set("RINGFENCE_SANDBOXES__DISK", kind);
        ground.set("RINGFENCE_SANDBOXES__ALLOW_UNLIMITED_DISK", "true");
        ground.set("RINGFENCE_SANDBOXES__ALLOW_TMPFS", "true");
        ground.start();
        ground.create("demo");
        let before = fill(&ground, "demo");
        reboot(&mut ground);
        resume(&ground, "demo");
        if kind == "tmpfs" {
            assert_eq!(ground.shell("demo", "ls /workspace").out, "", "{kind}");
        } else {
            assert!(list(&ground, "demo") == before, "files differ on {kind}");
        }
    }
}

/// The death of one supervisor is its own sandbox's affair: it is stopped, and using it starts it again.
#[test]
fn a_sandbox_whose_supervisor_died_is_stopped_with_its_files_and_others_go_on() {
    harness::needs::require_root();
    let mut ground = Ground::new();
    ground.start();
    ground.create("demo");
    let before = fill(&ground, "demo");
    let demo = ground.only_sandbox();
    ground.create("other");
    let exec = ground.detach("demo", "sleep 1000");
    kill_all(&[demo.file_name().unwrap().to_string_lossy().into_owned()]);
    let events = until(&ground, "demo", "SANDBOX_STOPPED");
    let (lost, stopped) = (&events[events.len() - 2], events.last().unwrap());
    assert_eq!((&lost["exec_id"], &lost["error_code"]), (&exec.into(), &"SUPERVISOR_LOST".into()));
    assert_eq!(stopped["reason"], "supervisor_lost");
    assert_eq!(ground.shell("other", "echo here").out, "here\n");
    resume(&ground, "demo");
    assert_eq!(list(&ground, "demo"), before);
}
