//! Sessions in SQL: reading. Each question is one statement, and so sees one moment.

use model::{
    ids::{NodeId, SandboxId, SessionId, Tenant},
    scope::Scope,
    session::Session,
    units::Timestamp,
};
use tokio_postgres::{Error, Row};

use super::session::Session as Connection;
use crate::{
    StoreError,
    sessions::{KeyName, SESSION, SessionRow},
};

/// Reads the columns of [`SESSION`] from the beginning of a row.
pub(super) fn read(row: &Row) -> Result<SessionRow, Error> {
    Ok(SessionRow {
        id: row.try_get(0)?,
        tenant: row.try_get(1)?,
        scope_type: row.try_get(2)?,
        scope_id: row.try_get(3)?,
        sandbox: row.try_get(4)?,
        node: row.try_get(5)?,
        generation: row.try_get(6)?,
        revision: row.try_get(7)?,
        state: row.try_get(8)?,
        body: row.try_get(9)?,
        checksum: row.try_get(10)?,
    })
}

fn one(found: Option<Row>) -> Result<Option<Session>, StoreError> {
    found.map(|row| read(&row)?.read()).transpose()
}

pub(super) async fn by_id(
    connection: &Connection,
    id: &SessionId,
) -> Result<Option<Session>, StoreError> {
    let sql = format!("SELECT {SESSION} FROM sessions WHERE id = $1");
    one(connection.query_opt(&sql, &[&id.as_str()]).await?)
}

/// Returns the last binding of a scope.
pub(super) async fn of_scope(
    connection: &Connection,
    tenant: &Tenant,
    scope: &Scope,
) -> Result<Option<Session>, StoreError> {
    let sql = format!(
        "SELECT {SESSION} FROM sessions WHERE tenant = $1 AND scope_type = $2 AND scope_id = $3
         ORDER BY generation DESC LIMIT 1"
    );
    let (kind, id) = (scope.kind.name(), scope.id.as_str());
    one(connection.query_opt(&sql, &[&tenant.as_str(), &kind, &id]).await?)
}

/// Returns the last binding of a sandbox: the one that has not ended, if there is one.
pub(super) async fn of_sandbox(
    connection: &Connection,
    sandbox: &SandboxId,
) -> Result<Option<Session>, StoreError> {
    let sql = format!(
        "SELECT {SESSION} FROM sessions WHERE sandbox_id = $1
         ORDER BY state = 'ended', generation DESC LIMIT 1"
    );
    one(connection.query_opt(&sql, &[&sandbox.as_str()]).await?)
}

/// Returns the bindings to sandboxes of a node that have not ended.
pub(super) async fn of_node(
    connection: &Connection,
    node: &NodeId,
) -> Result<Vec<Session>, StoreError> {
    let sql = format!("SELECT {SESSION} FROM sessions WHERE node = $1 AND state <> 'ended'");
    let rows = connection.query(&sql, &[&node.as_str()]).await?;
    rows.iter().map(|row| read(row)?.read()).collect()
}

/// Returns which request had this key, unless that was long ago.
pub(super) async fn used_key(
    connection: &Connection,
    name: &KeyName,
    now: Timestamp,
) -> Result<Option<([u8; 32], SessionId)>, StoreError> {
    let sql = "SELECT request, session_id FROM idempotency
               WHERE tenant = $1 AND principal = $2 AND name = $3 AND expires_at > $4";
    let key = (name.tenant.as_str(), &name.principal, &name.name, now.as_millis());
    let found = connection.query_opt(sql, &[&key.0, &key.1, &key.2, &key.3]).await?;
    let Some(row) = found else { return Ok(None) };
    let (request, id): (Vec<u8>, String) = (row.try_get(0)?, row.try_get(1)?);
    let not_understood = || StoreError::Row { table: "idempotency" };
    let request = request.try_into().map_err(|_length| not_understood())?;
    Ok(Some((request, id.parse().map_err(|_not_an_id| not_understood())?)))
}

/// Forgets keys whose time is over.
pub(super) async fn forget_keys(connection: &Connection, now: Timestamp) -> Result<(), StoreError> {
    let sql = "DELETE FROM idempotency WHERE expires_at <= $1";
    connection.execute(sql, &[&now.as_millis()]).await?;
    Ok(())
}
