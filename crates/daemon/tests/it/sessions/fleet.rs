//! Row F63 with three servers on one database.

#[path = "../../../../store/src/suite/server.rs"]
mod server;

use engine::sessions::Which;
use futures_util::future::join_all;
use model::session::SessionEnd;
use store::Store;

use super::races::{rounds, tenant, thread, wanted};
use crate::sandboxed::Sandboxed;

/// F63, I10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f63_two_hundred_who_ensure_one_thread_at_three_servers_get_one_sandbox() {
    let database = server::Server::start();
    let address = database.database("sessions").await;
    let mut nodes = Vec::new();
    for node in ["node_1", "node_2", "node_3"] {
        let store = Store::connect(&address).await.unwrap();
        nodes.push(Sandboxed::start_over(store, node).await);
    }
    for round in 0..rounds(200) {
        let id = format!("thr_{round}");
        let callers = (0..201).map(|caller| nodes[caller % 3].sessions.acquire(wanted(&id)));
        let answers = join_all(callers).await;
        let first = answers[0].as_ref().unwrap().shown.session.clone();
        for answer in &answers {
            let session = &answer.as_ref().unwrap().shown.session;
            assert_eq!((&session.id, &session.sandbox), (&first.id, &first.sandbox));
        }
        let mut unfinished = 0;
        for node in ["node_1", "node_2", "node_3"] {
            let page = nodes[0].kept().unfinished_sandboxes(&node.parse().unwrap()).await.unwrap();
            // Those of rounds before are on their way out.
            let there = page.sandboxes.iter().filter(|sandbox| sandbox.life.end.is_none());
            unfinished += there.count();
        }
        assert_eq!(unfinished, 1, "round {round}");
        let owner = nodes.iter().find(|node| node.sessions.holder(&first.sandbox).is_some());
        let (owner, which) = (owner.unwrap(), Which::Scope(thread(&id)));
        owner.sessions.destroy(&tenant(), &which, SessionEnd::Destroyed).await.unwrap();
    }
}
