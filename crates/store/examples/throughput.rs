//! Measures durable events a second: `throughput FILE` or `throughput postgres://…`, and then how
//! many writers (64) and for how many seconds (4).
#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::{
    path::Path,
    time::{Duration, Instant},
};

use model::{
    ids::SandboxId,
    life::EndCause,
    sandbox::Sandbox,
    spec::SandboxSpec,
    transition::{Creation, Observation},
    units::Timestamp,
};
use store::Store;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next().ok_or("a file or an address is missing")?;
    let writers: u32 = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let store = if place.starts_with("postgres") || place.contains("host=") {
        Store::connect(&place).await?
    } else {
        Store::open(Path::new(&place))?
    };
    let mut sandboxes = Vec::new();
    for number in 0..writers {
        sandboxes.push(create(&store, number).await?);
    }
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds);
    let mut tasks = JoinSet::new();
    for sandbox in sandboxes {
        tasks.spawn(write(store.clone(), sandbox, end));
    }
    let mut waits: Vec<Duration> = Vec::new();
    while let Some(done) = tasks.join_next().await {
        waits.extend(done??);
    }
    let took = begin.elapsed().as_secs_f64();
    waits.sort_unstable();
    let at = |percent: usize| waits.get(waits.len() * percent / 100).copied().unwrap_or_default();
    println!(
        "{writers} writers: {} events in {took:.1} s, p50 {:?}, p99 {:?}",
        waits.len(),
        at(50),
        at(99)
    );
    store.close().await;
    Ok(())
}

async fn create(store: &Store, number: u32) -> Result<Sandbox, Box<dyn std::error::Error>> {
    let mut random = [0; 16];
    // Different in every run, so that a store can be measured twice.
    random[..4].copy_from_slice(&std::process::id().to_be_bytes());
    random[12..].copy_from_slice(&number.to_be_bytes());
    let creation = Creation::new(
        SandboxId::from_random(random),
        "default".parse()?,
        None,
        "node".parse()?,
        SandboxSpec { image: "host".into(), ..SandboxSpec::default() },
        Timestamp::from_millis(0),
    );
    store.create_sandbox(creation.clone()).await?;
    Ok(creation.into_sandbox())
}

async fn write(
    store: Store,
    mut sandbox: Sandbox,
    end: Instant,
) -> Result<Vec<Duration>, store::StoreError> {
    let mut waits = Vec::new();
    while Instant::now() < end {
        let seen = Observation::EndsSoon { cause: EndCause::HardTtl, seconds: 60 };
        let Some(transition) = sandbox.observe(seen, Timestamp::from_millis(1)) else { break };
        let begin = Instant::now();
        store.change_sandbox(transition.clone()).await?;
        waits.push(begin.elapsed());
        sandbox = sandbox.after(&transition);
    }
    Ok(waits)
}
