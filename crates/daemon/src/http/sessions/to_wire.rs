//! What is answered about sessions.

use std::time::Duration;

use api::{
    a2a::{self, Artifact, Environment, Metadata, Part, PartMetadata, Task, TaskStatus},
    sessions::{
        Binding, Credentials, Dataplane, Endpoints, Heartbeat, Policy, Refreshed, RefreshedToken,
        Scope, Secret, SessionAnswer, SessionSandbox, ThreadRefreshed, ThreadSandbox,
    },
};
use engine::sessions::{Hint, Shown};
use model::{capability::Capability, session::Shows, units::Timestamp};

use crate::{clock, to_wire, tokens::mint::Minted};

/// Says what a scope has got.
pub(crate) fn session(shown: &Shown, minted: &Minted, hint: Hint, base_url: &str) -> SessionAnswer {
    let session = &shown.session;
    let (sandbox, dataplane) = places(shown, base_url);
    let Refreshed { token, expires_at } = refreshed(minted);
    SessionAnswer {
        session_id: session.id.to_string(),
        thread_id: session.scope.as_thread().map(str::to_owned),
        sandbox,
        token,
        expires_at,
        binding: binding(shown),
        dataplane,
        credentials: credentials(minted),
        policy: policy(shown),
        image: shown.image.clone(),
        hint_rejected: rejected(hint),
    }
}

/// Says where a sandbox is, in both ways.
fn places(shown: &Shown, base_url: &str) -> (SessionSandbox, Dataplane) {
    let id = &shown.session.sandbox;
    let (http_base_url, ws_base_url) = to_wire::base_urls(id, base_url);
    let sandbox = SessionSandbox {
        id: id.to_string(),
        provider: shown.provider.name().to_owned(),
        http_base_url: http_base_url.clone(),
        ws_base_url: ws_base_url.clone(),
    };
    (sandbox, Dataplane { http_base_url, ws_base_url })
}

/// Shows a session as a task of A2A.
pub(crate) fn task(shown: &Shown, base_url: &str) -> Task {
    let session = &shown.session;
    let (sandbox, dataplane) = places(shown, base_url);
    let id = session.id.to_string();
    Task {
        id: id.clone(),
        context_id: sandbox.id.clone(),
        status: TaskStatus { state: task_state(shown.shows), timestamp: clock::stamp() },
        artifacts: artifacts(&dataplane, &format!("{base_url}/dp/{}", sandbox.id)),
        metadata: Metadata {
            environment: Environment {
                session_id: id.clone(),
                thread_id: session.scope.as_thread().map(str::to_owned),
                sandbox,
                binding: binding(shown),
                dataplane,
                policy: policy(shown),
                image: shown.image.clone(),
                refresh_url: format!("{base_url}/v1/sandbox/sessions/{id}/refresh"),
            },
        },
    }
}

/// Says where a sandbox is used, and with which right.
fn artifacts(plane: &Dataplane, endpoint: &str) -> Vec<Artifact> {
    let (http, ws) = (&plane.http_base_url, &plane.ws_base_url);
    let part = |url, media_type: &str, method: &str, capability: Capability| Part {
        url,
        media_type: media_type.to_owned(),
        metadata: PartMetadata {
            capability: capability.name().to_owned(),
            method: method.to_owned(),
        },
    };
    let artifact = |name: &str, description: &str, parts| Artifact {
        artifact_id: name.to_owned(),
        name: name.to_owned(),
        description: description.to_owned(),
        parts,
    };
    let json = "application/json";
    vec![
        artifact(
            "files",
            "The files of the sandbox: a path after the first URL is one file; the second lists a directory.",
            vec![
                part(
                    format!("{endpoint}/files/"),
                    "application/octet-stream",
                    "GET",
                    Capability::FsRead,
                ),
                part(format!("{http}/files/list"), json, "GET", Capability::FsRead),
            ],
        ),
        artifact(
            "exec",
            "Runs a command in the sandbox.",
            vec![part(format!("{http}/exec"), json, "POST", Capability::Process)],
        ),
        artifact(
            "shell",
            "A terminal in the sandbox, which everybody who joins it shares.",
            vec![part(format!("{ws}/shell/ws"), json, "WS", Capability::Shell)],
        ),
    ]
}

