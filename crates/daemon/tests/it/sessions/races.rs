//! Rows F63, F64 and F68: many at once.

use std::{collections::HashSet, time::Duration};

use engine::sessions::{Acquire, Records, SessionError, Which};
use futures_util::future::join_all;
use model::{
    ids::Tenant,
    policy::Quotas,
    scope::Scope,
    session::{Refusal, Request, SessionEnd, Shows},
    spec::SandboxSpec,
};

use super::{SESSIONS, access, ask, ensure, text};
use crate::sandboxed::Sandboxed;

pub(super) fn tenant() -> Tenant {
    "default".parse().unwrap()
}

pub(super) fn thread(id: &str) -> Scope {
    Scope::thread(id.parse().unwrap())
}

pub(super) fn wanted(id: &str) -> Acquire {
    Acquire {
        tenant: tenant(),
        scope: thread(id),
        request: Request::Ensure,
        spec: SandboxSpec { image: "host".into(), ..SandboxSpec::default() },
        image: None,
        hint: None,
        quotas: Quotas::default(),
        created_by: "key_1".to_owned(),
        wait: Duration::from_mins(1),
        key: None,
        records: Records::none(),
    }
}

/// How often; more with `RINGFENCE_ROUNDS`.
pub(super) fn rounds(usual: usize) -> usize {
    std::env::var("RINGFENCE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// F63, I10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f63_two_hundred_who_ensure_one_thread_get_one_sandbox() {
    let sandboxed = Sandboxed::start().await;
    for round in 0..rounds(200) {
        let id = format!("thr_{round}");
        let callers = (0..200).map(|_| sandboxed.sessions.acquire(wanted(&id)));
        let answers = join_all(callers).await;
        let first = answers[0].as_ref().unwrap().shown.session.clone();
        for answer in &answers {
            let session = &answer.as_ref().unwrap().shown.session;
            assert_eq!((&session.id, &session.sandbox), (&first.id, &first.sandbox));
        }
        assert_eq!(first.generation.0, 1);
        let which = Which::Scope(thread(&id));
        sandboxed.sessions.destroy(&tenant(), &which, SessionEnd::Destroyed).await.unwrap();
    }
    let all = sandboxed.kept().unfinished_sessions(&"node_1".parse().unwrap()).await.unwrap();
    assert!(all.is_empty(), "{all:?}");
}

/// F63, at the route: all get the same session, and each a token of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f63_two_hundred_requests_for_one_thread_get_one_sandbox() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    for round in 0..rounds(5) {
        let id = format!("thr_{round}");
        let answers = join_all((0..200).map(|_| ensure(daemon, &id))).await;
        let first = &answers[0];
        let mut tokens = HashSet::new();
        for answer in &answers {
            for name in ["session_id", "sandbox"] {
                assert_eq!(answer[name], first[name]);
            }
            assert!(tokens.insert(text(answer, "/token")), "one token twice");
        }
        assert_eq!(first["binding"]["generation"], 1);
    }
}

/// F64: whatever is asked at once, each answer fits one order of all, and nobody gets a dying sandbox.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f64_ensuring_releasing_and_ending_at_once_come_to_a_legal_order() {
    let sandboxed = Sandboxed::start().await;
    let which = Which::Scope(thread("thr_1"));
    let mut last = 0;
    for round in 0..rounds(20) {
        let ensuring = join_all((0..8).map(|_| sandboxed.sessions.acquire(wanted("thr_1"))));
        let tenant = tenant();
        let ending = async {
            match round % 3 {
                0 => sandboxed.sessions.release(&tenant, &which).await,
                1 => sandboxed.sessions.destroy(&tenant, &which, SessionEnd::Destroyed).await,
                _ => sandboxed.sessions.heartbeat(&tenant, &which).await.map(drop),
            }
        };
        let (ensured, ended) = futures_util::future::join(ensuring, ending).await;
        match ended {
            Ok(()) | Err(SessionError::Refused(Refusal::NotFound) | SessionError::Starting) => {}
            Err(error) => panic!("{error:?}"),
        }
        for answer in ensured {
            match answer {
                Ok(acquired) => {
                    assert!(acquired.shown.session.generation.0 >= last);
                    last = last.max(acquired.shown.session.generation.0);
                }
                // It was ended by the other before it was ready.
                Err(SessionError::Refused(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        let node = "node_1".parse().unwrap();
        assert!(sandboxed.kept().unfinished_sessions(&node).await.unwrap().len() <= 1);
        let settled = sandboxed.sessions.acquire(wanted("thr_1")).await.unwrap().shown;
        assert_eq!(settled.shows, Shows::Active, "{settled:?}");
    }
}

/// F68.
#[tokio::test]
async fn f68_tokens_refreshed_at_once_are_all_good_until_the_session_is_released() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let session = ensure(daemon, "thr_1").await;
    let (sandbox, id) = (text(&session, "/sandbox/id"), text(&session, "/session_id"));
    let path = format!("{SESSIONS}/{id}/refresh");
    let refreshed = join_all((0..20).map(|_| ask(daemon, "POST", &path))).await;
    let tokens: Vec<String> =
        refreshed.iter().map(|answer| text(&answer.json(), "/token").to_owned()).collect();
    for token in &tokens {
        assert_eq!(access(daemon, sandbox, token).await.status, 200);
    }
    let release = format!("{SESSIONS}/{id}");
    let (released, _late) = futures_util::future::join(
        ask(daemon, "DELETE", &release),
        join_all((0..5).map(|_| ask(daemon, "POST", &path))),
    )
    .await;
    assert_eq!(released.status, 204);
    for token in &tokens {
        let answer = access(daemon, sandbox, token).await;
        assert_eq!(answer.problem(), (401, "UNAUTHENTICATED".into()));
    }
}
