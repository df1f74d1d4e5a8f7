//! Companions over gRPC.

use api::agbox::v1;

use crate::{
    caller::{next, subscribe},
    sandboxed::{Sandboxed, create, run, shell, until},
};

/// A request for a sandbox with one companion that runs this script.
fn with_companion(sandbox: &str, script: &str) -> v1::CreateSandboxRequest {
    let companion = v1::CompanionContainerSpec {
        name: "web".into(),
        image: "host".into(),
        command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        ..v1::CompanionContainerSpec::default()
    };
    let mut request = create(sandbox);
    request.create_spec.as_mut().unwrap().companion_containers.push(companion);
    request
}

#[tokio::test]
async fn the_event_of_a_companion_precedes_sandbox_ready_at_a_start_and_at_a_resume() {
    let server = Sandboxed::start().await;
    let mut client = server.local().await;
    client.create_sandbox(with_companion("my-box", "exec sleep 1000")).await.unwrap();
    let mut from = 0;
    for _ in 0..2 {
        let request = subscribe("my-box", from);
        let mut events = client.subscribe_sandbox_events(request).await.unwrap().into_inner();
        let mut told = Vec::new();
        while told.last().is_none_or(|(kind, _)| *kind != v1::EventType::SandboxReady) {
            let event = next(&mut events).await;
            told.push((event.event_type(), event.sandbox_state()));
        }
        let last: Vec<_> = told.into_iter().rev().take(2).rev().collect();
        let expected = [
            (v1::EventType::CompanionContainerReady, v1::SandboxState::Pending),
            (v1::EventType::SandboxReady, v1::SandboxState::Ready),
        ];
        assert_eq!(last, expected);
        let sandbox_id = "my-box".to_owned();
        client
            .stop_sandbox(v1::StopSandboxRequest { sandbox_id: sandbox_id.clone() })
            .await
            .unwrap();
        from = until(&mut client, "my-box", v1::SandboxState::Stopped).await.last_event_sequence;
        client.resume_sandbox(v1::ResumeSandboxRequest { sandbox_id }).await.unwrap();
    }
}

#[tokio::test]
async fn a_companion_can_listen_on_port_80() {
    let server = Sandboxed::start().await;
    let mut client = server.local().await;
    let serve = "exec /usr/bin/python3 -m http.server 80 --bind 127.0.0.1";
    client.create_sandbox(with_companion("my-box", serve)).await.unwrap();
    until(&mut client, "my-box", v1::SandboxState::Ready).await;
    let fetch = "until /usr/bin/python3 -c \"import urllib.request; \
                 print(urllib.request.urlopen('http://web:80/').status)\" 2>/dev/null; do :; done";
    let (ended, stdout) = run(&mut client, shell("my-box", fetch, "")).await;
    assert_eq!((ended.exit_code, stdout.as_str()), (0, "200\n"));
}
