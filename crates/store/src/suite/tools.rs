//! Promises about tools.

use futures_util::future::join_all;
use model::{
    ids::Tenant,
    tool::{
        definition::{
            ActionDelivery, Content, DraftConflict, DraftSnapshot, Tool, ToolLimits, ToolVersion,
        },
        ids::{DraftSnapshotId, RunId, ToolId, VersionId},
        normalise::StateUpdate,
        run::{Artifact, RunStatus, RunTexts, ToolRun},
        schema::InputSchema,
        session::{ActionConflict, Context, Reported, Step, ToolSession},
    },
};
use serde_json::{Map, Value, json};

use super::{Place, at};
use crate::{
    Store, StoreError,
    tools::{Forget, RunFinish, SessionKey},
};

const MOST: u32 = 3;

fn tenant(name: &str) -> Tenant {
    name.parse().unwrap()
}

fn version_id(number: u8) -> VersionId {
    VersionId::from_random([number; 16])
}

fn version(tool: &ToolId, number: u8, parent: Option<u8>) -> ToolVersion {
    let content = Content {
        entrypoint: "run_tool".to_owned(),
        source_code: "print('\0\u{1F600}')".to_owned(),
        settings_schema: None,
        input_schema: InputSchema::default(),
        usage_instructions: Some("Ü".to_owned()),
        action_delivery: ActionDelivery::Both,
    };
    ToolVersion {
        id: version_id(number),
        tool: tool.clone(),
        number: 1,
        parent: parent.map(version_id),
        content,
        created_at: at(i64::from(number)),
        created_by: "human:ada".to_owned(),
    }
}

/// Returns a tool whose first version has the same number.
fn tool(number: u8, slug: &str) -> (Tool, ToolVersion) {
    let id = ToolId::from_random([number; 16]);
    let tool = Tool {
        id: id.clone(),
        tenant: tenant("default"),
        slug: slug.parse().unwrap(),
        title: "A tool".to_owned(),
        limits: ToolLimits::Default,
        draft_head: version_id(number),
        published: None,
        created_at: at(1),
        updated_at: at(1),
        created_by: "human:ada".to_owned(),
    };
    (tool, version(&id, number, None))
}

async fn create(store: &Store, number: u8, slug: &str) -> Tool {
    let (tool, version) = tool(number, slug);
    store.create_tool(tool.clone(), version, MOST).await.unwrap();
    tool
}

fn run(tool: &Tool, number: u8, step: Step) -> ToolRun {
    let (id, version) = (RunId::from_random([number; 16]), tool.draft_head.clone());
    let (user, node) = ("human:ada".to_owned(), "node-1".parse().unwrap());
    let run = ToolRun::queued(id, tool, version, user, node, at(100 + i64::from(number)));
    ToolRun { step, ..run }
}

fn action(tool: &Tool, number: u8) -> ToolRun {
    run(tool, number, Step::Action { action_id: "next".to_owned() })
}

fn key(run: &ToolRun) -> SessionKey {
    SessionKey { tool: run.tool.clone(), user: run.user.clone(), context: run.context.clone() }
}

fn state(value: &str) -> Map<String, Value> {
    Map::from_iter([("value".to_owned(), json!(value))])
}

