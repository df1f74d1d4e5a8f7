//! Tokens of sandboxes: how they are asked for, and what they say of themselves.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{keys::Actor, schema::Maybe};

/// Asks for a token: `POST /v1/admin/tokens`. A field that nobody knows is refused, because it might
/// be meant to confine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    /// Without it, what tokens of the tenant are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<TokenFormat>,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenFormat {
    /// A JSON Web Token: it says by itself what it is good for.
    Jwt,
    /// A text that says nothing by itself.
    Opaque,
}

impl TokenFormat {
    /// Returns the format of this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "jwt" => Some(Self::Jwt),
            "opaque" => Some(Self::Opaque),
            _ => None,
        }
    }
}

/// Ends tokens of a sandbox: `POST /v1/admin/tokens/revoke`. One of `jti` and `actor` is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeTokens {
    /// The id or alias of a sandbox of the caller's tenant.
    pub sandbox: String,
    /// The token to end, with all that were made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    /// Whose tokens to end, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
}

/// The answer to `POST /v1/admin/sandboxes/{sandbox}/rotate-key`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RotatedKey {
    pub sandbox_id: String,
    /// Counts the keys that the sandbox has had.
    pub key_epoch: u32,
}

/// Asks for another key of the server itself: `POST /v1/admin/master-key/rotate`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateMasterKey {
    /// The key before is not to be trusted any more: all that was signed with it ends at once, and what
    /// it had opened closes. Absent: it stays good for a day, in which all that it has signed ends by itself.
    #[serde(default)]
    pub at_once: bool,
}

/// The answer to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RotatedMasterKey {
    /// Counts the keys that the server has had.
    pub key: u32,
    /// Until when the key before is good; absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_until: Option<String>,
}

/// Asks for a token: the form of `POST /oauth/token` (RFC 8693).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExchangeToken {
    /// `urn:ietf:params:oauth:grant-type:token-exchange`
    pub grant_type: String,
    /// An API key, or a token that has at least as much.
    pub subject_token: String,
    /// `urn:ringfence:params:oauth:token-type:api-key`, or `urn:ietf:params:oauth:token-type:` and
    /// `access_token` or `jwt`.
    pub subject_token_type: String,
    /// `sandbox:ID`; a token is for its own sandbox without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Capabilities with blanks between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// A folder that file access is confined to. It may be there more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_token_type: Option<String>,
    /// `jwt` or `opaque`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}

impl std::fmt::Debug for ExchangeToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExchangeToken").field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// Names a token: the form of `POST /oauth/introspect` (RFC 7662) and `POST /oauth/revoke` (RFC 7009).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NameToken {
    pub token: String,
}

impl std::fmt::Debug for NameToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NameToken")
    }
}

/// The answer of `POST /oauth/token` (RFC 8693).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExchangedToken {
    pub access_token: String,
    pub issued_token_type: String,
    /// Always `Bearer`.
    pub token_type: String,
    pub expires_in: u64,
    pub scope: String,
}

impl std::fmt::Debug for ExchangedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExchangedToken").field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// The schema of what a token says, if anything is said of it.
type MaybeSaid = Maybe<TokenSaid>;

/// What a token is and says (RFC 7662): `POST /oauth/introspect`, `GET /internal/tokens/{token}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Introspection {
    /// Whether it opens its sandbox now. If not, nothing else is said.
    pub active: bool,
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = MaybeSaid, inline)]
    pub token: Option<TokenSaid>,
}

/// What a token says. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenSaid {
    pub iss: String,
    pub sub: String,
    pub aud: String,
    pub scope: String,
    /// The key that asked for it.
    pub client_id: String,
    /// Always `Bearer`.
    pub token_type: String,
    pub iat: i64,
    pub exp: i64,
    pub jti: String,
    pub r#gen: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<String>>,
    /// The tokens that it was made of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<String>,
}

/// A refusal of the routes below `/oauth` (RFC 6749).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OauthProblem {
    pub error: String,
    pub error_description: String,
}

/// The answer to [`MintToken`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
