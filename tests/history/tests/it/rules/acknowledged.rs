use history::{
    entry::{Answer, Call, Refusal, Which},
    event::{ExecState, Kind, State},
    rule::Rule::{AcknowledgedIsKept, RefusalsAreTrue},
};

use crate::tape::{
    Tape, cancel, create, delete, exec, exec_view, get, log, one_exec, resume, sandbox_view, stop,
};

fn list(which: Which, views: Vec<history::entry::SandboxView>) -> (Call, Answer) {
    (Call::List { which }, Answer::Sandboxes(views))
}

#[test]
fn a_created_sandbox_that_is_not_found_after_a_kill() {
    let tape = Tape::default().created().killed().refused(get(), Refusal::NotFound);
    tape.breaks(AcknowledgedIsKept, &[1, 3]);
}

#[test]
fn a_get_that_began_before_the_create_was_over_may_find_nothing() {
    let tape = Tape::default().created().refused(get(), Refusal::NotFound);
    tape.last_from_the_beginning().is_right();
}

#[test]
fn a_sandbox_that_a_subscriber_saw_and_exec_does_not_find() {
    let tape = Tape::default().late(create()).subscribed(1, 0).events(1, &one_exec()[..1]);
    tape.refused(exec(), Refusal::NotFound).breaks(AcknowledgedIsKept, &[3, 4]);
}

#[test]
fn a_created_sandbox_that_is_in_no_list() {
    let (call, answer) = list(Which::All, vec![]);
    Tape::default().created().answered(call, answer).breaks(AcknowledgedIsKept, &[1, 2]);

    let events = one_exec();
    let (call, answer) = list(Which::Live, vec![]);
    let tape = Tape::default().created().late(exec()).answered(call, answer).over(&events);
    tape.breaks(AcknowledgedIsKept, &[1, 3]);

    let (call, answer) = list(Which::Chosen, vec![]);
    Tape::default().created().answered(call, answer).is_right();
}

#[test]
fn a_sandbox_that_a_list_left_out_is_deleted_ever_after() {
    let events = log(&[Kind::Accepted, Kind::Ready, Kind::DeleteRequested, Kind::Deleted]);
    let (call, answer) = list(Which::Live, vec![]);
    let tape = Tape::default().created().answered(delete(), Answer::Accepted);
    let tape = tape.answered(call, answer);
    tape.clone().over(&events).is_right();
    let tape = tape.got(State::Deleting, 3).over(&events);
    tape.breaks(history::rule::Rule::ReadsNeverGoBack, &[3, 4]);
}

#[test]
fn a_created_sandbox_that_is_not_in_the_final_replays() {
    Tape::default().created().add(history::entry::What::Closed).breaks(AcknowledgedIsKept, &[1]);
}

#[test]
fn a_log_that_lost_its_tail() {
    let events = one_exec();
    let tape = Tape::default().created().late(exec()).subscribed(1, 0).events(1, &events);
    tape.replay(&events[..3]).breaks(history::rule::Rule::ReadsNeverGoBack, &[7, 9]);
}

#[test]
fn an_acknowledged_exec_that_never_started() {
    let tape = Tape::default().created().started().over(&log(&[Kind::Accepted, Kind::Ready]));
    tape.breaks(AcknowledgedIsKept, &[2, 3]);
}

#[test]
fn an_acknowledged_exec_that_a_later_read_does_not_know() {
    let events = one_exec();
    let tape = Tape::default().created().started().got(State::Ready, 3).over(&events);
    tape.breaks(AcknowledgedIsKept, &[2, 3]);

    let call = Call::GetExec { exec: crate::tape::EXEC.into() };
    let tape = Tape::default().created().started().killed().refused(call, Refusal::NotFound);
    tape.over(&events).breaks(AcknowledgedIsKept, &[2, 4]);
}

#[test]
fn a_running_exec_that_is_not_in_the_list_of_what_runs() {
    let events = &one_exec()[..4];
    let active = Call::ListActive { sandbox: None };
    let tape = Tape::default().created().started();
    let missing = tape.clone().answered(active.clone(), Answer::Execs(vec![])).replay(events);
    missing.breaks(AcknowledgedIsKept, &[2, 3]);
    let running = vec![exec_view(ExecState::Running, None, 4)];
    tape.answered(active, Answer::Execs(running)).replay(events).is_right();
}

#[test]
fn an_exec_that_was_not_in_the_list_has_ended() {
    let active = Call::ListActive { sandbox: Some(crate::tape::BOX.into()) };
    let tape = Tape::default().created().started().answered(active, Answer::Execs(vec![]));
    tape.clone().got_exec(ExecState::Finished, Some(0), 5).over(&one_exec()).is_right();
    let tape = tape.got_exec(ExecState::Running, None, 4).over(&one_exec());
    tape.breaks(history::rule::Rule::ReadsNeverGoBack, &[3, 4]);
}

#[test]
fn an_acknowledged_stop_that_no_event_tells() {
    let events = log(&[Kind::Accepted, Kind::Ready]);
    let tape = Tape::default().created().answered(stop(), Answer::Accepted).over(&events);
    tape.breaks(AcknowledgedIsKept, &[2, 3]);
}

#[test]
fn a_replay_in_the_middle_does_not_say_what_came_after() {
    let events = log(&[Kind::Accepted, Kind::Ready]);
    let tape = Tape::default().created().replay(&events);
    tape.answered(stop(), Answer::Accepted).got(State::Ready, 3).is_right();
}

