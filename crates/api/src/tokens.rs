//! Tokens of sandboxes: how they are asked for, and what they say of themselves.

use serde::{Deserialize, Serialize};

use crate::keys::Actor;

/// Asks for a token: `POST /v1/admin/tokens`. A field that nobody knows is refused, because it might
/// be meant to confine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MintToken {
    /// The id or alias of a sandbox of the caller's tenant.
    pub sandbox: String,
    /// Capabilities with blanks between them. Without it, all that the actor may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// 300 to 900; 900 without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// Folders that file access is confined to. Without it there is no confinement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<String>>,
    /// On whose behalf; without it, the key's own actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
}

/// The answer to [`MintToken`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MintedToken {
    pub token: String,
    /// Always `Bearer`.
    pub token_type: String,
    pub expires_at: String,
    pub expires_in: u64,
    /// What was granted of what was asked for, in the words it was asked for in.
    pub scope: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<String>>,
    pub sandbox_id: String,
    /// Names the token in logs.
    pub jti: String,
    /// The base of the sandbox's routes as LangSmith's clients spell them.
    pub dataplane_url: String,
    /// The base of the sandbox's routes as the session protocol spells them.
    pub http_base_url: String,
}

impl std::fmt::Debug for MintedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MintedToken").field("jti", &self.jti).finish_non_exhaustive()
    }
}

/// What a credential may do: `GET /dp/{sandbox_id}/v1/access`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessShown {
    pub sandbox_id: String,
    pub actor: Actor,
    pub scope: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<String>>,
    pub expires_at: Option<String>,
    /// Names the credential in logs.
    pub credential_id: String,
}
