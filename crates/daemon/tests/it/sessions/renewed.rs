//! A stream whose token expires, and the output that its client reads again with another token.

use model::units::Timestamp;
use serde_json::json;

use super::{SESSIONS, ask, ensure, text};
use crate::{exec::Wire, sandboxed::Sandboxed};

/// Returns a copy of a token that expires after so many seconds.
fn expiring(sandboxed: &Sandboxed, token: &str, seconds: i64) -> String {
    let mut claims = sandboxed.tokens.read(token).unwrap();
    let now: jiff::Timestamp = daemon::clock::stamp().parse().unwrap();
    claims.issued_at = Timestamp::from_millis(claims.issued_at.as_millis() - 100_000);
    claims.expires_at = Timestamp::from_millis((now.as_second() + seconds) * 1000);
    sandboxed.tokens.sign(&claims).unwrap().reveal().to_owned()
}

#[tokio::test]
async fn output_of_a_stream_whose_token_expired_is_read_again_with_a_refreshed_token() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let session = ensure(daemon, "thr_1").await;
    let (id, sandbox) = (text(&session, "/session_id"), text(&session, "/sandbox/id"));
    let sandbox_id = sandbox.parse().unwrap();
    let brief = expiring(&sandboxed, text(&session, "/token"), 2);
    let path = "/v1/exec/ws";
    let mut cut = Wire::open(daemon, &sandbox_id, path, Some(&brief)).await;
    let command = "echo one; until [ -e /workspace/go ]; do sleep 0.1; done; echo two";
    cut.send(json!({"type": "start", "command": command, "exec_id": "my-command"})).await;
    assert_eq!(cut.until("stdout").await["data"], "one\n");
    assert_eq!(cut.closed().await, Some(4401));

    let refreshed = ask(daemon, "POST", &format!("{SESSIONS}/{id}/refresh")).await.json();
    let token = text(&refreshed, "/token");
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let touch = json!({"command": "touch /workspace/go"}).to_string();
    let touched = daemon.ask("POST", &format!("/dp/{sandbox}/v1/exec"), &headers, &touch).await;
    assert_eq!(touched.status, 200, "{}", touched.body);
    let mut resumed = Wire::open(daemon, &sandbox_id, path, Some(token)).await;
    let rest = json!({"type": "start", "exec_id": "my-command", "stdout_offset": 4});
    resumed.send(rest).await;
    let (stdout, _, exit) = resumed.rest().await;
    assert_eq!((stdout.as_str(), &exit["exit_code"]), ("two\n", &json!(0)));
    let path = format!("/dp/{sandbox}/v1/exec/my-command/stdout?offset=0");
    assert_eq!(daemon.ask("GET", &path, &headers, "").await.body, "one\ntwo\n");
}
