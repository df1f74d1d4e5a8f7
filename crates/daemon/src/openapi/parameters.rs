//! Parameters of paths. Their names say what they are, so that nobody describes them anew.

use serde_json::{Value, json};

/// Returns the parameters of a path as the router has it, by their names.
pub(super) fn of_path(path: &str) -> Vec<(String, Value)> {
    path.split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next())
        .map(|name| {
            let (is_rest, name) = match name.strip_prefix('*') {
                Some(name) => (true, name),
                None => (false, name),
            };
            let (schema, about) = known(name);
            let slashes = if is_rest { " It may hold slashes." } else { "" };
            let shown = json!({
                "name": name,
                "in": "path",
                "required": true,
                "description": format!("{about}{slashes}"),
                "schema": schema,
            });
            (name.to_owned(), shown)
        })
        .collect()
}

/// Returns form and meaning of a parameter. One that is not known is told by a test.
fn known(name: &str) -> (Value, &'static str) {
    let text = json!({"type": "string", "minLength": 1});
    match name {
        "sandbox_id" => (text, "The id of a sandbox."),
        "sandbox" => (text, "The id or the alias of a sandbox of the key's tenant."),
        "session_id" => (text, "The id of a session, which is that of its binding too."),
        "thread_id" => (text, "The caller's own id of a thread."),
        "key_id" => (text, "The id of a key, which is not its secret."),
        "exec_id" => (text, "The id of a command."),
        "name" => (text, "The name or the id of a sandbox."),
        "reference" => (text, "The id of a snapshot, or its name, or its name and tag."),
        "snapshot_name" => (text, "The name of snapshots."),
        "template" => (text, "The name of a template."),
        "absent" => (text, "A name. There is nothing of it."),
        "token" => (text, "A token, or what a link ends with."),
        "stream" => (json!({"type": "string", "enum": ["stdout", "stderr"]}), "Which stream."),
        "port" => (
            json!({"type": "integer", "minimum": 1, "maximum": 65535}),
            "The port that a server in the sandbox listens on.",
        ),
        "path" => (
            json!({"type": "string", "minLength": 1, "examples": ["workspace/a"]}),
            "A path from the root of the sandbox, without its first slash.",
        ),
        "rest" => {
            (text, "The path that the server in the sandbox is asked for, without its first slash.")
        }
        _ => (text, ""),
    }
}
