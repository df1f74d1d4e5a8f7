//! Output that was removed after the end of its command, as clients are told of it.

use engine::sandboxes::Defaults;
use model::units::ByteSize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    exec::{Ground, mint, ready},
    sandboxed::Sandboxed,
    support::{PATIENCE, settings},
};

#[tokio::test]
async fn output_that_is_not_kept_is_said_to_be_gone_and_how_it_ended_is_still_told() {
    let defaults = Defaults { outputs: ByteSize::mib(1), ..Defaults::default() };
    let sandboxed = Sandboxed::start_by(None, settings(), defaults).await;
    let id = ready(&sandboxed).await;
    let token = mint(sandboxed.daemon(), &id, "process").await;
    let ground = Ground { sandboxed, id, token };
    let command = |id: &str| json!({"command": "seq 1 200000; exit 4", "exec_id": id});
    let ran = ground.ask("POST", "/v1/exec", &command("first")).await.json();
    assert_eq!((&ran["exit_code"], &ran["stdout_omitted"]), (&json!(4), &json!(240_319)));
    ground.ask("POST", "/v1/exec", &command("second")).await;
    let gone = async {
        while ground.ask("GET", "/v1/exec/first/stdout", &Value::Null).await.status == 200 {}
    };
    timeout(PATIENCE, gone).await.unwrap();
    let gone = (410, "OUTPUT_GONE".to_owned());
    for stream in ["stdout", "stderr"] {
        let answer = ground.ask("GET", &format!("/v1/exec/first/{stream}"), &Value::Null).await;
        assert_eq!(answer.problem(), gone);
    }
    // Sent again it is the same command, which is not run for another output.
    assert_eq!(ground.ask("POST", "/v1/exec", &command("first")).await.problem(), gone);
    let shown = ground.ask("GET", "/v1/exec/first", &Value::Null).await.json();
    assert_eq!((&shown["exit_code"], shown.get("stdout")), (&json!(4), None), "{shown}");
    let mut wire = ground.open("/v1/exec/ws").await;
    wire.send(json!({"type": "start", "exec_id": "first"})).await;
    assert_eq!(wire.until("error").await["code"], "OUTPUT_GONE");
    assert_eq!(wire.until("exit").await["exit_code"], 4);
    assert_eq!(wire.closed().await, Some(1000));
    let mut langsmith = ground.open("/execute/ws").await;
    langsmith.send(json!({"type": "reconnect", "command_id": "first"})).await;
    assert_eq!(langsmith.until("error").await["error_type"], "CommandError");
    let second = ground.ask("GET", "/v1/exec/second/stdout?offset=2", &Value::Null).await;
    assert_eq!((second.status, second.head.contains("x-output-start: 2")), (200, true));
}
