//! Bodies with their checksums.

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    StoreError,
    row::{check, checksum, decode, encode},
    sql::{Row, Value},
};

/// Returns the body of a row and its checksum, which covers the id and further texts too.
pub(super) fn body(
    what: &'static str,
    id: &str,
    value: &impl Serialize,
    more: &[&str],
) -> Result<[Value; 2], StoreError> {
    let body = encode(what, value)?;
    let sum = sum(id, &body, more);
    Ok([body.into(), sum.into()])
}

/// Reads a row that begins with id, body and checksum.
pub(super) fn read<T: DeserializeOwned>(
    table: &'static str,
    row: &mut Row,
) -> Result<T, StoreError> {
    let (id, body) = (row.text()?, row.text()?);
    let kept = row.integer()?;
    read_checked(table, &id, &body, kept, &[])
}

pub(super) fn read_checked<T: DeserializeOwned>(
    table: &'static str,
    id: &str,
    body: &str,
    kept: i64,
    more: &[&str],
) -> Result<T, StoreError> {
    check(kept, sum(id, body, more), || format!("row {id} of {table}"))?;
    decode(table, body)
}

pub(super) fn read_all<T: DeserializeOwned>(
    table: &'static str,
    rows: Vec<Row>,
) -> Result<Vec<T>, StoreError> {
    rows.into_iter().map(|mut row| read(table, &mut row)).collect()
}

fn sum(id: &str, body: &str, more: &[&str]) -> i64 {
    let mut parts = vec![id.as_bytes(), body.as_bytes()];
    parts.extend(more.iter().map(|text| text.as_bytes()));
    checksum(&parts)
}
