//! Promises of a database that several daemons share.

use futures_util::future::join_all;
use model::{event::Sequence, life::SuspendReason, transition::Observation};

use super::{Place, advance, create};
use crate::{
    Store, StoreError,
    failpoint::tests::{Told, write_to},
    sandboxes::PAGE,
};

fn address(place: &Place) -> &str {
    match place {
        Place::Postgres { address } => address,
        Place::Sqlite { .. } => panic!("only a database can be shared"),
    }
}

/// F23.
pub(super) async fn a_schema_from_the_future_is_refused_and_left_alone(place: Place) {
    place.open().await.close().await;
    place.tamper("UPDATE ringfence_schema SET version = 99").await;
    let refused = Store::connect(address(&place)).await;
    assert!(matches!(refused, Err(StoreError::Newer { found: 99, .. })), "{refused:?}");
    place.tamper("DO $$ BEGIN ASSERT (SELECT version = 99 FROM ringfence_schema); END $$").await;
}

/// I18: in no text of the store, nor in a refusal that may be logged with all its causes.
pub(super) async fn the_password_of_a_database_is_told_nobody(place: Place) {
    let secret = "canary-4d2e";
    let address = address(&place);
    let good = Store::connect(&format!("{address} password={secret}")).await.unwrap();
    let mut told = vec![format!("{good:?}")];
    for wrong in [
        format!("{address}_x password={secret}"),
        format!("{address} password='{secret}"),
        format!("{address} password={secret} unknown={secret}"),
        format!("postgres://ringfence:{secret}@127.0.0.1:1/x"),
        format!("postgres://ringfence:{secret}@127.0.0.1:port/x"),
        format!("ringfence:{secret}"),
    ] {
        let refused = Store::connect(&wrong).await.unwrap_err();
        told.push(format!("{refused} {refused:?}"));
        let mut cause = std::error::Error::source(&refused);
        while let Some(error) = cause {
            told.push(error.to_string());
            cause = error.source();
        }
    }
    let shown: Vec<&String> = told.iter().filter(|text| text.contains(secret)).collect();
    assert!(shown.is_empty(), "{shown:#?}");
    good.close().await;
}

pub(super) async fn daemons_that_start_together_find_one_schema(place: Place) {
    let stores = join_all((0..4).map(|_| place.open())).await;
    let sandbox = create(&stores[0], 1).await;
    for store in &stores {
        assert_eq!(store.sandbox(&sandbox.id).await.unwrap().as_ref(), Some(&sandbox));
    }
}

pub(super) async fn broken_connections_are_made_anew_and_nothing_is_missed(place: Place) {
    let [store, other, _] = place.open_three().await;
    let sandbox = create(&store, 1).await;
    let mut watch = other.watch(&sandbox.id);
    let mut tokens = other.follow_tokens();
    assert!(other.sandbox(&sandbox.id).await.unwrap().is_some());
    place
        .tamper(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .await;
    let epoch = store.rotate_key(&sandbox.id).await.unwrap();
    while other.standing(&sandbox.id).await.unwrap().epoch != epoch {
        tokens.next().await.unwrap();
    }
    let sandbox = advance(&store, &sandbox, Observation::Ready).await;
    // The one who listened was cut off too; when it listens again it looks again.
    while other.events(&sandbox.id, Sequence::ZERO, PAGE).await.unwrap().latest < Sequence(2) {
        watch.changed().await.unwrap();
    }
    assert_eq!(other.sandbox(&sandbox.id).await.unwrap(), Some(sandbox.clone()));
    // And it says that something may have been missed.
    while tokens.next().await.unwrap() != crate::tokens::Changed::Everything {}
    let mut watch = other.watch(&sandbox.id);
    let sandbox = advance(&store, &sandbox, Observation::Frozen(SuspendReason::Idle)).await;
    watch.changed().await.unwrap();
    assert_eq!(other.sandbox(&sandbox.id).await.unwrap(), Some(sandbox));
}

/// I1.
pub(super) async fn what_was_answered_is_kept_whenever_the_process_is_killed(place: Place) {
    for (failpoint, answered, kept) in [
        ("s.append=kill:4", 3, 3),
        ("s.pre_fsync=kill:5", 4, 4),
        ("s.post_fsync_pre_ack=kill:7", 6, 7),
    ] {
        let told = write_to(&place, failpoint).await;
        assert_eq!(told, Told { answered, refused: vec![], kept }, "{failpoint}");
        place.tamper("DELETE FROM sandbox_specs; DELETE FROM sandbox_labels").await;
        place.tamper("DELETE FROM sandboxes; DELETE FROM events").await;
    }
}

/// F74: the commit was done and its answer lost; the writer sees that and does nothing twice.
pub(super) async fn a_commit_whose_answer_is_lost_is_found_out(place: Place) {
    let told = write_to(&place, "s.post_fsync_pre_ack=error:4").await;
    assert_eq!(told, Told { answered: 10, refused: vec![], kept: 10 });
}

/// F58.
pub(super) async fn a_step_that_cannot_be_appended_is_refused_and_no_other(place: Place) {
    let told = write_to(&place, "s.append=error:3").await;
    assert_eq!(told, Told { answered: 9, refused: vec!["Commit".into()], kept: 9 });
}
