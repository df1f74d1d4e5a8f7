//! Where slots come from: forked or new, and never used twice.

use engine::{PoolLoad, PoolMemory, Settings, languages::Languages};
use model::{
    execution::{Execution, Exit, Freshness},
    units::ByteSize,
};

use crate::node::{Node, python, see, shell, submit};

const SEED: &str = "print(hash('x'))";

#[tokio::test]
async fn python_slots_are_forked_from_one_zygote() {
    let node = Node::start().await;
    let first = node.run(python(SEED)).await.stdout;
    for _ in 0..10 {
        assert_eq!(node.run(python(SEED)).await.stdout, first);
    }
}

#[tokio::test]
async fn a_strict_execution_shares_nothing_with_the_zygote() {
    let node = Node::start().await;
    let shared = node.run(python(SEED)).await.stdout;
    let strict = Execution { freshness: Freshness::Strict, ..python(SEED) };
    let (a, b) = (node.run(strict.clone()).await.stdout, node.run(strict).await.stdout);
    assert!(a != shared && b != shared && a != b);
}

#[tokio::test]
async fn on_a_strict_server_no_execution_shares_anything() {
    let languages = Languages::installed().only(&["python"]);
    let settings = Settings { languages, freshness: Freshness::Strict, ..Settings::default() };
    let node = Node::start_with(settings).await;
    let shared = Execution { freshness: Freshness::Shared, ..python(SEED) };
    let (a, b) = (node.run(shared.clone()).await.stdout, node.run(shared).await.stdout);
    assert_ne!(a, b);
}

#[tokio::test]
async fn a_variable_that_python_reads_at_its_start_has_its_effect() {
    let node = Node::start().await;
    let seeded = Execution { env: vec![("PYTHONHASHSEED".into(), "7".into())], ..python(SEED) };
    let (a, b) = (node.run(seeded.clone()).await.stdout, node.run(seeded).await.stdout);
    assert_eq!(a, b);
    assert_ne!(a, node.run(python(SEED)).await.stdout);
}

#[tokio::test]
async fn random_numbers_are_fresh_in_every_slot() {
    let node = Node::start().await;
    let code = "import random, uuid, secrets, os\n\
        print(random.random(), uuid.uuid4(), secrets.token_hex(), os.urandom(8).hex())";
    let (a, b) = (node.run(python(code)).await.stdout, node.run(python(code)).await.stdout);
    for (a, b) in a.split(|byte| *byte == b' ').zip(b.split(|byte| *byte == b' ')) {
        assert_ne!(a, b);
    }
}

#[tokio::test]
async fn nothing_fails_when_a_zygote_is_replaced() {
    let node = Node::start().await;
    let mut seeds = std::collections::BTreeSet::new();
    for _ in 0..600 {
        let seen = node.run(python(SEED)).await;
        assert_eq!(seen.outcome.status, model::execution::Status::Completed, "{seen:?}");
        seeds.insert(seen.stdout);
    }
    assert!(seeds.len() > 1, "it was never replaced");
}

#[tokio::test]
async fn a_pool_tells_what_it_makes_and_what_it_has() {
    let node = Node::with(&["shell"]).await;
    let size = node.engine.language("shell").unwrap().pool_size;
    let load = |ready, being_made| {
        vec![PoolLoad { language: "shell".into(), ready, being_made, made_anew: 0, waited_for: 0 }]
    };
    // The makers have not had their turn yet.
    assert_eq!(node.engine.pools(), load(0, size));
    while node.engine.pools() != load(size, 0) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn after_a_burst_as_many_wait_as_it_found_missing_and_no_more_than_there_is_room_for() {
    const BURST: usize = 60;
    for (room, expected) in [(ByteSize::mib(1024), BURST), (ByteSize::mib(20), 20)] {
        let languages = Languages::installed().only(&["shell"]);
        let pool_memory = PoolMemory(room);
        let settings = Settings { languages, pool_memory, ..Settings::default() };
        let node = Node::start_with(settings).await;
        let client = node.engine.client("default");
        // All are in line before the first gets its turn: nobody has waited for anything yet.
        let burst: Vec<_> = (0..BURST).map(|_| submit(&client, shell("true"))).collect();
        for submitted in burst {
            assert_eq!(see(submitted).await.outcome.exit, Some(Exit::Code(0)));
        }
        let ready = || node.engine.pools().first().map(|pool| (pool.ready, pool.being_made));
        while ready() != Some((expected, 0)) {
            tokio::task::yield_now().await;
        }
    }
}

fn javascript(code: &str) -> Execution {
    Execution { language: "javascript".into(), ..python(code) }
}

#[tokio::test]
async fn a_parked_node_ends_as_a_plain_one_does() {
    let node = Node::with(&["javascript"]).await;
    let rows = [
        ("console.log('a')", "a\n", Exit::Code(0)),
        ("process.stdout.write('b'.repeat(300000)); process.exitCode = 3", "", Exit::Code(3)),
        ("console.log('c'); process.exitCode = 4", "c\n", Exit::Code(4)),
        ("console.log('d'); throw new Error('x')", "d\n", Exit::Code(1)),
        ("console.log('e'); Promise.reject(new Error('x'))", "e\n", Exit::Code(1)),
        ("console.log('f'); process.kill(process.pid, 'SIGSEGV')", "f\n", Exit::Signal(11)),
        (
            "console.log(__filename, process.argv.length, process.execArgv)",
            "/workspace/main.js 2 []\n",
            Exit::Code(0),
        ),
        ("setTimeout(() => { console.log('g'); process.exit(255) }, 5)", "g\n", Exit::Code(255)),
        (
            "process.on('exit', () => { console.log('last'); process.exitCode = 9 })",
            "last\n",
            Exit::Code(9),
        ),
    ];
    for round in 0..3 {
        for (code, out, exit) in rows {
            let seen = node.run(javascript(code)).await;
            assert_eq!(seen.outcome.exit, Some(exit), "{round} {code} {}", seen.err());
            if out.is_empty() {
                assert_eq!(seen.stdout.len(), 300_000, "{round} {code}");
            } else {
                assert_eq!(seen.out(), out, "{round} {code}");
            }
        }
    }
}

#[tokio::test]
async fn a_parked_elixir_ends_as_a_plain_one_does() {
    let node = Node::with(&["elixir"]).await;
    let rows = [
        ("IO.puts(1 + 1)", "2\n", Exit::Code(0)),
        ("IO.puts(\"b\"); System.halt(3)", "b\n", Exit::Code(3)),
        ("IO.puts(\"c\"); raise \"x\"", "c\n", Exit::Code(1)),
        ("IO.inspect(System.get_env(\"ELIXIR_ERL_OPTIONS\"))", "nil\n", Exit::Code(0)),
        ("IO.inspect(System.argv())", "[]\n", Exit::Code(0)),
        ("exit({:shutdown, 4})", "", Exit::Code(4)),
    ];
    for (code, out, exit) in rows {
        let execution = Execution { language: "elixir".into(), ..python(code) };
        let seen = node.run(execution).await;
        assert_eq!(seen.outcome.exit, Some(exit), "{code} {}", seen.err());
        assert_eq!(seen.out(), out, "{code} {}", seen.err());
    }
}
