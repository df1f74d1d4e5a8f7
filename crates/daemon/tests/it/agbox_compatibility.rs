//! What the SDKs and tests of the reference daemon of `agbox.v1` rely on.

use std::sync::Mutex;

use api::agbox::v1::{self, sandbox_event::Details};
use harness::{
    imaging::small_system,
    registry::{Fake, honest},
};

use crate::{
    agbox::with_socket,
    caller::{Connection, next, refused, subscribe},
    sandboxed::{Sandboxed, create, own},
};

#[tokio::test]
async fn ping_names_the_daemon_agboxd() {
    let (_folder, path, daemon) = with_socket(own()).await;
    let mut client = Connection::unix(&path).await.client();
    let answer = client.ping(v1::PingRequest {}).await.unwrap().into_inner();
    assert_eq!(answer.daemon, "agboxd");
    daemon.stop().await;
}

#[tokio::test]
async fn list_active_execs_of_an_unknown_sandbox_is_empty() {
    let server = Sandboxed::start().await;
    let unknown = v1::ListActiveExecsRequest { sandbox_id: Some("no-such-box".into()) };
    let answer = server.local().await.list_active_execs(unknown).await.unwrap();
    assert_eq!(answer.into_inner().execs, []);
}

#[tokio::test]
async fn creating_a_sandbox_with_an_id_that_the_server_gave_is_a_conflict() {
    let server = Sandboxed::start().await;
    let mut client = server.local().await;
    let made = client.create_sandbox(create("")).await.unwrap().into_inner().sandbox.unwrap();
    let id = made.sandbox_id;
    assert!(id.starts_with("sb_"), "{id}");
    let again = refused(client.create_sandbox(create(&id)).await);
    assert_eq!(again, format!("AlreadyExists SANDBOX_ID_ALREADY_EXISTS sandbox_id={id}"));
}

/// Says whether an event tells how far a pull has come.
fn is_progress(event: &v1::SandboxEvent) -> bool {
    let Some(Details::SandboxPhase(phase)) = &event.details else { return false };
    phase.phase == "pulling"
}

#[tokio::test]
async fn a_stream_that_resumes_at_the_sequence_of_a_progress_event_misses_and_repeats_nothing() {
    let built = small_system();
    let large = built.layers.iter().map(Vec::len).max().unwrap();
    let (closed, open) = std::sync::mpsc::channel::<()>();
    let open = Mutex::new(open);
    let registry = Fake::start(move |asked| {
        let answer = honest(&built, asked);
        if answer.len() > large {
            // The largest layer comes when the test lets it.
            let _ = open.lock().unwrap().recv();
        }
        answer
    });
    let server = Sandboxed::start_listing(&[registry.address.to_string()]).await;
    let mut client = server.local().await;
    let mut request = create("my-box");
    let image = format!("{}/team/app:latest", registry.address);
    request.create_spec.as_mut().unwrap().image = image;
    client.create_sandbox(request).await.unwrap();

    let request = subscribe("my-box", 0);
    let mut events = client.subscribe_sandbox_events(request).await.unwrap().into_inner();
    let mut sequences = Vec::new();
    let last = loop {
        let event = next(&mut events).await;
        if is_progress(&event) {
            break event.sequence;
        }
        sequences.push(event.sequence);
    };
    drop(events);
    drop(closed);
    let request = subscribe("my-box", last);
    let mut events = client.subscribe_sandbox_events(request).await.unwrap().into_inner();
    loop {
        let event = next(&mut events).await;
        if !is_progress(&event) {
            sequences.push(event.sequence);
        }
        if event.event_type() == v1::EventType::SandboxReady {
            break;
        }
    }
    let expected: Vec<u64> = (1..).take(sequences.len()).collect();
    assert_eq!(sequences, expected);
}
