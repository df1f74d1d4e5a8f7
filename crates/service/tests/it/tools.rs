use std::io::Read as _;

use engine::tools::Upload;
use futures_util::future::join_all;
use model::tool::{
    definition::Content,
    ids::{RunId, ToolId},
    run::RunStatus,
    schema::read_settings_schema,
    session::Context,
};
use serde_json::{Map, Value, json};
use service::tools::{FilesFrom, FirstRun, RunView, StartAction, ToolName, check_schemas};

use crate::server::{Server, ada, admin, bob, broker, code, content, counter, stranger};

fn value(view: &RunView) -> Value {
    let payload: Value =
        serde_json::from_str(view.texts.payload.as_deref().unwrap_or("null")).unwrap();
    payload["outputs"][0]["value"].clone()
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn upload(name: &str) -> Upload {
    Upload { name: name.to_owned(), bytes: (*b"x").into() }
}

fn again(expected_revision: u64) -> StartAction {
    StartAction { action_id: "again".to_owned(), input: Map::new(), expected_revision }
}

#[tokio::test]
async fn a_published_tool_is_run_step_by_step() {
    let server = Server::start().await;
    let (tool, _) = server.published("counter", counter()).await;
    let inputs = object(&json!({"title": " T ", "count": "7"}));
    let first = FirstRun { inputs, files: vec![upload("a.csv")] };
    let started =
        server.service.run_tool(&ada(), ToolName::Slug(tool.slug.clone()), first).await.unwrap();
    let view = server.finished(&started).await;
    assert_eq!(
        view.run.status,
        RunStatus::Succeeded,
        "{:?} {}",
        view.run.error_summary,
        view.texts.stderr
    );
    assert_eq!(value(&view), json!([1, {"count": 7, "title": " T "}, {}, ["a.csv"]]));
    let context = Context::production();
    let session =
        server.service.session(&ada(), tool.id.clone(), context.clone()).await.unwrap().session;
    assert_eq!(session.revision, 1);
    let started = server
        .service
        .start_action(&ada(), tool.id.clone(), context.clone(), again(1))
        .await
        .unwrap();
    let view = server.finished(&started).await;
    assert_eq!(
        (value(&view), view.run.revision),
        (json!([2, {}, {}, ["a.csv", "action.json"]]), Some(2))
    );
    let late =
        server.service.start_action(&ada(), tool.id.clone(), context.clone(), again(1)).await;
    assert_eq!(code(late), r#"CONFLICT {"current_state_rev":2,"expected_state_rev":1}"#);
    // A run without files keeps those of the session.
    let first = FirstRun::default();
    let started =
        server.service.run_tool(&ada(), ToolName::Id(tool.id.clone()), first).await.unwrap();
    assert_eq!(value(&server.finished(&started).await), json!([1, {}, {}, ["a.csv"]]));
    let files =
        server.service.session_files(&ada(), tool.id.clone(), context.clone()).await.unwrap();
    assert_eq!((files.len(), files[0].name.as_str()), (1, "a.csv"));
    // Bob has a session of his own, which begins at 0.
    let session = server.service.session(&bob(), tool.id, context).await.unwrap().session;
    assert_eq!((session.revision, session.state), (0, Map::new()));
}

#[tokio::test]
async fn of_fifty_actions_at_once_one_is_accepted_and_the_others_are_told_both_revisions() {
    let server = Server::start().await;
    let (tool, version) = server.created("counter", counter()).await;
    let first = FirstRun::default();
    let started = server
        .service
        .run_draft(&ada(), version.id.clone(), None, first, FilesFrom::Nowhere)
        .await
        .unwrap();
    assert_eq!(server.finished(&started).await.run.revision, Some(1));
    let caller = ada();
    let begun = (0..50)
        .map(|_| server.service.start_draft_action(&caller, version.id.clone(), None, again(1)));
    let (accepted, refused): (Vec<_>, Vec<_>) =
        join_all(begun).await.into_iter().partition(Result::is_ok);
    assert_eq!((accepted.len(), refused.len()), (1, 49));
    for problem in refused.into_iter().map(Result::unwrap_err) {
        assert_eq!(problem.code.http_status(), 409);
        assert_eq!(problem.details["expected_state_rev"], json!(1), "{problem:?}");
        assert!(
            [json!(1), json!(2)].contains(&problem.details["current_state_rev"]),
            "{problem:?}"
        );
    }
    let view = server.finished(&accepted.into_iter().next().unwrap().unwrap()).await;
    assert_eq!(view.run.revision, Some(2));
    let session = server.service.draft_session(&ada(), version.id, None).await.unwrap();
    assert_eq!((session.tool, session.session.revision), (tool.id, 2));
}

#[tokio::test]
async fn each_draft_that_is_tried_has_a_session_of_its_own() {
    let server = Server::start().await;
    let (tool, version) = server.published("counter", counter()).await;
    let try_draft = async |files: Vec<Upload>, from| {
        let first = FirstRun { inputs: Map::new(), files };
        let draft = Some(counter());
        let started =
            server.service.run_draft(&ada(), version.id.clone(), draft, first, from).await?;
        Ok::<_, service::problem::Problem>((
            started.snapshot.clone().unwrap(),
            server.finished(&started).await,
        ))
    };
    let (first, view) = try_draft(vec![upload("a")], FilesFrom::Nowhere).await.unwrap();
    assert_eq!((value(&view)[3].clone(), view.run.snapshot.as_ref()), (json!(["a"]), Some(&first)));
    let reuse = FilesFrom::Session(Context::of_snapshot(&first));
    let (second, view) = try_draft(Vec::new(), reuse).await.unwrap();
    assert_eq!(value(&view)[3], json!(["a"]));
    assert_ne!(first, second);
    let clear = FilesFrom::Cleared(Context::of_snapshot(&first));
    let (_, view) = try_draft(Vec::new(), clear).await.unwrap();
    assert_eq!(value(&view)[3], json!([]));
    let (_, files) = server
        .service
        .draft_session_files(&ada(), version.id.clone(), Some(first.clone()))
        .await
        .unwrap();
    assert_eq!(files, []);
    // Actions of one leave the others and production alone.
    let started = server
        .service
        .start_draft_action(&ada(), version.id.clone(), Some(second.clone()), again(1))
        .await
        .unwrap();
    assert_eq!(server.finished(&started).await.run.revision, Some(2));
    let revision = async |snapshot| {
        server
            .service
            .draft_session(&ada(), version.id.clone(), snapshot)
            .await
            .map(|view| view.session.revision)
    };
    assert_eq!((revision(Some(first.clone())).await, revision(Some(second)).await), (Ok(1), Ok(2)));
    assert_eq!(code(revision(None).await), "SESSION_NOT_FOUND");
    let production =
        server.service.session(&ada(), tool.id.clone(), Context::production()).await.unwrap();
    assert_eq!(production.session.revision, 0);
    // Production cannot name a session of the editor, nor the editor one of production.
    let context = Context::of_snapshot(&first);
    assert_eq!(code(server.service.session(&ada(), tool.id, context).await), "INVALID_REQUEST");
    let wrong = try_draft(Vec::new(), FilesFrom::Session(Context::production())).await;
    assert_eq!(code(wrong), "INVALID_REQUEST");
    // A snapshot is its author's.
    let theirs = server.service.draft_session(&bob(), version.id, Some(first)).await;
    assert_eq!(code(theirs), "NOT_FOUND");
}

#[tokio::test]
async fn a_draft_is_saved_and_tried_only_on_top_of_its_head() {
    let server = Server::start().await;
    let (tool, first) = server.created("a", counter()).await;
    let name = ToolName::Id(tool.id.clone());
    let (saved, second) =
        server.service.save_draft(&bob(), name.clone(), first.id.clone(), counter()).await.unwrap();
    assert_eq!(
        (saved.draft_head.clone(), second.number, second.parent.clone()),
        (second.id.clone(), 2, Some(first.id.clone()))
    );
    let stale = server.service.save_draft(&ada(), name.clone(), first.id.clone(), counter()).await;
    let expected = json!({"expected_parent_version_id": first.id, "draft_head_id": second.id});
    assert_eq!(code(stale), format!("CONFLICT {expected}"));
    let stale = server
        .service
        .run_draft(
            &ada(),
            first.id.clone(),
            Some(counter()),
            FirstRun::default(),
            FilesFrom::Nowhere,
        )
        .await;
    assert_eq!(code(stale), format!("CONFLICT {}", json!({"draft_head_id": second.id})));
    // A version that was saved can be run as it is.
    let started = server
        .service
        .run_draft(&ada(), first.id.clone(), None, FirstRun::default(), FilesFrom::Nowhere)
        .await
        .unwrap();
    assert_eq!(server.finished(&started).await.run.version, first.id);
    let versions = server.service.versions(&ada(), name).await.unwrap();
    assert_eq!(versions.iter().map(|version| version.number).collect::<Vec<_>>(), [2, 1]);
}

#[tokio::test]
async fn what_does_not_fit_the_schema_is_refused_before_anything_runs() {
    let server = Server::start().await;
    let (tool, _) = server.published("a", counter()).await;
    let (plain, _) =
        server.published("b", content("def run_tool(i, o): return ''", &json!([]))).await;
    let refused = async |tool: &ToolId, inputs: Value, files: &[&str]| {
        let files = files.iter().map(|name| upload(name)).collect();
        let first = FirstRun { inputs: object(&inputs), files };
        let result = server.service.run_tool(&ada(), ToolName::Id(tool.clone()), first).await;
        let problem = result.unwrap_err();
        assert_eq!(problem.code.wire_name(), "INVALID_REQUEST");
        problem.message
    };
    assert_eq!(refused(&tool.id, json!({"count": "x"}), &[]).await, "count: not an integer");
    assert_eq!(
        refused(&tool.id, json!({"state": {}}), &[]).await,
        "state: there is no field of this name"
    );
    assert!(refused(&tool.id, json!({}), &["../x"]).await.contains("no slashes"));
    assert!(refused(&tool.id, json!({}), &["a", "a"]).await.contains("two files"));
    assert!(refused(&tool.id, json!({}), &["1", "2", "3", "4"]).await.contains("0 to 3 files"));
    assert!(refused(&plain.id, json!({}), &["a"]).await.contains("takes no files"));
    assert!(server.service.runs(&ada(), ToolName::Id(tool.id)).await.unwrap().is_empty());
    let nothing = Content { source_code: " ".to_owned(), ..counter() };
    let name = ToolName::Id(plain.id.clone());
    let saved = server.service.save_draft(&ada(), name, plain.draft_head.clone(), nothing).await;
    assert_eq!(code(saved), "INVALID_REQUEST");
    let issues = check_schemas(&json!([{"name": "a", "label": "A", "kind": "file"}]), &json!({}));
    assert_eq!(issues.len(), 2);
    assert!(check_schemas(&Value::Null, &json!([])).is_empty());
}

#[tokio::test]
async fn settings_belong_to_a_user_and_a_schema() {
    let server = Server::start().await;
    let fields = json!([{"name": "unit", "label": "Unit", "kind": "string"}]);
    let schema = read_settings_schema(&fields).unwrap();
    let with_settings = Content { settings_schema: Some(schema.clone()), ..counter() };
    let (tool, version) = server.published("a", with_settings).await;
    let save = async |expected, values: Value| {
        server
            .service
            .save_settings(&ada(), version.id.clone(), schema.clone(), object(&values), expected)
            .await
    };
    let settings =
        server.service.settings(&ada(), version.id.clone(), schema.clone()).await.unwrap();
    assert_eq!((settings.revision, settings.values), (0, Map::new()));
    assert_eq!(save(0, json!({"unit": "m"})).await.unwrap().revision, 1);
    assert_eq!(
        code(save(0, json!({"unit": "km"})).await),
        r#"CONFLICT {"current_state_rev":1,"expected_state_rev":0}"#
    );
    assert_eq!(code(save(1, json!({"unit": 1})).await).split(' ').next(), Some("INVALID_REQUEST"));
    let run = async |caller| {
        let name = ToolName::Id(tool.id.clone());
        let started = server.service.run_tool(&caller, name, FirstRun::default()).await.unwrap();
        value(&server.finished(&started).await)[2].clone()
    };
    assert_eq!((run(ada()).await, run(bob()).await), (json!({"unit": "m"}), json!({})));
    let other =
        read_settings_schema(&json!([{"name": "unit", "label": "Units", "kind": "string"}]))
            .unwrap();
    assert_eq!(server.service.settings(&ada(), version.id, other).await.unwrap().revision, 0);
}

#[tokio::test]
async fn what_belongs_to_others_is_not_there() {
    let server = Server::start().await;
    let (tool, version) = server.published("a", counter()).await;
    let name = ToolName::Id(tool.id.clone());
    let started = server.service.run_tool(&ada(), name.clone(), FirstRun::default()).await.unwrap();
    let run = server.finished(&started).await.run;
    let artifact = run.artifacts[0].id.clone();
    // Of another tenant, whatever the role.
    let eve = stranger();
    assert_eq!(code(server.service.tool(&eve, name.clone()).await), "NOT_FOUND");
    assert_eq!(
        code(server.service.tool(&eve, ToolName::Slug(tool.slug.clone())).await),
        "NOT_FOUND"
    );
    assert_eq!(code(server.service.version(&eve, version.id.clone()).await), "NOT_FOUND");
    assert_eq!(code(server.service.run(&eve, run.id.clone()).await), "NOT_FOUND");
    assert_eq!(code(server.service.cancel_run(&eve, run.id.clone()).await), "NOT_FOUND");
    assert_eq!(
        code(server.service.artifact(&eve, run.id.clone(), artifact.clone()).await),
        "NOT_FOUND"
    );
    assert_eq!(code(server.service.delete_tool(&eve, name.clone()).await), "NOT_FOUND");
    assert_eq!(code(server.service.publish(&eve, name.clone(), None).await), "NOT_FOUND");
    assert_eq!(
        code(
            server
                .service
                .run_draft(&eve, version.id.clone(), None, FirstRun::default(), FilesFrom::Nowhere)
                .await
        ),
        "NOT_FOUND"
    );
    assert!(server.service.list_tools(&eve).await.unwrap().is_empty());
    // Runs are their user's, and the admins'.
    assert_eq!(code(server.service.run(&bob(), run.id.clone()).await), "NOT_FOUND");
    assert_eq!(
        code(server.service.artifact(&bob(), run.id.clone(), artifact.clone()).await),
        "NOT_FOUND"
    );
    assert!(server.service.run(&admin(), run.id.clone()).await.is_ok());
    let mut opened = server.service.artifact(&ada(), run.id, artifact).await.unwrap();
    let mut text = String::new();
    opened.file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "1");
    assert_eq!(code(server.service.run(&ada(), RunId::from_random([9; 16])).await), "NOT_FOUND");
    // What is not published cannot be run in production.
    server.service.publish(&ada(), name.clone(), None).await.unwrap();
    assert_eq!(code(server.service.run_tool(&bob(), name, FirstRun::default()).await), "NOT_FOUND");
}

#[tokio::test]
async fn every_use_case_is_authorised_and_recorded_once() {
    let server = Server::start().await;
    let (tool, version) = server.published("a", counter()).await;
    assert_eq!(server.records(), ["tool.create granted", "tool.update granted"]);
    let (name, keys) = (ToolName::Id(tool.id.clone()), broker());
    assert_eq!(code(server.service.list_tools(&keys).await), "FORBIDDEN");
    assert_eq!(
        code(server.service.run_tool(&keys, name.clone(), FirstRun::default()).await),
        "FORBIDDEN"
    );
    assert_eq!(
        code(
            server
                .service
                .run_draft(&keys, version.id.clone(), None, FirstRun::default(), FilesFrom::Nowhere)
                .await
        ),
        "FORBIDDEN"
    );
    assert_eq!(code(server.service.delete_tool(&keys, name.clone()).await), "FORBIDDEN");
    let refused = ["tool.read", "tool.run", "tool.try", "tool.delete"]
        .map(|action| format!("{action} denied FORBIDDEN"));
    assert_eq!(server.records(), refused);
    let started = server.service.run_tool(&ada(), name.clone(), FirstRun::default()).await.unwrap();
    server.finished(&started).await;
    let late =
        server.service.start_action(&ada(), tool.id.clone(), Context::production(), again(7)).await;
    assert_eq!(code(late).split(' ').next(), Some("CONFLICT"));
    server.service.delete_tool(&ada(), name.clone()).await.unwrap();
    assert_eq!(code(server.service.tool(&ada(), name).await), "NOT_FOUND");
    let expected = [
        "tool.run granted",
        "tool.run denied CONFLICT",
        "tool.delete granted",
        "tool.read denied NOT_FOUND",
    ];
    assert_eq!(server.records(), expected);
}

#[tokio::test]
async fn a_use_case_goes_on_if_the_caller_goes_away() {
    let server = Server::start().await;
    let (tool, _) = server.published("a", counter()).await;
    let name = ToolName::Id(tool.id.clone());
    let caller = ada();
    {
        let begun = server.service.run_tool(&caller, name.clone(), FirstRun::default());
        let mut begun = std::pin::pin!(begun);
        // The caller asks, and does not wait for the answer.
        assert!(futures_util::poll!(begun.as_mut()).is_pending());
    }
    let mut runs = Vec::new();
    while runs.is_empty() {
        runs = server.service.runs(&caller, name.clone()).await.unwrap();
    }
    let (_, live) = server.service.follow_run(&caller, runs[0].id.clone()).await.unwrap();
    if let Some(live) = live {
        live.finished().await;
    }
    let view = server.service.run(&caller, runs[0].id.clone()).await.unwrap();
    assert_eq!(view.run.status, RunStatus::Succeeded);
}
