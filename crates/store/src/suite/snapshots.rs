//! Promises about snapshots, and about sandboxes that are adjusted.

use model::{
    adjustment::{Adjustment, IdleRule},
    ids::{SnapshotId, Tag, Tenant},
    sandbox::{Request, Sandbox},
    snapshot::{Contents, Snapshot, SnapshotRef, SnapshotState},
    spec::{KeepStopped, Resources, RunAs},
    transition::{Answer, Creation},
};

use super::{Place, ask, at, create, creation, end};
use crate::{
    Store, StoreError,
    snapshots::{NewSnapshot, Tagged, Taking},
};

fn tenant() -> Tenant {
    "default".parse().unwrap()
}

fn snapshot(number: u8, name: &str) -> Snapshot {
    Snapshot {
        id: SnapshotId::from_random([number; 16]),
        tenant: tenant(),
        name: name.parse().unwrap(),
        node: "node-1".parse().unwrap(),
        state: SnapshotState::Building,
        created_at: at(1000 + i64::from(number)),
        updated_at: at(1000 + i64::from(number)),
        image: "host".to_owned(),
        resources: Resources::default(),
        run: RunAs::default(),
        env: [("TOKEN".to_owned(), "a\0secret".to_owned())].into(),
        labels: [("team".to_owned(), "ü".to_owned())].into(),
        description: None,
        created_by: Some("human:ada".to_owned()),
    }
}

fn new(snapshot: &Snapshot, tag: &str, taking: Taking) -> NewSnapshot {
    NewSnapshot { snapshot: snapshot.clone(), tag: tag.parse().unwrap(), taking, most: 3 }
}

async fn keep(store: &Store, snapshot: &Snapshot, tag: &str) {
    store.create_snapshot(new(snapshot, tag, Taking::Moving)).await.unwrap();
}

async fn find(store: &Store, reference: &str) -> Option<Tagged> {
    let reference: SnapshotRef = reference.parse().unwrap();
    store.find_snapshot(&tenant(), &reference).await.unwrap()
}

fn tagged(snapshot: &Snapshot, tags: &[&str]) -> Tagged {
    let tags: Vec<Tag> = tags.iter().map(|tag| tag.parse().unwrap()).collect();
    Tagged { snapshot: snapshot.clone(), tags }
}

fn ready() -> SnapshotState {
    SnapshotState::Ready(Contents { digest: Some("sha256:00".to_owned()), ..Contents::default() })
}

pub(super) async fn a_snapshot_is_found_by_its_id_its_name_and_its_tags_in_its_tenant_alone(
    place: Place,
) {
    let store = place.open().await;
    let (one, two) = (snapshot(1, "mine"), snapshot(2, "mine"));
    keep(&store, &one, "latest").await;
    keep(&store, &two, "v2").await;
    for (reference, expected) in [
        (one.id.as_str(), Some(tagged(&one, &["latest"]))),
        ("mine", Some(tagged(&one, &["latest"]))),
        ("mine:latest", Some(tagged(&one, &["latest"]))),
        ("mine:v2", Some(tagged(&two, &["v2"]))),
        ("mine:v3", None),
        ("other", None),
        (snapshot(9, "mine").id.as_str(), None),
    ] {
        assert_eq!(find(&store, reference).await, expected, "{reference}");
    }
    let all = store.snapshots(&tenant()).await.unwrap();
    assert_eq!(all, [tagged(&two, &["v2"]), tagged(&one, &["latest"])]);
    let other: Tenant = "other".parse().unwrap();
    assert_eq!(store.snapshots(&other).await.unwrap(), []);
    let by_id = SnapshotRef::Id(one.id.clone());
    assert_eq!(store.find_snapshot(&other, &by_id).await.unwrap(), None);
    let refused = store.delete_snapshot(&other, &one.id).await;
    assert!(matches!(refused, Err(StoreError::NotFound { .. })), "{refused:?}");
    store.delete_snapshot(&tenant(), &one.id).await.unwrap();
    let refused = store.delete_snapshot(&tenant(), &one.id).await;
    assert!(matches!(refused, Err(StoreError::NotFound { .. })), "{refused:?}");
    assert_eq!(find(&store, "mine").await, None);
    store.close().await;
    assert_eq!(find(&place.open().await, "mine:v2").await, Some(tagged(&two, &["v2"])));
}

pub(super) async fn a_tag_moves_to_the_newest_unless_it_must_be_free(place: Place) {
    let store = place.open().await;
    let (one, two, three) = (snapshot(1, "mine"), snapshot(2, "mine"), snapshot(3, "mine"));
    keep(&store, &one, "latest").await;
    let refused = store.create_snapshot(new(&two, "latest", Taking::Free)).await;
    assert!(matches!(refused, Err(StoreError::Conflict { what: "the snapshot" })), "{refused:?}");
    assert_eq!(find(&store, two.id.as_str()).await, None);
    keep(&store, &two, "latest").await;
    assert_eq!(find(&store, "mine").await, Some(tagged(&two, &["latest"])));
    assert_eq!(find(&store, one.id.as_str()).await, Some(tagged(&one, &[])));
    // Without the tag a name is the newest that is ready and has none.
    store.delete_snapshot(&tenant(), &two.id).await.unwrap();
    assert_eq!(find(&store, "mine").await, None);
    store.settle_snapshot(&one.id, ready(), at(5000)).await.unwrap();
    assert_eq!(find(&store, "mine").await.unwrap().snapshot.id, one.id);
    keep(&store, &three, "v3").await;
    assert_eq!(find(&store, "mine").await.unwrap().snapshot.id, one.id);
}

