//! The session of a user with a tool: state that the server owns, and its revision.
//!
//! ```text
//! no session ──first run that offers actions──▶ revision 1 ──action──▶ revision 2 ──▶ …
//! ```
//!
//! One action at a time: it begins if it names the current revision and no other action runs, and its end
//! writes the state and raises the revision by one, or leaves both.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::tool::{
    ids::{DraftSnapshotId, RunId, VersionId},
    normalise::StateUpdate,
};

/// The longest name of a context, in characters.
const MAX_CONTEXT: usize = 64;

/// Which of a user's sessions with a tool: one in production, and one for each draft that is tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Context(String);

/// The text does not name a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a context has 1 to {MAX_CONTEXT} characters, none of them a control character")]
pub struct NotAContext;

impl Context {
    /// The context of production.
    pub fn production() -> Self {
        Self("default".to_owned())
    }

    /// The context of a snapshot of a draft.
    pub fn of_snapshot(snapshot: &DraftSnapshotId) -> Self {
        Self(format!("sandbox:{snapshot}"))
    }

    /// The context of a version that is run without a snapshot.
    pub fn of_version(version: &VersionId) -> Self {
        Self(format!("sandbox:{version}"))
    }

    /// The context that the settings of a draft are kept in. `digest` is that of the draft and its schema.
    pub fn of_settings(digest: &str) -> Self {
        let digest: String = digest.chars().take(32).collect();
        Self(format!("sandbox-settings:{digest}"))
    }

