//! F58: no change without its event, whatever event that is.

use std::{collections::BTreeSet, env, path::Path, process::Command};

use model::{
    adjustment::Adjustment,
    event::{EventKind, Sequence},
    execution::Exit,
    ids::ExecId,
    image::UsedImages,
    life::{EndCause, Failure, FailureCause, Life, SuspendReason},
    sandbox::{Request, Sandbox, WhenStopped},
    spec::{ExecSpec, KeepStopped},
    transition::{Answer, Observation, Transition},
};

use super::{Place, at, creation};
use crate::{Store, StoreError, sandboxes::PAGE};

const STORE: &str = "RINGFENCE_TEST_LIFE_STORE";
const NUMBER: &str = "RINGFENCE_TEST_LIFE_NUMBER";

/// How many kinds of events there are.
const KINDS: usize = 17;

/// Numbers the kinds, so that a new one cannot be forgotten here.
fn number(kind: &EventKind) -> usize {
    match kind {
        EventKind::Accepted => 0,
        EventKind::Preparing { .. } => 1,
        EventKind::Ready => 2,
        EventKind::Failed(_) => 3,
        EventKind::StopRequested(_) => 4,
        EventKind::Stopped(_) => 5,
        EventKind::ResumeAccepted => 6,
        EventKind::DeleteRequested(_) => 7,
        EventKind::Deleted(_) => 8,
        EventKind::Frozen(_) => 9,
        EventKind::Thawed => 10,
        EventKind::EndsSoon { .. } => 11,
        EventKind::ExecStarted { .. } => 12,
        EventKind::ExecEnded { .. } => 13,
        EventKind::CompanionReady { .. } => 14,
        EventKind::CompanionFailed { .. } => 15,
        EventKind::Adjusted(_) => 16,
    }
}

/// What brings a life forward.
enum Step {
    Seen(Observation),
    Asked(Request),
}

impl Step {
    fn of(self, sandbox: &Sandbox) -> Transition {
        match self {
            Self::Seen(seen) => sandbox.observe(seen, at(5000)).expect("it is news"),
            Self::Asked(request) => match sandbox.request(request, at(5000)) {
                Ok(Answer::Record(transition)) => *transition,
                other => panic!("it is not to be kept: {other:?}"),
            },
        }
    }
}

/// Returns a life with events of every kind after the first. Its last stop ends a command, so that
/// one step has two events.
fn life(first: &ExecId, second: &ExecId) -> Vec<Step> {
    use Step::{Asked, Seen};
    let start = |exec: &ExecId| Request::StartExec {
        exec: exec.clone(),
        spec: ExecSpec { command: vec!["true".into()], ..ExecSpec::default() },
        when_stopped: WhenStopped::Refuse,
    };
    let failure = Failure { cause: FailureCause::ResumeFailed, message: "no memory".into() };
    vec![
        Seen(Observation::Preparing { step: "materialize".into(), images: UsedImages::default() }),
        Seen(Observation::CompanionReady { name: "cache".into() }),
        Seen(Observation::CompanionFailed { name: "cache".into(), message: "gone".into() }),
        Seen(Observation::Ready),
        Asked(start(first)),
        Seen(Observation::ExecExited { exec: first.clone(), exit: Exit::Code(0) }),
        Seen(Observation::Frozen(SuspendReason::Idle)),
        Seen(Observation::Thawed),
        Asked(Request::Adjust(Box::new(Adjustment {
            name: Some(format!("renamed-{first}").parse().unwrap()),
            keep_stopped: Some(KeepStopped::Forever),
            ..Adjustment::default()
        }))),
        Seen(Observation::EndsSoon { cause: EndCause::HardTtl, seconds: 60 }),
        Asked(start(second)),
        Asked(Request::Stop(SuspendReason::Requested)),
        Seen(Observation::Stopped),
        Asked(Request::Resume),
        Seen(Observation::Ready),
        Seen(Observation::Failed(failure)),
        Asked(Request::Delete(EndCause::Requested)),
        Seen(Observation::Deleted),
    ]
}

