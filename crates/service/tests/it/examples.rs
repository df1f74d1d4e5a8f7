//! The tools in `examples/tools`, run as a user would.

use std::{fs, path::PathBuf};

use engine::tools::Upload;
use model::tool::{
    definition::{ActionDelivery, Content},
    run::RunStatus,
    schema::{InputSchema, read_settings_schema},
    session::Context,
};
use serde_json::{Map, Value, json};
use service::tools::{FirstRun, RunView, StartAction, Started, ToolName, check_schemas};

use crate::server::{Server, ada};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/tools")
}

fn described(name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder().join(name).join("tool.json")).unwrap()).unwrap()
}

fn content(name: &str) -> Content {
    let described = described(name);
    let settings = &described["settings_schema"];
    Content {
        entrypoint: described["entrypoint"].as_str().unwrap().to_owned(),
        source_code: fs::read_to_string(folder().join(name).join("tool.py")).unwrap(),
        settings_schema: (!settings.is_null()).then(|| read_settings_schema(settings).unwrap()),
        input_schema: InputSchema::read(&described["input_schema"]).unwrap(),
        usage_instructions: described["usage_instructions"].as_str().map(str::to_owned),
        action_delivery: ActionDelivery::Both,
    }
}

/// A published example and the revision of its user's session.
struct Example {
    server: Server,
    name: ToolName,
    revision: u64,
}

impl Example {
    async fn published(name: &str) -> Self {
        let server = Server::start().await;
        let (tool, _) = server.published(name, content(name)).await;
        Self { server, name: ToolName::Id(tool.id), revision: 0 }
    }

    async fn first(&mut self, inputs: Value, files: &[(&str, &str)]) -> RunView {
        let upload = |(name, text): &(&str, &str)| Upload {
            name: (*name).to_owned(),
            bytes: text.as_bytes().into(),
        };
        let inputs = inputs.as_object().unwrap().clone();
        let first = FirstRun { inputs, files: files.iter().map(upload).collect() };
        let started = self.server.service.run_tool(&ada(), self.name.clone(), first).await.unwrap();
        self.finished(started).await
    }

    async fn action(&mut self, action_id: &str, input: Value) -> RunView {
        let ToolName::Id(tool) = self.name.clone() else { unreachable!() };
        let input: Map<String, Value> = input.as_object().unwrap().clone();
        let action = StartAction {
            action_id: action_id.to_owned(),
            input,
            expected_revision: self.revision,
        };
        let started = self
            .server
            .service
            .start_action(&ada(), tool, Context::production(), action)
            .await
            .unwrap();
        self.finished(started).await
    }

    async fn finished(&mut self, started: Started) -> RunView {
        let view = self.server.finished(&started).await;
        assert_eq!(
            view.run.status,
            RunStatus::Succeeded,
            "{:?}\n{}",
            view.run.error_summary,
            view.texts.stderr
        );
        self.revision = view.run.revision.unwrap_or(self.revision);
        view
    }
}

fn payload(view: &RunView) -> Value {
    serde_json::from_str(view.texts.payload.as_deref().unwrap()).unwrap()
}

fn paths(view: &RunView) -> Vec<&str> {
    view.run.artifacts.iter().map(|artifact| artifact.path.as_str()).collect()
}

#[test]
fn examples_have_good_schemas_and_are_in_the_list() {
    let list = fs::read_to_string(folder().join("README.md")).unwrap();
    let mut found = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_type().unwrap().is_dir() {
            continue;
        }
        found += 1;
        let name = entry.file_name().into_string().unwrap();
        let described = described(&name);
        assert_eq!(described["slug"], json!(name));
        assert!(list.contains(&format!("[{name}]({name}/tool.py)")), "{name}");
        assert_eq!(check_schemas(&described["settings_schema"], &described["input_schema"]), []);
        assert_eq!(content(&name).check(), Ok(()));
    }
    assert_eq!(found, 3);
}

#[tokio::test]
async fn the_csv_wizard_counts_and_draws_a_column() {
    let mut example = Example::published("csv-wizard").await;
    let view = example.first(json!({}), &[("data.csv", "city,year\nUlm,1\n<b>,2\nUlm,3\n")]).await;
    let shown = payload(&view);
    assert_eq!(shown["outputs"][0]["markdown"], json!("The file has **3 rows** and 2 columns."));
    assert_eq!(
        shown["next_actions"][0]["fields"][0]["options"][0],
        json!({"value": "city", "label": "city"})
    );
    let shown = payload(&example.action("choose", json!({"column": "none"})).await);
    assert_eq!(shown["outputs"][0]["message"], json!("Choose a column first."));
    let shown = payload(&example.action("choose", json!({"column": "city"})).await);
    assert_eq!(
        shown["outputs"][0]["rows"],
        json!([{"value": "Ulm", "count": 2}, {"value": "<b>", "count": 1}])
    );
    let draw = &shown["next_actions"][1];
    assert_eq!((&draw["action_id"], &draw["prefill"]), (&json!("draw"), &json!({"bars": 2})));
    let view = example.action("draw", json!({"bars": 2})).await;
    assert_eq!(paths(&view), ["output/chart.svg", "output/counts.csv"]);
    assert!(payload(&view)["outputs"][0]["html"].as_str().unwrap().contains("&lt;b&gt;"));
    assert_eq!(example.revision, 4);
}

#[tokio::test]
async fn the_invitation_says_what_is_wrong_and_keeps_what_was_written() {
    let mut example = Example::published("invitation").await;
    example.first(json!({}), &[]).await;
    let shown = payload(
        &example
            .action("write", json!({"title": "Party", "date": "soon", "guests": 3, "topics": []}))
            .await,
    );
    let messages: Vec<&str> = shown["outputs"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|output| output["message"].as_str())
        .collect();
    assert_eq!(
        messages,
        ["The date is not of the form 2027-03-31.", "Choose at least one thing that happens."]
    );
    assert_eq!(
        shown["next_actions"][0]["prefill"],
        json!({"title": "Party", "date": "soon", "guests": 3, "topics": []})
    );
    let good = json!({"title": "Party", "date": "2999-12-31", "guests": 3, "topics": ["dinner"], "plus_one": true});
    let view = example.action("write", good).await;
    let text = "# Party\n\nOn **2999-12-31**: a dinner. 3 guests. You may bring a friend.\n";
    assert_eq!(
        (payload(&view)["outputs"][0]["markdown"].clone(), paths(&view)),
        (json!(text), vec!["output/invitation.md"])
    );
}

#[tokio::test]
async fn the_word_count_says_how_far_it_is() {
    let mut example = Example::published("word-count").await;
    let files = [("a.txt", "the cat and the dog\n"), ("b.md", "A dog!\n")];
    let view = example.first(json!({"least": "2"}), &files).await;
    assert_eq!(view.texts.stdout, "[1/2] a.txt: 20 bytes\n[2/2] b.md: 7 bytes\n");
    let shown = payload(&view);
    assert_eq!(shown["outputs"][0]["markdown"], json!("**6 words**, 4 different, in 2 files."));
    assert_eq!(shown["outputs"][1]["rows"][0], json!({"word": "the", "count": 2}));
    assert_eq!((paths(&view), view.run.revision), (vec!["output/words.csv"], None));
}
