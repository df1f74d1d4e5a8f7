use history::{
    entry::{Answer, Call, Ending, Refusal, What},
    event::{ExecState, Kind, State},
    rule::Rule::{
        CompanionsHaveOneOutcome, PhasesAreLegal, RecordingIsWhole, SandboxesEndOnce,
        UnknownIsOnceOrNever,
    },
};

use crate::tape::{
    BOX, EXEC, Tape, cancel, create, delete, event, exec, exec_view, get, log, one_exec, view,
};

#[test]
fn an_unknown_create_may_have_happened_or_not() {
    let tape = Tape::default().broken(create()).killed().last_from_the_beginning();
    tape.clone().refused(get(), Refusal::NotFound).is_right();
    tape.got(State::Pending, 1).is_right();
}

#[test]
fn a_create_acknowledged_twice() {
    Tape::default().created().created().breaks(UnknownIsOnceOrNever, &[1, 2]);
}

#[test]
fn an_exec_acknowledged_twice_or_started_twice() {
    let tape = Tape::default().created().started().started().over(&one_exec());
    tape.breaks(UnknownIsOnceOrNever, &[2, 3]);

    let events = log(&[
        Kind::Accepted,
        Kind::Ready,
        Kind::ExecStarted,
        Kind::ExecFinished,
        Kind::ExecStarted,
    ]);
    let tape = Tape::default().created().late(exec()).killed().late(exec());
    tape.replay(&events).breaks(UnknownIsOnceOrNever, &[5]);
}

#[test]
fn a_sandbox_or_an_exec_that_nobody_asked_for() {
    Tape::default().got(State::Pending, 1).breaks(UnknownIsOnceOrNever, &[1]);
    Tape::default().created().over(&one_exec()).breaks(UnknownIsOnceOrNever, &[2]);
}

#[test]
fn one_create_without_a_name_explains_one_sandbox() {
    let unnamed = || Call::Create { sandbox: None };
    let other = |name: &str| {
        let mut view = crate::tape::sandbox_view(State::Pending, 1);
        view.sandbox = name.into();
        (Call::Get { sandbox: name.into() }, Answer::Sandbox(view))
    };
    let (call, answer) = other("given-1");
    let tape = Tape::default().late(unnamed()).answered(call, answer);
    tape.is_right();
    let (call, answer) = other("given-2");
    tape.answered(call, answer).breaks(UnknownIsOnceOrNever, &[3]);
}

#[test]
fn one_exec_without_a_name_explains_one_exec() {
    let unnamed = Call::Exec { sandbox: BOX.into(), exec: None, expect: None };
    let tape = Tape::default().created().late(unnamed);
    tape.clone().over(&one_exec()).is_right();
    let mut events = one_exec();
    for (sequence, kind) in [(6, Kind::ExecStarted), (7, Kind::ExecFinished)] {
        let mut other = event(sequence, kind);
        other.exec = Some("exec-2".into());
        events.push(other);
    }
    tape.over(&events).breaks(UnknownIsOnceOrNever, &[3]);
}

#[test]
fn a_sandbox_that_was_not_there_after_the_kill_and_came_later() {
    let tape = Tape::default().broken(create()).killed().last_from_the_beginning();
    let tape = tape.refused(get(), Refusal::NotFound).got(State::Pending, 1);
    tape.clone().breaks(UnknownIsOnceOrNever, &[3, 4]);
    let mut same_moment = tape.clone();
    same_moment.entries[2].start = same_moment.entries[1].end;
    same_moment.is_right();
    // Without a kill the server may still be at it.
    let tape = Tape::default().late(create()).refused(get(), Refusal::NotFound);
    tape.got(State::Pending, 1).is_right();
}

#[test]
fn an_exec_that_was_not_there_after_the_kill_and_came_later() {
    let not_there = Call::GetExec { exec: EXEC.into() };
    let tape = Tape::default().created().broken(exec()).killed().last_from_the_beginning();
    let tape = tape.refused(not_there, Refusal::NotFound).over(&one_exec());
    tape.breaks(UnknownIsOnceOrNever, &[4, 5]);
}

