use history::{
    entry::{Answer, Call, Expectation, Output, What},
    event::{Event, Kind, Loss},
    rule::Rule::{
        EndsAreTrue, EverythingEnds, ExecsEndOnce, OutputIsWhole, SandboxesOutliveTheServer,
    },
};

use crate::tape::{BOX, EXEC, Tape, cancel, delete, event, log, one_exec, stop};

/// Returns an exec whose command exits with this code and prints three numbers.
fn expecting(exit_code: i32) -> Tape {
    let expect = Expectation { exit_code, lines: Some(3), digest: Some("abc".into()) };
    let call = Call::Exec { sandbox: BOX.into(), exec: Some(EXEC.into()), expect: Some(expect) };
    Tape::default().created().answered(call, Answer::Started { exec: EXEC.into() })
}

/// Returns a log whose exec ends by this event, and what then happens to the sandbox.
fn ending(end: Event, then: &[Kind]) -> Vec<Event> {
    let mut events = log(&[Kind::Accepted, Kind::Ready, Kind::ExecStarted]);
    events.push(end);
    events.extend((5..).zip(then).map(|(sequence, kind)| event(sequence, *kind)));
    events
}

fn lost(sequence: u64, loss: Loss) -> Event {
    Event { exit_code: None, loss: Some(loss), ..event(sequence, Kind::ExecFailed) }
}

fn harmed() -> What {
    What::Harmed { sandbox: BOX.into() }
}

#[test]
fn an_exec_that_ends_twice() {
    for second in [Kind::ExecFinished, Kind::ExecFailed, Kind::ExecCancelled] {
        let mut events = one_exec();
        events.push(event(6, second));
        let tape = Tape::default().created().started().answered(cancel(), Answer::Accepted);
        let mut tape = tape.replay(&events);
        tape.entries.remove(2);
        tape.breaks(ExecsEndOnce, &[3]);
    }
}

#[test]
fn an_exec_that_ends_without_a_start() {
    let events = log(&[Kind::Accepted, Kind::Ready, Kind::ExecFinished]);
    Tape::default().created().replay(&events).breaks(ExecsEndOnce, &[2]);
}

#[test]
fn a_sandbox_that_stops_fails_or_is_deleted_before_its_execs_end() {
    let before = [Kind::Accepted, Kind::Ready, Kind::ExecStarted];
    let ways: [&[Kind]; 3] = [
        &[Kind::StopRequested, Kind::Stopped],
        &[Kind::DeleteRequested, Kind::Deleted],
        &[Kind::Failed],
    ];
    for way in ways {
        let events = log(&[&before[..], way].concat());
        let tape = Tape::default().created().started().add(harmed()).replay(&events);
        tape.breaks(ExecsEndOnce, &[4]);
    }
}

#[test]
fn an_exec_without_an_end_when_the_run_is_over() {
    let events = &one_exec()[..4];
    let tape = Tape::default().created().started();
    tape.clone().replay(events).is_right();
    tape.over(events).breaks(EverythingEnds, &[2, 3]);
}

#[test]
fn a_sandbox_on_its_way_when_the_run_is_over() {
    let ways: [&[Kind]; 4] = [
        &[Kind::Accepted, Kind::Preparing],
        &[Kind::Accepted, Kind::DeleteRequested],
        &[Kind::Accepted, Kind::Ready, Kind::StopRequested],
        &[Kind::Accepted, Kind::Ready, Kind::StopRequested, Kind::Stopped, Kind::Accepted],
    ];
    for way in ways {
        Tape::default().created().over(&log(way)).breaks(EverythingEnds, &[2]);
    }
}

#[test]
fn an_exit_code_that_is_not_the_commands() {
    expecting(0).over(&ending(event(4, Kind::ExecFinished), &[])).is_right();
    expecting(7).over(&ending(event(4, Kind::ExecFailed), &[])).is_right();
    expecting(7).over(&ending(event(4, Kind::ExecFinished), &[])).breaks(EndsAreTrue, &[2, 3]);
    expecting(9).over(&ending(event(4, Kind::ExecFailed), &[])).breaks(EndsAreTrue, &[2, 3]);
}

#[test]
fn an_end_that_contradicts_itself() {
    let ends = [
        Event { exit_code: Some(1), ..event(4, Kind::ExecFinished) },
        Event { exit_code: Some(0), ..event(4, Kind::ExecFailed) },
        Event { exit_code: None, ..event(4, Kind::ExecFailed) },
        Event { loss: Some(Loss::SandboxStopped), ..event(4, Kind::ExecFailed) },
    ];
    for end in ends {
        let tape = Tape::default().created().started().over(&ending(end, &[]));
        tape.breaks(EndsAreTrue, &[2, 3]);
    }
}

#[test]
fn an_exec_cancelled_by_nobody() {
    let events = ending(event(4, Kind::ExecCancelled), &[]);
    expecting(0).over(&events).breaks(EndsAreTrue, &[2, 3]);
    expecting(0).over(&events).late(cancel()).breaks(EndsAreTrue, &[2, 3]);
    expecting(0).late(cancel()).over(&events).is_right();
    expecting(0).answered(cancel(), Answer::Accepted).over(&events).is_right();
}

