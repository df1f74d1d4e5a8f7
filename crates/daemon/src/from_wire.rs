//! From wire messages to what the engine and the store understand.

use api::{fathom, keys as wire, tokens::TokenFormat};
use model::{
    actor::{Actor, ActorKind},
    execution::{Execution, Freshness},
    limits::{AskedLimits, Limits},
};
use store::keys::Role;

use crate::tokens::mint::Format;

pub(crate) fn asked_limits(limits: fathom::AskedLimits) -> AskedLimits {
    AskedLimits {
        timeout_ms: limits.timeout_ms,
        memory_mb: limits.memory_mb,
        cpu_shares: limits.cpu_shares,
        max_output_bytes: limits.max_output_bytes,
        processes: limits.processes,
        disk_mb: limits.disk_mb,
        inodes: limits.inodes,
    }
}

pub(crate) fn execution(execute: fathom::Execute, limits: Limits) -> Execution {
    Execution {
        language: execute.language,
        code: execute.code,
        stdin: execute.stdin.unwrap_or_default().into_bytes(),
        env: execute.env,
        limits,
        freshness: match execute.freshness {
            fathom::Freshness::Shared => Freshness::Shared,
            fathom::Freshness::Strict => Freshness::Strict,
        },
    }
}

pub(crate) fn format(format: TokenFormat) -> Format {
    match format {
        TokenFormat::Jwt => Format::Jwt,
        TokenFormat::Opaque => Format::Opaque,
    }
}

pub(crate) fn role(role: wire::KeyRole) -> Role {
    match role {
        wire::KeyRole::Admin => Role::Admin,
        wire::KeyRole::Broker => Role::Broker,
        wire::KeyRole::User => Role::User,
    }
}

pub(crate) fn actor(actor: wire::Actor) -> Actor {
    let kind = match actor.kind {
        wire::ActorKind::Human => ActorKind::Human,
        wire::ActorKind::Agent => ActorKind::Agent,
    };
    Actor { kind, id: actor.id }
}
