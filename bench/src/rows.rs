//! The rows: what is run, against what, how often.

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use futures_util::future::try_join_all;
use tokio::time::sleep;

use crate::{
    commands,
    connection::Connection,
    create, events, files, lasting,
    machine::Machine,
    peers::{PEERS, Peer},
    program::Program,
    report::{Bar, Row},
    runtimes::{ELIXIR, IMPORTS, NODE, PYTHON, Runtime, SHELL},
    samples::Samples,
    server::Server,
    shells, tokens,
};

pub(crate) const NAMES: [&str; 19] = [
    "exec-python",
    "exec-node",
    "exec-elixir",
    "exec-sh",
    "exec-imports",
    "exec-loop",
    "exec-vs-peers",
    "start",
    "create",
    "ensure-again",
    "exec-in-sandbox",
    "stream",
    "events",
    "token-check",
    "files",
    "shell",
    "recover",
    "density-and-grow",
    // Last: the kernel goes on taking down what a thousand slots had.
    "exec-sustained",
];

/// What is run before anything is written down.
const WARM_UP: usize = 5;

/// How long a peer's run is over before ours begins.
const LEFTOVERS: Duration = Duration::from_millis(10);

/// A server to measure, and what is known of it.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) machine: Machine,
    ringfence: PathBuf,
    server: Server,
}

/// Something of a peer's that can be timed.
trait Timed {
    fn time(&mut self) -> anyhow::Result<Duration>;
}

impl Timed for Program {
    fn time(&mut self) -> anyhow::Result<Duration> {
        Self::time(self)
    }
}

impl Timed for Peer {
    fn time(&mut self) -> anyhow::Result<Duration> {
        Self::time(self)
    }
}

impl Bench {
    pub(crate) async fn new(ringfence: &Path) -> anyhow::Result<Self> {
        let machine = Machine::look();
        let server = Server::start(ringfence)?;
        compare_interpreters(&mut server.connect().await?).await?;
        Ok(Self { machine, ringfence: ringfence.to_owned(), server })
    }

    pub(crate) async fn measure(&self, name: &str) -> anyhow::Result<Vec<Row>> {
        let one_in_eight = Bar::AtMostOneInAndP99BelowP50(8.0);
        Ok(match name {
            "exec-python" => vec![self.exec(name, &PYTHON, PYTHON.hello, one_in_eight, 200).await?],
            "exec-node" => {
                vec![self.exec(name, &NODE, NODE.hello, Bar::AtMostOneIn(8.0), 100).await?]
            }
            "exec-elixir" => {
                vec![self.exec(name, &ELIXIR, ELIXIR.hello, Bar::AtMostOneIn(40.0), 40).await?]
            }
            "exec-sh" => vec![self.exec(name, &SHELL, SHELL.hello, Bar::AtMost(2.0), 200).await?],
            "exec-imports" => {
                vec![self.exec(name, &PYTHON, IMPORTS, Bar::AtMostOneIn(10.0), 100).await?]
            }
            "exec-loop" => self.loops(name).await?,
            "exec-sustained" => vec![self.sustained(name).await?],
            "exec-vs-peers" => self.peers(name).await?,
            "start" => vec![self.start(name).await?],
            "create" => vec![create::row(name, &self.server).await?],
            "ensure-again" => {
                self.and_remove(async { Ok(vec![create::again(name, &self.server).await?]) })
                    .await?
            }
            "exec-in-sandbox" => self.and_remove(commands::in_sandbox(name, &self.server)).await?,
            "stream" => self.and_remove(commands::stream(name, &self.server)).await?,
            "shell" => vec![shells::measure(name, &self.ringfence).await?],
            "events" => {
                // On a thread, because this one runs a runtime of its own.
                let measured = thread::spawn(|| events::measure("events")).join();
                vec![measured.map_err(|_panic| anyhow::Error::msg("it panicked"))??]
            }
            "token-check" => tokens::measure(name, &self.server).await?,
            "files" => self.and_remove(files::measure(name, &self.server)).await?,
            "recover" => vec![lasting::recover(name, &self.ringfence).await?],
            "density-and-grow" => lasting::many(&self.ringfence).await?,
            other => bail!("no row is called {other}"),
        })
    }

    /// Measures rows, and removes what sandboxes they have made: those would outlive the server.
    async fn and_remove(
        &self,
        rows: impl Future<Output = anyhow::Result<Vec<Row>>>,
    ) -> anyhow::Result<Vec<Row>> {
        let rows = rows.await;
        lasting::remove_all(&self.server).await?;
        rows
    }

