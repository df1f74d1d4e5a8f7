//! The audit log in SQL.

use model::audit::Entry;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, params};

use crate::{
    StoreError,
    audit::{Link, PAGE, Part, Record, Row},
    condition::Condition,
    failpoint,
};

/// Does something and records it, or neither. A log that cannot be written to refuses what is to be
/// recorded, and nothing else of the transaction.
pub(super) fn recorded<T>(
    connection: &Connection,
    entries: &[Entry],
    act: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    recorded_if(connection, entries, None, act)
}

/// Does the same, if this is true when all else is done.
pub(super) fn recorded_if<T>(
    connection: &Connection,
    entries: &[Entry],
    condition: Option<Condition>,
    act: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    if entries.is_empty() && condition.is_none() {
        return act();
    }
    // What a step back needs is kept in memory: to make a file for it would take longer than the step.
    connection.prepare_cached("SAVEPOINT recorded")?.execute(())?;
    let done = act()
        .and_then(|value| append(connection, entries).map(|()| value))
        .and_then(|value| condition.map_or(Ok(()), Condition::wait).map(|()| value));
    if done.is_err() {
        connection.prepare_cached("ROLLBACK TO recorded")?.execute(())?;
    }
    connection.prepare_cached("RELEASE recorded")?.execute(())?;
    done
}

fn append(connection: &Connection, entries: &[Entry]) -> Result<(), StoreError> {
    if entries.is_empty() {
        return Ok(());
    }
    let unavailable = |report| StoreError::Audit { report };
    failpoint::pass("b.audit_append").map_err(unavailable)?;
    insert(connection, entries).map_err(|error| match error {
        StoreError::Database(error) if !is_of_the_disk(&error) => unavailable(error.to_string()),
        other => other,
    })
}

/// Whether an error means the disk, which is everybody's.
fn is_of_the_disk(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::ReadOnly))
}

fn insert(connection: &Connection, entries: &[Entry]) -> Result<(), StoreError> {
    let (rows, _) = Row::chain(end(connection)?, entries)?;
    let sql = "INSERT INTO audit (sequence, body, hash) VALUES (?, ?, ?)";
    let mut statement = connection.prepare_cached(sql)?;
    for row in &rows {
        statement.execute(params![row.sequence, row.body, row.hash])?;
    }
    Ok(())
}

pub(super) fn end(connection: &Connection) -> Result<Link, StoreError> {
    let sql = "SELECT sequence, hash FROM audit ORDER BY sequence DESC LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let last: Option<(i64, Vec<u8>)> =
        statement.query_row((), |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    last.map_or(Ok(Link::START), |(sequence, hash)| Row::link(sequence, &hash))
}

pub(super) fn read(connection: &Connection, part: Part) -> Result<Vec<Record>, StoreError> {
    let (condition, beyond, order) = part.sql();
    let sql = format!(
        "SELECT sequence, body, hash FROM audit WHERE {condition} ? ORDER BY sequence {order} LIMIT ?"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params![beyond, part.limit.clamp(1, PAGE)], |row| {
        Ok(Row { sequence: row.get(0)?, body: row.get(1)?, hash: row.get(2)? })
    })?;
    rows.map(|row| row.map_err(StoreError::from).and_then(Row::read)).collect()
}
