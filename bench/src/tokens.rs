//! The row about tokens: what a check costs, and what refusing bad ones costs the server.

use std::{
    fs,
    hint::black_box,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use daemon::tokens::{NotGenuine, Tokens};
use futures_util::future::try_join_all;
use model::{
    actor::{Actor, ActorKind},
    capability::Capabilities,
    ids::SandboxId,
    reach::Reach,
    token::{Claims, Generation},
    units::Timestamp,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{MissedTickBehavior, interval},
};

use crate::{
    report::{Bar, Row},
    server::Server,
};

const NOW: i64 = 1_800_000_000_000;
/// Checks that are timed as one.
const BATCH: u32 = 1000;
const BATCHES: u32 = 100;
/// Connections that send one bad token each, a hundred times a second: 10,000 a second.
const CONNECTIONS: usize = 100;
const TICK: Duration = Duration::from_millis(10);
const TICKS: u32 = 100;
const ROUNDS: u32 = 5;

pub(crate) async fn measure(name: &str, server: &Server) -> anyhow::Result<Vec<Row>> {
    let tokens = Tokens::new(&[7; 32]);
    let (strange, claims) = (Tokens::new(&[7; 32]), claims());
    let good = tokens.sign(&claims)?.reveal().to_owned();
    let forged = forged(&good)?;
    // Others have ended, as they do where tokens are refreshed.
    for number in 0..1000 {
        tokens.revoke(&claims.sandbox, &format!("tok_ended_{number}")).await?;
    }
    let mut genuine = Row::new(name, "–", Bar::MicrosecondsEach(10.0));
    let mut bad = Row::new(&format!("{name}, forged"), "–", Bar::MicrosecondsEach(10.0));
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..BATCH {
            let held = tokens.held(black_box(&good)).await?;
            let now = Timestamp::from_millis(NOW);
            held.claims().check(now, &claims.sandbox, Generation::FIRST)?;
            ensure!(!held.is_revoked(), "a token has ended");
        }
        genuine.ours.add_number(microseconds(start.elapsed()));
        let start = Instant::now();
        for _ in 0..BATCH {
            // By somebody who has not seen the sandbox yet, so that its key has to be derived.
            let read = strange.read(black_box(&forged));
            ensure!(read == Err(NotGenuine::Signature), "a forged token came further");
        }
        bad.ours.add_number(microseconds(start.elapsed()));
    }
    let mut shed =
        Row::new(&format!("{name}, 10,000 forged/s over HTTP"), "–", Bar::PartOfCore(0.25));
    for _ in 0..ROUNDS {
        shed.ours.add_number(flood(server, &claims.sandbox, &forged).await?);
    }
    Ok(vec![genuine, bad, shed])
}

fn microseconds(batch: Duration) -> f64 {
    batch.as_secs_f64() * 1e6 / f64::from(BATCH)
}

/// Returns which part of a processor the daemon used while it was sent 10,000 a second.
async fn flood(server: &Server, sandbox: &SandboxId, token: &str) -> anyhow::Result<f64> {
    let request = format!(
        "GET /dp/{sandbox}/v1/access HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    let connect = || TcpStream::connect(server.address());
    let mut connections = try_join_all((0..CONNECTIONS).map(|_| connect())).await?;
    server.settle().await?;
    let daemon = server.daemon()?;
    let (before, start) = (nanoseconds(daemon)?, Instant::now());
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for _ in 0..TICKS {
        ticks.tick().await;
        try_join_all(connections.iter_mut().map(|stream| ask(stream, &request))).await?;
    }
    let used = Duration::from_nanos(nanoseconds(daemon)? - before);
    // If the client was late the rate was lower, and so is what each second cost.
    let took = start.elapsed();
    let asked = f64::from(TICKS) * f64::from(u32::try_from(CONNECTIONS)?);
    ensure!(asked / took.as_secs_f64() > 9000.0, "the client sends only {asked} in {took:?}");
    Ok(used.as_secs_f64() / took.as_secs_f64())
}

async fn ask(stream: &mut TcpStream, request: &str) -> anyhow::Result<()> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = [0; 2048];
    let mut length = 0;
    loop {
        let read = stream.read(answer.get_mut(length..).context("too long")?).await?;
        ensure!(read > 0, "the server closed the connection");
        length += read;
        // The answer is one JSON object with another in it.
        if answer.get(..length).is_some_and(|answer| answer.ends_with(b"}}")) {
            ensure!(answer.starts_with(b"HTTP/1.1 401"), "a forged token was not refused");
            return Ok(());
        }
    }
}

/// Returns the processor time of all threads of a process, from the scheduler.
fn nanoseconds(pid: u32) -> anyhow::Result<u64> {
    let mut total = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let schedstat = fs::read_to_string(thread?.path().join("schedstat"))?;
        total += schedstat.split(' ').next().context("no time")?.parse::<u64>()?;
    }
    Ok(total)
}

fn claims() -> Claims {
    Claims {
        id: "tok_0123456789abcdef0123456789abcdef".to_owned(),
        actor: Actor { kind: ActorKind::Human, id: "somebody".to_owned() },
        key: "key_0123456789abcdef".to_owned(),
        sandbox: SandboxId::from_random([1; 16]),
        capabilities: Capabilities::usual(ActorKind::Human),
        reach: Reach::Everywhere,
        thread: Some("thr_0123456789".to_owned()),
        generation: Generation::FIRST,
        issued_at: Timestamp::from_millis(NOW),
        expires_at: Timestamp::from_millis(NOW + 900_000),
        parents: Vec::new(),
    }
}

/// The dearest kind of bad token: all is as it should be but one character of the signature, which
/// is still well-formed.
fn forged(token: &str) -> anyhow::Result<String> {
    let (signed, signature) = token.rsplit_once('.').context("not a token")?;
    let mut characters = signature.chars();
    let first = if characters.next() == Some('A') { 'B' } else { 'A' };
    Ok(format!("{signed}.{first}{}", characters.as_str()))
}
