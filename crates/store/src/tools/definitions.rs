//! Tools, versions and snapshots of drafts.

use model::{
    ids::Tenant,
    tool::{
        definition::{DraftConflict, DraftSnapshot, Slug, Tool, ToolVersion},
        ids::{DraftSnapshotId, RunId, ToolId, VersionId},
    },
};

use super::{
    rows::{body, read, read_all},
    runs,
};
use crate::{
    StoreError,
    sql::{Row, Sql, Value},
};

const TOOLS: &str = "tools";
const VERSIONS: &str = "tool_versions";
const SNAPSHOTS: &str = "tool_snapshots";

pub(super) async fn tool(
    sql: &impl Sql,
    tenant: &Tenant,
    id: &ToolId,
) -> Result<Option<Tool>, StoreError> {
    let query = "SELECT id, body, checksum FROM tools WHERE tenant = $1 AND id = $2";
    one(sql.row(TOOLS, query, &[tenant.as_str().into(), id.as_str().into()]).await?)
}

pub(super) async fn tool_by_slug(
    sql: &impl Sql,
    tenant: &Tenant,
    slug: &Slug,
) -> Result<Option<Tool>, StoreError> {
    let query = "SELECT id, body, checksum FROM tools WHERE tenant = $1 AND slug = $2";
    one(sql.row(TOOLS, query, &[tenant.as_str().into(), slug.as_str().into()]).await?)
}

fn one(row: Option<Row>) -> Result<Option<Tool>, StoreError> {
    row.map(|mut row| read(TOOLS, &mut row)).transpose()
}

pub(super) async fn tools(sql: &impl Sql, tenant: &Tenant) -> Result<Vec<Tool>, StoreError> {
    let query = "SELECT id, body, checksum FROM tools WHERE tenant = $1 ORDER BY slug";
    read_all(TOOLS, sql.rows(TOOLS, query, &[tenant.as_str().into()]).await?)
}

pub(super) async fn version(
    sql: &impl Sql,
    tenant: &Tenant,
    id: &VersionId,
) -> Result<Option<(Tool, ToolVersion)>, StoreError> {
    let query = "SELECT id, body, checksum FROM tool_versions WHERE id = $1";
    let Some(mut row) = sql.row(VERSIONS, query, &[id.as_str().into()]).await? else {
        return Ok(None);
    };
    let version: ToolVersion = read(VERSIONS, &mut row)?;
    let tool = tool(sql, tenant, &version.tool).await?;
    Ok(tool.map(|tool| (tool, version)))
}

pub(super) async fn versions(
    sql: &impl Sql,
    tool: &ToolId,
) -> Result<Vec<ToolVersion>, StoreError> {
    let query =
        "SELECT id, body, checksum FROM tool_versions WHERE tool_id = $1 ORDER BY number DESC";
    read_all(VERSIONS, sql.rows(VERSIONS, query, &[tool.as_str().into()]).await?)
}

pub(super) async fn snapshot(
    sql: &impl Sql,
    id: &DraftSnapshotId,
) -> Result<Option<DraftSnapshot>, StoreError> {
    let query = "SELECT id, body, checksum FROM tool_snapshots WHERE id = $1";
    let row = sql.row(SNAPSHOTS, query, &[id.as_str().into()]).await?;
    row.map(|mut row| read(SNAPSHOTS, &mut row)).transpose()
}

pub(super) async fn create(
    sql: &impl Sql,
    tool: &Tool,
    version: &ToolVersion,
    most: u32,
) -> Result<(), StoreError> {
    if tool_by_slug(sql, &tool.tenant, &tool.slug).await?.is_some() {
        return Err(StoreError::Conflict { what: "the tool" });
    }
    let query = "SELECT count(*) FROM tools WHERE tenant = $1";
    let counted = sql.row(TOOLS, query, &[tool.tenant.as_str().into()]).await?;
    let count = counted.map_or(Ok(0), |mut row| row.integer())?;
    if count >= i64::from(most) {
        return Err(StoreError::TooMany { what: "tools", most });
    }
    let [text, checksum] = body("a tool", tool.id.as_str(), tool, &[])?;
    let values = [
        tool.id.as_str().into(),
        tool.tenant.as_str().into(),
        tool.slug.as_str().into(),
        text,
        checksum,
    ];
    sql.write(
        "INSERT INTO tools (id, tenant, slug, body, checksum) VALUES ($1, $2, $3, $4, $5)",
        &values,
    )
    .await?;
    add_version(sql, version).await
}

