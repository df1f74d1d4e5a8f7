//! Why something could not be kept or found.

use std::{io, path::PathBuf};

use model::{event::Sequence, sandbox::Sandbox, session::Session};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot open the store {path}")]
    Open { path: PathBuf, source: rusqlite::Error },
    #[error("cannot make the store {path}")]
    Make { path: PathBuf, source: io::Error },
    #[error("cannot understand the address of the database")]
    Address(#[source] tokio_postgres::Error),
    /// Nothing of it was kept. The next call tries to connect again.
    #[error("cannot reach the database: {report}")]
    Unreachable { report: String },
    #[error(
        "the store has schema version {found}, this program knows up to {known}: \
         it was written by a newer version; use that one"
    )]
    Newer { found: i64, known: i64 },
    #[error("the store is damaged: {report}")]
    Damaged { report: String },
    /// Nothing of it was kept.
    #[error("cannot commit to the store: {report}")]
    Commit { report: String },
    /// It may have been kept or not: read it again.
    #[error("the connection broke while committing: {report}")]
    Unclear { report: String },
    /// Nothing of it was kept. When there is room again, it will be.
    #[error("the disk of the store is full")]
    Full,
    /// A write went wrong in a way after which the disk cannot be trusted. Until the program is
    /// started anew the store only reads; whether that one write was kept is seen then.
    #[error("the store takes no more writes: {report}")]
    ReadOnly { report: String },
    /// Nothing of it was kept.
    #[error("what it was to be kept with is not true")]
    Unmet,
    #[error("{what} exists already")]
    Conflict { what: &'static str },
    #[error("there are {most} {what} already, and there is no room for another: delete one first")]
    TooMany { what: &'static str, most: u32 },
    #[error("{what} does not exist")]
    NotFound { what: &'static str },
    /// Somebody else changed it first. Decide again from what it is now.
    #[error("the sandbox has gone on to event {}", .current.life.sequence)]
    Stale { current: Box<Sandbox> },
    /// The scope has another binding, or the binding has gone on. Decide again from what it is now.
    #[error("session {} has gone on", .current.id)]
    Bound { current: Box<Session> },
    /// A request of the same key was carried out: see which.
    #[error("the key of the request was used before")]
    KeyUsed,
    #[error("event {asked} is out of range: there are events {earliest} to {latest}")]
    OutOfRange { asked: Sequence, earliest: Sequence, latest: Sequence },
    /// Nothing was kept of what should have been recorded.
    #[error("cannot write to the audit log: {report}")]
    Audit { report: String },
    #[error("a label holds the character of number zero")]
    Label,
    #[error("this is not a cursor of a list")]
    Cursor,
    #[error("a row of {table} cannot be understood")]
    Row { table: &'static str },
    #[error("cannot write down {what}")]
    Encode { what: &'static str, source: serde_json::Error },
    #[error("cannot read or write the store")]
    Database(#[from] rusqlite::Error),
    #[error("cannot read or write the database")]
    Postgres(#[from] tokio_postgres::Error),
    #[error("cannot start the thread of the store")]
    Thread(#[source] io::Error),
    #[error("the store is closed")]
    Closed,
}
