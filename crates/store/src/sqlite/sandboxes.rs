//! Sandboxes in SQL: writing. What a command may be refused for is found out before its first
//! write, or by it, so that a refused command leaves nothing behind in a transaction with others.

use model::{
    adjustment::Adjusted,
    event::{Event, Sequence},
    exec::{Exec, ExecLife},
    ids::{ExecId, SandboxId, Tenant},
    transition::{Creation, Transition},
    units::Timestamp,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::reads;
use crate::{
    StoreError, failpoint,
    row::{EventRow, ExecChange, ExecRow, HEAD, Head, PURGED, head_of, number, sandbox_spec},
};

pub(super) fn create(connection: &Connection, creation: &Creation) -> Result<(), StoreError> {
    let sandbox = creation.sandbox();
    let head = Head::new(sandbox)?;
    let (spec, spec_checksum) = sandbox_spec(&sandbox.id, &sandbox.spec)?;
    if let Some(alias) = &head.alias
        && is_anothers(connection, &head, alias)?
    {
        return Err(StoreError::Conflict { what: "the sandbox" });
    }
    let sql = format!(
        "INSERT INTO sandboxes ({HEAD}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT DO NOTHING"
    );
    let created = connection.prepare_cached(&sql)?.execute(params![
        head.id,
        head.tenant,
        head.alias,
        head.node,
        head.phase,
        head.created_at,
        head.phase_since,
        head.sequence,
        head.earliest,
        head.life,
        head.checksum,
    ])?;
    if created == 0 {
        return Err(StoreError::Conflict { what: "the sandbox" });
    }
    connection
        .prepare_cached("INSERT INTO sandbox_specs (sandbox_id, spec, checksum) VALUES (?, ?, ?)")?
        .execute(params![head.id, spec, spec_checksum])?;
    let mut label = connection
        .prepare_cached("INSERT INTO sandbox_labels (sandbox_id, name, value) VALUES (?, ?, ?)")?;
    for (name, value) in &sandbox.spec.labels {
        label.execute(params![head.id, name, value])?;
    }
    creation.events().iter().try_for_each(|event| append(connection, &sandbox.id, event))
}

pub(super) fn change(connection: &Connection, transition: &Transition) -> Result<(), StoreError> {
    let id = transition.sandbox();
    let head = find(connection, id)?.ok_or(StoreError::NotFound { what: "the sandbox" })?;
    head.check()?;
    if head.sequence != number(transition.expected()) {
        let current = reads::sandbox(connection, id)?;
        let current = current.ok_or(StoreError::NotFound { what: "the sandbox" })?;
        return Err(StoreError::Stale { current: Box::new(current) });
    }
    if let Some(exec) = transition.started() {
        start(connection, exec)?;
    }
    let head = match transition.adjusted() {
        Some(adjusted) => adjust(connection, id, &head, adjusted)?,
        None => head,
    };
    update(connection, &head.with_life(transition.life())?)?;
    for event in transition.events() {
        append(connection, id, event)?;
    }
    for (exec, life) in transition.ended() {
        end(connection, transition.tenant(), exec, life)?;
    }
    if transition.life().phase.is_terminal() {
        release(connection, id)?;
    }
    Ok(())
}

/// Frees the names of a sandbox that has come to its end, and erases what its commands were asked to be.
fn release(connection: &Connection, id: &SandboxId) -> Result<(), StoreError> {
    for sql in [
        "UPDATE sandboxes SET ended_alias = alias, alias = NULL WHERE id = ? AND alias IS NOT NULL",
        "DELETE FROM former_aliases WHERE sandbox_id = ?",
        "UPDATE execs SET spec = '', spec_checksum = 0 WHERE sandbox_id = ?",
    ] {
        connection.prepare_cached(sql)?.execute([id.as_str()])?;
    }
    Ok(())
}

/// Says whether another sandbox was ever called so and is not any more.
fn is_anothers(connection: &Connection, head: &Head, alias: &str) -> Result<bool, StoreError> {
    let sql = "SELECT count(*) FROM former_aliases
               WHERE tenant = ? AND alias = ? AND sandbox_id <> ?";
    let values = [head.tenant.as_str(), alias, head.id.as_str()];
    let count: i64 = connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
    Ok(count > 0)
}

/// Gives a sandbox another name and spec. Returns its row, which is still to be written.
fn adjust(
    connection: &Connection,
    id: &SandboxId,
    head: &Head,
    adjusted: &Adjusted,
) -> Result<Head, StoreError> {
    let renamed = head.clone().with_alias(adjusted.alias.as_ref());
    if let Some(alias) = renamed.alias.as_ref().filter(|_| renamed.alias != head.alias) {
        let sql = "SELECT count(*) FROM sandboxes WHERE tenant = ? AND alias = ?";
        let values = [&head.tenant, alias];
        let there: i64 = connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
        if there > 0 || is_anothers(connection, head, alias)? {
            return Err(StoreError::Conflict { what: "the sandbox" });
        }
        let sql = "INSERT INTO former_aliases (tenant, alias, sandbox_id)
                   SELECT tenant, alias, id FROM sandboxes WHERE id = ? AND alias IS NOT NULL
                   ON CONFLICT DO NOTHING";
        connection.prepare_cached(sql)?.execute([&head.id])?;
        let sql = "UPDATE sandboxes SET alias = ? WHERE id = ?";
        connection.prepare_cached(sql)?.execute([alias, &head.id])?;
    }
    let (spec, checksum) = sandbox_spec(id, &adjusted.spec)?;
    let sql = "UPDATE sandbox_specs SET spec = ?, checksum = ? WHERE sandbox_id = ?";
    connection.prepare_cached(sql)?.execute(params![spec, checksum, head.id])?;
    Ok(renamed)
}

fn find(connection: &Connection, id: &SandboxId) -> Result<Option<Head>, StoreError> {
    let head_columns = head_of("");
    let sql = format!("SELECT {head_columns} FROM sandboxes WHERE id = ? AND phase <> '{PURGED}'");
    Ok(connection.prepare_cached(&sql)?.query_row([id.as_str()], head).optional()?)
}

/// Reads the columns of [`HEAD`] from the beginning of a row.
pub(super) fn head(row: &Row<'_>) -> rusqlite::Result<Head> {
    Ok(Head {
        id: row.get(0)?,
        tenant: row.get(1)?,
        alias: row.get(2)?,
        node: row.get(3)?,
        phase: row.get(4)?,
        created_at: row.get(5)?,
        phase_since: row.get(6)?,
        sequence: row.get(7)?,
        earliest: row.get(8)?,
        life: row.get(9)?,
        checksum: row.get(10)?,
    })
}

fn update(connection: &Connection, head: &Head) -> Result<(), StoreError> {
    let sql = "UPDATE sandboxes SET phase = ?, phase_since = ?, sequence = ?, earliest = ?,
               life = ?, checksum = ? WHERE id = ?";
    connection.prepare_cached(sql)?.execute(params![
        head.phase,
        head.phase_since,
        head.sequence,
        head.earliest,
        head.life,
        head.checksum,
        head.id,
    ])?;
    Ok(())
}

fn append(connection: &Connection, sandbox: &SandboxId, event: &Event) -> Result<(), StoreError> {
    failpoint::pass("s.append").map_err(|report| StoreError::Commit { report })?;
    let row = EventRow::new(sandbox, event)?;
    let sql = "INSERT INTO events (sandbox_id, sequence, body, checksum) VALUES (?, ?, ?, ?)";
    let mut statement = connection.prepare_cached(sql)?;
    statement.execute(params![sandbox.as_str(), row.sequence, row.body, row.checksum])?;
    Ok(())
}

fn start(connection: &Connection, exec: &Exec) -> Result<(), StoreError> {
    let row = ExecRow::new(exec)?;
    let sql = "INSERT INTO execs
               (tenant, id, sandbox_id, state, life, checksum, spec, spec_checksum)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING";
    let started = connection.prepare_cached(sql)?.execute(params![
        row.tenant,
        row.id,
        row.sandbox,
        row.state,
        row.life,
        row.checksum,
        row.spec,
        row.spec_checksum,
    ])?;
    if started == 0 {
        return Err(StoreError::Conflict { what: "the exec" });
    }
    if !row.env.is_empty() {
        let sql = "INSERT INTO exec_env (tenant, exec_id, env, checksum) VALUES (?, ?, ?, ?)";
        let mut statement = connection.prepare_cached(sql)?;
        statement.execute(params![row.tenant, row.id, row.env, row.env_checksum])?;
    }
    Ok(())
}

fn end(
    connection: &Connection,
    tenant: &Tenant,
    exec: &ExecId,
    life: &ExecLife,
) -> Result<(), StoreError> {
    let row = ExecChange::new(tenant, exec, life)?;
    let sql = "UPDATE execs SET state = ?, life = ?, checksum = ? WHERE tenant = ? AND id = ?";
    let mut statement = connection.prepare_cached(sql)?;
    statement.execute(params![row.state, row.life, row.checksum, row.tenant, row.id])?;
    let sql = "DELETE FROM exec_env WHERE tenant = ? AND exec_id = ?";
    connection.prepare_cached(sql)?.execute([&row.tenant, &row.id])?;
    Ok(())
}

/// Forgets events before this one, but never the last.
pub(super) fn trim(
    connection: &Connection,
    id: &SandboxId,
    keep_from: Sequence,
) -> Result<(), StoreError> {
    let head = find(connection, id)?.ok_or(StoreError::NotFound { what: "the sandbox" })?;
    head.check()?;
    let earliest = number(keep_from).min(head.sequence).max(head.earliest);
    connection
        .prepare_cached("DELETE FROM events WHERE sandbox_id = ? AND sequence < ?")?
        .execute(params![head.id, earliest])?;
    update(connection, &head.with_earliest(earliest))
}

/// Forgets sandboxes that ended before that time, oldest first, but for their names.
pub(super) fn purge(
    connection: &Connection,
    before: Timestamp,
    limit: u32,
) -> Result<Vec<SandboxId>, StoreError> {
    let sql = format!(
        "SELECT {} FROM sandboxes WHERE phase = 'terminated' AND phase_since < ?
         ORDER BY phase_since LIMIT ?",
        head_of("")
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params![before.as_millis(), limit], head)?;
    let heads = rows.collect::<Result<Vec<Head>, _>>()?;
    let mut purged = Vec::with_capacity(heads.len());
    for head in heads {
        if head.check().is_err() {
            tracing::error!(sandbox = head.id, "a damaged row is not purged");
            continue;
        }
        for table in ["events", "sandbox_specs", "sandbox_labels", "key_epochs"] {
            let sql = format!("DELETE FROM {table} WHERE sandbox_id = ?");
            connection.prepare_cached(&sql)?.execute([&head.id])?;
        }
        let sql = "DELETE FROM sessions WHERE sandbox_id = ? AND state = 'ended'";
        connection.prepare_cached(sql)?.execute([&head.id])?;
        let sql = format!(
            "UPDATE execs SET state = '{PURGED}', life = '', checksum = 0, spec = '',
             spec_checksum = 0 WHERE sandbox_id = ?"
        );
        connection.prepare_cached(&sql)?.execute([&head.id])?;
        let not_understood = |_not_an_id| StoreError::Row { table: "sandboxes" };
        purged.push(head.id.parse().map_err(not_understood)?);
        update(connection, &head.purged())?;
    }
    Ok(purged)
}
