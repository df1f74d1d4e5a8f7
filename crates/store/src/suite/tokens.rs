//! Promises about tokens.

use futures_util::future::join_all;
use model::{
    actor::{Actor, ActorKind},
    ids::SandboxId,
    revocation::{Revocation, Standing, Subject, Successor},
    token::Epoch,
    units::Timestamp,
};

use super::{Place, at, create, end};
use crate::{
    Store,
    keys::KeyHash,
    tokens::{Changed, OpaqueToken},
};

fn sandbox(number: u8) -> SandboxId {
    SandboxId::from_random([number; 16])
}

fn of_token(id: &str, ends_at: i64) -> Revocation {
    Revocation { keep_until: at(10_000), ..Revocation::of_token(&sandbox(1), id, at(ends_at)) }
}

fn of_actor(kind: ActorKind, ends_at: i64) -> Revocation {
    let actor = Actor { kind, id: "ada".to_owned() };
    Revocation { subject: Subject::Actor(actor), ..of_token("", ends_at) }
}

async fn revoke(store: &Store, revocation: &Revocation, now: Timestamp) {
    store.revoke_tokens(revocation.clone(), now).await.unwrap();
}

pub(super) async fn the_epoch_of_a_key_is_raised_and_stays(place: Place) {
    let stores = place.open_three().await;
    assert_eq!(stores[0].standings().await.unwrap(), []);
    assert_eq!(stores[0].standing(&sandbox(1)).await.unwrap(), Standing::default());
    // Every one of them has an epoch of its own, whoever raised it.
    let ours = sandbox(1);
    let rotations = (0..30).map(|number| stores[number % 3].rotate_key(&ours));
    let mut epochs: Vec<u32> =
        join_all(rotations).await.into_iter().map(|epoch| epoch.unwrap().0).collect();
    epochs.sort_unstable();
    assert_eq!(epochs, (2..32).collect::<Vec<u32>>());
    stores[1].rotate_key(&sandbox(2)).await.unwrap();
    for store in &stores {
        store.close().await;
    }
    let store = place.open().await;
    assert_eq!(store.standing(&sandbox(1)).await.unwrap().epoch, Epoch(31));
    assert_eq!(store.standings().await.unwrap().len(), 2);
    // It goes with the record of the sandbox, and not before.
    let record = create(&store, 1).await;
    store.rotate_key(&record.id).await.unwrap();
    let record = end(&store, record).await;
    assert_eq!(store.standing(&record.id).await.unwrap().epoch, Epoch(2));
    store.purge_sandboxes(at(1_000_000), 1).await.unwrap();
    assert_eq!(store.standing(&record.id).await.unwrap(), Standing::default());
}

pub(super) async fn ends_of_tokens_are_kept_until_they_are_over(place: Place) {
    let store = place.open().await;
    let successor = Successor { id: "tok_2".to_owned(), expires_at: at(9000) };
    let replaced = Revocation { successor: Some(successor), ..of_token("tok_1", 5000) };
    let (human, agent) = (of_actor(ActorKind::Human, 6000), of_actor(ActorKind::Agent, 7000));
    let brief = Revocation { keep_until: at(5000), ..of_token("tok_3", 4000) };
    let elsewhere = Revocation { sandbox: sandbox(2), ..of_token("tok_1", 4500) };
    for revocation in [&replaced, &human, &agent, &brief, &elsewhere] {
        revoke(&store, revocation, at(4000)).await;
    }
    store.close().await;
    let store = place.open().await;
    let known = [replaced.clone(), human.clone(), agent.clone(), brief];
    let expected = Standing::new(Epoch::FIRST, known);
    assert_eq!(store.standing(&sandbox(1)).await.unwrap(), expected);
    let mut all = store.standings().await.unwrap();
    all.sort_by_key(|(sandbox, _)| sandbox.clone());
    let other = Standing::new(Epoch::FIRST, [elsewhere]);
    assert_eq!(all, [(sandbox(1), expected), (sandbox(2), other)]);
    // Whoever adds one takes those away that are over.
    let next = of_token("tok_4", 5500);
    revoke(&store, &next, at(5001)).await;
    let expected = Standing::new(Epoch::FIRST, [replaced, human, agent, next]);
    assert_eq!(store.standing(&sandbox(1)).await.unwrap(), expected);
    revoke(&store, &Revocation { keep_until: at(20_000), ..of_token("t", 1) }, at(10_001)).await;
    assert_eq!(store.standings().await.unwrap().len(), 1);
}

