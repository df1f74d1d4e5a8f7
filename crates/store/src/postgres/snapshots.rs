//! Snapshots in SQL. Each function that writes is called inside a transaction.

use model::{
    ids::{NodeId, SnapshotId, Tag, Tenant},
    snapshot::{Snapshot, SnapshotRef, SnapshotState},
    units::Timestamp,
};
use tokio_postgres::types::ToSql;

use super::session::Session;
use crate::{
    StoreError,
    snapshots::{COLUMNS, NewSnapshot, Row, Tagged, Taking, admit, by_name, by_tag},
};

const PARAMETERS: [&str; 3] = ["$1", "$2", "$3"];

pub(super) async fn all(session: &Session, tenant: &Tenant) -> Result<Vec<Tagged>, StoreError> {
    tagged(session, "s.tenant = $1", &[&tenant.as_str()]).await
}

pub(super) async fn to_build(
    session: &Session,
    node: &NodeId,
) -> Result<Vec<Snapshot>, StoreError> {
    let condition = "s.state = 'building' AND s.node = $1";
    let found = tagged(session, condition, &[&node.as_str()]).await?;
    Ok(found.into_iter().map(|tagged| tagged.snapshot).collect())
}

pub(super) async fn ready(session: &Session) -> Result<Vec<Snapshot>, StoreError> {
    let found = tagged(session, "s.state = 'ready'", &[]).await?;
    Ok(found.into_iter().map(|tagged| tagged.snapshot).collect())
}

pub(super) async fn find(
    session: &Session,
    tenant: &Tenant,
    reference: &SnapshotRef,
) -> Result<Option<Tagged>, StoreError> {
    let tenant = tenant.as_str();
    let found = match reference {
        SnapshotRef::Id(id) => {
            tagged(session, "s.tenant = $1 AND s.id = $2", &[&tenant, &id.as_str()]).await?
        }
        SnapshotRef::Name(name) => {
            let values: [&(dyn ToSql + Sync); 3] =
                [&tenant, &name.as_str(), &Tag::default().as_str().to_owned()];
            tagged(session, &by_name(PARAMETERS), &values).await?
        }
        SnapshotRef::Tagged(name, tag) => {
            let values: [&(dyn ToSql + Sync); 3] = [&tenant, &name.as_str(), &tag.as_str()];
            tagged(session, &by_tag(PARAMETERS), &values).await?
        }
    };
    Ok(found.into_iter().next())
}

async fn tagged(
    session: &Session,
    condition: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Tagged>, StoreError> {
    let columns = COLUMNS.split(", ").map(|column| format!("s.{column}")).collect::<Vec<_>>();
    let sql = format!(
        "SELECT {}, coalesce((SELECT string_agg(t.tag, ' ' ORDER BY t.tag COLLATE \"C\")
             FROM snapshot_tags t WHERE t.snapshot_id = s.id), '')
         FROM snapshots s WHERE {condition} ORDER BY s.created_at DESC, s.id",
        columns.join(", ")
    );
    let rows = session.query(&sql, values).await?;
    rows.iter().map(|row| read(row)?.with_tags(row.try_get(8)?)).collect()
}

fn read(row: &tokio_postgres::Row) -> Result<Row, tokio_postgres::Error> {
    Ok(Row {
        id: row.try_get(0)?,
        tenant: row.try_get(1)?,
        name: row.try_get(2)?,
        node: row.try_get(3)?,
        state: row.try_get(4)?,
        created_at: row.try_get(5)?,
        body: row.try_get(6)?,
        checksum: row.try_get(7)?,
    })
}

pub(super) async fn create(session: &Session, new: &NewSnapshot) -> Result<(), StoreError> {
    let row = Row::new(&new.snapshot)?;
    // One of a tenant at a time, so that no two take the last place, or a tag that was free.
    let sql = "SELECT pg_advisory_xact_lock(hashtext('snapshots'), hashtext($1))";
    session.query(sql, &[&row.tenant]).await?;
    let sql = "SELECT count(*) FROM snapshots WHERE tenant = $1";
    let counted = session.query_opt(sql, &[&row.tenant]).await?;
    let count = counted.map_or(Ok(0), |row| row.try_get(0))?;
    admit(count, new)?;
    let sql = "SELECT 1 FROM snapshot_tags WHERE tenant = $1 AND name = $2 AND tag = $3";
    let taken = session.query_opt(sql, &[&row.tenant, &row.name, &new.tag.as_str()]).await?;
    if taken.is_some() && new.taking == Taking::Free {
        return Err(StoreError::Conflict { what: "the snapshot" });
    }
    let sql = format!("INSERT INTO snapshots ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)");
    session
        .execute(
            &sql,
            &[
                &row.id,
                &row.tenant,
                &row.name,
                &row.node,
                &row.state,
                &row.created_at,
                &row.body,
                &row.checksum,
            ],
        )
        .await?;
    let sql = "INSERT INTO snapshot_tags (tenant, name, tag, snapshot_id) VALUES ($1, $2, $3, $4)
               ON CONFLICT (tenant, name, tag) DO UPDATE SET snapshot_id = excluded.snapshot_id";
    session.execute(sql, &[&row.tenant, &row.name, &new.tag.as_str(), &row.id]).await?;
    Ok(())
}

/// Keeps what became of one whose image was on its way. One that is settled or gone stays so.
pub(super) async fn settle(
    session: &Session,
    id: &SnapshotId,
    state: &SnapshotState,
    at: Timestamp,
) -> Result<(), StoreError> {
    let sql =
        format!("SELECT {COLUMNS} FROM snapshots WHERE id = $1 AND state = 'building' FOR UPDATE");
    let Some(found) = session.query_opt(&sql, &[&id.as_str()]).await? else { return Ok(()) };
    let found = read(&found)?.read()?;
    let settled = Row::new(&Snapshot { state: state.clone(), updated_at: at, ..found })?;
    let sql = "UPDATE snapshots SET state = $1, body = $2, checksum = $3 WHERE id = $4";
    let Row { id, state, body, checksum, .. } = &settled;
    session.execute(sql, &[state, body, checksum, id]).await?;
    Ok(())
}

pub(super) async fn delete(
    session: &Session,
    tenant: &Tenant,
    id: &SnapshotId,
) -> Result<(), StoreError> {
    let sql = "SELECT 1 FROM snapshots WHERE id = $1 AND tenant = $2 FOR UPDATE";
    let there = session.query_opt(sql, &[&id.as_str(), &tenant.as_str()]).await?;
    if there.is_none() {
        return Err(StoreError::NotFound { what: "the snapshot" });
    }
    let sql = "DELETE FROM snapshot_tags WHERE snapshot_id = $1";
    session.execute(sql, &[&id.as_str()]).await?;
    session.execute("DELETE FROM snapshots WHERE id = $1", &[&id.as_str()]).await?;
    Ok(())
}
