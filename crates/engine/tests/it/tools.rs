//! Runs of tools in real slots: what they get, what is kept of them, and what hostile ones cannot do.

use std::{
    collections::BTreeMap,
    env,
    io::Read as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use engine::{
    Settings,
    languages::Languages,
    tools::{
        InputFiles, LiveRun, NewAction, NewRun, Progress, ToolError, ToolSettings, Tools, Upload,
    },
};
use model::{
    admission::Capacity,
    execution::Stream,
    tool::{
        definition::{ActionDelivery, Content, Tool, ToolLimits, ToolVersion},
        ids::{RunId, ToolId, VersionId},
        run::{RunStatus, RunTexts, ToolRun},
        schema::InputSchema,
        session::{ActionConflict, Context, Step, ToolSession},
    },
    units::{ByteSize, Timestamp},
};
use serde_json::{Map, Value, json};
use store::{Store, tools::SessionKey};
use tempfile::TempDir;

use crate::node::Node;

/// A server with one tool.
struct Bench {
    tools: Tools,
    tool: Tool,
    node: Node,
    folder: TempDir,
}

impl Bench {
    async fn start() -> Self {
        Self::on(Node::start().await).await
    }

    async fn on(node: Node) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tools = open_tools(&node, folder.path()).await;
        let tool = tool();
        tools.store().create_tool(tool.clone(), version(&tool), 10).await.unwrap();
        Self { tools, tool, node, folder }
    }

    fn new_run(&self, source: &str) -> NewRun {
        let random = std::array::from_fn(|_| fastrand());
        let (id, version) = (RunId::from_random(random), self.tool.draft_head.clone());
        let (user, node) = ("human:ada".to_owned(), "node-1".parse().unwrap());
        let run = ToolRun::queued(id, &self.tool, version, user, node, Timestamp::from_millis(1));
        NewRun {
            run,
            content: content(source),
            limits: ToolLimits::Default,
            inputs: Map::new(),
            settings: Map::new(),
            files: InputFiles::Kept,
            action: None,
            timeout: Duration::from_secs(20),
        }
    }

    fn action(
        &self,
        source: &str,
        action_id: &str,
        input: &Value,
        expected_revision: u64,
    ) -> NewRun {
        let new = self.new_run(source);
        let action_id = action_id.to_owned();
        let run = ToolRun { step: Step::Action { action_id: action_id.clone() }, ..new.run };
        let input = input.as_object().unwrap().clone();
        NewRun { run, action: Some(NewAction { action_id, input, expected_revision }), ..new }
    }

    /// Runs to the end, and returns what is kept.
    async fn finish(&self, new: NewRun) -> (ToolRun, RunTexts) {
        let (_, live) = self.tools.begin(new).await.unwrap();
        let run = live.finished().await;
        self.kept(&run.id).await
    }

    async fn run(&self, source: &str) -> (ToolRun, RunTexts) {
        self.finish(self.new_run(source)).await
    }

    async fn kept(&self, run: &RunId) -> (ToolRun, RunTexts) {
        self.tools.store().tool_run(&self.tool.tenant, run).await.unwrap().unwrap()
    }

    fn key(&self) -> SessionKey {
        let user = "human:ada".to_owned();
        SessionKey { tool: self.tool.id.clone(), user, context: Context::production() }
    }

    async fn session(&self) -> Option<ToolSession> {
        self.tools.store().tool_session(&self.key()).await.unwrap()
    }
}

async fn open_tools(node: &Node, folder: &Path) -> Tools {
    let store = Store::open(&folder.join("s.db")).unwrap();
    let (name, files) = ("node-1".parse().unwrap(), folder.join("tools"));
    Tools::open(node.engine.clone(), store, name, files, ToolSettings::default()).await.unwrap()
}

fn fastrand() -> u8 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(()).to_le_bytes()[0]
}

fn tool() -> Tool {
    Tool {
        id: ToolId::from_random([1; 16]),
        tenant: "default".parse().unwrap(),
        slug: "a".parse().unwrap(),
        title: "A".to_owned(),
        limits: ToolLimits::Default,
        draft_head: VersionId::from_random([1; 16]),
        published: None,
        created_at: Timestamp::from_millis(1),
        updated_at: Timestamp::from_millis(1),
        created_by: "human:ada".to_owned(),
    }
}