    async fn exec(
        &self,
        name: &str,
        runtime: &Runtime,
        code: &str,
        bar: Bar,
        count: usize,
    ) -> anyhow::Result<Row> {
        let mut bare = match runtime.bare(code) {
            Ok(bare) => bare,
            Err(missing) => return Ok(Row::new(name, "bare", bar).missing(missing)),
        };
        let mut row = Row::new(name, &format!("bare {}", runtime.path().unwrap_or_default()), bar);
        let mut connection = self.server.connect().await?;
        let connection = &mut connection;
        self.in_turn(connection, &mut row, runtime.language, code, &mut bare, count).await?;
        Ok(row)
    }

    /// Runs each language a hundred times in a row without any pause, as an agent in a loop does. Half of the
    /// bare runs come before and half after.
    async fn loops(&self, name: &str) -> anyhow::Result<Vec<Row>> {
        const COUNT: usize = 100;
        let languages = [
            (PYTHON, Bar::AtMostOneIn(3.0)),
            (NODE, Bar::AtMost(0.8)),
            (ELIXIR, Bar::AtMost(1.0)),
            (SHELL, Bar::AtMost(3.0)),
        ];
        let mut rows = Vec::new();
        for (runtime, bar) in languages {
            let name = format!("{name}, {}", runtime.language);
            let bare = match runtime.bare(runtime.hello) {
                Ok(bare) => bare,
                Err(missing) => {
                    rows.push(Row::new(&name, "bare", bar).missing(missing));
                    continue;
                }
            };
            let peer = format!("bare {}", runtime.path().unwrap_or_default());
            let mut row = Row::new(&name, &peer, bar);
            let mut connection = self.server.connect().await?;
            self.server.settle().await?;
            for _ in 0..COUNT / 2 {
                row.theirs.add(bare.time()?);
            }
            for _ in 0..COUNT {
                row.ours.add(connection.time(runtime.language, runtime.hello).await?);
            }
            connection.quiet().await?;
            self.server.settle().await?;
            for _ in 0..COUNT / 2 {
                row.theirs.add(bare.time()?);
            }
            rows.push(row);
        }
        Ok(rows)
    }

    /// Times one of ours and one of theirs in turn.
    async fn in_turn(
        &self,
        connection: &mut Connection,
        row: &mut Row,
        language: &str,
        code: &str,
        peer: &mut impl Timed,
        count: usize,
    ) -> anyhow::Result<()> {
        let mut warm_up = Samples::default();
        for _ in 0..WARM_UP {
            connection.time(language, code).await?;
            warm_up.add(peer.time()?);
        }
        // Long enough to start the interpreter anew: a slot that is being made would take a
        // processor from the peer, and that would flatter us.
        let pause = Duration::from_secs_f64((10.0 + 1.5 * warm_up.p50()) / 1e3);
        self.server.settle().await?;
        for _ in 0..count {
            row.ours.add(connection.time(language, code).await?);
            connection.quiet().await?;
            sleep(pause).await;
            row.theirs.add(peer.time()?);
            // The kernel may still be taking down what the peer had, as it did with ours.
            sleep(LEFTOVERS).await;
        }
        Ok(())
    }

    async fn peers(&self, name: &str) -> anyhow::Result<Vec<Row>> {
        let inner = PYTHON.bare(PYTHON.hello).map_err(anyhow::Error::msg)?;
        let (language, code) = (PYTHON.language, PYTHON.hello);
        let mut rows = Vec::new();
        for (peer, times) in PEERS {
            let bar = times.map_or(Bar::None, Bar::Faster);
            let mut found = match Peer::set_up(peer, &inner) {
                Ok(found) => found,
                Err(error) => {
                    rows.push(Row::new(name, peer, bar).missing(format!("{error:#}")));
                    continue;
                }
            };
            let count = if peer == "docker" { 20 } else { 100 };
            let mut row = Row::new(name, &found.version, bar);
            let mut connection = self.server.connect().await?;
            self.in_turn(&mut connection, &mut row, language, code, &mut found, count).await?;
            rows.push(row);
        }
        Ok(rows)
    }

