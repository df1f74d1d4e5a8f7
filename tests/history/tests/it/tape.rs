//! Histories written by hand.

use std::collections::BTreeSet;

use history::{
    check::check,
    entry::{
        Answer, Call, Doubt, Ending, Entry, ExecView, Outcome, Refusal, SandboxView, Subscribed,
        Time, What,
    },
    event::{Event, ExecState, Kind, State},
    rule::Rule,
};

pub(crate) const BOX: &str = "box-1";
pub(crate) const EXEC: &str = "exec-1";

/// Entries one after the other, none overlapping.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tape {
    pub(crate) entries: Vec<Entry>,
}

impl Tape {
    /// Adds an entry that begins after the last has ended.
    pub(crate) fn add(mut self, what: What) -> Self {
        let start = self.entries.last().map_or(10, |entry| entry.end.0 + 10);
        let (start, end) = (Time(start), Time(start + 5));
        self.entries.push(Entry { client: 1, life: None, start, end, what });
        self
    }

    pub(crate) fn call(self, call: Call, outcome: Outcome) -> Self {
        self.add(What::Call { call, outcome })
    }

    pub(crate) fn answered(self, call: Call, answer: Answer) -> Self {
        self.call(call, Outcome::Acknowledged(answer))
    }

    pub(crate) fn refused(self, call: Call, refusal: Refusal) -> Self {
        self.call(call, Outcome::Refused(refusal))
    }

    pub(crate) fn broken(self, call: Call) -> Self {
        self.call(call, Outcome::Unknown(Doubt::ConnectionBroke))
    }

    pub(crate) fn late(self, call: Call) -> Self {
        self.call(call, Outcome::Unknown(Doubt::DeadlinePassed))
    }

    pub(crate) fn created(self) -> Self {
        self.answered(create(), view(State::Pending, 1))
    }

    pub(crate) fn got(self, state: State, sequence: u64) -> Self {
        self.answered(get(), view(state, sequence))
    }

    pub(crate) fn started(self) -> Self {
        self.answered(exec(), Answer::Started { exec: EXEC.into() })
    }

    pub(crate) fn got_exec(self, state: ExecState, code: Option<i32>, sequence: u64) -> Self {
        self.answered(
            Call::GetExec { exec: EXEC.into() },
            Answer::Exec(exec_view(state, code, sequence)),
        )
    }

    pub(crate) fn killed(self) -> Self {
        self.add(What::Killed)
    }

    pub(crate) fn subscribed(self, subscription: u64, from_sequence: u64) -> Self {
        let sandbox = BOX.into();
        self.add(What::Subscribed(Subscribed {
            subscription,
            sandbox,
            from_sequence,
            snapshot: false,
        }))
    }

    pub(crate) fn subscribed_with_snapshot(self, subscription: u64) -> Self {
        let sandbox = BOX.into();
        self.add(What::Subscribed(Subscribed {
            subscription,
            sandbox,
            from_sequence: 0,
            snapshot: true,
        }))
    }

    pub(crate) fn event(self, subscription: u64, event: Event) -> Self {
        self.add(What::Event { subscription, event })
    }

    pub(crate) fn events(self, subscription: u64, events: &[Event]) -> Self {
        events.iter().cloned().fold(self, |tape, event| tape.event(subscription, event))
    }

    pub(crate) fn ended(self, subscription: u64, how: Ending) -> Self {
        self.add(What::Ended { subscription, how })
    }

    pub(crate) fn replay(self, events: &[Event]) -> Self {
        self.add(What::Replay { sandbox: BOX.into(), events: events.to_vec() })
    }

    /// Replays and closes.
    pub(crate) fn over(self, events: &[Event]) -> Self {
        self.replay(events).add(What::Closed)
    }

    /// Makes the last call begin when the first entry did, so that it overlaps all others.
    pub(crate) fn last_from_the_beginning(mut self) -> Self {
        let first = self.entries.first().map(|entry| entry.start);
        if let (Some(first), Some(last)) = (first, self.entries.last_mut()) {
            last.start = first;
        }
        self
    }

    #[track_caller]
    pub(crate) fn is_right(&self) {
        let report = check(&self.entries);
        assert!(report.is_clean(), "{:#?}", report.violations);
    }

    /// Checks that this rule is broken and no other, as shown by these lines.
    #[track_caller]
    pub(crate) fn breaks(&self, rule: Rule, lines: &[usize]) {
        let report = check(&self.entries);
        assert_eq!(report.rules(), BTreeSet::from([rule]), "{:#?}", report.violations);
        assert_eq!(report.violations[0].lines, lines, "{:#?}", report.violations);
    }
}