#[test]
fn a_loss_that_did_not_happen() {
    let losses = [
        Loss::SandboxStopped,
        Loss::SandboxDeleted,
        Loss::SandboxFailed,
        Loss::SupervisorLost,
        Loss::HostRebooted,
        Loss::NotStarted,
        Loss::ServerRestarted,
        Loss::Unnamed,
    ];
    for loss in losses {
        expecting(0).over(&ending(lost(4, loss), &[])).breaks(EndsAreTrue, &[2, 3]);
    }
}

#[test]
fn a_restart_of_the_server_explains_no_loss() {
    for loss in [Loss::ServerRestarted, Loss::SupervisorLost, Loss::Unnamed] {
        expecting(0).killed().over(&ending(lost(4, loss), &[])).breaks(EndsAreTrue, &[2, 4]);
    }
}

#[test]
fn a_loss_by_what_was_done_to_the_sandbox() {
    let stopped = |end, how: Kind, then| {
        let mut events = log(&[Kind::Accepted, Kind::Ready, Kind::ExecStarted, how]);
        events.extend([end, event(6, then)]);
        events
    };
    let events = stopped(lost(5, Loss::SandboxStopped), Kind::StopRequested, Kind::Stopped);
    expecting(0).answered(stop(), Answer::Accepted).over(&events).is_right();
    let events = stopped(lost(5, Loss::SandboxDeleted), Kind::DeleteRequested, Kind::Deleted);
    expecting(0).answered(delete(), Answer::Accepted).over(&events).is_right();
    let events = ending(lost(4, Loss::SupervisorLost), &[Kind::Failed]);
    expecting(0).add(harmed()).over(&events).is_right();
    let events = ending(lost(4, Loss::HostRebooted), &[Kind::Stopped]);
    expecting(0).add(harmed()).over(&events).is_right();
    let events = ending(lost(4, Loss::NotStarted), &[]);
    expecting(0).killed().over(&events).is_right();
}

#[test]
fn a_loss_with_its_sandbox_is_told_once_and_without_it_is_wrong() {
    let events = ending(lost(4, Loss::SupervisorLost), &[Kind::Failed]);
    expecting(0).over(&events).breaks(SandboxesOutliveTheServer, &[3]);
    let events = ending(lost(4, Loss::SupervisorLost), &[Kind::Frozen]);
    expecting(0).over(&events).breaks(EndsAreTrue, &[2, 3]);
}

#[test]
fn a_sandbox_that_fails_although_nobody_broke_it() {
    let events = log(&[Kind::Accepted, Kind::Ready, Kind::Failed]);
    let tape = Tape::default().created().killed();
    tape.clone().over(&events).breaks(SandboxesOutliveTheServer, &[3]);
    tape.clone().over(&events).add(harmed()).breaks(SandboxesOutliveTheServer, &[3]);
    tape.add(harmed()).over(&events).is_right();
}

#[test]
fn a_sandbox_that_stops_although_nobody_broke_or_stopped_it() {
    let events = log(&[Kind::Accepted, Kind::Ready, Kind::Stopped]);
    let tape = Tape::default().created().killed();
    tape.clone().over(&events).breaks(SandboxesOutliveTheServer, &[3]);
    tape.add(harmed()).over(&events).is_right();
}

#[test]
fn a_creation_may_fail_by_a_kill_in_the_middle_and_not_without() {
    let events = log(&[Kind::Accepted, Kind::Failed]);
    Tape::default().created().killed().over(&events).is_right();
    Tape::default().created().over(&events).breaks(SandboxesOutliveTheServer, &[2]);
    let tape = Tape::default().created().over(&events).killed();
    tape.breaks(SandboxesOutliveTheServer, &[2]);
}

#[test]
fn output_that_is_not_what_the_command_prints() {
    let output = |lines, wrong_line, digest: &str| {
        let digest = Some(digest.to_owned());
        What::Output(Output { exec: EXEC.into(), lines, wrong_line, digest })
    };
    let events = ending(event(4, Kind::ExecFinished), &[]);
    expecting(0).add(output(3, None, "abc")).over(&events).is_right();
    for wrong in [
        output(2, None, "abc"),
        output(4, None, "abc"),
        output(1, Some(2), "abc"),
        output(3, None, "abd"),
    ] {
        expecting(0).add(wrong).over(&events).breaks(OutputIsWhole, &[2, 3]);
    }
}

#[test]
fn output_of_an_exec_that_was_cut_short_is_a_beginning() {
    let output = |lines, wrong_line| {
        What::Output(Output { exec: EXEC.into(), lines, wrong_line, digest: None })
    };
    let events = ending(event(4, Kind::ExecCancelled), &[]);
    let tape = || expecting(0).answered(cancel(), Answer::Accepted);
    tape().add(output(2, None)).over(&events).is_right();
    tape().add(output(2, Some(3))).over(&events).breaks(OutputIsWhole, &[2, 4]);
}
