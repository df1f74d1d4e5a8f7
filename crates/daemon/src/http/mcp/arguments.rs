//! What tools are called with. The schemas that clients are shown are made of these, comments and all, and
//! what comes is held against them.

use std::collections::BTreeMap;

use api::errors::ErrorCode;
use rmcp::model::JsonObject;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::http::problem::ApiError;

/// A session of a scope.
#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Acquire {
    /// The conversation that the sandbox is for. The same id gets the same sandbox. Give this or scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thread_id: Option<String>,
    /// What the sandbox is for, if not a thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scope: Option<Scope>,
    /// ensure (the default) takes the sandbox that is there or makes one; get and `attach_only` make none;
    /// `create_only` takes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<Mode>,
    /// What a new sandbox is made of, such as host; without it, what the operator has set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image: Option<String>,
    /// On whose behalf, if the key may act for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) actor: Option<Actor>,
    /// What the token is to be good for: `fs:ro`, `fs:rw`, process, shell, `shell:ro`, ports, snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) requested_capabilities: Option<Vec<String>>,
    /// A sandbox to take, if it can be had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sandbox_hint: Option<String>,
    /// How many seconds to wait for a new sandbox (default 10).
    #[schemars(range(min = 0, max = 60))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wait_seconds: Option<u64>,
    /// Whether `structuredContent` is to have the token. The other tools need none.
    #[serde(skip_serializing)]
    pub(super) include_token: bool,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Scope {
    #[serde(rename = "type")]
    kind: ScopeKind,
    id: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ScopeKind {
    Thread,
    Workspace,
    Assistant,
    Deployment,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    Ensure,
    Get,
    AttachOnly,
    CreateOnly,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Actor {
    #[serde(rename = "type")]
    kind: ActorKind,
    id: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ActorKind {
    Human,
    Agent,
}

/// A session, and nothing more.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Session {
    /// From `environment_acquire`.
    pub(super) session_id: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Refresh {
    /// From `environment_acquire`.
    pub(super) session_id: String,
    /// The token so far, if the next is to be what it is; it ends a minute later.
    pub(super) current_token: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunCode {
    /// python, javascript, shell or elixir, as far as the server has them, and those of its configuration.
    pub(super) language: String,
    /// The whole program. Nothing of an earlier one is there.
    pub(super) code: String,
    /// What it reads from standard input.
    pub(super) stdin: Option<String>,
    /// Environment variables.
    pub(super) env: Option<BTreeMap<String, String>>,
    /// Timeout in seconds (default 30); the program is killed after it.
    #[schemars(range(min = 1, max = 600))]
    pub(super) timeout_seconds: Option<u64>,
    /// Memory limit in MiB (default 256).
    #[schemars(range(min = 1))]
    pub(super) memory_mb: Option<u64>,
    /// How many bytes of each stream are returned (default 32768); the middle is left out of longer ones.
    #[schemars(range(min = 256, max = 262_144))]
    pub(super) max_output_bytes: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Exec {
    /// From `environment_acquire`; not needed with a sandbox token.
    pub(super) session_id: Option<String>,
    /// The command line, run by /bin/sh.
    pub(super) command: String,
    /// Working directory, an absolute path (default /workspace).
    pub(super) cwd: Option<String>,
    /// Environment variables besides the usual ones.
    pub(super) env: Option<BTreeMap<String, String>>,
    /// What it reads from standard input.
    pub(super) stdin: Option<String>,
    /// Timeout in seconds (default 60); the command is killed after it.
    #[schemars(range(min = 1, max = 600))]
    pub(super) timeout_seconds: Option<u64>,
    /// How many bytes of each stream are returned (default 32768); the middle is left out of longer ones.
    #[schemars(range(min = 256, max = 262_144))]
    pub(super) max_output_bytes: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Read {
    /// From `environment_acquire`; not needed with a sandbox token.
    pub(super) session_id: Option<String>,
    /// Absolute, or relative to /workspace.
    pub(super) path: String,
    /// The first line to show, from 1.
    #[schemars(range(min = 1))]
    pub(super) first_line: Option<u64>,
    /// How many lines to return (default 2000).
    #[schemars(range(min = 1, max = 10_000))]
    pub(super) lines: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Write {
    /// From `environment_acquire`; not needed with a sandbox token.
    pub(super) session_id: Option<String>,
    /// Absolute, or relative to /workspace. Missing directories are created.
    pub(super) path: String,
    /// The whole content of the file.
    pub(super) content: String,
    /// How content is encoded (default text); base64 for binary files.
    pub(super) encoding: Option<Encoding>,
    /// The version that is to be replaced, as read and write tell it; without it, whatever is there.
    pub(super) if_match: Option<String>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Encoding {
    Text,
    Base64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    /// From `environment_acquire`; not needed with a sandbox token.
    pub(super) session_id: Option<String>,
    /// Absolute, or relative to /workspace.
    pub(super) path: String,
    /// The text to replace, exactly as it stands there. It must be there once, unless `replace_all` is true.
    pub(super) old_string: String,
    /// What takes its place.
    pub(super) new_string: String,
    /// Whether it is replaced wherever it is.
    pub(super) replace_all: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    /// From `environment_acquire`; not needed with a sandbox token.
    pub(super) session_id: Option<String>,
    /// A directory: absolute, or relative to /workspace (default /workspace).
    pub(super) path: Option<String>,
    /// How many entries to return (default 200).
    #[schemars(range(min = 1, max = 1000))]
    pub(super) limit: Option<u32>,
    /// Where to continue: `next_cursor` of the previous answer.
    pub(super) cursor: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Glob {
    /// From `environment_acquire`; not needed with a sandbox token.
    pub(super) session_id: Option<String>,
    /// For example **/*.py. There are * ? [ ] {a,b}, and ** for any number of directories.
    pub(super) pattern: String,
    /// Directory to search: absolute, or relative to /workspace (default /workspace).
    pub(super) path: Option<String>,
    /// How many paths to return (default 200).
    #[schemars(range(min = 1, max = 1000))]
    pub(super) limit: Option<u32>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Grep {
    /// From `environment_acquire`; not needed with a sandbox token.
    pub(super) session_id: Option<String>,
    /// The literal text to find; not a regular expression.
    pub(super) pattern: String,
    /// Directory to search: absolute, or relative to /workspace (default /workspace).
    pub(super) path: Option<String>,
    /// Which files to search, for example *.py (default: all).
    pub(super) glob: Option<String>,
    /// How many lines to return (default 100).
    #[schemars(range(min = 1, max = 500))]
    pub(super) limit: Option<u32>,
}

/// Returns the schema of arguments, with no more in it than a client needs.
pub(super) fn schema<T: JsonSchema>() -> JsonObject {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = settings.into_generator().into_root_schema_for::<T>();
    match tidy(schema.to_value()) {
        Value::Object(mut schema) => {
            schema.remove("description");
            schema
        }
        _ => JsonObject::new(),
    }
}

/// Leaves out what only our own types say: that something left out is null, and how wide a number is.
fn tidy(value: Value) -> Value {
    match value {
        Value::Array(values) => Value::Array(values.into_iter().map(tidy).collect()),
        Value::Object(mut fields) => {
            if let Some(Value::Array(kinds)) = fields.get_mut("type") {
                kinds.retain(|kind| kind != "null");
                if let [kind] = kinds.as_slice() {
                    let kind = kind.clone();
                    fields.insert("type".to_owned(), kind);
                }
            }
            if let Some(Value::Array(mut choices)) = fields.remove("anyOf") {
                choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
                for choice in choices {
                    if let Value::Object(choice) = choice {
                        fields.extend(choice);
                    }
                }
            }
            if let Some(Value::Array(choices)) = fields.get_mut("enum") {
                choices.retain(|choice| !choice.is_null());
            }
            fields.retain(|name, value| {
                !matches!(name.as_str(), "title" | "format")
                    && !(name == "default" && (value.is_null() || *value == Value::Bool(false)))
            });
            let tidied = fields.into_iter().map(|(name, value)| match name.as_str() {
                "description" => (name, plain(value)),
                _ => (name, tidy(value)),
            });
            Value::Object(tidied.collect())
        }
        other => other,
    }
}

/// A comment has signs that are for whoever reads the code.
fn plain(text: Value) -> Value {
    match text {
        Value::String(text) => Value::String(text.replace('`', "").replace('\n', " ")),
        other => other,
    }
}

/// Reads arguments that fit their schema. A refusal says where, and never repeats what was sent.
pub(super) fn read<T: DeserializeOwned>(
    schema: &JsonObject,
    mut arguments: Map<String, Value>,
) -> Result<T, ApiError> {
    arguments.retain(|_, value| !value.is_null());
    check(schema, &arguments, "")?;
    serde_json::from_value(Value::Object(arguments))
        .map_err(|_does_not_fit| wrong("the arguments are not what this tool takes".to_owned()))
}

fn wrong(message: String) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message)
}

fn check(schema: &JsonObject, given: &Map<String, Value>, at: &str) -> Result<(), ApiError> {
    let none = Map::new();
    let known = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let is_open = schema.get("additionalProperties").is_some_and(|it| *it != Value::Bool(false));
    if !is_open && given.keys().any(|name| !known.contains_key(name)) {
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        let names = names.join(", ");
        return Err(wrong(format!("{at}/: there is an unknown argument; there are {names}")));
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    for name in required.filter_map(Value::as_str) {
        if !given.contains_key(name) {
            return Err(wrong(format!("{at}/{name}: is missing")));
        }
    }
    for (name, value) in given {
        if let Some(Value::Object(schema)) = known.get(name) {
            fits(schema, value, &format!("{at}/{name}"))?;
        }
    }
    Ok(())
}

fn fits(schema: &JsonObject, value: &Value, at: &str) -> Result<(), ApiError> {
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    let is_kind = match kind {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    };
    if !is_kind {
        return Err(wrong(format!("{at}: must be of the type {kind}")));
    }
    let bound = |name| schema.get(name).and_then(Value::as_u64);
    let (least, most) = (bound("minimum"), bound("maximum"));
    if let Some(number) = value.as_u64()
        && (least.is_some_and(|least| number < least) || most.is_some_and(|most| number > most))
    {
        let least = least.unwrap_or_default();
        let most = most.map_or_else(|| "any".to_owned(), |most| most.to_string());
        return Err(wrong(format!("{at}: must be from {least} to {most}")));
    }
    if let Some(choices) = schema.get("enum").and_then(Value::as_array)
        && !choices.contains(value)
    {
        let names: Vec<&str> = choices.iter().filter_map(Value::as_str).collect();
        return Err(wrong(format!("{at}: must be one of {}", names.join(", "))));
    }
    match value {
        Value::Object(inner) => check(schema, inner, at),
        _ => Ok(()),
    }
}
