use std::collections::BTreeMap;

use proptest::{prelude::*, sample::select};

use super::*;
use crate::{
    life::FailureCause,
    sandbox::{MOST_SHELLS, WhenStopped},
    spec::ExecSpec,
};

/// Something that may happen to a sandbox at any moment.
#[derive(Clone, Debug)]
enum Step {
    Ask(Request),
    See(Observation),
}

/// A sandbox with everything that was ever told of it.
struct History {
    sandbox: Sandbox,
    events: Vec<Event>,
    /// The state after each event that ended a transition.
    states: Vec<Life>,
    execs: BTreeMap<ExecId, Vec<ExecState>>,
}

impl History {
    fn begin() -> Self {
        let creation = Creation::new(
            SandboxId::from_random([1; 16]),
            "default".parse().unwrap(),
            None,
            "node".parse().unwrap(),
            SandboxSpec::default(),
            Timestamp::from_millis(0),
        );
        let events = creation.events().to_vec();
        let sandbox = creation.into_sandbox();
        let states = vec![sandbox.life.clone()];
        Self { sandbox, events, states, execs: BTreeMap::new() }
    }

    fn take(&mut self, step: Step, at: Timestamp) {
        let transition = match step {
            Step::Ask(Request::StartExec { exec, .. }) if self.execs.contains_key(&exec) => return,
            Step::Ask(request) => match self.sandbox.request(request, at) {
                Ok(Answer::Record(transition)) => *transition,
                Ok(Answer::Act | Answer::First(_) | Answer::AlreadySo) | Err(_) => return,
            },
            Step::See(observation) => match self.sandbox.observe(observation, at) {
                Some(transition) => transition,
                None => return,
            },
        };
        self.keep(&transition);
    }

    fn keep(&mut self, transition: &Transition) {
        assert_eq!(transition.expected(), self.sandbox.life.sequence);
        self.events.extend_from_slice(transition.events());
        if let Some(exec) = transition.started() {
            let before = self.execs.insert(exec.id.clone(), vec![exec.life.state.clone()]);
            assert_eq!(before, None, "an id is used once");
        }
        for (exec, life) in transition.ended() {
            self.execs.get_mut(exec).expect("it was started").push(life.state.clone());
        }
        self.sandbox = self.sandbox.clone().after(transition);
        self.states.push(self.sandbox.life.clone());
    }

    fn of(steps: Vec<Step>) -> Self {
        let mut history = Self::begin();
        for (at, step) in (1..).zip(steps) {
            history.take(step, Timestamp::from_millis(at));
        }
        history
    }
}

fn exec_id() -> impl Strategy<Value = ExecId> {
    select(vec!["exec-1", "exec-2", "exec-3", "exec-4"]).prop_map(|id| id.parse().unwrap())
}

fn request() -> impl Strategy<Value = Request> {
    let reason = select(vec![SuspendReason::Requested, SuspendReason::Idle]);
    let when_stopped = select(vec![WhenStopped::Refuse, WhenStopped::Resume]);
    prop_oneof![
        reason.clone().prop_map(Request::Stop),
        Just(Request::Resume),
        Just(Request::Delete(EndCause::Requested)),
        reason.prop_map(Request::Freeze),
        Just(Request::Thaw),
        (exec_id(), when_stopped.clone()).prop_map(|(exec, when_stopped)| Request::StartExec {
            exec,
            spec: ExecSpec::default(),
            when_stopped
        }),
        exec_id().prop_map(Request::CancelExec),
        when_stopped.prop_map(Request::Use),
    ]
}

fn failure() -> impl Strategy<Value = Failure> {
    use FailureCause::{ImageFailed, MainProcessCrashed, ProviderLost, ResumeFailed};
    select(vec![ImageFailed, MainProcessCrashed, ProviderLost, ResumeFailed])
        .prop_map(|cause| Failure { cause, message: "it broke".into() })
}

