use history::{
    entry::{Answer, Ending, Refusal, Time, What},
    event::{Event, Kind, State},
    rule::Rule::{
        AcknowledgedIsKept, ConnectionsEndForAReason, EveryoneSeesTheSame, SequencesAreWhole,
        SnapshotsComeFirst,
    },
};

use crate::tape::{Tape, create, delete, event, exec, get, log, one_exec};

fn running() -> Tape {
    Tape::default().created().late(exec())
}

#[test]
fn a_subscription_with_a_gap() {
    let events = one_exec();
    let tape = running().subscribed(1, 0).events(1, &events[..2]).event(1, events[3].clone());
    tape.breaks(SequencesAreWhole, &[5, 6]);
}

#[test]
fn a_subscription_with_a_repeat() {
    let events = one_exec();
    let tape = running().subscribed(1, 0).events(1, &events[..2]).event(1, events[1].clone());
    tape.breaks(SequencesAreWhole, &[5, 6]);
}

#[test]
fn a_subscription_in_disorder() {
    let events = one_exec();
    let order = [0, 2, 1, 3].map(|place| events[place].clone());
    running().subscribed(1, 0).events(1, &order).breaks(SequencesAreWhole, &[4, 5]);
}

#[test]
fn a_subscription_gets_only_what_comes_after() {
    let events = one_exec();
    running().subscribed(1, 3).events(1, &events[3..]).over(&events).is_right();
    let tape = running().subscribed(1, 3).events(1, &events[2..]).over(&events);
    tape.breaks(SequencesAreWhole, &[3, 4]);
    let tape = running().subscribed(1, 3).events(1, &events[4..]).over(&events);
    tape.breaks(SequencesAreWhole, &[3, 4]);
}

#[test]
fn a_report_says_what_is_wrong_with_a_sequence() {
    let events = one_exec();
    let told = |from: u64, places: &[usize]| {
        let order: Vec<Event> = places.iter().map(|place| events[*place].clone()).collect();
        let tape = running().subscribed(1, from).events(1, &order);
        history::check::check(&tape.entries).violations.remove(0).message
    };
    assert_eq!(told(0, &[0, 3]), "event 4 follows event 1: 2 are missing");
    assert_eq!(told(0, &[0, 0]), "event 1 comes twice");
    assert_eq!(told(0, &[0, 1, 0]), "event 1 comes after event 2");
    assert_eq!(told(1, &[0]), "event 1 comes although only those after 1 were asked for");
}

#[test]
fn an_event_of_another_sandbox() {
    let mut other = event(1, Kind::Accepted);
    other.sandbox = "box-2".into();
    let call = history::entry::Call::Create { sandbox: Some("box-2".into()) };
    let tape = Tape::default().created().late(call).subscribed(1, 0).event(1, other);
    tape.breaks(SequencesAreWhole, &[3, 4]);
}

#[test]
fn a_subscription_that_is_silent_about_what_others_saw() {
    let events = one_exec();
    let tape = running().subscribed(1, 0).events(1, &events[..3]).got(State::Ready, 4);
    let since = |tape: &Tape| tape.entries.last().map_or(Time(0), |entry| Time(entry.end.0 + 1));
    let late = Ending::Silent { since: since(&tape) };
    tape.clone().ended(1, late).breaks(SequencesAreWhole, &[7, 8]);
    let at_once = Ending::Silent { since: tape.entries[6].start };
    tape.ended(1, at_once).is_right();
}

#[test]
fn a_replay_with_a_gap() {
    let mut events = log(&[Kind::Accepted, Kind::Preparing, Kind::Ready]);
    events.remove(1);
    Tape::default().created().replay(&events).breaks(SequencesAreWhole, &[2]);
}

#[test]
fn an_event_that_is_not_the_same_for_all() {
    let right = event(2, Kind::Preparing);
    let changes: [fn(&mut Event); 5] = [
        |event| event.occurred_at += 1,
        |event| event.details = "materialize".into(),
        |event| event.kind = Kind::Note,
        |event| event.state = Some(State::Pending),
        |event| event.exit_code = Some(0),
    ];
    for change in changes {
        let mut other = right.clone();
        change(&mut other);
        let tape = Tape::default().created().subscribed(1, 1).event(1, right.clone());
        tape.subscribed(2, 1).event(2, other).breaks(EveryoneSeesTheSame, &[3, 5]);
    }
}

#[test]
fn an_event_may_be_live_for_one_and_a_replay_for_another() {
    let mut replayed = event(2, Kind::Preparing);
    replayed.replay = true;
    let tape = Tape::default().created().subscribed(1, 1).event(1, event(2, Kind::Preparing));
    tape.subscribed(2, 1).event(2, replayed).is_right();
}

/// Returns the snapshot of a sandbox with one exec that runs, as of its start.
fn snapshot() -> [Event; 2] {
    let last = Event { snapshot: true, replay: true, ..event(4, Kind::ExecStarted) };
    let running = Event { occurred_at: 99, ..last.clone() };
    [last, running]
}

