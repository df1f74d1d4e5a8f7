//! Promises about sandboxes, their events and their execs.

use std::collections::BTreeMap;

use model::{
    event::{EventKind, Sequence},
    exec::{ExecEnd, ExecState},
    execution::Exit,
    ids::{ExecId, Tenant},
    life::{Life, Phase, SuspendReason},
    sandbox::{Request, Sandbox, WhenStopped},
    spec::{ExecSpec, Idle, Suspend},
    transition::{Creation, Observation},
};

use super::{Place, advance, ask, at, create, creation, creation_with, end};
use crate::{
    Store, StoreError,
    sandboxes::{Cursor, Filter, PAGE, Page, Phases},
};

fn tenant() -> Tenant {
    "default".parse().unwrap()
}

fn exec_id(id: &str) -> ExecId {
    id.parse().unwrap()
}

fn start(id: &str) -> Request {
    let command = vec!["echo".to_owned(), "a\0b".to_owned()];
    let spec = ExecSpec { command, working_directory: "/workspace".into(), ..ExecSpec::default() };
    Request::StartExec { exec: exec_id(id), spec, when_stopped: WhenStopped::Refuse }
}

async fn ready(store: &Store, number: u32) -> Sandbox {
    let sandbox = create(store, number).await;
    advance(store, &sandbox, Observation::Ready).await
}

pub(super) async fn a_sandbox_is_found_as_it_was_created_and_by_its_tenant_only(place: Place) {
    let store = place.open().await;
    let sandbox = create(&store, 1).await;
    let (by_tenant, other): (Tenant, Tenant) = (tenant(), "other".parse().unwrap());
    assert_eq!(store.sandbox(&sandbox.id).await.unwrap().as_ref(), Some(&sandbox));
    for name in ["alias-1", sandbox.id.as_str()] {
        let found = store.find_sandbox(&by_tenant, name).await.unwrap();
        assert_eq!(found.as_ref(), Some(&sandbox));
        assert_eq!(store.find_sandbox(&other, name).await.unwrap(), None);
    }
    assert_eq!(store.sandbox(&creation(2).1.id).await.unwrap(), None);
    store.close().await;
    assert_eq!(place.open().await.sandbox(&sandbox.id).await.unwrap(), Some(sandbox));
}

pub(super) async fn an_id_is_given_once_and_an_alias_to_one_sandbox_at_a_time(place: Place) {
    let store = place.open().await;
    create(&store, 1).await;
    let (same, _) = creation(1);
    let refused = store.create_sandbox(same).await;
    assert!(matches!(refused, Err(StoreError::Conflict { what: "the sandbox" })), "{refused:?}");

    let with = |number, owner: &str, alias: Option<&str>| {
        let sandbox = creation(number).1;
        Creation::new(
            sandbox.id,
            owner.parse().unwrap(),
            alias.map(|alias| alias.parse().unwrap()),
            sandbox.node,
            sandbox.spec,
            at(1),
        )
    };
    let refused = store.create_sandbox(with(2, "default", Some("alias-1"))).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    store.create_sandbox(with(2, "other", Some("alias-1"))).await.unwrap();
    store.create_sandbox(with(3, "default", None)).await.unwrap();
    store.create_sandbox(with(4, "default", None)).await.unwrap();
}

pub(super) async fn a_name_is_free_again_once_its_sandbox_is_deleted(place: Place) {
    let store = place.open().await;
    let named = |number| {
        let Sandbox { id, tenant, node, spec, .. } = creation(number).1;
        let alias = Some("again".parse().unwrap());
        Creation::new(id, tenant, alias, node, spec, at(i64::from(number)))
    };
    let mut gone = Vec::new();
    for number in 1..=3 {
        let (creation, refused) = (named(number), named(number + 10));
        let sandbox = creation.sandbox().clone();
        store.create_sandbox(creation).await.unwrap();
        let refused = store.create_sandbox(refused).await;
        assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
        let found = store.find_sandbox(&tenant(), "again").await.unwrap();
        assert_eq!(found.as_ref(), Some(&sandbox), "the one that is there is meant");
        gone.push(end(&store, sandbox).await);
        // Those that are gone are found by their ids, and the last one by the name.
        for sandbox in &gone {
            let found = store.find_sandbox(&tenant(), sandbox.id.as_str()).await.unwrap();
            assert_eq!(found.as_ref(), Some(sandbox));
        }
        let found = store.find_sandbox(&tenant(), "again").await.unwrap();
        assert_eq!(found.as_ref(), gone.last());
    }
    let again = store.create_sandbox(named(1)).await;
    assert!(
        matches!(again, Err(StoreError::Conflict { .. })),
        "an id is never given again: {again:?}"
    );
}