pub(crate) fn create() -> Call {
    Call::Create { sandbox: Some(BOX.into()) }
}

pub(crate) fn get() -> Call {
    Call::Get { sandbox: BOX.into() }
}

pub(crate) fn stop() -> Call {
    Call::Stop { sandbox: BOX.into() }
}

pub(crate) fn resume() -> Call {
    Call::Resume { sandbox: BOX.into() }
}

pub(crate) fn delete() -> Call {
    Call::Delete { sandbox: BOX.into() }
}

pub(crate) fn exec() -> Call {
    Call::Exec { sandbox: BOX.into(), exec: Some(EXEC.into()), expect: None }
}

pub(crate) fn cancel() -> Call {
    Call::Cancel { exec: EXEC.into() }
}

pub(crate) fn view(state: State, last_event_sequence: u64) -> Answer {
    Answer::Sandbox(sandbox_view(state, last_event_sequence))
}

pub(crate) fn sandbox_view(state: State, last_event_sequence: u64) -> SandboxView {
    SandboxView { sandbox: BOX.into(), state, last_event_sequence }
}

pub(crate) fn exec_view(state: ExecState, exit_code: Option<i32>, sequence: u64) -> ExecView {
    ExecView {
        exec: EXEC.into(),
        sandbox: BOX.into(),
        state,
        exit_code,
        last_event_sequence: sequence,
    }
}

/// Returns an event as the server would tell it. Those of execs are of [`EXEC`]; its exit code is
/// zero or seven.
pub(crate) fn event(sequence: u64, kind: Kind) -> Event {
    let is_exec = kind == Kind::ExecStarted || kind.is_exec_end();
    let is_of_companion = matches!(kind, Kind::CompanionReady | Kind::CompanionFailed);
    let exit_code = match kind {
        Kind::ExecFinished => Some(0),
        Kind::ExecFailed => Some(7),
        _ => None,
    };
    Event {
        sandbox: BOX.into(),
        sequence,
        kind,
        state: state(kind),
        exec: is_exec.then(|| EXEC.into()),
        exit_code,
        loss: None,
        companion: is_of_companion.then(|| "db".into()),
        occurred_at: i64::try_from(sequence).expect("a test has few events") * 1000,
        details: String::new(),
        replay: false,
        snapshot: false,
    }
}

fn state(kind: Kind) -> Option<State> {
    match kind {
        Kind::Accepted => Some(State::Pending),
        Kind::Ready => Some(State::Ready),
        Kind::Failed => Some(State::Failed),
        Kind::Stopped => Some(State::Stopped),
        Kind::DeleteRequested => Some(State::Deleting),
        Kind::Deleted => Some(State::Deleted),
        _ => None,
    }
}

/// Returns these kinds as events 1, 2, 3, …
pub(crate) fn log(kinds: &[Kind]) -> Vec<Event> {
    (1..).zip(kinds).map(|(sequence, kind)| event(sequence, *kind)).collect()
}

/// Returns a log with one exec that ends by itself in a sandbox that is ready.
pub(crate) fn one_exec() -> Vec<Event> {
    log(&[Kind::Accepted, Kind::Preparing, Kind::Ready, Kind::ExecStarted, Kind::ExecFinished])
}

/// Returns a history of everything that a client can do, with a kill in the middle.
pub(crate) fn whole() -> Tape {
    use Kind::{Accepted, DeleteRequested, Deleted, ExecFinished, ExecStarted};
    use Kind::{Preparing, Ready, StopRequested, Stopped};
    let events = log(&[
        Accepted,
        Preparing,
        Ready,
        ExecStarted,
        ExecFinished,
        StopRequested,
        Stopped,
        Accepted,
        Ready,
        DeleteRequested,
        Deleted,
    ]);
    Tape::default()
        .created()
        .subscribed(1, 0)
        .events(1, &events[..3])
        .got(State::Ready, 3)
        .started()
        .got_exec(ExecState::Running, None, 4)
        .killed()
        .ended(1, Ending::ConnectionBroke)
        .subscribed(2, 3)
        .events(2, &events[3..5])
        .got_exec(ExecState::Finished, Some(0), 5)
        .answered(stop(), Answer::Accepted)
        .got(State::Ready, 6)
        .events(2, &events[5..7])
        .answered(resume(), Answer::Accepted)
        .got(State::Pending, 8)
        .events(2, &events[7..9])
        .answered(delete(), Answer::Accepted)
        .events(2, &events[9..])
        .ended(2, Ending::Clean)
        .got(State::Deleted, 11)
        .over(&events)
}
