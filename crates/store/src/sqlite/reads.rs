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
    row::{
        EventRow, ExecRow, PURGED, Whole, head_of, number, select_exec, select_sandbox, sequence,
    },
    sandboxes::{Events, ExecAt, Filter, PAGE, Page, check_range},
};

fn whole(row: &Row<'_>) -> rusqlite::Result<Whole> {
    Ok(Whole { head: head(row)?, spec: row.get(11)?, spec_checksum: row.get(12)? })
}

pub(super) fn sandbox(
    connection: &Connection,
    id: &SandboxId,
) -> Result<Option<Sandbox>, StoreError> {
    let mut statement = connection.prepare_cached(&select_sandbox("s.id = ?"))?;
    let found = statement.query_row([id.as_str()], whole).optional()?;
    found.map(Whole::read).transpose()
}

pub(super) fn find(
    connection: &Connection,
    tenant: &Tenant,
    name: &str,
) -> Result<Option<Sandbox>, StoreError> {
    // One that is there comes before deleted ones that had the name, and of those the last.
    let sql = select_sandbox(
        "s.tenant = ?1 AND (s.alias = ?2 OR s.id = ?2 OR s.ended_alias = ?2)
         ORDER BY s.alias IS NULL AND s.id <> ?2, s.created_at DESC, s.id LIMIT 1",
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement.query_row([tenant.as_str(), name], whole).optional()?;
    found.map(Whole::read).transpose()
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
    let sql =
        format!("{} ORDER BY s.created_at DESC, s.id LIMIT {limit}", select_sandbox(&condition));
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), whole)?;
    Page::of(rows.collect::<Result<Vec<_>, _>>()?, limit)
}

pub(super) fn unfinished(connection: &Connection, node: &NodeId) -> Result<Page, StoreError> {
    let sql = select_sandbox("s.node = ? AND s.phase NOT IN ('terminated', 'purged')");
    let sql = format!("{sql} ORDER BY s.created_at, s.id");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map([node.as_str()], whole)?;
    Page::of(rows.collect::<Result<Vec<_>, _>>()?, u32::MAX)
}

pub(super) fn events(
    connection: &Connection,
    id: &SandboxId,
    after: Sequence,
    limit: u32,
) -> Result<Events, StoreError> {
    // Bounds and events must be of one moment.
    let moment = connection.unchecked_transaction()?;
    let sql = format!("SELECT {} FROM sandboxes WHERE id = ? AND phase <> '{PURGED}'", head_of(""));
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
        env: row.get(8)?,
        env_checksum: row.get(9)?,
    };
    Ok((exec, row.get(10)?))
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