pub(super) async fn variables_of_a_command_go_with_its_end_and_the_rest_with_its_sandbox(
    place: Place,
) {
    let store = place.open().await;
    let sandbox = ready(&store, 1).await;
    let spec = ExecSpec {
        command: vec!["deploy".into()],
        env: [("TOKEN".to_owned(), "hunter2".to_owned())].into(),
        ..ExecSpec::default()
    };
    let exec = exec_id("exec-1");
    let (when_stopped, started) = (WhenStopped::Refuse, spec.clone());
    let start = Request::StartExec { exec: exec.clone(), spec: started, when_stopped };
    let sandbox = ask(&store, &sandbox, start).await;
    let kept = |store: Store| async move {
        store.exec(&tenant(), &exec_id("exec-1")).await.unwrap().unwrap().exec.spec
    };
    assert_eq!(kept(store.clone()).await, spec);
    let exit = Exit::Code(0);
    let sandbox = advance(&store, &sandbox, Observation::ExecExited { exec, exit }).await;
    let without = ExecSpec { env: [].into(), ..spec };
    assert_eq!(kept(store.clone()).await, without);
    end(&store, sandbox).await;
    assert_eq!(kept(store.clone()).await, ExecSpec::default());
}

pub(super) async fn a_step_keeps_state_events_and_execs_together(place: Place) {
    let store = place.open().await;
    let sandbox = ready(&store, 1).await;
    let sandbox = ask(&store, &sandbox, start("exec-1")).await;
    let sandbox = ask(&store, &sandbox, Request::Stop(SuspendReason::Requested)).await;
    let exit = Observation::ExecExited { exec: exec_id("exec-1"), exit: Exit::Code(7) };
    let sandbox = advance(&store, &sandbox, exit).await;
    let sandbox = advance(&store, &sandbox, Observation::Stopped).await;
    assert_eq!(store.sandbox(&sandbox.id).await.unwrap().as_ref(), Some(&sandbox));

    let told = store.events(&sandbox.id, Sequence::ZERO, PAGE).await.unwrap();
    assert_eq!((told.earliest, told.latest), (Sequence(1), sandbox.life.sequence));
    assert_eq!(Life::replay(&told.events), Ok(sandbox.life.clone()), "I6");
    let found = store.exec(&tenant(), &exec_id("exec-1")).await.unwrap().unwrap();
    assert_eq!(found.latest, sandbox.life.sequence);
    assert_eq!(found.exec.life.state, ExecState::Ended(ExecEnd::Exited(Exit::Code(7))));
    assert_eq!(found.exec.spec.command, ["echo", "a\0b"]);
    let ended = &told.events[usize::try_from(found.exec.life.sequence.0).unwrap() - 1];
    assert!(matches!(ended.kind, EventKind::ExecEnded { .. }), "{ended:?}");
    assert_eq!(store.exec(&"other".parse().unwrap(), &exec_id("exec-1")).await.unwrap(), None);
}

pub(super) async fn a_step_that_came_too_late_gets_the_current_record_and_leaves_nothing(
    place: Place,
) {
    let store = place.open().await;
    let before = ready(&store, 1).await;
    let after = ask(&store, &before, Request::Stop(SuspendReason::Requested)).await;
    let Ok(model::transition::Answer::Record(late)) = before.request(start("exec-1"), at(6000))
    else {
        panic!("it was ready");
    };
    let Err(StoreError::Stale { current }) = store.change_sandbox(*late).await else {
        panic!("it came too late");
    };
    assert_eq!(*current, after);
    assert_eq!(store.sandbox(&after.id).await.unwrap().as_ref(), Some(&after));
    assert_eq!(store.exec(&tenant(), &exec_id("exec-1")).await.unwrap(), None);

    let unknown = creation(9).1.observe(Observation::Ready, at(1)).unwrap();
    let refused = store.change_sandbox(unknown).await;
    assert!(matches!(refused, Err(StoreError::NotFound { .. })), "{refused:?}");
}