async fn add_version(sql: &impl Sql, version: &ToolVersion) -> Result<(), StoreError> {
    let [text, checksum] = body("a version of a tool", version.id.as_str(), version, &[])?;
    let number = i64::from(version.number);
    let values =
        [version.id.as_str().into(), version.tool.as_str().into(), number.into(), text, checksum];
    let statement = "INSERT INTO tool_versions (id, tool_id, number, body, checksum) VALUES ($1, $2, $3, $4, $5)";
    sql.write(statement, &values).await.map(drop)
}

pub(super) async fn save_draft(
    sql: &impl Sql,
    expected: &VersionId,
    version: &ToolVersion,
) -> Result<Result<Tool, DraftConflict>, StoreError> {
    let tool = locked(sql, &version.tool).await?;
    let saved = match tool.save_draft(expected, version.id.clone(), version.created_at) {
        Ok(saved) => saved,
        Err(conflict) => return Ok(Err(conflict)),
    };
    let query = "SELECT max(number) FROM tool_versions WHERE tool_id = $1";
    let last = sql.row(VERSIONS, query, &[version.tool.as_str().into()]).await?;
    let last = last.map_or(Ok(0), |mut row| row.integer())?;
    let number =
        u32::try_from(last + 1).map_err(|_too_many| StoreError::Row { table: VERSIONS })?;
    add_version(sql, &ToolVersion { number, ..version.clone() }).await?;
    update(sql, &saved).await?;
    Ok(Ok(saved))
}

pub(super) async fn change(sql: &impl Sql, changed: &Tool) -> Result<Tool, StoreError> {
    let kept = locked(sql, &changed.id).await?;
    if changed.slug != kept.slug
        && tool_by_slug(sql, &changed.tenant, &changed.slug).await?.is_some()
    {
        return Err(StoreError::Conflict { what: "the tool" });
    }
    let changed = Tool { draft_head: kept.draft_head, ..changed.clone() };
    update(sql, &changed).await?;
    Ok(changed)
}

async fn update(sql: &impl Sql, tool: &Tool) -> Result<(), StoreError> {
    let [text, checksum] = body("a tool", tool.id.as_str(), tool, &[])?;
    let values = [tool.slug.as_str().into(), text, checksum, tool.id.as_str().into()];
    sql.write("UPDATE tools SET slug = $1, body = $2, checksum = $3 WHERE id = $4", &values)
        .await
        .map(drop)
}

/// Returns a tool that no other transaction can change before this one ends.
async fn locked<S: Sql>(sql: &S, id: &ToolId) -> Result<Tool, StoreError> {
    let query = format!("SELECT id, body, checksum FROM tools WHERE id = $1{}", S::FOR_UPDATE);
    one(sql.row(TOOLS, &query, &[id.as_str().into()]).await?)?
        .ok_or(StoreError::NotFound { what: "the tool" })
}

/// Refuses what belongs to a tool that was deleted. The tool stays until the end of the transaction.
pub(super) async fn check_tool<S: Sql>(sql: &S, id: &ToolId) -> Result<(), StoreError> {
    let query = format!("SELECT id FROM tools WHERE id = $1{}", S::FOR_KEY_SHARE);
    let found = sql.row(TOOLS, &query, &[id.as_str().into()]).await?;
    found.map(drop).ok_or(StoreError::NotFound { what: "the tool" })
}

pub(super) async fn delete(sql: &impl Sql, id: &ToolId) -> Result<Vec<RunId>, StoreError> {
    locked(sql, id).await?;
    let runs = runs::of_tool(sql, id).await?;
    let values: [Value; 1] = [id.as_str().into()];
    for table in ["tool_runs", "tool_sessions", SNAPSHOTS, VERSIONS] {
        sql.write(&format!("DELETE FROM {table} WHERE tool_id = $1"), &values).await?;
    }
    sql.write("DELETE FROM tools WHERE id = $1", &values).await?;
    Ok(runs)
}

pub(super) async fn add_snapshot(
    sql: &impl Sql,
    snapshot: &DraftSnapshot,
) -> Result<(), StoreError> {
    locked(sql, &snapshot.tool).await?;
    let [text, checksum] = body("a snapshot of a draft", snapshot.id.as_str(), snapshot, &[])?;
    let created_at = snapshot.created_at.as_millis();
    let values = [
        snapshot.id.as_str().into(),
        snapshot.tool.as_str().into(),
        created_at.into(),
        text,
        checksum,
    ];
    let statement = "INSERT INTO tool_snapshots (id, tool_id, created_at, body, checksum) VALUES ($1, $2, $3, $4, $5)";
    sql.write(statement, &values).await.map(drop)
}
