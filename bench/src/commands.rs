//! Rows about commands in a sandbox that lives: how long the shortest takes, and how fast output comes.

use std::{
    fs,
    io::BufReader,
    net::{TcpListener, TcpStream},
    os::fd::OwnedFd,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::{
    dataplane::{Door, READ, skip},
    program::Program,
    report::{Bar, Row},
    server::Server,
};

const WARM_UP: usize = 5;

/// From before the `start` frame until the `exit` frame, on a connection that is open.
pub(crate) async fn in_sandbox(name: &str, server: &Server) -> anyhow::Result<Vec<Row>> {
    const SAMPLES: usize = 100;
    let bare = Program::new(["/bin/true"]);
    let mut row = Row::new(name, "bare /bin/true", Bar::AtMost(3.2));
    let mut whole = Row::new(&format!("{name}, with connecting"), "bare /bin/true", Bar::None);
    let door = Door::make(server, "process").await?;
    for sample in 0..WARM_UP + SAMPLES {
        server.settle().await?;
        let start = Instant::now();
        let took = run_true(&door)?;
        let all = start.elapsed();
        server.settle().await?;
        let theirs = bare.time_exit()?;
        if sample >= WARM_UP {
            row.ours.add(took);
            row.theirs.add(theirs);
            whole.ours.add(all);
            whole.theirs.add(theirs);
        }
    }
    for _ in 0..SAMPLES {
        row.no_pause.add(run_true(&door)?);
    }
    Ok(vec![row, whole])
}

fn run_true(door: &Door) -> anyhow::Result<Duration> {
    let mut watch = door.watch()?;
    let start = Instant::now();
    watch.start(json!({"command": ["/bin/true"]}))?;
    watch.finish(|_| {})?;
    Ok(start.elapsed())
}

const SIZE: u64 = 1 << 30;
const MEBIBYTES: u32 = 1024;
/// How much comes between two looks at the daemon's memory.
const LOOK: u64 = 64 << 20;
/// How far it may go from where it was at the beginning.
const FLAT: u64 = 8 << 20;

/// One line of what is sent as text: three of its characters have to be escaped.
const LINE: &str =
    r#"Nov 17 08:00:00 worker[1234]: "GET /v1/things/42" answered with 200 in 13.5 ms"#;

/// Bytes a second through the WebSocket of a command, against `cat` through a plain socket.
pub(crate) async fn stream(name: &str, server: &Server) -> anyhow::Result<Vec<Row>> {
    const SAMPLES: usize = 10;
    const PEER: &str = "cat /dev/zero through TCP";
    let door = Door::make(server, "process").await?;
    let text = format!("yes '{LINE}' | head -c 16M > /workspace/text");
    door.run(&json!({"command": text}))?;
    // 128 KiB at once, as `cat` does it.
    let zeros = json!({
        "command": ["/bin/dd", "if=/dev/zero", "bs=128k", "count=8192", "status=none"],
        "encoding": "binary",
    });
    let cat = ["/bin/cat"].into_iter().chain(["/workspace/text"; 64]).collect::<Vec<_>>();
    let lines = json!({"command": cat});
    let mut rows = [
        (Row::new(&format!("{name}, binary"), PEER, Bar::Throughput(0.4)), zeros),
        (Row::new(&format!("{name}, JSON"), PEER, Bar::Throughput(0.15)), lines),
    ];
    for sample in 0..=SAMPLES {
        for (row, start) in &mut rows {
            server.settle().await?;
            let (ours, memory) = receive(&door, start, server.daemon()?)?;
            server.settle().await?;
            let theirs = cat_through_tcp()?;
            if sample > 0 {
                row.ours.add_rate(MEBIBYTES, ours);
                row.theirs.add_rate(MEBIBYTES, theirs);
                row.failures.extend(is_not_flat(&memory));
            }
        }
    }
    Ok(rows.into_iter().map(|(row, _)| row).collect())
}

impl Door {
    fn run(&self, start: &Value) -> anyhow::Result<u64> {
        let mut watch = self.watch()?;
        watch.start(start.clone())?;
        watch.finish(|_| {})
    }
}

/// Returns how long it took, and how much memory the daemon had meanwhile.
fn receive(door: &Door, start: &Value, daemon: u32) -> anyhow::Result<(Duration, Vec<u64>)> {
    let mut watch = door.watch()?;
    let (mut memory, mut next) = (vec![resident(daemon)?], LOOK);
    let begin = Instant::now();
    watch.start(start.clone())?;
    let count = watch.finish(|count| {
        if count >= next {
            memory.extend(resident(daemon));
            next += LOOK;
        }
    })?;
    let took = begin.elapsed();
    ensure!(count == SIZE, "{count} bytes came");
    Ok((took, memory))
}

fn is_not_flat(memory: &[u64]) -> Option<String> {
    let first = memory.first()?;
    let far = memory.iter().find(|now| now.abs_diff(*first) > FLAT)?;
    Some(format!("the daemon had {} MiB, then {} MiB", first >> 20, far >> 20))
}

/// Returns how much memory a process has.
fn resident(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

fn cat_through_tcp() -> anyhow::Result<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = BufReader::with_capacity(READ, TcpStream::connect(listener.local_addr()?)?);
    let (server, _) = listener.accept()?;
    let start = Instant::now();
    let mut cat = Command::new("/bin/cat")
        .arg("/dev/zero")
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(server))
        .spawn()?;
    let received = skip(&mut client, SIZE);
    let took = start.elapsed();
    cat.kill()?;
    cat.wait()?;
    received?;
    Ok(took)
}
