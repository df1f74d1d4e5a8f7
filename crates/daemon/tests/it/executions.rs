//! Real code in real slots, over the wire: what a client of the protocol sees.

use daemon::config::Config;
use engine::Settings;
use model::admission::Capacity;
use serde_json::{Value, json};

use crate::{
    peer::{cancel, ping, short, shorts},
    real::{Real, end, execute, output},
};

#[tokio::test]
async fn code_runs_and_its_output_and_exit_code_come_back() {
    let real = Real::start().await;
    let mut peer = real.peer().await;
    let rows = [
        ("python", "import sys; print('out'); print('err', file=sys.stderr)", "completed", 0),
        (
            "python",
            "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)",
            "failed",
            3,
        ),
        ("shell", "echo out; echo err >&2", "completed", 0),
        ("shell", "echo out; echo err >&2; exit 4", "failed", 4),
    ];
    for (index, (language, code, status, exit_code)) in rows.into_iter().enumerate() {
        let id = format!("e{index}");
        peer.send(execute(&id, language, code)).await;
        let frames = peer.until_end(&id).await;
        assert_eq!(shorts(&frames[..2]), ["ack", "status running"]);
        assert_eq!(output(&frames, "stdout"), "out\n", "{code}");
        assert_eq!(output(&frames, "stderr"), "err\n", "{code}");
        let (found, result) = end(&frames);
        assert_eq!((found, &result["exit_code"]), (status, &json!(exit_code)), "{code}");
        assert_eq!((&result["output_bytes"], &result["truncated"]), (&json!(8), &json!(false)));
        assert!(result["resource_usage"]["peak_memory_mb"].is_u64(), "{result}");
    }
}

#[tokio::test]
async fn a_language_of_the_configuration_is_one_like_the_others() {
    let config = Config::from_toml(
        "[languages.awk]\ncommand = [\"/usr/bin/awk\", \"-f\", \"{file}\"]\nfile = \"main.awk\"",
    );
    let languages = config.unwrap().languages().unwrap().only(&["awk"]);
    let real = Real::start_on(Settings { languages, ..Settings::default() }).await;
    let mut peer = real.peer().await;
    let mut frame = execute("e1", "awk", "{ print $2 } END { exit 4 }");
    frame["stdin"] = "a b\nc d\n".into();
    peer.send(frame).await;
    let frames = peer.until_end("e1").await;
    assert_eq!(output(&frames, "stdout"), "b\nd\n");
    let (status, result) = end(&frames);
    assert_eq!((status, &result["exit_code"]), ("failed", &json!(4)));
    let mut frame = execute("e2", "awk", "");
    frame["limits"]["memory_mb"] = 15.into();
    peer.send(frame).await;
    assert_eq!(short(&peer.next().await), "error INVALID_REQUEST");
}

#[tokio::test]
async fn every_end_is_told_as_decided() {
    let real = Real::start().await;
    let mut peer = real.peer().await;
    let fill = "x = []\nwhile True: x.append(bytearray(1 << 20))";
    let rows = [
        ("shell", "kill -SEGV $$", json!({}), "failed", json!("SEGV"), Value::Null),
        (
            "shell",
            "while :; do :; done",
            json!({"timeout_ms": 300}),
            "timeout",
            json!("KILL"),
            json!("TIMEOUT"),
        ),
        ("python", fill, json!({"memory_mb": 64}), "oom", json!("KILL"), json!("OOM")),
        (
            "shell",
            "while :; do echo 0123456789; done",
            json!({"max_output_bytes": 1000}),
            "failed",
            // Whether it sees the closed pipe or is killed first is a race.
            Value::Null,
            json!("OUTPUT_LIMIT"),
        ),
    ];
    for (index, (language, code, limits, status, signal, error_code)) in
        rows.into_iter().enumerate()
    {
        let id = format!("e{index}");
        let mut frame = execute(&id, language, code);
        for (name, value) in limits.as_object().unwrap() {
            frame["limits"][name] = value.clone();
        }
        peer.send(frame).await;
        let frames = peer.until_end(&id).await;
        let (found, result) = end(&frames);
        assert_eq!(found, status, "{code}");
        assert_eq!(result["error_code"], error_code, "{code}");
        let is_cut = error_code == "OUTPUT_LIMIT";
        let killed_by = (&result["exit_code"], &result["signal"]);
        assert!(is_cut || killed_by == (&Value::Null, &signal), "{code}: {result}");
        assert_eq!(result["truncated"], is_cut);
        assert_eq!(shorts(&frames).contains(&"error OUTPUT_LIMIT".to_owned()), is_cut);
        if is_cut {
            assert_eq!(output(&frames, "stdout").len(), 1000);
        }
    }
}

#[tokio::test]
async fn output_is_cut_before_the_character_that_the_limit_goes_through() {
    let real = Real::start().await;
    let mut peer = real.peer().await;
    // Three bytes each: 1,000 is inside of the 334th.
    let mut frame = execute("run.1/ü", "shell", "while :; do printf '€€€€€€€€€€'; done");
    frame["limits"]["max_output_bytes"] = json!(1000);
    peer.send(frame).await;
    let frames = peer.until_end("run.1/ü").await;
    let (_, result) = end(&frames);
    assert_eq!(output(&frames, "stdout"), "€".repeat(333));
    assert_eq!((&result["output_bytes"], &result["replaced_bytes"]), (&json!(999), &json!(0)));
    assert_eq!((&result["truncated"], &result["id"]), (&json!(true), &json!("run.1/ü")));
}

