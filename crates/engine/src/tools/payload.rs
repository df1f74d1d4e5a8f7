//! What the runner inside gets: variables, and one payload with all files on stdin.

use model::tool::definition::Content;
use serde_json::{Map, Value, json};

use super::{NewRun, files::Upload};

/// What the interpreter runs. The modules are in the folder that `languages` puts them in.
pub(super) const CODE: &str =
    "import sys\nsys.path.insert(0, \"/run/ringfence/tools\")\nimport runner\nrunner.main()\n";

/// The kernel starts no program with a longer variable, and tools start programs.
const MAX_VARIABLE: usize = 100 * 1024;

/// The folder that a script sees. It is a link to the workspace of the slot.
const WORK: &str = "/work";

/// Returns the variables of a run.
pub(super) fn variables(
    new: &NewRun,
    files: &[Upload],
    action: Option<&str>,
) -> Vec<(String, String)> {
    let path = |name: &str| format!("{WORK}/{name}");
    let manifest: Vec<Value> = files
        .iter()
        .map(|file| json!({"name": file.name, "path": path(&format!("input/{}", file.name)), "bytes": file.bytes.len()}))
        .collect();
    let mut variables = vec![
        ("SCRIPT_PATH", path("script.py")),
        ("ENTRYPOINT", new.content.entrypoint.clone()),
        ("INPUT_DIR", path("input")),
        ("OUTPUT_DIR", path("output")),
        ("RESULT_PATH", path("result.json")),
        ("MEMORY_PATH", path("memory.json")),
        ("INPUTS", Value::Object(new.inputs.clone()).to_string()),
        ("INPUT_MANIFEST", json!({ "files": manifest }).to_string()),
    ];
    // Without an action it is empty, so that no uploaded file is taken for one.
    let action = action.unwrap_or_default();
    let fits = action.len() <= MAX_VARIABLE;
    if action.is_empty() || (fits && new.content.action_delivery.has_variable()) {
        variables.push(("ACTION", action.to_owned()));
    }
    variables.into_iter().map(|(name, value)| (format!("SKRIPTOTEKET_{name}"), value)).collect()
}

/// Says whether an action also comes as a file: it must if it is too large for a variable.
pub(super) fn needs_action_file(content: &Content, action: &str) -> bool {
    content.action_delivery.has_file() || action.len() > MAX_VARIABLE
}

/// Returns what an action run is told, as JSON.
pub(super) fn action(new: &NewRun, state: &Map<String, Value>) -> Option<String> {
    let action = new.action.as_ref()?;
    let told = json!({"action_id": action.action_id, "input": action.input, "state": state});
    Some(told.to_string())
}

/// Returns the payload: the length of a header, the header, and the bytes of the files.
pub(super) fn payload(
    content: &Content,
    settings: &Map<String, Value>,
    files: &[Upload],
) -> Vec<u8> {
    let memory = json!({ "settings": settings }).to_string();
    let own = [("script.py", content.source_code.as_bytes()), ("memory.json", memory.as_bytes())];
    let input = files.iter().map(|file| (format!("input/{}", file.name), &*file.bytes));
    let all: Vec<(String, &[u8])> =
        own.into_iter().map(|(path, bytes)| (path.to_owned(), bytes)).chain(input).collect();
    let listed: Vec<Value> =
        all.iter().map(|(path, bytes)| json!({"path": path, "bytes": bytes.len()})).collect();
    let header = json!({"entrypoint": content.entrypoint, "files": listed}).to_string();
    let length = u32::try_from(header.len()).unwrap_or(u32::MAX);
    let mut payload = length.to_be_bytes().to_vec();
    payload.extend_from_slice(header.as_bytes());
    for (_, bytes) in all {
        payload.extend_from_slice(bytes);
    }
    payload
}
