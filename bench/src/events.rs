//! The row about events: how many the store keeps durably in a second while a thousand follow.
//!
//! Writers and followers are in this process and use the store as the engine does: a step of a
//! sandbox is one transaction, and who follows is waked by the store and reads from it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures_util::future::try_join_all;
use model::{
    event::Sequence,
    ids::{NodeId, SandboxId, Tenant},
    image::UsedImages,
    sandbox::Sandbox,
    spec::SandboxSpec,
    transition::{Creation, Observation},
    units::Timestamp,
};
use store::Store;
use tokio::task::JoinSet;

use crate::report::{Bar, Row};

const WRITERS: usize = 64;
const FOLLOWERS: usize = 1000;
const ROUNDS: usize = 3;
/// Events that each writer writes in a round, after the first of its sandbox.
const EACH: u64 = 200;

pub(crate) fn measure(name: &str) -> anyhow::Result<Row> {
    // The store has threads of its own; so have the tasks of a server.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let peer = format!("the store alone, {WRITERS} writers and nobody who follows");
    let mut row = Row::new(name, &peer, Bar::AtLeastOrPartOf(5000.0, 0.8));
    for _ in 0..ROUNDS {
        let count = u32::try_from(WRITERS as u64 * EACH)?;
        row.theirs.add_rate(count, runtime.block_on(round(0))?);
        row.ours.add_rate(count, runtime.block_on(round(FOLLOWERS))?);
    }
    Ok(row)
}

/// Writes everything, and returns how long that took until every follower had all of its events.
async fn round(followers: usize) -> anyhow::Result<Duration> {
    let place = tempfile::tempdir()?;
    let store = Store::open(&place.path().join("store.db"))?;
    let made = try_join_all((0..WRITERS).map(|number| create(&store, number))).await?;
    let mut following = JoinSet::new();
    for number in 0..followers {
        let sandbox = made.get(number % WRITERS).context("no sandbox")?;
        following.spawn(follow(store.clone(), sandbox.id.clone()));
    }
    let start = Instant::now();
    let mut writing = JoinSet::new();
    for sandbox in made {
        writing.spawn(write(store.clone(), sandbox));
    }
    while let Some(ended) = writing.join_next().await {
        ended??;
    }
    while let Some(ended) = following.join_next().await {
        ended??;
    }
    let took = start.elapsed();
    store.close().await;
    Ok(took)
}

async fn create(store: &Store, number: usize) -> anyhow::Result<Sandbox> {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let tenant: Tenant = "default".parse()?;
    let node: NodeId = "node_1".parse()?;
    let id = SandboxId::from_random(bytes);
    let spec = SandboxSpec::default();
    let creation = Creation::new(id, tenant, None, node, spec, Timestamp::from_millis(1));
    store.create_sandbox(creation.clone()).await?;
    Ok(creation.into_sandbox())
}

/// Says over and over that the sandbox is being prepared: an event of its own each time.
async fn write(store: Store, mut sandbox: Sandbox) -> anyhow::Result<()> {
    for _ in 0..EACH {
        let seen =
            Observation::Preparing { step: "materialize".to_owned(), images: UsedImages::new() };
        let at = Timestamp::from_millis(2);
        let transition = sandbox.observe(seen, at).context("not accepted")?;
        store.change_sandbox(transition.clone()).await?;
        sandbox = sandbox.after(&transition);
    }
    Ok(())
}

/// Reads every event as it comes, and makes sure that none is missing.
async fn follow(store: Store, id: SandboxId) -> anyhow::Result<()> {
    const PART: u32 = 256;
    let mut watch = store.watch(&id);
    let mut last = Sequence::ZERO;
    loop {
        for event in store.events(&id, last, PART).await?.events {
            if event.sequence != last.next() {
                bail!("event {} follows event {last}", event.sequence);
            }
            last = event.sequence;
        }
        if last == Sequence(EACH + 1) {
            return Ok(());
        }
        watch.changed().await?;
    }
}