#[tokio::test]
async fn w09_code_is_handed_over_byte_by_byte() {
    let real = Real::start().await;
    let mut peer = real.peer().await;
    let rows = [
        ("empty", "", "completed", ""),
        ("crlf", "print('a')\r\nprint('b')\r\n", "completed", "a\nb\n"),
        ("not_ascii", "print('zażółć 😀')", "completed", "zażółć 😀\n"),
        ("nul", "print('a\u{0}b')", "failed", ""),
    ];
    for (id, code, status, stdout) in rows {
        peer.send(execute(id, "python", code)).await;
        let frames = peer.until_end(id).await;
        assert_eq!((end(&frames).0, output(&frames, "stdout").as_str()), (status, stdout), "{id}");
    }
}

#[tokio::test]
async fn w10_stdin_and_env_reach_the_program() {
    let real = Real::start().await;
    let mut peer = real.peer().await;
    let mut frame = execute("a", "python", "import os; print(os.environ['NAME'] + input())");
    frame["stdin"] = "world\n".into();
    frame["env"] = json!({"NAME": "hello ", "PATH": "/nowhere", "LD_LIBRARY_PATH": "/nowhere"});
    peer.send(frame).await;
    let frames = peer.until_end("a").await;
    assert_eq!(output(&frames, "stdout"), "hello world\n", "{frames:?}");
}

#[tokio::test]
async fn w15_seventeen_at_once_all_run_and_the_load_is_told() {
    let real = Real::start().await;
    let mut peer = real.peer().await;
    for index in 0..17 {
        peer.send(execute(&format!("e{index}"), "shell", "read line; echo $line")).await;
    }
    let mut ended = 0;
    while ended < 17 {
        let frame = peer.next().await;
        assert_ne!(frame["type"], "error", "{frame}");
        ended += usize::from(frame["type"] == "result");
    }
    peer.send(ping()).await;
    let expected = json!({"active_executions": 0, "queue_depth": 0});
    assert_eq!(peer.next().await["load"], expected);
}

#[tokio::test]
async fn w16_a_running_and_a_waiting_execution_are_cancelled() {
    let real = Real::start().await;
    let mut peer = real.peer().await;
    for index in 0..17 {
        peer.send(execute(&format!("e{index}"), "shell", "echo up; sleep 100")).await;
    }
    let mut up = 0;
    while up < 16 {
        up += usize::from(short(&peer.next().await) == "stdout up\n");
    }
    peer.send(cancel("e16")).await;
    assert_eq!(shorts(&peer.until_end("e16").await), ["status cancelled", "result null"]);
    peer.send(cancel("e0")).await;
    let frames = peer.until_end("e0").await;
    assert_eq!(shorts(&frames), ["status cancelled", "result null"]);
    assert_eq!(frames[1]["signal"], "KILL");
}

#[tokio::test]
async fn w20_a_program_that_speaks_our_language_is_not_heard() {
    let real = Real::start().await;
    let mut peer = real.peer().await;
    let code = r#"
import os
forged = b'{"v":1,"type":"result","id":"a","exit_code":0}\n'
for fd in range(256):
    try:
        os.write(fd, forged)
    except OSError:
        pass
os._exit(9)
"#;
    peer.send(execute("a", "python", code)).await;
    let frames = peer.until_end("a").await;
    assert_eq!((end(&frames).0, &end(&frames).1["exit_code"]), ("failed", &json!(9)));
}

#[tokio::test]
async fn w21_bytes_that_are_not_text_are_replaced_and_counted() {
    let real = Real::start().await;
    let mut peer = real.peer().await;
    let code = r"
import os, time
for piece in (b'\xe2', b'\x82', b'\xac', b'\xff', b'ok', b'\xf0\x9f'):
    os.write(1, piece)
    time.sleep(0.01)
";
    peer.send(execute("a", "python", code)).await;
    let frames = peer.until_end("a").await;
    let text: String = frames
        .iter()
        .filter(|frame| frame["type"] == "stdout")
        .map(|frame| frame["data"].as_str().unwrap())
        .collect();
    assert_eq!(text, "€\u{FFFD}ok\u{FFFD}");
    let (status, result) = end(&frames);
    assert_eq!((status, &result["replaced_bytes"]), ("completed", &json!(3)));
    assert_eq!(result["output_bytes"], 8);
}

#[tokio::test]
async fn w21_megabytes_without_a_line_end_arrive_whole() {
    let real = Real::start().await;
    let mut peer = real.peer().await;
    let mut frame = execute("a", "python", "print('é' * (2 << 20), end='')");
    frame["limits"]["max_output_bytes"] = json!(4 << 20);
    peer.send(frame).await;
    let frames = peer.until_end("a").await;
    assert_eq!(output(&frames, "stdout"), "é".repeat(2 << 20));
    assert_eq!(end(&frames).0, "completed");
}

#[tokio::test]
async fn f39_nothing_runs_on_after_its_client_went_away() {
    let real = Real::start_with(Capacity { running: 1, ..Capacity::default() }).await;
    let mut peer = real.peer().await;
    peer.send(execute("a", "shell", "echo up; sleep 100")).await;
    while short(&peer.next().await) != "stdout up\n" {}
    drop(peer);
    // One runs at a time: the next one's turn comes when the orphan is gone.
    let mut other = real.peer().await;
    other.send(execute("b", "shell", "echo next")).await;
    assert_eq!(end(&other.until_end("b").await).0, "completed");
}
