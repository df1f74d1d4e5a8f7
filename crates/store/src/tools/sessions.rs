//! Sessions of users with tools.

use model::{
    tool::session::{ActionConflict, ToolSession},
    units::Timestamp,
};
use serde_json::{Map, Value as Json};

use super::{
    SessionKey, definitions,
    rows::{body, read_checked},
};
use crate::{
    StoreError,
    sql::{Row, Sql, Value},
};

const TABLE: &str = "tool_sessions";
const QUERY: &str = "SELECT body, checksum FROM tool_sessions WHERE tool_id = $1 AND user_name = $2 AND context = $3";

pub(super) async fn session(
    sql: &impl Sql,
    key: &SessionKey,
) -> Result<Option<ToolSession>, StoreError> {
    read(key, sql.row(TABLE, QUERY, &values(key)).await?)
}

/// Returns a session that no other transaction can change before this one ends.
pub(super) async fn locked<S: Sql>(
    sql: &S,
    key: &SessionKey,
) -> Result<Option<ToolSession>, StoreError> {
    let query = format!("{QUERY}{}", S::FOR_UPDATE);
    read(key, sql.row(TABLE, &query, &values(key)).await?)
}

fn values(key: &SessionKey) -> [Value; 3] {
    [key.tool.as_str().into(), key.user.as_str().into(), key.context.as_str().into()]
}

fn read(key: &SessionKey, row: Option<Row>) -> Result<Option<ToolSession>, StoreError> {
    let Some(mut row) = row else { return Ok(None) };
    let (body, kept) = (row.text()?, row.integer()?);
    read_checked(TABLE, key.tool.as_str(), &body, kept, &names(key)).map(Some)
}

fn names(key: &SessionKey) -> [&str; 2] {
    [&key.user, key.context.as_str()]
}

/// Keeps a session that was locked, or that is new. If another server adds it at the same time, the whole transaction is
/// tried again.
pub(super) async fn keep(
    sql: &impl Sql,
    key: &SessionKey,
    session: &ToolSession,
    at: Timestamp,
) -> Result<(), StoreError> {
    let [tool, user, context] = values(key);
    let [text, checksum] = body("a session of a tool", key.tool.as_str(), session, &names(key))?;
    let values = [tool, user, context, at.as_millis().into(), text, checksum];
    let update = "UPDATE tool_sessions SET updated_at = $4, body = $5, checksum = $6
                  WHERE tool_id = $1 AND user_name = $2 AND context = $3";
    if sql.write(update, &values).await? == 0 {
        let insert =
            "INSERT INTO tool_sessions (tool_id, user_name, context, updated_at, body, checksum)
                      VALUES ($1, $2, $3, $4, $5, $6)";
        sql.write(insert, &values).await?;
    }
    Ok(())
}

pub(super) async fn open(
    sql: &impl Sql,
    key: &SessionKey,
    at: Timestamp,
) -> Result<ToolSession, StoreError> {
    definitions::check_tool(sql, &key.tool).await?;
    if let Some(session) = locked(sql, key).await? {
        return Ok(session);
    }
    let session = ToolSession::default();
    keep(sql, key, &session, at).await?;
    Ok(session)
}

pub(super) async fn set_state(
    sql: &impl Sql,
    key: &SessionKey,
    expected: u64,
    state: &Map<String, Json>,
    at: Timestamp,
) -> Result<Result<ToolSession, ActionConflict>, StoreError> {
    definitions::check_tool(sql, &key.tool).await?;
    let session = locked(sql, key).await?.unwrap_or_default();
    if session.revision != expected {
        return Ok(Err(ActionConflict::Revision { expected, current: session.revision }));
    }
    let session = ToolSession { state: state.clone(), revision: expected + 1, ..session };
    keep(sql, key, &session, at).await?;
    Ok(Ok(session))
}
