//! A wall clock that is set while the server runs.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::ground::{Ground, must};
use crate::command::ringfence;

/// The wall clock of a server.
struct Clock {
    library: PathBuf,
    offset: PathBuf,
}

impl Clock {
    fn new(ground: &Ground) -> Self {
        let folder = ground.folder.path();
        // The daemon is another user, who reads both.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        let (library, offset) = (folder.join("clock.so"), folder.join("offset"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/faults/clock.c");
        must(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source));
        fs::write(&offset, [0; 8]).unwrap();
        Self { library, offset }
    }

    fn ringfence(&self) -> Command {
        let mut command = ringfence(&[]);
        command.env("LD_PRELOAD", &self.library).env("CLOCK_OFFSET", &self.offset);
        command
    }

    /// Sets it this many seconds off the right time.
    fn set(&self, seconds: i64) {
        let file = fs::File::options().write(true).open(&self.offset).unwrap();
        file.write_all_at(&seconds.to_le_bytes(), 0).unwrap();
    }
}

/// Follows a sandbox, but not for ever.
fn follow(ground: &Ground, name: &str) -> std::process::Child {
    let told = ground.command(&["events", name, "--follow", "--json"]);
    let mut bounded = Command::new("timeout");
    bounded.arg("60").arg(told.get_program()).args(told.get_args());
    bounded.envs(told.get_envs().filter_map(|(name, value)| Some((name, value?))));
    bounded.stdout(Stdio::piped()).spawn().unwrap()
}

const HOUR: i64 = 3600;
const YEAR: i64 = 365 * 24 * HOUR;

/// F31, F34: how long a sandbox was not used is measured by a clock that nobody sets, and events
/// have their order by their numbers; their times never go back.
#[test]
fn f31_a_clock_that_is_set_neither_ends_a_sandbox_nor_keeps_it() {
    let mut ground = Ground::new();
    let clock = Clock::new(&ground);
    ground.start_by(clock.ringfence());
    let to_1970 = -56 * YEAR;
    for (round, jump) in [HOUR, -HOUR, 10 * YEAR, to_1970].into_iter().enumerate() {
        let name = format!("jump-{round}");
        clock.set(0);
        let make = ["create", "--image", "host", "--idle", "2s", "--name", &name];
        assert_eq!(ground.ask(&make).code, Some(0), "{}", ground.log());
        let mut follow = follow(&ground, &name);
        let exec = ground.detach(&name, "sleep 1; echo went on");
        clock.set(jump);
        let begin = Instant::now();
        assert_eq!(ground.ask(&["exec", &name, "--", "true"]).code, Some(0));
        // A command keeps the sandbox, whatever the clock says.
        assert_eq!(ground.output(&exec), "went on\n");
        let mut events: Vec<serde_json::Value> = Vec::new();
        for line in BufReader::new(follow.stdout.take().unwrap()).lines() {
            events.push(serde_json::from_str(&line.unwrap()).unwrap());
            if events.last().unwrap()["event_type"] == "SANDBOX_STOP_REQUESTED" {
                break;
            }
        }
        let took = begin.elapsed();
        // Killed, it would leave its child.
        crate::command::signal(follow.id(), "TERM");
        follow.wait().unwrap();
        let fit = Duration::from_secs(2)..Duration::from_mins(1);
        assert!(fit.contains(&took), "stopped after {took:?} with a jump of {jump} s");
        let numbers: Vec<_> = events.iter().map(|event| event["sequence"].as_u64()).collect();
        let expected: Vec<_> = (1..=events.len()).map(|number| Some(number as u64)).collect();
        assert_eq!(numbers, expected);
        let times: Vec<_> = events.iter().map(|event| event["occurred_at"].as_str()).collect();
        assert!(times.is_sorted(), "{times:?}");
    }
}
