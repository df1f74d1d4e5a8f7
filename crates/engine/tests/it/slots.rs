//! Where slots come from: forked or new, and never used twice.

use model::execution::{Execution, Freshness};

use crate::node::{Node, python};

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
