use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::tool::{
    contract::{FieldKind, OutputKind},
    policy::JsonLimits,
    report::NOTICE_PREFIX,
};

mod cases;

/// A policy with limits so small that a case fits on a line.
const SMALL: UiPolicy = UiPolicy {
    state_bytes: 30,
    payload_bytes: 2000,
    outputs: 5,
    notice_bytes: 8,
    markdown_bytes: 6,
    html_bytes: 7,
    table: TableLimits { rows: 2, columns: 2, cell_bytes: 4 },
    json: JsonLimits { bytes: 20, depth: 3, keys: 3, elements: 4 },
    actions: 2,
    fields_per_action: 3,
    enum_options: 2,
    multi_enum_options: 3,
    ..UiPolicy::CURATED
};

/// Reads a result of which the required keys may be left out.
fn read(mut result: Value) -> Result<ToolResult, String> {
    let required = [
        ("contract_version", json!(2)),
        ("status", json!("succeeded")),
        ("error_summary", Value::Null),
    ];
    if let Value::Object(result) = &mut result {
        for (key, value) in required {
            result.entry(key).or_insert(value);
        }
    }
    ToolResult::read(result.to_string().as_bytes()).map_err(|violation| {
        let message = violation.to_string();
        message.split(" at line").next().unwrap_or_default().to_owned()
    })
}

/// Shows what became of a result: system notices as plain texts, and only what is there.
fn show(normalised: Result<Normalised, String>) -> Value {
    let normalised = match normalised {
        Ok(normalised) => normalised,
        Err(error) => return json!({ "error": error }),
    };
    let mut shown = Map::new();
    let outputs: Vec<Value> = normalised.payload.outputs.iter().map(show_output).collect();
    if !outputs.is_empty() {
        shown.insert("outputs".to_owned(), outputs.into());
    }
    if !normalised.payload.next_actions.is_empty() {
        shown.insert("next_actions".to_owned(), json!(normalised.payload.next_actions));
    }
    match normalised.state {
        StateUpdate::Keep => {}
        StateUpdate::Clear => drop(shown.insert("state".to_owned(), json!("cleared"))),
        StateUpdate::Set(state) => drop(shown.insert("state".to_owned(), state.into())),
    }
    shown.into()
}

fn show_output(output: &Output) -> Value {
    if let Output::Notice { message, .. } = output
        && let Some(message) = message.strip_prefix(NOTICE_PREFIX)
    {
        return json!(message);
    }
    json!(output)
}

fn run(result: Value, policy: &UiPolicy) -> Value {
    let normalised = read(result).and_then(|result| {
        normalise(result, Vec::new(), policy).map_err(|error| error.to_string())
    });
    show(normalised)
}

