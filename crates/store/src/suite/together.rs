//! Promises about many callers at once.

use futures_util::future::join_all;
use model::{
    event::Sequence,
    life::{EndCause, Life},
    sandbox::{Request, Sandbox},
    transition::Observation,
};

use super::{Place, advance, at, create, creation, end};
use crate::{Store, StoreError, sandboxes::PAGE};

pub(super) async fn a_watcher_is_waked_when_there_is_something_to_read(place: Place) {
    let [writer, reader, _] = place.open_three().await;
    let sandbox = create(&writer, 1).await;
    let mut watch = reader.watch(&sandbox.id);
    let mut read = Sequence::ZERO;
    let expected = end(&writer, advance(&writer, &sandbox, Observation::Ready).await).await;
    loop {
        let told = reader.events(&sandbox.id, read, 2).await.unwrap();
        read = told.events.last().map_or(read, |event| event.sequence);
        if read == expected.life.sequence {
            break;
        }
        if read == told.latest {
            watch.changed().await.unwrap();
        }
    }
    // The end of the record is told too.
    let mut watch = reader.watch(&sandbox.id);
    writer.purge_sandboxes(at(1_000_000), 1).await.unwrap();
    watch.changed().await.unwrap();
    let gone = reader.events(&sandbox.id, read, 1).await;
    assert!(matches!(gone, Err(StoreError::NotFound { .. })), "{gone:?}");
}

async fn warn(store: &Store, sandbox: &mut Sandbox, seconds: u32) {
    loop {
        let seen = Observation::EndsSoon { cause: EndCause::HardTtl, seconds };
        let transition = sandbox.observe(seen, at(6000)).expect("it is alive");
        match store.change_sandbox(transition.clone()).await {
            Ok(()) => {
                *sandbox = sandbox.clone().after(&transition);
                return;
            }
            Err(StoreError::Stale { current }) => *sandbox = *current,
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// F54: what is told is never ahead of what is read.
pub(super) async fn a_watcher_never_reads_a_state_older_than_an_event(place: Place) {
    let [writer, reader, _] = place.open_three().await;
    let mut sandbox = create(&writer, 1).await;
    let id = sandbox.id.clone();
    let follow = async {
        let mut watch = reader.watch(&id);
        let mut read = Sequence::ZERO;
        while read < Sequence(101) {
            let known = watch.latest();
            let told = reader.events(&id, read, PAGE).await.unwrap();
            let state = reader.sandbox(&id).await.unwrap().unwrap();
            assert!(state.life.sequence >= told.latest && told.latest >= known);
            for event in &told.events {
                assert_eq!(event.sequence, read.next());
                read = event.sequence;
            }
            if told.events.is_empty() {
                watch.changed().await.unwrap();
            }
        }
    };
    let write = async {
        for seconds in 0..100 {
            warn(&writer, &mut sandbox, seconds).await;
        }
    };
    futures_util::future::join(follow, write).await;
}

/// I5 with three daemons: 3 handles × 4 tasks × 20 steps on 2 sandboxes.
pub(super) async fn racing_writers_leave_no_gap_and_lose_nothing(place: Place) {
    let stores = place.open_three().await;
    let sandboxes = [create(&stores[0], 1).await, create(&stores[0], 2).await];
    let writers = (0..12_u32).map(|writer| {
        let store = &stores[usize::try_from(writer % 3).unwrap()];
        let mut sandbox = sandboxes[usize::try_from(writer % 2).unwrap()].clone();
        async move {
            for step in 0..20 {
                warn(store, &mut sandbox, writer * 100 + step).await;
            }
        }
    });
    join_all(writers).await;
    for sandbox in &sandboxes {
        let told = stores[1].events(&sandbox.id, Sequence::ZERO, PAGE).await.unwrap();
        let state = stores[2].sandbox(&sandbox.id).await.unwrap().unwrap();
        assert_eq!(Life::replay(&told.events), Ok(state.life));
        assert_eq!(told.latest, Sequence(1 + 6 * 20));
        let mut kinds: Vec<String> =
            told.events.iter().map(|event| format!("{:?}", event.kind)).collect();
        kinds.sort();
        kinds.dedup();
        assert_eq!(kinds.len(), 121, "every step is there once");
    }
}

pub(super) async fn a_refused_command_spoils_no_other(place: Place) {
    let store = place.open().await;
    create(&store, 0).await;
    // One in three has a name that is taken.
    let creations = (0..90).map(|number| {
        let number = if number % 3 == 0 { 0 } else { number };
        let store = &store;
        async move { (number, store.create_sandbox(creation(number).0).await) }
    });
    for (number, answer) in join_all(creations).await {
        assert_eq!(answer.is_err(), number == 0, "{answer:?}");
    }
    let node = creation(0).1.node;
    assert_eq!(store.unfinished_sandboxes(&node).await.unwrap().sandboxes.len(), 61);
}

pub(super) async fn two_creators_of_one_alias_give_one_sandbox(place: Place) {
    let stores = place.open_three().await;
    for round in 0..10_u32 {
        let creators = stores.iter().zip(1..).map(|(store, creator)| async move {
            let sandbox = creation(round * 10 + creator).1;
            let alias = Some(format!("round-{round}").parse().unwrap());
            let creation = model::transition::Creation::new(
                sandbox.id,
                sandbox.tenant,
                alias,
                sandbox.node,
                sandbox.spec,
                at(1),
            );
            store.create_sandbox(creation).await
        });
        let answers = join_all(creators).await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
        for refused in answers.into_iter().filter_map(Result::err) {
            assert!(matches!(refused, StoreError::Conflict { .. }), "{refused:?}");
        }
    }
}

pub(super) async fn a_closed_store_ends_its_watches(place: Place) {
    let store = place.open().await;
    let sandbox = create(&store, 1).await;
    let mut watch = store.watch(&sandbox.id);
    store.close().await;
    assert!(matches!(watch.changed().await, Err(StoreError::Closed)));
    let refused = store.sandbox(&sandbox.id).await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
    let late = sandbox.request(Request::Delete(EndCause::Requested), at(1));
    let Ok(model::transition::Answer::Record(late)) = late else { panic!("it was alive") };
    let refused = store.change_sandbox(*late).await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
}
