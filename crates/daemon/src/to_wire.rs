//! From what the engine and the store say to wire messages.

use api::{
    errors::ErrorCode,
    fathom::{
        VERSION,
        server::{
            self, ExecutionResult, Hold, LimitsBy, Load, ResourceUsage, State, Users, WeakLimits,
        },
    },
    keys as wire,
    sessions::Coordinates,
    tokens::{AccessShown, ExchangedToken, MintedToken, TokenSaid},
};
use engine::posture::{CgroupVersion, Identity, Limits, Posture};
use model::{
    actor::{Actor, ActorKind},
    admission,
    execution::{Exit, Outcome, Status, StopReason},
    ids::SandboxId,
    reach::Reach,
    session::Session,
    token::Claims,
};
use store::keys::{ApiKey, Role};

use crate::{
    clock,
    dataplane::access::Access,
    executor::MemoryLimit,
    tokens::{claims, mint::Minted},
};

pub(crate) fn state(status: Status) -> State {
    match status {
        Status::Completed => State::Completed,
        Status::Failed => State::Failed,
        Status::Cancelled => State::Cancelled,
        Status::Timeout => State::Timeout,
        Status::Oom => State::Oom,
    }
}

/// Returns the limit that ended an execution, if one did.
pub(crate) fn limit_reached(outcome: &Outcome) -> Option<ErrorCode> {
    match outcome.status {
        Status::Timeout => Some(ErrorCode::Timeout),
        Status::Oom => Some(ErrorCode::Oom),
        Status::Failed
            if outcome.truncated || outcome.stopped_for == Some(StopReason::OutputLimit) =>
        {
            Some(ErrorCode::OutputLimit)
        }
        Status::Completed | Status::Failed | Status::Cancelled => None,
    }
}

pub(crate) fn result<'a>(
    id: &'a str,
    ts: &'a str,
    outcome: &Outcome,
    replaced_bytes: u64,
    memory: MemoryLimit,
    posture: Option<server::Posture>,
) -> ExecutionResult<'a> {
    let (exit_code, signal) = match outcome.exit {
        Some(Exit::Code(code)) => (Some(code), None),
        Some(Exit::Signal(number)) => (None, Some(server::signal_name(number))),
        None => (None, None),
    };
    ExecutionResult {
        v: VERSION,
        id: id.into(),
        ts: ts.into(),
        exit_code,
        duration_ms: millis(outcome.duration),
        resource_usage: Some(ResourceUsage {
            peak_memory_mb: outcome.usage.peak_memory.as_mib_ceil(),
            cpu_time_ms: millis(outcome.usage.cpu_time),
        }),
        signal,
        truncated: outcome.truncated,
        error_code: limit_reached(outcome).map(|code| code.wire_name().into()),
        output_bytes: outcome.output_bytes,
        replaced_bytes,
        limits: match memory {
            MemoryLimit::Held => None,
            MemoryLimit::Watched => Some(WeakLimits { memory: Hold::Soft }),
        },
        posture,
    }
}

pub(crate) fn posture(posture: &Posture) -> server::Posture {
    server::Posture {
        kernel: posture.kernel.clone(),
        users: match posture.slot_identity {
            Identity::Apart => Users::Own,
            Identity::Shared => Users::Shared,
        },
        limits: match posture.limits {
            Limits::Cgroups { version: CgroupVersion::V1, .. } => LimitsBy::CgroupV1,
            Limits::Cgroups { version: CgroupVersion::V2, .. } => LimitsBy::CgroupV2,
            Limits::Soft { .. } => LimitsBy::Soft,
        },
    }
}

