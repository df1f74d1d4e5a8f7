//! What is kept about tokens, in SQL. Each function that writes is called inside a transaction.

use model::{
    ids::SandboxId,
    revocation::{Revocation, Standing},
    token::Epoch,
    units::Timestamp,
};

use super::{listen::NOTIFY_TOKENS, session::Session};
use crate::{
    StoreError,
    keys::KeyHash,
    tokens::{COLUMNS, OpaqueToken, Row, epoch, standings},
};

pub(super) async fn rotate(session: &Session, sandbox: &SandboxId) -> Result<Epoch, StoreError> {
    let sql = "INSERT INTO key_epochs AS known (sandbox_id, epoch) VALUES ($1, $2)
               ON CONFLICT (sandbox_id) DO UPDATE SET epoch = known.epoch + 1 RETURNING epoch";
    let second = i64::from(Epoch::FIRST.0) + 1;
    let row = session.query_opt(sql, &[&sandbox.as_str(), &second]).await?;
    let row = row.ok_or(StoreError::Row { table: "key_epochs" })?;
    // None of them opens anything any more.
    let sql = "DELETE FROM opaque_tokens WHERE sandbox_id = $1";
    session.execute(sql, &[&sandbox.as_str()]).await?;
    session.query(NOTIFY_TOKENS, &[&sandbox.as_str()]).await?;
    epoch(row.try_get(0)?)
}

pub(super) async fn revoke(
    session: &Session,
    revocation: &Revocation,
    now: Timestamp,
) -> Result<(), StoreError> {
    let row = Row::of(revocation);
    let sql = format!(
        "INSERT INTO token_revocations AS known ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (sandbox_id, kind, subject) DO UPDATE SET
         ends_at = CASE WHEN known.ends_at {} excluded.ends_at
                   THEN known.ends_at ELSE excluded.ends_at END,
         keep_until = greatest(known.keep_until, excluded.keep_until),
         successor = CASE WHEN known.successor IS NULL
                     THEN NULL ELSE excluded.successor END,
         successor_ends = CASE WHEN known.successor IS NULL
                          THEN NULL ELSE excluded.successor_ends END",
        row.earlier_or_later()
    );
    session
        .execute(
            &sql,
            &[
                &row.sandbox,
                &row.kind,
                &row.subject,
                &row.ends_at,
                &row.keep_until,
                &row.successor,
                &row.successor_ends,
            ],
        )
        .await?;
    session.query(NOTIFY_TOKENS, &[&row.sandbox]).await?;
    forget(session, "token_revocations", now).await
}

/// Nobody is told: whoever does not know a token looks for it.
pub(super) async fn keep(
    session: &Session,
    token: &OpaqueToken,
    now: Timestamp,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO opaque_tokens (hash, sandbox_id, epoch, claims, keep_until)
               VALUES ($1, $2, $3, $4, $5)";
    session
        .execute(
            sql,
            &[
                &token.hash.0.as_slice(),
                &token.sandbox.as_str(),
                &i64::from(token.epoch.0),
                &token.claims,
                &token.keep_until.as_millis(),
            ],
        )
        .await?;
    forget(session, "opaque_tokens", now).await
}

/// Whoever adds a row takes those away that are over, so that there are never many of them. What
/// another daemon takes away at the same time is left to it.
async fn forget(session: &Session, table: &str, now: Timestamp) -> Result<(), StoreError> {
    let sql = format!(
        "DELETE FROM {table} WHERE ctid = ANY (ARRAY(
         SELECT ctid FROM {table} WHERE keep_until < $1 FOR UPDATE SKIP LOCKED))"
    );
    session.execute(&sql, &[&now.as_millis()]).await?;
    Ok(())
}

/// Returns what is known about the tokens of one sandbox, or of all.
pub(super) async fn all(
    session: &Session,
    sandbox: Option<&SandboxId>,
) -> Result<Vec<(SandboxId, Standing)>, StoreError> {
    let wanted = sandbox.map(SandboxId::as_str);
    let sql = "SELECT sandbox_id, epoch FROM key_epochs
               WHERE $1::text IS NULL OR sandbox_id = $1";
    let mut epochs = Vec::new();
    for row in session.query(sql, &[&wanted]).await? {
        epochs.push((row.try_get(0)?, row.try_get(1)?));
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM token_revocations WHERE $1::text IS NULL OR sandbox_id = $1"
    );
    let mut rows = Vec::new();
    for row in session.query(&sql, &[&wanted]).await? {
        rows.push(Row {
            sandbox: row.try_get(0)?,
            kind: row.try_get(1)?,
            subject: row.try_get(2)?,
            ends_at: row.try_get(3)?,
            keep_until: row.try_get(4)?,
            successor: row.try_get(5)?,
            successor_ends: row.try_get(6)?,
        });
    }
    standings(epochs, rows)
}

pub(super) async fn opaque(
    session: &Session,
    hash: &KeyHash,
) -> Result<Option<OpaqueToken>, StoreError> {
    let sql = "SELECT sandbox_id, epoch, claims, keep_until FROM opaque_tokens WHERE hash = $1";
    let Some(row) = session.query_opt(sql, &[&hash.0.as_slice()]).await? else { return Ok(None) };
    let not_understood = |_not_an_id| StoreError::Row { table: "opaque_tokens" };
    let sandbox: String = row.try_get(0)?;
    Ok(Some(OpaqueToken {
        hash: *hash,
        sandbox: sandbox.parse().map_err(not_understood)?,
        epoch: epoch(row.try_get(1)?)?,
        claims: row.try_get(2)?,
        keep_until: Timestamp::from_millis(row.try_get(3)?),
    }))
}