fn version(tool: &Tool) -> ToolVersion {
    ToolVersion {
        id: tool.draft_head.clone(),
        tool: tool.id.clone(),
        number: 1,
        parent: None,
        content: content("x = 1"),
        created_at: Timestamp::from_millis(1),
        created_by: "human:ada".to_owned(),
    }
}

fn content(source: &str) -> Content {
    Content {
        entrypoint: "run_tool".to_owned(),
        source_code: source.to_owned(),
        settings_schema: None,
        input_schema: InputSchema::default(),
        usage_instructions: None,
        action_delivery: ActionDelivery::Both,
    }
}

fn payload(texts: &RunTexts) -> Value {
    serde_json::from_str(texts.payload.as_deref().unwrap_or("null")).unwrap()
}

/// Puts a body into the entrypoint of a tool.
fn script(body: &str) -> String {
    let body: Vec<String> = body.lines().map(|line| format!("    {line}")).collect();
    format!("import json, os, sys\ndef run_tool(input_dir, output_dir):\n{}\n", body.join("\n"))
}

#[tokio::test]
async fn a_tool_says_hello() {
    let bench = Bench::start().await;
    let (run, texts) = bench.run(&script("print('to stdout')\nreturn 'hello'")).await;
    assert_eq!(
        (run.status, run.error_summary.as_deref()),
        (RunStatus::Succeeded, None),
        "{}",
        texts.stderr
    );
    assert_eq!((texts.stdout.as_str(), texts.stderr.as_str()), ("to stdout\n", ""));
    assert_eq!(payload(&texts)["outputs"], json!([{"kind": "html_sandboxed", "html": "hello"}]));
    assert!(run.started_at <= run.finished_at && run.started_at.is_some());
    assert_eq!((bench.session().await, run.revision), (None, None), "it offers no action");
}

const WIZARD: &str = r#"
import os
from pathlib import Path
from skriptoteket_toolkit import get_action_parts, read_inputs, read_settings, list_input_files

def run_tool(input_dir, output_dir):
    action, given, state = get_action_parts()
    steps = state.get("steps", []) + [action or "start"]
    text = Path(list_input_files()[0]["path"]).read_text()
    Path(output_dir, f"step-{len(steps)}.txt").write_text(text * len(steps))
    done = action == "finish"
    return {
        "outputs": [{"kind": "json", "value": {"steps": steps, "given": given, "inputs": read_inputs(),
            "settings": read_settings(), "files": sorted(os.listdir(input_dir))}}],
        "state": {"steps": steps},
        "next_actions": [] if done else [{"action_id": "next", "label": "Next"}, {"action_id": "finish", "label": "Finish"}],
    }
"#;

#[tokio::test]
async fn steps_get_the_state_and_the_files_of_their_session() {
    let bench = Bench::start().await;
    let first = NewRun {
        inputs: json!({"title": "T"}).as_object().unwrap().clone(),
        settings: json!({"unit": "m"}).as_object().unwrap().clone(),
        files: InputFiles::Uploaded(vec![Upload {
            name: "data.csv".to_owned(),
            bytes: (*b"a,b\n").into(),
        }]),
        ..bench.new_run(WIZARD)
    };
    let (run, texts) = bench.finish(first).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?} {}", run.error_summary, texts.stderr);
    assert_eq!(run.revision, Some(1));
    let value = &payload(&texts)["outputs"][0]["value"];
    let expected = json!({"steps": ["start"], "given": {}, "inputs": {"title": "T"}, "settings": {"unit": "m"}, "files": ["data.csv"]});
    assert_eq!(*value, expected);
    let (run, texts) = bench.finish(bench.action(WIZARD, "next", &json!({"n": 1}), 1)).await;
    assert_eq!(run.revision, Some(2));
    let value = &payload(&texts)["outputs"][0]["value"];
    let expected = json!({"steps": ["start", "next"], "given": {"n": 1}, "inputs": {}, "settings": {}, "files": ["action.json", "data.csv"]});
    assert_eq!(*value, expected);
    let (run, texts) = bench.finish(bench.action(WIZARD, "finish", &json!({}), 2)).await;
    assert_eq!((run.revision, payload(&texts)["next_actions"].clone()), (Some(3), json!([])));
    let session = bench.session().await.unwrap();
    assert_eq!((session.revision, session.running), (3, None));
    assert_eq!(Value::Object(session.state), json!({"steps": ["start", "next", "finish"]}));
    let id = run.artifacts[0].id.clone();
    assert_eq!(
        (id.as_str(), run.artifacts[0].path.as_str()),
        ("output_step_3_txt", "output/step-3.txt")
    );
    let mut opened = bench.tools.open_artifact(&run, &id).await.unwrap().unwrap();
    let mut text = String::new();
    opened.file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "a,b\n".repeat(3));
    assert!(bench.tools.open_artifact(&run, "other").await.unwrap().is_none());
}

