//! JSON values in their canonical form, cut to limits.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::tool::policy::JsonLimits;

/// Whether something was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Nothing,
    Something,
}

/// Returns the bytes of the compact JSON of a value.
pub fn json_bytes<T: Serialize + ?Sized>(value: &T) -> usize {
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).map_or(usize::MAX, |()| counter.0)
}

struct Counter(usize);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Cuts a text to so many bytes, and never inside a character.
pub fn cut_text(text: &mut String, bytes: usize) -> Cut {
    if text.len() <= bytes {
        return Cut::Nothing;
    }
    text.truncate(text.floor_char_boundary(bytes));
    Cut::Something
}

/// Sorts keys, and cuts objects, arrays and depth to the limits. The size is not looked at.
pub fn canonicalise(value: Value, limits: &JsonLimits) -> (Value, Cut) {
    let mut cut = Cut::Nothing;
    let value = canonical(value, limits, 0, &mut cut);
    (value, cut)
}

fn canonical(value: Value, limits: &JsonLimits, depth: usize, cut: &mut Cut) -> Value {
    match value {
        Value::Object(map) => {
            let kept = if depth < limits.depth { limits.keys } else { 0 };
            if map.len() > kept {
                *cut = Cut::Something;
            }
            let entries = map.into_iter().take(kept);
            Value::Object(
                entries
                    .map(|(key, child)| (key, canonical(child, limits, depth + 1, cut)))
                    .collect(),
            )
        }
        Value::Array(elements) => {
            let kept = if depth < limits.depth { limits.elements } else { 0 };
            if elements.len() > kept {
                *cut = Cut::Something;
            }
            let elements = elements.into_iter().take(kept);
            Value::Array(elements.map(|child| canonical(child, limits, depth + 1, cut)).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// Keeps the longest beginning of a value whose compact JSON fits; nothing if no beginning does.
pub fn shrink(value: Value, bytes: usize) -> (Option<Value>, Cut) {
    if json_bytes(&value) <= bytes {
        return (Some(value), Cut::Nothing);
    }
    // The brackets of a container, or the quotes of a text.
    let Some(room) = bytes.checked_sub(2) else {
        return (None, Cut::Something);
    };
    let shrunk = match value {
        Value::String(text) => Some(Value::String(longest_text(text, room))),
        Value::Array(elements) => Some(Value::Array(fitting(elements, room, json_bytes).collect())),
        Value::Object(map) => Some(Value::Object(longest_object(map, room))),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    };
    (shrunk, Cut::Something)
}

/// Keeps the first entries whose compact JSON fits into so many bytes; says how many it left out.
pub fn shrink_object(map: Map<String, Value>, bytes: usize) -> (Map<String, Value>, usize) {
    let before = map.len();
    let kept = longest_object(map, bytes.saturating_sub(2));
    let dropped = before - kept.len();
    (kept, dropped)
}

fn longest_object(map: Map<String, Value>, room: usize) -> Map<String, Value> {
    fitting(map, room, |(key, value)| json_bytes(key) + 1 + json_bytes(value)).collect()
}

/// Takes elements, with a comma between each two, as long as they fit.
fn fitting<T>(
    items: impl IntoIterator<Item = T>,
    room: usize,
    size: impl Fn(&T) -> usize,
) -> impl Iterator<Item = T> {
    let mut used = 0;
    items.into_iter().take_while(move |item| {
        let comma = usize::from(used > 0);
        used += size(item) + comma;
        used <= room
    })
}

fn longest_text(mut text: String, room: usize) -> String {
    let mut used = 0;
    let mut buffer = [0; 4];
    let end = text.char_indices().find_map(|(at, character)| {
        used += json_bytes(&*character.encode_utf8(&mut buffer)) - 2;
        (used > room).then_some(at)
    });
    if let Some(end) = end {
        text.truncate(end);
    }
    text
}
