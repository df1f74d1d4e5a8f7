//! Tenants share no warm process, and none can keep another from running.

use std::{collections::BTreeSet, time::Duration};

use engine::{PoolIdle, PoolMemory, Settings, languages::Languages};
use model::{
    admission::Capacity,
    execution::{Execution, Exit},
    units::ByteSize,
};

use crate::node::{Node, python, see, shell, submit};

/// Prints what a process has from its start: its hash seed, the random bytes of the kernel that canaries
/// are made of, and where its libraries are.
const TRAITS: &str = "import ctypes, ctypes.util\n\
    words = open('/proc/self/auxv', 'rb').read()\n\
    auxv = {int.from_bytes(words[i:i + 8], 'little'): int.from_bytes(words[i + 8:i + 16], 'little')\n\
    \x20for i in range(0, len(words), 16)}\n\
    print(hash('x'))\n\
    print(ctypes.string_at(auxv[25], 16).hex())\n\
    print(ctypes.cast(ctypes.CDLL(None).printf, ctypes.c_void_p).value)";

async fn run(node: &Node, tenant: &str, execution: Execution) -> String {
    let seen = see(submit(&node.engine.client(tenant), execution)).await;
    assert_eq!(seen.outcome.exit, Some(Exit::Code(0)), "{}", seen.err());
    seen.out().to_owned()
}

/// Runs until two executions have the same traits: then the tenant has a zygote of its own, or of another.
async fn traits_of(node: &Node, tenant: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for _ in 0..200 {
        let traits = run(node, tenant, python(TRAITS)).await;
        let is_known = !all.is_disjoint(&traits.lines().map(str::to_owned).collect());
        all.extend(traits.lines().map(str::to_owned));
        if is_known {
            return all;
        }
    }
    panic!("{tenant} never had a warm slot")
}

#[tokio::test]
async fn tenants_have_no_hash_seed_canary_or_memory_layout_in_common() {
    let node = Node::with(&["python"]).await;
    let mut known = BTreeSet::new();
    for tenant in ["default", "one", "two", "default 2"] {
        let traits = traits_of(&node, tenant).await;
        assert!(known.is_disjoint(&traits), "{tenant}: {traits:?} {known:?}");
        known.extend(traits);
    }
}

async fn shells_within(memory: ByteSize) -> Node {
    let languages = Languages::installed().only(&["shell"]);
    let settings = Settings { languages, pool_memory: PoolMemory(memory), ..Settings::default() };
    Node::start_with(settings).await
}

/// Returns once so many slots are ready and none is being made.
async fn until_ready(node: &Node, expected: usize) {
    loop {
        let load = node.engine.pools();
        let load = load.first().unwrap();
        if (load.ready, load.being_made) == (expected, 0) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn many_tenants_stay_within_the_memory_of_pools_and_all_are_served() {
    let node = shells_within(ByteSize::mib(9)).await;
    let least = node.engine.language("shell").unwrap().pool_size;
    until_ready(&node, least).await;
    for round in 0..2 {
        for tenant in 0..20 {
            let (tenant, code) = (format!("tenant {tenant}"), format!("echo {round}"));
            assert_eq!(run(&node, &tenant, shell(&code)).await, format!("{round}\n"));
            // The pool of the tenant before has made room for this one's.
            until_ready(&node, 2 * least).await;
        }
    }
}

#[tokio::test]
async fn the_pool_of_a_tenant_that_runs_nothing_is_closed_after_a_while() {
    let languages = Languages::installed().only(&["shell"]);
    let pool_idle = PoolIdle(Duration::from_millis(300));
    let node = Node::start_with(Settings { languages, pool_idle, ..Settings::default() }).await;
    let least = node.engine.language("shell").unwrap().pool_size;
    for _ in 0..2 {
        run(&node, "another", shell("true")).await;
        until_ready(&node, 2 * least).await;
        until_ready(&node, least).await;
    }
}

#[tokio::test]
async fn a_tenant_that_takes_every_place_does_not_keep_another_from_running() {
    let languages = Languages::installed().only(&["shell"]);
    let capacity = Capacity { running: 8, ..Capacity::default() };
    let node = Node::start_with(Settings { languages, capacity, ..Settings::default() }).await;
    let clients: Vec<_> = (0..4).map(|_| node.engine.client("hog")).collect();
    let hog: Vec<_> =
        clients.iter().cycle().take(40).map(|client| submit(client, shell("sleep 1000"))).collect();
    for _ in 0..3 {
        assert_eq!(run(&node, "another", shell("echo here")).await, "here\n");
    }
    drop(hog);
}
