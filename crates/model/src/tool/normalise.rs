//! Turns what a tool reports into what the server keeps and shows.
//!
//! The same result and policy always give the same payload. What does not fit is left out from the end, and system
//! notices after the tool's outputs say so.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::tool::{
    canonical::{Cut, canonicalise, cut_text, json_bytes, shrink, shrink_object},
    contract::{
        Action, Cell, Choice, Field, FieldValue, Output, Row, Table, ToolResult, UiPayload,
    },
    policy::{TableLimits, UiPolicy},
    prefill::fitting_prefill,
    report::Report,
};

#[derive(Clone, Debug, PartialEq)]
pub struct Normalised {
    pub payload: UiPayload,
    pub state: StateUpdate,
}

/// What a result says about the state of its session.
#[derive(Clone, Debug, PartialEq)]
pub enum StateUpdate {
    /// The result has no state.
    Keep,
    /// The state of the result is empty.
    Clear,
    Set(Map<String, Value>),
}

/// Two actions have the same id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the action id {action_id:?} is used more than once")]
pub struct DuplicateAction {
    pub action_id: String,
}

/// Cuts a result to the policy. `backend_actions` are added by the server after those of the tool.
pub fn normalise(
    result: ToolResult,
    backend_actions: Vec<Action>,
    policy: &UiPolicy,
) -> Result<Normalised, DuplicateAction> {
    let actions = in_order(result.next_actions, backend_actions)?;
    let mut report = Report::default();
    let state = normalise_state(result.state, policy, &mut report);
    let outputs = normalise_outputs(result.outputs, policy, &mut report);
    let actions = normalise_actions(actions, policy, &mut report);
    Ok(Normalised { payload: fit_payload(outputs, actions, policy, report), state })
}

fn normalise_state(
    state: Option<BTreeMap<String, Value>>,
    policy: &UiPolicy,
    report: &mut Report,
) -> StateUpdate {
    let Some(state) = state else {
        return StateUpdate::Keep;
    };
    if state.is_empty() {
        return StateUpdate::Clear;
    }
    let mut canonical = Map::new();
    for (key, value) in state {
        let (value, cut) = canonicalise(value, &policy.json);
        report.state_was_cut |= cut == Cut::Something;
        canonical.insert(key, value);
    }
    let (kept, dropped) = shrink_object(canonical, policy.state_bytes);
    report.state_keys_dropped = dropped;
    StateUpdate::Set(kept)
}

fn normalise_outputs(
    mut outputs: Vec<Output>,
    policy: &UiPolicy,
    report: &mut Report,
) -> Vec<Output> {
    report.outputs_over_limit += outputs.len().saturating_sub(policy.outputs);
    outputs.truncate(policy.outputs);
    outputs.into_iter().filter_map(|output| normalise_output(output, policy, report)).collect()
}

fn normalise_output(mut output: Output, policy: &UiPolicy, report: &mut Report) -> Option<Output> {
    let kind = output.kind();
    if !policy.output_kinds.contains(&kind) {
        *report.outputs_not_allowed.entry(kind).or_default() += 1;
        return None;
    }
    match &mut output {
        Output::Notice { message, .. } => {
            if cut_text(message, policy.notice_bytes) == Cut::Something {
                message.truncate(message.trim_end().len());
                report.notices_cut += 1;
            }
        }
        Output::Markdown { markdown } => {
            report.markdown_cut +=
                usize::from(cut_text(markdown, policy.markdown_bytes) == Cut::Something);
        }
        Output::HtmlSandboxed { html } => {
            report.html_cut += usize::from(cut_text(html, policy.html_bytes) == Cut::Something);
        }
        Output::Table(table) => {
            report.tables_cut += usize::from(cut_table(table, policy.table) == Cut::Something);
        }
        Output::Json { value, .. } => return normalise_json(value.take(), output, policy, report),
        Output::VegaLite { .. } => {
            report.vega_lite_blocked += 1;
            return None;
        }
    }
    Some(output)
}

fn normalise_json(
    value: Value,
    output: Output,
    policy: &UiPolicy,
    report: &mut Report,
) -> Option<Output> {
    let (value, cut) = canonicalise(value, &policy.json);
    let (shrunk, shrink) = shrink(value, policy.json.bytes);
    let Some(shrunk) = shrunk else {
        report.json_dropped += 1;
        return None;
    };
    report.json_cut += usize::from([cut, shrink].contains(&Cut::Something));
    let Output::Json { title, .. } = output else {
        return None;
    };
    Some(Output::Json { title, value: shrunk })
}

/// Cuts columns, rows and cells. Cells of columns that the table does not list vanish without being counted.
fn cut_table(table: &mut Table, limits: TableLimits) -> Cut {
    let mut cut = Cut::Nothing;
    if table.columns.len() > limits.columns || table.rows.len() > limits.rows {
        cut = Cut::Something;
    }
    table.columns.truncate(limits.columns);
    table.rows.truncate(limits.rows);
    for row in &mut table.rows {
        let mut cells = std::mem::take(row).into_cells_of(&table.columns);
        for (_, cell) in &mut cells {
            if let Cell::Text(text) = cell
                && cut_text(text, limits.cell_bytes) == Cut::Something
            {
                cut = Cut::Something;
            }
        }
        *row = Row(cells);
    }
    cut
}

