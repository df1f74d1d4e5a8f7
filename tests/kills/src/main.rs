//! Kills the server at random and at every named place while clients use it, and has the history
//! judged: nothing that was acknowledged may be lost, and nothing told twice or out of order.

mod audit;
mod client;
mod load;
mod server;
mod streams;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Parser;
use history::{check::check_file, entry::What, show::show};
use isolate::failpoint;
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinSet, time::sleep};

use client::Run;
use load::World;
use server::{Place, Server, Victim, default_binary};

/// Kills the server while it is used, and judges what its clients saw.
#[derive(Debug, Parser)]
struct Options {
    /// How often it is killed
    #[arg(long, default_value_t = 200)]
    kills: u32,
    /// The program under test [default: the one beside this]
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Another build of the program, which takes its turn with the first at every start; it is then
    /// also asked to stop, and not only killed
    #[arg(long)]
    other: Option<PathBuf>,
    /// What chance begins with; without it another each time, which is told
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 6)]
    clients: u32,
    #[arg(long, default_value_t = 3)]
    subscribers: u32,
    /// Instead: so many commands write while the server is killed
    #[arg(long)]
    streams: Option<u32>,
    /// Instead: so many sandboxes are created and deleted, and nothing may be left
    #[arg(long, conflicts_with = "streams")]
    cycles: Option<u32>,
    /// Keep the history and the data of a run that was good, too
    #[arg(long)]
    keep: bool,
}

/// Places of the store, which has a list of its own.
const OF_THE_STORE: [&str; 3] = ["s.append=kill", "s.pre_fsync=kill", "s.post_fsync_pre_ack=kill"];

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    fastrand::seed(seed);
    say(&format!("{} kills, seed {seed}", options.kills));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(options))
}

#[expect(clippy::print_stdout, reason = "this is a command")]
fn say(text: &str) {
    println!("{text}");
}

/// Runs, and leaves nothing behind but what is worth looking at.
async fn run(options: Options) -> anyhow::Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("kills-").tempdir()?;
    let binary = options.binary.clone().map_or_else(default_binary, Ok)?;
    let place = Place::new(binary, options.other.clone(), folder.path())?;
    let history = folder.path().join("history.jsonl");
    let begin = Instant::now();
    let ended = use_and_kill(&options, &place, &history).await;
    let took = begin.elapsed().as_secs_f64();
    let is_good = match &ended {
        Ok(()) => {
            if options.streams.is_some() || options.cycles.is_some() {
                say(&format!("good, in {took:.0} s"));
                return clean_up(&place, folder, options.keep).await;
            }
            let report = check_file(&history)?;
            show(&history, &report, &mut std::io::stdout().lock())?;
            say(&format!("{} kills in {took:.0} s", options.kills));
            report.is_clean()
        }
        Err(error) => {
            say(&format!("the run broke off: {error:#}"));
            false
        }
    };
    let complaints = if is_good { String::new() } else { place.complaints() };
    clean_up(&place, folder, options.keep || !is_good).await?;
    say(&complaints);
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Removes every sandbox that is left: they outlive their server.
async fn clean_up(place: &Place, folder: TempDir, keep: bool) -> anyhow::Result<ExitCode> {
    let sandboxes = place.sandboxes();
    tokio::task::spawn_blocking(move || harness::remove_sandboxes(&sandboxes)).await??;
    if keep {
        say(&format!("kept: {}", folder.keep().display()));
    }
    Ok(ExitCode::SUCCESS)
}

async fn use_and_kill(options: &Options, place: &Place, history: &Path) -> anyhow::Result<()> {
    let run = Run::new(history, place.socket())?;
    if let Some(sandboxes) = options.streams {
        return streams::run(place, &run, sandboxes, options.kills).await;
    }
    if let Some(cycles) = options.cycles {
        return streams::cycle(place, &run, cycles).await;
    }
    let world = Arc::new(World::default());
    let (ended, end) = watch::channel(false);
    let server = place.start(None)?.context("the server did not start")?;
    let mut clients = JoinSet::new();
    for _ in 0..options.clients {
        clients.spawn(load::act(Arc::clone(&run), Arc::clone(&world), end.clone()));
    }
    for _ in 0..options.subscribers {
        clients.spawn(load::subscribe(Arc::clone(&run), Arc::clone(&world), end.clone()));
    }
    let (server, ready) = kill_again_and_again(place, &run, server, options.kills).await?;
    ended.send_replace(true);
    while let Some(client) = clients.join_next().await {
        client??;
    }
    finish(place, &run, &world, ready).await?;
    tokio::task::spawn_blocking(|| server.stop()).await?
}

/// Kills and starts the server so many times. Every named place has its turn, and chance the rest.
async fn kill_again_and_again(
    place: &Place,
    run: &Arc<Run>,
    mut server: Server,
    kills: u32,
) -> anyhow::Result<(Server, Instant)> {
    let mut places = failpoint::ALL.iter().chain(&OF_THE_STORE).cycle();
    let mut failpoint: Option<String> = None;
    let mut ready = Instant::now();
    for kill in 1..=kills {
        let start;
        if failpoint.is_some() {
            start = run.recorder.now();
            // Where nobody comes to the place it is killed like the others.
            let waited = tokio::task::spawn_blocking(move || {
                server.wait_for_its_death(Duration::from_secs(2))
            });
            if let Some(alive) = waited.await?? {
                tokio::task::spawn_blocking(|| alive.kill(Victim::Both)).await??;
            }
        } else {
            sleep(Duration::from_millis(fastrand::u64(0..600))).await;
            start = run.recorder.now();
            let end = place.next_end();
            tokio::task::spawn_blocking(move || server.end(end)).await??;
        }
        // Every other time it dies at a named place, the first, second or third time it comes there.
        let next = if kill % 2 == 0 && kill < kills { places.next() } else { None };
        failpoint = next.map(|name| format!("{name}:{}", fastrand::u32(1..4)));
        let (again, armed) = (place.clone(), failpoint.clone());
        let started = tokio::task::spawn_blocking(move || again.start(armed.as_deref())).await??;
        server = if let Some(server) = started {
            server
        } else {
            failpoint = None;
            let again = place.clone();
            let started = tokio::task::spawn_blocking(move || again.start(None)).await??;
            started.context("the server did not start")?
        };
        run.recorder.record(0, None, start, What::Killed)?;
        ready = Instant::now();
    }
    Ok((server, ready))
}

/// Lets everything come to rest, looks at the machine, deletes what is there, and looks again.
async fn finish(
    place: &Place,
    run: &Arc<Run>,
    world: &World,
    ready: Instant,
) -> anyhow::Result<()> {
    let mut client = run.client();
    client.rest().await?;
    sleep(Duration::from_secs(5).saturating_sub(ready.elapsed())).await;
    client.look(place, ready).await?;
    let (_, execs) = world.everything();
    for exec in execs.keys() {
        client.read_output(place, exec)?;
    }
    for sandbox in world.live() {
        load::delete(&mut client, world, &sandbox).await?;
    }
    client.rest().await?;
    client.look(place, ready).await?;
    client.close().await
}
