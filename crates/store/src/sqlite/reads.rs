//! Sandboxes in SQL: reading. Each function reads one moment of the store.

use model::{
    event::Sequence,
    ids::{ExecId, NodeId, SandboxId, Tenant},
    sandbox::Sandbox,
};
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params, params_from_iter};

use super::sandboxes::head;
use crate::{
    StoreError,
    row::{EXEC, EventRow, ExecRow, HEAD, Head, PURGED, number, sequence},
    sandboxes::{Cursor, Events, ExecAt, Filter, PAGE, Page, check_range},
};

/// A row with what is needed for a whole record.
struct Whole {
    head: Head,
    spec: String,
    spec_checksum: i64,
}

fn whole(row: &Row<'_>) -> rusqlite::Result<Whole> {
    Ok(Whole { head: head(row)?, spec: row.get(11)?, spec_checksum: row.get(12)? })
}

fn select(condition: &str) -> String {
    let columns = HEAD.split(", ").map(|column| format!("s.{column}")).collect::<Vec<_>>();
    // A missing spec is damage, not absence.
    format!(
        "SELECT {}, coalesce(p.spec, ''), coalesce(p.checksum, -1)
         FROM sandboxes s LEFT JOIN sandbox_specs p ON p.sandbox_id = s.id
         WHERE s.phase <> '{PURGED}' AND {condition}",
        columns.join(", ")
    )
}

pub(super) fn sandbox(
    connection: &Connection,
    id: &SandboxId,
) -> Result<Option<Sandbox>, StoreError> {
    let mut statement = connection.prepare_cached(&select("s.id = ?"))?;
    let found = statement.query_row([id.as_str()], whole).optional()?;
    found.map(|found| found.head.read(&found.spec, found.spec_checksum)).transpose()
}

pub(super) fn find(
    connection: &Connection,
    tenant: &Tenant,
    name: &str,
) -> Result<Option<Sandbox>, StoreError> {
    let sql = select("s.tenant = ?1 AND (s.alias = ?2 OR s.id = ?2)");
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement.query_row([tenant.as_str(), name], whole).optional()?;
    found.map(|found| found.head.read(&found.spec, found.spec_checksum)).transpose()
}

pub(super) fn list(connection: &Connection, filter: &Filter) -> Result<Page, StoreError> {
    let phases = filter.phases.names();
    let limit = filter.limit.clamp(1, PAGE);
    let places = vec!["?"; phases.len()].join(", ");
    let mut condition = format!("s.tenant = ? AND s.phase IN ({places})");
    let tenant = filter.tenant.as_str();
    let mut values: Vec<&dyn ToSql> = vec![&tenant];
    values.extend(phases.iter().map(|phase| phase as &dyn ToSql));
    for (name, value) in &filter.labels {
        condition.push_str(
            " AND EXISTS (SELECT 1 FROM sandbox_labels l
              WHERE l.sandbox_id = s.id AND l.name = ? AND l.value = ?)",
        );
        values.extend([name as &dyn ToSql, value]);
    }
    let after = filter.after.as_ref().map(|cursor| (cursor.created_at.as_millis(), &cursor.id));
    if let Some((created_at, id)) = &after {
        condition.push_str(" AND (s.created_at < ? OR (s.created_at = ? AND s.id > ?))");
        values.extend([created_at as &dyn ToSql, created_at, id]);
    }
    let sql = format!("{} ORDER BY s.created_at DESC, s.id LIMIT {limit}", select(&condition));
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), whole)?;
    page(rows.collect::<Result<Vec<_>, _>>()?, limit)
}

pub(super) fn unfinished(connection: &Connection, node: &NodeId) -> Result<Page, StoreError> {
    let sql = select("s.node = ? AND s.phase NOT IN ('terminated', 'purged')");
    let sql = format!("{sql} ORDER BY s.created_at, s.id");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map([node.as_str()], whole)?;
    page(rows.collect::<Result<Vec<_>, _>>()?, u32::MAX)
}