pub(super) async fn an_exec_id_is_used_once_in_a_tenant(place: Place) {
    let store = place.open().await;
    let (one, other) = (ready(&store, 1).await, ready(&store, 2).await);
    ask(&store, &one, start("exec-1")).await;
    let Ok(model::transition::Answer::Record(again)) = other.request(start("exec-1"), at(6000))
    else {
        panic!("this sandbox does not know of it");
    };
    let refused = store.change_sandbox(*again).await;
    assert!(matches!(refused, Err(StoreError::Conflict { what: "the exec" })), "{refused:?}");
    assert_eq!(store.sandbox(&other.id).await.unwrap(), Some(other));
}

async fn with_warnings(store: &Store, count: u32) -> Sandbox {
    let mut sandbox = ready(store, 1).await;
    for seconds in 0..count {
        let cause = model::life::EndCause::HardTtl;
        sandbox = advance(store, &sandbox, Observation::EndsSoon { cause, seconds }).await;
    }
    sandbox
}

/// F50.
pub(super) async fn a_subscriber_can_go_on_from_every_event(place: Place) {
    let store = place.open().await;
    let sandbox = with_warnings(&store, 998).await;
    let mut all = Vec::new();
    while all.len() < 1000 {
        let after = Sequence(u64::try_from(all.len()).unwrap());
        let told = store.events(&sandbox.id, after, PAGE).await.unwrap();
        assert_eq!(told.latest, Sequence(1000));
        all.extend(told.events);
    }
    for after in 0..=1000 {
        let told = store.events(&sandbox.id, Sequence(after), 7).await.unwrap();
        let from = usize::try_from(after).unwrap();
        assert_eq!(told.events, all[from..(from + 7).min(1000)]);
    }
}

/// F51, F52.
pub(super) async fn events_out_of_range_are_refused_with_the_bounds(place: Place) {
    let store = place.open().await;
    let sandbox = with_warnings(&store, 8).await;
    let future = store.events(&sandbox.id, Sequence(11), PAGE).await;
    let Err(StoreError::OutOfRange { asked, earliest, latest }) = future else {
        panic!("{future:?}");
    };
    assert_eq!((asked, earliest, latest), (Sequence(11), Sequence(1), Sequence(10)));

    store.trim_events(&sandbox.id, Sequence(6)).await.unwrap();
    store.trim_events(&sandbox.id, Sequence(3)).await.unwrap();
    let expired = store.events(&sandbox.id, Sequence(4), PAGE).await;
    let Err(StoreError::OutOfRange { earliest, latest, .. }) = expired else {
        panic!("{expired:?}");
    };
    assert_eq!((earliest, latest), (Sequence(6), Sequence(10)));
    assert_eq!(store.events(&sandbox.id, Sequence(5), PAGE).await.unwrap().events.len(), 5);
    store.trim_events(&sandbox.id, Sequence(99)).await.unwrap();
    let last = store.events(&sandbox.id, Sequence(9), PAGE).await.unwrap();
    assert_eq!((last.events.len(), last.earliest), (1, Sequence(10)));
    // What follows is numbered as if nothing had been forgotten.
    let sandbox = advance(&store, &sandbox, Observation::Frozen(SuspendReason::Idle)).await;
    assert_eq!(sandbox.life.sequence, Sequence(11));
    assert_eq!(store.events(&sandbox.id, Sequence(10), PAGE).await.unwrap().events.len(), 1);
    let unknown = store.events(&creation(9).1.id, Sequence::ZERO, PAGE).await;
    assert!(matches!(unknown, Err(StoreError::NotFound { .. })), "{unknown:?}");
}

fn all_of(tenant: Tenant) -> Filter {
    Filter { tenant, labels: BTreeMap::new(), phases: Phases::All, after: None, limit: PAGE }
}