pub(crate) fn load(load: admission::Load) -> Load {
    Load { active_executions: load.running, queue_depth: load.queued }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn key(key: &ApiKey) -> wire::Key {
    wire::Key {
        id: key.id.0.clone(),
        name: key.name.clone(),
        tenant: key.tenant.clone(),
        role: match key.role {
            Role::Admin => wire::KeyRole::Admin,
            Role::Broker => wire::KeyRole::Broker,
            Role::User => wire::KeyRole::User,
        },
        actor: actor(&key.actor),
        last_four: key.last_four.clone(),
        created_at: clock::text(key.created_at),
        revoked_at: key.revoked_at.map(clock::text),
    }
}

/// Says what a right to a sandbox holds.
pub(crate) fn access(access: &Access) -> AccessShown {
    AccessShown {
        sandbox_id: access.sandbox().to_string(),
        actor: actor(access.actor()),
        scope: access.capabilities().to_string(),
        paths: paths(access.reach()),
        expires_at: access.expires_at().map(clock::text),
        credential_id: access.credential_id().to_owned(),
    }
}

/// Says what was given out, and where it is good.
pub(crate) fn minted(minted: &Minted, base_url: &str) -> MintedToken {
    let claims = &minted.claims;
    let dataplane_url = format!("{base_url}/dp/{}", claims.sandbox);
    MintedToken {
        token: minted.token.reveal().to_owned(),
        token_type: "Bearer".to_owned(),
        expires_at: clock::text(claims.expires_at.into()),
        expires_in: claims.expires_at.since(claims.issued_at).as_secs(),
        scope: minted.scope.clone(),
        paths: paths(&claims.reach),
        sandbox_id: claims.sandbox.to_string(),
        jti: claims.id.clone(),
        http_base_url: format!("{dataplane_url}/v1"),
        dataplane_url,
    }
}

/// Says what was given out, as those who exchange tokens want it.
pub(crate) fn exchanged(minted: &Minted) -> ExchangedToken {
    let claims = &minted.claims;
    ExchangedToken {
        access_token: minted.token.reveal().to_owned(),
        issued_token_type: "urn:ietf:params:oauth:token-type:access_token".to_owned(),
        token_type: "Bearer".to_owned(),
        expires_in: claims.expires_at.since(claims.issued_at).as_secs(),
        scope: minted.scope.clone(),
    }
}

/// Says what a token says.
pub(crate) fn said(said: &Claims) -> TokenSaid {
    TokenSaid {
        iss: claims::ISSUER.to_owned(),
        sub: claims::subject(&said.actor),
        aud: said.sandbox.to_string(),
        scope: said.capabilities.to_string(),
        client_id: said.key.clone(),
        token_type: "Bearer".to_owned(),
        iat: said.issued_at.as_millis() / 1000,
        exp: said.expires_at.as_millis() / 1000,
        jti: said.id.clone(),
        r#gen: said.generation.0,
        thread_id: said.thread.clone(),
        paths: paths(&said.reach),
        parents: said.parents.clone(),
    }
}

/// Says where the sandbox of a session is.
pub(crate) fn coordinates(session: &Session, base_url: &str) -> Coordinates {
    let (http_base_url, ws_base_url) = base_urls(&session.sandbox, base_url);
    Coordinates {
        session_id: session.id.to_string(),
        sandbox_id: session.sandbox.to_string(),
        generation: session.generation.0,
        http_base_url,
        ws_base_url,
    }
}

/// Returns what the routes of a sandbox begin with as the session protocol spells them, over HTTP and by
/// WebSocket.
pub(crate) fn base_urls(sandbox: &SandboxId, base_url: &str) -> (String, String) {
    let http = format!("{base_url}/dp/{sandbox}/v1");
    let ws = web_socket(&http);
    (http, ws)
}

/// Returns the URL of the same place by WebSocket.
pub(crate) fn web_socket(url: &str) -> String {
    match url.strip_prefix("http") {
        Some(rest) => format!("ws{rest}"),
        None => url.to_owned(),
    }
}

/// Names the folders that somebody is confined to, if he is.
fn paths(reach: &Reach) -> Option<Vec<String>> {
    match reach {
        Reach::Everywhere => None,
        Reach::Below(folders) => Some(folders.iter().map(ToString::to_string).collect()),
    }
}

fn actor(actor: &Actor) -> wire::Actor {
    let kind = match actor.kind {
        ActorKind::Human => wire::ActorKind::Human,
        ActorKind::Agent => wire::ActorKind::Agent,
    };
    wire::Actor { kind, id: actor.id.clone() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::{execution::Usage, units::ByteSize};

    use super::*;

    #[test]
    fn a_result_says_how_it_ended_and_what_it_used() {
        let outcome = Outcome {
            status: Status::Failed,
            exit: Some(Exit::Signal(9)),
            stopped_for: Some(StopReason::OutputLimit),
            duration: Duration::from_micros(1_500_999),
            usage: Usage {
                peak_memory: ByteSize::bytes((44 << 20) + 1),
                cpu_time: Duration::from_millis(120),
            },
            output_bytes: 7,
            truncated: true,
        };
        let expected = ExecutionResult {
            v: 1,
            id: "a".into(),
            ts: "t".into(),
            exit_code: None,
            duration_ms: 1500,
            resource_usage: Some(ResourceUsage { peak_memory_mb: 45, cpu_time_ms: 120 }),
            signal: Some("KILL".into()),
            truncated: true,
            error_code: Some("OUTPUT_LIMIT".into()),
            output_bytes: 7,
            replaced_bytes: 3,
            limits: None,
            posture: None,
        };
        assert_eq!(result("a", "t", &outcome, 3, MemoryLimit::Held, None), expected);
        let weak = Some(WeakLimits { memory: Hold::Soft });
        assert_eq!(result("a", "t", &outcome, 3, MemoryLimit::Watched, None).limits, weak);
    }
}
