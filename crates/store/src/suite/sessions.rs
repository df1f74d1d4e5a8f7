//! Promises about sessions and the keys of requests.

use futures_util::future::join_all;
use model::{
    audit::{Action, Entry, Outcome},
    ids::{SandboxId, SessionId, Tenant},
    lease::Terms,
    scope::Scope,
    session::{New, Session, SessionEnd, State, Step},
    token::Generation,
};

use super::{Place, at, creation, end};
use crate::{
    Store, StoreError,
    audit::{Order, Part},
    sessions::{Binding, KeyName, UsedKey},
};

fn random(number: u32) -> [u8; 16] {
    let mut random = [0; 16];
    random[12..].copy_from_slice(&number.to_be_bytes());
    random
}

fn new(number: u32, thread: &str) -> New {
    New {
        id: SessionId::from_random(random(number)),
        tenant: "default".parse().unwrap(),
        scope: Scope::thread(thread.parse().unwrap()),
        sandbox: SandboxId::from_random(random(number)),
        node: "node-1".parse().unwrap(),
        created_by: "key_1".to_owned(),
    }
}

fn step(latest: Option<&Session>, number: u32, thread: &str) -> Step {
    let (end, terms) = (SessionEnd::SandboxGone, Terms::default());
    Step::begin(latest, new(number, thread), end, terms, at(1000))
}

/// Returns the first session of a thread.
pub(crate) fn session(number: u32, thread: &str) -> Session {
    step(None, number, thread).begun().unwrap().clone()
}

/// A step, and the sandbox that it begins with.
fn with_sandbox(step: Step, number: u32) -> Binding {
    Binding { creation: Some(creation(number).0), ..Binding::of(step) }
}

async fn bind(store: &Store, number: u32, thread: &str) -> Session {
    let step = step(None, number, thread);
    let session = step.begun().unwrap().clone();
    store.bind(with_sandbox(step, number)).await.unwrap();
    session
}

async fn go_on(store: &Store, step: Step) -> Session {
    let changed = step.changed().unwrap().clone();
    store.bind(Binding::of(step)).await.unwrap();
    changed
}

fn key(name: &str, principal: &str, request: u8, session: &Session, until: i64) -> UsedKey {
    let name = KeyName {
        tenant: session.tenant.clone(),
        principal: principal.to_owned(),
        name: name.to_owned(),
    };
    let (session, used_at, expires_at) = (session.id.clone(), at(1000), at(until));
    UsedKey { name, request: [request; 32], session, used_at, expires_at }
}

pub(super) async fn a_session_is_found_by_its_name_its_scope_and_its_sandbox(place: Place) {
    let store = place.open().await;
    let one = bind(&store, 1, "thr_1").await;
    let (tenant, other): (Tenant, Tenant) = (one.tenant.clone(), "other".parse().unwrap());
    store.close().await;
    // As it was, after it was opened again.
    for store in place.open_three().await {
        let found = Some(one.clone());
        assert_eq!(store.session(&one.id).await.unwrap(), found);
        assert_eq!(store.session_of(&tenant, &one.scope).await.unwrap(), found);
        assert_eq!(store.session_with(&one.sandbox).await.unwrap(), found);
        assert_eq!(store.unfinished_sessions(&one.node).await.unwrap(), vec![one.clone()]);
        assert_eq!(store.session_of(&other, &one.scope).await.unwrap(), None);
        // The sandbox is there with it.
        assert!(store.sandbox(&one.sandbox).await.unwrap().is_some());
    }
}

pub(super) async fn a_scope_has_one_session_and_the_next_has_a_higher_generation(place: Place) {
    let store = place.open().await;
    let one = bind(&store, 1, "thr_1").await;
    let refused = store.bind(with_sandbox(step(None, 2, "thr_1"), 2)).await;
    let Err(StoreError::Bound { current }) = refused else { panic!("{refused:?}") };
    assert_eq!(*current, one);
    assert_eq!(store.sandbox(&creation(2).1.id).await.unwrap(), None, "nothing of it was kept");
    bind(&store, 3, "thr_3").await;

    let released = go_on(&store, one.release(Terms::default(), at(2000))).await;
    let refused = store.bind(with_sandbox(step(None, 4, "thr_1"), 4)).await;
    assert!(matches!(refused, Err(StoreError::Bound { .. })), "{refused:?}");
    let again = Step::take_back(&released, new(5, "thr_1"), Terms::default(), at(3000));
    let two = again.begun().unwrap().clone();
    store.bind(Binding::of(again)).await.unwrap();
    assert_eq!((two.generation, &two.sandbox), (Generation(2), &one.sandbox));
    assert_eq!(store.session_of(&one.tenant, &one.scope).await.unwrap(), Some(two.clone()));
    assert_eq!(store.session_with(&one.sandbox).await.unwrap(), Some(two.clone()));
    let old = store.session(&one.id).await.unwrap().unwrap();
    assert_eq!(old.state, State::Ended(SessionEnd::TakenBack));

    let gone = go_on(&store, two.end(SessionEnd::Destroyed)).await;
    let three = step(Some(&gone), 6, "thr_1");
    store.bind(with_sandbox(three.clone(), 6)).await.unwrap();
    assert_eq!(three.begun().unwrap().generation, Generation(3));
}

