//! Files that a crash has left torn, or a disk damaged.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{
    disk::kill_all,
    ground::{Ground, must},
};

/// The folder of the sandbox in which this command was started.
fn folder_of(ground: &Ground, exec: &str) -> PathBuf {
    let all = fs::read_dir(ground.data.join("sandboxes")).unwrap();
    let mut folders = all.map(|entry| entry.unwrap().path());
    let log = format!("out/{exec}.stdout.log");
    folders.find(|folder| folder.join(&log).exists()).unwrap()
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap().to_string_lossy().into_owned()
}

fn cut(path: &Path, bytes: u64) {
    let file = File::options().write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - bytes).unwrap();
}

/// Returns how the last command of a sandbox ended.
fn end(ground: &Ground, sandbox: &str) -> (Value, Value) {
    let events = ground.events(sandbox);
    let end = events.iter().rev().find(|event| event["event_type"] == "EXEC_FAILED").unwrap();
    (end["exit_code"].clone(), end["error_code"].clone())
}

/// F13: how a command ended is in the journal of its supervisor, or is said to be unknown.
#[test]
fn f13_of_a_torn_journal_only_what_is_whole_is_believed() {
    harness::needs::require_root();
    let mut ground = Ground::new();
    ground.start();
    let (mut folders, mut execs, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
    for sandbox in ["whole", "torn"] {
        ground.create(sandbox);
        // By then the server is killed.
        let exec = ground.detach(sandbox, "sleep 10; exit 7");
        // Its folder is there when it has run once.
        ground.shell(sandbox, "true");
        let folder = folder_of(&ground, &exec);
        // Read while the command runs: on a busy machine the first one may end before the server is killed.
        lengths.push(fs::metadata(folder.join("journal")).unwrap().len());
        folders.push(folder);
        execs.push(exec);
    }
    ground.kill();
    for (folder, length) in folders.iter().zip(lengths) {
        wait_for_record(&folder.join("journal"), length);
    }
    kill_all(&folders.iter().map(|folder| name(folder)).collect::<Vec<_>>());
    cut(&folders[1].join("journal"), 3);
    ground.start();
    for exec in &execs {
        // Returns when the end is known.
        ground.ask(&["logs", exec, "--follow"]);
    }
    assert_eq!(end(&ground, "whole"), (7.into(), "EXEC_RUN_FAILED".into()));
    let (code, reason) = end(&ground, "torn");
    assert_eq!(reason, "SUPERVISOR_LOST", "{code}");
    assert_ne!(code, 7);
}

/// Waits until a journal is longer than it was: a command that ended is written down at once.
fn wait_for_record(journal: &Path, before: u64) {
    let mut watch = Command::new("timeout");
    watch
        .args(["60", "sh", "-c"])
        .arg("until [ $(stat -c %s \"$0\") -gt \"$1\" ]; do sleep 0.05; done");
    must(watch.arg(journal).arg(before.to_string()));
}

/// F14: a record that cannot be trusted is left alone with its processes; the others are served.
#[test]
fn f14_a_damaged_record_is_told_and_neither_guessed_nor_ended() {
    harness::needs::require_root();
    let mut ground = Ground::new();
    ground.start();
    ground.create("good");
    ground.create("spoiled");
    let exec = ground.detach("spoiled", "while :; do echo alive; sleep 0.05; done");
    ground.shell("spoiled", "true");
    let folder = folder_of(&ground, &exec);
    ground.stop();
    let script = "import sqlite3, sys\n\
                  store = sqlite3.connect(sys.argv[1])\n\
                  change = \"UPDATE sandboxes SET life = replace(life, 'active', 'frozen') WHERE id = ?\"\n\
                  assert store.execute(change, (sys.argv[2],)).rowcount == 1\n\
                  store.commit()\n";
    let mut python = Command::new("/usr/bin/python3");
    let store = fs::read_dir(&ground.data).unwrap().map(|entry| entry.unwrap().path());
    let store = store.into_iter().find(|path| path.extension().is_some_and(|it| it == "db"));
    must(python.args(["-c", script]).arg(store.unwrap()).arg(name(&folder)));
    ground.start();
    assert_eq!(ground.shell("good", "echo here").out, "here\n");
    assert!(ground.log().contains("the record of a sandbox is damaged"), "{}", ground.log());
    let refused = ground.shell("spoiled", "true");
    assert_eq!(refused.code, Some(125), "{refused:?}");
    let log = folder.join(format!("out/{exec}.stdout.log"));
    let before = fs::metadata(&log).unwrap().len();
    must(Command::new("timeout").args(["60", "sh", "-c"]).args([
        "until [ $(stat -c %s \"$0\") -gt \"$1\" ]; do sleep 0.05; done",
        log.to_str().unwrap(),
        &before.to_string(),
    ]));
}

/// F24, F29: what looks like a sandbox of ours and is in no record goes; what is another's stays.
#[test]
fn f24_f29_what_no_record_knows_of_goes_and_what_is_not_ours_stays() {
    harness::needs::require_root();
    let (mut ground, mut other) = (Ground::new(), Ground::new());
    other.start();
    other.create("demo");
    ground.start();
    ground.create("demo");
    ground.stop();
    let planted = ground.data.join("sandboxes/sb_00000000000000000000000000");
    fs::create_dir_all(planted.join("files/deep/er")).unwrap();
    let strange = ground.data.join("not-ours");
    fs::create_dir(&strange).unwrap();
    ground.start();
    assert!(!planted.exists() && strange.exists(), "{}", ground.log());
    for server in [&ground, &other] {
        assert_eq!(server.shell("demo", "echo here").out, "here\n");
    }
}

/// F24: a whole sandbox goes, with its processes, control groups and mounts, if the store that comes back does not know
/// of it.
#[test]
fn f24_a_sandbox_that_lives_and_is_in_no_record_goes_with_all_that_it_has() {
    harness::needs::require_root();
    let mut ground = Ground::new();
    ground.start();
    ground.stop();
    let database = ground.data.join("ringfence.db");
    let before = fs::read(&database).unwrap();
    ground.start();
    ground.create("demo");
    ground.detach("demo", "sleep 1000");
    let sandbox = ground.only_sandbox();
    ground.kill();
    let anything = "grep -qs \"$0\" /proc/[0-9]*/cgroup /proc/[0-9]*/mountinfo || \
        find /sys/fs/cgroup -name \"*$0*\" 2>/dev/null | grep -q .";
    let look = |script: &str| {
        let mut look = Command::new("timeout");
        look.args(["60", "sh", "-c", script]).arg(name(&sandbox));
        look
    };
    must(&mut look(anything));
    fs::write(&database, before).unwrap();
    for rest in ["ringfence.db-wal", "ringfence.db-shm"] {
        fs::remove_file(ground.data.join(rest)).unwrap_or_default();
    }
    ground.start();
    must(&mut look(&format!("while {anything}; do sleep 0.05; done")));
    assert!(!sandbox.exists(), "{}", ground.log());
    ground.create("demo");
    assert_eq!(ground.shell("demo", "echo here").out, "here\n");
}
