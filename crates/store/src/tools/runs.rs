//! Runs of tools. The row of a run and its session change together.

use model::{
    ids::{NodeId, Tenant},
    tool::{
        ids::{RunId, ToolId},
        run::{RunStatus, RunTexts, ToolRun},
        session::{ActionConflict, ToolSession},
    },
    units::Timestamp,
};

use super::{
    Forget, RunFinish, SessionKey, definitions,
    rows::{body, read_checked},
    sessions,
};
use crate::{
    StoreError, failpoint,
    row::{decode, encode},
    sql::{Row, Sql, Value},
};

const TABLE: &str = "tool_runs";
const COLUMNS: &str = "id, body, checksum, payload, stdout, stderr";

pub(super) async fn run(
    sql: &impl Sql,
    tenant: &Tenant,
    id: &RunId,
) -> Result<Option<(ToolRun, RunTexts)>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM tool_runs WHERE id = $1");
    let row = sql.row(TABLE, &query, &[id.as_str().into()]).await?;
    let found = row.map(read).transpose()?;
    Ok(found.filter(|(run, _)| run.tenant == *tenant))
}

pub(super) async fn of_user(
    sql: &impl Sql,
    tool: &ToolId,
    user: &str,
    limit: u32,
) -> Result<Vec<ToolRun>, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM tool_runs WHERE tool_id = $1 AND user_name = $2 ORDER BY queued_at DESC, id LIMIT $3"
    );
    let values = [tool.as_str().into(), user.into(), i64::from(limit).into()];
    read_runs(sql.rows(TABLE, &query, &values).await?)
}

pub(super) async fn unfinished(sql: &impl Sql, node: &NodeId) -> Result<Vec<ToolRun>, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM tool_runs WHERE node = $1 AND status IN ('queued', 'running') ORDER BY queued_at, id"
    );
    read_runs(sql.rows(TABLE, &query, &[node.as_str().into()]).await?)
}

/// Returns the ids of all runs of a tool.
pub(super) async fn of_tool(sql: &impl Sql, tool: &ToolId) -> Result<Vec<RunId>, StoreError> {
    let query = "SELECT id FROM tool_runs WHERE tool_id = $1 ORDER BY id";
    read_ids(sql.rows(TABLE, query, &[tool.as_str().into()]).await?)
}

fn read_runs(rows: Vec<Row>) -> Result<Vec<ToolRun>, StoreError> {
    rows.into_iter().map(|row| Ok(read(row)?.0)).collect()
}

fn read_ids(rows: Vec<Row>) -> Result<Vec<RunId>, StoreError> {
    let id =
        |mut row: Row| row.text()?.parse().map_err(|_not_an_id| StoreError::Row { table: TABLE });
    rows.into_iter().map(id).collect()
}

fn read(mut row: Row) -> Result<(ToolRun, RunTexts), StoreError> {
    let (id, body, kept) = (row.text()?, row.text()?, row.integer()?);
    let (payload, stdout, stderr) = (row.optional_text()?, row.text()?, row.text()?);
    let texts = [payload.as_deref().unwrap_or_default(), &stdout, &stderr];
    let run = read_checked(TABLE, &id, &body, kept, &texts)?;
    let (stdout, stderr) = (decode(TABLE, &stdout)?, decode(TABLE, &stderr)?);
    Ok((run, RunTexts { payload, stdout, stderr }))
}

/// Returns the columns that may change: status, body, checksum, payload, stdout, stderr.
fn columns(run: &ToolRun, texts: &RunTexts) -> Result<[Value; 6], StoreError> {
    let stdout = encode("the output of a run", &texts.stdout)?;
    let stderr = encode("the output of a run", &texts.stderr)?;
    let payload = texts.payload.as_deref().unwrap_or_default();
    let [body, checksum] =
        body("a run of a tool", run.id.as_str(), run, &[payload, &stdout, &stderr])?;
    let status = run.status.as_str().into();
    Ok([status, body, checksum, texts.payload.clone().into(), stdout.into(), stderr.into()])
}

fn key(run: &ToolRun) -> SessionKey {
    SessionKey { tool: run.tool.clone(), user: run.user.clone(), context: run.context.clone() }
}

