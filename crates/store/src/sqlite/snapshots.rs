//! Snapshots in SQL.

use model::{
    ids::{NodeId, SnapshotId, SnapshotName, Tag, Tenant},
    snapshot::{Snapshot, SnapshotRef, SnapshotState},
    units::Timestamp,
};
use rusqlite::{Connection, OptionalExtension as _, ToSql, params};

use super::Sqlite;
use crate::{
    StoreError,
    snapshots::{COLUMNS, NewSnapshot, Row, Tagged, Taking, admit, by_name, by_tag},
};

const MISSING: StoreError = StoreError::NotFound { what: "the snapshot" };
const PARAMETERS: [&str; 3] = ["?1", "?2", "?3"];

impl Sqlite {
    pub(crate) async fn snapshots(&self, tenant: Tenant) -> Result<Vec<Tagged>, StoreError> {
        let read =
            move |connection: &Connection| tagged(connection, "s.tenant = ?1", &[&tenant.as_str()]);
        self.readers.ask(read).await
    }

    pub(crate) async fn find_snapshot(
        &self,
        tenant: Tenant,
        reference: SnapshotRef,
    ) -> Result<Option<Tagged>, StoreError> {
        self.readers.ask(move |connection| find(connection, &tenant, &reference)).await
    }

    pub(crate) async fn snapshots_to_build(
        &self,
        node: NodeId,
    ) -> Result<Vec<Snapshot>, StoreError> {
        let condition = "s.state = 'building' AND s.node = ?1";
        let read = move |connection: &Connection| tagged(connection, condition, &[&node.as_str()]);
        let found = self.readers.ask(read).await?;
        Ok(found.into_iter().map(|tagged| tagged.snapshot).collect())
    }

    pub(crate) async fn ready_snapshots(&self) -> Result<Vec<Snapshot>, StoreError> {
        let found = self.readers.ask(|connection| tagged(connection, "s.state = 'ready'", &[]));
        Ok(found.await?.into_iter().map(|tagged| tagged.snapshot).collect())
    }
}

fn tagged(
    connection: &Connection,
    condition: &str,
    values: &[&dyn ToSql],
) -> Result<Vec<Tagged>, StoreError> {
    let columns = COLUMNS.split(", ").map(|column| format!("s.{column}")).collect::<Vec<_>>();
    let sql = format!(
        "SELECT {}, coalesce((SELECT group_concat(t.tag, ' ') FROM (
             SELECT tag FROM snapshot_tags WHERE snapshot_id = s.id ORDER BY tag) t), '')
         FROM snapshots s WHERE {condition} ORDER BY s.created_at DESC, s.id",
        columns.join(", ")
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(values)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let tags: String = row.get(8)?;
        found.push(read(row)?.with_tags(&tags)?);
    }
    Ok(found)
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        id: row.get(0)?,
        tenant: row.get(1)?,
        name: row.get(2)?,
        node: row.get(3)?,
        state: row.get(4)?,
        created_at: row.get(5)?,
        body: row.get(6)?,
        checksum: row.get(7)?,
    })
}

fn find(
    connection: &Connection,
    tenant: &Tenant,
    reference: &SnapshotRef,
) -> Result<Option<Tagged>, StoreError> {
    let one = |condition: &str, name: &SnapshotName, tag: &Tag| {
        tagged(connection, condition, &[&tenant.as_str(), &name.as_str(), &tag.as_str()])
    };
    let found = match reference {
        SnapshotRef::Id(id) => {
            let condition = "s.tenant = ?1 AND s.id = ?2";
            tagged(connection, condition, &[&tenant.as_str(), &id.as_str()])?
        }
        SnapshotRef::Name(name) => one(&by_name(PARAMETERS), name, &Tag::default())?,
        SnapshotRef::Tagged(name, tag) => one(&by_tag(PARAMETERS), name, tag)?,
    };
    Ok(found.into_iter().next())
}

pub(super) fn create(connection: &Connection, new: &NewSnapshot) -> Result<(), StoreError> {
    let row = Row::new(&new.snapshot)?;
    let sql = "SELECT count(*) FROM snapshots WHERE tenant = ?";
    let count = connection.prepare_cached(sql)?.query_row([&row.tenant], |row| row.get(0))?;
    admit(count, new)?;
    let sql = "SELECT count(*) FROM snapshot_tags WHERE tenant = ? AND name = ? AND tag = ?";
    let tag = params![row.tenant, row.name, new.tag.as_str()];
    let taken: i64 = connection.prepare_cached(sql)?.query_row(tag, |row| row.get(0))?;
    if taken > 0 && new.taking == Taking::Free {
        return Err(StoreError::Conflict { what: "the snapshot" });
    }
    let sql = format!("INSERT INTO snapshots ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
    connection.prepare_cached(&sql)?.execute(params![
        row.id,
        row.tenant,
        row.name,
        row.node,
        row.state,
        row.created_at,
        row.body,
        row.checksum,
    ])?;
    let sql = "INSERT INTO snapshot_tags (tenant, name, tag, snapshot_id) VALUES (?, ?, ?, ?)
               ON CONFLICT (tenant, name, tag) DO UPDATE SET snapshot_id = excluded.snapshot_id";
    let values = params![row.tenant, row.name, new.tag.as_str(), row.id];
    connection.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

/// Keeps what became of one whose image was on its way. One that is settled or gone stays so.
pub(super) fn settle(
    connection: &Connection,
    id: &SnapshotId,
    state: SnapshotState,
    at: Timestamp,
) -> Result<(), StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM snapshots WHERE id = ? AND state = 'building'");
    let found = connection.prepare_cached(&sql)?.query_row([id.as_str()], read).optional()?;
    let Some(found) = found else { return Ok(()) };
    let settled = Row::new(&Snapshot { state, updated_at: at, ..found.read()? })?;
    let sql = "UPDATE snapshots SET state = ?, body = ?, checksum = ? WHERE id = ?";
    let values = params![settled.state, settled.body, settled.checksum, settled.id];
    connection.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

pub(super) fn delete(
    connection: &Connection,
    tenant: &Tenant,
    id: &SnapshotId,
) -> Result<(), StoreError> {
    let sql = "SELECT count(*) FROM snapshots WHERE id = ? AND tenant = ?";
    let values = [id.as_str(), tenant.as_str()];
    let there: i64 = connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
    if there == 0 {
        return Err(MISSING);
    }
    let sql = "DELETE FROM snapshot_tags WHERE snapshot_id = ?";
    connection.prepare_cached(sql)?.execute([id.as_str()])?;
    connection.prepare_cached("DELETE FROM snapshots WHERE id = ?")?.execute([id.as_str()])?;
    Ok(())
}
