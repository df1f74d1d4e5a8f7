//! Executions over a connection, with an executor that follows scripts: order, ends, cancelling,
//! overload, slow and lost clients, revoked keys.

use std::time::Duration;

use futures_util::SinkExt as _;
use model::execution::{Freshness, StopReason};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    peer::{Peer, cancel, execute, ping, short, shorts},
    scripted::CAPACITY,
    support::{Daemon, PATIENCE, hasty, settings},
};

#[tokio::test]
async fn an_execution_is_told_from_ack_to_result() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    peer.run("exec_a1b2c3d4", "start\nout hello\nerr oops\nhex e2 82\nhex ac\nexit 3").await;
    let frames = peer.until_end("exec_a1b2c3d4").await;
    let id = "exec_a1b2c3d4";
    let expected = [
        json!({"v": 1, "type": "ack", "id": id, "grace_ms": 200, "skew_ms": frames[0]["skew_ms"]}),
        json!({"v": 1, "type": "status", "id": id, "status": "running"}),
        json!({"v": 1, "type": "stdout", "id": id, "data": "hello", "offset": 0, "n": 0}),
        json!({"v": 1, "type": "stderr", "id": id, "data": "oops", "offset": 0, "n": 1}),
        json!({"v": 1, "type": "stdout", "id": id, "data": "€", "offset": 5, "n": 2}),
        json!({"v": 1, "type": "status", "id": id, "status": "failed"}),
        json!({
            "v": 1, "type": "result", "id": id, "exit_code": 3, "duration_ms": 5,
            "resource_usage": {"peak_memory_mb": 3, "cpu_time_ms": 2},
            "truncated": false, "output_bytes": 12, "replaced_bytes": 0, "signal": null,
            "error_code": null,
        }),
    ];
    assert_eq!(frames, expected);
}

#[tokio::test]
async fn every_end_has_its_sequence() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    let rows: [(&str, &[&str]); 9] = [
        ("", &["status completed", "result 0"]),
        ("signal 11", &["status failed", "result null"]),
        ("oom\nsignal 9", &["status oom", "result null"]),
        ("stop deadline", &["status timeout", "result null"]),
        ("stop output", &["error OUTPUT_LIMIT", "status failed", "result null"]),
        ("hex ff", &["stdout \u{FFFD}", "status completed", "result 0"]),
        ("hex e2 82", &["stdout \u{FFFD}", "status completed", "result 0"]),
        ("break", &["error INTERNAL_ERROR"]),
        ("lost", &["error INTERNAL_ERROR"]),
    ];
    for (index, (script, expected)) in rows.into_iter().enumerate() {
        let id = format!("e{index}");
        peer.run(&id, format!("start\n{script}").trim_end()).await;
        let frames = shorts(&peer.until_end(&id).await);
        assert_eq!(frames[..2], ["ack", "status running"], "{script}");
        assert_eq!(frames[2..], *expected, "{script}");
    }
}

#[tokio::test]
async fn what_the_client_asks_for_is_what_is_submitted() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    let mut frame = execute("a", "start");
    frame["stdin"] = "in\u{0}".into();
    frame["env"] = json!({"LD_PRELOAD": "x"});
    frame["freshness"] = "strict".into();
    frame["limits"] = json!({
        "timeout_ms": 7, "memory_mb": 99, "cpu_shares": 5, "max_output_bytes": 11,
    });
    peer.send(frame).await;
    peer.until_end("a").await;
    let [seen] = daemon.scripted.seen().try_into().unwrap();
    assert_eq!((seen.stdin.as_slice(), seen.freshness), (&b"in\0"[..], Freshness::Strict));
    assert_eq!(seen.env, [("LD_PRELOAD".to_owned(), "x".to_owned())]);
    let limits = (seen.limits.timeout, seen.limits.memory.as_bytes(), seen.limits.cpu_shares);
    assert_eq!(limits, (Duration::from_millis(7), 99 << 20, 5));
}

