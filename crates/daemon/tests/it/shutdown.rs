//! Stopping the daemon: nothing new, a time to finish, then an end that is told.

use model::execution::StopReason;

use crate::{
    peer::{Peer, shorts},
    support::{Daemon, raw},
};

#[tokio::test]
async fn an_idle_connection_is_closed_with_1012_at_once() {
    let daemon = Daemon::start().await;
    let mut peer = Peer::connect(&daemon).await;
    let stopped = daemon.begin_stop();
    assert_eq!(peer.close_code().await, Some(1012));
    drop(peer);
    stopped.await;
}

#[tokio::test]
async fn what_runs_is_cancelled_after_the_drain_time_and_told_so() {
    let daemon = Daemon::start().await;
    let (address, scripted) = (daemon.address, daemon.scripted.clone());
    let mut peer = Peer::connect(&daemon).await;
    peer.run("a", "start\nhang").await;
    assert_eq!(shorts(&[peer.next().await, peer.next().await]), ["ack", "status running"]);
    let mut idle = Peer::connect(&daemon).await;
    let stopped = daemon.begin_stop();
    assert_eq!(idle.close_code().await, Some(1012));
    drop(idle);
    peer.run("b", "start").await;
    let mut frames = Vec::new();
    while frames.len() < 3 {
        frames.push(peer.next().await);
    }
    let expected = ["error SANDBOX_OVERLOADED", "status cancelled", "result null"];
    assert_eq!(shorts(&frames), expected);
    assert_eq!(peer.close_code().await, Some(1012));
    drop(peer);
    stopped.await;
    assert_eq!(scripted.stops(1).await, [StopReason::ShuttingDown]);
    let refused = tokio::net::TcpStream::connect(address).await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn what_ends_in_time_is_told_to_its_end() {
    let mut settings = crate::support::settings();
    settings.drain = crate::support::PATIENCE;
    let daemon = Daemon::start_with(settings).await;
    let mut peer = Peer::connect(&daemon).await;
    peer.run("a", "start\nhang").await;
    assert_eq!(shorts(&[peer.next().await, peer.next().await]), ["ack", "status running"]);
    let stopped = daemon.begin_stop();
    peer.send(crate::peer::cancel("a")).await;
    assert_eq!(shorts(&peer.until_end("a").await), ["status cancelled", "result null"]);
    assert_eq!(peer.close_code().await, Some(1012));
    drop(peer);
    stopped.await;
}

#[tokio::test]
async fn a_daemon_without_connections_stops_at_once() {
    let daemon = Daemon::start().await;
    let address = daemon.address;
    assert_eq!(raw(address, b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n").await.status, 200);
    daemon.stop().await;
}
