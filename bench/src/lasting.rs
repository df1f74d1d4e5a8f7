//! Rows about sandboxes that stay: what many of them cost, and how fast they are found again.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use client::sandboxes::{
    NewExec, NewSandbox, Sandboxes, Which,
    events::Next,
    record::{Event, Sandbox, State},
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::sleep;

use crate::{
    report::{Bar, Row},
    runtimes::PYTHON,
    server::Server,
};

/// How many are made or removed at the same time.
pub(crate) const AT_ONCE: usize = 16;

/// How many there are of them, in the rows about many.
const MANY: [usize; 2] = [100, 1000];

/// How long the many are looked at, to see that they do nothing.
const IDLE: Duration = Duration::from_secs(10);

/// Ticks of all processes together, of the thousand in that time, that count as none.
const NOTHING: u64 = 5;

pub(crate) fn of_host() -> NewSandbox {
    NewSandbox { image: "host".to_owned(), idle: Some(Duration::ZERO), ..NewSandbox::default() }
}

pub(crate) async fn until(
    events: &mut client::sandboxes::events::Events,
    kind: &str,
) -> anyhow::Result<Box<Event>> {
    loop {
        match events.next().await?.context("the sandbox is gone")? {
            Next::Event(event) if event.kind == kind => return Ok(event),
            Next::Event(event) if event.error.is_some() => bail!("{:?}", event.error),
            Next::Event(_) | Next::Progress(_) => {}
            Next::Broken { .. } => bail!("the connection broke"),
        }
    }
}

pub(crate) async fn remove(sandboxes: &Sandboxes, sandbox: Sandbox) -> anyhow::Result<()> {
    sandboxes.delete(&sandbox.name).await?;
    let sandbox = sandboxes.get(&sandbox.name).await?;
    sandboxes.wait(sandbox, State::Deleted, |_| {}).await?;
    Ok(())
}

/// Makes so many, and returns them when all are ready.
pub(crate) async fn make_many(sandboxes: &Sandboxes, count: usize) -> anyhow::Result<Vec<Sandbox>> {
    let make = |_| async {
        let created = sandboxes.create(of_host()).await?;
        let made = sandboxes.wait(created, State::Ready, |_| {}).await?;
        if made.state != State::Ready {
            bail!("{} is {}: {:?}", made.name, made.state.word(), made.error);
        }
        Ok(made)
    };
    stream::iter(0..count).map(make).buffer_unordered(AT_ONCE).try_collect().await
}

/// Removes all that the server has, also after a row that failed: they would outlive the server.
pub(crate) async fn remove_all(server: &Server) -> anyhow::Result<()> {
    let sandboxes = server.sandboxes().await?;
    let there = sandboxes.list(Which::Undeleted, BTreeMap::new()).await?;
    let remove = |sandbox| remove(&sandboxes, sandbox);
    stream::iter(there).map(remove).buffer_unordered(AT_ONCE).try_collect().await
}

/// What many idle sandboxes cost, and what they cost others: density and growth at once, because
/// a thousand of them are not made in a moment.
pub(crate) async fn many(ringfence: &Path) -> anyhow::Result<Vec<Row>> {
    let server = Server::start(ringfence)?;
    let rows = grow(&server).await;
    remove_all(&server).await?;
    rows
}

async fn grow(server: &Server) -> anyhow::Result<Vec<Row>> {
    const SAMPLES: usize = 100;
    let sandboxes = server.sandboxes().await?;
    let mut connection = server.connect().await?;
    let mut alone = Row::new("grow", "no sandbox beside it", Bar::None);
    let mut rows = Vec::new();
    let mut there = Vec::new();
    let mut without = 0;
    for count in [0, MANY[0], MANY[1]] {
        there.extend(make_many(&sandboxes, count - there.len()).await?);
        server.settle().await?;
        let memory = server.memory()?;
        let mut row = Row::new("grow", "no sandbox beside it", Bar::AtMost(1.5));
        for _ in 0..SAMPLES {
            row.ours.add(connection.time(PYTHON.language, PYTHON.hello).await?);
            connection.quiet().await?;
            sleep(Duration::from_millis(30)).await;
        }
        if count == 0 {
            (without, alone) = (memory, row);
            continue;
        }
        row.theirs = alone.ours.clone();
        let kibibytes = u32::try_from(memory.saturating_sub(without) >> 10)?;
        let each = f64::from(kibibytes) / f64::from(u32::try_from(count)?) / 1024.0;
        row.peer = format!("no sandbox beside it; with {count}: {each:.2} MiB each");
        rows.push(row);
        if count == MANY[1] {
            rows.push(density(server, each, count).await?);
        }
    }
    Ok(rows)
}

/// What one of many takes, and that it takes no time.
async fn density(server: &Server, each: f64, count: usize) -> anyhow::Result<Row> {
    let mut row = Row::new("density", "–", Bar::MebibytesEach(2.0));
    row.ours.add_number(each);
    server.settle().await?;
    let before = server.processes()?;
    sleep(IDLE).await;
    let after = server.processes()?;
    if after.len() < count {
        row.failures.push(format!("{} processes for {count} sandboxes", after.len()));
    }
    let used: u64 = after.iter().map(|(pid, ticks)| ticks - before.get(pid).unwrap_or(&0)).sum();
    if used > NOTHING {
        row.failures.push(format!("{used} ticks of processor time in {IDLE:?} of idleness"));
    }
    Ok(row)
}

/// From the start of a server, after a kill, until a command has run in each of a hundred sandboxes
/// that the killed one had.
pub(crate) async fn recover(name: &str, ringfence: &Path) -> anyhow::Result<Row> {
    let mut server = Server::start(ringfence)?;
    let row = kill_and_recover(name, &mut server, ringfence).await;
    remove_all(&server).await?;
    row
}

async fn kill_and_recover(
    name: &str,
    server: &mut Server,
    ringfence: &Path,
) -> anyhow::Result<Row> {
    const KILLS: usize = 10;
    let mut row = Row::new(name, "–", Bar::Within(1000.0));
    let there = make_many(&server.sandboxes().await?, MANY[0]).await?;
    for _ in 0..KILLS {
        server.settle().await?;
        server.crash()?;
        let start = Instant::now();
        server.start_again(ringfence)?;
        let sandboxes = server.sandboxes().await?;
        let run = |sandbox: &Sandbox| run_true(sandboxes.clone(), sandbox.name.clone());
        let all: Vec<()> =
            stream::iter(there.iter().map(run)).buffer_unordered(MANY[0]).try_collect().await?;
        row.ours.add(start.elapsed());
        if all.len() != there.len() {
            row.failures.push("a sandbox was lost".to_owned());
        }
    }
    Ok(row)
}

async fn run_true(sandboxes: Sandboxes, sandbox: String) -> anyhow::Result<()> {
    let exec = NewExec { sandbox, command: vec!["/bin/true".to_owned()], ..NewExec::default() };
    let started = sandboxes.exec(exec).await?;
    let ended = sandboxes.wait_for_exec(&started.id, |_| {}).await?;
    if ended.exit_code != Some(0) {
        bail!("{ended:?}: {}", ended.error);
    }
    Ok(())
}