#[test]
fn after_events_that_cannot_be_nothing_else_is_said_to_be_lost() {
    let events = log(&[Kind::Accepted, Kind::Ready, Kind::Ready, Kind::StopRequested]);
    let tape = Tape::default().created().answered(stop(), Answer::Accepted).replay(&events);
    tape.breaks(history::rule::Rule::PhasesAreLegal, &[3]);
}

#[test]
fn an_acknowledged_stop_that_came_only_with_the_second_one() {
    let events = log(&[Kind::Accepted, Kind::Ready, Kind::StopRequested, Kind::Stopped]);
    let tape = Tape::default().created().answered(stop(), Answer::Accepted).killed();
    let tape = tape.got(State::Ready, 2).answered(stop(), Answer::Accepted).over(&events);
    tape.breaks(AcknowledgedIsKept, &[2, 4]);
}

#[test]
fn an_acknowledged_resume_that_no_event_tells() {
    let events = log(&[Kind::Accepted, Kind::Ready, Kind::StopRequested, Kind::Stopped]);
    let tape = Tape::default().created().got(State::Stopped, 4);
    let tape = tape.answered(resume(), Answer::Accepted).over(&events);
    tape.breaks(AcknowledgedIsKept, &[3, 4]);
}

#[test]
fn an_acknowledged_delete_that_no_event_tells() {
    let events = log(&[Kind::Accepted, Kind::Ready]);
    let tape = Tape::default().created().answered(delete(), Answer::Accepted).over(&events);
    tape.breaks(AcknowledgedIsKept, &[2, 3]);
}

#[test]
fn an_acknowledged_cancel_of_an_exec_that_ended_otherwise_or_never() {
    let tape = Tape::default().created().started().answered(cancel(), Answer::Accepted);
    tape.clone().over(&one_exec()).breaks(AcknowledgedIsKept, &[3, 4]);
    tape.replay(&one_exec()[..4]).breaks(AcknowledgedIsKept, &[3, 4]);
}

#[test]
fn an_acknowledged_cancel_is_in_every_later_answer() {
    let events = log(&[Kind::Accepted, Kind::Ready, Kind::ExecStarted, Kind::ExecCancelled]);
    let tape = Tape::default().created().started().answered(cancel(), Answer::Accepted);
    tape.clone().got_exec(ExecState::Cancelled, None, 4).over(&events).is_right();
    let tape = tape.got_exec(ExecState::Running, None, 3).over(&events);
    tape.breaks(AcknowledgedIsKept, &[3, 4]);
}

#[test]
fn an_answer_about_another_sandbox() {
    let mut other = sandbox_view(State::Pending, 1);
    other.sandbox = "box-2".into();
    let call = Call::Create { sandbox: Some("box-2".into()) };
    let tape = Tape::default().answered(call, Answer::Sandbox(other.clone())).created();
    tape.answered(get(), Answer::Sandbox(other)).breaks(AcknowledgedIsKept, &[3]);
}

#[test]
fn a_refused_create_or_exec_that_happened_all_the_same() {
    let full = || Refusal::Other("RESOURCE_EXHAUSTED".into());
    let tape = Tape::default().refused(create(), full()).got(State::Pending, 1);
    tape.breaks(RefusalsAreTrue, &[1, 2]);
    let tape = Tape::default().created().refused(exec(), full()).over(&one_exec());
    tape.breaks(RefusalsAreTrue, &[2, 3]);
}

#[test]
fn a_refused_create_that_another_call_made_is_right() {
    let tape = Tape::default().late(create()).refused(create(), Refusal::AlreadyExists);
    tape.got(State::Pending, 1).is_right();
}

#[test]
fn an_id_that_is_taken_and_not_there() {
    let closed = history::entry::What::Closed;
    let tape = Tape::default().late(create()).refused(create(), Refusal::AlreadyExists);
    tape.add(closed).breaks(RefusalsAreTrue, &[2]);
    let tape = Tape::default().created().late(exec()).refused(exec(), Refusal::AlreadyExists);
    tape.over(&log(&[Kind::Accepted, Kind::Ready])).breaks(RefusalsAreTrue, &[3]);
}

#[test]
fn an_exec_refused_by_a_sandbox_that_was_ready_all_the_time() {
    let events = log(&[Kind::Accepted, Kind::Ready]);
    let tape = Tape::default().created().got(State::Ready, 2);
    let tape = tape.refused(exec(), Refusal::NotReady).over(&events);
    tape.breaks(RefusalsAreTrue, &[2, 3]);
}

#[test]
fn a_stop_or_resume_refused_for_a_state_that_never_was() {
    let events = log(&[Kind::Accepted, Kind::Ready]);
    let tape = Tape::default().created().got(State::Ready, 2);
    let tape = tape.refused(stop(), Refusal::InvalidState).over(&events);
    tape.breaks(RefusalsAreTrue, &[2, 3]);

    let events = log(&[Kind::Accepted, Kind::Ready, Kind::StopRequested, Kind::Stopped]);
    let tape = Tape::default().created().got(State::Stopped, 4);
    let tape = tape.refused(resume(), Refusal::InvalidState).over(&events);
    tape.breaks(RefusalsAreTrue, &[2, 3]);
}

#[test]
fn a_cancel_refused_for_an_end_that_never_came() {
    let tape = Tape::default().created().started().refused(cancel(), Refusal::AlreadyTerminal);
    tape.clone().over(&one_exec()).is_right();
    tape.replay(&one_exec()[..4]).breaks(RefusalsAreTrue, &[3]);
    let tape = Tape::default().created().refused(cancel(), Refusal::AlreadyTerminal);
    tape.over(&log(&[Kind::Accepted, Kind::Ready])).breaks(RefusalsAreTrue, &[2]);
}
