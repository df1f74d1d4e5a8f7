//! Sessions whose image cannot be used: the refusal is typed, stays readable, and is not bought with a pull per request.

use std::sync::{Mutex, mpsc};

use harness::registry::{Fake, missing};
use serde_json::{Value, json};

use super::{SESSIONS, ask, ensure, post, text};
use crate::{mcp, sandboxed::Sandboxed};

fn asking(image: &str) -> Value {
    json!({"thread_id": "thr_1", "mode": "ensure", "image": image, "wait_seconds": 60})
}

#[tokio::test]
async fn an_image_that_the_registry_lacks_is_refused_for_good_after_one_pull_for_all_requests() {
    let registry = Fake::start(|_| missing());
    let image = format!("{}/no/such:tag", registry.address);
    let sandboxed = Sandboxed::start_listing(&[registry.address.to_string()]).await;
    let daemon = sandboxed.daemon();
    let asking = asking(&image);
    let not_found = (404, "IMAGE_NOT_FOUND".to_owned());
    let at_once = futures_util::future::join_all((0..5).map(|_| post(daemon, SESSIONS, &asking)));
    for answer in at_once.await {
        assert_eq!(answer.problem(), not_found, "{}", answer.body);
    }
    let pulled = registry.asked().len();
    assert!(pulled > 0);
    for _ in 0..5 {
        let answer = post(daemon, SESSIONS, &asking).await;
        assert_eq!(answer.problem(), not_found, "{}", answer.body);
        let answer = answer.json();
        assert_eq!(answer["error"]["retryable"], false, "{answer}");
        assert!(text(&answer, "/error/message").contains(&image), "{answer}");
    }
    let attach = json!({"thread_id": "thr_1", "mode": "get"});
    assert_eq!(post(daemon, SESSIONS, &attach).await.problem(), not_found);
    let bound =
        json!({"scope": {"type": "thread", "id": "thr_1"}, "mode": "create_only", "image": image});
    assert_eq!(post(daemon, SESSIONS, &bound).await.problem(), not_found);
    let of_thread = json!({"image": image});
    assert_eq!(post(daemon, "/threads/thr_1/sandbox", &of_thread).await.problem(), not_found);
    let arguments = json!({"thread_id": "thr_1", "image": image});
    let [code, _, _] = mcp::refused(daemon, &daemon.key, "environment_acquire", arguments).await;
    assert_eq!(code, "IMAGE_NOT_FOUND");
    assert_eq!(registry.asked().len(), pulled, "no request but the first ones pulled");

    // Another image is another attempt.
    let session = ensure(daemon, "thr_1").await;
    assert_eq!((text(&session, "/binding/state"), text(&session, "/image")), ("active", "host"));
    assert_eq!(session["binding"]["generation"], 2);
}

#[tokio::test]
async fn after_a_423_the_session_shows_why_its_image_failed() {
    let (gate, closed) = mpsc::channel::<()>();
    let closed = Mutex::new(closed);
    let registry = Fake::start(move |_| {
        closed.lock().unwrap().recv().unwrap_err();
        missing()
    });
    let image = format!("{}/no/such:tag", registry.address);
    let sandboxed = Sandboxed::start_listing(&[registry.address.to_string()]).await;
    let daemon = sandboxed.daemon();
    let hasty = json!({"thread_id": "thr_1", "mode": "ensure", "image": image, "wait_seconds": 0});
    assert_eq!(post(daemon, SESSIONS, &hasty).await.problem(), (423, "SANDBOX_STARTING".into()));
    let thread =
        engine::sessions::Which::Scope(model::scope::Scope::thread("thr_1".parse().unwrap()));
    let tenant = "default".parse().unwrap();
    let session = sandboxed.sessions.find(&tenant, &thread).await.unwrap().unwrap();
    drop(gate);
    let not_found = (404, "IMAGE_NOT_FOUND".to_owned());
    assert_eq!(post(daemon, SESSIONS, &asking(&image)).await.problem(), not_found);

    let path = format!("{SESSIONS}/{}", session.id);
    for _ in 0..2 {
        let shown = ask(daemon, "GET", &path).await;
        assert_eq!(shown.status, 200, "{}", shown.body);
        let shown = shown.json();
        let state = (text(&shown, "/binding/state"), text(&shown, "/binding/reason"));
        assert_eq!(state, ("failed", "image_not_found"));
        assert!(text(&shown, "/binding/message").contains(&image), "{shown}");
    }
    let task = ask(daemon, "GET", &format!("{path}/a2a")).await.json();
    assert_eq!(text(&task, "/status/state"), "TASK_STATE_FAILED");
    let binding = "/metadata/urn:ringfence:environment:1/binding/reason";
    assert_eq!(text(&task, binding), "image_not_found");
}

#[tokio::test]
async fn an_image_whose_registry_is_down_can_be_asked_for_again_later() {
    let registry = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let sandboxed = Sandboxed::start_listing(std::slice::from_ref(&registry)).await;
    let daemon = sandboxed.daemon();
    let answer = post(daemon, SESSIONS, &asking(&format!("{registry}/some/image:tag"))).await;
    assert_eq!(answer.problem(), (503, "PROVIDER_UNAVAILABLE".into()), "{}", answer.body);
    assert_eq!(answer.json()["error"]["retryable"], true);
}

#[tokio::test]
async fn an_image_that_is_malformed_is_refused_for_good() {
    let registry = Fake::start(|_| harness::registry::ok(b"no manifest"));
    let image = format!("{}/bad/image:tag", registry.address);
    let sandboxed = Sandboxed::start_listing(&[registry.address.to_string()]).await;
    let answer = post(sandboxed.daemon(), SESSIONS, &asking(&image)).await;
    assert_eq!(answer.problem(), (422, "IMAGE_UNUSABLE".into()), "{}", answer.body);
    assert_eq!(answer.json()["error"]["retryable"], false);
}
