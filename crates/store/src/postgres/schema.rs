//! The schema and its steps forward. A step that was released is never changed.

use super::session::Session;
use crate::StoreError;

/// Step N brings the schema from version N to N + 1.
const STEPS: [&str; 8] = [
    include_str!("../migrations/postgres/0001_api_keys.sql"),
    include_str!("../migrations/postgres/0002_sandboxes.sql"),
    include_str!("../migrations/postgres/0003_sessions.sql"),
    include_str!("../migrations/postgres/0004_tokens.sql"),
    include_str!("../migrations/postgres/0005_audit.sql"),
    include_str!("../migrations/postgres/0006_snapshots.sql"),
    include_str!("../migrations/postgres/0007_reusable_names.sql"),
    include_str!("../migrations/postgres/0008_tools.sql"),
];

/// One daemon at a time; the others then find it done. The number is only ours.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7249146632510911)";

/// Brings the schema up to date, in one transaction.
pub(super) async fn prepare(session: &Session) -> Result<(), StoreError> {
    session.run("BEGIN").await?;
    let prepared = step_forward(session).await;
    session.run(if prepared.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    prepared
}

async fn step_forward(session: &Session) -> Result<(), StoreError> {
    session.run(LOCK).await?;
    session.run("CREATE TABLE IF NOT EXISTS ringfence_schema (version BIGINT NOT NULL)").await?;
    let row = session.query_opt("SELECT version FROM ringfence_schema", &[]).await?;
    let found = row.map(|row| row.try_get(0)).transpose()?;
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    if let Some(found) = found.filter(|found| *found > known) {
        return Err(StoreError::Newer { found, known });
    }
    if found.is_none() {
        session.run("INSERT INTO ringfence_schema VALUES (0)").await?;
    }
    for (step, sql) in (0_i64..).zip(STEPS).skip_while(|(step, _)| *step < found.unwrap_or(0)) {
        session.run(sql).await?;
        session.execute("UPDATE ringfence_schema SET version = $1", &[&(step + 1)]).await?;
        tracing::info!(version = step + 1, "schema brought forward");
    }
    Ok(())
}