/// Puts rows into a page. Damaged ones are named and do not hide the others.
fn page(rows: Vec<Whole>, limit: u32) -> Result<Page, StoreError> {
    let mut page = Page::default();
    let is_full = u32::try_from(rows.len()).is_ok_and(|count| count >= limit);
    page.next = rows.last().filter(|_| is_full).map(|row| Cursor::of(&row.head));
    for row in rows {
        let id = row.head.id.clone();
        page.add(id, row.head.read(&row.spec, row.spec_checksum))?;
    }
    Ok(page)
}

pub(super) fn events(
    connection: &Connection,
    id: &SandboxId,
    after: Sequence,
    limit: u32,
) -> Result<Events, StoreError> {
    // Bounds and events must be of one moment.
    let moment = connection.unchecked_transaction()?;
    let sql = format!("SELECT {HEAD} FROM sandboxes WHERE id = ? AND phase <> '{PURGED}'");
    let found = moment.prepare_cached(&sql)?.query_row([id.as_str()], head).optional()?;
    let found = found.ok_or(StoreError::NotFound { what: "the sandbox" })?;
    found.check()?;
    let (earliest, latest) = (sequence(found.earliest), sequence(found.sequence));
    check_range(after, earliest, latest)?;
    let sql = "SELECT sequence, body, checksum FROM events
               WHERE sandbox_id = ? AND sequence > ? ORDER BY sequence LIMIT ?";
    let mut statement = moment.prepare_cached(sql)?;
    let rows = statement
        .query_map(params![id.as_str(), number(after), limit.clamp(1, PAGE)], |row| {
            Ok(EventRow { sequence: row.get(0)?, body: row.get(1)?, checksum: row.get(2)? })
        })?
        .collect::<Result<Vec<_>, _>>()?;
    Events::of(id, after, &rows, earliest, latest)
}

fn exec_at(row: &Row<'_>) -> rusqlite::Result<(ExecRow, i64)> {
    let exec = ExecRow {
        tenant: row.get(0)?,
        id: row.get(1)?,
        sandbox: row.get(2)?,
        state: row.get(3)?,
        life: row.get(4)?,
        checksum: row.get(5)?,
        spec: row.get(6)?,
        spec_checksum: row.get(7)?,
    };
    Ok((exec, row.get(8)?))
}

fn select_exec(condition: &str) -> String {
    let columns = EXEC.split(", ").map(|column| format!("e.{column}")).collect::<Vec<_>>();
    format!(
        "SELECT {}, s.sequence FROM execs e JOIN sandboxes s ON s.id = e.sandbox_id
         WHERE e.state <> '{PURGED}' AND {condition}",
        columns.join(", ")
    )
}

pub(super) fn exec(
    connection: &Connection,
    tenant: &Tenant,
    id: &ExecId,
) -> Result<Option<ExecAt>, StoreError> {
    let mut statement = connection.prepare_cached(&select_exec("e.tenant = ? AND e.id = ?"))?;
    let found = statement.query_row([tenant.as_str(), id.as_str()], exec_at).optional()?;
    found.map(|(row, latest)| ExecAt::of(row, latest)).transpose()
}

pub(super) fn running_execs(
    connection: &Connection,
    tenant: &Tenant,
    sandbox: Option<&SandboxId>,
) -> Result<Vec<ExecAt>, StoreError> {
    let sql =
        select_exec("e.state = 'running' AND e.tenant = ?1 AND (?2 IS NULL OR e.sandbox_id = ?2)");
    let sql = format!("{sql} ORDER BY e.id");
    let mut statement = connection.prepare_cached(&sql)?;
    let sandbox = sandbox.map(SandboxId::as_str);
    let rows = statement.query_map(params![tenant.as_str(), sandbox], exec_at)?;
    rows.map(|row| row.map_err(StoreError::from).and_then(|(row, latest)| ExecAt::of(row, latest)))
        .collect()
}
