//! Values that a form is filled with before the user changes them.

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

use crate::tool::contract::{Choice, Field, FieldValue};

/// A prefill value that was left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DroppedPrefill {
    action_id: String,
    field: String,
    reason: &'static str,
}

/// How much of a name a notice shows: a tool may choose names as long as its whole result.
const SHOWN_CHARACTERS: usize = 64;

impl fmt::Display for DroppedPrefill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (action, field) = (shown(&self.action_id), shown(&self.field));
        write!(f, "field {field:?} of action {action:?} ({})", self.reason)
    }
}

fn shown(name: &str) -> String {
    match name.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}…", name.get(..end).unwrap_or_default()),
        None => name.to_owned(),
    }
}

/// Keeps the values that fit a field of the form. Of fields with the same name, the last one counts.
pub fn fitting_prefill(
    action_id: &str,
    prefill: BTreeMap<String, Value>,
    fields: &[Field],
    dropped: &mut Vec<DroppedPrefill>,
) -> BTreeMap<String, Value> {
    let fields: BTreeMap<&str, &FieldValue> =
        fields.iter().map(|field| (field.name.as_str(), &field.value)).collect();
    let mut kept = BTreeMap::new();
    for (name, value) in prefill {
        let fits =
            fields.get(name.as_str()).ok_or("unknown field").and_then(|field| check(field, &value));
        match fits {
            Ok(()) => {
                kept.insert(name, value);
            }
            Err(reason) => {
                dropped.push(DroppedPrefill {
                    action_id: action_id.to_owned(),
                    field: name,
                    reason,
                });
            }
        }
    }
    kept
}

/// Checks a value against the kind of its field. Booleans are no numbers.
fn check(field: &FieldValue, value: &Value) -> Result<(), &'static str> {
    let (fits, reason) = match field {
        FieldValue::String | FieldValue::Text => (value.is_string(), "not a text"),
        FieldValue::Boolean => (value.is_boolean(), "not a boolean"),
        FieldValue::Integer => (value.is_i64() || value.is_u64(), "not an integer"),
        FieldValue::Number => (value.is_number(), "not a number"),
        FieldValue::Enum { options } => match value.as_str() {
            Some(value) => (offers(options, value), "not one of the options"),
            None => (false, "not a text"),
        },
        FieldValue::MultiEnum { options } => return check_all(options, value),
    };
    if fits { Ok(()) } else { Err(reason) }
}

fn check_all(options: &[Choice], value: &Value) -> Result<(), &'static str> {
    for element in value.as_array().ok_or("not a list")? {
        let element = element.as_str().ok_or("not a list of texts")?;
        if !offers(options, element) {
            return Err("not all are options");
        }
    }
    Ok(())
}

fn offers(options: &[Choice], value: &str) -> bool {
    options.iter().any(|option| option.value == value)
}
