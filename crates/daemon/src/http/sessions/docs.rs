//! What the document says of sessions.

use api::{
    errors::ErrorCode,
    sessions::{
        AcquireSession, Beat, Heartbeat, RefreshSession, Refreshed, RefreshedToken, SessionAnswer,
    },
};
use serde_json::json;

use crate::openapi::{Doc, Tag};

/// How a session is refused that is named.
pub(crate) const KNOWN: [ErrorCode; 6] = [
    ErrorCode::NotFound,
    ErrorCode::SessionNotFound,
    ErrorCode::SessionExpired,
    ErrorCode::SandboxStarting,
    ErrorCode::SandboxNotReady,
    ErrorCode::ProviderUnavailable,
];

/// The same by the names of the full protocol.
const BOUND: [ErrorCode; 6] = [
    ErrorCode::NotFound,
    ErrorCode::BindingNotFound,
    ErrorCode::BindingExpired,
    ErrorCode::SandboxStarting,
    ErrorCode::SandboxNotReady,
    ErrorCode::BackendUnavailable,
];

fn doc(summary: &'static str) -> Doc {
    Doc::new(Tag::Sessions, summary)
}

/// Says what giving a sandbox to somebody has to it, wherever it is asked for.
pub(crate) fn acquires(doc: Doc) -> Doc {
    let visible = json!({"type": "string", "pattern": "^[!-~]{1,255}$"});
    let about = "The same key and body get the same answer, also after a restart.";
    doc.header("Idempotency-Key", &visible, about)
        .refuses(&KNOWN)
        .refuses(&BOUND)
        .refuses(&[
            ErrorCode::SessionConflict,
            ErrorCode::BindingConflict,
            ErrorCode::ImageRequired,
            ErrorCode::ImageNotFound,
            ErrorCode::ImageUnusable,
            ErrorCode::ProviderDisabled,
        ])
        .refuses(&[ErrorCode::IdempotencyInFlight, ErrorCode::IdempotencyKeyReused])
        .refuses(&[ErrorCode::Forbidden, ErrorCode::CapabilityDenied, ErrorCode::Conflict])
}

pub(super) fn acquire() -> Doc {
    acquires(doc("Gives a scope its sandbox and a token"))
        .takes::<AcquireSession>(&json!({"thread_id": "t-1", "mode": "ensure", "image": "host"}))
        .answers::<SessionAnswer>(200, "The sandbox, and a token for it.")
}

/// Of one that is named by the path.
fn named(summary: &'static str, codes: &[ErrorCode]) -> Doc {
    doc(summary).refuses(codes).refuses(&[ErrorCode::Forbidden])
}

pub(super) fn show() -> Doc {
    named("Shows a session, with a new token", &KNOWN)
        .answers::<SessionAnswer>(200, "The session.")
        .refuses(&[ErrorCode::CapabilityDenied])
}

pub(super) fn refresh() -> Doc {
    named("Gives out the next token", &KNOWN)
        .may_take::<RefreshSession>(&json!({}))
        .answers::<Refreshed>(200, "The next token.")
        .refuses(&[ErrorCode::CapabilityDenied])
}

pub(super) fn refresh_token() -> Doc {
    named("Gives out the next token, with what it is good for", &BOUND)
        .may_take::<RefreshSession>(&json!({}))
        .answers::<RefreshedToken>(200, "The next token.")
        .refuses(&[ErrorCode::CapabilityDenied])
}

pub(super) fn heartbeat() -> Doc {
    named("Keeps a session for another while", &BOUND)
        .may_take::<Beat>(&json!({}))
        .answers::<Heartbeat>(200, "How long it is kept.")
}

pub(super) fn release() -> Doc {
    named("Ends a session; its sandbox is kept for a while", &KNOWN)
        .answers_nothing(204, "It is ended.")
}

pub(super) fn kill() -> Doc {
    named("Ends a sandbox, whoever uses it", &KNOWN).answers_nothing(202, "It will be gone soon.")
}
