//! What is kept about tokens, in SQL. Each function that writes is called inside a transaction.

use model::{
    ids::SandboxId,
    revocation::{Revocation, Standing},
    token::Epoch,
    units::Timestamp,
};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::{
    StoreError,
    keys::KeyHash,
    tokens::{COLUMNS, OpaqueToken, Row, epoch, standings},
};

pub(super) fn rotate(connection: &Connection, sandbox: &SandboxId) -> Result<Epoch, StoreError> {
    let sql = "INSERT INTO key_epochs (sandbox_id, epoch) VALUES (?, ?)
               ON CONFLICT (sandbox_id) DO UPDATE SET epoch = epoch + 1 RETURNING epoch";
    let second = Epoch::FIRST.0 + 1;
    let number = connection
        .prepare_cached(sql)?
        .query_row(params![sandbox.as_str(), second], |row| row.get(0))?;
    // None of them opens anything any more.
    let sql = "DELETE FROM opaque_tokens WHERE sandbox_id = ?";
    connection.prepare_cached(sql)?.execute([sandbox.as_str()])?;
    epoch(number)
}

pub(super) fn revoke(
    connection: &Connection,
    revocation: &Revocation,
    now: Timestamp,
) -> Result<(), StoreError> {
    let row = Row::of(revocation);
    let sql = format!(
        "INSERT INTO token_revocations AS known ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (sandbox_id, kind, subject) DO UPDATE SET
         ends_at = CASE WHEN known.ends_at {} excluded.ends_at
                   THEN known.ends_at ELSE excluded.ends_at END,
         keep_until = max(known.keep_until, excluded.keep_until),
         successor = CASE WHEN known.successor IS NULL
                     THEN NULL ELSE excluded.successor END,
         successor_ends = CASE WHEN known.successor IS NULL
                          THEN NULL ELSE excluded.successor_ends END",
        row.earlier_or_later()
    );
    connection.prepare_cached(&sql)?.execute(params![
        row.sandbox,
        row.kind,
        row.subject,
        row.ends_at,
        row.keep_until,
        row.successor,
        row.successor_ends,
    ])?;
    forget(connection, "token_revocations", now)
}

pub(super) fn keep(
    connection: &Connection,
    token: &OpaqueToken,
    now: Timestamp,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO opaque_tokens (hash, sandbox_id, epoch, claims, keep_until)
               VALUES (?, ?, ?, ?, ?)";
    connection.prepare_cached(sql)?.execute(params![
        token.hash.0,
        token.sandbox.as_str(),
        token.epoch.0,
        token.claims,
        token.keep_until.as_millis(),
    ])?;
    forget(connection, "opaque_tokens", now)
}

/// Whoever adds a row takes those away that are over, so that there are never many of them.
fn forget(connection: &Connection, table: &str, now: Timestamp) -> Result<(), StoreError> {
    let sql = format!("DELETE FROM {table} WHERE keep_until < ?");
    connection.prepare_cached(&sql)?.execute([now.as_millis()])?;
    Ok(())
}

/// Returns what is known about the tokens of one sandbox, or of all.
pub(super) fn all(
    connection: &Connection,
    sandbox: Option<&SandboxId>,
) -> Result<Vec<(SandboxId, Standing)>, StoreError> {
    let wanted = sandbox.map(SandboxId::as_str);
    let sql = "SELECT sandbox_id, epoch FROM key_epochs WHERE ?1 IS NULL OR sandbox_id = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let epochs = statement.query_map([wanted], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let epochs = epochs.collect::<Result<_, _>>()?;
    let sql =
        format!("SELECT {COLUMNS} FROM token_revocations WHERE ?1 IS NULL OR sandbox_id = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map([wanted], |row| {
        Ok(Row {
            sandbox: row.get(0)?,
            kind: row.get(1)?,
            subject: row.get(2)?,
            ends_at: row.get(3)?,
            keep_until: row.get(4)?,
            successor: row.get(5)?,
            successor_ends: row.get(6)?,
        })
    })?;
    standings(epochs, rows.collect::<Result<_, _>>()?)
}

pub(super) fn opaque(
    connection: &Connection,
    hash: &KeyHash,
) -> Result<Option<OpaqueToken>, StoreError> {
    let sql = "SELECT sandbox_id, epoch, claims, keep_until FROM opaque_tokens WHERE hash = ?";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement
        .query_row(params![hash.0], |row| {
            Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    let Some((sandbox, number, claims, keep_until)) = found else { return Ok(None) };
    let not_understood = |_not_an_id| StoreError::Row { table: "opaque_tokens" };
    Ok(Some(OpaqueToken {
        hash: *hash,
        sandbox: sandbox.parse().map_err(not_understood)?,
        epoch: epoch(number)?,
        claims,
        keep_until: Timestamp::from_millis(keep_until),
    }))
}
