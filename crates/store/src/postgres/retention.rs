//! Sandboxes in SQL: forgetting. Each function is called inside a transaction.

use model::{event::Sequence, ids::SandboxId, units::Timestamp};

use super::{
    listen::{NOTIFY, payload},
    reads::head,
    session::Session,
};
use crate::{
    StoreError,
    row::{Head, PURGED, head_of, number},
};

/// Forgets events before this one, but never the last.
pub(super) async fn trim(
    session: &Session,
    id: &SandboxId,
    keep_from: Sequence,
) -> Result<(), StoreError> {
    let sql = format!(
        "SELECT {} FROM sandboxes WHERE id = $1 AND phase <> '{PURGED}' FOR UPDATE",
        head_of("")
    );
    let row = session.query_opt(&sql, &[&id.as_str()]).await?;
    let found = head(&row.ok_or(StoreError::NotFound { what: "the sandbox" })?)?;
    found.check()?;
    let earliest = number(keep_from).min(found.sequence).max(found.earliest);
    let sql = "DELETE FROM events WHERE sandbox_id = $1 AND sequence < $2";
    session.execute(sql, &[&found.id, &earliest]).await?;
    update(session, &found.with_earliest(earliest)).await
}

async fn update(session: &Session, head: &Head) -> Result<(), StoreError> {
    let sql = "UPDATE sandboxes SET phase = $1, earliest = $2, life = $3, checksum = $4
               WHERE id = $5";
    session
        .execute(sql, &[&head.phase, &head.earliest, &head.life, &head.checksum, &head.id])
        .await?;
    Ok(())
}

/// Forgets sandboxes that ended before that time, oldest first, but for their names. What another
/// daemon is busy with is left to it.
pub(super) async fn purge(
    session: &Session,
    before: Timestamp,
    limit: u32,
) -> Result<Vec<SandboxId>, StoreError> {
    let sql = format!(
        "SELECT {} FROM sandboxes WHERE phase = 'terminated' AND phase_since < $1
         ORDER BY phase_since LIMIT $2 FOR UPDATE SKIP LOCKED",
        head_of("")
    );
    let rows = session.query(&sql, &[&before.as_millis(), &i64::from(limit)]).await?;
    let mut purged = Vec::with_capacity(rows.len());
    for row in &rows {
        let head = head(row)?;
        if head.check().is_err() {
            tracing::error!(sandbox = head.id, "a damaged row is not purged");
            continue;
        }
        let not_understood = |_not_an_id| StoreError::Row { table: "sandboxes" };
        purged.push((head.id.parse::<SandboxId>().map_err(not_understood)?, Sequence::ZERO));
        forget(session, head).await?;
    }
    if !purged.is_empty() {
        session.query(NOTIFY, &[&payload(&purged)]).await?;
    }
    Ok(purged.into_iter().map(|(sandbox, _)| sandbox).collect())
}

async fn forget(session: &Session, head: Head) -> Result<(), StoreError> {
    for table in ["events", "sandbox_specs", "sandbox_labels", "key_epochs"] {
        let sql = format!("DELETE FROM {table} WHERE sandbox_id = $1");
        session.execute(&sql, &[&head.id]).await?;
    }
    let sql = "DELETE FROM sessions WHERE sandbox_id = $1 AND state = 'ended'";
    session.execute(sql, &[&head.id]).await?;
    let sql = format!(
        "UPDATE execs SET state = '{PURGED}', life = '', checksum = 0, spec = '', spec_checksum = 0
         WHERE sandbox_id = $1"
    );
    session.execute(&sql, &[&head.id]).await?;
    update(session, &head.purged()).await
}
