//! Sandboxes and events as they are shown: in a table, on a line, as JSON.

use std::{collections::BTreeMap, time::SystemTime};

use client::sandboxes::record::{Event, Failure, Sandbox};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Returns a sandbox as JSON, with the names of the protocol.
pub(crate) fn sandbox_json(sandbox: &Sandbox) -> Value {
    let Sandbox { name, state, sequence, image, labels, created_at, state_changed_at, error } =
        sandbox;
    json!({
        "sandbox_id": name,
        "state": state.word(),
        "image": image,
        "labels": labels,
        "created_at": stamp(*created_at),
        "state_changed_at": stamp(*state_changed_at),
        "last_event_sequence": sequence,
        "error_code": error.as_ref().map(|error| &error.code),
        "error_message": error.as_ref().map(|error| &error.message),
    })
}

/// Returns an event as JSON, with the names of the protocol. What it does not have is null.
pub(crate) fn event_json(event: &Event) -> Value {
    let (exec, error) = (event.exec.as_ref(), event.error.as_ref());
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "sandbox_id": event.sandbox,
        "sequence": event.sequence,
        "event_type": event.kind,
        "occurred_at": stamp(event.occurred_at),
        "sandbox_state": event.state.word(),
        "phase": text(&event.phase),
        "reason": text(&event.reason),
        "exec_id": exec.map(|exec| &exec.id),
        "exec_state": exec.map(|exec| exec.state.word()),
        "exit_code": exec.and_then(|exec| exec.exit_code),
        "companion": event.companion,
        "error_code": error.map(|error| &error.code),
        "error_message": error.map(|error| &error.message),
    })
}

/// Writes an event on a line: sequence, time, what happened, and its details.
pub(crate) fn event_line(event: &Event) -> String {
    // What the protocol has no type for has its name in the phase.
    let (kind, phase) = match (event.kind, event.phase.as_str()) {
        ("EVENT_TYPE_UNSPECIFIED", phase) if !phase.is_empty() => (phase, ""),
        (kind, phase) => (kind, phase),
    };
    let mut details = Vec::new();
    if let Some(exec) = &event.exec {
        details.push(exec.id.clone());
        details.extend(exec.exit_code.map(|code| format!("exit code {code}")));
    }
    details.extend(event.companion.clone());
    details.extend([phase, &event.reason].into_iter().map(str::to_owned));
    // An exit code says it all.
    let is_said = event.exec.as_ref().is_some_and(|exec| exec.exit_code.is_some());
    details.extend(event.error.as_ref().filter(|_| !is_said).map(failure));
    details.retain(|detail| !detail.is_empty());
    let (sequence, time) = (event.sequence, stamp(event.occurred_at));
    let line = format!("{sequence:>4}  {time}  {kind:<24}  {}", plain(&details.join("  ")));
    line.trim_end().to_owned()
}

