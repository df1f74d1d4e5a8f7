//! Every promise of the store once, run for each backend.

mod audit;
mod database;
mod keys;
mod kinds;
mod sandboxes;
mod server;
pub(crate) mod sessions;
mod snapshots;
mod together;
mod tokens;
mod tools;

use std::{panic::AssertUnwindSafe, path::PathBuf, sync::Arc};

use futures_util::{FutureExt as _, future::BoxFuture};
use model::{
    sandbox::{Request, Sandbox},
    spec::SandboxSpec,
    transition::{Answer, Creation, Observation},
    units::Timestamp,
};

use crate::Store;

/// Where a store of one promise is, so that it can be opened again, and its rows be tampered with.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Sqlite { path: PathBuf, _directory: Arc<tempfile::TempDir> },
    Postgres { address: String },
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self::Sqlite { path: directory.path().join("s.db"), _directory: Arc::new(directory) }
    }

    /// Returns the file or the address, for another process.
    pub(crate) fn address(&self) -> &str {
        match self {
            Self::Sqlite { path, .. } => path.to_str().unwrap(),
            Self::Postgres { address } => address,
        }
    }

    /// Opens the store, once more if it is open.
    pub(crate) async fn open(&self) -> Store {
        match self {
            Self::Sqlite { path, .. } => Store::open(path).unwrap(),
            Self::Postgres { address } => Store::connect(address).await.unwrap(),
        }
    }

    /// Opens handles that work on the store at the same time, as many as the backend allows.
    async fn open_three(&self) -> [Store; 3] {
        match self {
            Self::Sqlite { .. } => {
                let store = self.open().await;
                [store.clone(), store.clone(), store]
            }
            Self::Postgres { .. } => [self.open().await, self.open().await, self.open().await],
        }
    }

    /// Changes rows behind the store's back.
    async fn tamper(&self, sql: &str) {
        match self {
            Self::Sqlite { path, .. } => {
                let connection = rusqlite::Connection::open(path).unwrap();
                connection.execute_batch(sql).unwrap();
            }
            Self::Postgres { address } => server::run(address, sql).await,
        }
    }
}

type Promise = fn(Place) -> BoxFuture<'static, ()>;

/// Names every promise once. SQLite keeps each as a test of its own; for PostgreSQL, whose server
/// takes a second to start, they are a table that one test goes through.
macro_rules! promises {
    ($($module:ident: $($promise:ident),+;)+) => {
        mod sqlite {
            $($(#[tokio::test]
            async fn $promise() {
                super::$module::$promise(super::Place::sqlite()).await;
            })+)+
        }

        const PROMISES: &[(&str, Promise)] = &[
            $($((stringify!($promise), |place| Box::pin($module::$promise(place)))),+),+
        ];
    };
}

