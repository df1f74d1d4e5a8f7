//! Promises about the audit log.

use std::{env, process::Command};

use futures_util::future::{join, join_all, join3};
use model::{
    audit::{Action, Entry, Outcome},
    transition::Observation,
};

use super::{Place, advance, at, create, creation, keys::key};
use crate::{
    Condition, Store, StoreError,
    audit::{Chain, Link, Order, PAGE, Part},
    keys::Revocation,
};

fn entry(number: u32) -> Entry {
    Entry {
        request: Some(format!("req_{number}")),
        tenant: Some("default".into()),
        ..Entry::new(at(i64::from(number)), Action::TokenMint, Outcome::Granted)
    }
}

/// Returns every line, and where the log ends, after verifying it.
async fn verified(store: &Store) -> (Vec<String>, Link) {
    let (mut lines, mut chain) = (Vec::<String>::new(), Chain::after(Link::START));
    loop {
        let beyond = u64::try_from(lines.len()).ok();
        let part = Part { order: Order::OldestFirst, beyond, limit: PAGE };
        let records = store.audit(part).await.unwrap();
        if records.is_empty() {
            break;
        }
        for record in records {
            lines.push(record.line().unwrap());
            chain.add(&lines[lines.len() - 1]).unwrap();
        }
    }
    let end = chain.end().unwrap();
    assert_eq!(store.audit_end().await.unwrap(), end);
    (lines, end)
}

/// Returns the requests that were recorded, in order.
async fn requests(store: &Store) -> Vec<u32> {
    let (lines, _) = verified(store).await;
    let number = |line: &String| {
        let record: crate::audit::Record = serde_json::from_str(line).unwrap();
        record.request_id.unwrap().trim_start_matches("req_").parse().unwrap()
    };
    lines.iter().map(number).collect()
}

pub(super) async fn records_are_chained_in_the_order_they_were_answered(place: Place) {
    let store = place.open().await;
    assert_eq!(store.audit_end().await.unwrap(), Link::START);
    for number in 0..5 {
        store.record(vec![entry(number)]).await.unwrap();
    }
    store.record((5..20).map(entry).collect()).await.unwrap();
    assert_eq!(requests(&store).await, (0..20).collect::<Vec<_>>());
    let part = |order, beyond, limit| Part { order, beyond, limit };
    let rows = [
        (part(Order::NewestFirst, None, 3), vec![20, 19, 18]),
        (part(Order::NewestFirst, Some(3), 9), vec![2, 1]),
        (part(Order::OldestFirst, Some(18), 9), vec![19, 20]),
        (part(Order::OldestFirst, Some(u64::MAX), 9), vec![]),
    ];
    for (part, expected) in rows {
        let found = store.audit(part).await.unwrap();
        let found: Vec<u64> = found.iter().map(|record| record.sequence).collect();
        assert_eq!(found, expected, "{part:?}");
    }
    store.close().await;
    let store = place.open().await;
    store.record(vec![entry(20)]).await.unwrap();
    assert_eq!(requests(&store).await.len(), 21);
}

/// I23.
pub(super) async fn what_is_done_is_recorded_with_it_or_not_at_all(place: Place) {
    let store = place.open().await;
    let (first, hash) = key(1);
    store.create_key_recorded(first.clone(), hash, entry(1)).await.unwrap();
    let refused = store.create_key_recorded(first.clone(), hash, entry(2)).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    for (number, expected) in [(3, Revocation::Done), (4, Revocation::DoneBefore)] {
        let at = first.created_at;
        let revoked = store.revoke_key_recorded(first.id.clone(), at, entry(number)).await;
        assert_eq!(revoked.unwrap(), expected);
    }
    store.create_sandbox_recorded(creation(1).0, entry(5)).await.unwrap();
    let refused = store.create_sandbox_recorded(creation(1).0, entry(6)).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    assert_eq!(requests(&store).await, [1, 3, 5]);
}

/// Nothing is kept of what was to be kept with something that did not come true, and all of what was written
/// together with it.
pub(super) async fn what_is_kept_on_a_condition_is_kept_if_it_is_met(place: Place) {
    let store = place.open().await;
    let (met, condition) = Condition::new();
    let unmet = store.create_sandbox_if(creation(1).0, vec![entry(1)], Some(condition));
    let other = store.create_sandbox_recorded(creation(2).0, entry(2));
    let (unmet, other, ()) = join3(unmet, other, async { drop(met) }).await;
    assert!(matches!(unmet, Err(StoreError::Unmet)), "{unmet:?}");
    other.unwrap();
    let (met, condition) = Condition::new();
    let kept = store.create_sandbox_if(creation(1).0, vec![entry(3)], Some(condition));
    let (kept, ()) = join(kept, async { met.now() }).await;
    kept.unwrap();
    let (met, condition) = Condition::new();
    let bare = store.create_sandbox_if(creation(3).0, Vec::new(), Some(condition));
    let (bare, ()) = join(bare, async { drop(met) }).await;
    assert!(matches!(bare, Err(StoreError::Unmet)), "{bare:?}");
    assert_eq!(requests(&store).await, [2, 3]);
    let (_, third) = creation(3);
    assert_eq!(store.sandbox(&third.id).await.unwrap(), None);
}

