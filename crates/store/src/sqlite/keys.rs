//! Keys in SQL. What is written is one statement, which SQLite undoes by itself if it breaks.

use std::time::SystemTime;

use model::{
    actor::{Actor, ActorKind},
    audit::Entry,
};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Row, params};

use super::audit;
use crate::{
    StoreError,
    keys::{ApiKey, COLUMNS, KeyHash, KeyId, Revocation, Role, from_millis, millis},
};

pub(super) fn create(
    connection: &Connection,
    key: &ApiKey,
    hash: &KeyHash,
) -> Result<(), StoreError> {
    let sql = format!("INSERT INTO api_keys ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    let inserted = connection.prepare_cached(&sql)?.execute(params![
        key.id.0,
        key.name,
        key.tenant,
        key.role.text(),
        key.actor.kind.text(),
        key.actor.id,
        key.last_four,
        millis(key.created_at),
        key.revoked_at.map(millis),
        hash.0,
    ]);
    match inserted {
        Ok(_) => Ok(()),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            Err(StoreError::Conflict { what: "the key" })
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) fn all(connection: &Connection) -> Result<Vec<(ApiKey, KeyHash)>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM api_keys ORDER BY created_at, id");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(())?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        keys.push(read(row)?);
    }
    Ok(keys)
}

pub(super) fn by_hash(
    connection: &Connection,
    hash: &KeyHash,
) -> Result<Option<ApiKey>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM api_keys WHERE hash = ?");
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement.query_row(params![hash.0], |row| Ok(read(row))).optional()?;
    Ok(found.transpose()?.map(|(key, _)| key))
}

pub(super) fn revoke(
    connection: &Connection,
    id: &KeyId,
    at: SystemTime,
    records: &[Entry],
) -> Result<Revocation, StoreError> {
    let sql = "SELECT count(*) FROM api_keys WHERE id = ? AND revoked_at IS NULL";
    let valid: i64 = connection.prepare_cached(sql)?.query_row([&id.0], |row| row.get(0))?;
    if valid == 1 {
        return audit::recorded(connection, records, || {
            let sql = "UPDATE api_keys SET revoked_at = ? WHERE id = ?";
            connection.prepare_cached(sql)?.execute(params![millis(at), id.0])?;
            Ok(Revocation::Done)
        });
    }
    let sql = "SELECT count(*) FROM api_keys WHERE id = ?";
    let there: i64 = connection.prepare_cached(sql)?.query_row([&id.0], |row| row.get(0))?;
    Ok(if there == 0 { Revocation::NoSuchKey } else { Revocation::DoneBefore })
}

fn read(row: &Row<'_>) -> Result<(ApiKey, KeyHash), StoreError> {
    let not_understood = || StoreError::Row { table: "api_keys" };
    let (role, kind): (String, String) = (row.get("role")?, row.get("actor_type")?);
    let revoked_at: Option<i64> = row.get("revoked_at")?;
    let key = ApiKey {
        id: KeyId(row.get("id")?),
        name: row.get("name")?,
        tenant: row.get("tenant")?,
        role: Role::read(&role).ok_or_else(not_understood)?,
        actor: Actor {
            kind: ActorKind::read(&kind).ok_or_else(not_understood)?,
            id: row.get("actor_id")?,
        },
        last_four: row.get("last_four")?,
        created_at: from_millis(row.get("created_at")?),
        revoked_at: revoked_at.map(from_millis),
    };
    Ok((key, KeyHash(row.get("hash")?)))
}