/// Sorts the actions of the tool, then those of the server, by id. No id may occur twice.
fn in_order(
    mut actions: Vec<Action>,
    mut backend_actions: Vec<Action>,
) -> Result<Vec<Action>, DuplicateAction> {
    let by_id = |left: &Action, right: &Action| left.action_id.cmp(&right.action_id);
    actions.sort_by(by_id);
    backend_actions.sort_by(by_id);
    actions.append(&mut backend_actions);
    let mut ids = BTreeSet::new();
    match actions.iter().find(|action| !ids.insert(&action.action_id)) {
        Some(action) => Err(DuplicateAction { action_id: action.action_id.clone() }),
        None => Ok(actions),
    }
}

fn normalise_actions(actions: Vec<Action>, policy: &UiPolicy, report: &mut Report) -> Vec<Action> {
    let mut actions: Vec<Action> =
        actions.into_iter().map(|action| normalise_action(action, policy, report)).collect();
    report.actions_over_limit += actions.len().saturating_sub(policy.actions);
    actions.truncate(policy.actions);
    actions
}

fn normalise_action(mut action: Action, policy: &UiPolicy, report: &mut Report) -> Action {
    action.fields.retain(|field| {
        let kind = field.value.kind();
        let is_allowed = policy.field_kinds.contains(&kind);
        if !is_allowed {
            *report.fields_not_allowed.entry(kind).or_default() += 1;
        }
        is_allowed
    });
    for field in &mut action.fields {
        cut_options(field, policy, report);
    }
    report.fields_over_limit += action.fields.len().saturating_sub(policy.fields_per_action);
    action.fields.truncate(policy.fields_per_action);
    let prefill = std::mem::take(&mut action.prefill);
    action.prefill =
        fitting_prefill(&action.action_id, prefill, &action.fields, &mut report.prefill_dropped);
    action
}

fn cut_options(field: &mut Field, policy: &UiPolicy, report: &mut Report) {
    match &mut field.value {
        FieldValue::Enum { options } => {
            report.enums_cut +=
                usize::from(cut_choices(options, policy.enum_options) == Cut::Something);
        }
        FieldValue::MultiEnum { options } => {
            let cut = cut_choices(options, policy.multi_enum_options);
            report.multi_enums_cut += usize::from(cut == Cut::Something);
        }
        FieldValue::String
        | FieldValue::Text
        | FieldValue::Integer
        | FieldValue::Number
        | FieldValue::Boolean => {}
    }
}

fn cut_choices(options: &mut Vec<Choice>, limit: usize) -> Cut {
    let cut = if options.len() > limit { Cut::Something } else { Cut::Nothing };
    options.truncate(limit);
    cut
}

/// Makes room for the notices, and cuts the payload to its size: outputs from the end, then actions, then notices.
///
/// Whatever is dropped changes the notices, whose number and size count too; this repeats until nothing is dropped.
fn fit_payload(
    mut outputs: Vec<Output>,
    mut actions: Vec<Action>,
    policy: &UiPolicy,
    mut report: Report,
) -> UiPayload {
    let output_bytes: Vec<usize> = outputs.iter().map(json_bytes).collect();
    let action_bytes: Vec<usize> = actions.iter().map(json_bytes).collect();
    loop {
        let mut notices = report.notices(policy);
        notices.truncate(policy.outputs);
        let room = policy.outputs - notices.len();
        if outputs.len() > room {
            report.outputs_over_limit += outputs.len() - room;
            outputs.truncate(room);
            continue;
        }
        let mut sizes = PayloadSizes {
            outputs: output_bytes[..outputs.len()].to_vec(),
            notices: notices.iter().map(json_bytes).collect(),
            actions: action_bytes[..actions.len()].to_vec(),
        };
        sizes.shrink_to(policy.payload_bytes);
        if sizes.outputs.len() < outputs.len() || sizes.actions.len() < actions.len() {
            outputs.truncate(sizes.outputs.len());
            actions.truncate(sizes.actions.len());
            report.payload_was_cut = true;
            continue;
        }
        notices.truncate(sizes.notices.len());
        outputs.append(&mut notices);
        return UiPayload::new(outputs, actions);
    }
}

/// The bytes of each part of a payload.
struct PayloadSizes {
    outputs: Vec<usize>,
    notices: Vec<usize>,
    actions: Vec<usize>,
}

impl PayloadSizes {
    fn shrink_to(&mut self, bytes: usize) {
        let empty = json_bytes(&UiPayload::new(Vec::new(), Vec::new()));
        while self.total(empty) > bytes {
            let has_popped =
                self.outputs.pop().or_else(|| self.actions.pop()).or_else(|| self.notices.pop());
            if has_popped.is_none() {
                return;
            }
        }
    }

    fn total(&self, empty: usize) -> usize {
        let outputs = self.outputs.len() + self.notices.len();
        let commas = outputs.saturating_sub(1) + self.actions.len().saturating_sub(1);
        let parts = self.outputs.iter().chain(&self.notices).chain(&self.actions);
        empty + commas + parts.sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