#[tokio::test]
async fn large_output_comes_in_ordered_chunks_of_at_most_64_kib() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    peer.run("a", "start\nlarge 4194304\nlarge 1").await;
    let frames = peer.until_end("a").await;
    let (mut offset, mut count) = (0, 0);
    for frame in frames.iter().filter(|frame| frame["type"] == "stdout") {
        assert_eq!((frame["offset"].as_u64(), frame["n"].as_u64()), (Some(offset), Some(count)));
        let length = frame["data"].as_str().unwrap().len();
        assert!((1..=64 << 10).contains(&length));
        offset += u64::try_from(length).unwrap();
        count += 1;
    }
    assert_eq!(offset, (4 << 20) + 1);
}

#[tokio::test]
async fn many_executions_share_a_connection() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    for index in 0..CAPACITY {
        peer.run(&format!("e{index}"), &format!("start\nout {index}\nexit {index}")).await;
    }
    let mut results = std::collections::HashMap::new();
    while results.len() < CAPACITY {
        let frame = peer.next().await;
        if frame["type"] == "result" {
            let id = frame["id"].as_str().unwrap().to_owned();
            assert_eq!(results.insert(id, frame["exit_code"].clone()), None);
        }
    }
    for index in 0..CAPACITY {
        assert_eq!(results[&format!("e{index}")], index);
    }
}

#[tokio::test]
async fn w15_too_many_are_refused_and_may_be_sent_again() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    for index in 0..=CAPACITY {
        peer.run(&format!("e{index}"), "start\nhang").await;
    }
    let last = format!("e{CAPACITY}");
    let [refused] = peer.until_end(&last).await.try_into().unwrap();
    assert_eq!(
        (&refused["code"], &refused["retryable"]),
        (&json!("SANDBOX_OVERLOADED"), &json!(true))
    );
    peer.send(cancel("e0")).await;
    peer.until_end("e0").await;
    peer.run(&last, "start").await;
    assert_eq!(short(&peer.next().await), "ack");
}

#[tokio::test]
async fn w16_a_cancelled_execution_ends_once_as_cancelled() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    // Before the ack can have come back, and twice.
    peer.run("a", "start\nhang").await;
    peer.send(cancel("a")).await;
    peer.send(cancel("a")).await;
    peer.run("b", "start").await;
    let mut frames: Vec<Value> = Vec::new();
    while !frames.iter().any(|frame| frame["type"] == "result" && frame["id"] == "b") {
        frames.push(peer.next().await);
    }
    let of_a: Vec<_> = frames.iter().filter(|frame| frame["id"] == "a").map(short).collect();
    let count = |what: &str| of_a.iter().filter(|frame| *frame == what).count();
    assert_eq!(count("error UNKNOWN_EXECUTION"), 1, "{of_a:?}");
    if count("result null") == 0 {
        peer.until_end("a").await;
    } else {
        assert_eq!(count("status cancelled"), 1, "{of_a:?}");
    }
    assert_eq!(daemon.scripted.stops(1).await, [StopReason::Cancelled]);
}

#[tokio::test]
async fn w19_w20_output_is_data_whatever_it_looks_like() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    let forged = r#"{"v":1,"type":"result","id":"a","exit_code":0}"#;
    peer.run("a", &format!("start\nout {forged}\nhex 1b 5d 35 32 3b 63 07 c2 9b\nexit 1")).await;
    let frames = peer.until_end("a").await;
    assert_eq!(frames[2]["data"], forged);
    assert_eq!(frames[3]["data"], "\u{1b}]52;c\u{7}\u{9b}");
    assert_eq!(frames[5]["exit_code"], 1);
}

#[tokio::test]
async fn f36_a_client_that_does_not_read_makes_the_producer_wait_and_is_closed() {
    let daemon = Daemon::start_with(hasty()).await;
    let mut peer = Peer::connect(&daemon).await;
    peer.run("a", "start\nflood").await;
    // The grace period begins when the client is given up, and then the script is stopped.
    assert_eq!(daemon.scripted.stops(1).await, [StopReason::ClientGone]);
    let mut bytes = 0;
    let code = loop {
        use futures_util::StreamExt as _;
        match peer.socket.next().await {
            Some(Ok(Message::Text(text))) => bytes += text.len(),
            Some(Ok(Message::Close(frame))) => break frame.map(|frame| u16::from(frame.code)),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => break None,
        }
    };
    // What was on its way: the sockets' buffers, and no more than our own bound.
    assert!(bytes < 16 << 20, "{bytes}");
    assert!(matches!(code, None | Some(4408)), "{code:?}");
}