/// Three daemons, whose records are in one chain however they come together.
pub(super) async fn all_who_write_make_one_chain(place: Place) {
    let stores = place.open_three().await;
    let writers = (0..30_u32).map(|writer| {
        let store = &stores[usize::try_from(writer % 3).unwrap()];
        async move {
            for step in 0..10 {
                let number = 1000 + writer * 10 + step;
                let record = store.record(vec![entry(number)]);
                if step % 5 == 0 {
                    let create = store.create_sandbox_recorded(creation(number).0, entry(number));
                    let (recorded, created) = join(record, create).await;
                    recorded.and(created).unwrap();
                } else {
                    record.await.unwrap();
                }
            }
        }
    });
    join_all(writers).await;
    let mut numbers = requests(&stores[1]).await;
    assert_eq!(numbers.len(), 300 + 60);
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (1000..1300).collect::<Vec<_>>());
}

/// F14.
pub(super) async fn a_record_that_was_changed_is_told(place: Place) {
    let store = place.open().await;
    store.record((0..5).map(entry).collect()).await.unwrap();
    match &place {
        Place::Sqlite { .. } => place.tamper("DROP TRIGGER audit_is_not_changed").await,
        Place::Postgres { .. } => {
            place.tamper("DROP TRIGGER audit_is_only_added_to ON audit").await;
        }
    }
    let sql = "UPDATE audit SET body = replace(body, 'granted', 'denied') WHERE sequence = 4";
    place.tamper(sql).await;
    let part = Part { order: Order::OldestFirst, beyond: None, limit: 3 };
    assert_eq!(store.audit(part).await.unwrap().len(), 3);
    let told = store.audit(Part { beyond: Some(3), ..part }).await;
    let Err(StoreError::Damaged { report }) = told else { panic!("{told:?}") };
    assert_eq!(report, "audit record 4 does not fit its hash");
}

/// F78.
pub(super) async fn a_log_that_cannot_be_written_refuses_what_is_recorded_alone(place: Place) {
    let store = place.open().await;
    store.record(vec![entry(1)]).await.unwrap();
    let mut sandbox = create(&store, 1).await;
    place.tamper("ALTER TABLE audit RENAME TO away").await;
    for number in 2..12 {
        let sandbox_before = sandbox.clone();
        let seen = if number % 2 == 0 { Observation::Ready } else { Observation::Stopped };
        let going_on = async {
            match sandbox_before.observe(seen.clone(), at(1)) {
                Some(_) => advance(&store, &sandbox_before, seen.clone()).await,
                None => sandbox_before.clone(),
            }
        };
        let refused = join(
            store.record(vec![entry(number)]),
            store.create_sandbox_recorded(creation(number).0, entry(number)),
        );
        let (after, (recorded, created)) = join(going_on, refused).await;
        sandbox = after;
        for refused in [recorded, created] {
            let is_refused =
                matches!(refused, Err(StoreError::Audit { .. } | StoreError::Commit { .. }));
            assert!(is_refused, "{refused:?}");
        }
        assert_eq!(store.sandbox(&creation(number).1.id).await.unwrap(), None);
    }
    place.tamper("ALTER TABLE away RENAME TO audit").await;
    store.record(vec![entry(2)]).await.unwrap();
    assert_eq!(requests(&store).await, [1, 2]);
}

const STORE: &str = "RINGFENCE_TEST_AUDIT_STORE";

/// The other process of the promise below; does nothing by itself.
#[tokio::test]
async fn a_process_records_and_tells_each_answer() {
    let Ok(place) = env::var(STORE) else { return };
    let store = if place.contains("host=") {
        Store::connect(&place).await.unwrap()
    } else {
        Store::open(std::path::Path::new(&place)).unwrap()
    };
    for number in 0..20 {
        let (recorded, created) = join(
            store.record(vec![entry(number)]),
            store.create_sandbox_recorded(creation(number).0, entry(100 + number)),
        )
        .await;
        recorded.and(created).unwrap();
        println!("answered");
    }
}

/// K9.
pub(super) async fn a_killed_process_leaves_a_whole_chain(place: Place) {
    let mut before = 0;
    for failpoint in
        ["b.audit_append=kill:9", "s.pre_fsync=kill:7", "s.post_fsync_pre_ack=kill:7", "none=kill"]
    {
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("suite::audit::a_process_records_and_tells_each_answer")
            .env("RF_FAILPOINT", failpoint)
            .env(STORE, place.address())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let answered = text.lines().filter(|line| line.ends_with("answered")).count();
        let store = place.open().await;
        let kept = verified(&store).await.0.len() - before;
        assert!(kept >= 2 * answered && answered > 0, "{failpoint}: {answered} {kept}");
        assert!(answered < 20 || failpoint == "none=kill", "{failpoint}");
        before += kept;
        store.close().await;
        place.tamper("DELETE FROM sandbox_specs; DELETE FROM sandbox_labels").await;
        place.tamper("DELETE FROM sandboxes; DELETE FROM events").await;
    }
}
