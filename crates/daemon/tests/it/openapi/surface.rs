//! What a change of the document takes away from clients.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Value, json};

use super::resolved;

/// Which way a schema goes: what is asked may come to allow more, what is answered may come to say more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Way {
    Asked,
    Answered,
}

struct Comparison<'a> {
    before: &'a Value,
    now: &'a Value,
    seen: HashSet<(String, String, Way)>,
    broken: Vec<String>,
}

/// Says what was taken away or narrowed since.
pub(super) fn broken(before: &Value, now: &Value) -> Vec<String> {
    let mut comparison = Comparison { before, now, seen: HashSet::new(), broken: Vec::new() };
    for (path, method, said) in fields(&before["paths"])
        .flat_map(|(path, item)| fields(item).map(move |(method, said)| (path, method, said)))
    {
        let at = format!("{} {path}", method.to_uppercase());
        match &now["paths"][path.as_str()][method.as_str()] {
            Value::Null => comparison.broken.push(format!("{at} is gone")),
            again => comparison.operation(&at, said, again),
        }
    }
    comparison.broken
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// One text or several, as a set.
fn words(value: &Value) -> BTreeSet<String> {
    match value {
        Value::String(one) => [one.clone()].into(),
        other => {
            list(other).iter().map(ToString::to_string).map(|it| it.replace('"', "")).collect()
        }
    }
}

impl Comparison<'_> {
    fn say(&mut self, at: &str, what: &str) {
        self.broken.push(format!("{at}: {what}"));
    }

    fn operation(&mut self, at: &str, before: &Value, now: &Value) {
        if before["operationId"] != now["operationId"] {
            self.say(at, "another operationId");
        }
        let opened = list(&now["security"]);
        if list(&before["security"]).iter().any(|way| !opened.contains(way) && !opened.is_empty())
            || (list(&before["security"]).is_empty() && !opened.is_empty())
        {
            self.say(at, "a credential that opened it does so no more");
        }
        self.parameters(at, &before["parameters"], &now["parameters"]);
        self.body(at, &before["requestBody"], &now["requestBody"]);
        for (status, answer) in fields(&before["responses"]) {
            let (at, again) = (format!("{at} {status}"), &now["responses"][status.as_str()]);
            if again.is_null() {
                self.say(&at, "the answer is gone");
            }
            let (answer, again) = (resolved(self.before, answer), resolved(self.now, again));
            self.content(&at, &answer["content"], &again["content"], Way::Answered);
        }
    }

    fn parameters(&mut self, at: &str, before: &Value, now: &Value) {
        let all = |document: &Value, all: &Value| -> Vec<Value> {
            list(all).iter().map(|it| resolved(document, it).clone()).collect()
        };
        let (before, now) = (all(self.before, before), all(self.now, now));
        let named = |all: &[Value], like: &Value| {
            all.iter().find(|it| it["name"] == like["name"] && it["in"] == like["in"]).cloned()
        };
        for parameter in &before {
            let at = format!("{at} {}", parameter["name"]);
            match named(&now, parameter) {
                None => self.say(&at, "the parameter is gone"),
                Some(again) => {
                    if again["required"] == true && parameter["required"] != true {
                        self.say(&at, "the parameter has to be there now");
                    }
                    self.schema(&at, &parameter["schema"], &again["schema"], Way::Asked);
                }
            }
        }
        for parameter in now.iter().filter(|it| it["required"] == true) {
            if named(&before, parameter).is_none() {
                self.say(at, &format!("{} has to be there now", parameter["name"]));
            }
        }
    }

    fn body(&mut self, at: &str, before: &Value, now: &Value) {
        if now["required"] == true && before["required"] != true {
            self.say(at, "a body has to be there now");
        }
        self.content(at, &before["content"], &now["content"], Way::Asked);
    }

    fn content(&mut self, at: &str, before: &Value, now: &Value, way: Way) {
        for (kind, content) in fields(before) {
            let again = &now[kind.as_str()];
            if again.is_null() {
                self.say(at, &format!("{kind} is gone"));
                continue;
            }
            self.schema(at, &content["schema"], &again["schema"], way);
            self.schema(at, &content["x-event"], &again["x-event"], way);
        }
    }

    /// Follows references, each pair of them once.
    fn schema(&mut self, at: &str, before: &Value, now: &Value, way: Way) {
        let name = |schema: &Value| schema["$ref"].as_str().unwrap_or_default().to_owned();
        if !before.is_object() {
            return;
        }
        let pair = (name(before), name(now), way);
        if !pair.0.is_empty() && !pair.1.is_empty() && !self.seen.insert(pair) {
            return;
        }
        let (before, now) =
            (resolved(self.before, before).clone(), resolved(self.now, now).clone());
        self.shape(at, &before, &now, way);
        for (name, property) in fields(&before["properties"]) {
            let at = format!("{at}.{name}");
            match &now["properties"][name.as_str()] {
                Value::Null => self.say(&at, "the field is gone"),
                again => self.schema(&at, property, again, way),
            }
        }
        for key in ["items", "additionalProperties"] {
            self.schema(&format!("{at}[]"), &before[key], &now[key], way);
        }
        for key in ["oneOf", "anyOf", "allOf"] {
            let (all, again) = (list(&before[key]), list(&now[key]));
            if again.len() < all.len() {
                self.say(at, &format!("one of {key} is gone"));
            }
            for (one, again) in all.iter().zip(again) {
                self.schema(at, one, again, way);
            }
        }
    }

    /// Compares what a schema says of itself, without its parts.
    fn shape(&mut self, at: &str, before: &Value, now: &Value, way: Way) {
        let set = |value: &Value, key: &str| words(&value[key]);
        let (types, again) = (set(before, "type"), set(now, "type"));
        let (required, needed) = (set(before, "required"), set(now, "required"));
        let (values, allowed) = (set(before, "enum"), set(now, "enum"));
        let wrong = match way {
            Way::Asked => [
                (!again.is_empty() && !again.is_superset(&types), "takes fewer types"),
                (!needed.is_subset(&required), "more fields have to be there"),
                (
                    !allowed.is_empty() && (values.is_empty() || !allowed.is_superset(&values)),
                    "takes fewer values",
                ),
                (
                    now["additionalProperties"] == false && before["additionalProperties"] != false,
                    "takes no other fields",
                ),
                (is_narrower(before, now), "has narrower limits"),
            ],
            Way::Answered => [
                (!types.is_empty() && !again.is_subset(&types), "has other types"),
                (!required.is_subset(&needed), "a field may be missing"),
                (!values.is_empty() && allowed.is_empty(), "has any value"),
                (!types.is_empty() && again.is_empty(), "has any type"),
                (false, ""),
            ],
        };
        for (_, what) in wrong.into_iter().filter(|(is_wrong, _)| *is_wrong) {
            self.say(at, what);
        }
    }
}

