//! Makes a large history and checks it: how long that takes, and how much memory.
//!
//! `measure [LINES [SANDBOXES]]`
#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::{
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use history::{
    check::check_file,
    entry::{Answer, Call, Entry, ExecView, Outcome, SandboxView, Subscribed, Time, What},
    event::{Event, ExecState, Kind, State},
};

fn main() -> anyhow::Result<()> {
    let argument = |place, otherwise| {
        std::env::args().nth(place).map_or(Ok(otherwise), |count| count.parse::<u64>())
    };
    let (lines, sandboxes) = (argument(1, 1_000_000)?, argument(2, 200)?);
    let path = std::env::temp_dir().join(format!("history-{}.jsonl", std::process::id()));
    let written = write(&path, lines, sandboxes).context("cannot write the history")?;
    let before = peak()?;
    let (started, worked) = (Instant::now(), processor_time()?);
    let report = check_file(&path)?;
    let (taken, worked) = (started.elapsed(), processor_time()?.saturating_sub(worked));
    println!("{written} lines, {} MB, checked in {taken:.2?}", fs::metadata(&path)?.len() >> 20);
    println!("of which the processor worked {worked:.2?}");
    println!(
        "memory: {} MiB, of which {} MiB by the check",
        peak()? >> 10,
        (peak()? - before) >> 10
    );
    println!("{}", report.summary);
    fs::remove_file(&path)?;
    anyhow::ensure!(report.is_clean(), "the history is right, and was judged wrong: {report:#?}");
    Ok(())
}

/// Returns how long the processor has worked for this process, which has one thread.
fn processor_time() -> anyhow::Result<Duration> {
    let text = fs::read_to_string("/proc/self/schedstat")?;
    let nanoseconds = text.split(' ').next().context("no schedstat")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

/// Returns the most memory that this process has had, in KiB.
fn peak() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

struct Writer {
    file: BufWriter<File>,
    now: u64,
    written: u64,
}

impl Writer {
    fn add(&mut self, what: What) -> anyhow::Result<()> {
        self.now += 10;
        self.written += 1;
        let (start, end) = (Time(self.now), Time(self.now + 5));
        let entry = Entry { client: 1, life: Some(1), start, end, what };
        serde_json::to_writer(&mut self.file, &entry)?;
        self.file.write_all(b"\n")?;
        Ok(())
    }

    fn call(&mut self, call: Call, answer: Answer) -> anyhow::Result<()> {
        self.add(What::Call { call, outcome: Outcome::Acknowledged(answer) })
    }
}

/// Writes about so many lines: sandboxes in which commands run, each event seen by two subscribers
/// and followed by reads, the server killed now and then.
fn write(path: &Path, wanted: u64, sandboxes: u64) -> anyhow::Result<u64> {
    let mut out = Writer { file: BufWriter::new(File::create(path)?), now: 0, written: 0 };
    let mut logs: Vec<Vec<Event>> = Vec::new();
    for number in 0..sandboxes {
        let id = format!("box-{number}");
        let log: Vec<Event> = [Kind::Accepted, Kind::Ready]
            .iter()
            .zip(1..)
            .map(|(kind, sequence)| event(&id, sequence, *kind, None))
            .collect();
        let answer = Answer::Sandbox(view(&id, State::Pending, 1));
        out.call(Call::Create { sandbox: Some(id.clone()) }, answer)?;
        for subscription in [number * 2, number * 2 + 1] {
            let sandbox = id.clone();
            let subscribed =
                Subscribed { subscription, sandbox, from_sequence: 0, snapshot: false };
            out.add(What::Subscribed(subscribed))?;
        }
        show(&mut out, number, &log)?;
        logs.push(log);
    }
    let mut execs = 0_u64;
    while out.written < wanted {
        execs += 1;
        let number = execs % sandboxes;
        let log = &mut logs[usize::try_from(number)?];
        let (id, exec) = (format!("box-{number}"), format!("exec-{execs}"));
        let call = Call::Exec { sandbox: id.clone(), exec: Some(exec.clone()), expect: None };
        out.call(call, Answer::Started { exec: exec.clone() })?;
        for kind in [Kind::ExecStarted, Kind::ExecFinished] {
            let sequence = u64::try_from(log.len())? + 1;
            let new = event(&id, sequence, kind, Some(exec.clone()));
            show(&mut out, number, std::slice::from_ref(&new))?;
            let exit_code = new.exit_code;
            log.push(new);
            let answer = Answer::Sandbox(view(&id, State::Ready, sequence));
            out.call(Call::Get { sandbox: id.clone() }, answer)?;
            let view = ExecView {
                exec: exec.clone(),
                sandbox: id.clone(),
                state: ExecState::after(kind),
                exit_code,
                last_event_sequence: sequence,
            };
            let running = if exit_code.is_none() { vec![view.clone()] } else { Vec::new() };
            out.call(Call::GetExec { exec: exec.clone() }, Answer::Exec(view))?;
            let call = Call::ListActive { sandbox: Some(id.clone()) };
            out.call(call, Answer::Execs(running))?;
        }
        if execs.is_multiple_of(1000) {
            out.add(What::Killed)?;
        }
    }
    for (log, number) in logs.into_iter().zip(0..) {
        out.add(What::Replay { sandbox: format!("box-{number}"), events: log })?;
    }
    out.add(What::Closed)?;
    out.file.flush()?;
    Ok(out.written)
}

/// Shows events to the two subscribers of a sandbox.
fn show(out: &mut Writer, number: u64, events: &[Event]) -> anyhow::Result<()> {
    for subscription in [number * 2, number * 2 + 1] {
        for event in events {
            out.add(What::Event { subscription, event: event.clone() })?;
        }
    }
    Ok(())
}

fn event(sandbox: &str, sequence: u64, kind: Kind, exec: Option<String>) -> Event {
    let state = if kind == Kind::Accepted { State::Pending } else { State::Ready };
    Event {
        sandbox: sandbox.to_owned(),
        sequence,
        kind,
        state: Some(state),
        exec,
        exit_code: (kind == Kind::ExecFinished).then_some(0),
        loss: None,
        companion: None,
        occurred_at: 1_700_000_000_000,
        details: String::new(),
        replay: true,
        snapshot: false,
    }
}

fn view(sandbox: &str, state: State, last_event_sequence: u64) -> SandboxView {
    SandboxView { sandbox: sandbox.to_owned(), state, last_event_sequence }
}