fn finish(run: &ToolRun, value: &str) -> RunFinish {
    RunFinish {
        run: run.id.clone(),
        status: RunStatus::Succeeded,
        error_summary: None,
        artifacts: vec![Artifact {
            id: "output_a".to_owned(),
            path: "output/a\u{0}".to_owned(),
            bytes: 3,
        }],
        texts: RunTexts {
            payload: Some(r#"{"outputs":[]}"#.to_owned()),
            stdout: "a\0b\u{7}ü".to_owned(),
            stderr: String::new(),
        },
        stdout_truncated: true,
        stderr_truncated: false,
        reported: Reported::Result { state: StateUpdate::Set(state(value)), offers_actions: true },
        started_at: Some(at(500)),
        at: at(900),
    }
}

/// Runs a tool once, so that it has a session of revision 1.
async fn first_run(store: &Store, tool: &Tool, number: u8) -> ToolRun {
    let run = run(tool, number, Step::Initial);
    store.begin_run(run.clone(), None).await.unwrap().unwrap();
    store.finish_run(finish(&run, "first")).await.unwrap();
    run
}

pub(super) async fn a_tool_is_found_as_it_was_created_and_by_its_tenant_only(place: Place) {
    let store = place.open().await;
    let (first, version) = tool(1, "first");
    store.create_tool(first.clone(), version.clone(), MOST).await.unwrap();
    let second = create(&store, 2, "a-second").await;
    store.close().await;
    let store = place.open().await;
    let (ours, theirs) = (tenant("default"), tenant("other"));
    assert_eq!(store.tool(&ours, &first.id).await.unwrap(), Some(first.clone()));
    assert_eq!(store.tool_by_slug(&ours, &first.slug).await.unwrap(), Some(first.clone()));
    assert_eq!(store.tools(&ours).await.unwrap(), [second, first.clone()]);
    assert_eq!(store.tool_versions(&first.id).await.unwrap(), std::slice::from_ref(&version));
    let found = store.tool_version(&ours, &version.id).await.unwrap();
    assert_eq!(found, Some((first.clone(), version.clone())));
    assert_eq!(store.tool(&theirs, &first.id).await.unwrap(), None);
    assert_eq!(store.tool_by_slug(&theirs, &first.slug).await.unwrap(), None);
    assert_eq!(store.tools(&theirs).await.unwrap(), []);
    assert_eq!(store.tool_version(&theirs, &version.id).await.unwrap(), None);
}

pub(super) async fn a_slug_is_taken_once_in_a_tenant_and_a_tenant_has_so_many_tools(place: Place) {
    let store = place.open().await;
    let first = create(&store, 1, "a").await;
    let (again, version) = tool(2, "a");
    let refused = store.create_tool(again, version, MOST).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    let (mut elsewhere, version) = tool(3, "a");
    elsewhere.tenant = tenant("other");
    store.create_tool(elsewhere, version, MOST).await.unwrap();
    let second = create(&store, 4, "b").await;
    let renamed = store.change_tool(Tool { slug: "a".parse().unwrap(), ..second.clone() }).await;
    assert!(matches!(renamed, Err(StoreError::Conflict { .. })), "{renamed:?}");
    create(&store, 5, "c").await;
    let (more, version) = tool(6, "d");
    let refused = store.create_tool(more, version, MOST).await;
    assert!(matches!(refused, Err(StoreError::TooMany { most: MOST, .. })), "{refused:?}");
    // What was refused left nothing.
    assert_eq!(store.tool(&tenant("default"), &first.id).await.unwrap(), Some(first));
    assert_eq!(store.tools(&tenant("default")).await.unwrap().len(), 3);
}

pub(super) async fn of_many_who_save_a_draft_one_is_accepted(place: Place) {
    let stores = place.open_three().await;
    let tool = create(&stores[0], 1, "a").await;
    let saves = (2..32).map(|number| {
        let version = version(&tool.id, number, Some(1));
        stores[usize::from(number % 3)].save_draft(version_id(1), version)
    });
    let answers: Vec<_> = join_all(saves).await.into_iter().map(Result::unwrap).collect();
    let saved: Vec<&Tool> = answers.iter().flatten().collect();
    assert_eq!(saved.len(), 1);
    let head = saved[0].draft_head.clone();
    let conflict = DraftConflict { expected: version_id(1), head: head.clone() };
    assert!(answers.iter().filter(|answer| **answer == Err(conflict.clone())).count() == 29);
    let versions = stores[1].tool_versions(&tool.id).await.unwrap();
    let numbers: Vec<u32> = versions.iter().map(|version| version.number).collect();
    assert_eq!((numbers, &versions[0].id), (vec![2, 1], &head));
    // Publishing does not bring back an older head.
    let published = Tool { published: Some(version_id(1)), ..tool.clone() };
    let changed = stores[0].change_tool(published).await.unwrap();
    assert_eq!((changed.draft_head, changed.published), (head, Some(version_id(1))));
}

pub(super) async fn of_fifty_actions_of_one_revision_one_begins(place: Place) {
    let stores = place.open_three().await;
    let tool = create(&stores[0], 1, "a").await;
    first_run(&stores[0], &tool, 1).await;
    let begun = (10..60)
        .map(|number| stores[usize::from(number % 3)].begin_run(action(&tool, number), Some(1)));
    let answers: Vec<_> = join_all(begun).await.into_iter().map(Result::unwrap).collect();
    let accepted: Vec<&ToolSession> = answers.iter().flatten().collect();
    assert_eq!(accepted.len(), 1);
    let running = accepted[0].running.clone().unwrap();
    let conflict = ActionConflict::Running { expected: 1, current: 1, run: running.clone() };
    assert_eq!(answers.iter().filter(|answer| **answer == Err(conflict.clone())).count(), 49);
    // The others left no run.
    assert_eq!(stores[1].unfinished_tool_runs(&"node-1".parse().unwrap()).await.unwrap().len(), 1);
    // It ends once, with its state and one revision more.
    let number = (10..60).find(|number| RunId::from_random([*number; 16]) == running).unwrap();
    let run = action(&tool, number);
    let ends =
        (0..9).map(|number| stores[number % 3].finish_run(finish(&run, &number.to_string())));
    let ends: Vec<_> = join_all(ends).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(ends.iter().filter(|(_, changed)| *changed).count(), 1);
    assert!(ends.iter().all(|(run, _)| run.revision == Some(2)));
    let session = stores[2].tool_session(&key(&run)).await.unwrap().unwrap();
    assert_eq!((session.revision, session.running, session.latest_run), (2, None, Some(running)));
    let late = stores[0].begin_run(action(&tool, 99), Some(1)).await.unwrap();
    assert_eq!(late, Err(ActionConflict::Revision { expected: 1, current: 2 }));
}

pub(super) async fn a_run_is_kept_with_what_it_wrote(place: Place) {
    let store = place.open().await;
    let tool = create(&store, 1, "a").await;
    let run = run(&tool, 1, Step::Initial);
    store.begin_run(run.clone(), None).await.unwrap().unwrap();
    assert_eq!(store.tool_session(&key(&run)).await.unwrap(), None);
    let (started, changed) = store.start_run(run.id.clone(), at(500)).await.unwrap();
    assert_eq!(
        (started.status, started.started_at, changed),
        (RunStatus::Running, Some(at(500)), true)
    );
    let finish = finish(&run, "x");
    store.finish_run(finish.clone()).await.unwrap();
    assert!(!store.start_run(run.id.clone(), at(600)).await.unwrap().1);
    store.close().await;
    let store = place.open().await;
    let (kept, texts) = store.tool_run(&tool.tenant, &run.id).await.unwrap().unwrap();
    assert_eq!((texts, &kept.artifacts), (finish.texts, &finish.artifacts));
    let expected = ToolRun {
        status: RunStatus::Succeeded,
        finished_at: Some(at(900)),
        artifacts: finish.artifacts,
        stdout_truncated: true,
        revision: Some(1),
        ..started
    };
    assert_eq!(kept, expected);
    assert_eq!(store.tool_runs(&tool.id, "human:ada", 10).await.unwrap(), [expected]);
    assert_eq!(store.tool_runs(&tool.id, "human:bob", 10).await.unwrap(), []);
    assert_eq!(store.tool_run(&tenant("other"), &run.id).await.unwrap(), None);
    let session = ToolSession {
        state: state("x"),
        revision: 1,
        running: None,
        latest_run: Some(run.id.clone()),
    };
    assert_eq!(store.tool_session(&key(&run)).await.unwrap(), Some(session));
}

pub(super) async fn an_action_needs_a_session_and_settings_need_none(place: Place) {
    let store = place.open().await;
    let tool = create(&store, 1, "a").await;
    let run = action(&tool, 1);
    let refused = store.begin_run(run.clone(), Some(0)).await;
    assert!(matches!(refused, Err(StoreError::NotFound { what: "the session" })), "{refused:?}");
    assert_eq!(store.open_tool_session(key(&run), at(1)).await.unwrap(), ToolSession::default());
    assert!(store.begin_run(run.clone(), Some(0)).await.unwrap().is_ok());
    assert!(store.open_tool_session(key(&run), at(1)).await.unwrap().running.is_some());
    let settings = SessionKey { context: Context::of_settings("00"), ..key(&run) };
    let set =
        |expected, value| store.set_tool_state(settings.clone(), expected, state(value), at(2));
    assert_eq!(set(0, "a").await.unwrap().unwrap().revision, 1);
    assert_eq!(
        set(0, "b").await.unwrap(),
        Err(ActionConflict::Revision { expected: 0, current: 1 })
    );
    assert_eq!(set(1, "c").await.unwrap().unwrap().state, state("c"));
}

pub(super) async fn what_is_old_is_forgotten_and_a_deleted_tool_leaves_nothing(place: Place) {
    let store = place.open().await;
    let (first, second) = (create(&store, 1, "a").await, create(&store, 2, "b").await);
    let snapshot = |number: u8, created_at| DraftSnapshot {
        id: DraftSnapshotId::from_random([number; 16]),
        tool: first.id.clone(),
        version: first.draft_head.clone(),
        user: "human:ada".to_owned(),
        content: version(&first.id, 1, None).content,
        created_at: at(created_at),
    };
    let (old, new) = (snapshot(1, 10), snapshot(2, 20));
    for snapshot in [&old, &new] {
        store.add_draft_snapshot(snapshot.clone()).await.unwrap();
        let context = Context::of_snapshot(&snapshot.id);
        let key = SessionKey { tool: first.id.clone(), user: snapshot.user.clone(), context };
        store.open_tool_session(key, snapshot.created_at).await.unwrap();
    }
    let production = first_run(&store, &first, 1).await;
    let waiting = run(&first, 2, Step::Initial);
    store.begin_run(waiting.clone(), None).await.unwrap().unwrap();
    let other = first_run(&store, &second, 3).await;
    let what = Forget { snapshots_before: at(15), runs_before: at(103), limit: 10 };
    // A run that has not ended is not forgotten, however old.
    let forgotten = store.forget_tool_runs(what).await.unwrap();
    assert_eq!(forgotten, std::slice::from_ref(&production.id));
    assert_eq!(store.draft_snapshot(&old.id).await.unwrap(), None);
    assert_eq!(store.draft_snapshot(&new.id).await.unwrap(), Some(new.clone()));
    let of_editor = |snapshot: &DraftSnapshot| SessionKey {
        context: Context::of_snapshot(&snapshot.id),
        ..key(&production)
    };
    assert_eq!(store.tool_session(&of_editor(&old)).await.unwrap(), None);
    assert!(store.tool_session(&of_editor(&new)).await.unwrap().is_some());
    assert!(
        store.tool_session(&key(&production)).await.unwrap().is_some(),
        "sessions of production stay"
    );
    assert_eq!(store.delete_tool(first.id.clone()).await.unwrap(), [waiting.id]);
    assert_eq!(store.tools(&first.tenant).await.unwrap(), [second]);
    assert_eq!(store.tool_session(&key(&production)).await.unwrap(), None);
    assert!(store.tool_run(&other.tenant, &other.id).await.unwrap().is_some());
    let again = store.delete_tool(first.id.clone()).await;
    assert!(matches!(again, Err(StoreError::NotFound { .. })), "{again:?}");
    // What comes too late is refused, and spoils nothing that is written with it.
    let (late, other) = (run(&first, 9, Step::Initial), run(&tool(2, "b").0, 10, Step::Initial));
    let (session, settings) = (key(&late), key(&late));
    let written = tokio::join!(
        store.begin_run(late, None),
        store.open_tool_session(session, at(1)),
        store.set_tool_state(settings, 0, Map::new(), at(1)),
        store.begin_run(other, None),
    );
    assert!(matches!(written.0, Err(StoreError::NotFound { what: "the tool" })), "{written:?}");
    assert!(matches!(written.1, Err(StoreError::NotFound { what: "the tool" })), "{written:?}");
    assert!(matches!(written.2, Err(StoreError::NotFound { what: "the tool" })), "{written:?}");
    assert!(written.3.is_ok(), "{written:?}");
}

pub(super) async fn a_damaged_row_of_a_tool_is_told(place: Place) {
    let store = place.open().await;
    let tool = create(&store, 1, "a").await;
    let run = first_run(&store, &tool, 1).await;
    place.tamper("UPDATE tool_sessions SET body = replace(body, 'first', 'other')").await;
    let session = store.tool_session(&key(&run)).await;
    assert!(matches!(session, Err(StoreError::Damaged { .. })), "{session:?}");
    place.tamper("UPDATE tool_runs SET stdout = '\"forged\"'").await;
    let run = store.tool_run(&tool.tenant, &run.id).await;
    assert!(matches!(run, Err(StoreError::Damaged { .. })), "{run:?}");
}
