//! Many subscribers in one process, over one connection and over many; and what is told to those beyond the limits.

use api::agbox::v1;
use daemon::serve::Settings;
use futures_util::future::join_all;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::time::timeout;
use tonic::{Code, Streaming};

use crate::{
    caller::{Client, Connection, next, subscribe},
    sandboxed::{Sandboxed, create, until},
    support::{Daemon, PATIENCE, settings},
};

const SUBSCRIBERS: usize = 500;

async fn ping(connection: &Connection) -> Result<(), Code> {
    let mut client = connection.client();
    let answer =
        timeout(PATIENCE, client.ping(v1::PingRequest {})).await.expect("no answer in time");
    answer.map(drop).map_err(|status| status.code())
}

async fn ready(sandboxed: &Sandboxed, name: &str) -> Connection {
    let daemon = sandboxed.daemon();
    let connection = Connection::tcp(daemon.address, &[("x-api-key", &daemon.key)]).await;
    let mut client = connection.client();
    client.create_sandbox(create(name)).await.unwrap();
    until(&mut client, name, v1::SandboxState::Ready).await;
    connection
}

async fn subscribed(client: &mut Client, name: &str) -> Result<Streaming<v1::SandboxEvent>, Code> {
    let events = timeout(PATIENCE, client.subscribe_sandbox_events(subscribe(name, 0))).await;
    events.expect("no answer in time").map(tonic::Response::into_inner).map_err(|it| it.code())
}

#[tokio::test]
async fn five_hundred_subscribers_share_one_connection_and_other_calls_are_answered() {
    let sandboxed = Sandboxed::start().await;
    let connection = ready(&sandboxed, "one-box").await;
    let mut streams = Vec::new();
    for _ in 0..SUBSCRIBERS {
        streams.push(subscribed(&mut connection.client(), "one-box").await.unwrap());
    }
    assert_eq!(ping(&connection).await, Ok(()));
    let told = join_all(streams.iter_mut().map(next)).await;
    assert!(told.iter().all(|event| event.sequence == told[0].sequence));
}

#[tokio::test]
async fn five_hundred_subscribers_have_a_tcp_connection_each() {
    subscribe_by_a_connection_each(async |sandboxed| {
        let daemon = sandboxed.daemon();
        Connection::tcp(daemon.address, &[("x-api-key", &daemon.key)]).await
    })
    .await;
}

#[tokio::test]
async fn five_hundred_subscribers_have_a_connection_to_the_unix_socket_each() {
    subscribe_by_a_connection_each(async |sandboxed| Connection::unix(&sandboxed.socket).await)
        .await;
}

/// Subscribes as often as one server must allow. Connections by TCP and to the socket are counted apart.
async fn subscribe_by_a_connection_each(connect: impl AsyncFn(&Sandboxed) -> Connection) {
    // Both ends are in this process.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let sandboxed = Sandboxed::start().await;
    let first = ready(&sandboxed, "one-box").await;
    let mut all = Vec::new();
    for _ in 0..SUBSCRIBERS {
        let connection = connect(&sandboxed).await;
        let mut events = subscribed(&mut connection.client(), "one-box").await.unwrap();
        next(&mut events).await;
        all.push((connection, events));
    }
    assert_eq!(ping(&first).await, Ok(()));
}

#[tokio::test]
async fn a_call_beyond_the_limit_of_its_connection_is_refused_with_a_status() {
    let surfaces = Settings { max_streams_per_connection: 3, ..settings() };
    let sandboxed = Sandboxed::start_with(None, surfaces).await;
    let connection = ready(&sandboxed, "one-box").await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(subscribed(&mut connection.client(), "one-box").await.unwrap());
    }
    assert_eq!(ping(&connection).await, Err(Code::ResourceExhausted));
    let refused = subscribed(&mut connection.client(), "one-box").await;
    assert_eq!(refused.err(), Some(Code::ResourceExhausted));
    let (status, body) = connection.page("/healthz").await;
    assert_eq!(status, 503, "{body:?}");
    // Another connection is not affected, and a stream that ends makes room.
    let daemon = sandboxed.daemon();
    let other = Connection::tcp(daemon.address, &[("x-api-key", &daemon.key)]).await;
    assert_eq!(ping(&other).await, Ok(()));
    drop(streams.pop());
    while ping(&connection).await.is_err() {}
}

#[tokio::test]
async fn a_connection_beyond_the_limit_is_refused_in_its_own_protocol() {
    let limited = Settings { max_connections: 1, max_socket_connections: 1, ..settings() };
    let sandboxed = Sandboxed::start_with(None, limited).await;
    let daemon: &Daemon = sandboxed.daemon();
    let key = [("x-api-key", daemon.key.as_str())];
    let by_tcp = Connection::tcp(daemon.address, &key).await;
    assert_eq!(ping(&by_tcp).await, Ok(()));
    let by_socket = Connection::unix(&sandboxed.socket).await;
    assert_eq!(ping(&by_socket).await, Ok(()));
    let second = Connection::tcp(daemon.address, &key).await;
    assert_eq!(ping(&second).await, Err(Code::ResourceExhausted));
    let second = Connection::unix(&sandboxed.socket).await;
    assert_eq!(ping(&second).await, Err(Code::ResourceExhausted));
    let refused = daemon.ask("GET", "/healthz", &[], "").await;
    assert_eq!(refused.problem(), (503, "UNAVAILABLE".into()));
    assert_eq!((ping(&by_tcp).await, ping(&by_socket).await), (Ok(()), Ok(())));
}
