//! Commands whose program is not found or cannot be executed: 127 and 126 on every surface, with the reason.

use api::agbox::v1;
use serde_json::{Value, json};

use crate::{
    exec::{Ground, events},
    mcp::call,
    sandboxed::ended,
    sessions::{ensure, text},
};

/// A program, its exit code, and what is said of it.
const ROWS: [(&str, i32, &str); 2] =
    [("/no/such/program", 127, "command not found"), ("/etc/passwd", 126, "cannot be executed")];

fn assert_says(answer: &Value, pointer: &str, why: &str) {
    assert!(text(answer, pointer).contains(why), "{answer}");
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_126_or_127_over_http() {
    let ground = Ground::new().await;
    for (program, code, why) in ROWS {
        let answer = ground.ask("POST", "/v1/exec", &json!({"command": [program]})).await.json();
        let told = (&answer["reason"], &answer["exit_code"]);
        assert_eq!(told, (&json!("not_started"), &json!(code)));
        assert_says(&answer, "/message", why);
        // LangSmith's clients name the shell, which then is the program that is not there.
        let asked = json!({"command": "true", "shell": program});
        let answer = ground.ask("POST", "/execute", &asked).await.json();
        assert_eq!(answer["exit_code"], code, "{answer}");
        assert_says(&answer, "/stderr", why);
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_126_or_127_over_websockets() {
    let ground = Ground::new().await;
    for (program, code, why) in ROWS {
        let mut session = ground.open("/v1/exec/ws").await;
        session.send(json!({"type": "start", "command": [program]})).await;
        let (_, _, exit) = session.rest().await;
        let told = (&exit["reason"], &exit["exit_code"]);
        assert_eq!(told, (&json!("not_started"), &json!(code)), "{exit}");
        assert_says(&exit, "/message", why);
        let mut langsmith = ground.open("/execute/ws").await;
        langsmith.send(json!({"type": "execute", "command": "true", "shell": program})).await;
        let (_, _, exit) = langsmith.rest().await;
        assert_eq!((&exit["type"], &exit["exit_code"]), (&json!("exit"), &json!(code)), "{exit}");
        assert_says(&exit, "/message", why);
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_126_or_127_over_event_streams() {
    let ground = Ground::new().await;
    for (program, code, why) in ROWS {
        let asked = json!({"command": "true", "shell": program});
        let told = events(&ground.stream("/execute/stream/start", &asked).await);
        let (last, data) = told.last().unwrap();
        assert_eq!((last.as_str(), &data["exit_code"]), ("exit", &json!(code)), "{told:?}");
        assert_says(data, "/message", why);
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_126_or_127_over_grpc() {
    let ground = Ground::new().await;
    let mut client = ground.sandboxed.local().await;
    for (program, code, why) in ROWS {
        let request = v1::CreateExecRequest {
            sandbox_id: ground.id.to_string(),
            command: vec![program.to_owned()],
            ..v1::CreateExecRequest::default()
        };
        let exec = client.create_exec(request).await.unwrap().into_inner().exec_id;
        let end = ended(&mut client, ground.id.as_str(), &exec).await;
        assert_eq!((end.state(), end.exit_code), (v1::ExecState::Failed, code));
        assert!(end.error.contains(why), "{end:?}");
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_126_or_127_over_mcp() {
    let ground = Ground::new().await;
    let daemon = ground.daemon();
    let session = ensure(daemon, "thr_1").await;
    for (program, code, _) in ROWS {
        let asked = json!({"session_id": text(&session, "/session_id"), "command": program});
        let answer = call(daemon, &daemon.key, "exec", asked).await;
        assert_eq!(answer["structuredContent"]["exit_code"], code, "{answer}");
    }
    // Those were the shell's own exit codes. This is the server's: no shell is started in a folder that is not there.
    let asked = json!({"session_id": text(&session, "/session_id"), "command": "true", "cwd": "/no/such/folder"});
    let answer = call(daemon, &daemon.key, "exec", asked).await;
    assert_eq!(answer["structuredContent"]["exit_code"], 126, "{answer}");
    assert_says(&answer, "/structuredContent/message", "cannot enter the working directory");
}
