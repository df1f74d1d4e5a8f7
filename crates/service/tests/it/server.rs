//! A server with tools, and callers of two tenants.

use std::sync::{Arc, Mutex};

use engine::{
    Engine, Settings,
    languages::Languages,
    tasks::Tasks,
    tools::{ToolSettings, Tools},
};
use harness::{SpawnerProcess, start_spawner};
use model::{
    actor::{Actor, ActorKind},
    audit::Entry,
    tool::{
        definition::{ActionDelivery, Content, Tool, ToolVersion},
        schema::InputSchema,
    },
    units::Timestamp,
};
use serde_json::{Value, json};
use service::{
    principal::Principal,
    problem::Problem,
    tools::{Journal, NewTool, RunView, Started, ToolName, ToolService},
};
use store::{Store, keys::Role};
use tempfile::TempDir;

pub(crate) struct Server {
    pub(crate) service: ToolService,
    pub(crate) store: Store,
    records: Arc<Mutex<Vec<Entry>>>,
    engine: Engine,
    spawner: SpawnerProcess,
    _folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.engine.close();
        let end = self.spawner.wait();
        assert!(end.is_ok() || std::thread::panicking(), "spawner: {end:?}");
    }
}

/// The clock of these tests, whose snapshots expire a day after it.
pub(crate) static NOW: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(1_000_000);

fn now() -> Timestamp {
    Timestamp::from_millis(NOW.load(std::sync::atomic::Ordering::Relaxed))
}

impl Server {
    pub(crate) async fn start() -> Self {
        let (socket, spawner) = start_spawner().unwrap();
        let languages = Languages::installed().only(&["python"]);
        let settings = Settings { languages, ..Settings::default() };
        let engine = Engine::start(settings, socket.into_fd()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("s.db")).unwrap();
        let files = folder.path().join("tools");
        let node = "node-1".parse().unwrap();
        let tools =
            Tools::open(engine.clone(), store.clone(), node, files, ToolSettings::default())
                .await
                .unwrap();
        let records = Arc::<Mutex<Vec<Entry>>>::default();
        let kept = Arc::clone(&records);
        let journal = Journal::new(move |entry| kept.lock().unwrap().push(entry), now);
        let service = ToolService::new(tools, Tasks::default(), journal);
        Self { service, store, records, engine, spawner, _folder: folder }
    }

    /// Creates a tool with this source and publishes it.
    pub(crate) async fn published(&self, slug: &str, content: Content) -> (Tool, ToolVersion) {
        let (tool, version) = self.created(slug, content).await;
        let name = ToolName::Id(tool.id.clone());
        let tool = self.service.publish(&ada(), name, Some(version.id.clone())).await.unwrap();
        (tool, version)
    }

    pub(crate) async fn created(&self, slug: &str, content: Content) -> (Tool, ToolVersion) {
        let new = NewTool { slug: slug.parse().unwrap(), title: "A tool".to_owned(), content };
        self.service.create_tool(&ada(), new).await.unwrap()
    }

    /// Returns a run once it has ended.
    pub(crate) async fn finished(&self, started: &Started) -> RunView {
        let run = started.live.finished().await;
        let (run, texts) = self.store.tool_run(&run.tenant, &run.id).await.unwrap().unwrap();
        RunView { run, texts }
    }

    /// Returns what was recorded since the last call: action, outcome and reason.
    pub(crate) fn records(&self) -> Vec<String> {
        let entries = std::mem::take(&mut *self.records.lock().unwrap());
        let line = |entry: Entry| {
            let reason = entry.reason.map(|reason| format!(" {reason}")).unwrap_or_default();
            assert!(entry.actor.is_some() && entry.tenant.is_some() && entry.key.is_some());
            format!("{} {}{reason}", entry.action.name(), entry.outcome.name())
        };
        entries.into_iter().map(line).collect()
    }
}

fn principal(tenant: &str, name: &str, role: Role) -> Principal {
    Principal {
        tenant: tenant.parse().unwrap(),
        actor: Actor { kind: ActorKind::Human, id: name.to_owned() },
        key: Some(format!("key_{name}")),
        role,
        request: Some("req_1".to_owned()),
    }
}

pub(crate) fn ada() -> Principal {
    principal("default", "ada", Role::User)
}

pub(crate) fn bob() -> Principal {
    principal("default", "bob", Role::User)
}

pub(crate) fn admin() -> Principal {
    principal("default", "root", Role::Admin)
}

pub(crate) fn broker() -> Principal {
    principal("default", "broker", Role::Broker)
}

pub(crate) fn stranger() -> Principal {
    principal("other", "eve", Role::Admin)
}

pub(crate) fn content(source: &str, input_schema: &Value) -> Content {
    Content {
        entrypoint: "run_tool".to_owned(),
        source_code: source.to_owned(),
        settings_schema: None,
        input_schema: InputSchema::read(input_schema).unwrap(),
        usage_instructions: None,
        action_delivery: ActionDelivery::Both,
    }
}

/// A tool that counts its steps, and offers another.
pub(crate) fn counter() -> Content {
    let source = "
from skriptoteket_toolkit import get_action_parts, read_inputs, read_settings, list_input_files
def run_tool(input_dir, output_dir):
    action, given, state = get_action_parts()
    n = state.get('n', 0) + 1
    open(output_dir + '/n.txt', 'w').write(str(n))
    value = [n, read_inputs(), read_settings(), [file['name'] for file in list_input_files()]]
    return {'outputs': [{'kind': 'json', 'value': value}], 'state': {'n': n},
            'next_actions': [{'action_id': 'again', 'label': 'Again'}]}
";
    let schema = json!([
        {"name": "title", "label": "Title", "kind": "string"},
        {"name": "count", "label": "Count", "kind": "integer"},
        {"name": "files", "label": "Files", "kind": "file", "max": 3},
    ]);
    content(source, &schema)
}

/// Returns the code of a problem with what the table of the editor needs.
pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, Problem>) -> String {
    let problem = result.unwrap_err();
    let details = if problem.details.is_empty() {
        String::new()
    } else {
        format!(" {}", json!(problem.details))
    };
    format!("{}{details}", problem.code.wire_name())
}
