//! Keys in SQL.

use std::time::SystemTime;

use model::{
    actor::{Actor, ActorKind},
    audit::Entry,
};
use tokio_postgres::Row;

use super::{
    audit,
    listen::{ALL, NOTIFY_TOKENS},
    session::Session,
};
use crate::{
    StoreError,
    keys::{ApiKey, COLUMNS, KeyHash, KeyId, Revocation, Role, from_millis, millis},
};

pub(super) async fn create(
    session: &Session,
    key: &ApiKey,
    hash: &KeyHash,
    records: &[Entry],
) -> Result<(), StoreError> {
    let sql = format!(
        "INSERT INTO api_keys ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         ON CONFLICT DO NOTHING"
    );
    let created = session
        .execute(
            &sql,
            &[
                &key.id.0,
                &key.name,
                &key.tenant,
                &key.role.text(),
                &key.actor.kind.text(),
                &key.actor.id,
                &key.last_four,
                &millis(key.created_at),
                &key.revoked_at.map(millis),
                &hash.0.as_slice(),
            ],
        )
        .await?;
    if created == 0 {
        return Err(StoreError::Conflict { what: "the key" });
    }
    record(session, records).await
}

async fn record(session: &Session, records: &[Entry]) -> Result<(), StoreError> {
    if !records.is_empty() {
        audit::append(session, records).await?;
    }
    Ok(())
}

pub(super) async fn all(session: &Session) -> Result<Vec<(ApiKey, KeyHash)>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM api_keys ORDER BY created_at, id");
    session.query(&sql, &[]).await?.iter().map(read).collect()
}

pub(super) async fn by_hash(
    session: &Session,
    hash: &KeyHash,
) -> Result<Option<ApiKey>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM api_keys WHERE hash = $1");
    let found = session.query_opt(&sql, &[&hash.0.as_slice()]).await?;
    Ok(found.as_ref().map(read).transpose()?.map(|(key, _)| key))
}

pub(super) async fn revoke(
    session: &Session,
    id: &KeyId,
    at: SystemTime,
    records: &[Entry],
) -> Result<Revocation, StoreError> {
    let sql = "UPDATE api_keys SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL";
    if session.execute(sql, &[&millis(at), &id.0]).await? == 1 {
        record(session, records).await?;
        // It is about tokens of any sandbox.
        session.query(NOTIFY_TOKENS, &[&ALL]).await?;
        return Ok(Revocation::Done);
    }
    let there = session.query_opt("SELECT 1 FROM api_keys WHERE id = $1", &[&id.0]).await?;
    Ok(if there.is_some() { Revocation::DoneBefore } else { Revocation::NoSuchKey })
}

fn read(row: &Row) -> Result<(ApiKey, KeyHash), StoreError> {
    let not_understood = || StoreError::Row { table: "api_keys" };
    let (role, kind): (String, String) = (row.try_get("role")?, row.try_get("actor_type")?);
    let revoked_at: Option<i64> = row.try_get("revoked_at")?;
    let hash: Vec<u8> = row.try_get("hash")?;
    let key = ApiKey {
        id: KeyId(row.try_get("id")?),
        name: row.try_get("name")?,
        tenant: row.try_get("tenant")?,
        role: Role::read(&role).ok_or_else(not_understood)?,
        actor: Actor {
            kind: ActorKind::read(&kind).ok_or_else(not_understood)?,
            id: row.try_get("actor_id")?,
        },
        last_four: row.try_get("last_four")?,
        created_at: from_millis(row.try_get("created_at")?),
        revoked_at: revoked_at.map(from_millis),
    };
    Ok((key, KeyHash(hash.try_into().map_err(|_length| not_understood())?)))
}