/// Writes sandboxes as a table, whose columns are as wide as they must be.
pub(crate) fn table(sandboxes: &[Sandbox], now: Timestamp) -> Vec<String> {
    let head = ["NAME", "STATUS", "CREATED", "IMAGE", "LABELS", "ERROR"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(head)
        .chain(sandboxes.iter().map(|sandbox| {
            [
                sandbox.name.clone(),
                sandbox.state.word().to_owned(),
                ago(sandbox.created_at, now),
                sandbox.image.clone(),
                pairs(&sandbox.labels),
                sandbox.error.as_ref().map(failure).unwrap_or_default(),
            ]
            .map(|cell| plain(&cell))
        }))
        .collect();
    columns(&rows)
}

/// Writes rows as columns that are as wide as they must be.
pub(crate) fn columns<const COUNT: usize>(rows: &[[String; COUNT]]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..COUNT).map(width).collect();
    let line = |row: &[String; COUNT]| {
        let cells = row.iter().zip(&widths);
        let cells: String = cells.map(|(cell, width)| format!("{cell:<width$}  ")).collect();
        cells.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn pairs(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

fn failure(error: &Failure) -> String {
    match (error.code.as_str(), error.message.as_str()) {
        (code, "") => code.to_owned(),
        ("", message) => message.to_owned(),
        (code, message) => format!("{code}: {message}"),
    }
}

/// Labels and errors may hold what programs wrote, and nobody's terminal is theirs to drive.
pub(crate) fn plain(text: &str) -> String {
    let shown = |it: char| if it.is_control() { char::REPLACEMENT_CHARACTER } else { it };
    text.chars().map(shown).collect()
}

fn stamp(time: SystemTime) -> String {
    format!("{:.3}", Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH))
}

fn ago(time: SystemTime, now: Timestamp) -> String {
    let time = Timestamp::try_from(time).unwrap_or(now);
    let seconds = now.duration_since(time).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use client::sandboxes::record::{ExecChange, ExecState, State};

    use super::*;

    fn sandbox() -> Sandbox {
        Sandbox {
            name: "demo".to_owned(),
            state: State::Failed,
            sequence: 4,
            image: "host".to_owned(),
            labels: [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "\u{1b}[2J".to_owned())]
                .into(),
            created_at: UNIX_EPOCH,
            state_changed_at: UNIX_EPOCH + Duration::from_secs(1),
            error: Some(Failure { code: "CONTAINER_OOM".to_owned(), message: "full".to_owned() }),
        }
    }

    fn event(kind: &'static str) -> Event {
        Event {
            sandbox: "demo".to_owned(),
            sequence: 7,
            kind,
            occurred_at: UNIX_EPOCH,
            state: State::Ready,
            phase: String::new(),
            reason: String::new(),
            exec: None,
            companion: None,
            error: None,
        }
    }

    #[test]
    fn the_table_is_as_wide_as_it_must_be_and_drives_no_terminal() {
        let now = Timestamp::from_second(180).unwrap();
        let expected = [
            "NAME  STATUS  CREATED    IMAGE  LABELS      ERROR",
            "demo  FAILED  3 min ago  host   a=1,b=\u{fffd}[2J  CONTAINER_OOM: full",
        ];
        assert_eq!(table(&[sandbox()], now), expected);
        assert_eq!(table(&[], now), ["NAME  STATUS  CREATED  IMAGE  LABELS  ERROR"]);
    }

    #[test]
    fn ages_are_told_in_the_unit_that_fits() {
        let at = |seconds| ago(UNIX_EPOCH, Timestamp::from_second(seconds).unwrap());
        let told = [-5, 59, 60, 3600, 172_799, 172_800].map(at);
        let expected = ["0 s ago", "59 s ago", "1 min ago", "1 h ago", "47 h ago", "2 days ago"];
        assert_eq!(told, expected);
    }

    #[test]
    fn the_fields_of_json_are_those_that_are_promised() {
        let fields = |value: &Value| {
            let fields = value.as_object().into_iter().flat_map(serde_json::Map::keys);
            fields.cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            fields(&sandbox_json(&sandbox())),
            "created_at error_code error_message image labels last_event_sequence sandbox_id \
             state state_changed_at"
        );
        assert_eq!(
            fields(&event_json(&event("SANDBOX_READY"))),
            "companion error_code error_message event_type exec_id exec_state exit_code \
             occurred_at phase reason sandbox_id sandbox_state sequence"
        );
    }

    #[test]
    fn an_event_is_one_line_with_what_it_tells() {
        let exec = ExecChange { id: "ex_1".into(), state: ExecState::Failed, exit_code: Some(3) };
        let error = Some(Failure { code: "EXEC_RUN_FAILED".into(), message: "code 3".into() });
        let failed = Event { exec: Some(exec), error, ..event("EXEC_FAILED") };
        let start = "   7  1970-01-01T00:00:00.000Z  ";
        assert_eq!(event_line(&failed), format!("{start}{:<24}  ex_1  exit code 3", "EXEC_FAILED"));
        let ours = Event { phase: "frozen".into(), ..event("EVENT_TYPE_UNSPECIFIED") };
        assert_eq!(event_line(&ours), format!("{start}frozen"));
        assert_eq!(event_line(&event("SANDBOX_READY")), format!("{start}SANDBOX_READY"));
    }
}