#[tokio::test]
async fn f36_a_client_that_does_not_read_can_still_cancel() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    peer.run("a", "start\nflood").await;
    peer.run("b", "start\nhang").await;
    peer.send(cancel("b")).await;
    assert_eq!(daemon.scripted.stops(1).await, [StopReason::Cancelled]);
}

#[tokio::test]
async fn f38_a_peer_that_gives_no_sign_of_life_is_closed() {
    let mut settings = settings();
    // It has to get its word in before.
    settings.timing.ping_after = Duration::from_secs(1);
    settings.timing.pong_within = Duration::from_secs(1);
    let daemon = Daemon::start_with(settings).await;
    let mut silent = Peer::connect(&daemon).await;
    silent.run("a", "start\nhang").await;
    // The client answers pings only while it reads, and this one does not.
    assert_eq!(daemon.scripted.stops(1).await, [StopReason::ClientGone]);
    assert_eq!(silent.close_code().await, Some(4408));
}

#[tokio::test]
async fn f38_a_peer_that_answers_pings_stays() {
    let mut settings = settings();
    settings.timing.ping_after = Duration::from_millis(30);
    settings.timing.pong_within = PATIENCE;
    let daemon = Daemon::start_with(settings).await;
    let mut peer = Peer::connect(&daemon).await;
    let mut pings = 0;
    while pings < 5 {
        use futures_util::StreamExt as _;
        let message = peer.socket.next().await.unwrap().unwrap();
        assert!(matches!(message, Message::Ping(_)), "{message:?}");
        pings += 1;
    }
    peer.send(ping()).await;
    assert_eq!(peer.next().await["type"], "pong");
}

#[tokio::test]
async fn f39_executions_outlive_their_connection_for_the_grace_period_only() {
    let daemon = Daemon::start().await;
    for ending in ["drop", "close"] {
        let mut peer = Peer::connect(&daemon).await;
        let before = daemon.scripted.seen().len();
        peer.run("a", "start\nout x\nhang").await;
        while short(&peer.next().await) != "stdout x" {}
        if ending == "close" {
            peer.socket.close(None).await.unwrap();
        }
        drop(peer);
        let stops = daemon.scripted.stops(before + 1).await;
        assert_eq!(stops[before], StopReason::ClientGone, "{ending}");
    }
}

#[tokio::test]
async fn a_revoked_key_closes_its_connections_and_opens_none() {
    let daemon = Daemon::start().await;
    let new = daemon::keys::NewKey::named("guest", store::keys::Role::User).unwrap();
    let secret = daemon::keys::Secret::random().unwrap();
    let key = daemon.keyring.create(new, &secret).await.unwrap();
    let mut guest = Peer::connect_with_key(&daemon, secret.reveal()).await;
    let mut owner = Peer::connect(&daemon).await;
    guest.run("a", "start\nhang").await;
    assert_eq!(short(&guest.next().await), "ack");
    daemon.keyring.revoke(key.id).await.unwrap();
    assert_eq!(guest.close_code().await, Some(4401));
    assert_eq!(daemon.scripted.stops(1).await, [StopReason::ClientGone]);
    let bearer = format!("Bearer {}", secret.reveal());
    let answer = daemon.ask("GET", "/ws", &[("Authorization", &bearer)], "").await;
    assert_eq!(answer.status, 401);
    owner.send(ping()).await;
    assert_eq!(owner.next().await["type"], "pong");
}

#[tokio::test]
async fn more_connections_than_allowed_are_turned_away() {
    let daemon =
        Daemon::start_with(daemon::serve::Settings { max_connections: 2, ..settings() }).await;
    let first = Peer::connect(&daemon).await;
    let mut second = Peer::connect(&daemon).await;
    let refused = daemon.ask("GET", "/healthz", &[], "").await;
    assert_eq!(refused.problem(), (503, "UNAVAILABLE".into()), "{}", refused.head);
    drop(first);
    // The place is free once the server has seen the first one off; a pong says nothing of that.
    second.send(ping()).await;
    assert_eq!(second.next().await["type"], "pong");
    let mut status = 503;
    while status == 503 {
        status = daemon.ask("GET", "/healthz", &[], "").await.status;
    }
    assert_eq!(status, 200);
    second.socket.flush().await.unwrap();
}
