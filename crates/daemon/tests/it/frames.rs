//! Rows W04 to W12, W16 and W17 over the wire. Every shape of bad frame is tested beside the
//! parser; here it is that answers come back, and what becomes of the connection.

use serde_json::{Value, json};

use crate::{
    peer::{Peer, TS, cancel, execute, ping},
    support::Daemon,
};

fn with(field: &str, value: Value) -> Value {
    let mut frame = execute("a", "start");
    frame[field] = value;
    frame
}

#[tokio::test]
async fn bad_frames_are_answered_with_their_code_and_id() {
    let daemon = Daemon::start().await;
    let too_long = "x".repeat((512 << 10) + 1);
    let mut limits = json!({"timeout_ms": 0, "memory_mb": 64});
    let zero = with("limits", limits.clone());
    limits = json!({"timeout_ms": 1000, "memory_mb": 1_u64 << 54});
    let huge = with("limits", limits.clone());
    limits = json!({"timeout_ms": 1000, "memory_mb": 15});
    let tiny = with("limits", limits.clone());
    limits = json!({"timeout_ms": 1000, "memory_mb": 64, "cpu_shares": 1});
    let shares = with("limits", limits);
    let rows = [
        (with("v", json!(2)), "INVALID_REQUEST", json!("a")),
        (with("v", json!(1.0)), "INVALID_REQUEST", json!("a")),
        (with("type", json!("ack")), "INVALID_REQUEST", json!("a")),
        (with("id", json!("")), "INVALID_REQUEST", Value::Null),
        (with("id", json!("x".repeat(129))), "INVALID_REQUEST", Value::Null),
        (with("ts", json!("yesterday")), "INVALID_REQUEST", json!("a")),
        (with("language", json!("rust")), "LANGUAGE_NOT_SUPPORTED", json!("a")),
        (with("language", json!("Script")), "LANGUAGE_NOT_SUPPORTED", json!("a")),
        (with("language", json!("../script")), "LANGUAGE_NOT_SUPPORTED", json!("a")),
        (with("language", json!(["script"])), "INVALID_REQUEST", json!("a")),
        (with("language", json!(7)), "INVALID_REQUEST", json!("a")),
        (with("code", json!(null)), "INVALID_REQUEST", json!("a")),
        (with("code", json!(too_long)), "INVALID_REQUEST", json!("a")),
        (with("env", json!({"A=": "x"})), "INVALID_REQUEST", json!("a")),
        (with("env", json!({"RINGFENCE_X": "x"})), "INVALID_REQUEST", json!("a")),
        (with("stdin", json!(7)), "INVALID_REQUEST", json!("a")),
        (with("limits", json!({})), "INVALID_REQUEST", json!("a")),
        (zero, "INVALID_REQUEST", json!("a")),
        (huge, "INVALID_REQUEST", json!("a")),
        (tiny, "INVALID_REQUEST", json!("a")),
        (shares, "INVALID_REQUEST", json!("a")),
        (with("network", json!("host")), "NETWORK_ERROR", json!("a")),
    ];
    for (frame, code, id) in rows {
        let mut peer = Peer::connect(&daemon).await;
        peer.send(&frame).await;
        let answer = peer.next().await;
        assert_eq!(
            (&answer["type"], &answer["code"], &answer["id"]),
            (&json!("error"), &json!(code), &id)
        );
        assert_eq!(answer["retryable"], json!(code == "NETWORK_ERROR"));
        // No ack came, the connection stays, and the id is still free.
        peer.run("a", "start").await;
        assert_eq!(peer.next().await["type"], "ack");
    }
    assert!(daemon.scripted.seen().iter().all(|execution| execution.code == "start"));
}

#[tokio::test]
async fn w05_three_frames_in_a_row_that_are_not_ours_close_the_connection() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    for frame in ["{", "[]"] {
        peer.send(frame).await;
        assert_eq!(peer.next().await["code"], "INVALID_REQUEST");
    }
    peer.send(ping()).await;
    assert_eq!(peer.next().await["type"], "pong");
    for frame in ["{}", "null", "nonsense"] {
        peer.send(frame).await;
        assert_eq!(peer.next().await["code"], "INVALID_REQUEST");
    }
    assert_eq!(peer.close_code().await, Some(4400));
}

#[tokio::test]
async fn mistakes_in_requests_do_not_close_the_connection() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    for _ in 0..10 {
        peer.send(with("limits", json!({}))).await;
        assert_eq!(peer.next().await["code"], "INVALID_REQUEST");
    }
    peer.run("a", "start").await;
    assert_eq!(peer.until_end("a").await.len(), 4);
}

#[tokio::test]
async fn w06_an_id_runs_once_on_a_connection() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    peer.run("a", "start\nhang").await;
    assert_eq!(peer.next().await["type"], "ack");
    assert_eq!(peer.next().await["status"], "running");
    peer.run("a", "start").await;
    let answer = peer.next().await;
    assert_eq!(answer["code"], "INVALID_REQUEST");
    assert!(answer["message"].as_str().unwrap().contains("duplicate id"), "{answer}");
    peer.send(cancel("a")).await;
    peer.until_end("a").await;
    peer.run("a", "start").await;
    assert_eq!(peer.next().await["code"], "INVALID_REQUEST");
    assert_eq!(daemon.scripted.seen().len(), 1);
    // Ids are a connection's own.
    let mut other = Peer::connect(&daemon).await;
    other.run("a", "start").await;
    assert_eq!(other.next().await["type"], "ack");
}

#[tokio::test]
async fn w07_skew_is_reported_and_not_refused() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    peer.send(with("ts", json!("2001-01-01T00:00:00.000Z"))).await;
    let ack = peer.next().await;
    assert!(ack["skew_ms"].as_i64().unwrap() > 700_000_000_000, "{ack}");
    assert_eq!(ack["grace_ms"], 200);
}

#[tokio::test]
async fn w16_cancelling_what_does_not_run_is_an_error() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    let mut other = Peer::connect(&daemon).await;
    other.run("foreign", "start\nhang").await;
    assert_eq!(other.next().await["type"], "ack");
    peer.run("finished", "start").await;
    peer.until_end("finished").await;
    for id in ["unknown", "foreign", "finished"] {
        peer.send(cancel(id)).await;
        let answer = peer.next().await;
        assert_eq!((&answer["code"], &answer["id"]), (&json!("UNKNOWN_EXECUTION"), &json!(id)));
        assert_eq!(answer["retryable"], false);
    }
}

#[tokio::test]
async fn w17_a_ping_is_answered_with_the_load_and_pings_are_rate_limited() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    peer.send(json!({"v": 1, "type": "ping", "ts": TS, "id": "x", "more": [1]})).await;
    let expected = json!({
        "v": 1, "type": "pong", "load": {"active_executions": 3, "queue_depth": 1},
    });
    assert_eq!(peer.next().await, expected);
    let mut flood = Peer::connect(&daemon).await;
    for _ in 0..10_000 {
        use futures_util::SinkExt as _;
        let message = tokio_tungstenite::tungstenite::Message::text(ping().to_string());
        if flood.socket.feed(message).await.is_err() {
            break;
        }
    }
    // A connection that is closed while we still write may break before we read the reason.
    let code = flood.close_code().await;
    assert!(matches!(code, Some(4429)), "{code:?}");
}
