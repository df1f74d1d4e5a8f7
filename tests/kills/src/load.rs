//! What clients do: at random, as fast as the server lets them, on sandboxes that they share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::agbox::v1;
use history::entry::{Answer, Call, Outcome, Refusal, Which};
use tokio::{sync::watch, time::sleep};

use crate::client::{Client, Followed, Run, Wire, list, numbers};

/// How many sandboxes there are at once.
const SANDBOXES: usize = 8;

/// What all clients know of.
#[derive(Debug, Default)]
pub(crate) struct World {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Sandboxes that were asked for and not deleted, by their names.
    live: Vec<String>,
    /// Every exec that was asked for, and the sandbox it is in.
    execs: BTreeMap<String, String>,
    deleted: Vec<String>,
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh(&self, prefix: &str) -> String {
        let mut state = self.state();
        state.next += 1;
        format!("{prefix}-{:06}", state.next)
    }

    fn any_live(&self) -> Option<String> {
        fastrand::choice(&self.state().live).cloned()
    }

    fn any(&self) -> Option<String> {
        let state = self.state();
        let all: Vec<&String> = state.live.iter().chain(&state.deleted).collect();
        fastrand::choice(all).cloned()
    }

    /// One of the last execs: the earlier ones have ended long ago.
    fn any_exec(&self) -> Option<String> {
        let state = self.state();
        let last: Vec<&String> = state.execs.keys().rev().take(20).collect();
        fastrand::choice(last).cloned()
    }

    fn forget(&self, sandbox: &str) {
        let mut state = self.state();
        state.live.retain(|name| name != sandbox);
        state.deleted.push(sandbox.to_owned());
    }

    pub(crate) fn live(&self) -> Vec<String> {
        self.state().live.clone()
    }

    pub(crate) fn everything(&self) -> (Vec<String>, BTreeMap<String, String>) {
        let state = self.state();
        let all = state.live.iter().chain(&state.deleted).cloned().collect();
        (all, state.execs.clone())
    }
}

