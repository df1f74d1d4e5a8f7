//! SQL that is the same for both backends: text with parameters `$1`, `$2`, …, which stand in the order of their values.

use rusqlite::types::{ToSqlOutput, ValueRef};

use crate::StoreError;

/// A parameter, or a column of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// No text. Columns of numbers are never null.
    Null,
    Integer(i64),
    Text(String),
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }
}

/// A row of an answer.
#[derive(Debug)]
pub(crate) struct Row {
    table: &'static str,
    columns: std::vec::IntoIter<Value>,
}

impl Row {
    pub(crate) fn new(table: &'static str, columns: Vec<Value>) -> Self {
        Self { table, columns: columns.into_iter() }
    }

    /// Takes the next column, which is a text.
    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        self.optional_text()?.ok_or(StoreError::Row { table: self.table })
    }

    pub(crate) fn optional_text(&mut self) -> Result<Option<String>, StoreError> {
        match self.columns.next() {
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Null) => Ok(None),
            Some(Value::Integer(_)) | None => Err(StoreError::Row { table: self.table }),
        }
    }

    /// Takes the next column, which is a number.
    pub(crate) fn integer(&mut self) -> Result<i64, StoreError> {
        match self.columns.next() {
            Some(Value::Integer(number)) => Ok(number),
            Some(Value::Null | Value::Text(_)) | None => Err(StoreError::Row { table: self.table }),
        }
    }
}

/// A connection to either backend. What is written is part of the transaction that the caller has begun.
pub(crate) trait Sql {
    /// Ends a query whose rows no other transaction can change before this one ends.
    const FOR_UPDATE: &'static str;

    /// Ends a query whose rows stay until the end of the transaction.
    const FOR_KEY_SHARE: &'static str;

    /// Returns the rows of a query. `table` names them in errors.
    async fn rows(
        &self,
        table: &'static str,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<Row>, StoreError>;

    /// Returns how many rows were written.
    async fn write(&self, sql: &str, values: &[Value]) -> Result<u64, StoreError>;

    /// Returns the first row of a query.
    async fn row(
        &self,
        table: &'static str,
        sql: &str,
        values: &[Value],
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(table, sql, values).await?.into_iter().next())
    }
}

impl Sql for rusqlite::Connection {
    // One thread writes.
    const FOR_UPDATE: &'static str = "";
    const FOR_KEY_SHARE: &'static str = "";

    async fn rows(
        &self,
        table: &'static str,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<Row>, StoreError> {
        let mut statement = self.prepare_cached(&numbered(sql))?;
        let count = statement.column_count();
        let mut rows = statement.query(rusqlite::params_from_iter(values))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let columns = (0..count).map(|column| match row.get_ref(column)? {
                ValueRef::Null => Ok(Value::Null),
                ValueRef::Integer(number) => Ok(Value::Integer(number)),
                ValueRef::Text(text) => {
                    let text =
                        std::str::from_utf8(text).map_err(|_not_utf8| StoreError::Row { table })?;
                    Ok(Value::Text(text.to_owned()))
                }
                ValueRef::Real(_) | ValueRef::Blob(_) => Err(StoreError::Row { table }),
            });
            found.push(Row::new(table, columns.collect::<Result<_, _>>()?));
        }
        Ok(found)
    }

    async fn write(&self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let mut statement = self.prepare_cached(&numbered(sql))?;
        let written = statement.execute(rusqlite::params_from_iter(values))?;
        Ok(u64::try_from(written).unwrap_or(u64::MAX))
    }
}

/// SQLite calls parameters `?1`, `?2`, …
fn numbered(sql: &str) -> String {
    sql.replace('$', "?")
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// Runs SQL of this module on SQLite, which answers at once: the future never waits.
pub(crate) fn at_once<T>(
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    use futures_util::FutureExt as _;
    work.now_or_never().unwrap_or(Err(StoreError::Closed))
}