/// All that the store says of a sandbox.
#[derive(Debug, PartialEq, Eq)]
struct Kept {
    sandbox: Option<Sandbox>,
    events: Vec<EventKind>,
    execs: Vec<Option<model::exec::Exec>>,
}

async fn kept(store: &Store, sandbox: &Sandbox, execs: &[ExecId; 2]) -> Kept {
    let events = match store.events(&sandbox.id, Sequence::ZERO, PAGE).await {
        Ok(told) => told.events.into_iter().map(|event| event.kind).collect(),
        Err(StoreError::NotFound { .. }) => Vec::new(),
        Err(error) => panic!("{error}"),
    };
    let mut found = Vec::new();
    for exec in execs {
        found.push(store.exec(&sandbox.tenant, exec).await.unwrap().map(|at| at.exec));
    }
    Kept { sandbox: store.sandbox(&sandbox.id).await.unwrap(), events, execs: found }
}

fn tell(kinds: &[&EventKind]) {
    let numbers: Vec<String> = kinds.iter().map(|kind| number(kind).to_string()).collect();
    println!("refusal of {}", numbers.join(" "));
}

/// The other process of the promise below; does nothing by itself.
#[tokio::test]
async fn a_process_lives_through_every_event_and_repeats_what_was_refused() {
    let (Ok(place), Ok(number)) = (env::var(STORE), env::var(NUMBER)) else { return };
    let store = if place.contains("host=") {
        Store::connect(&place).await.unwrap()
    } else {
        Store::open(Path::new(&place)).unwrap()
    };
    let execs = ["first", "second"].map(|id| format!("{id}-{number}").parse().unwrap());
    let (creation, mut sandbox) = creation(number.parse().unwrap());
    let before = kept(&store, &sandbox, &execs).await;
    if let Err(error) = store.create_sandbox(creation.clone()).await {
        assert!(matches!(error, StoreError::Commit { .. }), "{error}");
        tell(&creation.events().iter().map(|event| &event.kind).collect::<Vec<_>>());
        assert_eq!(kept(&store, &sandbox, &execs).await, before);
        store.create_sandbox(creation).await.unwrap();
    }
    for step in life(&execs[0], &execs[1]) {
        let transition = step.of(&sandbox);
        let before = kept(&store, &sandbox, &execs).await;
        if let Err(error) = store.change_sandbox(transition.clone()).await {
            assert!(matches!(error, StoreError::Commit { .. }), "{error}");
            tell(&transition.events().iter().map(|event| &event.kind).collect::<Vec<_>>());
            assert_eq!(kept(&store, &sandbox, &execs).await, before, "nothing of it was kept");
            store.change_sandbox(transition.clone()).await.unwrap();
        }
        sandbox = sandbox.after(&transition);
    }
    println!("lived");
}

pub(super) async fn an_event_of_any_kind_that_cannot_be_appended_changes_nothing(place: Place) {
    let mut refused = BTreeSet::new();
    // Each process has one refusal, one event later than the last, until there is none.
    for attempt in 1.. {
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("suite::kinds::a_process_lives_through_every_event_and_repeats_what_was_refused")
            .env("RF_FAILPOINT", format!("s.append=error:{attempt}"))
            .env(STORE, place.address())
            .env(NUMBER, attempt.to_string())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().any(|line| line == "lived"), "{attempt}: {text}");
        let told = text.lines().find_map(|line| line.rsplit_once("refusal of ").map(|(_, it)| it));
        let Some(told) = told else { break };
        refused.extend(told.split(' ').map(|number| number.parse::<usize>().unwrap()));
        let store = place.open().await;
        let sandbox = store.sandbox(&creation(attempt).1.id).await.unwrap().unwrap();
        let events = store.events(&sandbox.id, Sequence::ZERO, PAGE).await.unwrap().events;
        assert_eq!(Life::replay(&events), Ok(sandbox.life));
        store.close().await;
    }
    assert_eq!(refused, (0..KINDS).collect());
}