pub(super) async fn a_snapshot_is_settled_once(place: Place) {
    let store = place.open().await;
    let one = snapshot(1, "mine");
    keep(&store, &one, "latest").await;
    let node = &one.node;
    assert_eq!(store.snapshots_to_build(node).await.unwrap(), std::slice::from_ref(&one));
    assert_eq!(store.snapshots_to_build(&"node-2".parse().unwrap()).await.unwrap(), []);
    assert_eq!(store.ready_snapshots().await.unwrap(), []);
    store.settle_snapshot(&one.id, ready(), at(5000)).await.unwrap();
    let failed = SnapshotState::Failed { message: "too late".to_owned() };
    store.settle_snapshot(&one.id, failed.clone(), at(6000)).await.unwrap();
    let settled = Snapshot { state: ready(), updated_at: at(5000), ..one.clone() };
    assert_eq!(find(&store, "mine").await, Some(tagged(&settled, &["latest"])));
    assert_eq!(store.snapshots_to_build(node).await.unwrap(), []);
    assert_eq!(store.ready_snapshots().await.unwrap(), [settled]);
    // One that was deleted meanwhile is not there again.
    store.delete_snapshot(&tenant(), &one.id).await.unwrap();
    store.settle_snapshot(&one.id, failed, at(7000)).await.unwrap();
    assert_eq!(store.snapshots(&tenant()).await.unwrap(), []);
}

pub(super) async fn a_tenant_has_no_more_snapshots_than_it_may(place: Place) {
    let store = place.open().await;
    for number in 1..=3 {
        keep(&store, &snapshot(number, "mine"), "latest").await;
    }
    let refused = store.create_snapshot(new(&snapshot(4, "mine"), "v4", Taking::Moving)).await;
    assert!(matches!(refused, Err(StoreError::TooMany { most: 3, .. })), "{refused:?}");
    let others = Snapshot { tenant: "other".parse().unwrap(), ..snapshot(4, "mine") };
    keep(&store, &others, "latest").await;
}

pub(super) async fn a_damaged_snapshot_is_told(place: Place) {
    let store = place.open().await;
    keep(&store, &snapshot(1, "mine"), "latest").await;
    place.tamper("UPDATE snapshots SET node = 'node-2'").await;
    let damaged = store.snapshots(&tenant()).await;
    assert!(matches!(damaged, Err(StoreError::Damaged { .. })), "{damaged:?}");
}

fn renamed(name: &str) -> Request {
    let name = Some(name.parse().unwrap());
    Request::Adjust(Box::new(Adjustment { name, ..Adjustment::default() }))
}

async fn refuse(store: &Store, sandbox: &Sandbox, name: &str) {
    let Ok(Answer::Record(step)) = sandbox.request(renamed(name), at(5000)) else {
        panic!("it is not accepted");
    };
    let refused = store.change_sandbox(*step).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{name}: {refused:?}");
    assert_eq!(store.sandbox(&sandbox.id).await.unwrap().as_ref(), Some(sandbox));
}

fn called(number: u32, tenant: &str, alias: &str) -> Creation {
    let Sandbox { id, node, spec, .. } = creation(number).1;
    let alias = Some(alias.parse().unwrap());
    Creation::new(id, tenant.parse().unwrap(), alias, node, spec, at(1))
}

pub(super) async fn a_former_name_is_free_when_its_sandbox_is_deleted_and_not_before(place: Place) {
    let store = place.open().await;
    let (one, two) = (create(&store, 1).await, create(&store, 2).await);
    refuse(&store, &one, "alias-2").await;
    let one = ask(&store, &one, renamed("second")).await;
    let found = store.find_sandbox(&tenant(), "second").await.unwrap();
    assert_eq!(found.as_ref(), Some(&one));
    assert_eq!(store.find_sandbox(&tenant(), "alias-1").await.unwrap(), None);
    refuse(&store, &two, "alias-1").await;
    refuse(&store, &two, "second").await;
    for taken in ["alias-1", "second"] {
        let refused = store.create_sandbox(called(3, "default", taken)).await;
        assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{taken}: {refused:?}");
    }
    store.create_sandbox(called(3, "other", "alias-1")).await.unwrap();
    // It may have its own back; and when it is deleted, both are free.
    let one = ask(&store, &one, renamed("alias-1")).await;
    refuse(&store, &two, "second").await;
    end(&store, one).await;
    let two = ask(&store, &two, renamed("alias-1")).await;
    ask(&store, &two, renamed("second")).await;
}

pub(super) async fn an_adjusted_sandbox_is_found_as_it_is_now(place: Place) {
    let store = place.open().await;
    let sandbox = create(&store, 1).await;
    let adjustment = Adjustment {
        idle: Some(IdleRule::Never),
        keep_stopped: Some(KeepStopped::Forever),
        user: Some("root".to_owned()),
        env: [("NEW".to_owned(), "value".to_owned())].into(),
        by: Some("human:ada".to_owned()),
        ..Adjustment::default()
    };
    let adjusted = ask(&store, &sandbox, Request::Adjust(Box::new(adjustment))).await;
    assert_eq!(adjusted.spec.env.len(), 2);
    assert_eq!(store.sandbox(&sandbox.id).await.unwrap().as_ref(), Some(&adjusted));
    // Who decided before it decides again.
    let late = sandbox.observe(model::transition::Observation::Ready, at(5000)).unwrap();
    let Err(StoreError::Stale { current }) = store.change_sandbox(late).await else {
        panic!("it came too late");
    };
    assert_eq!(*current, adjusted);
    store.close().await;
    assert_eq!(place.open().await.sandbox(&sandbox.id).await.unwrap(), Some(adjusted));
}