pub(super) async fn sandboxes_are_listed_newest_first_by_pages(place: Place) {
    let store = place.open().await;
    let mut expected = Vec::new();
    for number in 0..7 {
        expected.push(create(&store, number).await);
    }
    expected.reverse();
    let (mut listed, mut filter) = (Vec::new(), Filter { limit: 3, ..all_of(tenant()) });
    loop {
        let page = store.sandboxes(filter.clone()).await.unwrap();
        listed.extend(page.sandboxes);
        let Some(next) = page.next else { break };
        // A caller sees a cursor as text.
        filter.after = Some(next.to_string().parse::<Cursor>().unwrap());
    }
    assert_eq!(listed, expected);

    let other = store.sandboxes(all_of("other".parse().unwrap())).await.unwrap();
    assert_eq!(other, Page::default());
    let labels = BTreeMap::from([("number".to_owned(), "3".to_owned())]);
    let labelled = store.sandboxes(Filter { labels, ..all_of(tenant()) }).await.unwrap();
    assert_eq!(labelled.sandboxes, [expected[3].clone()]);

    let ended = end(&store, expected[0].clone()).await;
    let phases = Phases::Undeleted;
    let hidden = store.sandboxes(Filter { phases, ..all_of(tenant()) }).await.unwrap();
    assert_eq!(hidden.sandboxes, expected[1..]);
    let phases = Phases::Only(vec![Phase::Terminated]);
    let shown = store.sandboxes(Filter { phases, ..all_of(tenant()) }).await.unwrap();
    assert_eq!(shown.sandboxes, [ended]);
}

pub(super) async fn what_has_not_ended_on_a_node_is_found_again(place: Place) {
    let store = place.open().await;
    let (one, two) = (create(&store, 1).await, ready(&store, 2).await);
    end(&store, create(&store, 3).await).await;
    let failure = model::life::Failure {
        cause: model::life::FailureCause::ImageFailed,
        message: "no such image".into(),
    };
    let four = create(&store, 4).await;
    let four = advance(&store, &four, Observation::Failed(failure)).await;
    let found = store.unfinished_sandboxes(&one.node).await.unwrap();
    assert_eq!(found.sandboxes, [one, two, four]);
    let elsewhere = store.unfinished_sandboxes(&"node-2".parse().unwrap()).await.unwrap();
    assert_eq!(elsewhere, Page::default());
}

pub(super) async fn what_runs_is_listed_until_it_ends(place: Place) {
    let store = place.open().await;
    let (one, two) = (ready(&store, 1).await, ready(&store, 2).await);
    let one = ask(&store, &one, start("exec-1")).await;
    ask(&store, &two, start("exec-2")).await;
    let ids = |execs: Vec<crate::sandboxes::ExecAt>| {
        execs.into_iter().map(|found| found.exec.id.to_string()).collect::<Vec<_>>()
    };
    let running = store.running_execs(&tenant(), None).await.unwrap();
    assert_eq!(ids(running), ["exec-1", "exec-2"]);
    ask(&store, &one, Request::CancelExec(exec_id("exec-1"))).await;
    let running = store.running_execs(&tenant(), None).await.unwrap();
    assert_eq!(ids(running), ["exec-2"]);
    assert_eq!(ids(store.running_execs(&tenant(), Some(&one.id)).await.unwrap()).len(), 0);
    let elsewhere = store.running_execs(&"other".parse().unwrap(), None).await.unwrap();
    assert_eq!(elsewhere, []);
}

pub(super) async fn a_purged_sandbox_is_gone_but_its_ids_stay_taken(place: Place) {
    let store = place.open().await;
    let sandbox = ready(&store, 1).await;
    let sandbox = ask(&store, &sandbox, start("exec-1")).await;
    let (sandbox, kept) = (end(&store, sandbox).await, ready(&store, 2).await);
    assert_eq!(store.purge_sandboxes(at(5000), 10).await.unwrap(), []);
    let purged = store.purge_sandboxes(at(5001), 10).await.unwrap();
    assert_eq!(purged, std::slice::from_ref(&sandbox.id));
    assert_eq!(store.purge_sandboxes(at(9999), 10).await.unwrap(), []);

    assert_eq!(store.sandbox(&sandbox.id).await.unwrap(), None);
    assert_eq!(store.find_sandbox(&tenant(), "alias-1").await.unwrap(), None);
    assert_eq!(store.exec(&tenant(), &exec_id("exec-1")).await.unwrap(), None);
    let left = store.sandboxes(all_of(tenant())).await.unwrap().sandboxes;
    assert_eq!(left, std::slice::from_ref(&kept));
    let events = store.events(&sandbox.id, Sequence::ZERO, PAGE).await;
    assert!(matches!(events, Err(StoreError::NotFound { .. })), "{events:?}");
    let again = store.create_sandbox(creation(1).0).await;
    assert!(matches!(again, Err(StoreError::Conflict { .. })), "{again:?}");
    let Ok(model::transition::Answer::Record(again)) = kept.request(start("exec-1"), at(6000))
    else {
        panic!("it is ready");
    };
    let again = store.change_sandbox(*again).await;
    assert!(matches!(again, Err(StoreError::Conflict { what: "the exec" })), "{again:?}");
}

