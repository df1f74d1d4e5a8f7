//! The users that sandboxes have on the machine.

use std::{collections::BTreeSet, fs, process::Stdio};

use super::ground::Ground;
use crate::command::ringfence;

/// Where the server dies: over a body that nobody has noted yet, and at every step of a deletion.
const POINTS: [&str; 8] = [
    "c.supervisor_spawned",
    "c.supervisor_recorded",
    "d.intent",
    "d.killed",
    "d.cgroup_removed",
    "d.volume_removed",
    "d.files_removed",
    "d.terminal_event",
];

/// Sandboxes have users from here on, each so many.
const FIRST: u32 = 0x6000_0000;
const EACH: u32 = 0x1_0000;

/// F03: whoever had them could reach what the next one does.
#[test]
fn f03_users_of_a_sandbox_are_nobody_elses_before_its_processes_are_gone() {
    harness::needs::require_root();
    let mut ground = Ground::new();
    ground.start();
    ground.create("lasting");
    let lasting = ground.only_sandbox().file_name().unwrap().to_string_lossy().into_owned();
    ground.stop();
    for (round, point) in POINTS.into_iter().enumerate() {
        let (old, new) = (format!("old-{round}"), format!("new-{round}"));
        let before = folders(&ground);
        let mut dying = ringfence(&[]);
        // Else it may die over what waits for no sandbox in particular.
        dying.env("RF_FAILPOINT", point).env("RINGFENCE_SANDBOXES__PREPARED", "0");
        ground.start_by(dying);
        let of_old = if point.starts_with("d.") {
            ground.create(&old);
            ground.detach(&old, "for i in $(seq 100); do sleep 1000 & done; wait");
            let made = &folders(&ground) - &before;
            assert_eq!(users(&made).len(), 1, "{point}: a sandbox has one block of users");
            ask_to_death(&mut ground, &["rm", &old]);
            made
        } else {
            ask_to_death(&mut ground, &["create", "--image", "host", "--name", &old]);
            &folders(&ground) - &before
        };

        // Whatever the last server left is being removed while this one is made.
        ground.start();
        ground.create(&new);
        let of_new = users(&BTreeSet::from([folder_of(&ground, &new)]));
        assert_eq!(of_new.len(), 1, "{point}: a sandbox has one block of users");
        let others = &of_old | &BTreeSet::from([lasting.clone()]);
        let shared = &of_new & &users(&others);
        assert!(shared.is_empty(), "{point}: two sandboxes have the users {shared:?}");
        assert!(!users(&BTreeSet::from([lasting.clone()])).is_empty(), "{point}: it lives on");
        ground.ask(&["rm", &new]);
        ground.stop();
    }
    ground.start();
}

/// Asks for something over which the server dies. Whoever asks would wait for the next one.
fn ask_to_death(ground: &mut Ground, arguments: &[&str]) {
    let mut asking = ground.command(arguments);
    let mut asking = asking.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    ground.take_server().wait().unwrap();
    asking.kill().unwrap();
    asking.wait().unwrap();
}

/// Returns the sandboxes that have a folder.
fn folders(ground: &Ground) -> BTreeSet<String> {
    let all = fs::read_dir(ground.data.join("sandboxes")).unwrap();
    let names = all.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("sb_")).collect()
}

/// Returns the folder of a sandbox: that in which its commands write.
fn folder_of(ground: &Ground, name: &str) -> String {
    let exec = ground.detach(name, "true");
    let has_output =
        |id: &String| ground.data.join(format!("sandboxes/{id}/out/{exec}.stdout.log")).exists();
    ground.output(&exec);
    folders(ground).into_iter().find(has_output).unwrap()
}

/// Returns whose blocks of users the processes of these sandboxes have.
fn users(sandboxes: &BTreeSet<String>) -> BTreeSet<u32> {
    let mut users = BTreeSet::new();
    for process in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        // A process may be gone by now.
        let read = |name| fs::read_to_string(process.path().join(name)).unwrap_or_default();
        let groups = read("cgroup");
        if !sandboxes.iter().any(|sandbox| groups.contains(sandbox.as_str())) {
            continue;
        }
        let status = read("status");
        // One that is dead does nothing more, whoever has not looked at it yet.
        if status.lines().any(|line| line.starts_with("State:\tZ") || line.starts_with("State:\tX"))
        {
            continue;
        }
        let ids = status.lines().filter_map(|line| line.strip_prefix("Uid:"));
        let ids = ids.flat_map(str::split_whitespace).map(|id| id.parse::<u32>().unwrap());
        users.extend(ids.filter(|id| *id >= FIRST).map(|id| (id - FIRST) / EACH));
    }
    users
}
