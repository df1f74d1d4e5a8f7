//! What is answered about sessions.

use std::time::Duration;

use api::sessions::{
    Binding, Credentials, Dataplane, Endpoints, Heartbeat, Policy, Refreshed, RefreshedToken,
    Scope, Secret, SessionAnswer, SessionSandbox, ThreadRefreshed, ThreadSandbox,
};
use engine::sessions::{Hint, Shown};
use model::{life::Phase, units::Timestamp};

use crate::{clock, to_wire, tokens::mint::Minted};

/// Says what a scope has got.
pub(crate) fn session(shown: &Shown, minted: &Minted, hint: Hint, base_url: &str) -> SessionAnswer {
    let session = &shown.session;
    let (http_base_url, ws_base_url) = to_wire::base_urls(&session.sandbox, base_url);
    let Refreshed { token, expires_at } = refreshed(minted);
    SessionAnswer {
        session_id: session.id.to_string(),
        thread_id: session.scope.as_thread().map(str::to_owned),
        sandbox: SessionSandbox {
            id: session.sandbox.to_string(),
            provider: shown.provider.name().to_owned(),
            http_base_url: http_base_url.clone(),
            ws_base_url: ws_base_url.clone(),
        },
        token,
        expires_at,
        binding: binding(shown),
        dataplane: Dataplane { http_base_url, ws_base_url },
        credentials: credentials(minted),
        policy: policy(shown),
        image: shown.image.clone(),
        hint_rejected: rejected(hint),
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
        state: state(shown.phase).to_owned(),
        generation: session.generation.0,
        lease_expires_at: time(session.lease.until),
    }
}

/// Returns how the protocol calls a phase.
const fn state(phase: Phase) -> &'static str {
    match phase {
        Phase::Provisioning | Phase::Resuming => "provisioning",
        Phase::Active => "active",
        Phase::Idle => "idle",
        Phase::Frozen | Phase::Stopping | Phase::Stopped => "suspended",
        Phase::Failed => "failed",
        Phase::Deleting | Phase::Terminated => "terminated",
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