/// F14.
pub(super) async fn a_damaged_row_is_told_and_hides_no_other(place: Place) {
    let store = place.open().await;
    let (damaged, other) = (ready(&store, 1).await, ready(&store, 2).await);
    let third = ready(&store, 3).await;
    ask(&store, &third, start("exec-1")).await;
    place
        .tamper(&format!(
            "UPDATE sandboxes SET life = replace(life, 'active', 'failed') WHERE id = '{0}';
             UPDATE events SET body = replace(body, 'accepted', 'thawed__') WHERE sandbox_id = '{1}';
             UPDATE execs SET spec = replace(spec, 'echo', 'ECHO');",
            damaged.id, third.id
        ))
        .await;
    let is_damaged = |error: &StoreError| matches!(error, StoreError::Damaged { .. });
    assert!(is_damaged(&store.sandbox(&damaged.id).await.unwrap_err()));
    assert!(is_damaged(&store.events(&third.id, Sequence::ZERO, PAGE).await.unwrap_err()));
    assert!(is_damaged(&store.exec(&tenant(), &exec_id("exec-1")).await.unwrap_err()));
    let stopping = damaged.request(Request::Stop(SuspendReason::Requested), at(1));
    let Ok(model::transition::Answer::Record(stopping)) = stopping else {
        panic!("it was ready");
    };
    assert!(is_damaged(&store.change_sandbox(*stopping).await.unwrap_err()));

    let page = store.sandboxes(all_of(tenant())).await.unwrap();
    assert_eq!(page.damaged, [damaged.id.to_string()]);
    assert_eq!((page.sandboxes.len(), &page.sandboxes[1]), (2, &other));
    let page = store.unfinished_sandboxes(&other.node).await.unwrap();
    assert_eq!(page.damaged, [damaged.id.to_string()]);

    place.tamper(&format!("UPDATE sandboxes SET earliest = 2 WHERE id = '{}'", other.id)).await;
    assert!(is_damaged(&store.events(&other.id, Sequence(1), PAGE).await.unwrap_err()));
    place.tamper(&format!("DELETE FROM events WHERE sandbox_id = '{}'", third.id)).await;
    assert!(is_damaged(&store.events(&third.id, Sequence(1), PAGE).await.unwrap_err()));
}

pub(super) async fn labels_and_texts_of_every_kind_are_kept(place: Place) {
    let store = place.open().await;
    let (creation, sandbox) = creation_with(1, |spec| {
        spec.labels.insert("ünïcode \u{1F980} '\";--".into(), "%_\\\n\t".into());
        spec.labels.insert(String::new(), String::new());
        spec.env.insert("ZERO".into(), "a\0b\u{7f}\u{ffff}".into());
        spec.command = vec![String::new(), "x".repeat(100_000)];
        let after = std::time::Duration::from_millis(1500);
        spec.idle = Some(Idle { after, then: Suspend::Stop });
    });
    store.create_sandbox(creation).await.unwrap();
    assert_eq!(store.sandbox(&sandbox.id).await.unwrap().as_ref(), Some(&sandbox));
    let labels = sandbox.spec.labels.clone();
    let found = store.sandboxes(Filter { labels, ..all_of(tenant()) }).await.unwrap();
    assert_eq!(found.sandboxes, [sandbox]);

    let (unfit, _) = creation_with(2, |spec| {
        spec.labels.insert("a\0b".into(), String::new());
    });
    let refused = store.create_sandbox(unfit).await;
    assert!(matches!(refused, Err(StoreError::Label)), "{refused:?}");
}