const fn task_state(shows: Shows) -> a2a::TaskState {
    match shows {
        Shows::Provisioning => a2a::TaskState::Submitted,
        Shows::Active | Shows::Suspended => a2a::TaskState::Working,
        Shows::Failed => a2a::TaskState::Failed,
    }
}

/// Says what a thread has got.
pub(crate) fn thread(shown: &Shown, minted: &Minted, hint: Hint, base_url: &str) -> ThreadSandbox {
    let session = &shown.session;
    let http = format!("{base_url}/dp/{}", session.sandbox);
    let ws = format!("{}/ws", to_wire::web_socket(&http));
    let ThreadRefreshed { token, expires_at, refresh_before, scopes } = thread_refreshed(minted);
    ThreadSandbox {
        sandbox_id: session.sandbox.to_string(),
        endpoints: Endpoints { http, ws },
        token,
        expires_at,
        scopes,
        refresh_before,
        session_id: session.id.to_string(),
        generation: session.generation.0,
        lease_expires_at: time(session.lease.until),
        image: shown.image.clone(),
        hint_rejected: rejected(hint),
    }
}

pub(crate) fn refreshed(minted: &Minted) -> Refreshed {
    let token = Secret(minted.token.reveal().to_owned());
    Refreshed { token, expires_at: time(minted.claims.expires_at) }
}

pub(crate) fn refreshed_token(minted: &Minted) -> RefreshedToken {
    let Refreshed { token, expires_at } = refreshed(minted);
    RefreshedToken { token, expires_at, credentials: credentials(minted) }
}

pub(crate) fn thread_refreshed(minted: &Minted) -> ThreadRefreshed {
    let Refreshed { token, expires_at } = refreshed(minted);
    let (issued, expires) = (minted.claims.issued_at, minted.claims.expires_at);
    let third = expires.as_millis().saturating_sub(issued.as_millis()) / 3;
    let before = Timestamp::from_millis(expires.as_millis().saturating_sub(third));
    ThreadRefreshed { token, expires_at, refresh_before: time(before), scopes: granted(minted) }
}

pub(crate) fn heartbeat(shown: &Shown) -> Heartbeat {
    Heartbeat { binding: binding(shown), policy: policy(shown) }
}

fn binding(shown: &Shown) -> Binding {
    let session = &shown.session;
    Binding {
        id: session.id.to_string(),
        scope: Scope {
            kind: session.scope.kind.name().to_owned(),
            id: session.scope.id.to_string(),
        },
        sandbox_id: session.sandbox.to_string(),
        provider: shown.provider.name().to_owned(),
        state: shown.shows.name().to_owned(),
        reason: shown.reason.map(str::to_owned),
        message: shown.failure.as_ref().map(|failure| failure.message.clone()),
        generation: session.generation.0,
        lease_expires_at: time(session.lease.until),
    }
}

fn policy(shown: &Shown) -> Policy {
    Policy {
        idle_timeout_seconds: shown.idle.as_ref().map_or(0, Duration::as_secs),
        hard_ttl_seconds: shown.terms.hard_ttl.as_secs(),
        lease_seconds: shown.terms.lease.as_secs(),
    }
}

fn credentials(minted: &Minted) -> Credentials {
    Credentials {
        token_type: "Bearer".to_owned(),
        access_token: Secret(minted.token.reveal().to_owned()),
        expires_at: time(minted.claims.expires_at),
        granted_capabilities: granted(minted),
    }
}

fn granted(minted: &Minted) -> Vec<String> {
    minted.scope.split_ascii_whitespace().map(str::to_owned).collect()
}

fn rejected(hint: Hint) -> Option<bool> {
    match hint {
        Hint::Fine => None,
        Hint::Rejected => Some(true),
    }
}

fn time(at: Timestamp) -> String {
    clock::text(at.into())
}