    /// Offers a thousand executions at once on sixteen connections, against eight bare runs at a
    /// time. On a server of its own: its pools grow, and go on being tidied afterwards.
    async fn sustained(&self, name: &str) -> anyhow::Result<Row> {
        const ROUNDS: usize = 3;
        const BARE: u32 = 400;
        const AT_A_TIME: u32 = 8;
        let bare = PYTHON.bare(PYTHON.hello).map_err(anyhow::Error::msg)?;
        let peer = format!("bare {}, {AT_A_TIME} at a time", PYTHON.path().unwrap_or_default());
        let mut row = Row::new(name, &peer, Bar::Rate(3.0));
        let server = Server::start(&self.ringfence)?;
        let mut burst = Burst::open(&server).await?;
        // A burst of this size is nothing new to a server under such a load.
        row.failures.extend(burst.offer().await?.1);
        for _ in 0..ROUNDS {
            server.settle().await?;
            for samples in [&mut row.ours, &mut row.no_pause] {
                let (time, failures) = burst.offer().await?;
                samples.add_rate(Burst::EXECUTIONS, time);
                row.failures.extend(failures);
            }
            server.settle().await?;
            let start = Instant::now();
            run_at_once(&bare, AT_A_TIME, BARE / AT_A_TIME)?;
            row.theirs.add_rate(BARE, start.elapsed());
        }
        Ok(row)
    }

    /// Times servers from their start on an empty data directory until the first result.
    async fn start(&self, name: &str) -> anyhow::Result<Row> {
        const STARTS: usize = 10;
        let mut row = Row::new(name, "–", Bar::Within(1000.0));
        for _ in 0..STARTS {
            self.server.settle().await?;
            let start = Instant::now();
            let server = Server::start(&self.ringfence)?;
            let mut connection = server.connect().await?;
            connection.time(PYTHON.language, PYTHON.hello).await?;
            row.ours.add(start.elapsed());
        }
        Ok(row)
    }
}

/// Many executions at once.
struct Burst {
    connections: Vec<Connection>,
}

impl Burst {
    const CONNECTIONS: u32 = 16;
    const EXECUTIONS: u32 = 1000;

    async fn open(server: &Server) -> anyhow::Result<Self> {
        let mut connections = Vec::new();
        for _ in 0..Self::CONNECTIONS {
            connections.push(server.connect().await?);
        }
        Ok(Self { connections })
    }

    /// Offers all of them, and returns how long they took and how those went that failed.
    async fn offer(&mut self) -> anyhow::Result<(Duration, Vec<String>)> {
        let (share, rest) =
            (Self::EXECUTIONS / Self::CONNECTIONS, Self::EXECUTIONS % Self::CONNECTIONS);
        let start = Instant::now();
        let offers = (0..).zip(&mut self.connections).map(|(index, connection)| {
            connection.offer(share + u32::from(index < rest), PYTHON.language, PYTHON.hello)
        });
        let failures = try_join_all(offers).await?;
        Ok((start.elapsed(), failures.into_iter().flatten().collect()))
    }
}

/// Returns what each interpreter says of itself when run bare.
pub(crate) fn identities() -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    for runtime in [PYTHON, NODE, SHELL, ELIXIR] {
        all.push(match runtime.path() {
            Ok(path) => {
                let bare = runtime.bare(runtime.identity).map_err(anyhow::Error::msg)?;
                format!("{}: {path}, which says: {}", runtime.language, bare.output()?)
            }
            Err(missing) => format!("{}: {missing}", runtime.language),
        });
    }
    Ok(all)
}

/// Makes sure that bare runs use what slots use; else nothing here would mean anything.
async fn compare_interpreters(connection: &mut Connection) -> anyhow::Result<()> {
    for runtime in [PYTHON, NODE, SHELL, ELIXIR] {
        let Ok(bare) = runtime.bare(runtime.identity) else { continue };
        let bare = bare.output()?;
        let slot = connection.execute(runtime.language, runtime.identity).await?.stdout;
        if slot.trim_end() != bare {
            bail!("{}: a slot says {slot:?}, a bare run {bare:?}", runtime.language);
        }
    }
    Ok(())
}

fn run_at_once(program: &Program, at_a_time: u32, each: u32) -> anyhow::Result<()> {
    thread::scope(|scope| {
        let run = || (0..each).try_for_each(|_| program.time().map(drop));
        let threads: Vec<_> = (0..at_a_time).map(|_| scope.spawn(run)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(ended) => ended,
            Err(_panic) => bail!("a thread panicked"),
        })
    })
    .context("bare runs at once")
}
