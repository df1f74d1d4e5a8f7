//! Histories on disk, and the command that checks them.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
};

use history::{
    check::{check, check_file},
    entry::{Call, Doubt, Entry, Outcome, Output, Time, What},
    recorder::{self, ReadError, Recorder},
};
use tempfile::TempDir;

use crate::{simulation, tape};

/// Writes entries as a recorder would have.
fn write(directory: &TempDir, entries: &[Entry]) -> PathBuf {
    let path = directory.path().join("history.jsonl");
    let mut file = fs::File::create(&path).expect("a file can be made");
    for entry in entries {
        let line = serde_json::to_string(entry).expect("an entry is JSON");
        writeln!(file, "{line}").expect("a file can be written");
    }
    path
}

fn read(path: &Path) -> Result<Vec<Entry>, ReadError> {
    let mut entries = Vec::new();
    recorder::read(path, |_, entry| entries.push(entry.clone()))?;
    Ok(entries)
}

#[test]
fn a_history_is_read_as_it_was_written() {
    let directory = TempDir::new().unwrap();
    for seed in 0..20 {
        let entries = simulation::run(seed, 300);
        let path = write(&directory, &entries);
        assert_eq!(read(&path).unwrap(), entries);
        assert_eq!(check_file(&path).unwrap(), check(&entries));
    }
}

#[test]
fn entries_of_many_clients_stand_in_the_order_of_their_ends() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("history.jsonl");
    let recorder = Arc::new(Recorder::create(&path).unwrap());
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let recorder = Arc::clone(&recorder);
            thread::spawn(move || {
                for _ in 0..200 {
                    let start = recorder.now();
                    let what = What::Call {
                        call: Call::Get { sandbox: "box-1".into() },
                        outcome: Outcome::Unknown(Doubt::DeadlinePassed),
                    };
                    recorder.record(client, Some(1), start, what).unwrap();
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let entries = read(&path).unwrap();
    assert_eq!(entries.len(), 1600);
    assert!(entries.is_sorted_by_key(|entry| entry.end));
    assert!(check(&entries).is_clean());
}

#[test]
fn a_recorder_does_not_write_over_a_history() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("history.jsonl");
    Recorder::create(&path).unwrap().record(1, None, Time(0), What::Closed).unwrap();
    assert!(Recorder::create(&path).is_err());
    assert_eq!(read(&path).unwrap().len(), 1);
}

#[test]
fn a_last_line_without_its_end_is_passed_over() {
    let directory = TempDir::new().unwrap();
    let entries = tape::whole().entries;
    let path = write(&directory, &entries);
    let whole = fs::read(&path).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for length in last..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(read(&path).unwrap(), entries[..entries.len() - 1], "{length}");
    }
}

#[test]
fn a_line_that_is_no_entry_is_named() {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, &tape::whole().entries);
    let whole = fs::read_to_string(&path).unwrap();
    for wrong in ["", "{}", "nonsense", "{\"client\":-1}", "\0", "[[[[[["] {
        fs::write(&path, whole.replacen('\n', &format!("\n{wrong}\n"), 1)).unwrap();
        let error = read(&path).unwrap_err();
        assert!(matches!(error, ReadError::Line { line: 2, .. }), "{wrong:?}: {error:?}");
    }
}

#[test]
fn numbers_in_an_output_are_counted() {
    let of = |text: &str| Output::of_numbers("exec-1", text.as_bytes()).unwrap();
    let found = |text| (of(text).lines, of(text).wrong_line);
    assert_eq!(found(""), (0, None));
    assert_eq!(found("1\n2\n3\n"), (3, None));
    assert_eq!(found("1\n2\n3"), (2, None), "the last may be cut short");
    assert_eq!(found("1\n3\n"), (1, Some(2)));
    assert_eq!(found("1\n1\n2\n"), (1, Some(2)));
    assert_eq!(found("1\n\n2\n"), (1, Some(2)));
    assert_eq!(found("1\n7"), (1, Some(2)));
}

/// Runs the command that checks a file; returns its exit code and what it prints.
fn command(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_history")).args(arguments).output();
    let output = output.expect("the command runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("it prints text"))
}

#[test]
fn the_command_says_that_nothing_is_wrong() {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, &tape::whole().entries);
    let (code, text) = command(&["check", path.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("nothing is wrong\n"), "{text}");
    assert!(text.contains("1 kills") && text.ends_with("the run is closed\n"), "{text}");
}

#[test]
fn the_command_shows_the_lines_that_are_wrong() {
    let directory = TempDir::new().unwrap();
    let lost = tape::Tape::default().created().killed();
    let lost = lost.refused(tape::get(), history::entry::Refusal::NotFound);
    let path = write(&directory, &lost.entries);
    let (code, text) = command(&["check", path.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "acknowledged_is_kept (I1, I22)");
    assert_eq!(lines[2], "  box-1 was there and is not found any more");
    assert!(lines[3].starts_with("  1: {\"client\":1,"), "{text}");
    assert!(lines[4].starts_with("  3: ") && lines[4].contains("not_found"), "{text}");
    assert!(text.contains("\n1 × acknowledged_is_kept\n"), "{text}");
}

#[test]
fn the_command_says_what_it_cannot_read() {
    let (code, text) = command(&["check", "/nonexistent/history"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("/nonexistent/history"), "{text}");
    let (code, text) = command(&["judge"]);
    assert_eq!((code, text.as_str()), (Some(2), "usage: history check FILE\n"));
}
