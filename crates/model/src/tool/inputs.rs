//! What a user fills in: values are made to fit their fields, files are checked by name and number.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Number, Value};

use crate::tool::{
    contract::{Choice, Field, FieldValue},
    schema::{FileRule, InputSchema},
};

/// The longest name of a file, in bytes.
const MAX_FILE_NAME: usize = 255;

/// A value or a file that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InputIssue {
    /// The name of the field or file.
    pub name: String,
    pub message: String,
}

impl InputIssue {
    fn new(name: &str, message: impl Into<String>) -> Self {
        Self { name: name.to_owned(), message: message.into() }
    }
}

/// Makes inputs fit their schema. Blank and missing values are left out.
pub fn fit_inputs(
    schema: &InputSchema,
    given: Map<String, Value>,
) -> Result<Map<String, Value>, Vec<InputIssue>> {
    let fields: Vec<(&str, Option<FieldValue>)> = schema
        .fields
        .iter()
        .map(|field| (field.name.as_str(), field.kind.as_field_value()))
        .collect();
    fit_all(given, |name| {
        fields.iter().find(|(field, _)| *field == name).map(|(_, kind)| kind.as_ref())
    })
}

/// Makes settings fit their schema.
pub fn fit_settings(
    schema: &[Field],
    given: Map<String, Value>,
) -> Result<Map<String, Value>, Vec<InputIssue>> {
    fit_all(given, |name| {
        schema.iter().find(|field| field.name == name).map(|field| Some(&field.value))
    })
}

/// `field_of` returns the field of a name, and no kind for one that takes files.
fn fit_all<'a>(
    given: Map<String, Value>,
    field_of: impl Fn(&str) -> Option<Option<&'a FieldValue>>,
) -> Result<Map<String, Value>, Vec<InputIssue>> {
    let (mut fitting, mut issues) = (Map::new(), Vec::new());
    for (name, value) in given {
        let Some(field) = field_of(&name) else {
            issues.push(InputIssue::new(&name, "there is no field of this name"));
            continue;
        };
        if is_blank(&value) {
            continue;
        }
        match field
            .ok_or("files are uploaded, not sent as inputs")
            .and_then(|field| fit(field, value))
        {
            Ok(value) => {
                fitting.insert(name, value);
            }
            Err(message) => issues.push(InputIssue::new(&name, message)),
        }
    }
    if issues.is_empty() { Ok(fitting) } else { Err(issues) }
}

fn is_blank(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty())
}

fn fit(field: &FieldValue, value: Value) -> Result<Value, &'static str> {
    match field {
        FieldValue::String | FieldValue::Text if value.is_string() => Ok(value),
        FieldValue::String | FieldValue::Text => Err("not a text"),
        FieldValue::Integer => integer(&value).map(Value::Number).ok_or("not an integer"),
        FieldValue::Number => number(&value).map(Value::Number).ok_or("not a number"),
        FieldValue::Boolean => boolean(&value).map(Value::Bool).ok_or("not yes or no"),
        FieldValue::Enum { options } => match value.as_str() {
            Some(text) if offers(options, text) => Ok(value),
            Some(_) | None => Err("not one of the options"),
        },
        FieldValue::MultiEnum { options } => match value.as_array() {
            Some(values)
                if values
                    .iter()
                    .all(|value| value.as_str().is_some_and(|text| offers(options, text))) =>
            {
                Ok(value)
            }
            Some(_) | None => Err("not a list of options"),
        },
    }
}

fn offers(options: &[Choice], value: &str) -> bool {
    options.iter().any(|option| option.value == value)
}

