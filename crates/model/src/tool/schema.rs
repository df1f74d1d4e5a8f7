//! The fields that a tool asks for: its inputs, and the settings that each user keeps.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::tool::contract::{Choice, Field, FieldValue, check_field, not_none, trimmed};

/// The settings of a tool: the same kinds of fields that its forms have.
pub type SettingsSchema = Vec<Field>;

/// What a tool asks for before its first run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InputSchema {
    pub fields: Vec<InputField>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputField {
    #[serde(deserialize_with = "trimmed")]
    pub name: String,
    #[serde(deserialize_with = "trimmed")]
    pub label: String,
    #[serde(flatten)]
    pub kind: InputKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum InputKind {
    String,
    Text,
    Integer,
    Number,
    Boolean,
    Enum {
        #[serde(deserialize_with = "not_none")]
        options: Vec<Choice>,
    },
    File(FileRule),
}

/// Which files are taken, and how many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRule {
    /// Endings such as `.csv`. None: every file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<Vec<String>>,
    #[serde(default)]
    pub min: u32,
    #[serde(default = "one")]
    pub max: u32,
}

const fn one() -> u32 {
    1
}

/// Which of the two schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SchemaName {
    SettingsSchema,
    InputSchema,
}

/// What is wrong with a schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SchemaIssue {
    pub schema: SchemaName,
    /// Where in it: `[2].options`, or `$` for the whole.
    pub path: String,
    pub message: String,
}

impl InputSchema {
    /// Reads an input schema, or says everything that is wrong with it.
    pub fn read(value: &Value) -> Result<Self, Vec<SchemaIssue>> {
        let name = |field: &InputField| field.name.clone();
        let fields: Vec<InputField> = read_fields(SchemaName::InputSchema, value, name)?;
        let issues = file_issues(&fields);
        if issues.is_empty() { Ok(Self { fields }) } else { Err(issues) }
    }

    pub fn file_rule(&self) -> Option<&FileRule> {
        self.fields.iter().find_map(|field| match &field.kind {
            InputKind::File(rule) => Some(rule),
            InputKind::String
            | InputKind::Text
            | InputKind::Integer
            | InputKind::Number
            | InputKind::Boolean
            | InputKind::Enum { .. } => None,
        })
    }
}

impl InputKind {
    /// Returns the kind of a form's field that is filled in the same way. Files are not filled in.
    pub fn as_field_value(&self) -> Option<FieldValue> {
        Some(match self {
            Self::String => FieldValue::String,
            Self::Text => FieldValue::Text,
            Self::Integer => FieldValue::Integer,
            Self::Number => FieldValue::Number,
            Self::Boolean => FieldValue::Boolean,
            Self::Enum { options } => FieldValue::Enum { options: options.clone() },
            Self::File(_) => return None,
        })
    }
}

/// Reads a settings schema, or says everything that is wrong with it.
pub fn read_settings_schema(value: &Value) -> Result<SettingsSchema, Vec<SchemaIssue>> {
    read_fields(SchemaName::SettingsSchema, value, |field: &Field| field.name.clone())
}