#[tokio::test]
async fn an_action_comes_the_way_that_its_version_says() {
    let bench = Bench::start().await;
    let source = script(
        "form = [{'action_id': 'a', 'label': 'A'}]\nvariable = os.environ.get('SKRIPTOTEKET_ACTION')\n\
         file = os.path.exists(input_dir + '/action.json')\n\
         return {'outputs': [{'kind': 'json', 'value': [bool(variable), file]}], 'next_actions': form}",
    );
    bench.run(&source).await;
    let ways = [
        (ActionDelivery::Both, [true, true]),
        (ActionDelivery::Variable, [true, false]),
        (ActionDelivery::File, [false, true]),
    ];
    for (revision, (delivery, expected)) in (1..).zip(ways) {
        let mut action = bench.action(&source, "a", &json!({}), revision);
        action.content.action_delivery = delivery;
        let (_, texts) = bench.finish(action).await;
        assert_eq!(payload(&texts)["outputs"][0]["value"], json!(expected), "{delivery:?}");
    }
}

#[tokio::test]
async fn of_fifty_actions_at_once_one_is_accepted() {
    let bench = Bench::start().await;
    let source =
        script("return {'state': {'n': 1}, 'next_actions': [{'action_id': 'a', 'label': 'A'}]}");
    bench.run(&source).await;
    let begun = (0..50).map(|_| bench.tools.begin(bench.action(&source, "a", &json!({}), 1)));
    let mut accepted = Vec::new();
    for begun in futures_util::future::join_all(begun).await {
        match begun {
            Ok((_, live)) => accepted.push(live),
            Err(ToolError::Conflict(
                ActionConflict::Running { expected: 1, current: 1, .. }
                | ActionConflict::Revision { expected: 1, current: 2 },
            )) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(accepted.len(), 1);
    assert_eq!(accepted[0].finished().await.revision, Some(2));
    assert_eq!(bench.session().await.unwrap().revision, 2);
}

/// Returns the events of a run as texts; output of one stream that follows itself is one.
async fn follow(live: &LiveRun, mut after: u64) -> Vec<String> {
    let mut events: Vec<String> = Vec::new();
    while let Some(event) = live.next(after).await {
        after = event.sequence;
        let (name, text) = match event.progress {
            Progress::Queued => ("queued", String::new()),
            Progress::Running => ("running", String::new()),
            Progress::Output { stream: Stream::Stdout, text } => ("out ", text),
            Progress::Output { stream: Stream::Stderr, text } => ("err ", text),
            Progress::Finished => ("finished", String::new()),
        };
        match events.last_mut() {
            Some(last) if !text.is_empty() && last.starts_with(name) => last.push_str(&text),
            Some(_) | None => events.push(format!("{name}{text}")),
        }
    }
    events
}

#[tokio::test]
async fn progress_is_told_as_it_happens_and_from_any_point() {
    let bench = Bench::start().await;
    let source = script("print('one')\nprint('two', file=sys.stderr)\nprint('three')\nreturn ''");
    let (_, live) = bench.tools.begin(bench.new_run(&source)).await.unwrap();
    let events = follow(&live, 0).await;
    assert_eq!(
        (events[..2].join(" "), events.last().unwrap().as_str()),
        ("queued running".to_owned(), "finished")
    );
    let texts: BTreeMap<&str, String> =
        events[2..events.len() - 1].iter().fold(BTreeMap::new(), |mut texts, event| {
            let (stream, text) = event.split_at(4);
            texts.entry(stream).or_default().push_str(text);
            texts
        });
    assert_eq!(
        texts,
        BTreeMap::from([("out ", "one\nthree\n".to_owned()), ("err ", "two\n".to_owned())])
    );
    assert_eq!(follow(&live, 15).await.last().unwrap(), "finished");
    // When the end is told, it is kept.
    assert_eq!(bench.kept(&live.run().id).await.0.status, RunStatus::Succeeded);
    assert!(bench.tools.follow(&live.run().id).is_none());
}

#[tokio::test]
async fn a_run_is_cancelled_and_its_session_stays() {
    let bench = Bench::start().await;
    let form = "form = {'state': {'n': 1}, 'next_actions': [{'action_id': 'a', 'label': 'A'}]}";
    bench.run(&script(&format!("{form}\nreturn form"))).await;
    let before = bench.session().await.unwrap();
    let waiting = script("print('here', flush=True)\nimport time\ntime.sleep(100)");
    let (_, live) = bench.tools.begin(bench.action(&waiting, "a", &json!({}), 1)).await.unwrap();
    assert!(matches!(live.next(2).await.unwrap().progress, Progress::Output { .. }));
    // That it runs is kept too, a moment later.
    while bench.kept(&live.run().id).await.0.status != RunStatus::Running {}
    assert!(bench.tools.cancel(&live.run().id));
    let run = live.finished().await;
    assert_eq!((run.status, run.revision), (RunStatus::Cancelled, None));
    let after = bench.session().await.unwrap();
    assert_eq!((after.revision, after.state, after.running), (before.revision, before.state, None));
    assert!(!bench.tools.cancel(&run.id));
}

#[tokio::test]
async fn a_run_whose_server_is_gone_ends_as_interrupted() {
    let bench = Bench::start().await;
    bench.run(&script("return {'next_actions': [{'action_id': 'a', 'label': 'A'}]}")).await;
    // As a server leaves it that is killed between the run and the write of its end.
    let action = bench.action("", "a", &json!({}), 1).run;
    bench.tools.store().begin_run(action.clone(), Some(1)).await.unwrap().unwrap();
    let (store, name) = (bench.tools.store().clone(), "node-1".parse().unwrap());
    let folder = bench.folder.path().join("tools");
    let next = Tools::open(bench.node.engine.clone(), store, name, folder, ToolSettings::default())
        .await
        .unwrap();
    let (run, _) = bench.kept(&action.id).await;
    assert_eq!((run.status, run.revision), (RunStatus::Failed, None));
    assert!(run.error_summary.unwrap().starts_with("The server stopped"));
    let session = bench.session().await.unwrap();
    assert_eq!((session.revision, session.running), (1, None));
    let again = bench.action(&script("return {}"), "a", &json!({}), 1);
    assert_eq!(next.begin(again).await.unwrap().1.finished().await.revision, Some(2));
}

/// A tool that does its worst, what becomes of its run, and how its summary begins.
const HOSTILE: &[(&str, &str, RunStatus, &str)] = &[
    (
        "a link in output/",
        "os.symlink('/etc/passwd', output_dir + '/x')\nreturn 'x'",
        RunStatus::Failed,
        "Execution failed (runner contract violation). output/",
    ),
    (
        "a pipe in output/",
        "os.mkfifo(output_dir + '/x')\nreturn 'x'",
        RunStatus::Failed,
        "Execution failed (runner contract violation). output/",
    ),
    (
        "output/ is a link",
        "os.rmdir(output_dir)\nos.symlink('/usr', output_dir)\nreturn 'x'",
        RunStatus::Failed,
        "Execution failed (runner contract violation). output/",
    ),
    (
        "too many artifacts",
        "for n in range(10_000): open(f'{output_dir}/{n}', 'w').close()\nreturn 'x'",
        RunStatus::Failed,
        "The tool wrote too many files",
    ),
    (
        "artifacts that are too large",
        "open(output_dir + '/x', 'w').truncate(1 << 30)\nreturn 'x'",
        RunStatus::Failed,
        "The files in output/ are too large",
    ),
    (
        "a huge result.json",
        "open('result.json', 'w').truncate(1 << 30)\nos._exit(0)",
        RunStatus::Failed,
        "Execution failed (runner contract violation). result.json has more",
    ),
    (
        "result.json is a folder",
        "os.mkdir('result.json')\nos._exit(0)",
        RunStatus::Failed,
        "Execution failed (runner contract violation). result.json is no file",
    ),
    (
        "result.json is a link",
        "os.symlink('/proc/self/environ', 'result.json')\nos._exit(0)",
        RunStatus::Failed,
        "Execution failed (runner contract violation). result.json is no file",
    ),
    (
        "no result.json",
        "os._exit(7)",
        RunStatus::Failed,
        "Execution failed (runner contract violation). result.json is missing; the process ended with exit code 7",
    ),
    (
        "a crash",
        "os.kill(os.getpid(), 11)",
        RunStatus::Failed,
        "Execution failed (runner contract violation). result.json is missing; the process was ended by signal 11",
    ),
    (
        "a result.json with NaN",
        "open('result.json', 'w').write('{\"contract_version\": 2, \"status\": \"failed\", \"error_summary\": null, \"state\": {\"a\": NaN}}')\nos._exit(0)",
        RunStatus::Failed,
        "Execution failed (runner contract violation). result.json",
    ),
    (
        "a result.json that is no UTF-8",
        "open('result.json', 'wb').write(b'{\"contract_version\": \"\\xff\"}')\nos._exit(0)",
        RunStatus::Failed,
        "Execution failed (runner contract violation). result.json",
    ),
    (
        "a deep result.json",
        "open('result.json', 'w').write('[' * 1_000_000)\nos._exit(0)",
        RunStatus::Failed,
        "Execution failed (runner contract violation). result.json",
    ),
    (
        "deep JSON",
        "value = []\nfor _ in range(900): value = [value]\nreturn {'outputs': [{'kind': 'json', 'value': value}]}",
        RunStatus::Succeeded,
        "",
    ),
    (
        "NaN in a table",
        "return {'outputs': [{'kind': 'table', 'columns': [{'key': 'a', 'label': 'A'}], 'rows': [{'a': float('nan')}]}]}",
        RunStatus::Succeeded,
        "",
    ),
    (
        "a huge table",
        "row = {str(n): 'x' * 60 for n in range(90)}\ncolumns = [{'key': key, 'label': key} for key in row]\nreturn {'outputs': [{'kind': 'table', 'columns': columns, 'rows': [row] * 900}]}",
        RunStatus::Succeeded,
        "",
    ),
    (
        "scripts in every output",
        "bad = '<script>alert(1)</script>'\nreturn {'outputs': [{'kind': 'notice', 'level': 'info', 'message': bad}, {'kind': 'markdown', 'markdown': bad}, {'kind': 'html_sandboxed', 'html': bad}, {'kind': 'json', 'title': bad, 'value': bad}]}",
        RunStatus::Succeeded,
        "",
    ),
    (
        "endless output",
        "while True: sys.stdout.write('x' * 100_000)",
        RunStatus::Failed,
        "The tool wrote too much to stdout",
    ),
    (
        "a fork bomb",
        "def bomb():\n    while True:\n        try: os.fork()\n        except OSError: pass\nbomb()",
        RunStatus::TimedOut,
        "Execution timed out.",
    ),
    ("too much memory", "x = bytearray(4 << 30)\nreturn str(len(x))", RunStatus::Failed, ""),
];

#[tokio::test]
async fn hostile_tools_are_bounded_and_reported() {
    let bench = Bench::start().await;
    for (name, body, status, summary) in HOSTILE {
        let new = NewRun { timeout: Duration::from_secs(5), ..bench.new_run(&script(body)) };
        let (run, texts) = bench.finish(new).await;
        let said = run.error_summary.clone().unwrap_or_default();
        assert_eq!(run.status, *status, "{name}: {said} {}", texts.stderr);
        assert!(said.starts_with(summary), "{name}: {said}");
        assert!(
            texts.stdout.len() <= 200_000 && texts.payload.unwrap_or_default().len() <= 256 << 10,
            "{name}"
        );
        assert!(bench.session().await.is_none(), "{name}");
    }
    // Nothing of them is left, and the next one runs.
    assert_eq!(bench.run(&script("return 'x'")).await.0.status, RunStatus::Succeeded);
}

#[tokio::test]
async fn a_run_for_which_the_queue_has_no_room_is_refused_and_leaves_its_session() {
    let capacity = Capacity { held: ByteSize::bytes(1), ..Capacity::default() };
    let languages = Languages::installed().only(&["python"]);
    let node = Node::start_with(Settings { capacity, languages, ..Settings::default() }).await;
    let bench = Bench::on(node).await;
    let refused = bench.tools.begin(bench.new_run("")).await;
    assert!(matches!(refused, Err(ToolError::Busy)), "{refused:?}");
    let key = bench.key();
    bench.tools.store().open_tool_session(key, Timestamp::from_millis(1)).await.unwrap();
    let refused = bench.tools.begin(bench.action("", "a", &json!({}), 0)).await;
    assert!(matches!(refused, Err(ToolError::Busy)), "{refused:?}");
    let session = bench.session().await.unwrap();
    assert_eq!((session.revision, session.running), (0, None));
    let runs = bench.tools.store().tool_runs(&bench.tool.id, "human:ada", 9).await.unwrap();
    assert!(runs.len() == 2 && runs.iter().all(|run| run.status == RunStatus::Failed), "{runs:?}");
}

#[tokio::test]
async fn a_run_that_takes_too_long_keeps_its_artifacts_and_output() {
    let bench = Bench::start().await;
    let body = "print('here', flush=True)\nopen(output_dir + '/x', 'w').write('abc')\nimport time\ntime.sleep(100)";
    let new = NewRun { timeout: Duration::from_secs(2), ..bench.new_run(&script(body)) };
    let (run, texts) = bench.finish(new).await;
    assert_eq!((run.status, texts.stdout.as_str()), (RunStatus::TimedOut, "here\n"));
    assert_eq!((run.artifacts[0].path.as_str(), run.artifacts[0].bytes), ("output/x", 3));
}

#[tokio::test]
async fn errors_of_a_script_are_shown_where_they_are() {
    let bench = Bench::start().await;
    for (source, summary, stderr) in [
        (
            "def run_tool(i, o):\n    retrun 1\n",
            "SyntaxError: invalid syntax (line 2, column 12)",
            "retrun 1",
        ),
        (
            "from tool_errors import ToolUserError\ndef run_tool(i, o):\n    raise ToolUserError('No file.')\n",
            "No file.",
            "ToolUserError",
        ),
        (
            "def run_tool(i, o):\n    1 / 0\n",
            "Tool execution failed (ZeroDivisionError).",
            "line 2",
        ),
        ("x = 1\n", "", "run_tool"),
    ] {
        let (run, texts) = bench.run(source).await;
        let said = run.error_summary.unwrap_or_default();
        assert_eq!(run.status, RunStatus::Failed);
        assert!(
            said.starts_with(summary) && texts.stderr.contains(stderr),
            "{said}\n{}",
            texts.stderr
        );
        assert!(!texts.stderr.contains("runner.py"), "{}", texts.stderr);
    }
}

#[tokio::test]
async fn a_deleted_tool_ends_its_runs_and_leaves_no_file() {
    let bench = Bench::start().await;
    let (run, _) = bench.run(&script("open(output_dir + '/x', 'w').close()\nreturn 'x'")).await;
    let waiting = script("print('here', flush=True)\nimport time\ntime.sleep(100)");
    let (_, live): (_, Arc<LiveRun>) = bench.tools.begin(bench.new_run(&waiting)).await.unwrap();
    live.next(2).await.unwrap();
    bench.tools.delete(bench.tool.id.clone()).await.unwrap();
    live.finished().await;
    assert!(bench.tools.open_artifact(&run, "output_x").await.unwrap().is_none());
    let left = std::fs::read_dir(bench.folder.path().join("tools/artifacts")).unwrap().count();
    assert_eq!(left, 0);
}

/// Where the server of the next test is killed, and the folder that it leaves.
const KILLED_OVER: &str = "RINGFENCE_TEST_TOOLS";

/// The other process of the tests below; does nothing by itself.
#[tokio::test]
async fn a_server_runs_a_tool_and_one_action() {
    let Ok(folder) = env::var(KILLED_OVER) else { return };
    let (node, tool) = (Node::start().await, tool());
    let tools = open_tools(&node, &PathBuf::from(folder)).await;
    tools.store().create_tool(tool.clone(), version(&tool), 10).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench { tools, tool, node, folder };
    bench.run(COUNTER).await;
    println!("first");
    let (run, _) = bench.finish(bench.action(COUNTER, "a", &json!({}), 1)).await;
    println!("second {:?} {:?}", run.status, run.revision);
}

const COUNTER: &str = "
from ringfence_tool import form, get_action_parts
def run_tool(input_dir, output_dir):
    n = get_action_parts()[2].get('n', 0) + 1
    open(output_dir + '/n', 'w').write(str(n))
    return {'state': {'n': n}, 'next_actions': [form('a', 'A')]}
";

/// Lets another process run the tool, which breaks where it is told. Returns what it said.
fn run_with(failpoint: &str, folder: &Path) -> String {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "tools::a_server_runs_a_tool_and_one_action"])
        .env("RF_FAILPOINT", failpoint)
        .env(KILLED_OVER, folder)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_server_that_is_killed_at_any_write_leaves_the_revision_or_one_more() {
    let node = Node::start().await;
    for failpoint in [
        // Between the state and the row of the run.
        "s.tool_run=kill:2",
        // Before and after the writes of a run and an action; each may be one later if the machine is slow.
        "s.pre_fsync=kill:4",
        "s.pre_fsync=kill:5",
        "s.pre_fsync=kill:6",
        "s.post_fsync_pre_ack=kill:4",
        "s.post_fsync_pre_ack=kill:5",
        "s.post_fsync_pre_ack=kill:6",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let said = run_with(failpoint, folder.path());
        let tools = open_tools(&node, folder.path()).await;
        let (store, tool) = (tools.store(), tool());
        let user = "human:ada".to_owned();
        let key = SessionKey {
            tool: tool.id.clone(),
            user: user.clone(),
            context: Context::production(),
        };
        let session = store.tool_session(&key).await.unwrap().unwrap_or_default();
        assert_eq!(session.running, None, "{failpoint}: {said}");
        let state =
            if session.revision == 0 { json!({}) } else { json!({ "n": session.revision }) };
        assert_eq!(Value::Object(session.state), state, "{failpoint}: {said}");
        if said.contains("first") {
            assert!((1..=2).contains(&session.revision), "{failpoint}: {said}");
        }
        if said.contains("second") {
            assert_eq!(session.revision, 2, "{failpoint}: {said}");
        }
        // Each run says truly what became of it.
        let runs = store.tool_runs(&tool.id, &user, 10).await.unwrap();
        let mut revisions: Vec<u64> = Vec::new();
        for run in runs {
            let (run, _) = store.tool_run(&tool.tenant, &run.id).await.unwrap().unwrap();
            match run.status {
                RunStatus::Succeeded => {
                    revisions.extend(run.revision);
                    assert!(
                        tools.open_artifact(&run, "output_n").await.unwrap().is_some(),
                        "{failpoint}"
                    );
                }
                RunStatus::Failed => {
                    assert_eq!((run.revision, run.artifacts), (None, Vec::new()), "{failpoint}");
                }
                other => panic!("{failpoint}: {other:?}"),
            }
        }
        revisions.sort_unstable();
        assert_eq!(revisions, (1..=session.revision).collect::<Vec<_>>(), "{failpoint}: {said}");
        store.close().await;
    }
}

#[test]
fn the_end_of_a_run_is_kept_when_the_store_takes_writes_again() {
    let folder = tempfile::tempdir().unwrap();
    let said = run_with("s.tool_run=error:2", folder.path());
    assert!(said.contains("second Succeeded Some(2)"), "{said}");
}
