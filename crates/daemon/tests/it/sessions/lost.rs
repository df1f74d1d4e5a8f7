//! Sandboxes whose processes are lost: a session keeps its sandbox, and the sandbox its files.

use rustix::process::{Signal, kill_process};
use serde_json::json;

use super::{SESSIONS, ask, ensure, text};
use crate::{sandboxed::Sandboxed, support::Daemon};

/// Runs a command with the token of a session. Returns what it printed.
async fn run(daemon: &Daemon, session: &serde_json::Value, command: &str) -> String {
    let path = format!("/dp/{}/v1/execute", text(session, "/sandbox/id"));
    let bearer = format!("Bearer {}", text(session, "/token"));
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let answer =
        daemon.ask("POST", &path, &headers, &json!({"command": command}).to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["stdout"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_session_whose_sandbox_lost_its_supervisor_shows_why_and_ensure_starts_it_with_its_files()
{
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let before = ensure(daemon, "thr_lost").await;
    let sandbox = text(&before, "/sandbox/id").to_owned();
    run(daemon, &before, "echo kept > /workspace/file").await;
    kill_process(sandboxed.supervisor_of(&sandbox), Signal::KILL).unwrap();
    sandboxed.until(&sandbox, |life| life.reason() == Some("supervisor_lost")).await;

    let shown =
        ask(daemon, "GET", &format!("{SESSIONS}/{}", text(&before, "/session_id"))).await.json();
    assert_eq!(text(&shown, "/binding/state"), "suspended");
    assert_eq!(text(&shown, "/binding/reason"), "supervisor_lost");

    let after = ensure(daemon, "thr_lost").await;
    for field in ["/session_id", "/sandbox/id", "/binding/generation"] {
        assert_eq!(after.pointer(field), before.pointer(field), "{field}");
    }
    assert_eq!(text(&after, "/binding/state"), "active");
    assert_eq!(after.pointer("/binding/reason"), None);
    assert_eq!(run(daemon, &after, "cat /workspace/file").await, "kept\n");
}

#[tokio::test]
async fn using_a_session_whose_sandbox_lost_its_supervisor_starts_it_with_its_files() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let session = ensure(daemon, "thr_used").await;
    let sandbox = text(&session, "/sandbox/id").to_owned();
    run(daemon, &session, "echo kept > /workspace/file").await;
    kill_process(sandboxed.supervisor_of(&sandbox), Signal::KILL).unwrap();
    sandboxed.until(&sandbox, |life| life.reason() == Some("supervisor_lost")).await;
    assert_eq!(run(daemon, &session, "cat /workspace/file").await, "kept\n");
}
