//! Connections: made when they are needed, and made anew when they broke.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::runtime::Handle;
use tokio_postgres::{
    Client, Config, Error, NoTls, Row, Statement,
    types::{ToSql, Type},
};

use crate::{StoreError, sql};

/// The longest wait for an answer. The server itself gives up before.
const ANSWER: Duration = Duration::from_secs(30);

/// A connection and the statements that it has prepared.
pub(crate) struct Session {
    client: Client,
    /// As many as there are different texts in this crate.
    statements: Mutex<HashMap<String, Statement>>,
    /// Set when an answer did not come in time.
    silent: AtomicBool,
}

impl Session {
    /// Connects. Must be called on the runtime of the store, which then drives the connection.
    pub(super) async fn connect(config: &Config) -> Result<Self, StoreError> {
        let unreachable = |error: Error| StoreError::Unreachable { report: report(&error) };
        let (client, connection) = config.connect(NoTls).await.map_err(unreachable)?;
        // Ends when the client is dropped, at the latest with the runtime; why it broke is seen by
        // the next who uses the client.
        Handle::current().spawn(async { drop(connection.await) });
        // An answer is given only for what is on disk, whatever the database's own setting is.
        let settings = "SET synchronous_commit = on;
                        SET statement_timeout = '20s';
                        SET idle_in_transaction_session_timeout = '30s'";
        client.batch_execute(settings).await.map_err(unreachable)?;
        Ok(Self { client, statements: Mutex::default(), silent: AtomicBool::new(false) })
    }

    /// Says whether a new connection is needed.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.silent.load(Ordering::Relaxed)
    }

    pub(super) async fn run(&self, sql: &str) -> Result<(), StoreError> {
        self.answer(self.client.batch_execute(sql)).await
    }

    pub(super) async fn query(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        let asked = async { self.client.query(&self.statement(sql).await?, values).await };
        self.answer(asked).await
    }

    pub(super) async fn query_opt(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, StoreError> {
        let asked = async { self.client.query_opt(&self.statement(sql).await?, values).await };
        self.answer(asked).await
    }

    /// Returns how many rows were written.
    pub(super) async fn execute(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, StoreError> {
        let asked = async { self.client.execute(&self.statement(sql).await?, values).await };
        self.answer(asked).await
    }

    /// Waits for an answer, but not for ever. A connection that was silent once is not used again:
    /// nobody knows what it is still doing.
    async fn answer<T>(
        &self,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, StoreError> {
        if let Ok(answer) = tokio::time::timeout(ANSWER, asked).await {
            return Ok(answer?);
        }
        self.silent.store(true, Ordering::Relaxed);
        Err(StoreError::Unreachable { report: format!("no answer within {ANSWER:?}") })
    }

    async fn statement(&self, sql: &str) -> Result<Statement, Error> {
        let known = self.lock().get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        self.lock().insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Statement>> {
        // The map is whole after every step, so a panic elsewhere does not make it wrong.
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl sql::Sql for Session {
    const FOR_UPDATE: &'static str = " FOR UPDATE";
    const FOR_KEY_SHARE: &'static str = " FOR KEY SHARE";

    async fn rows(
        &self,
        table: &'static str,
        sql: &str,
        values: &[sql::Value],
    ) -> Result<Vec<sql::Row>, StoreError> {
        let rows = self.query(sql, &parameters(values)).await?;
        rows.iter().map(|row| Ok(sql::Row::new(table, columns(table, row)?))).collect()
    }

    async fn write(&self, sql: &str, values: &[sql::Value]) -> Result<u64, StoreError> {
        self.execute(sql, &parameters(values)).await
    }
}

fn parameters(values: &[sql::Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(parameter).collect()
}

fn parameter(value: &sql::Value) -> &(dyn ToSql + Sync) {
    match value {
        sql::Value::Null => &None::<String>,
        sql::Value::Integer(number) => number,
        sql::Value::Text(text) => text,
    }
}

fn columns(table: &'static str, row: &Row) -> Result<Vec<sql::Value>, StoreError> {
    let column = |(index, column): (usize, &tokio_postgres::Column)| match *column.type_() {
        Type::INT8 => {
            Ok(row.try_get::<_, Option<i64>>(index)?.map_or(sql::Value::Null, sql::Value::Integer))
        }
        Type::TEXT => Ok(row.try_get::<_, Option<String>>(index)?.into()),
        _ => Err(StoreError::Row { table }),
    };
    row.columns().iter().enumerate().map(column).collect()
}

/// Returns an error with what is behind it, which the error itself leaves out.
pub(super) fn report(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The connection that all readers share. Questions are sent without waiting for the answers of
/// those before.
#[derive(Debug)]
pub(super) struct Reader {
    config: Config,
    runtime: Handle,
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
    closed: AtomicBool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Reader {
    pub(super) fn new(config: Config, runtime: Handle) -> Self {
        let (session, closed) = (tokio::sync::Mutex::default(), AtomicBool::new(false));
        Self { config, runtime, session, closed }
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Returns the connection, a new one if there is none that works.
    pub(super) async fn session(&self) -> Result<Arc<Session>, StoreError> {
        let mut kept = self.session.lock().await;
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        if let Some(session) = kept.as_ref().filter(|session| !session.is_closed()) {
            return Ok(Arc::clone(session));
        }
        let config = self.config.clone();
        let connecting = self.runtime.spawn(async move { Session::connect(&config).await });
        let session = Arc::new(connecting.await.map_err(|_ended| StoreError::Closed)??);
        *kept = Some(Arc::clone(&session));
        Ok(session)
    }
}