pub(super) async fn nothing_that_ended_comes_back(place: Place) {
    let store = place.open().await;
    let mut expected = Standing::default();
    let successor = Some(Successor { id: "tok_2".to_owned(), expires_at: at(9000) });
    let long = Revocation { keep_until: at(30_000), ..of_token("tok_1", 4000) };
    let replaced = Revocation { successor, ..of_token("tok_9", 4500) };
    for revocation in [
        replaced.clone(),
        Revocation { ends_at: at(4400), ..replaced.clone() },
        of_token("tok_9", 5000),
        replaced,
        of_token("tok_1", 5000),
        long,
        of_token("tok_1", 6000),
        of_actor(ActorKind::Human, 5000),
        of_actor(ActorKind::Human, 7000),
        of_actor(ActorKind::Human, 6000),
    ] {
        expected.add(revocation.clone());
        revoke(&store, &revocation, at(0)).await;
        assert_eq!(store.standing(&sandbox(1)).await.unwrap(), expected);
    }
}

pub(super) async fn an_opaque_token_is_found_by_its_hash_until_its_end(place: Place) {
    let [store, other, _] = place.open_three().await;
    let token = |number: u8, keep_until| OpaqueToken {
        hash: KeyHash([number; 32]),
        sandbox: sandbox(number % 2),
        epoch: Epoch(3),
        claims: "{\"é\":1}".to_owned(),
        keep_until: at(keep_until),
    };
    for token in [token(1, 5000), token(2, 7000), token(3, 9000)] {
        store.keep_token(token, at(1000)).await.unwrap();
    }
    for number in [1, 2, 3] {
        let found = other.opaque_token(KeyHash([number; 32])).await.unwrap().unwrap();
        assert_eq!(found, token(number, 3000 + 2000 * i64::from(number)));
    }
    store.keep_token(token(4, 9000), at(6000)).await.unwrap();
    assert_eq!(other.opaque_token(KeyHash([1; 32])).await.unwrap(), None);
    assert_eq!(other.opaque_token(KeyHash([9; 32])).await.unwrap(), None);
    // A new key is the end of all that was given out before.
    other.rotate_key(&sandbox(1)).await.unwrap();
    assert_eq!(store.opaque_token(KeyHash([3; 32])).await.unwrap(), None);
    assert_eq!(store.opaque_token(KeyHash([2; 32])).await.unwrap(), Some(token(2, 7000)));
}

pub(super) async fn what_happens_to_tokens_reaches_everybody(place: Place) {
    let [writer, reader, _] = place.open_three().await;
    let mut changes = reader.follow_tokens();
    let epoch = writer.rotate_key(&sandbox(1)).await.unwrap();
    while reader.standing(&sandbox(1)).await.unwrap().epoch != epoch {
        changes.next().await.unwrap();
    }
    let mut changes = reader.follow_tokens();
    revoke(&writer, &of_token("tok_1", 5000), at(0)).await;
    // There may be news of before.
    while changes.next().await.unwrap() != Changed::Sandbox(sandbox(1)) {}
    while reader.standing(&sandbox(1)).await.unwrap()
        != Standing::new(epoch, [of_token("tok_1", 5000)])
    {
        changes.next().await.unwrap();
    }
}

pub(super) async fn that_a_key_is_revoked_reaches_those_who_follow_tokens(place: Place) {
    let [writer, reader, _] = place.open_three().await;
    let (key, hash) = super::keys::key(1);
    writer.create_key(key.clone(), hash).await.unwrap();
    let mut changes = reader.follow_tokens();
    let revoked_at = key.created_at;
    writer.revoke_key(key.id, revoked_at).await.unwrap();
    while changes.next().await.unwrap() != Changed::Everything {}
    while reader.keys().await.unwrap()[0].0.revoked_at != Some(revoked_at) {
        changes.next().await.unwrap();
    }
}
