//! The checker's own table of phases says the same as `model`.

use history::{
    event::{ExecState, Kind},
    path::{Commands, Phase},
};
use model::{
    event::{Event, EventKind, Sequence},
    execution::Exit,
    ids::SandboxId,
    image::UsedImages,
    life::{self, Crash, EndCause, Failure, FailureCause, Life, SuspendReason},
    sandbox::{Request, Sandbox, WhenStopped},
    spec::{ExecSpec, SandboxSpec},
    transition::{Answer, Creation, Observation},
    units::Timestamp,
};

use crate::agbox;

/// Returns a sandbox in this phase, with or without a command that runs.
fn sandbox(phase: life::Phase, commands: Commands) -> Sandbox {
    let at = Timestamp::from_millis(0);
    let creation = Creation::new(
        SandboxId::from_random([1; 16]),
        "default".parse().expect("a tenant"),
        None,
        "node".parse().expect("a node"),
        SandboxSpec::default(),
        at,
    );
    let mut sandbox = creation.into_sandbox();
    sandbox.life.phase = phase;
    let cause = FailureCause::ResumeFailed;
    sandbox.life.failure = Some(Failure { cause, message: String::new() });
    if commands == Commands::Run {
        sandbox.life.running.insert("exec-1".parse().expect("an id"), at);
    }
    sandbox
}

fn shown(phase: life::Phase) -> Phase {
    match phase {
        life::Phase::Provisioning => Phase::Provisioning,
        life::Phase::Active => Phase::Active,
        life::Phase::Frozen => Phase::Frozen,
        life::Phase::Stopping => Phase::Stopping,
        life::Phase::Stopped => Phase::Stopped,
        life::Phase::Resuming => Phase::Resuming,
        life::Phase::Failed => Phase::Failed,
        life::Phase::Deleting => Phase::Deleting,
        life::Phase::Terminated => Phase::Terminated,
    }
}

fn requests() -> Vec<Request> {
    let start = Request::StartExec {
        exec: "exec-2".parse().expect("an id"),
        spec: ExecSpec::default(),
        when_stopped: WhenStopped::Refuse,
    };
    vec![
        Request::Stop(SuspendReason::Requested),
        Request::Resume,
        Request::Delete(EndCause::Requested),
        start,
        Request::CancelExec("exec-1".parse().expect("an id")),
        Request::Use(WhenStopped::Refuse),
    ]
}

fn observations() -> Vec<Observation> {
    let exec = || "exec-1".parse().expect("an id");
    let failure = Failure { cause: FailureCause::MainProcessCrashed, message: String::new() };
    vec![
        Observation::Preparing { step: "materialize".into(), images: UsedImages::new() },
        Observation::Ready,
        Observation::Failed(failure),
        Observation::Stopped,
        Observation::Crashed(Crash::HostRebooted),
        Observation::Deleted,
        Observation::Frozen(SuspendReason::Idle),
        Observation::Thawed,
        Observation::EndsSoon { cause: EndCause::HardTtl, seconds: 60 },
        Observation::ExecExited { exec: exec(), exit: Exit::Code(0) },
        Observation::ExecExited { exec: exec(), exit: Exit::Code(7) },
        Observation::CompanionReady { name: "db".into() },
        Observation::CompanionFailed { name: "db".into(), message: "no".into() },
    ]
}

/// Returns every single event that may come next, and the phase after it.
fn next_events(phase: life::Phase, commands: Commands) -> Vec<(Kind, Phase)> {
    let sandbox = sandbox(phase, commands);
    let at = Timestamp::from_millis(1);
    let asked = requests().into_iter().filter_map(|request| match sandbox.request(request, at) {
        Ok(Answer::Record(transition)) => Some(*transition),
        Ok(Answer::Act | Answer::First(_) | Answer::AlreadySo) | Err(_) => None,
    });
    let seen = observations().into_iter().filter_map(|it| sandbox.observe(it, at));
    // Several events at once begin with the end of a command, which comes next like any other.
    asked
        .chain(seen)
        .map(|transition| {
            let first = &transition.events()[0];
            (agbox::kind(&first.kind), shown(first.phase))
        })
        .collect()
}

#[test]
fn an_event_may_come_exactly_where_the_model_makes_it() {
    for phase in life::Phase::ALL {
        for commands in [Commands::None, Commands::Run] {
            let allowed = next_events(phase, commands);
            for kind in Kind::ALL {
                // Nothing in the model is a note, and a command ends only where one runs, which the
                // checker follows by the exec's own id.
                if kind == Kind::Note || (kind.is_exec_end() && commands == Commands::None) {
                    continue;
                }
                let expected = allowed.iter().find(|(it, _)| *it == kind).map(|(_, after)| *after);
                let found = Phase::after(Some(shown(phase)), kind, commands);
                // A sandbox that has ended has no commands, whatever this test puts into it.
                if phase != life::Phase::Terminated {
                    assert_eq!(found, expected, "{kind:?} in {phase:?} with {commands:?}");
                }
            }
        }
    }
}

#[test]
fn nothing_comes_after_the_end() {
    for kind in Kind::ALL {
        assert_eq!(Phase::after(Some(Phase::Terminated), kind, Commands::None), None);
    }
}

#[test]
fn only_the_acceptance_comes_first() {
    for kind in Kind::ALL {
        let first = Phase::after(None, kind, Commands::None);
        assert_eq!(first.is_some(), kind == Kind::Accepted, "{kind:?}");
    }
    let event = Event {
        sequence: Sequence(1),
        occurred_at: Timestamp::from_millis(0),
        phase: life::Phase::Provisioning,
        kind: EventKind::Accepted,
    };
    assert!(Life::begin(&event).is_ok());
}

#[test]
fn a_phase_shows_as_the_same_state() {
    for phase in life::Phase::ALL {
        assert_eq!(shown(phase).state(), agbox::state(phase));
    }
}

#[test]
fn an_exit_code_of_zero_is_one_only_of_what_finished() {
    let told = |state: ExecState| (state.exit_code(0), state.exit_code(7));
    assert_eq!(told(ExecState::Running), (None, None));
    assert_eq!(told(ExecState::Cancelled), (None, None));
    assert_eq!(told(ExecState::Finished), (Some(0), Some(7)));
    assert_eq!(told(ExecState::Failed), (None, Some(7)));
}

#[test]
fn the_numbers_of_the_wire_are_read() {
    let numbered: Vec<Kind> = (1..=14).filter_map(|it| Kind::from_agbox(it, "")).collect();
    assert_eq!(numbered, Kind::ALL[..14]);
    let own = ["frozen", "thawed", "ends_soon", "something"];
    let own: Vec<Kind> = own.iter().filter_map(|phase| Kind::from_agbox(0, phase)).collect();
    assert_eq!(own, Kind::ALL[14..]);
    assert_eq!(Kind::from_agbox(15, ""), None);
    assert_eq!(Kind::from_agbox(-1, ""), None);
}
