//! `ringfence mcp`, as an agent's program starts it.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::command::{Server, ringfence};

/// Gives a command these lines; returns the messages that it answers.
fn talk(mut command: Command, lines: &[Value]) -> Vec<Value> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for line in lines {
        // A text is sent as it is, to say what is no message.
        let text = line.as_str().map_or_else(|| line.to_string(), str::to_owned);
        writeln!(stdin, "{text}").unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut answers: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    answers.sort_by_key(|answer| answer["id"].to_string());
    answers
}

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[test]
fn lines_are_answered_and_a_server_that_is_not_there_is_told() {
    let server = Server::start();
    let code = json!({"language": "shell", "code": "echo $((6 * 7))"});
    let lines = [
        request(1, "tools/list", &json!({})),
        request(2, "tools/call", &json!({"name": "run_code", "arguments": code})),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!("not a message"),
        request(3, "no/such", &json!({})),
    ];
    let (url, data) = (server.url.clone(), server.data().to_owned());
    let flags = ["mcp", "--url", &url, "--data", &data];
    let answers = talk(ringfence(&flags), &lines);
    assert_eq!(answers.len(), 4, "{answers:#?}");
    assert_eq!(answers[0]["result"]["tools"].as_array().unwrap().len(), 12);
    assert_eq!(answers[1]["result"]["structuredContent"]["stdout"], "42\n");
    assert_eq!(answers[2]["error"]["code"], -32601);
    assert_eq!((&answers[3]["id"], &answers[3]["error"]["code"]), (&Value::Null, &(-32700).into()));
    let mut wrong = ringfence(&flags);
    wrong.env("RINGFENCE_API_KEY", "rf_wrong");
    let answers = talk(wrong, &[request(1, "tools/list", &json!({}))]);
    let message = answers[0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("UNAUTHENTICATED"), "{message}");
    // Its key is there as long as its directory.
    let (_, _directory) = server.stop();
    let answers = talk(ringfence(&flags), &[request(1, "ping", &json!({}))]);
    let message = answers[0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("nothing answers at"), "{message}");
}