#[test]
fn an_event_after_the_deletion() {
    let deleted = [Kind::Accepted, Kind::DeleteRequested, Kind::Deleted];
    let tape = || Tape::default().created().answered(delete(), Answer::Accepted);
    tape().over(&log(&deleted)).is_right();
    for kind in [Kind::Deleted, Kind::Note, Kind::Ready, Kind::DeleteRequested] {
        let events = log(&[&deleted[..], &[kind]].concat());
        tape().replay(&events).breaks(SandboxesEndOnce, &[3]);
    }
}

#[test]
fn phases_that_no_life_has() {
    let paths: [&[Kind]; 6] = [
        &[Kind::Ready],
        &[Kind::Accepted, Kind::Accepted],
        &[Kind::Accepted, Kind::Stopped],
        &[Kind::Accepted, Kind::StopRequested],
        &[Kind::Accepted, Kind::Ready, Kind::Deleted],
        &[Kind::Accepted, Kind::Ready, Kind::Frozen, Kind::Frozen],
    ];
    for path in paths {
        Tape::default().created().replay(&log(path)).breaks(PhasesAreLegal, &[2]);
    }
}

#[test]
fn an_exec_in_a_sandbox_that_is_not_ready() {
    for before in [Kind::Preparing, Kind::DeleteRequested] {
        let events = log(&[Kind::Accepted, before, Kind::ExecStarted]);
        let tape = Tape::default().created().late(exec()).replay(&events);
        tape.breaks(PhasesAreLegal, &[3]);
    }
}

#[test]
fn entries_that_do_not_fit_together() {
    let mut tape = Tape::default().created().got(State::Pending, 1);
    tape.entries.swap(0, 1);
    tape.breaks(RecordingIsWhole, &[2]);

    let mut tape = Tape::default().created();
    tape.entries[0].start = history::entry::Time(1000);
    tape.breaks(RecordingIsWhole, &[1]);

    let tape = Tape::default().created().answered(cancel(), view(State::Pending, 1));
    tape.breaks(RecordingIsWhole, &[2]);

    let stray = What::Event { subscription: 9, event: event(1, Kind::Accepted) };
    Tape::default().created().add(stray).breaks(RecordingIsWhole, &[2]);
    let stray = What::Ended { subscription: 9, how: Ending::Dropped };
    Tape::default().created().add(stray).breaks(RecordingIsWhole, &[2]);
    let tape = Tape::default().created().subscribed(1, 0).subscribed(1, 0);
    tape.breaks(RecordingIsWhole, &[2, 3]);
}

#[test]
fn an_exec_is_not_told_before_its_start() {
    let answer = Answer::Exec(exec_view(ExecState::Running, None, 3));
    let call = Call::GetExec { exec: EXEC.into() };
    let tape = Tape::default().created().late(exec()).answered(call, answer).over(&one_exec());
    tape.breaks(history::rule::Rule::StateIsTheSum, &[3]);
}

#[test]
fn a_companion_is_told_of_once_in_each_start_and_a_failure_is_the_last() {
    let life = |outcomes: &[Kind]| {
        let mut kinds = vec![Kind::Accepted, Kind::Ready];
        kinds.extend(outcomes);
        kinds
    };
    let judged = |kinds: &[Kind]| Tape::default().created().replay(&log(kinds));
    let (ready, failed) = (Kind::CompanionReady, Kind::CompanionFailed);
    for right in [vec![ready], vec![failed], vec![ready, failed]] {
        judged(&life(&right)).is_right();
    }
    let resumed = [ready, Kind::StopRequested, Kind::Stopped, Kind::Accepted, Kind::Ready, ready];
    judged(&life(&resumed)).is_right();
    for wrong in [vec![ready, ready], vec![failed, failed], vec![failed, ready]] {
        judged(&life(&wrong)).breaks(CompanionsHaveOneOutcome, &[2]);
    }
}
