//! What was left out of a tool's result, and the system notices that say so.

use std::{collections::BTreeMap, fmt::Display};

use crate::tool::{
    contract::{FieldKind, NoticeLevel, Output, OutputKind},
    policy::UiPolicy,
    prefill::DroppedPrefill,
};

/// Counts what was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub state_was_cut: bool,
    pub state_keys_dropped: usize,
    pub vega_lite_blocked: usize,
    pub outputs_not_allowed: BTreeMap<OutputKind, usize>,
    pub outputs_over_limit: usize,
    pub notices_cut: usize,
    pub markdown_cut: usize,
    pub html_cut: usize,
    pub tables_cut: usize,
    pub json_cut: usize,
    pub json_dropped: usize,
    pub actions_over_limit: usize,
    pub fields_not_allowed: BTreeMap<FieldKind, usize>,
    pub fields_over_limit: usize,
    pub enums_cut: usize,
    pub multi_enums_cut: usize,
    pub prefill_dropped: Vec<DroppedPrefill>,
    pub payload_was_cut: bool,
}

/// What every system notice begins with.
pub const NOTICE_PREFIX: &str = "System notice: ";
/// How many dropped prefill values a notice names.
const EXAMPLES: usize = 3;

impl Report {
    /// Returns the notices, in a fixed order.
    pub fn notices(&self, policy: &UiPolicy) -> Vec<Output> {
        let mut notices = Vec::new();
        let mut say = |message: String| notices.push(notice(&message));
        if self.state_was_cut {
            say("Values of the state were cut to the limits for JSON.".to_owned());
        }
        if self.state_keys_dropped > 0 {
            let (bytes, dropped) = (policy.state_bytes, self.state_keys_dropped);
            say(format!("The state was cut to {bytes} bytes (keys dropped: {dropped})."));
        }
        if self.vega_lite_blocked > 0 {
            say(format!("Charts (vega_lite) are blocked (dropped: {}).", self.vega_lite_blocked));
        }
        for (kind, count) in &self.outputs_not_allowed {
            say(format!("Outputs of kind {} are not allowed (dropped: {count}).", kind.as_str()));
        }
        if self.outputs_over_limit > 0 {
            let (limit, dropped) = (policy.outputs, self.outputs_over_limit);
            say(format!("A run shows at most {limit} outputs (dropped: {dropped})."));
        }
        let mut say_cut = |count: usize, what: &str, limit: &dyn Display| {
            if count > 0 {
                say(format!("Outputs of kind {what} were cut to {limit} (outputs cut: {count})."));
            }
        };
        say_cut(self.notices_cut, "notice", &format_args!("{} bytes", policy.notice_bytes));
        say_cut(self.markdown_cut, "markdown", &format_args!("{} bytes", policy.markdown_bytes));
        say_cut(self.html_cut, "html_sandboxed", &format_args!("{} bytes", policy.html_bytes));
        let table = &policy.table;
        let limits = format!(
            "{} rows, {} columns and {} bytes per cell",
            table.rows, table.columns, table.cell_bytes
        );
        say_cut(self.tables_cut, "table", &limits);
        say_cut(self.json_cut, "json", &"the limits for JSON");
        if self.json_dropped > 0 {
            let (bytes, dropped) = (policy.json.bytes, self.json_dropped);
            say(format!(
                "Outputs of kind json could not be cut to {bytes} bytes (dropped: {dropped})."
            ));
        }
        if self.actions_over_limit > 0 {
            let (limit, dropped) = (policy.actions, self.actions_over_limit);
            say(format!("A run offers at most {limit} actions (dropped: {dropped})."));
        }
        for (kind, count) in &self.fields_not_allowed {
            say(format!("Fields of kind {} are not allowed (dropped: {count}).", kind.as_str()));
        }
        if self.fields_over_limit > 0 {
            let (limit, dropped) = (policy.fields_per_action, self.fields_over_limit);
            say(format!("An action has at most {limit} fields (dropped: {dropped})."));
        }
        let mut say_options = |count: usize, kind: FieldKind, limit: usize| {
            if count > 0 {
                let kind = kind.as_str();
                say(format!(
                    "Fields of kind {kind} were cut to {limit} options (fields cut: {count})."
                ));
            }
        };
        say_options(self.enums_cut, FieldKind::Enum, policy.enum_options);
        say_options(self.multi_enums_cut, FieldKind::MultiEnum, policy.multi_enum_options);
        if !self.prefill_dropped.is_empty() {
            say(self.prefill_message());
        }
        if self.payload_was_cut {
            say(format!("The result was cut to {} bytes.", policy.payload_bytes));
        }
        notices
    }

    fn prefill_message(&self) -> String {
        let mut dropped = self.prefill_dropped.clone();
        dropped.sort();
        let examples: Vec<String> =
            dropped.iter().take(EXAMPLES).map(ToString::to_string).collect();
        let more = match dropped.len().saturating_sub(EXAMPLES) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        format!("Prefill values were dropped ({}): {}{more}.", dropped.len(), examples.join("; "))
    }
}

fn notice(message: &str) -> Output {
    Output::Notice { level: NoticeLevel::Warning, message: format!("{NOTICE_PREFIX}{message}") }
}