pub(super) async fn a_step_of_a_session_that_came_too_late_leaves_nothing(place: Place) {
    let store = place.open().await;
    let one = bind(&store, 1, "thr_1").await;
    let now = go_on(&store, one.renew(Terms::default(), at(5000)).unwrap()).await;
    let late =
        Step::begin(Some(&one), new(2, "thr_1"), SessionEnd::SandboxGone, Terms::default(), at(1));
    for binding in [Binding::of(one.end(SessionEnd::Destroyed)), with_sandbox(late, 2)] {
        let refused = store.bind(binding).await;
        let Err(StoreError::Bound { current }) = refused else { panic!("{refused:?}") };
        assert_eq!(*current, now);
    }
    assert_eq!(store.sandbox(&creation(2).1.id).await.unwrap(), None);
    let missing = store.bind(Binding::of(session(9, "thr_9").end(SessionEnd::Destroyed))).await;
    assert!(matches!(missing, Err(StoreError::NotFound { .. })), "{missing:?}");
}

pub(super) async fn a_sandbox_has_one_session(place: Place) {
    let store = place.open().await;
    let one = bind(&store, 1, "thr_1").await;
    let hint = New { sandbox: one.sandbox.clone(), ..new(2, "thr_2") };
    let terms = Terms::default();
    let step = Step::begin(None, hint.clone(), SessionEnd::Released, terms, at(1));
    let refused = store.bind(Binding::of(step.clone())).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    go_on(&store, one.end(SessionEnd::Destroyed)).await;
    store.bind(Binding::of(step)).await.unwrap();
}

/// F59, F61, F62.
pub(super) async fn the_key_of_a_request_is_used_once_until_it_expires(place: Place) {
    let store = place.open().await;
    let one = session(1, "thr_1");
    let used = key("a", "key_1", 1, &one, 9000);
    let first = Binding { used: Some(used.clone()), ..with_sandbox(step(None, 1, "thr_1"), 1) };
    store.bind(first).await.unwrap();
    let other = Binding {
        used: Some(key("a", "key_1", 2, &one, 9000)),
        ..with_sandbox(step(None, 2, "thr_2"), 2)
    };
    let refused = store.bind(other.clone()).await;
    assert!(matches!(refused, Err(StoreError::KeyUsed)), "{refused:?}");
    assert_eq!(store.session(&session(2, "thr_2").id).await.unwrap(), None);
    store.close().await;

    let store = place.open().await;
    let kept = Some(([1; 32], one.id.clone()));
    assert_eq!(store.used_key(&used.name, at(8999)).await.unwrap(), kept);
    assert_eq!(store.used_key(&used.name, at(9000)).await.unwrap(), None);
    let stranger = KeyName { principal: "key_2".to_owned(), ..used.name.clone() };
    assert_eq!(store.used_key(&stranger, at(1)).await.unwrap(), None);
    let elsewhere = KeyName { tenant: "other".parse().unwrap(), ..used.name.clone() };
    assert_eq!(store.used_key(&elsewhere, at(1)).await.unwrap(), None);
    // What has expired can be used again, whether it was forgotten or not.
    let late = UsedKey { used_at: at(9000), expires_at: at(20_000), ..other.used.clone().unwrap() };
    store.bind(Binding { used: Some(late), ..other }).await.unwrap();
    assert_eq!(store.used_key(&used.name, at(9001)).await.unwrap().unwrap().0, [2; 32]);
    store.forget_used_keys(at(20_000)).await.unwrap();
    assert_eq!(store.used_key(&used.name, at(1)).await.unwrap(), None);
}