fn is_narrower(before: &Value, now: &Value) -> bool {
    let tighter = |key: &str, is_tighter: fn(f64, f64) -> bool| match (
        before[key].as_f64(),
        now[key].as_f64(),
    ) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(before), Some(now)) => is_tighter(now, before),
    };
    let more = |now: f64, before: f64| now > before;
    let less = |now: f64, before: f64| now < before;
    tighter("minimum", more)
        || tighter("minLength", more)
        || tighter("maximum", less)
        || tighter("maxLength", less)
        || (!now["pattern"].is_null() && now["pattern"] != before["pattern"])
}

#[test]
fn what_is_taken_away_or_narrowed_is_told_and_what_is_added_is_not() {
    let schemas = json!({"T": {
        "type": "object", "required": ["a"], "additionalProperties": true,
        "properties": {"a": {"type": "string"}, "b": {"type": ["integer", "null"], "enum": [1, 2]}},
    }});
    let content = json!({"application/json": {"schema": {"$ref": "#/components/schemas/T"}}});
    let before = json!({"components": {"schemas": schemas}, "paths": {"/x": {"post": {
        "operationId": "x", "security": [{"key": []}],
        "parameters": [{"name": "q", "in": "query", "required": false, "schema": {"type": "string"}}],
        "requestBody": {"required": false, "content": content},
        "responses": {"200": {"content": content}},
    }}}});
    let operation = "/paths/~1x/post";
    assert_eq!(broken(&before, &before), Vec::<String>::new());
    let properties = |more: Value| {
        let mut all = before["components"]["schemas"]["T"]["properties"].clone();
        all["b"] = more;
        all
    };
    let schema = "/components/schemas/T";
    let rows = [
        ("/paths", json!({}), "POST /x is gone"),
        (&*format!("{operation}/security"), json!([{"token": []}]), "POST /x: a credential"),
        (&*format!("{operation}/parameters"), json!([]), "POST /x \"q\": the parameter is gone"),
        (
            &*format!("{operation}/parameters/0/required"),
            json!(true),
            "POST /x \"q\": the parameter has",
        ),
        (&*format!("{operation}/requestBody/required"), json!(true), "POST /x: a body has"),
        (&*format!("{operation}/responses"), json!({}), "POST /x 200: the answer is gone"),
        (&*format!("{schema}/required"), json!(["a", "b"]), "POST /x: more fields"),
        (&*format!("{schema}/required"), json!([]), "POST /x 200: a field may be missing"),
        (&*format!("{schema}/properties"), json!({}), "POST /x.a: the field is gone"),
        (&*format!("{schema}/properties/b/enum"), json!([1]), "POST /x.b: takes fewer values"),
        (
            &*format!("{schema}/properties"),
            properties(json!({"type": "integer", "enum": [1, 2]})),
            "POST /x.b: takes fewer types",
        ),
        (&*format!("{schema}/additionalProperties"), json!(false), "POST /x: takes no other"),
    ];
    let changed = |pointer: &str, value: Value| {
        let mut now = before.clone();
        *now.pointer_mut(pointer).unwrap() = value;
        broken(&before, &now)
    };
    for (pointer, value, expected) in rows {
        let found = changed(pointer, value);
        assert!(
            found.iter().any(|it| it.starts_with(expected)),
            "{pointer}: {expected}: {found:?}"
        );
    }
    let mut more = before.clone();
    more["paths"]["/y"] = before["paths"]["/x"].clone();
    more["paths"]["/x"]["post"]["responses"]["404"] = json!({"description": "new"});
    more["components"]["schemas"]["T"]["properties"]["c"] = json!({"type": "string"});
    more["components"]["schemas"]["T"]["properties"]["b"]["enum"] = json!([1, 2, 3]);
    more["paths"]["/x"]["post"]["summary"] = json!("Says it better");
    assert_eq!(broken(&before, &more), Vec::<String>::new());
}
