//! Promises about keys.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::actor::{Actor, ActorKind};

use super::Place;
use crate::{
    Store, StoreError,
    keys::{ApiKey, KeyHash, KeyId, Revocation, Role},
};

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

pub(super) fn key(number: u8) -> (ApiKey, KeyHash) {
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

pub(super) async fn a_key_is_found_as_it_was_created(place: Place) {
    let store = place.open().await;
    create(&store, 1).await;
    let (expected, hash) = key(1);
    assert_eq!(store.key_by_hash(hash).await.unwrap(), Some(expected));
    assert_eq!(store.key_by_hash(KeyHash([9; 32])).await.unwrap(), None);
}

pub(super) async fn a_key_is_created_once(place: Place) {
    let store = place.open().await;
    create(&store, 1).await;
    let (same_id, other_hash) = (key(1).0, key(2).1);
    let (other_id, same_hash) = (key(2).0, key(1).1);
    for (key, hash) in [(same_id, other_hash), (other_id, same_hash)] {
        let refused = store.create_key(key, hash).await;
        assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    }
    assert_eq!(store.keys().await.unwrap(), [key(1)]);
}

pub(super) async fn keys_are_listed_oldest_first(place: Place) {
    let store = place.open().await;
    for number in [3, 1, 2] {
        create(&store, number).await;
    }
    assert_eq!(store.keys().await.unwrap(), [key(1), key(2), key(3)]);
}

pub(super) async fn a_key_is_revoked_once_and_stays_revoked(place: Place) {
    let store = place.open().await;
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

pub(super) async fn what_was_answered_is_there_after_reopening(place: Place) {
    let store = place.open().await;
    create(&store, 1).await;
    store.close().await;
    assert_eq!(place.open().await.keys().await.unwrap(), [key(1)]);
}

pub(super) async fn a_closed_store_says_so(place: Place) {
    let store = place.open().await;
    let other = store.clone();
    store.close().await;
    store.close().await;
    let refused = other.keys().await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
}

pub(super) async fn many_callers_at_once_all_get_their_answer(place: Place) {
    let store = place.open().await;
    let callers = (0..200).map(|number| {
        let (key, hash) = key(number);
        store.create_key(key, hash)
    });
    for answer in futures_util::future::join_all(callers).await {
        answer.unwrap();
    }
    assert_eq!(store.keys().await.unwrap().len(), 200);
}
