//! A server says that it is ready when everything is open that requests need.

use std::sync::atomic::{AtomicBool, Ordering};

use daemon::{
    config::Config,
    run::{Agbox, Kind, RunError, run},
};
use harness::start_spawner_of_sandboxes;

/// Runs a server until it says that it is ready, or ends without.
async fn start(config: Config) -> (Result<(), RunError>, bool) {
    let (socket, _spawner) = start_spawner_of_sandboxes(&config.sandboxes_folder()).unwrap();
    let (ready, is_ready) = tokio::sync::oneshot::channel::<()>();
    let was_announced = AtomicBool::new(false);
    let announce = |_: &_| {
        was_announced.store(true, Ordering::SeqCst);
        ready.send(()).unwrap();
        Ok(())
    };
    let shutdown = async { is_ready.await.unwrap_or_default() };
    let end = run(config, Kind::Lasting, socket.into_fd(), Agbox::Unwanted, announce, shutdown);
    (end.await, was_announced.load(Ordering::SeqCst))
}

#[tokio::test]
async fn readiness_is_announced_after_tokens_and_sessions_are_open() {
    let data = tempfile::tempdir().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    // It is there before the spawner, which opens a folder in it, and the server are started.
    let config = Config { listen, data: data.path().to_owned(), ..Config::default() };
    let (end, was_announced) = start(config.clone()).await;
    end.unwrap();
    assert!(was_announced);

    std::fs::write(config.data.join("tokens.key"), "no key").unwrap();
    let (end, was_announced) = start(config).await;
    assert!(matches!(end, Err(RunError::Tokens(_))), "{end:?}");
    assert!(!was_announced, "it was announced before tokens could be issued");
}
