use history::{
    entry::{Has, Machine, Process, Processes, Resource, Says, What},
    event::{Kind, State},
    rule::Rule::{NoGhosts, NoPhantoms, SandboxesOutliveTheServer},
};

use crate::tape::{BOX, EXEC, Tape, log, one_exec};

fn processes(last_event_sequence: u64, pids: &[(Option<&str>, u32, u64)]) -> What {
    let process = |(exec, pid, started): &(Option<&str>, u32, u64)| Process {
        exec: exec.map(Into::into),
        pid: *pid,
        started: *started,
    };
    let processes = pids.iter().map(process).collect();
    What::Processes(Processes { sandbox: BOX.into(), last_event_sequence, processes })
}

#[test]
fn a_kill_changes_no_pid() {
    let seen = || processes(4, &[(None, 100, 7), (Some(EXEC), 101, 8)]);
    let tape = Tape::default().created().started().add(seen()).killed();
    tape.clone().add(seen()).over(&one_exec()).is_right();
    for changed in [
        processes(4, &[(None, 100, 9)]),
        processes(4, &[(None, 102, 7)]),
        processes(4, &[(Some(EXEC), 102, 8)]),
        processes(4, &[(Some(EXEC), 101, 9)]),
    ] {
        let tape = tape.clone().add(changed).over(&one_exec());
        tape.breaks(SandboxesOutliveTheServer, &[3, 5]);
    }
}

#[test]
fn a_resumed_sandbox_has_another_pid() {
    let events = log(&[
        Kind::Accepted,
        Kind::Ready,
        Kind::StopRequested,
        Kind::Stopped,
        Kind::Accepted,
        Kind::Ready,
    ]);
    let tape = Tape::default().created().add(processes(2, &[(None, 100, 7)]));
    tape.add(processes(6, &[(None, 200, 70)])).over(&events).is_right();
}

fn audit(since_ready: u64, state: Option<State>, execs: &[&str], has: &[Has]) -> Tape {
    let execs: Vec<String> = execs.iter().map(ToString::to_string).collect();
    let says = state.map(|state| Says { sandbox: BOX.into(), state, execs });
    let says = says.into_iter().collect();
    Tape::default().add(What::Machine(Machine { since_ready, says, has: has.to_vec() }))
}

fn has(resource: Resource, sandbox: Option<&str>, exec: Option<&str>) -> Has {
    let (sandbox, exec) = (sandbox.map(Into::into), exec.map(Into::into));
    Has { resource, name: "17".into(), sandbox, exec }
}

const LATE: u64 = 5_000_000;

#[test]
fn everything_on_the_machine_has_a_record() {
    let init = has(Resource::Process, Some(BOX), None);
    let command = has(Resource::Process, Some(BOX), Some(EXEC));
    let files = has(Resource::Directory, Some(BOX), None);
    let all = [init.clone(), command.clone(), files.clone()];
    audit(LATE, Some(State::Ready), &[EXEC], &all).is_right();
    audit(LATE, Some(State::Stopped), &[], std::slice::from_ref(&files)).is_right();
    audit(LATE, Some(State::Failed), &[], std::slice::from_ref(&files)).is_right();
    audit(LATE, Some(State::Deleting), &[], &all[..1]).is_right();
}

#[test]
fn a_thing_without_a_record_is_a_ghost() {
    let kinds = [
        Resource::Process,
        Resource::Cgroup,
        Resource::Mount,
        Resource::Namespace,
        Resource::Directory,
    ];
    for resource in kinds {
        audit(LATE, None, &[], &[has(resource, Some(BOX), None)]).breaks(NoGhosts, &[1]);
        audit(LATE, None, &[], &[has(resource, None, None)]).breaks(NoGhosts, &[1]);
        let deleted = audit(LATE, Some(State::Deleted), &[], &[has(resource, Some(BOX), None)]);
        deleted.breaks(NoGhosts, &[1]);
    }
    for resource in &kinds[..4] {
        for state in [State::Stopped, State::Failed] {
            let tape = audit(LATE, Some(state), &[], &[has(*resource, Some(BOX), None)]);
            tape.breaks(NoGhosts, &[1]);
        }
    }
}

#[test]
fn a_process_of_an_exec_that_has_ended_is_a_ghost() {
    let init = has(Resource::Process, Some(BOX), None);
    let command = has(Resource::Process, Some(BOX), Some(EXEC));
    audit(LATE, Some(State::Ready), &[], &[init, command]).breaks(NoGhosts, &[1]);
}

#[test]
fn a_record_without_processes_is_a_phantom() {
    audit(LATE, Some(State::Ready), &[], &[]).breaks(NoPhantoms, &[1]);
    let files = has(Resource::Directory, Some(BOX), None);
    audit(LATE, Some(State::Ready), &[], &[files]).breaks(NoPhantoms, &[1]);
    let init = has(Resource::Process, Some(BOX), None);
    audit(LATE, Some(State::Ready), &[EXEC], &[init]).breaks(NoPhantoms, &[1]);
}

#[test]
fn the_server_has_five_seconds_to_clean_up() {
    let ghost = has(Resource::Mount, Some("gone"), None);
    audit(LATE - 1, Some(State::Ready), &[], &[ghost]).is_right();
}
