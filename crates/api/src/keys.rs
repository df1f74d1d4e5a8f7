//! API keys, as the admin routes show them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Asks for a new key: `POST /v1/admin/keys`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateKey {
    /// What people call it.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<KeyRole>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
}

/// What the holder of a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyRole {
    /// Everything, including managing keys.
    Admin,
    /// Everything in its tenant, on behalf of any actor of it.
    Broker,
    /// Everything in its tenant, as its own actor.
    User,
}

impl KeyRole {
    /// Returns the role of that name on the wire.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "admin" => Some(Self::Admin),
            "broker" => Some(Self::Broker),
            "user" => Some(Self::User),
            _ => None,
        }
    }
}

/// Who acts with a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Actor {
    #[serde(rename = "type")]
    pub kind: ActorKind,
    pub id: String,
}

/// A person, or a program that acts for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ActorKind {
    Human,
    Agent,
}

/// A key without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Key {
    pub id: String,
    pub name: String,
    pub tenant: String,
    pub role: KeyRole,
    pub actor: Actor,
    /// The last four characters of the secret, to tell keys apart.
    pub last_four: String,
    pub created_at: String,
    pub revoked_at: Option<String>,
}

/// The answer to [`CreateKey`]. The secret is shown this once and kept nowhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedKey {
    pub key: Key,
    pub secret: String,
}

impl std::fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedKey").field("key", &self.key).finish_non_exhaustive()
    }
}

/// All keys, oldest first: `GET /v1/admin/keys`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    pub keys: Vec<Key>,
}
