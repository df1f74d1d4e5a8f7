//! The audit log in SQL.

use futures_util::future::try_join;
use model::audit::Entry;

use super::session::Session;
use crate::{
    StoreError,
    audit::{Link, PAGE, Part, Record, Row},
    failpoint,
};

/// One daemon at a time adds to the log, until its transaction ends. The number is only ours.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7249146632510912)";

const END: &str = "SELECT sequence, hash FROM audit ORDER BY sequence DESC LIMIT 1";

/// Adds entries inside a transaction and returns where the log then ends. This comes last in it:
/// whoever has the lock waits for nobody, so that daemons cannot wait for each other.
pub(super) async fn append(session: &Session, entries: &[Entry]) -> Result<Link, StoreError> {
    failpoint::pass("b.audit_append").map_err(|report| StoreError::Audit { report })?;
    let (_locked, end) = try_join(session.query(LOCK, &[]), session.query_opt(END, &[])).await?;
    let (rows, last) = Row::chain(link(end.as_ref())?, entries)?;
    let sequences: Vec<i64> = rows.iter().map(|row| row.sequence).collect();
    let bodies: Vec<&str> = rows.iter().map(|row| row.body.as_str()).collect();
    let hashes: Vec<&[u8]> = rows.iter().map(|row| row.hash.as_slice()).collect();
    let sql = "INSERT INTO audit (sequence, body, hash)
               SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[])";
    session.execute(sql, &[&sequences, &bodies, &hashes]).await?;
    Ok(last)
}

fn link(row: Option<&tokio_postgres::Row>) -> Result<Link, StoreError> {
    match row {
        None => Ok(Link::START),
        Some(row) => Row::link(row.try_get(0)?, row.try_get(1)?),
    }
}

/// Says whether the log has this record.
pub(super) async fn has(session: &Session, record: Link) -> Result<bool, StoreError> {
    let sequence = i64::try_from(record.sequence).unwrap_or(i64::MAX);
    let sql = "SELECT 1 FROM audit WHERE sequence = $1 AND hash = $2";
    Ok(session.query_opt(sql, &[&sequence, &record.hash.as_bytes()]).await?.is_some())
}

pub(super) async fn end(session: &Session) -> Result<Link, StoreError> {
    link(session.query_opt(END, &[]).await?.as_ref())
}

pub(super) async fn read(session: &Session, part: Part) -> Result<Vec<Record>, StoreError> {
    let (condition, beyond, order) = part.sql();
    let sql = format!(
        "SELECT sequence, body, hash FROM audit WHERE {condition} $1
         ORDER BY sequence {order} LIMIT $2"
    );
    let rows = session.query(&sql, &[&beyond, &i64::from(part.limit.clamp(1, PAGE))]).await?;
    let read = |row: &tokio_postgres::Row| {
        let row = Row { sequence: row.try_get(0)?, body: row.try_get(1)?, hash: row.try_get(2)? };
        row.read()
    };
    rows.iter().map(read).collect()
}
