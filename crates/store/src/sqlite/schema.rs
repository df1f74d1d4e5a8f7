//! The schema and its steps forward. A step that was released is never changed.

use rusqlite::Connection;

use crate::StoreError;

/// Step N brings the schema from version N to N + 1.
const STEPS: [&str; 8] = [
    include_str!("../migrations/sqlite/0001_api_keys.sql"),
    include_str!("../migrations/sqlite/0002_sandboxes.sql"),
    include_str!("../migrations/sqlite/0003_sessions.sql"),
    include_str!("../migrations/sqlite/0004_tokens.sql"),
    include_str!("../migrations/sqlite/0005_audit.sql"),
    include_str!("../migrations/sqlite/0006_snapshots.sql"),
    include_str!("../migrations/sqlite/0007_reusable_names.sql"),
    include_str!("../migrations/sqlite/0008_tools.sql"),
];

/// Sets how the database is to work, checks it, and brings its schema up to date.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), StoreError> {
    connection.execute_batch(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA temp_store = MEMORY;
         PRAGMA busy_timeout = 5000;",
    )?;
    let report: String = connection.query_row("PRAGMA integrity_check", (), |row| row.get(0))?;
    if report != "ok" {
        return Err(StoreError::Damaged { report });
    }
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    let found = version(connection)?;
    if found > known {
        return Err(StoreError::Newer { found, known });
    }
    for (step, sql) in (0_i64..).zip(STEPS) {
        if step < found {
            continue;
        }
        let transaction = connection.transaction()?;
        transaction.execute_batch(sql)?;
        transaction.pragma_update(None, "user_version", step + 1)?;
        transaction.commit()?;
        tracing::info!(version = step + 1, "schema brought forward");
    }
    Ok(())
}

fn version(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_database_gets_every_step_once() {
        let mut connection = Connection::open_in_memory().unwrap();
        prepare(&mut connection).unwrap();
        prepare(&mut connection).unwrap();
        assert_eq!(version(&connection).unwrap(), i64::try_from(STEPS.len()).unwrap());
    }

    #[test]
    fn a_schema_from_the_future_is_refused_and_left_alone() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        let refused = prepare(&mut connection);
        assert!(matches!(refused, Err(StoreError::Newer { found: 99, .. })), "{refused:?}");
        assert_eq!(version(&connection).unwrap(), 99);
    }
}