    /// Whether the editor uses it. Production cannot name these.
    pub fn is_of_editor(&self) -> bool {
        self.0.starts_with("sandbox:") || self.0.starts_with("sandbox-settings:")
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Context {
    type Err = NotAContext;

    fn from_str(text: &str) -> Result<Self, NotAContext> {
        let text = text.trim();
        let is_good =
            (1..=MAX_CONTEXT).contains(&text.chars().count()) && !text.contains(char::is_control);
        if is_good { Ok(Self(text.to_owned())) } else { Err(NotAContext) }
    }
}

impl TryFrom<String> for Context {
    type Error = NotAContext;

    fn try_from(text: String) -> Result<Self, NotAContext> {
        text.parse()
    }
}

impl From<Context> for String {
    fn from(context: Context) -> Self {
        context.0
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The state of a session. Whose it is stands in its row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolSession {
    pub state: Map<String, Value>,
    pub revision: u64,
    /// The action that runs now.
    pub running: Option<RunId>,
    pub latest_run: Option<RunId>,
}

/// An action cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActionConflict {
    #[error("the session changed elsewhere: its revision is {current}, not {expected}")]
    Revision { expected: u64, current: u64 },
    #[error("another action of this session is running; wait for its end, then refresh and retry")]
    Running { expected: u64, current: u64, run: RunId },
}

/// What a run of a tool is to its session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The first run: inputs and files, no action.
    Initial,
    Action {
        action_id: String,
    },
}

/// How a run ended, as far as its session is concerned.
#[derive(Clone, Debug, PartialEq)]
pub enum Reported {
    /// It reported a valid result.
    Result { state: StateUpdate, offers_actions: bool },
    /// The tool failed, or took too long.
    Failure,
    /// The result does not follow the contract.
    Violation,
    /// It was cancelled, or the server stopped meanwhile.
    Interrupted,
}

impl ToolSession {
    /// Lets an action begin, if the caller knows the current revision and no other action runs.
    pub fn begin_action(&self, expected: u64, run: RunId) -> Result<Self, ActionConflict> {
        let current = self.revision;
        match &self.running {
            _ if expected != current => Err(ActionConflict::Revision { expected, current }),
            Some(running) => {
                Err(ActionConflict::Running { expected, current, run: running.clone() })
            }
            None => Ok(Self { running: Some(run.clone()), latest_run: Some(run), ..self.clone() }),
        }
    }

    /// Returns the session after a run. `None`: nothing changes, and a session that is not there is not made.
    ///
    /// A first run that offers actions starts the session anew, also while an action runs: what that one
    /// reports belongs to a state that is gone, and is not written.
    #[must_use]
    pub fn after(&self, step: &Step, run: &RunId, reported: Reported) -> Option<Self> {
        let state = match (step, reported) {
            (Step::Initial, Reported::Result { state, offers_actions: true }) => new_state(state),
            (Step::Initial, _) => return None,
            (Step::Action { .. }, _) if self.running.as_ref() != Some(run) => return None,
            (Step::Action { .. }, Reported::Result { state, offers_actions: _ }) => {
                new_state(state)
            }
            (Step::Action { .. }, Reported::Failure) => Map::new(),
            (Step::Action { .. }, Reported::Violation | Reported::Interrupted) => {
                return Some(Self { running: None, ..self.clone() });
            }
        };
        let revision = self.revision + 1;
        Some(Self { state, revision, running: None, latest_run: Some(run.clone()) })
    }
}

/// A step that says nothing about the state ends it: the next one begins with an empty state.
fn new_state(update: StateUpdate) -> Map<String, Value> {
    match update {
        StateUpdate::Set(state) => state,
        StateUpdate::Keep | StateUpdate::Clear => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn run(number: u8) -> RunId {
        RunId::from_random([number; 16])
    }

    fn action() -> Step {
        Step::Action { action_id: "next".to_owned() }
    }

    fn state(value: u8) -> Map<String, Value> {
        Map::from_iter([("step".to_owned(), json!(value))])
    }

    fn session(revision: u64, running: Option<u8>) -> ToolSession {
        ToolSession {
            state: state(1),
            revision,
            running: running.map(run),
            latest_run: Some(run(1)),
        }
    }

    fn result(state: StateUpdate, offers_actions: bool) -> Reported {
        Reported::Result { state, offers_actions }
    }

    #[test]
    fn an_action_begins_with_the_current_revision_and_alone() {
        let begun = session(3, None).begin_action(3, run(7)).unwrap();
        assert_eq!((begun.revision, begun.running, begun.state), (3, Some(run(7)), state(1)));
        for (session, expected, conflict) in [
            (session(3, None), 2, ActionConflict::Revision { expected: 2, current: 3 }),
            (session(3, None), 4, ActionConflict::Revision { expected: 4, current: 3 }),
            (session(3, Some(9)), 2, ActionConflict::Revision { expected: 2, current: 3 }),
            (
                session(3, Some(9)),
                3,
                ActionConflict::Running { expected: 3, current: 3, run: run(9) },
            ),
        ] {
            assert_eq!(session.begin_action(expected, run(7)), Err(conflict));
        }
    }

    #[test]
    fn the_end_of_a_run_changes_its_session_as_the_table_says() {
        let set = || StateUpdate::Set(state(2));
        let changed = |value: Map<String, Value>| Some((value, 4, None));
        let kept = || Some((state(1), 3, None));
        let table = [
            (Step::Initial, result(set(), true), changed(state(2))),
            (Step::Initial, result(StateUpdate::Clear, true), changed(Map::new())),
            (Step::Initial, result(StateUpdate::Keep, true), changed(Map::new())),
            (Step::Initial, result(set(), false), None),
            (Step::Initial, Reported::Failure, None),
            (Step::Initial, Reported::Violation, None),
            (Step::Initial, Reported::Interrupted, None),
            (action(), result(set(), true), changed(state(2))),
            (action(), result(set(), false), changed(state(2))),
            (action(), result(StateUpdate::Clear, true), changed(Map::new())),
            (action(), result(StateUpdate::Keep, true), changed(Map::new())),
            (action(), Reported::Failure, changed(Map::new())),
            (action(), Reported::Violation, kept()),
            (action(), Reported::Interrupted, kept()),
        ];
        for (step, reported, expected) in table {
            let name = format!("{step:?} {reported:?}");
            let after = session(3, Some(5)).after(&step, &run(5), reported);
            let after = after.map(|after| (after.state, after.revision, after.running));
            assert_eq!(after, expected, "{name}");
        }
    }

    #[test]
    fn an_action_whose_session_was_started_anew_writes_nothing() {
        let anew = session(3, Some(5))
            .after(&Step::Initial, &run(6), result(StateUpdate::Keep, true))
            .unwrap();
        assert_eq!(anew.running, None);
        assert_eq!(anew.after(&action(), &run(5), result(StateUpdate::Set(state(9)), true)), None);
    }

    #[test]
    fn contexts_of_the_editor_are_told_apart_from_those_of_production() {
        let id = "6f1b6d3e-0c1f-4a55-9a4e-2f1d8f0c9b7a";
        let longest = Context::of_settings(&"f".repeat(64));
        assert_eq!(longest.as_str().len(), 49);
        assert!(longest.is_of_editor());
        assert!(Context::of_snapshot(&id.parse().unwrap()).is_of_editor());
        assert_eq!(Context::of_version(&id.parse().unwrap()).as_str(), format!("sandbox:{id}"));
        assert!(!Context::production().is_of_editor());
        assert_eq!(" a b ".parse::<Context>().unwrap().as_str(), "a b");
        for text in ["", "  ", "a\nb", &"x".repeat(65)] {
            assert_eq!(text.parse::<Context>(), Err(NotAContext), "{text:?}");
        }
        assert!("é".repeat(64).parse::<Context>().is_ok());
    }

    #[derive(Clone, Debug)]
    enum Event {
        Begin { expected: u64 },
        End { run: u8, reported: Reported },
        Restart,
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let reported = prop_oneof![
            Just(result(StateUpdate::Set(state(2)), true)),
            Just(result(StateUpdate::Keep, false)),
            Just(Reported::Failure),
            Just(Reported::Violation),
            Just(Reported::Interrupted),
        ];
        let event = prop_oneof![
            (0u64..8).prop_map(|expected| Event::Begin { expected }),
            (0u8..20, reported).prop_map(|(run, reported)| Event::End { run, reported }),
            Just(Event::Restart),
        ];
        prop::collection::vec(event, 0..40)
    }

    proptest! {
        /// Whatever happens in whatever order: no revision is skipped or repeated, and each accepted action raises it
        /// at most once.
        #[test]
        fn the_revision_rises_by_one_with_each_write(events in events()) {
            let mut session = ToolSession::default();
            for (number, event) in (0u8..).zip(events) {
                let before = session.clone();
                match event {
                    Event::Begin { expected } => match session.begin_action(expected, run(number)) {
                        Ok(begun) => {
                            prop_assert_eq!((expected, before.running), (before.revision, None));
                            session = begun;
                            prop_assert_eq!(session.revision, before.revision);
                        }
                        Err(_) => prop_assert!(expected != before.revision || before.running.is_some()),
                    },
                    Event::End { run: ended, reported } => {
                        let was_running = before.running == Some(run(ended));
                        let after = session.after(&action(), &run(ended), reported);
                        prop_assert_eq!(after.is_some(), was_running);
                        session = after.unwrap_or(session);
                        prop_assert!(session.revision - before.revision <= 1);
                        prop_assert_eq!(session.state != before.state && session.revision == before.revision, false);
                    }
                    Event::Restart => {
                        let reported = result(StateUpdate::Keep, true);
                        session = session.after(&Step::Initial, &run(number), reported).unwrap();
                        prop_assert_eq!(session.revision, before.revision + 1);
                    }
                }
            }
        }
    }
}
