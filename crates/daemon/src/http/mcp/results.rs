//! What tools answer, as clients are told ahead: a schema of what is done, or of a refusal in its place.

use std::collections::BTreeMap;

use api::{
    files::{EditedFile, FileList, GlobMatches, GrepMatches},
    mcp::{RanCode, RanCommand, ReadLines, Released, ToolError, WrittenFile},
    sessions::{Heartbeat, Refreshed, SessionAnswer},
};
use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::tools::Tool;
use crate::openapi::doc::schemas_of;

/// How deep types are in each other, at most.
const DEPTH: u8 = 16;

/// Returns what a tool answers.
pub(super) fn schema(tool: Tool) -> JsonObject {
    match tool {
        Tool::Acquire => without_token(answered::<SessionAnswer>()),
        Tool::Refresh => answered::<Refreshed>(),
        Tool::Heartbeat => answered::<Heartbeat>(),
        Tool::Release => answered::<Released>(),
        Tool::RunCode => answered::<RanCode>(),
        Tool::Exec => answered::<RanCommand>(),
        Tool::Read => answered::<ReadLines>(),
        Tool::Write => answered::<WrittenFile>(),
        Tool::Edit => answered::<EditedFile>(),
        Tool::List => answered::<FileList>(),
        Tool::Glob => answered::<GlobMatches>(),
        Tool::Grep => answered::<GrepMatches>(),
    }
}

/// Either all that is needed of this type is there, or an error is; clients hold refusals against it as well.
fn answered<T: ToSchema>() -> JsonObject {
    let mut schema = whole::<T>();
    // It speaks of the route that answers the same.
    schema.remove("description");
    let needed = schema.remove("required").unwrap_or_else(|| json!([]));
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        fields.insert("error".to_owned(), Value::Object(whole::<ToolError>()));
    }
    schema.insert("anyOf".to_owned(), json!([{"required": needed}, {"required": ["error"]}]));
    schema
}

/// A token is there only if it was asked for.
fn without_token(schema: JsonObject) -> JsonObject {
    let mut schema = Value::Object(schema);
    for (place, name) in
        [("/anyOf/0/required", "token"), ("/properties/credentials/required", "access_token")]
    {
        if let Some(Value::Array(names)) = schema.pointer_mut(place) {
            names.retain(|it| it != name);
        }
    }
    match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    }
}

/// Returns the schema of a type with everything that it is made of in its place, since a tool has no other place
/// for that.
fn whole<T: ToSchema>() -> JsonObject {
    let all = schemas_of::<T>();
    match all.get(&*T::name()).map(|schema| plain(inlined(schema, &all, DEPTH))) {
        Some(Value::Object(schema)) => schema,
        _ => JsonObject::new(),
    }
}

/// Says of each value one type, which every client understands: what may be null is left out of answers instead
/// ([`without_nulls`]), and is not required.
fn plain(schema: Value) -> Value {
    match schema {
        Value::Array(parts) => parts.into_iter().map(plain).collect(),
        Value::Object(mut fields) => {
            let optional: Vec<String> = fields
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .filter(|(_, schema)| may_be_null(schema))
                .map(|(name, _)| name.clone())
                .collect();
            if let Some(Value::Array(required)) = fields.get_mut("required") {
                required.retain(|name| !optional.iter().any(|it| name == it.as_str()));
            }
            let plain = fields.into_iter().map(|(name, value)| (name, plain(value)));
            Value::Object(without_null(plain.collect()))
        }
        other => other,
    }
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "null")
}

fn may_be_null(schema: &Value) -> bool {
    let list = |name| schema.get(name).and_then(Value::as_array).into_iter().flatten();
    list("type").any(|kind| kind == "null")
        || ["oneOf", "anyOf"].into_iter().flat_map(list).any(is_null)
}

/// Takes null away from the types of a schema. A choice of which one is left is that one.
fn without_null(mut schema: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Array(kinds)) = schema.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [kind] = kinds.as_slice() {
            let kind = kind.clone();
            schema.insert("type".to_owned(), kind);
        }
    }
    for name in ["oneOf", "anyOf"] {
        let Some(Value::Array(mut choices)) = schema.remove(name) else { continue };
        choices.retain(|choice| !is_null(choice));
        match choices.as_slice() {
            [Value::Object(only)] => schema.extend(only.clone()),
            _ => _ = schema.insert(name.to_owned(), Value::Array(choices)),
        }
    }
    schema
}

/// Leaves out of an answer what is null.
pub(super) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Array(values) => values.into_iter().map(without_nulls).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect(),
        other => other,
    }
}

fn inlined(schema: &Value, all: &BTreeMap<String, Value>, depth: u8) -> Value {
    let Some(depth) = depth.checked_sub(1) else { return json!({}) };
    match schema {
        Value::Array(parts) => parts.iter().map(|part| inlined(part, all, depth)).collect(),
        Value::Object(fields) => {
            let named = fields.get("$ref").and_then(Value::as_str);
            let named = named.and_then(|path| all.get(path.rsplit('/').next()?));
            if let Some(named) = named {
                return inlined(named, all, depth);
            }
            let kept = fields.iter().filter(|(name, _)| *name != "format");
            let kept = kept.map(|(name, value)| (name.clone(), inlined(value, all, depth)));
            Value::Object(joined(kept.collect()))
        }
        other => other.clone(),
    }
}

/// Puts objects that are one on the wire into one.
fn joined(mut schema: Map<String, Value>) -> Map<String, Value> {
    let Some(Value::Array(parts)) = schema.remove("allOf") else { return schema };
    let (mut fields, mut needed) = (Map::new(), Vec::new());
    for part in parts {
        if let Value::Object(mut part) = part {
            if let Some(Value::Object(more)) = part.remove("properties") {
                fields.extend(more);
            }
            if let Some(Value::Array(more)) = part.remove("required") {
                needed.extend(more);
            }
        }
    }
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), Value::Object(fields));
    schema.insert("required".to_owned(), Value::Array(needed));
    schema
}
