use history::{
    entry::{Answer, Call, Which},
    event::{ExecState, Kind, State},
    rule::Rule::{OneServerAtATime, ReadsNeverGoBack, StateIsTheSum},
};

use crate::tape::{BOX, Tape, exec, exec_view, get, log, one_exec, sandbox_view, view, whole};

#[test]
fn a_read_that_is_older_than_an_event_seen_before() {
    let events = &one_exec()[..3];
    let tape = Tape::default().created().subscribed(1, 0).events(1, events);
    tape.got(State::Pending, 2).breaks(ReadsNeverGoBack, &[5, 6]);
}

#[test]
fn a_read_that_overlaps_the_event_may_be_older() {
    let events = &one_exec()[..3];
    let tape = Tape::default().created().subscribed(1, 0).events(1, events);
    let mut tape = tape.got(State::Pending, 2);
    tape.entries[5].start = tape.entries[4].start;
    tape.is_right();
}

#[test]
fn a_read_that_is_older_than_another_clients_read() {
    let tape = Tape::default().created().got(State::Ready, 3).killed().got(State::Pending, 2);
    tape.breaks(ReadsNeverGoBack, &[2, 4]);
}

#[test]
fn a_list_that_is_older_than_a_read() {
    let list = Call::List { which: Which::Live };
    let answer = Answer::Sandboxes(vec![sandbox_view(State::Pending, 2)]);
    let tape = Tape::default().created().got(State::Ready, 3).answered(list, answer);
    tape.breaks(ReadsNeverGoBack, &[2, 3]);
}

#[test]
fn an_exec_that_is_older_than_an_event_seen_before() {
    let events = one_exec();
    let tape = Tape::default().created().late(exec()).subscribed(1, 0).events(1, &events);
    tape.got_exec(ExecState::Running, None, 4).breaks(ReadsNeverGoBack, &[8, 9]);
}

#[test]
fn a_replay_that_ends_before_what_was_shown() {
    let events = log(&[Kind::Accepted, Kind::Preparing]);
    Tape::default()
        .created()
        .got(State::Ready, 3)
        .replay(&events)
        .breaks(ReadsNeverGoBack, &[2, 3]);
}

#[test]
fn a_state_that_the_events_do_not_add_up_to() {
    let events = &one_exec()[..3];
    let tape = Tape::default().created().subscribed(1, 0).events(1, events);
    tape.clone().got(State::Pending, 3).breaks(StateIsTheSum, &[5, 6]);
    tape.clone().got(State::Ready, 3).is_right();
    let list = Call::List { which: Which::All };
    let answer = Answer::Sandboxes(vec![sandbox_view(State::Stopped, 3)]);
    tape.answered(list, answer).breaks(StateIsTheSum, &[5, 6]);
}

#[test]
fn an_answer_without_any_event() {
    let tape = Tape::default().answered(crate::tape::create(), view(State::Pending, 0));
    tape.breaks(StateIsTheSum, &[1]);
}

#[test]
fn an_event_that_tells_another_state_than_it_leads_to() {
    let mut events = log(&[Kind::Accepted, Kind::Ready]);
    events[1].state = Some(State::Pending);
    Tape::default().created().replay(&events).breaks(StateIsTheSum, &[2]);
    events[1].state = None;
    Tape::default().created().replay(&events).breaks(StateIsTheSum, &[2]);
}

#[test]
fn a_stopping_sandbox_is_ready() {
    let events = log(&[Kind::Accepted, Kind::Ready, Kind::StopRequested]);
    let tape = Tape::default().created().got(State::Ready, 3).replay(&events);
    tape.is_right();
    let tape = Tape::default().created().got(State::Stopped, 3).replay(&events);
    tape.breaks(StateIsTheSum, &[2, 3]);
}

#[test]
fn an_exec_whose_state_or_exit_code_is_not_that_of_its_end() {
    let events = one_exec();
    let tape = Tape::default().created().started();
    for (state, code) in [
        (ExecState::Running, None),
        (ExecState::Failed, Some(1)),
        (ExecState::Finished, Some(1)),
        (ExecState::Finished, None),
        (ExecState::Cancelled, None),
    ] {
        let tape = tape.clone().got_exec(state, code, 5).over(&events);
        tape.breaks(StateIsTheSum, &[3, 4]);
    }
    tape.got_exec(ExecState::Finished, Some(0), 5).over(&events).is_right();
}

#[test]
fn a_list_of_what_runs_with_what_does_not() {
    let active = Call::ListActive { sandbox: Some(BOX.into()) };
    let views = vec![exec_view(ExecState::Finished, Some(0), 5)];
    let tape = Tape::default().created().started().answered(active, Answer::Execs(views));
    tape.over(&one_exec()).breaks(StateIsTheSum, &[3]);
}

#[test]
fn an_earlier_life_that_answers_after_a_later_one() {
    let mut tape = whole();
    for (entry, life) in tape.entries.iter_mut().zip([1, 1, 1, 1, 1, 1, 1]) {
        entry.life = Some(life);
    }
    tape.is_right();
    tape.entries[12].life = Some(2);
    tape.is_right();
    tape.entries[14].life = Some(1);
    tape.breaks(OneServerAtATime, &[13, 15]);
}

#[test]
fn a_call_that_overlaps_both_lives_may_have_either() {
    let mut tape =
        Tape::default().created().got(State::Pending, 1).answered(get(), view(State::Pending, 1));
    tape.entries[1].life = Some(2);
    tape.entries[2].life = Some(1);
    tape.clone().breaks(OneServerAtATime, &[2, 3]);
    tape.last_from_the_beginning().is_right();
}
