//! Every promise of the store once, run for each backend.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{
    Store, StoreError,
    keys::{Actor, ActorKind, ApiKey, KeyHash, KeyId, Revocation, Role},
};

/// Runs each promise on a fresh store of one backend, as a test of its own.
macro_rules! store_suite {
    ($backend:ident, $open:expr; $($promise:ident),* $(,)?) => {
        mod $backend {
            $(#[tokio::test]
            async fn $promise() {
                let directory = tempfile::tempdir().unwrap();
                let open = $open;
                super::$promise(&|| open(directory.path())).await;
            })*
        }
    };
}

store_suite!(sqlite, |directory: &std::path::Path| crate::Store::open(&directory.join("s.db")).unwrap();
    a_key_is_found_as_it_was_created,
    a_key_is_created_once,
    keys_are_listed_oldest_first,
    a_key_is_revoked_once_and_stays_revoked,
    what_was_answered_is_there_after_reopening,
    a_closed_store_says_so,
    many_callers_at_once_all_get_their_answer,
);

type Open<'a> = &'a dyn Fn() -> Store;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn key(number: u8) -> (ApiKey, KeyHash) {
    let key = ApiKey {
        id: KeyId(format!("key_{number}")),
        name: "laptop".into(),
        tenant: "default".into(),
        role: Role::User,
        actor: Actor { kind: ActorKind::Agent, id: "robot".into() },
        last_four: "abcd".into(),
        created_at: at(1000 + u64::from(number)),
        revoked_at: None,
    };
    (key, KeyHash([number; 32]))
}

async fn create(store: &Store, number: u8) {
    let (key, hash) = key(number);
    store.create_key(key, hash).await.unwrap();
}

async fn a_key_is_found_as_it_was_created(open: Open<'_>) {
    let store = open();
    create(&store, 1).await;
    let (expected, hash) = key(1);
    assert_eq!(store.key_by_hash(hash).await.unwrap(), Some(expected));
    assert_eq!(store.key_by_hash(KeyHash([9; 32])).await.unwrap(), None);
}

async fn a_key_is_created_once(open: Open<'_>) {
    let store = open();
    create(&store, 1).await;
    let (same_id, other_hash) = (key(1).0, key(2).1);
    let (other_id, same_hash) = (key(2).0, key(1).1);
    for (key, hash) in [(same_id, other_hash), (other_id, same_hash)] {
        let refused = store.create_key(key, hash).await;
        assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    }
    assert_eq!(store.keys().await.unwrap(), [key(1)]);
}

async fn keys_are_listed_oldest_first(open: Open<'_>) {
    let store = open();
    for number in [3, 1, 2] {
        create(&store, number).await;
    }
    assert_eq!(store.keys().await.unwrap(), [key(1), key(2), key(3)]);
}

async fn a_key_is_revoked_once_and_stays_revoked(open: Open<'_>) {
    let store = open();
    create(&store, 1).await;
    let id = key(1).0.id;
    assert_eq!(store.revoke_key(id.clone(), at(2000)).await.unwrap(), Revocation::Done);
    assert_eq!(store.revoke_key(id, at(3000)).await.unwrap(), Revocation::DoneBefore);
    let unknown = store.revoke_key(KeyId("key_9".into()), at(2000)).await.unwrap();
    assert_eq!(unknown, Revocation::NoSuchKey);
    let (expected, hash) = key(1);
    let expected = ApiKey { revoked_at: Some(at(2000)), ..expected };
    assert_eq!(store.key_by_hash(hash).await.unwrap(), Some(expected));
}

async fn what_was_answered_is_there_after_reopening(open: Open<'_>) {
    let store = open();
    create(&store, 1).await;
    store.close().await;
    assert_eq!(open().keys().await.unwrap(), [key(1)]);
}

async fn a_closed_store_says_so(open: Open<'_>) {
    let store = open();
    let other = store.clone();
    store.close().await;
    store.close().await;
    let refused = other.keys().await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
}

async fn many_callers_at_once_all_get_their_answer(open: Open<'_>) {
    let store = open();
    let callers = (0..200).map(|number| {
        let (key, hash) = key(number);
        store.create_key(key, hash)
    });
    for answer in futures_util::future::join_all(callers).await {
        answer.unwrap();
    }
    assert_eq!(store.keys().await.unwrap().len(), 200);
}