promises! {
    audit: records_are_chained_in_the_order_they_were_answered,
        what_is_done_is_recorded_with_it_or_not_at_all,
        what_is_kept_on_a_condition_is_kept_if_it_is_met,
        all_who_write_make_one_chain,
        a_record_that_was_changed_is_told,
        a_log_that_cannot_be_written_refuses_what_is_recorded_alone,
        a_killed_process_leaves_a_whole_chain;
    keys: a_key_is_found_as_it_was_created,
        a_key_is_created_once,
        keys_are_listed_oldest_first,
        a_key_is_revoked_once_and_stays_revoked,
        what_was_answered_is_there_after_reopening,
        a_closed_store_says_so,
        many_callers_at_once_all_get_their_answer;
    kinds: an_event_of_any_kind_that_cannot_be_appended_changes_nothing;
    sandboxes: a_sandbox_is_found_as_it_was_created_and_by_its_tenant_only,
        an_id_is_given_once_and_an_alias_to_one_sandbox_at_a_time,
        a_name_is_free_again_once_its_sandbox_is_deleted,
        variables_of_a_command_go_with_its_end_and_the_rest_with_its_sandbox,
        a_step_keeps_state_events_and_execs_together,
        a_step_that_came_too_late_gets_the_current_record_and_leaves_nothing,
        an_exec_id_is_used_once_in_a_tenant,
        a_subscriber_can_go_on_from_every_event,
        events_out_of_range_are_refused_with_the_bounds,
        sandboxes_are_listed_newest_first_by_pages,
        what_has_not_ended_on_a_node_is_found_again,
        what_runs_is_listed_until_it_ends,
        a_purged_sandbox_is_gone_but_its_ids_stay_taken,
        a_damaged_row_is_told_and_hides_no_other,
        labels_and_texts_of_every_kind_are_kept;
    sessions: a_session_is_found_by_its_name_its_scope_and_its_sandbox,
        a_scope_has_one_session_and_the_next_has_a_higher_generation,
        a_step_of_a_session_that_came_too_late_leaves_nothing,
        a_sandbox_has_one_session,
        the_key_of_a_request_is_used_once_until_it_expires,
        a_grant_is_recorded_with_the_session_that_it_is_for_or_not_at_all,
        racing_callers_give_a_scope_one_session,
        racing_changes_of_a_scope_follow_each_other,
        sessions_are_forgotten_with_their_sandbox;
    snapshots: a_snapshot_is_found_by_its_id_its_name_and_its_tags_in_its_tenant_alone,
        a_tag_moves_to_the_newest_unless_it_must_be_free,
        a_snapshot_is_settled_once,
        a_tenant_has_no_more_snapshots_than_it_may,
        a_damaged_snapshot_is_told,
        a_former_name_is_free_when_its_sandbox_is_deleted_and_not_before,
        an_adjusted_sandbox_is_found_as_it_is_now;
    together: a_watcher_is_waked_when_there_is_something_to_read,
        a_watcher_never_reads_a_state_older_than_an_event,
        forgetting_never_makes_a_hole,
        racing_writers_leave_no_gap_and_lose_nothing,
        lives_by_chance_are_kept_as_they_were_lived,
        a_refused_command_spoils_no_other,
        two_creators_of_one_alias_give_one_sandbox,
        a_closed_store_ends_its_watches;
    tokens: the_epoch_of_a_key_is_raised_and_stays,
        ends_of_tokens_are_kept_until_they_are_over,
        nothing_that_ended_comes_back,
        an_opaque_token_is_found_by_its_hash_until_its_end,
        what_happens_to_tokens_reaches_everybody,
        that_a_key_is_revoked_reaches_those_who_follow_tokens;
    tools: a_tool_is_found_as_it_was_created_and_by_its_tenant_only,
        a_slug_is_taken_once_in_a_tenant_and_a_tenant_has_so_many_tools,
        of_many_who_save_a_draft_one_is_accepted,
        of_fifty_actions_of_one_revision_one_begins,
        a_run_is_kept_with_what_it_wrote,
        an_action_needs_a_session_and_settings_need_none,
        what_is_old_is_forgotten_and_a_deleted_tool_leaves_nothing,
        a_damaged_row_of_a_tool_is_told;
}

/// What only a database that daemons share has to keep.
const SHARED: &[(&str, Promise)] = &[
    ("a_schema_from_the_future_is_refused_and_left_alone", |place| {
        Box::pin(database::a_schema_from_the_future_is_refused_and_left_alone(place))
    }),
    ("broken_connections_are_made_anew_and_nothing_is_missed", |place| {
        Box::pin(database::broken_connections_are_made_anew_and_nothing_is_missed(place))
    }),
    ("what_was_answered_is_kept_whenever_the_process_is_killed", |place| {
        Box::pin(database::what_was_answered_is_kept_whenever_the_process_is_killed(place))
    }),
    ("a_commit_whose_answer_is_lost_is_found_out", |place| {
        Box::pin(database::a_commit_whose_answer_is_lost_is_found_out(place))
    }),
    ("a_step_that_cannot_be_appended_is_refused_and_no_other", |place| {
        Box::pin(database::a_step_that_cannot_be_appended_is_refused_and_no_other(place))
    }),
    ("the_password_of_a_database_is_told_nobody", |place| {
        Box::pin(database::the_password_of_a_database_is_told_nobody(place))
    }),
    ("daemons_that_start_together_find_one_schema", |place| {
        Box::pin(database::daemons_that_start_together_find_one_schema(place))
    }),
];