fn integer(value: &Value) -> Option<Number> {
    match value {
        Value::Number(number) if number.is_f64() => None,
        Value::Number(number) => Some(number.clone()),
        Value::String(text) => text.trim().parse::<i64>().ok().map(Number::from),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn number(value: &Value) -> Option<Number> {
    match value {
        Value::Number(number) => Some(number.clone()),
        Value::String(text) => {
            integer(value).or_else(|| Number::from_f64(text.trim().parse().ok()?))
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::Number(number) => match number.as_i64() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            Some(_) | None => None,
        },
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Some(true),
            "false" | "no" | "off" | "0" => Some(false),
            _ => None,
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Checks the names of uploaded files, and against the rule of their field how many there are and of which kind.
pub fn check_files(rule: Option<&FileRule>, names: &[&str]) -> Result<(), Vec<InputIssue>> {
    let mut issues = Vec::new();
    let mut taken = BTreeSet::new();
    for name in names {
        if let Err(message) = check_file_name(name) {
            issues.push(InputIssue::new(name, message));
        } else if !taken.insert(*name) {
            issues.push(InputIssue::new(name, "two files have this name"));
        } else if let Some(rule) = rule
            && !accepts(rule, name)
        {
            let endings = rule.accept.as_deref().unwrap_or_default().join(", ");
            issues.push(InputIssue::new(
                name,
                format!("files of this kind are not taken; allowed: {endings}"),
            ));
        }
    }
    let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
    match rule {
        None if count > 0 => issues.push(InputIssue::new("files", "this tool takes no files")),
        Some(rule) if !(rule.min..=rule.max).contains(&count) => {
            let message =
                format!("this tool takes {} to {} files, not {count}", rule.min, rule.max);
            issues.push(InputIssue::new("files", message));
        }
        None | Some(_) => {}
    }
    if issues.is_empty() { Ok(()) } else { Err(issues) }
}

fn accepts(rule: &FileRule, name: &str) -> bool {
    let name = name.to_lowercase();
    let Some(endings) = &rule.accept else { return true };
    endings.is_empty() || endings.iter().any(|ending| name.ends_with(&ending.to_lowercase()))
}

/// Checks that a name is one of a plain file in a folder. `action.json` is the server's own.
pub fn check_file_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > MAX_FILE_NAME {
        return Err("names of files have 1 to 255 bytes");
    }
    if name.contains(['/', '\\']) || name.contains(char::is_control) || [".", ".."].contains(&name)
    {
        return Err("names of files have no slashes and no control characters");
    }
    if name == "action.json" {
        return Err("action.json is the name of the action that the server passes to the tool");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> InputSchema {
        let field = |name: &str, kind: &str| json!({"name": name, "label": name, "kind": kind});
        let mode = json!({"name": "mode", "label": "M", "kind": "enum", "options": [{"value": "a", "label": "A"}]});
        InputSchema::read(&json!([
            field("text", "text"),
            field("count", "integer"),
            field("share", "number"),
            field("strict", "boolean"),
            mode,
            field("files", "file"),
        ]))
        .unwrap()
    }

    fn fit_one(name: &str, value: Value) -> Result<Value, String> {
        fit_inputs(&schema(), Map::from_iter([(name.to_owned(), value)]))
            .map(|fitting| fitting.get(name).cloned().unwrap_or_default())
            .map_err(|issues| issues[0].message.clone())
    }

    #[test]
    fn inputs_are_made_to_fit_their_fields() {
        for (name, given, expected) in [
            ("text", json!(" a "), json!(" a ")),
            ("text", json!(" "), json!(null)),
            ("text", json!(null), json!(null)),
            ("count", json!(42), json!(42)),
            ("count", json!(" 42 "), json!(42)),
            ("count", json!("-1"), json!(-1)),
            ("count", json!(""), json!(null)),
            ("share", json!("42"), json!(42)),
            ("share", json!("1.5"), json!(1.5)),
            ("share", json!("1e3"), json!(1000.0)),
            ("share", json!(0.5), json!(0.5)),
            ("strict", json!("yes"), json!(true)),
            ("strict", json!("OFF"), json!(false)),
            ("strict", json!(1), json!(true)),
            ("strict", json!(false), json!(false)),
            ("mode", json!("a"), json!("a")),
        ] {
            assert_eq!(fit_one(name, given.clone()), Ok(expected), "{name} {given}");
        }
        for (name, given, message) in [
            ("text", json!(1), "not a text"),
            ("count", json!(1.5), "not an integer"),
            ("count", json!("1.0"), "not an integer"),
            ("count", json!(true), "not an integer"),
            ("count", json!("99999999999999999999"), "not an integer"),
            ("share", json!("NaN"), "not a number"),
            ("share", json!("inf"), "not a number"),
            ("share", json!([1]), "not a number"),
            ("strict", json!("maybe"), "not yes or no"),
            ("strict", json!(2), "not yes or no"),
            ("mode", json!("A"), "not one of the options"),
            ("mode", json!(["a"]), "not one of the options"),
            ("files", json!("a.csv"), "files are uploaded, not sent as inputs"),
            ("state", json!({}), "there is no field of this name"),
        ] {
            assert_eq!(fit_one(name, given.clone()), Err(message.to_owned()), "{name} {given}");
        }
    }

    #[test]
    fn settings_take_lists_of_options() {
        let schema = json!([{"name": "m", "label": "M", "kind": "multi_enum", "options": [{"value": "a", "label": "A"}]}]);
        let schema = crate::tool::schema::read_settings_schema(&schema).unwrap();
        let fit = |value: Value| fit_settings(&schema, Map::from_iter([("m".to_owned(), value)]));
        for good in [json!(["a"]), json!([]), json!(["a", "a"])] {
            assert!(fit(good).is_ok());
        }
        for bad in [json!("a"), json!(["b"]), json!([1])] {
            assert!(fit(bad).is_err());
        }
    }

    #[test]
    fn files_are_checked_by_name_and_number() {
        let rule = FileRule { accept: Some(vec![".csv".to_owned()]), min: 1, max: 2 };
        let check = |names: &[&str]| {
            let issues = check_files(Some(&rule), names).err().unwrap_or_default();
            issues
                .into_iter()
                .map(|issue| format!("{:.12}: {:.30}", issue.name, issue.message))
                .collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(check(&["a.csv", "B.CSV"]), none);
        assert_eq!(check(&["meta.csv"]), none);
        assert_eq!(check(&[]), ["files: this tool takes 1 to 2 files, "]);
        assert_eq!(check(&["a.csv", "a.csv"]), ["a.csv: two files have this name"]);
        assert_eq!(check(&["a.txt"]), ["a.txt: files of this kind are not tak"]);
        for name in [
            "../a.csv",
            "a/b.csv",
            "a\\b.csv",
            "a\n.csv",
            "..",
            "",
            &"x".repeat(256),
            "action.json",
        ] {
            assert_eq!(check(&[name]).len(), 1, "{name:?}");
        }
        assert_eq!(check_files(None, &[]), Ok(()));
        assert_eq!(check_files(None, &["a"]).unwrap_err()[0].message, "this tool takes no files");
    }
}