fn observation() -> impl Strategy<Value = Observation> {
    prop_oneof![
        2 => Just(Observation::Preparing { step: "materialize".into(), images: UsedImages::new() }),
        8 => Just(Observation::Ready),
        1 => failure().prop_map(Observation::Failed),
        4 => Just(Observation::Stopped),
        1 => select(vec![Crash::HostRebooted, Crash::SupervisorLost]).prop_map(Observation::Crashed),
        4 => Just(Observation::Deleted),
        2 => Just(Observation::Frozen(SuspendReason::Idle)),
        2 => Just(Observation::Thawed),
        1 => Just(Observation::EndsSoon { cause: EndCause::HardTtl, seconds: 60 }),
        4 => (exec_id(), any::<i32>())
            .prop_map(|(exec, code)| Observation::ExecExited { exec, exit: Exit::Code(code) }),
        1 => (exec_id(), 1..u64::MAX).prop_map(|(exec, lost)| {
            let lost = LostOutput { stdout: lost / 2, stderr: lost - lost / 2 };
            Observation::ExecExitedCut { exec, exit: Exit::Code(0), lost }
        }),
        1 => (exec_id(), any::<u64>())
            .prop_map(|(exec, stderr)| Observation::ExecTimedOut {
                exec,
                lost: LostOutput { stdout: 0, stderr },
            }),
        1 => exec_id().prop_map(|exec| Observation::ExecNotStarted {
            exec,
            message: "no".into(),
            exit_code: None,
        }),
        1 => Just(Observation::CompanionReady { name: "db".into() }),
        1 => Just(Observation::CompanionFailed { name: "db".into(), message: "no".into() }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![request().prop_map(Step::Ask), observation().prop_map(Step::See)];
    prop::collection::vec(step, 0..80)
}

proptest! {
    /// I5, I6.
    #[test]
    fn events_have_no_gap_and_add_up_to_every_state_on_the_way(steps in steps()) {
        let history = History::of(steps);
        for (place, event) in (1..).zip(&history.events) {
            prop_assert_eq!(event.sequence, Sequence(place));
        }
        for state in &history.states {
            let until = usize::try_from(state.sequence.0).unwrap();
            prop_assert_eq!(&Life::replay(&history.events[..until]).unwrap(), state);
            prop_assert_eq!(history.events[until - 1].phase, state.phase);
        }
    }

    /// I4.
    #[test]
    fn a_sandbox_has_one_end_and_nothing_after_it(steps in steps()) {
        let history = History::of(steps);
        let is_end = |event: &Event| event.phase.is_terminal();
        let ends = history.events.iter().filter(|event| is_end(event)).count();
        prop_assert!(ends <= 1);
        prop_assert_eq!(ends == 1, history.events.last().is_some_and(is_end));
    }

    /// I4.
    #[test]
    fn every_exec_has_one_end_and_none_outlives_its_sandbox(steps in steps()) {
        let history = History::of(steps);
        for (id, states) in &history.execs {
            let running = history.sandbox.life.running.contains_key(id);
            prop_assert_eq!(states.len(), if running { 1 } else { 2 });
            prop_assert!(!states[0].is_terminal());
            prop_assert!(states.get(1).is_none_or(ExecState::is_terminal));
        }
        let can_run = match history.sandbox.life.phase.standing() {
            crate::life::Standing::Ready | crate::life::Standing::Deleting => true,
            crate::life::Standing::Pending
            | crate::life::Standing::Stopped
            | crate::life::Standing::Failed
            | crate::life::Standing::Deleted => false,
        };
        prop_assert!(can_run || history.sandbox.life.running.is_empty());
    }

    #[test]
    fn asking_again_is_already_so_or_refused_and_stays_so(steps in steps(), request in request()) {
        let mut history = History::of(steps);
        // The store refuses an id that was used before, so that it never gets this far.
        prop_assume!(!matches!(&request, Request::StartExec { exec, .. } if history.execs.contains_key(exec)));
        let at = Timestamp::from_millis(1000);
        let first = history.sandbox.request(request.clone(), at);
        if let Ok(Answer::Record(transition)) = &first {
            history.keep(transition);
            let second = history.sandbox.request(request.clone(), at);
            prop_assert!(matches!(second, Ok(Answer::AlreadySo) | Err(_)), "{second:?}");
            prop_assert_eq!(history.sandbox.request(request, at), second);
        } else {
            prop_assert_eq!(history.sandbox.request(request, at), first);
        }
    }

    #[test]
    fn what_was_seen_once_is_no_news(steps in steps(), observation in observation()) {
        let mut history = History::of(steps);
        let at = Timestamp::from_millis(1000);
        let repeats = match observation {
            Observation::Preparing { .. } | Observation::EndsSoon { .. } => true,
            Observation::Ready
            | Observation::CompanionReady { .. }
            | Observation::CompanionFailed { .. }
            | Observation::Failed(_)
            | Observation::Stopped
            | Observation::Crashed(_)
            | Observation::Deleted
            | Observation::Frozen(_)
            | Observation::Thawed
            | Observation::ExecExited { .. }
            | Observation::ExecExitedCut { .. }
            | Observation::ExecTimedOut { .. }
            | Observation::ExecNotStarted { .. } => false,
        };
        if let Some(transition) = history.sandbox.observe(observation.clone(), at) {
            history.keep(&transition);
            prop_assert_eq!(history.sandbox.observe(observation, at).is_some(), repeats);
        }
    }

    #[test]
    fn every_start_has_one_outcome_for_a_companion_and_a_failure_is_the_last(steps in steps()) {
        let history = History::of(steps);
        let starts = |kind: &EventKind| matches!(kind, EventKind::Accepted | EventKind::ResumeAccepted);
        let kinds: Vec<&EventKind> = history.events.iter().map(|event| &event.kind).collect();
        for start in kinds.split(|kind| starts(kind)) {
            let ready = |kind: &&&EventKind| matches!(kind, EventKind::CompanionReady { .. });
            let failed = |kind: &&&EventKind| matches!(kind, EventKind::CompanionFailed { .. });
            let told: Vec<_> = start.iter().filter(|kind| ready(kind) || failed(kind)).collect();
            prop_assert!(told.iter().filter(|kind| ready(kind)).count() <= 1, "{told:?}");
            prop_assert!(told.iter().skip(1).all(failed) && told.len() <= 2, "{told:?}");
            prop_assert!(told.len() < 2 || told.first().is_some_and(ready), "{told:?}");
        }
    }

    #[test]
    fn every_phase_can_be_left_by_deleting(steps in steps()) {
        let mut history = History::of(steps);
        let at = Timestamp::from_millis(1000);
        history.take(Step::Ask(Request::Delete(EndCause::HardTtl)), at);
        history.take(Step::See(Observation::Deleted), at);
        prop_assert_eq!(history.sandbox.life.phase, Phase::Terminated);
        prop_assert!(history.sandbox.life.end.is_some());
    }
}

fn start_shell(exec: &str, shell: &str) -> Step {
    Step::Ask(Request::StartExec {
        exec: exec.parse().unwrap(),
        spec: ExecSpec { shell: Some(shell.parse().unwrap()), ..ExecSpec::default() },
        when_stopped: WhenStopped::Refuse,
    })
}

#[test]
fn a_name_is_one_shells_until_that_has_ended() {
    let shells = |history: &History| -> Vec<(String, String)> {
        let shells = history.sandbox.life.shells.iter();
        shells.map(|(name, exec)| (name.to_string(), exec.to_string())).collect()
    };
    let pair = |name: &str, exec: &str| (name.to_owned(), exec.to_owned());
    let exited = |exec: &str| {
        let (exec, exit) = (exec.parse().unwrap(), Exit::Code(0));
        Step::See(Observation::ExecExited { exec, exit })
    };
    let begun = || {
        vec![
            Step::See(Observation::Ready),
            start_shell("exec-1", "one"),
            start_shell("exec-2", "one"),
            start_shell("exec-3", "two"),
            start("exec-4"),
        ]
    };
    let history = History::of(begun());
    assert_eq!(shells(&history), [pair("one", "exec-1"), pair("two", "exec-3")]);
    assert_eq!(history.execs.len(), 3);
    let mut again = begun();
    again.extend([exited("exec-1"), start_shell("exec-5", "one"), exited("exec-3")]);
    assert_eq!(shells(&History::of(again)), [pair("one", "exec-5")]);
    let mut stopped = begun();
    stopped.push(Step::Ask(Request::Stop(SuspendReason::Requested)));
    stopped.push(Step::See(Observation::Stopped));
    assert_eq!(shells(&History::of(stopped)), []);
}

#[test]
fn there_is_room_for_so_many_shells_and_those_that_are_there_can_be_joined() {
    let mut steps = vec![Step::See(Observation::Ready)];
    steps.extend((0..MOST_SHELLS).map(|n| start_shell(&format!("exec-{n}"), &n.to_string())));
    let history = History::of(steps);
    let ask = |shell: &str| match start_shell("exec-more", shell) {
        Step::Ask(request) => history.sandbox.life.decide(&request),
        Step::See(_) => unreachable!(),
    };
    assert_eq!(ask("0"), Ok(Verdict::AlreadySo));
    assert_eq!(ask("more"), Err(Refusal::TooManyShells));
}

fn phases(history: &History) -> Vec<Phase> {
    history.events.iter().map(|event| event.phase).collect()
}

fn start(exec: &str) -> Step {
    Step::Ask(Request::StartExec {
        exec: exec.parse().unwrap(),
        spec: ExecSpec::default(),
        when_stopped: WhenStopped::Refuse,
    })
}

#[test]
fn a_whole_life_is_told_in_order() {
    use Phase::{Active, Deleting, Provisioning, Resuming, Stopped, Stopping, Terminated};

    let history = History::of(vec![
        Step::See(Observation::Preparing { step: "materialize".into(), images: UsedImages::new() }),
        Step::See(Observation::Ready),
        start("exec-1"),
        Step::Ask(Request::Stop(SuspendReason::Idle)),
        Step::Ask(Request::Stop(SuspendReason::Requested)),
        Step::See(Observation::Stopped),
        Step::Ask(Request::Resume),
        Step::See(Observation::Ready),
        Step::Ask(Request::Delete(EndCause::LeaseExpired)),
        Step::See(Observation::Ready),
        Step::See(Observation::Deleted),
    ]);
    let expected = [
        Provisioning,
        Provisioning,
        Active,
        Active,
        Stopping,
        // The end of the command that the stop took with it, then the stop.
        Stopping,
        Stopped,
        Resuming,
        Active,
        Deleting,
        Terminated,
    ];
    assert_eq!(phases(&history), expected);
    let lost = ExecState::Ended(ExecEnd::Lost(Loss::SandboxStopped));
    let execs = BTreeMap::from([("exec-1".parse().unwrap(), vec![ExecState::Running, lost])]);
    assert_eq!(history.execs, execs);
    assert_eq!(history.sandbox.life.end, Some(EndCause::LeaseExpired));
}

#[test]
fn a_cancelled_exec_keeps_that_end_whatever_its_process_says_later() {
    let exec: ExecId = "exec-1".parse().unwrap();
    let history = History::of(vec![
        Step::See(Observation::Ready),
        start("exec-1"),
        Step::Ask(Request::CancelExec(exec.clone())),
        Step::See(Observation::ExecExited { exec: exec.clone(), exit: Exit::Code(0) }),
    ]);
    assert_eq!(history.execs[&exec], [ExecState::Running, ExecState::Ended(ExecEnd::Cancelled)]);
    assert_eq!(ExecEnd::Cancelled.exit_code(), None);
    assert_eq!(ExecEnd::Exited(Exit::Code(7)).exit_code(), Some(7));
}

#[test]
fn a_sleeping_sandbox_is_waked_before_it_is_used() {
    let asks = |when_stopped| Request::Use(when_stopped);
    let frozen = History::of(vec![
        Step::See(Observation::Ready),
        Step::See(Observation::Frozen(SuspendReason::Idle)),
    ]);
    let at = Timestamp::from_millis(9);
    assert_eq!(
        frozen.sandbox.request(asks(WhenStopped::Refuse), at),
        Ok(Answer::First(Wake::Thaw))
    );
    let stopped = History::of(vec![
        Step::See(Observation::Ready),
        Step::Ask(Request::Stop(SuspendReason::Requested)),
        Step::See(Observation::Stopped),
    ]);
    assert_eq!(
        stopped.sandbox.request(asks(WhenStopped::Resume), at),
        Ok(Answer::First(Wake::Resume))
    );
    assert_eq!(
        stopped.sandbox.request(asks(WhenStopped::Refuse), at),
        Err(Refusal::WrongPhase(Phase::Stopped))
    );
}

#[test]
fn lost_processes_stop_a_sandbox_with_a_cause_and_end_its_commands() {
    for (crash, reason, loss) in [
        (Crash::HostRebooted, SuspendReason::HostRebooted, Loss::HostRebooted),
        (Crash::SupervisorLost, SuspendReason::SupervisorLost, Loss::SupervisorLost),
    ] {
        let history = History::of(vec![
            Step::See(Observation::Ready),
            start("exec-1"),
            Step::See(Observation::Crashed(crash)),
        ]);
        let life = &history.sandbox.life;
        assert_eq!((life.phase, life.suspended_for), (Phase::Stopped, Some(reason)));
        assert_eq!((life.reason(), life.can_be_started()), (Some(reason.name()), true));
        let lost = ExecState::Ended(ExecEnd::Lost(loss));
        assert_eq!(history.execs[&"exec-1".parse().unwrap()], [ExecState::Running, lost]);
    }
}

#[test]
fn a_failed_sandbox_can_be_started_again_if_its_files_are_kept() {
    use FailureCause::{
        CreateFailed, DiskFull, HostRebooted, ImageFailed, ImageNotAllowed, ImageNotFound,
        ImageUnusable, MainProcessCrashed, ProviderLost, ResumeFailed, SupervisorLost,
    };
    let at = Timestamp::from_millis(9);
    for (cause, keeps_files) in [
        (CreateFailed, false),
        (ImageFailed, false),
        (ImageNotFound, false),
        (ImageNotAllowed, false),
        (ImageUnusable, false),
        (DiskFull, false),
        (ProviderLost, false),
        (ResumeFailed, true),
        (MainProcessCrashed, true),
        (HostRebooted, true),
        (SupervisorLost, true),
    ] {
        let failure = Failure { cause, message: "it broke".into() };
        let failed = History::of(vec![Step::See(Observation::Failed(failure))]).sandbox;
        assert_eq!(failed.life.is_gone(), !keeps_files, "{cause:?}");
        let resumed = failed.request(Request::Resume, at);
        assert_eq!(matches!(resumed, Ok(Answer::Record(_))), keeps_files, "{cause:?}");
        let wake = if keeps_files { Ok(Answer::First(Wake::Resume)) } else { Err(Refusal::Failed) };
        assert_eq!(failed.request(Request::Use(WhenStopped::Resume), at), wake, "{cause:?}");
        let refused = failed.request(Request::Use(WhenStopped::Refuse), at);
        assert_eq!(refused, Err(Refusal::Failed), "{cause:?}");
        assert_eq!(
            failed.request(Request::Stop(SuspendReason::Requested), at),
            Err(Refusal::Failed)
        );
    }
}

#[test]
fn a_history_with_a_hole_or_a_sequel_is_refused() {
    let history = History::of(vec![
        Step::See(Observation::Ready),
        Step::Ask(Request::Delete(EndCause::Requested)),
        Step::See(Observation::Deleted),
    ]);
    let mut holed = history.events.clone();
    holed.remove(1);
    let gap = crate::life::HistoryError::Gap { last: Sequence(1), found: Sequence(3) };
    assert_eq!(Life::replay(&holed), Err(gap));
    let mut longer = history.events.clone();
    longer.push(Event { sequence: Sequence(5), ..history.events[1].clone() });
    let after = crate::life::HistoryError::AfterTheEnd { found: Sequence(5) };
    assert_eq!(Life::replay(&longer), Err(after));
    assert_eq!(Life::replay(&[]), Err(crate::life::HistoryError::Beginning));
}