#[tokio::test]
async fn postgres_keeps_every_promise() {
    let server = server::Server::start();
    let mut broken = Vec::new();
    for (name, promise) in PROMISES.iter().chain(SHARED) {
        let place = Place::Postgres { address: server.database(name).await };
        if AssertUnwindSafe(promise(place)).catch_unwind().await.is_err() {
            broken.push(name);
        }
    }
    assert_eq!(broken, Vec::<&&str>::new(), "what broke each is told above");
}

/// Callers are tasks that move between threads.
#[test]
fn every_call_can_move_between_threads() {
    fn check<T: Send>(_call: T) {}
    let _ = |store: &Store, sandbox: &Sandbox, filter: crate::sandboxes::Filter| {
        let first = model::event::Sequence::ZERO;
        check(store.sandbox(&sandbox.id));
        check(store.find_sandbox(&sandbox.tenant, ""));
        check(store.sandboxes(filter));
        check(store.unfinished_sandboxes(&sandbox.node));
        check(store.events(&sandbox.id, first, 1));
        check(store.running_execs(&sandbox.tenant, None));
        check(store.trim_events(&sandbox.id, first));
        check(store.keys());
        check(store.rotate_key(&sandbox.id));
        check(store.snapshots(&sandbox.tenant));
        check(store.ready_snapshots());
        check(store.standing(&sandbox.id));
        check(store.standings());
        check(store.tools(&sandbox.tenant));
        check(store.close());
        check(Store::connect(""));
    };
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Returns the creation of a sandbox that differs from those of other numbers.
pub(crate) fn creation(number: u32) -> (Creation, Sandbox) {
    creation_with(number, |_spec| {})
}

pub(crate) fn creation_with(
    number: u32,
    spec: impl FnOnce(&mut SandboxSpec),
) -> (Creation, Sandbox) {
    let mut random = [0; 16];
    random[12..].copy_from_slice(&number.to_be_bytes());
    let mut wanted = SandboxSpec { image: "host".into(), ..SandboxSpec::default() };
    wanted.labels.insert("number".into(), number.to_string());
    wanted.env.insert("TOKEN".into(), "secret".into());
    spec(&mut wanted);
    let creation = Creation::new(
        model::ids::SandboxId::from_random(random),
        "default".parse().unwrap(),
        Some(format!("alias-{number}").parse().unwrap()),
        "node-1".parse().unwrap(),
        wanted,
        at(1000 + i64::from(number)),
    );
    let sandbox = creation.sandbox().clone();
    (creation, sandbox)
}

pub(crate) async fn create(store: &Store, number: u32) -> Sandbox {
    let (creation, sandbox) = creation(number);
    store.create_sandbox(creation).await.unwrap();
    sandbox
}

/// Keeps what was seen, and returns the sandbox after it.
pub(crate) async fn advance(store: &Store, sandbox: &Sandbox, seen: Observation) -> Sandbox {
    let transition = sandbox.observe(seen, at(5000)).expect("it is news");
    store.change_sandbox(transition.clone()).await.unwrap();
    sandbox.clone().after(&transition)
}

/// Keeps a request, and returns the sandbox after it.
pub(crate) async fn ask(store: &Store, sandbox: &Sandbox, request: Request) -> Sandbox {
    let Ok(Answer::Record(transition)) = sandbox.request(request, at(5000)) else {
        panic!("it is not accepted");
    };
    store.change_sandbox((*transition).clone()).await.unwrap();
    sandbox.clone().after(&transition)
}

/// Deletes a sandbox.
pub(crate) async fn end(store: &Store, sandbox: Sandbox) -> Sandbox {
    let deleting = ask(store, &sandbox, Request::Delete(model::life::EndCause::Requested)).await;
    advance(store, &deleting, Observation::Deleted).await
}
