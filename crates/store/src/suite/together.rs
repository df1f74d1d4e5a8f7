//! Promises about many callers at once.

use futures_util::future::join_all;
use model::{
    event::Sequence,
    execution::Exit,
    ids::ExecId,
    life::{Crash, EndCause, Life, SuspendReason},
    sandbox::{Request, Sandbox, WhenStopped},
    spec::ExecSpec,
    transition::{Answer, Observation, Transition},
};
use tokio::sync::Semaphore;

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

/// F54: what is told is never ahead of what is read, and a state and the events after it make every
/// later state.
pub(super) async fn a_watcher_never_reads_a_state_older_than_an_event(place: Place) {
    let [writer, reader, _] = place.open_three().await;
    let mut sandbox = create(&writer, 1).await;
    let id = sandbox.id.clone();
    let follow = async {
        let mut watch = reader.watch(&id);
        let mut life = reader.sandbox(&id).await.unwrap().unwrap().life;
        let mut read = life.sequence;
        while read < Sequence(101) {
            let known = watch.latest();
            let told = reader.events(&id, read, PAGE).await.unwrap();
            let state = reader.sandbox(&id).await.unwrap().unwrap();
            assert!(state.life.sequence >= told.latest && told.latest >= known);
            for event in &told.events {
                assert_eq!(event.sequence, read.next());
                read = event.sequence;
                life = life.after(event).unwrap();
            }
            assert!(state.life.sequence != read || state.life == life, "{:?} {life:?}", state.life);
            if told.events.is_empty() {
                watch.changed().await.unwrap();
            }
        }
        assert_eq!(reader.sandbox(&id).await.unwrap().unwrap().life, life);
    };
    let write = async {
        for seconds in 0..100 {
            warn(&writer, &mut sandbox, seconds).await;
        }
    };
    futures_util::future::join(follow, write).await;
}

/// F53: who is overtaken by forgetting is told from where on there are events, and misses none of
/// those in silence.
pub(super) async fn forgetting_never_makes_a_hole(place: Place) {
    const LAST: Sequence = Sequence(301);
    let [writer, reader, keeper] = place.open_three().await;
    let mut sandbox = create(&writer, 1).await;
    let id = sandbox.id.clone();
    // One who reads an event for every two that are written.
    let pace = Semaphore::new(0);
    let write = async {
        for seconds in 0..300 {
            warn(&writer, &mut sandbox, seconds).await;
            pace.add_permits(usize::from(seconds % 2 == 0));
            // Most of the time a few are kept, and now and then none but the last.
            let keep = if seconds % 20 == 0 { 0 } else { 12 };
            let earliest = sandbox.life.sequence.0.saturating_sub(keep).max(1);
            keeper.trim_events(&id, Sequence(earliest)).await.unwrap();
        }
        pace.close();
    };
    let follow = async {
        let (mut read, mut overtaken) = (Sequence::ZERO, 0_u32);
        while read < LAST {
            if let Ok(turn) = pace.acquire().await {
                turn.forget();
            }
            match reader.events(&id, read, 1).await {
                Ok(told) => {
                    for event in &told.events {
                        assert_eq!(event.sequence, read.next());
                        read = event.sequence;
                    }
                }
                Err(StoreError::OutOfRange { asked, earliest, latest }) => {
                    assert!(asked == read && earliest > read.next() && earliest <= latest);
                    overtaken += 1;
                    read = Sequence(earliest.0 - 1);
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        overtaken
    };
    let (overtaken, ()) = futures_util::future::join(follow, write).await;
    assert!(overtaken >= 10, "overtaken {overtaken} times");
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
    // What was told before may still be on its way.
    let ended = loop {
        if let Err(ended) = watch.changed().await {
            break ended;
        }
    };
    assert!(matches!(ended, StoreError::Closed), "{ended:?}");
    let refused = store.sandbox(&sandbox.id).await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
    let late = sandbox.request(Request::Delete(EndCause::Requested), at(1));
    let Ok(Answer::Record(late)) = late else { panic!("it was alive") };
    let refused = store.change_sandbox(*late).await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
}

/// A source of numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Something that may happen to a sandbox, whether it makes sense at the moment or not.
    fn throw(&mut self, sandbox: &Sandbox) -> Option<Transition> {
        let exec: ExecId = format!("exec-{}-{}", sandbox.id, self.below(40)).parse().unwrap();
        let request = match self.below(12) {
            0 => Request::Stop(SuspendReason::Requested),
            1 | 2 => Request::Resume,
            3 => Request::CancelExec(exec),
            4 => Request::Use(WhenStopped::Refuse),
            5 if self.below(10) == 0 => Request::Delete(EndCause::Requested),
            5..=8 => {
                let (spec, when_stopped) = (ExecSpec::default(), WhenStopped::Refuse);
                Request::StartExec { exec, spec, when_stopped }
            }
            _ => return sandbox.observe(self.see(exec), at(7000)),
        };
        match sandbox.request(request, at(7000)) {
            Ok(Answer::Record(transition)) => Some(*transition),
            Ok(Answer::Act | Answer::First(_) | Answer::AlreadySo) | Err(_) => None,
        }
    }

    fn see(&mut self, exec: ExecId) -> Observation {
        match self.below(8) {
            0 | 1 => Observation::Ready,
            2 => Observation::Stopped,
            3 => Observation::Deleted,
            4 => Observation::Crashed(Crash::SupervisorLost),
            5 => Observation::Frozen(SuspendReason::Idle),
            6 => Observation::Thawed,
            _ => Observation::ExecExited { exec, exit: Exit::Code(0) },
        }
    }
}

/// Lives that nobody thought up are kept as they were lived.
pub(super) async fn lives_by_chance_are_kept_as_they_were_lived(place: Place) {
    let stores = place.open_three().await;
    let lives = join_all((0..8_u32).map(|number| {
        let stores = &stores;
        async move {
            let mut dice = Dice(u64::from(number));
            let mut sandbox = create(&stores[0], number).await;
            for _ in 0..150 {
                let store = &stores[usize::try_from(dice.below(3)).unwrap()];
                let Some(transition) = dice.throw(&sandbox) else { continue };
                match store.change_sandbox(transition.clone()).await {
                    Ok(()) => sandbox = sandbox.after(&transition),
                    // The command has run before.
                    Err(StoreError::Conflict { what: "the exec" }) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
            sandbox
        }
    }))
    .await;
    for sandbox in lives {
        let kept = stores[1].sandbox(&sandbox.id).await.unwrap().unwrap();
        assert_eq!(kept, sandbox);
        let told = stores[2].events(&sandbox.id, Sequence::ZERO, PAGE).await.unwrap();
        assert_eq!(Life::replay(&told.events), Ok(sandbox.life.clone()));
        let running = stores[0].running_execs(&sandbox.tenant, Some(&sandbox.id)).await.unwrap();
        let running: Vec<_> = running.into_iter().map(|found| found.exec.id).collect();
        assert_eq!(running, sandbox.life.running.into_keys().collect::<Vec<_>>());
    }
}