#[test]
fn a_snapshot_comes_first_and_then_the_events() {
    let tape = running().subscribed_with_snapshot(1).events(1, &snapshot());
    tape.events(1, &one_exec()).over(&one_exec()).is_right();
}

#[test]
fn a_snapshot_that_does_not_come_or_was_not_asked_for() {
    let events = one_exec();
    let tape = running().subscribed_with_snapshot(1).events(1, &events).over(&events);
    tape.breaks(SnapshotsComeFirst, &[3, 4]);
    let tape = running().subscribed(1, 0).events(1, &snapshot()[..1]).over(&events);
    tape.breaks(SnapshotsComeFirst, &[3, 4]);
}

#[test]
fn a_snapshot_after_other_events() {
    let events = one_exec();
    let tape = running().subscribed_with_snapshot(1).events(1, &snapshot());
    let tape = tape.events(1, &events[..1]).events(1, &snapshot()[..1]).over(&events);
    tape.breaks(SnapshotsComeFirst, &[3, 7]);
}

#[test]
fn a_snapshot_without_an_exec_that_runs() {
    let tape = running().subscribed_with_snapshot(1).events(1, &snapshot()[..1]);
    tape.events(1, &one_exec()).over(&one_exec()).breaks(SnapshotsComeFirst, &[4, 5]);
}

#[test]
fn a_snapshot_with_an_exec_that_does_not_run() {
    let last = Event { snapshot: true, ..event(5, Kind::ExecFinished) };
    let wrong = Event { snapshot: true, ..event(5, Kind::ExecStarted) };
    let tape = running().subscribed_with_snapshot(1).event(1, last).event(1, wrong);
    tape.over(&one_exec()).breaks(SnapshotsComeFirst, &[3, 5]);
}

#[test]
fn a_snapshot_that_is_not_the_last_event() {
    let [mut last, running_exec] = snapshot();
    last.occurred_at += 1;
    let tape = running().subscribed_with_snapshot(1).events(1, &[last, running_exec]);
    tape.over(&one_exec()).breaks(SnapshotsComeFirst, &[3, 4]);
}

#[test]
fn a_snapshot_older_than_what_was_shown() {
    let tape = Tape::default().created().got(State::Ready, 3).subscribed_with_snapshot(1);
    let old = Event { snapshot: true, ..event(1, Kind::Accepted) };
    tape.event(1, old).breaks(history::rule::Rule::ReadsNeverGoBack, &[2, 4]);
}

#[test]
fn connections_that_break_without_a_kill() {
    let events = log(&[Kind::Accepted, Kind::Ready]);
    let tape = Tape::default().created().subscribed(1, 0).events(1, &events[..1]);
    let tape = tape.ended(1, Ending::ConnectionBroke);
    tape.over(&events).breaks(ConnectionsEndForAReason, &[3, 4]);
    let tape = Tape::default().created().broken(get()).over(&events);
    tape.breaks(ConnectionsEndForAReason, &[2]);
}

#[test]
fn connections_may_break_by_a_kill() {
    let events = log(&[Kind::Accepted, Kind::Ready]);
    let tape = Tape::default().created().subscribed(1, 0).events(1, &events[..1]).killed();
    let tape = tape.ended(1, Ending::ConnectionBroke);
    let mut tape = tape.broken(get());
    let during = tape.entries[3].start;
    tape.entries[5].start = during;
    tape.over(&events).is_right();
}

#[test]
fn a_subscription_that_ends_before_the_last_event() {
    let events = log(&[Kind::Accepted, Kind::Ready]);
    let tape = Tape::default().created().subscribed(1, 0).events(1, &events);
    tape.ended(1, Ending::Clean).over(&events).breaks(ConnectionsEndForAReason, &[4, 5]);
    let events = log(&[Kind::Accepted, Kind::DeleteRequested, Kind::Deleted]);
    let tape = Tape::default().created().answered(delete(), Answer::Accepted);
    let tape = tape.subscribed(1, 0).events(1, &events).ended(1, Ending::Clean);
    tape.over(&events).is_right();
}

#[test]
fn only_the_future_is_out_of_range() {
    let tape = |from| Tape::default().created().subscribed(1, from).ended(1, Ending::OutOfRange);
    tape(2).is_right();
    tape(1).breaks(ConnectionsEndForAReason, &[2, 3]);
    tape(0).breaks(ConnectionsEndForAReason, &[2, 3]);
}

#[test]
fn a_subscription_to_a_sandbox_that_is_there_and_is_not_found() {
    let not_found = Ending::Refused(Refusal::NotFound);
    let tape = Tape::default().created().subscribed(1, 0).ended(1, not_found.clone());
    tape.breaks(AcknowledgedIsKept, &[1, 3]);
    Tape::default().late(create()).subscribed(1, 0).ended(1, not_found).is_right();
}

#[test]
fn a_history_that_was_cut_off_is_judged_as_far_as_it_goes() {
    let mut tape = crate::tape::whole();
    while tape.entries.pop().is_some() {
        assert!(!tape.entries.iter().any(|entry| entry.what == What::Closed));
        tape.is_right();
    }
}