pub(super) async fn begin(
    sql: &impl Sql,
    run: &ToolRun,
    expected: Option<u64>,
) -> Result<Result<ToolSession, ActionConflict>, StoreError> {
    definitions::check_tool(sql, &run.tool).await?;
    let key = key(run);
    let mut session = ToolSession::default();
    if let Some(expected) = expected {
        let kept = sessions::locked(sql, &key).await?;
        let kept = kept.ok_or(StoreError::NotFound { what: "the session" })?;
        session = match kept.begin_action(expected, run.id.clone()) {
            Ok(begun) => begun,
            Err(conflict) => return Ok(Err(conflict)),
        };
        sessions::keep(sql, &key, &session, run.queued_at).await?;
    }
    let [status, body, checksum, payload, stdout, stderr] = columns(run, &RunTexts::default())?;
    let queued_at = run.queued_at.as_millis().into();
    let (id, tool, user) =
        (run.id.as_str().into(), run.tool.as_str().into(), run.user.as_str().into());
    let values = [
        id,
        tool,
        user,
        run.node.as_str().into(),
        status,
        queued_at,
        body,
        payload,
        stdout,
        stderr,
        checksum,
    ];
    let statement = "INSERT INTO tool_runs
        (id, tool_id, user_name, node, status, queued_at, body, payload, stdout, stderr, checksum)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    sql.write(statement, &values).await?;
    Ok(Ok(session))
}

/// Returns a run that no other transaction can change before this one ends.
async fn locked<S: Sql>(sql: &S, id: &RunId) -> Result<(ToolRun, RunTexts), StoreError> {
    let query = format!("SELECT {COLUMNS} FROM tool_runs WHERE id = $1{}", S::FOR_UPDATE);
    let row = sql.row(TABLE, &query, &[id.as_str().into()]).await?;
    read(row.ok_or(StoreError::NotFound { what: "the run" })?)
}

async fn keep(sql: &impl Sql, run: &ToolRun, texts: &RunTexts) -> Result<(), StoreError> {
    let [status, body, checksum, payload, stdout, stderr] = columns(run, texts)?;
    let values = [status, body, checksum, payload, stdout, stderr, run.id.as_str().into()];
    let statement = "UPDATE tool_runs SET status = $1, body = $2, checksum = $3, payload = $4, stdout = $5, stderr = $6
                     WHERE id = $7";
    sql.write(statement, &values).await.map(drop)
}

pub(super) async fn start(
    sql: &impl Sql,
    id: &RunId,
    at: Timestamp,
) -> Result<(ToolRun, bool), StoreError> {
    let (run, texts) = locked(sql, id).await?;
    if run.status != RunStatus::Queued {
        return Ok((run, false));
    }
    let run = ToolRun { status: RunStatus::Running, started_at: Some(at), ..run };
    keep(sql, &run, &texts).await?;
    Ok((run, true))
}

pub(super) async fn finish(
    sql: &impl Sql,
    finish: &RunFinish,
) -> Result<(ToolRun, bool), StoreError> {
    let (run, _) = locked(sql, &finish.run).await?;
    if run.status.is_terminal() {
        return Ok((run, false));
    }
    let key = key(&run);
    let session = sessions::locked(sql, &key).await?.unwrap_or_default();
    let after = session.after(&run.step, &run.id, finish.reported.clone());
    let revision = after
        .as_ref()
        .filter(|after| after.revision != session.revision)
        .map(|after| after.revision);
    if let Some(after) = after {
        sessions::keep(sql, &key, &after, finish.at).await?;
    }
    failpoint::pass("s.tool_run").map_err(|report| StoreError::Commit { report })?;
    let run = ToolRun {
        status: finish.status,
        started_at: finish.started_at.or(run.started_at),
        finished_at: Some(finish.at),
        error_summary: finish.error_summary.clone(),
        artifacts: finish.artifacts.clone(),
        stdout_truncated: finish.stdout_truncated,
        stderr_truncated: finish.stderr_truncated,
        revision,
        ..run
    };
    keep(sql, &run, &finish.texts).await?;
    Ok((run, true))
}

pub(super) async fn forget(sql: &impl Sql, what: Forget) -> Result<Vec<RunId>, StoreError> {
    let before: [Value; 1] = [what.snapshots_before.as_millis().into()];
    let sessions = "DELETE FROM tool_sessions WHERE updated_at < $1 AND context LIKE 'sandbox:%'";
    sql.write(sessions, &before).await?;
    sql.write("DELETE FROM tool_snapshots WHERE created_at < $1", &before).await?;
    let query =
        "SELECT id FROM tool_runs WHERE queued_at < $1 AND status NOT IN ('queued', 'running')
                 ORDER BY queued_at, id LIMIT $2";
    let values = [what.runs_before.as_millis().into(), i64::from(what.limit).into()];
    let runs = read_ids(sql.rows(TABLE, query, &values).await?)?;
    for run in &runs {
        sql.write("DELETE FROM tool_runs WHERE id = $1", &[run.as_str().into()]).await?;
    }
    Ok(runs)
}
