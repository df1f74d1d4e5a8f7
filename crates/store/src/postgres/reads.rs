//! Sandboxes in SQL: reading. Each question is one statement, and so sees one moment.

use model::{
    event::Sequence,
    ids::{ExecId, NodeId, SandboxId, Tenant},
    sandbox::Sandbox,
};
use tokio_postgres::{Error, Row};

use super::session::Session;
use crate::{
    StoreError,
    row::{
        EventRow, ExecRow, Head, PURGED, Whole, head_of, number, select_exec, select_sandbox,
        sequence,
    },
    sandboxes::{Events, ExecAt, Filter, PAGE, Page, check_range},
};

/// Reads the columns of [`HEAD`] from the beginning of a row.
pub(super) fn head(row: &Row) -> Result<Head, Error> {
    Ok(Head {
        id: row.try_get(0)?,
        tenant: row.try_get(1)?,
        alias: row.try_get(2)?,
        node: row.try_get(3)?,
        phase: row.try_get(4)?,
        created_at: row.try_get(5)?,
        phase_since: row.try_get(6)?,
        sequence: row.try_get(7)?,
        earliest: row.try_get(8)?,
        life: row.try_get(9)?,
        checksum: row.try_get(10)?,
    })
}

fn whole(row: &Row) -> Result<Whole, Error> {
    Ok(Whole { head: head(row)?, spec: row.try_get(11)?, spec_checksum: row.try_get(12)? })
}

pub(super) async fn sandbox(
    session: &Session,
    id: &SandboxId,
) -> Result<Option<Sandbox>, StoreError> {
    let found = session.query_opt(&select_sandbox("s.id = $1"), &[&id.as_str()]).await?;
    found.map(|row| whole(&row)?.read()).transpose()
}

pub(super) async fn find(
    session: &Session,
    tenant: &Tenant,
    name: &str,
) -> Result<Option<Sandbox>, StoreError> {
    if name.contains('\0') {
        // No text in the database holds it, and the database refuses to look.
        return Ok(None);
    }
    // One that is there comes before deleted ones that had the name, and of those the last.
    let sql = select_sandbox(
        "s.tenant = $1 AND (s.alias = $2 OR s.id = $2 OR s.ended_alias = $2)
         ORDER BY (s.alias IS NULL AND s.id <> $2), s.created_at DESC, s.id LIMIT 1",
    );
    let found = session.query_opt(&sql, &[&tenant.as_str(), &name]).await?;
    found.map(|row| whole(&row)?.read()).transpose()
}

pub(super) async fn list(session: &Session, filter: &Filter) -> Result<Page, StoreError> {
    let (names, values): (Vec<&String>, Vec<&String>) = filter.labels.iter().unzip();
    if names.iter().chain(&values).any(|text| text.contains('\0')) {
        return Ok(Page::default());
    }
    let limit = filter.limit.clamp(1, PAGE);
    let after = filter.after.as_ref();
    let (created_at, id) =
        (after.map(|cursor| cursor.created_at.as_millis()), after.map(|cursor| &cursor.id));
    let sql = select_sandbox(
        "s.tenant = $1 AND s.phase = ANY($2)
         AND ($3::bigint IS NULL OR s.created_at < $3 OR (s.created_at = $3 AND s.id > $4))
         AND (SELECT count(*) FROM sandbox_labels l
              JOIN unnest($5::text[], $6::text[]) AS w (name, value)
              ON l.name = w.name AND l.value = w.value
              WHERE l.sandbox_id = s.id) = cardinality($5::text[])
         ORDER BY s.created_at DESC, s.id LIMIT $7",
    );
    let (tenant, phases) = (filter.tenant.as_str(), filter.phases.names());
    let rows = session
        .query(&sql, &[&tenant, &phases, &created_at, &id, &names, &values, &i64::from(limit)])
        .await?;
    page(&rows, limit)
}