fn read_fields<T: DeserializeOwned>(
    schema: SchemaName,
    value: &Value,
    name: impl Fn(&T) -> String,
) -> Result<Vec<T>, Vec<SchemaIssue>> {
    let issue = |path: String, message: String| SchemaIssue { schema, path, message };
    let Value::Array(elements) = value else {
        return Err(vec![issue("$".to_owned(), "a schema is a list of fields".to_owned())]);
    };
    let (mut fields, mut issues, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (index, element) in elements.iter().enumerate() {
        if let Err(violation) = check_field(element, &format!("[{index}]")) {
            issues.push(issue(violation.place, violation.reason));
            continue;
        }
        match serde_path_to_error::deserialize::<_, T>(element) {
            Err(error) => {
                let path = match error.path().to_string() {
                    path if path == "." => format!("[{index}]"),
                    path => format!("[{index}].{path}"),
                };
                issues.push(issue(path, error.inner().to_string()));
            }
            Ok(field) => {
                let name = name(&field);
                if !names.insert(name.clone()) {
                    let message = format!("another field has the name {name:?}");
                    issues.push(issue(format!("[{index}].name"), message));
                }
                fields.push(field);
            }
        }
    }
    if issues.is_empty() { Ok(fields) } else { Err(issues) }
}

fn file_issues(fields: &[InputField]) -> Vec<SchemaIssue> {
    let mut issues = Vec::new();
    let mut has_file = false;
    for (index, field) in fields.iter().enumerate() {
        let InputKind::File(rule) = &field.kind else { continue };
        let mut add = |path: &str, message: &str| {
            let path = format!("[{index}]{path}");
            let message = message.to_owned();
            issues.push(SchemaIssue { schema: SchemaName::InputSchema, path, message });
        };
        if has_file {
            add("", "a tool has at most one field of kind file");
        }
        has_file = true;
        if rule.max == 0 || rule.min > rule.max {
            add(".max", "max is at least 1 and at least min");
        }
        if rule.accept.iter().flatten().any(|ending| !is_ending(ending)) {
            add(".accept", "accept lists endings such as \".csv\"");
        }
    }
    issues
}

fn is_ending(text: &str) -> bool {
    text.strip_prefix('.').is_some_and(|rest| {
        !rest.is_empty()
            && rest.chars().all(|letter| letter.is_alphanumeric() || ".-_+".contains(letter))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn issues(value: &Value) -> Vec<String> {
        let found = InputSchema::read(value).err().unwrap_or_default();
        found.into_iter().map(|issue| format!("{}: {}", issue.path, issue.message)).collect()
    }

    #[test]
    fn an_input_schema_is_written_as_it_was_read() {
        let schema = json!([
            {"name": "title", "label": "Title", "kind": "string"},
            {"name": "note", "label": "Note", "kind": "text"},
            {"name": "count", "label": "Count", "kind": "integer"},
            {"name": "share", "label": "Share", "kind": "number"},
            {"name": "strict", "label": "Strict", "kind": "boolean"},
            {"name": "mode", "label": "Mode", "kind": "enum", "options": [{"value": "a", "label": "A"}]},
            {"name": "files", "label": "Files", "kind": "file", "accept": [".csv", ".tar.gz"], "min": 0, "max": 3},
        ]);
        let read = InputSchema::read(&schema).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), schema);
        assert_eq!(read.file_rule().map(|rule| rule.max), Some(3));
        let defaults =
            InputSchema::read(&json!([{"name": "f", "label": "F", "kind": "file"}])).unwrap();
        assert_eq!(defaults.file_rule(), Some(&FileRule { accept: None, min: 0, max: 1 }));
    }

    #[test]
    fn everything_that_is_wrong_with_a_schema_is_said_at_once() {
        let file = |name: &str, rest: Value| {
            let mut field = json!({"name": name, "label": "F", "kind": "file"});
            field.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            field
        };
        assert_eq!(issues(&json!({})), ["$: a schema is a list of fields"]);
        assert_eq!(
            issues(&json!([
                1,
                {"name": "a", "label": "A", "kind": "multi_enum", "options": []},
                {"name": "b", "label": " ", "kind": "string"},
                {"name": "c", "label": "C", "kind": "enum", "options": []},
                {"name": "d", "label": "D", "kind": "string"},
                {"name": " d ", "label": "D", "kind": "text"},
            ])),
            [
                "[0]: this is not an object",
                "[1]: unknown variant `multi_enum`, expected one of `string`, `text`, `integer`, `number`, `boolean`, \
                 `enum`, `file`",
                "[2].label: a message, key, name, label, id or option is blank",
                "[3]: the field has no options",
                "[5].name: another field has the name \"d\"",
            ]
        );
        assert_eq!(
            issues(&json!([
                file("a", json!({"min": 2})),
                file("b", json!({"max": 0, "accept": ["csv"]}))
            ])),
            [
                "[0].max: max is at least 1 and at least min",
                "[1]: a tool has at most one field of kind file",
                "[1].max: max is at least 1 and at least min",
                "[1].accept: accept lists endings such as \".csv\"",
            ]
        );
    }

    #[test]
    fn settings_have_the_fields_of_forms() {
        let schema = json!([{"name": "m", "label": "M", "kind": "multi_enum", "options": [{"value": "a", "label": "A"}]}]);
        assert!(read_settings_schema(&schema).is_ok());
        let file = json!([{"name": "f", "label": "F", "kind": "file"}]);
        let issues = read_settings_schema(&file).unwrap_err();
        assert_eq!(
            (issues[0].schema, issues[0].path.as_str()),
            (SchemaName::SettingsSchema, "[0]")
        );
    }
}