#[test]
fn results_are_normalised_as_the_table_says() {
    let mut differences = Vec::new();
    for (name, result, expected) in cases::CASES {
        let [result, expected]: [Value; 2] = [result, expected].map(|json| {
            serde_json::from_str(json).unwrap_or_else(|error| panic!("{name}: {error}"))
        });
        let shown = run(result, &SMALL);
        if shown != expected {
            differences.push(format!("{name}:\n   is: {shown}\n not: {expected}"));
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
    assert!(cases::CASES.len() >= 100, "{} cases", cases::CASES.len());
}

#[test]
fn documents_that_are_no_json_are_violations() {
    for (bytes, reason) in [
        (&b""[..], "result.json: EOF while parsing a value at line 1 column 0"),
        (b"[]", "result.json: this is not an object"),
        (b"{} {}", "result.json: trailing characters"),
        (b"\xff", "result.json: expected value"),
        (
            br#"{"contract_version":2,"status":"failed","error_summary":null,"state":{"a":NaN}}"#,
            "result.json: expected value",
        ),
        (
            br#"{"contract_version":2,"status":"failed","error_summary":null,"state":{"a":1e999}}"#,
            "result.json: number out of range",
        ),
        (
            br#"{"contract_version":2,"status":"failed","error_summary":"\ud800"}"#,
            "result.json: unexpected end of hex escape",
        ),
        (
            br#"{"contract_version":2,"status":"failed","error_summary":null} x"#,
            "result.json: trailing characters",
        ),
    ] {
        let error = ToolResult::read(bytes).map_err(|violation| violation.to_string()).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
    let deep = format!(
        r#"{{"contract_version":2,"status":"failed","error_summary":null,"state":{{"a":{}{}}}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let error =
        ToolResult::read(deep.as_bytes()).map_err(|violation| violation.reason).unwrap_err();
    assert!(error.contains("recursion limit"), "{error}");
}

#[test]
fn actions_of_the_server_come_after_those_of_the_tool() {
    let actions = |ids: &[&str]| -> Vec<Action> {
        ids.iter()
            .map(|id| serde_json::from_value(json!({"action_id": id, "label": id})).unwrap())
            .collect()
    };
    let run = |tool: &[&str], server: &[&str]| {
        let mut result = read(json!({})).unwrap();
        result.next_actions = actions(tool);
        let normalised = normalise(result, actions(server), &UiPolicy::DEFAULT)?;
        let ids = normalised.payload.next_actions.into_iter().map(|action| action.action_id);
        Ok(ids.collect::<Vec<_>>())
    };
    let duplicate = |id: &str| Err(DuplicateAction { action_id: id.to_owned() });
    assert_eq!(run(&["z", "m"], &["b", "a"]), Ok(["m", "z", "a", "b"].map(str::to_owned).to_vec()));
    assert_eq!(run(&["a"], &["b", "b"]), duplicate("b"));
    assert_eq!(run(&["a", "b"], &["b"]), duplicate("b"));
}

#[test]
fn default_tools_have_no_charts_and_curated_ones_have_them_blocked() {
    let charts =
        json!({"outputs": [{"kind": "vega_lite", "spec": {}}, {"kind": "vega_lite", "spec": {}}]});
    let expected = |notice: &str| json!({ "outputs": [notice] });
    assert_eq!(
        run(charts.clone(), &UiPolicy::DEFAULT),
        expected("Outputs of kind vega_lite are not allowed (dropped: 2).")
    );
    assert_eq!(
        run(charts, &UiPolicy::CURATED),
        expected("Charts (vega_lite) are blocked (dropped: 2).")
    );
}

#[test]
fn kinds_that_a_policy_leaves_out_are_counted_in_a_fixed_order() {
    let policy = UiPolicy {
        output_kinds: &[OutputKind::Markdown],
        field_kinds: &[FieldKind::String],
        ..UiPolicy::DEFAULT
    };
    let result = json!({
        "outputs": [
            {"kind": "notice", "level": "info", "message": "n"},
            {"kind": "json", "value": 1},
            {"kind": "markdown", "markdown": "m"},
            {"kind": "json", "value": 2},
        ],
        "next_actions": [{"action_id": "a", "label": "A", "prefill": {"t": "x"}, "fields": [
            {"name": "t", "label": "T", "kind": "text"},
            {"name": "s", "label": "S", "kind": "string"},
            {"name": "b", "label": "B", "kind": "boolean"},
        ]}],
    });
    let expected = json!({
        "outputs": [
            {"kind": "markdown", "markdown": "m"},
            "Outputs of kind json are not allowed (dropped: 2).",
            "Outputs of kind notice are not allowed (dropped: 1).",
            "Fields of kind boolean are not allowed (dropped: 1).",
            "Fields of kind text are not allowed (dropped: 1).",
            "Prefill values were dropped (1): field \"t\" of action \"a\" (unknown field).",
        ],
        "next_actions": [{"action_id": "a", "label": "A", "kind": "form", "prefill": {},
                          "fields": [{"name": "s", "label": "S", "kind": "string"}]}],
    });
    assert_eq!(run(result, &policy), expected);
}

#[test]
fn a_payload_that_is_too_large_loses_outputs_then_actions_then_notices() {
    let outputs: Vec<Value> = (0..5)
        .map(|number| json!({"kind": "html_sandboxed", "html": number.to_string()}))
        .collect();
    let actions =
        [json!({"action_id": "a", "label": "A"}), json!({"action_id": "b", "label": "B"})];
    let result = json!({"outputs": outputs, "next_actions": actions});
    let kept = |payload_bytes| {
        let policy = UiPolicy { payload_bytes, ..SMALL };
        let normalised = normalise(read(result.clone()).unwrap(), Vec::new(), &policy).unwrap();
        let size = json_bytes(&normalised.payload);
        let outputs: Vec<&Output> = normalised.payload.outputs.iter().collect();
        let notices = outputs.iter().filter(|output| output.kind() == OutputKind::Notice).count();
        assert!(size <= payload_bytes || outputs.is_empty(), "{size} of {payload_bytes}");
        (outputs.len() - notices, normalised.payload.next_actions.len(), notices)
    };
    let whole = json_bytes(&UiPayload::new(
        serde_json::from_value(json!(outputs)).unwrap(),
        serde_json::from_value(json!(actions)).unwrap(),
    ));
    assert_eq!(kept(whole), (5, 2, 0));
    assert_eq!(kept(whole - 1), (2, 2, 1), "the notice takes the place of three outputs");
    assert_eq!(kept(300), (0, 2, 1));
    assert_eq!(kept(230), (0, 1, 1));
    assert_eq!(kept(150), (0, 0, 1));
    assert_eq!(kept(60), (0, 0, 0));
    assert_eq!(kept(0), (0, 0, 0));
}

#[test]
fn every_notice_can_be_given_at_once() {
    let long = "x".repeat(10_000);
    let report = Report {
        state_was_cut: true,
        state_keys_dropped: 1,
        vega_lite_blocked: 1,
        outputs_not_allowed: [(OutputKind::Json, 1), (OutputKind::Table, 2)].into(),
        outputs_over_limit: 1,
        notices_cut: 1,
        markdown_cut: 1,
        html_cut: 1,
        tables_cut: 1,
        json_cut: 1,
        json_dropped: 1,
        actions_over_limit: 1,
        fields_not_allowed: [(FieldKind::Enum, 1)].into(),
        fields_over_limit: 1,
        enums_cut: 1,
        multi_enums_cut: 1,
        prefill_dropped: {
            let mut dropped = Vec::new();
            let prefill = (0..5).map(|number| (format!("{long}{number}"), Value::Null)).collect();
            fitting_prefill(&long, prefill, &[], &mut dropped);
            dropped
        },
        payload_was_cut: true,
    };
    for policy in [UiPolicy::DEFAULT, UiPolicy::CURATED] {
        let notices = report.notices(&policy);
        assert_eq!(notices.len(), 19);
        assert!(json_bytes(&notices) < 8000, "names of a tool do not fill the payload");
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{1,3}", "[\"\\\\é北😀\n]{1,12}", "[ -~]{1,20}"]
}

fn named() -> impl Strategy<Value = String> {
    "[a-e]{1,2}"
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1.0e9..1.0e9).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(named(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn output() -> impl Strategy<Value = Value> {
    let cell = prop_oneof![
        Just(Value::Null),
        text().prop_map(Value::from),
        any::<i32>().prop_map(Value::from)
    ];
    let rows = prop::collection::vec(prop::collection::btree_map(named(), cell, 0..4), 0..5);
    let columns = prop::collection::btree_set(named(), 1..4);
    prop_oneof![
        text().prop_map(
            |text| json!({"kind": "notice", "level": "info", "message": format!("n{text}")})
        ),
        text().prop_map(|text| json!({"kind": "markdown", "markdown": text})),
        text().prop_map(|text| json!({"kind": "html_sandboxed", "html": text})),
        any_json().prop_map(|value| json!({"kind": "json", "value": value, "title": "t"})),
        Just(json!({"kind": "vega_lite", "spec": {"mark": "bar"}})),
        (columns, rows).prop_map(|(columns, rows)| {
            let columns: Vec<Value> =
                columns.iter().map(|key| json!({"key": key, "label": key})).collect();
            json!({"kind": "table", "columns": columns, "rows": rows})
        }),
    ]
}

fn field() -> impl Strategy<Value = Value> {
    let options =
        prop::collection::vec(named().prop_map(|name| json!({"value": name, "label": name})), 1..5);
    let kinds = prop::sample::select(vec!["string", "text", "integer", "number", "boolean"]);
    prop_oneof![
        (named(), kinds).prop_map(|(name, kind)| json!({"name": name, "label": "l", "kind": kind})),
        (named(), options, prop::sample::select(vec!["enum", "multi_enum"])).prop_map(
            |(name, options, kind)| {
                json!({"name": name, "label": "l", "kind": kind, "options": options})
            }
        ),
    ]
}

fn action() -> impl Strategy<Value = Value> {
    let prefill = prop::collection::btree_map(named(), any_json(), 0..4);
    (prop::collection::vec(field(), 0..6), prefill)
        .prop_map(|(fields, prefill)| json!({"label": "l", "fields": fields, "prefill": prefill}))
}

fn result() -> impl Strategy<Value = Value> {
    let state = prop::option::of(prop::collection::btree_map(named(), any_json(), 0..5));
    let actions = prop::collection::btree_map(named(), action(), 0..4);
    (prop::collection::vec(output(), 0..9), actions, state).prop_map(|(outputs, actions, state)| {
        let actions: Vec<Value> = actions
            .into_iter()
            .rev()
            .map(|(id, mut action)| {
                action["action_id"] = json!(id);
                action
            })
            .collect();
        json!({"outputs": outputs, "next_actions": actions, "state": state})
    })
}

fn policies() -> impl Strategy<Value = UiPolicy> {
    prop_oneof![
        Just(SMALL),
        (0usize..60, 0usize..3000, 0usize..8).prop_map(|(state_bytes, payload_bytes, outputs)| {
            UiPolicy { state_bytes, payload_bytes, outputs, ..SMALL }
        }),
        Just(UiPolicy::DEFAULT),
        Just(UiPolicy::CURATED),
    ]
}

fn count_kinds(payload: &UiPayload) -> BTreeMap<OutputKind, usize> {
    let mut counts = BTreeMap::new();
    for output in &payload.outputs {
        *counts.entry(output.kind()).or_default() += 1;
    }
    counts
}

proptest! {
    #[test]
    fn normalising_again_changes_nothing(result in result(), policy in policies()) {
        let first = normalise(read(result).unwrap(), Vec::new(), &policy).unwrap();
        let state = match &first.state {
            StateUpdate::Set(state) => json!(state),
            StateUpdate::Keep | StateUpdate::Clear => Value::Null,
        };
        // Notices of the server are longer than the small policy lets a tool's be.
        let policy = UiPolicy { notice_bytes: 8192, ..policy };
        let again = json!({"outputs": first.payload.outputs, "next_actions": first.payload.next_actions, "state": state});
        let second = normalise(read(again).unwrap(), Vec::new(), &policy).unwrap();
        prop_assert_eq!(&second.payload, &first.payload);
        if let StateUpdate::Set(state) = first.state && !state.is_empty() {
            prop_assert_eq!(second.state, StateUpdate::Set(state));
        }
    }

    #[test]
    fn the_same_result_gives_the_same_payload_within_every_limit(result in result(), policy in policies()) {
        let read = read(result).unwrap();
        let first = normalise(read.clone(), Vec::new(), &policy).unwrap();
        prop_assert_eq!(&normalise(read, Vec::new(), &policy).unwrap(), &first);
        let empty = json_bytes(&UiPayload::new(Vec::new(), Vec::new()));
        prop_assert!(json_bytes(&first.payload) <= policy.payload_bytes.max(empty));
        prop_assert!(first.payload.outputs.len() <= policy.outputs);
        prop_assert!(first.payload.next_actions.len() <= policy.actions);
        if let StateUpdate::Set(state) = &first.state {
            prop_assert!(json_bytes(state) <= policy.state_bytes.max(2));
        }
        for action in &first.payload.next_actions {
            prop_assert!(action.fields.len() <= policy.fields_per_action);
            prop_assert!(action.prefill.keys().all(|name| action.fields.iter().any(|field| field.name == *name)));
        }
    }

    #[test]
    fn order_is_kept_and_nothing_is_added_but_notices(result in result(), policy in policies()) {
        let read = read(result).unwrap();
        let before = UiPayload::new(read.outputs.clone(), read.next_actions.clone());
        let after = normalise(read, Vec::new(), &policy).unwrap().payload;
        for (kind, count) in count_kinds(&after) {
            let allowed = count_kinds(&before).get(&kind).copied().unwrap_or_default();
            prop_assert!(kind == OutputKind::Notice || count <= allowed);
        }
        let is_ours = |output: &Output| matches!(output, Output::Notice { message, .. } if message.starts_with(NOTICE_PREFIX));
        let first_of_ours = after.outputs.iter().position(is_ours).unwrap_or(after.outputs.len());
        prop_assert!(after.outputs[first_of_ours..].iter().all(is_ours), "notices come last");
        let kinds: Vec<OutputKind> = before.outputs.iter().map(Output::kind).collect();
        let mut rest = kinds.iter();
        for output in &after.outputs[..first_of_ours] {
            prop_assert!(rest.any(|kind| *kind == output.kind()), "outputs keep their order");
        }
        prop_assert!(after.next_actions.is_sorted_by_key(|action| action.action_id.clone()));
        let longest = |payload: &UiPayload| payload.outputs.iter().filter(|output| !is_ours(output)).map(json_bytes).max().unwrap_or(0);
        prop_assert!(longest(&after) <= longest(&before));
    }
}