/// I23.
pub(super) async fn a_grant_is_recorded_with_the_session_that_it_is_for_or_not_at_all(
    place: Place,
) {
    let store = place.open().await;
    let records = |thread: &str| {
        let entry = Entry::new(at(1000), Action::SessionAcquire, Outcome::Granted);
        vec![Entry { scope: Some(format!("thread:{thread}")), ..entry }]
    };
    let with_record = |number: u32, thread: &str| Binding {
        records: records(thread),
        ..with_sandbox(step(None, number, thread), number)
    };
    store.bind(with_record(1, "thr_1")).await.unwrap();
    let refused = store.bind(with_record(2, "thr_1")).await;
    assert!(matches!(refused, Err(StoreError::Bound { .. })), "{refused:?}");
    store.bind(with_record(3, "thr_3")).await.unwrap();
    let part = Part { order: Order::OldestFirst, beyond: None, limit: 10 };
    let kept = store.audit(part).await.unwrap();
    let kept: Vec<_> = kept.iter().filter_map(|record| record.scope.as_deref()).collect();
    assert_eq!(kept, ["thread:thr_1", "thread:thr_3"]);
}

/// F63, I10: 3 handles × 20 callers × 10 rounds: one session and one sandbox each time.
pub(super) async fn racing_callers_give_a_scope_one_session(place: Place) {
    let stores = place.open_three().await;
    for round in 0..10_u32 {
        let thread = format!("thr_{round}");
        let callers = (0..60_u32).map(|caller| {
            let store = &stores[usize::try_from(caller % 3).unwrap()];
            let (number, thread) = (round * 100 + caller + 1, thread.clone());
            async move {
                let step = step(None, number, &thread);
                let session = step.begun().unwrap().clone();
                match store.bind(with_sandbox(step, number)).await {
                    Ok(()) => (true, session),
                    Err(StoreError::Bound { current }) => (false, *current),
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
        let answers = join_all(callers).await;
        let winners: Vec<_> = answers.iter().filter(|(has_won, _)| *has_won).collect();
        assert_eq!(winners.len(), 1);
        assert!(answers.iter().all(|(_, session)| *session == winners[0].1));
    }
    let node = creation(1).1.node;
    assert_eq!(stores[0].unfinished_sandboxes(&node).await.unwrap().sandboxes.len(), 10);
    assert_eq!(stores[1].unfinished_sessions(&node).await.unwrap().len(), 10);
}

/// F64: whoever ends, renews or begins sessions of one scope at once, they follow each other.
pub(super) async fn racing_changes_of_a_scope_follow_each_other(place: Place) {
    let stores = place.open_three().await;
    let first = bind(&stores[0], 1, "thr_1").await;
    let (tenant, scope) = (first.tenant.clone(), first.scope.clone());
    let callers = (0..12_u32).map(|caller| {
        let store = &stores[usize::try_from(caller % 3).unwrap()];
        let (tenant, scope) = (&tenant, &scope);
        async move {
            for turn in 0..15_u32 {
                let number = 100 + caller * 100 + turn;
                let latest = store.session_of(tenant, scope).await.unwrap().unwrap();
                let terms = Terms::default();
                let binding = match (latest.state, number % 3) {
                    (State::Live, 0) => Binding::of(latest.renew(terms, at(1000)).unwrap()),
                    (State::Live, 1) => Binding::of(latest.release(terms, at(1000))),
                    (State::Live, _) => Binding::of(latest.end(SessionEnd::Destroyed)),
                    (State::Released { .. }, _) => {
                        Binding::of(Step::take_back(&latest, new(number, "thr_1"), terms, at(1)))
                    }
                    (State::Ended(_), _) => {
                        with_sandbox(step(Some(&latest), number, "thr_1"), number)
                    }
                };
                match store.bind(binding).await {
                    Ok(()) | Err(StoreError::Bound { .. }) => {}
                    Err(error) => panic!("{error:?}"),
                }
                let node = &latest.node;
                assert!(store.unfinished_sessions(node).await.unwrap().len() <= 1);
            }
        }
    });
    join_all(callers).await;
}

pub(super) async fn sessions_are_forgotten_with_their_sandbox(place: Place) {
    let store = place.open().await;
    let one = bind(&store, 1, "thr_1").await;
    let two = bind(&store, 2, "thr_2").await;
    go_on(&store, one.end(SessionEnd::Destroyed)).await;
    let sandbox = store.sandbox(&one.sandbox).await.unwrap().unwrap();
    end(&store, sandbox).await;
    store.purge_sandboxes(at(1_000_000), 10).await.unwrap();
    assert_eq!(store.session(&one.id).await.unwrap(), None);
    assert_eq!(store.session(&two.id).await.unwrap(), Some(two));
}