pub(super) async fn unfinished(session: &Session, node: &NodeId) -> Result<Page, StoreError> {
    let sql = select_sandbox("s.node = $1 AND s.phase NOT IN ('terminated', 'purged')");
    let sql = format!("{sql} ORDER BY s.created_at, s.id");
    page(&session.query(&sql, &[&node.as_str()]).await?, u32::MAX)
}

fn page(rows: &[Row], limit: u32) -> Result<Page, StoreError> {
    Page::of(rows.iter().map(whole).collect::<Result<_, _>>()?, limit)
}

pub(super) async fn events(
    session: &Session,
    id: &SandboxId,
    after: Sequence,
    limit: u32,
) -> Result<Events, StoreError> {
    // Arrays, so that the row of the sandbox comes once and from the same moment as its events.
    let head_columns = head_of("s.");
    let sql = format!(
        "SELECT {head_columns}, e.sequences, e.bodies, e.checksums FROM sandboxes s CROSS JOIN LATERAL (
             SELECT array_agg(q.sequence ORDER BY q.sequence) AS sequences,
                    array_agg(q.body ORDER BY q.sequence) AS bodies,
                    array_agg(q.checksum ORDER BY q.sequence) AS checksums
             FROM (SELECT sequence, body, checksum FROM events
                   WHERE sandbox_id = s.id AND sequence > $2
                   ORDER BY sequence LIMIT $3) q
         ) e WHERE s.id = $1 AND s.phase <> '{PURGED}'"
    );
    let limit = i64::from(limit.clamp(1, PAGE));
    let row = session.query_opt(&sql, &[&id.as_str(), &number(after), &limit]).await?;
    let row = row.ok_or(StoreError::NotFound { what: "the sandbox" })?;
    let found = head(&row)?;
    found.check()?;
    let (earliest, latest) = (sequence(found.earliest), sequence(found.sequence));
    check_range(after, earliest, latest)?;
    Events::of(id, after, &event_rows(&row)?, earliest, latest)
}

fn event_rows(row: &Row) -> Result<Vec<EventRow>, Error> {
    let sequences: Option<Vec<i64>> = row.try_get(11)?;
    let bodies: Option<Vec<String>> = row.try_get(12)?;
    let checksums: Option<Vec<i64>> = row.try_get(13)?;
    let columns = sequences
        .unwrap_or_default()
        .into_iter()
        .zip(bodies.unwrap_or_default())
        .zip(checksums.unwrap_or_default());
    Ok(columns.map(|((sequence, body), checksum)| EventRow { sequence, body, checksum }).collect())
}

fn exec_at(row: &Row) -> Result<ExecAt, StoreError> {
    let exec = ExecRow {
        tenant: row.try_get(0)?,
        id: row.try_get(1)?,
        sandbox: row.try_get(2)?,
        state: row.try_get(3)?,
        life: row.try_get(4)?,
        checksum: row.try_get(5)?,
        spec: row.try_get(6)?,
        spec_checksum: row.try_get(7)?,
        env: row.try_get(8)?,
        env_checksum: row.try_get(9)?,
    };
    ExecAt::of(exec, row.try_get(10)?)
}

pub(super) async fn exec(
    session: &Session,
    tenant: &Tenant,
    id: &ExecId,
) -> Result<Option<ExecAt>, StoreError> {
    let sql = select_exec("e.tenant = $1 AND e.id = $2");
    let found = session.query_opt(&sql, &[&tenant.as_str(), &id.as_str()]).await?;
    found.as_ref().map(exec_at).transpose()
}

pub(super) async fn running_execs(
    session: &Session,
    tenant: &Tenant,
    sandbox: Option<&SandboxId>,
) -> Result<Vec<ExecAt>, StoreError> {
    let sql = select_exec(
        "e.state = 'running' AND e.tenant = $1 AND ($2::text IS NULL OR e.sandbox_id = $2)
         ORDER BY e.id",
    );
    let sandbox = sandbox.map(SandboxId::as_str);
    session.query(&sql, &[&tenant.as_str(), &sandbox]).await?.iter().map(exec_at).collect()
}
