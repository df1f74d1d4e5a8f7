//! Every state that a surface can show is reached through that surface.

use std::{collections::BTreeSet, fs, sync::mpsc};

use api::agbox::v1::{self, SandboxState};
use harness::registry::{Fake, missing};
use model::session::Shows;
use serde_json::json;

use crate::{
    caller::{next, subscribe},
    sandboxed::{Sandboxed, create, get, until},
    sessions::{SESSIONS, ask, ensure, post, text},
};

/// What a session of this thread shows: its state, its reason, and its state as a task of A2A.
async fn shown(sandboxed: &Sandboxed, thread: &str) -> [String; 3] {
    let scope = model::scope::Scope::thread(thread.parse().unwrap());
    let which = engine::sessions::Which::Scope(scope);
    let found = sandboxed.sessions.find(&"default".parse().unwrap(), &which).await;
    let path = format!("{SESSIONS}/{}", found.unwrap().unwrap().id);
    let session = ask(sandboxed.daemon(), "GET", &path).await;
    assert_eq!(session.status, 200, "{}", session.body);
    let session = session.json();
    let reason = session["binding"]["reason"].as_str().unwrap_or_default().to_owned();
    let task = ask(sandboxed.daemon(), "GET", &format!("{path}/a2a")).await.json();
    [text(&session, "/binding/state").to_owned(), reason, text(&task, "/status/state").to_owned()]
}

#[tokio::test]
async fn every_state_of_a_session_is_reached_and_one_without_a_sandbox_has_none() {
    let (gate, closed) = mpsc::channel::<()>();
    let closed = std::sync::Mutex::new(closed);
    let slow = Fake::start(move |_| {
        closed.lock().unwrap().recv().unwrap_err();
        missing()
    });
    let address = slow.address.to_string();
    let sandboxed = Sandboxed::start_listing(std::slice::from_ref(&address)).await;
    let (daemon, tenant) = (sandboxed.daemon(), "default".parse().unwrap());
    let mut reached = BTreeSet::new();
    let mut expect = |shown: [String; 3], expected: [&str; 3]| {
        assert_eq!(shown, expected);
        reached.insert(expected[0].to_owned());
    };

    let body = |wait: u64| json!({"thread_id": "slow", "mode": "ensure", "image": format!("{address}/a:b"), "wait_seconds": wait});
    assert_eq!(post(daemon, SESSIONS, &body(0)).await.status, 423);
    expect(shown(&sandboxed, "slow").await, ["provisioning", "", "TASK_STATE_SUBMITTED"]);
    drop(gate);
    assert_eq!(post(daemon, SESSIONS, &body(60)).await.status, 404);
    expect(shown(&sandboxed, "slow").await, ["failed", "image_not_found", "TASK_STATE_FAILED"]);

    let session = ensure(daemon, "one").await;
    let sandbox = text(&session, "/sandbox/id");
    expect(shown(&sandboxed, "one").await, ["active", "", "TASK_STATE_WORKING"]);
    sandboxed.sandboxes.stop(&tenant, sandbox).await.unwrap();
    sandboxed.until(sandbox, |life| life.phase == model::life::Phase::Stopped).await;
    expect(shown(&sandboxed, "one").await, ["suspended", "stop_requested", "TASK_STATE_WORKING"]);
    let all = Shows::ALL.map(|state| state.name().to_owned()).into();
    assert_eq!(reached, all);

    // A heartbeat does not renew a session whose sandbox was deleted by another surface.
    sandboxed.delete("default", sandbox).await;
    let path = format!("{SESSIONS}/{}", text(&session, "/session_id"));
    let beaten = post(daemon, &format!("{path}/heartbeat"), &json!({})).await;
    assert_eq!(beaten.problem(), (410, "BINDING_EXPIRED".into()), "{}", beaten.body);
    assert_eq!(ask(daemon, "GET", &path).await.problem(), (410, "SESSION_EXPIRED".into()));
}

#[tokio::test]
async fn every_state_of_a_sandbox_is_reached_over_grpc_with_a_resume_that_fails_and_then_works() {
    use SandboxState::{Deleted, Deleting, Failed, Pending, Ready, Stopped};
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("mounted");
    fs::create_dir(&source).unwrap();
    let server = Sandboxed::start().await;
    let mut client = server.local().await;
    let mut request = create("my-box");
    let (mount, target) = (source.display().to_string(), "/workspace/it".to_owned());
    request.create_spec.as_mut().unwrap().mounts =
        vec![v1::MountSpec { source: mount, target, writable: false }];
    client.create_sandbox(request).await.unwrap();
    until(&mut client, "my-box", Ready).await;
    let sandbox_id = || "my-box".to_owned();
    client.stop_sandbox(v1::StopSandboxRequest { sandbox_id: sandbox_id() }).await.unwrap();
    until(&mut client, "my-box", Stopped).await;

    fs::remove_dir(&source).unwrap();
    client.resume_sandbox(v1::ResumeSandboxRequest { sandbox_id: sandbox_id() }).await.unwrap();
    let failed = until(&mut client, "my-box", Failed).await;
    assert_eq!(failed.error_code, "SANDBOX_RESUME_FAILED", "{failed:?}");
    fs::create_dir(&source).unwrap();
    client.resume_sandbox(v1::ResumeSandboxRequest { sandbox_id: sandbox_id() }).await.unwrap();
    server.until("my-box", |life| life.phase == model::life::Phase::Active).await;
    assert_eq!(get(&mut client, "my-box").await.state(), Ready);
    client.delete_sandbox(v1::DeleteSandboxRequest { sandbox_id: sandbox_id() }).await.unwrap();
    let deleted = until(&mut client, "my-box", Deleted).await;

    let mut events =
        client.subscribe_sandbox_events(subscribe("my-box", 0)).await.unwrap().into_inner();
    let mut reached = Vec::new();
    for _ in 0..deleted.last_event_sequence {
        let state = next(&mut events).await.sandbox_state();
        if reached.last() != Some(&state) {
            reached.push(state);
        }
    }
    let expected = [Pending, Ready, Stopped, Pending, Failed, Pending, Ready, Deleting, Deleted];
    assert_eq!(reached, expected);
}
