//! The audit log: `GET /v1/audit`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One record. Its fields are written in the order of their names, which is part of its form:
/// the hash is of what is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditRecord {
    /// What was done or asked for: `token.mint`, `exec.start`, …
    pub action: String,
    /// Who acted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<String>,
    /// `human` or `agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_type: Option<String>,
    /// Of a grant: the sandbox that the token is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Of a grant: what was granted, with blanks between the names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<String>,
    /// How many alike it stands for, if more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Of a grant: when the token ends, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    /// SHA-256 of the record without this field, in its canonical form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Names the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    /// The API key that was shown, or that the token was given out for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// What else it was done to: a key, a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// `granted`, `denied` or `failed`.
    pub outcome: String,
    /// The hash of the record before this one.
    pub previous: String,
    /// Why, or how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Names the request, as its answer does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The sandbox, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// What was asked for by the name of its scope: `thread:t-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// 1, 2, 3, … without gaps.
    pub sequence: u64,
    /// The session, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Of a grant: on whose behalf, `human:ada`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// In milliseconds since 1970.
    pub time: i64,
}

/// A part of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    pub records: Vec<AuditRecord>,
    /// Where to go on; absent at the end. A page may be empty and yet not be the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The number and the hash of the last record there is. Whoever keeps it can tell later that
    /// nothing up to there was changed or cut off.
    pub checkpoint: String,
}
