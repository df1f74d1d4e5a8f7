//! Variables of commands, and what is erased when commands and sandboxes end.

use model::life::Phase;

use super::session::Session;
use crate::{
    StoreError,
    row::{ExecChange, ExecRow, Head},
};

/// Keeps the variables of commands that begin.
pub(super) async fn insert(session: &Session, started: &[ExecRow]) -> Result<(), StoreError> {
    let rows = || started.iter().filter(|row| !row.env.is_empty());
    let sql = "INSERT INTO exec_env (tenant, exec_id, env, checksum)
               SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])";
    let tenants: Vec<&str> = rows().map(|row| row.tenant.as_str()).collect();
    let ids: Vec<&str> = rows().map(|row| row.id.as_str()).collect();
    let env: Vec<&str> = rows().map(|row| row.env.as_str()).collect();
    let checksums: Vec<i64> = rows().map(|row| row.env_checksum).collect();
    session.execute(sql, &[&tenants, &ids, &env, &checksums]).await?;
    Ok(())
}

/// Erases the variables of commands that have ended.
pub(super) async fn remove(session: &Session, ended: &[ExecChange]) -> Result<(), StoreError> {
    let sql = "DELETE FROM exec_env v USING unnest($1::text[], $2::text[]) AS n (tenant, id)
               WHERE v.tenant = n.tenant AND v.exec_id = n.id";
    let tenants: Vec<&str> = ended.iter().map(|row| row.tenant.as_str()).collect();
    let ids: Vec<&str> = ended.iter().map(|row| row.id.as_str()).collect();
    session.execute(sql, &[&tenants, &ids]).await?;
    Ok(())
}

/// Frees the names of sandboxes that have come to their end, and erases what their commands were asked to be.
pub(super) async fn release(session: &Session, changed: &[&Head]) -> Result<(), StoreError> {
    let ended = changed.iter().filter(|row| row.phase == Phase::Terminated.name());
    let ended: Vec<&str> = ended.map(|row| row.id.as_str()).collect();
    if ended.is_empty() {
        return Ok(());
    }
    for sql in [
        "UPDATE sandboxes SET ended_alias = alias, alias = NULL
         WHERE id = ANY($1) AND alias IS NOT NULL",
        "DELETE FROM former_aliases WHERE sandbox_id = ANY($1)",
        "UPDATE execs SET spec = '', spec_checksum = 0 WHERE sandbox_id = ANY($1)",
    ] {
        session.execute(sql, &[&ended]).await?;
    }
    Ok(())
}
