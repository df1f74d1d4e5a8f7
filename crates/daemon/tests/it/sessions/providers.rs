//! Sessions on a provider that the operator has not enabled.

use serde_json::json;

use super::{SESSIONS, ensure, post, text};
use crate::sandboxed::Sandboxed;

#[tokio::test]
async fn a_disabled_provider_is_refused_for_good_before_a_missing_image() {
    let sandboxed = Sandboxed::start().await;
    let daemon = sandboxed.daemon();
    let docker = |more: serde_json::Value| {
        let mut body =
            json!({"thread_id": "thr_1", "mode": "ensure", "provider_preference": "docker"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let disabled = (400, "PROVIDER_DISABLED".to_owned());
    let rows = [
        (docker(json!({})), disabled.clone()),
        (docker(json!({"mode": "create_only"})), disabled.clone()),
        (docker(json!({"image": "python:3.12"})), disabled.clone()),
        (docker(json!({"provider_preference": "auto"})), (400, "IMAGE_REQUIRED".to_owned())),
        (docker(json!({"mode": "get"})), (404, "SESSION_NOT_FOUND".to_owned())),
    ];
    for (body, refusal) in rows {
        let answer = post(daemon, SESSIONS, &body).await;
        assert_eq!(answer.problem(), refusal, "{body}: {}", answer.body);
        assert_eq!(answer.json()["error"]["retryable"], false, "{body}");
    }
    let of_thread = json!({"provider_preference": "docker"});
    assert_eq!(post(daemon, "/threads/thr_1/sandbox", &of_thread).await.problem(), disabled);

    // A session that is there wins, whatever provider is preferred.
    ensure(daemon, "thr_1").await;
    let answer = post(daemon, SESSIONS, &docker(json!({"image": "host"}))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(text(&answer.json(), "/sandbox/provider"), "local");
}