/// Acts at random until it is told to end.
pub(crate) async fn act(
    run: Arc<Run>,
    world: Arc<World>,
    end: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let mut client = run.client();
    while !*end.borrow() {
        if one_step(&mut client, &world).await?.is_none() {
            // Nobody is there right now.
            sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

async fn one_step(client: &mut Client, world: &World) -> anyhow::Result<Option<()>> {
    let live = world.any_live();
    let is_full = world.state().live.len() >= SANDBOXES;
    let outcome = match (fastrand::u32(0..100), live) {
        (0..12, _) | (_, None) if !is_full => create(client, world).await?,
        (_, None) => None,
        (0..50, Some(sandbox)) => exec(client, world, &sandbox).await?,
        (50..58, _) => cancel(client, world).await?,
        (58..63, Some(sandbox)) => {
            let call = Call::Stop { sandbox: sandbox.clone() };
            client.call(call, Wire::Stop(sandbox)).await?
        }
        (63..72, Some(sandbox)) => {
            let call = Call::Resume { sandbox: sandbox.clone() };
            client.call(call, Wire::Resume(sandbox)).await?
        }
        (72..76, Some(sandbox)) => delete(client, world, &sandbox).await?,
        (76..86, Some(sandbox)) => {
            let sandbox = world.any().unwrap_or(sandbox);
            let call = Call::Get { sandbox: sandbox.clone() };
            client.call(call, Wire::Get(sandbox)).await?
        }
        (86..92, _) => {
            let (call, wire) = list(if fastrand::bool() { Which::All } else { Which::Live });
            client.call(call, wire).await?
        }
        (92..97, _) => get_exec(client, world).await?,
        (_, Some(sandbox)) => {
            let sandbox = fastrand::bool().then_some(sandbox);
            let call = Call::ListActive { sandbox: sandbox.clone() };
            client.call(call, Wire::ListActive(sandbox)).await?
        }
    };
    Ok(outcome.map(drop))
}

/// Asks for a sandbox of the machine's own programs.
pub(crate) fn host(sandbox: &str) -> v1::CreateSandboxRequest {
    v1::CreateSandboxRequest {
        create_spec: Some(v1::CreateSpec { image: "host".to_owned(), ..v1::CreateSpec::default() }),
        sandbox_id: sandbox.to_owned(),
        ..v1::CreateSandboxRequest::default()
    }
}

/// The same with a companion, which is checked often.
fn accompanied(sandbox: &str) -> v1::CreateSandboxRequest {
    let mut request = host(sandbox);
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
    let interval = prost_types::Duration { seconds: 0, nanos: 50_000_000 };
    let healthcheck = v1::HealthcheckConfig {
        test: words(&["CMD", "true"]),
        interval: Some(interval),
        ..v1::HealthcheckConfig::default()
    };
    let companion = v1::CompanionContainerSpec {
        name: "beside".to_owned(),
        image: "host".to_owned(),
        command: words(&["sleep", "100000"]),
        healthcheck: Some(healthcheck),
        post_start_on_primary: words(&["true"]),
        ..v1::CompanionContainerSpec::default()
    };
    if let Some(spec) = &mut request.create_spec {
        spec.companion_containers.push(companion);
    }
    request
}

async fn create(client: &mut Client, world: &World) -> anyhow::Result<Option<Outcome>> {
    let sandbox = world.fresh("box");
    // Before it is asked for: whatever comes of it, others may look.
    world.state().live.push(sandbox.clone());
    let call = Call::Create { sandbox: Some(sandbox.clone()) };
    let request = if fastrand::u8(0..3) == 0 { accompanied(&sandbox) } else { host(&sandbox) };
    let outcome = client.call(call, Wire::Create(Box::new(request))).await?;
    if outcome.is_none() {
        world.state().live.retain(|name| *name != sandbox);
    }
    Ok(outcome)
}

async fn exec(
    client: &mut Client,
    world: &World,
    sandbox: &str,
) -> anyhow::Result<Option<Outcome>> {
    let exec = world.fresh("exec");
    let lines =
        if fastrand::u32(0..4) == 0 { fastrand::u64(1000..20_000) } else { fastrand::u64(0..50) };
    let code = if fastrand::bool() { 0 } else { fastrand::i32(1..120) };
    let (call, wire) = numbers(sandbox, &exec, lines, code);
    let outcome = client.call(call, wire).await?;
    let may_run = match &outcome {
        Some(Outcome::Acknowledged(_) | Outcome::Unknown(_)) => true,
        Some(Outcome::Refused(_)) | None => false,
    };
    if may_run {
        world.state().execs.insert(exec, sandbox.to_owned());
    }
    if matches!(outcome, Some(Outcome::Refused(Refusal::NotFound))) {
        // Its creation never reached the server.
        world.state().live.retain(|name| name != sandbox);
    }
    Ok(outcome)
}

async fn cancel(client: &mut Client, world: &World) -> anyhow::Result<Option<Outcome>> {
    let Some(exec) = world.any_exec() else { return Ok(None) };
    client.call(Call::Cancel { exec: exec.clone() }, Wire::Cancel(exec)).await
}

async fn get_exec(client: &mut Client, world: &World) -> anyhow::Result<Option<Outcome>> {
    let Some(exec) = world.any_exec() else { return Ok(None) };
    client.call(Call::GetExec { exec: exec.clone() }, Wire::GetExec(exec)).await
}

pub(crate) async fn delete(
    client: &mut Client,
    world: &World,
    sandbox: &str,
) -> anyhow::Result<Option<Outcome>> {
    let call = Call::Delete { sandbox: sandbox.to_owned() };
    let outcome = client.call(call, Wire::Delete(sandbox.to_owned())).await?;
    if let Some(Outcome::Acknowledged(Answer::Accepted) | Outcome::Refused(Refusal::NotFound)) =
        &outcome
    {
        world.forget(sandbox);
    }
    Ok(outcome)
}

/// Subscribes at random until it is told to end.
pub(crate) async fn subscribe(
    run: Arc<Run>,
    world: Arc<World>,
    end: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let mut client = run.client();
    while !*end.borrow() {
        let Some(sandbox) = world.any_live() else {
            sleep(Duration::from_millis(20)).await;
            continue;
        };
        follow_for_a_while(&mut client, &sandbox, &end).await?;
    }
    Ok(())
}

/// Follows one sandbox, reconnecting where it was.
async fn follow_for_a_while(
    client: &mut Client,
    sandbox: &str,
    end: &watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let mut from = 0;
    for _ in 0..fastrand::u32(1..6) {
        let (events, snapshot) = (fastrand::usize(1..40), fastrand::u32(0..4) == 0);
        let patience = Duration::from_millis(fastrand::u64(50..500));
        match client.follow(sandbox, from, snapshot, events, patience).await? {
            Followed::UpTo(last) => from = last,
            Followed::Broken(last) => {
                from = last;
                sleep(Duration::from_millis(20)).await;
            }
            Followed::Over => return Ok(()),
        }
        if *end.borrow() {
            break;
        }
    }
    Ok(())
}
