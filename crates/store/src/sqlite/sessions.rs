//! Sessions in SQL. What a command may be refused for is found out before its first write.

use model::{
    ids::{NodeId, SandboxId, SessionId, Tenant},
    scope::Scope,
    session::Session,
    units::Timestamp,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::sandboxes;
use crate::{
    StoreError,
    sessions::{Binding, KeyName, SESSION, SessionRow, UsedKey},
};

/// Keeps a step of the bindings of a scope, and what belongs to it.
pub(super) fn bind(connection: &Connection, binding: &Binding) -> Result<(), StoreError> {
    if let Some(used) = &binding.used
        && used_key(connection, &used.name, used.used_at)?.is_some()
    {
        return Err(StoreError::KeyUsed);
    }
    if let Some(changed) = binding.changed() {
        check_revision(connection, changed)?;
    }
    if let Some(begun) = binding.begun() {
        check_free(connection, begun, binding.changed())?;
    }
    if let Some(creation) = &binding.creation {
        sandboxes::create(connection, creation)?;
    }
    if let Some(changed) = binding.changed() {
        update(connection, &SessionRow::new(changed)?)?;
    }
    if let Some(begun) = binding.begun() {
        insert(connection, &SessionRow::new(begun)?)?;
    }
    match &binding.used {
        Some(used) => remember(connection, used),
        None => Ok(()),
    }
}

/// Somebody may have been faster.
fn check_revision(connection: &Connection, changed: &Session) -> Result<(), StoreError> {
    let current = by_id(connection, &changed.id)?;
    let current = current.ok_or(StoreError::NotFound { what: "the session" })?;
    if current.revision.saturating_add(1) == changed.revision {
        return Ok(());
    }
    Err(StoreError::Bound { current: Box::new(current) })
}

/// A scope and a sandbox have one binding that has not ended.
fn check_free(
    connection: &Connection,
    begun: &Session,
    changed: Option<&Session>,
) -> Result<(), StoreError> {
    let is_in_the_way = |other: &Session| {
        let ends = changed.is_some_and(|changed| changed.id == other.id && changed.has_ended());
        !other.has_ended() && !ends
    };
    let latest = of_scope(connection, &begun.tenant, &begun.scope)?;
    if let Some(latest) = latest
        && (latest.generation >= begun.generation || is_in_the_way(&latest))
    {
        return Err(StoreError::Bound { current: Box::new(latest) });
    }
    match of_sandbox(connection, &begun.sandbox)? {
        Some(other) if is_in_the_way(&other) => {
            Err(StoreError::Conflict { what: "a session of the sandbox" })
        }
        Some(_) | None => Ok(()),
    }
}

fn insert(connection: &Connection, row: &SessionRow) -> Result<(), StoreError> {
    let sql = format!("INSERT INTO sessions ({SESSION}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    connection.prepare_cached(&sql)?.execute(params![
        row.id,
        row.tenant,
        row.scope_type,
        row.scope_id,
        row.sandbox,
        row.node,
        row.generation,
        row.revision,
        row.state,
        row.body,
        row.checksum,
    ])?;
    Ok(())
}

fn update(connection: &Connection, row: &SessionRow) -> Result<(), StoreError> {
    let sql = "UPDATE sessions SET revision = ?, state = ?, body = ?, checksum = ? WHERE id = ?";
    let mut statement = connection.prepare_cached(sql)?;
    statement.execute(params![row.revision, row.state, row.body, row.checksum, row.id])?;
    Ok(())
}

/// What stood there before has expired.
fn remember(connection: &Connection, used: &UsedKey) -> Result<(), StoreError> {
    let sql = "INSERT OR REPLACE INTO idempotency
               (tenant, principal, name, request, session_id, expires_at)
               VALUES (?, ?, ?, ?, ?, ?)";
    let UsedKey { name, request, session, expires_at, .. } = used;
    connection.prepare_cached(sql)?.execute(params![
        name.tenant.as_str(),
        name.principal,
        name.name,
        request,
        session.as_str(),
        expires_at.as_millis(),
    ])?;
    Ok(())
}

/// Returns which request had this key, unless that was long ago.
pub(super) fn used_key(
    connection: &Connection,
    name: &KeyName,
    now: Timestamp,
) -> Result<Option<([u8; 32], SessionId)>, StoreError> {
    let sql = "SELECT request, session_id FROM idempotency
               WHERE tenant = ? AND principal = ? AND name = ? AND expires_at > ?";
    let key = params![name.tenant.as_str(), name.principal, name.name, now.as_millis()];
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let found: Option<([u8; 32], String)> =
        connection.prepare_cached(sql)?.query_row(key, read).optional()?;
    let not_understood = |_not_an_id| StoreError::Row { table: "idempotency" };
    found.map(|(request, id)| Ok((request, id.parse().map_err(not_understood)?))).transpose()
}

/// Forgets keys whose time is over.
pub(super) fn forget_keys(connection: &Connection, now: Timestamp) -> Result<(), StoreError> {
    let sql = "DELETE FROM idempotency WHERE expires_at <= ?";
    connection.prepare_cached(sql)?.execute([now.as_millis()])?;
    Ok(())
}

fn session(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        id: row.get(0)?,
        tenant: row.get(1)?,
        scope_type: row.get(2)?,
        scope_id: row.get(3)?,
        sandbox: row.get(4)?,
        node: row.get(5)?,
        generation: row.get(6)?,
        revision: row.get(7)?,
        state: row.get(8)?,
        body: row.get(9)?,
        checksum: row.get(10)?,
    })
}

pub(super) fn by_id(
    connection: &Connection,
    id: &SessionId,
) -> Result<Option<Session>, StoreError> {
    let sql = format!("SELECT {SESSION} FROM sessions WHERE id = ?");
    let found = connection.prepare_cached(&sql)?.query_row([id.as_str()], session).optional()?;
    found.map(SessionRow::read).transpose()
}

/// Returns the last binding of a scope.
pub(super) fn of_scope(
    connection: &Connection,
    tenant: &Tenant,
    scope: &Scope,
) -> Result<Option<Session>, StoreError> {
    let sql = format!(
        "SELECT {SESSION} FROM sessions WHERE tenant = ? AND scope_type = ? AND scope_id = ?
         ORDER BY generation DESC LIMIT 1"
    );
    let key = [tenant.as_str(), scope.kind.name(), scope.id.as_str()];
    let found = connection.prepare_cached(&sql)?.query_row(key, session).optional()?;
    found.map(SessionRow::read).transpose()
}

/// Returns the last binding of a sandbox: the one that has not ended, if there is one.
pub(super) fn of_sandbox(
    connection: &Connection,
    sandbox: &SandboxId,
) -> Result<Option<Session>, StoreError> {
    let sql = format!(
        "SELECT {SESSION} FROM sessions WHERE sandbox_id = ?
         ORDER BY state = 'ended', generation DESC LIMIT 1"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement.query_row([sandbox.as_str()], session).optional()?;
    found.map(SessionRow::read).transpose()
}

/// Returns the bindings to sandboxes of a node that have not ended.
pub(super) fn of_node(connection: &Connection, node: &NodeId) -> Result<Vec<Session>, StoreError> {
    let sql = format!("SELECT {SESSION} FROM sessions WHERE node = ? AND state <> 'ended'");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map([node.as_str()], session)?;
    rows.map(|row| row.map_err(StoreError::from).and_then(SessionRow::read)).collect()
}
