//! Keeps state behind one [`Store`]. The only crate that has SQL; nothing of it leaks out.

pub mod keys;
pub mod lock;
mod sqlite;
#[cfg(test)]
mod suite;

use std::{io, path::Path, path::PathBuf, time::SystemTime};

use keys::{ApiKey, KeyHash, KeyId, Revocation};

/// Where state is kept. Cheap to clone; all clones are the same store.
#[derive(Clone, Debug)]
pub enum Store {
    Sqlite(sqlite::Sqlite),
}

/// Why something could not be kept or found.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot open the store {path}")]
    Open { path: PathBuf, source: rusqlite::Error },
    #[error(
        "the store has schema version {found}, this program knows up to {known}: \
         it was written by a newer version; use that one"
    )]
    Newer { found: i64, known: i64 },
    #[error("the store is damaged: {report}")]
    Damaged { report: String },
    #[error("cannot commit to the store: {report}")]
    Commit { report: String },
    #[error("{what} exists already")]
    Conflict { what: &'static str },
    #[error("a row of {table} cannot be understood")]
    Row { table: &'static str },
    #[error("cannot read or write the store")]
    Database(#[from] rusqlite::Error),
    #[error("cannot start the thread of the store")]
    Thread(#[source] io::Error),
    #[error("the store is closed")]
    Closed,
}

impl Store {
    /// Opens the embedded store in this file, and brings its schema up to date.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        sqlite::Sqlite::open(path).map(Self::Sqlite)
    }

    /// Keeps a new key.
    pub async fn create_key(&self, key: ApiKey, hash: KeyHash) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.create_key(key, hash).await,
        }
    }

    /// Returns every key with its hash, oldest first, revoked ones too.
    pub async fn keys(&self) -> Result<Vec<(ApiKey, KeyHash)>, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.keys().await,
        }
    }

    /// Returns the key that has this hash, revoked or not.
    pub async fn key_by_hash(&self, hash: KeyHash) -> Result<Option<ApiKey>, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.key_by_hash(hash).await,
        }
    }

    /// Marks a key as revoked. The time of the first revocation stays.
    pub async fn revoke_key(&self, id: KeyId, at: SystemTime) -> Result<Revocation, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.revoke_key(id, at).await,
        }
    }

    /// Writes out what is left and closes. Later calls on any clone answer [`StoreError::Closed`].
    pub async fn close(&self) {
        match self {
            Self::Sqlite(sqlite) => sqlite.close().await,
        }
    }
}
