//! API keys as they are kept: never the secret, only its hash.

use std::{fmt, time::SystemTime};

use model::{actor::Actor, units::Timestamp};

/// Names a key. `key_…` on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyId(pub String);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The SHA-256 of a key's secret. The secret is random and long, so a plain hash is enough.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

/// A key without its secret. Times are kept to the millisecond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    pub id: KeyId,
    pub name: String,
    pub tenant: String,
    pub role: Role,
    pub actor: Actor,
    /// The last four characters of the secret, to tell keys apart.
    pub last_four: String,
    pub created_at: SystemTime,
    pub revoked_at: Option<SystemTime>,
}

/// What the holder of a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Admin,
    Broker,
    User,
}

impl Role {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Broker => "broker",
            Self::User => "user",
        }
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        [Self::Admin, Self::Broker, Self::User].into_iter().find(|role| role.text() == text)
    }
}

/// What revoking a key did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    Done,
    DoneBefore,
    NoSuchKey,
}

/// The columns of a key, in every backend.
pub(crate) const COLUMNS: &str =
    "id, name, tenant, role, actor_type, actor_id, last_four, created_at, revoked_at, hash";

pub(crate) fn millis(time: SystemTime) -> i64 {
    Timestamp::from(time).as_millis()
}

pub(crate) fn from_millis(millis: i64) -> SystemTime {
    Timestamp::from_millis(millis).into()
}
