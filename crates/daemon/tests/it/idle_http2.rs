//! HTTP/2 connections that nobody uses do not keep their place among the connections.

use std::time::Duration;

use daemon::serve::Settings;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::{
    http2::{SETTINGS, frame, hello},
    support::{Daemon, PATIENCE, settings},
};

#[tokio::test]
async fn a_peer_that_opens_no_call_and_answers_no_ping_loses_its_connection_soon() {
    let head_deadline = Duration::from_millis(200);
    let daemon = Daemon::start_with(Settings { head_deadline, ..settings() }).await;
    let small_window = [0, 4, 0, 0, 0, 0];
    for opening in [hello(), [hello(), frame(SETTINGS, 0, 0, &small_window)].concat()] {
        let began = Instant::now();
        let mut silent = TcpStream::connect(daemon.address).await.unwrap();
        silent.write_all(&opening).await.unwrap();
        let mut all = Vec::new();
        // It ends with an error or without: both free the place.
        let _ = timeout(PATIENCE, silent.read_to_end(&mut all)).await.expect("it stays open");
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    }
}
