//! Many steps of the bindings of scopes in one transaction: looked at, decided in memory, written by
//! columns. What another daemon does meanwhile breaks a unique index, and everything is tried again.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures_util::future::try_join4;

use super::{session::Session as Connection, sessions::read};
use crate::{
    StoreError,
    sessions::{Binding, KeyName, SESSION, SessionRow, UsedKey},
};

/// What there is of the sessions that steps are about, with what steps before in the batch do.
#[derive(Default)]
pub(super) struct Bindings {
    rows: HashMap<String, SessionRow>,
    keys: HashSet<KeyName>,
    /// By id. Sorted, so that daemons come to the same scopes in the same order.
    begun: BTreeMap<String, SessionRow>,
    changed: BTreeMap<String, SessionRow>,
    used: Vec<UsedKey>,
}

/// Reads what the steps are about. Rows that are to change are locked, in the order of their ids.
pub(super) async fn look(
    connection: &Connection,
    asked: &[&Binding],
) -> Result<Bindings, StoreError> {
    if asked.is_empty() {
        return Ok(Bindings::default());
    }
    let by_id = format!("SELECT {SESSION} FROM sessions WHERE id = ANY($1) ORDER BY id FOR UPDATE");
    let by_scope = format!(
        "SELECT s.* FROM unnest($1::text[], $2::text[], $3::text[]) AS w (tenant, kind, id)
         CROSS JOIN LATERAL (SELECT {SESSION} FROM sessions
         WHERE tenant = w.tenant AND scope_type = w.kind AND scope_id = w.id
         ORDER BY generation DESC LIMIT 1) s"
    );
    let by_sandbox =
        format!("SELECT {SESSION} FROM sessions WHERE sandbox_id = ANY($1) AND state <> 'ended'");
    let by_key = "SELECT i.tenant, i.principal, i.name FROM idempotency i
                  JOIN unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
                  AS w (tenant, principal, name, at)
                  ON i.tenant = w.tenant AND i.principal = w.principal AND i.name = w.name
                  AND i.expires_at > w.at";
    let begun: Vec<_> = asked.iter().filter_map(|binding| binding.begun()).collect();
    let changed = asked.iter().filter_map(|binding| binding.changed());
    let ids: Vec<&str> = changed.chain(begun.iter().copied()).map(|it| it.id.as_str()).collect();
    let tenants: Vec<&str> = begun.iter().map(|session| session.tenant.as_str()).collect();
    let kinds: Vec<&str> = begun.iter().map(|session| session.scope.kind.name()).collect();
    let names: Vec<&str> = begun.iter().map(|session| session.scope.id.as_str()).collect();
    let sandboxes: Vec<&str> = begun.iter().map(|session| session.sandbox.as_str()).collect();
    let keys = Keys::of(asked.iter().filter_map(|binding| binding.used.as_ref()));
    let (locked, latest, bound, used) = try_join4(
        connection.query(&by_id, &[&ids]),
        connection.query(&by_scope, &[&tenants, &kinds, &names]),
        connection.query(&by_sandbox, &[&sandboxes]),
        connection.query(by_key, &[&keys.tenants, &keys.principals, &keys.names, &keys.times]),
    )
    .await?;
    let mut bindings = Bindings::default();
    // What was locked is the newest, and comes last.
    for row in latest.iter().chain(&bound).chain(&locked) {
        let row = read(row)?;
        bindings.rows.insert(row.id.clone(), row);
    }
    for row in &used {
        let tenant: String = row.try_get(0)?;
        let tenant = tenant.parse().map_err(|_name| StoreError::Row { table: "idempotency" })?;
        let (principal, name) = (row.try_get(1)?, row.try_get(2)?);
        bindings.keys.insert(KeyName { tenant, principal, name });
    }
    Ok(bindings)
}

/// Keys by columns.
#[derive(Default)]
struct Keys<'a> {
    tenants: Vec<&'a str>,
    principals: Vec<&'a str>,
    names: Vec<&'a str>,
    times: Vec<i64>,
}

impl<'a> Keys<'a> {
    fn of(used: impl Iterator<Item = &'a UsedKey>) -> Self {
        let mut keys = Self::default();
        for UsedKey { name, used_at, .. } in used {
            keys.tenants.push(name.tenant.as_str());
            keys.principals.push(&name.principal);
            keys.names.push(&name.name);
            keys.times.push(used_at.as_millis());
        }
        keys
    }
}

impl Bindings {
    /// Says whether a try before this one kept the step: then its rows stand as it would write them.
    pub(super) fn was_kept(&self, binding: &Binding) -> Result<bool, StoreError> {
        if let Some(begun) = binding.begun() {
            return Ok(self.rows.contains_key(begun.id.as_str()));
        }
        let Some(changed) = binding.changed() else { return Ok(false) };
        let wanted = SessionRow::new(changed)?;
        let found = self.rows.get(&wanted.id);
        Ok(found.is_some_and(|row| row.revision == wanted.revision && row.body == wanted.body))
    }

    /// Returns why a step cannot be kept, if it cannot.
    pub(super) fn refusal(&self, binding: &Binding) -> Option<StoreError> {
        if binding.used.as_ref().is_some_and(|used| self.keys.contains(&used.name)) {
            return Some(StoreError::KeyUsed);
        }
        if let Some(changed) = binding.changed() {
            let Some(row) = self.rows.get(changed.id.as_str()) else {
                return Some(StoreError::NotFound { what: "the session" });
            };
            if u64::try_from(row.revision).ok() != changed.revision.checked_sub(1) {
                return Some(bound(row));
            }
        }
        let begun = binding.begun()?;
        let (tenant, scope) = (begun.tenant.as_str(), &begun.scope);
        let is_in_the_way = |row: &&SessionRow| {
            let ends = binding.changed().filter(|changed| changed.has_ended());
            row.state != "ended" && ends.is_none_or(|ending| ending.id.as_str() != row.id)
        };
        let of_scope = self.rows.values().filter(|row| {
            row.tenant == tenant
                && row.scope_type == scope.kind.name()
                && row.scope_id == scope.id.as_str()
        });
        if let Some(latest) = of_scope.max_by_key(|row| row.generation)
            && (u64::try_from(latest.generation).unwrap_or(0) >= begun.generation.0
                || is_in_the_way(&latest))
        {
            return Some(bound(latest));
        }
        let mut of_sandbox = self.rows.values().filter(|row| row.sandbox == begun.sandbox.as_str());
        of_sandbox
            .any(|row| is_in_the_way(&row))
            .then_some(StoreError::Conflict { what: "a session of the sandbox" })
    }

    pub(super) fn add(&mut self, binding: &Binding) -> Result<(), StoreError> {
        if let Some(changed) = binding.changed() {
            let row = SessionRow::new(changed)?;
            self.rows.insert(row.id.clone(), row.clone());
            match self.begun.get_mut(&row.id) {
                Some(begun) => *begun = row,
                None => drop(self.changed.insert(row.id.clone(), row)),
            }
        }
        if let Some(begun) = binding.begun() {
            let row = SessionRow::new(begun)?;
            self.rows.insert(row.id.clone(), row.clone());
            self.begun.insert(row.id.clone(), row);
        }
        if let Some(used) = &binding.used {
            self.keys.insert(used.name.clone());
            self.used.push(used.clone());
        }
        Ok(())
    }

    /// Writes everything: what ends makes room for what begins.
    pub(super) async fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        self.write_changed(connection).await?;
        self.write_begun(connection).await?;
        self.write_used(connection).await
    }

    async fn write_changed(&self, connection: &Connection) -> Result<(), StoreError> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let sql = "UPDATE sessions s SET revision = n.revision, state = n.state, body = n.body,
                   checksum = n.checksum
                   FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::bigint[])
                   AS n (id, revision, state, body, checksum) WHERE s.id = n.id";
        let rows: Vec<&SessionRow> = self.changed.values().collect();
        connection
            .execute(
                sql,
                &[
                    &column(&rows, |row| row.id.as_str()),
                    &column(&rows, |row| row.revision),
                    &column(&rows, |row| row.state.as_str()),
                    &column(&rows, |row| row.body.as_str()),
                    &column(&rows, |row| row.checksum),
                ],
            )
            .await?;
        Ok(())
    }

    async fn write_begun(&self, connection: &Connection) -> Result<(), StoreError> {
        if self.begun.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "INSERT INTO sessions ({SESSION}) SELECT * FROM unnest($1::text[], $2::text[],
             $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::text[],
             $10::text[], $11::bigint[])"
        );
        let mut rows: Vec<&SessionRow> = self.begun.values().collect();
        rows.sort_by_key(|row| (&row.tenant, &row.scope_type, &row.scope_id, row.generation));
        connection
            .execute(
                &sql,
                &[
                    &column(&rows, |row| row.id.as_str()),
                    &column(&rows, |row| row.tenant.as_str()),
                    &column(&rows, |row| row.scope_type.as_str()),
                    &column(&rows, |row| row.scope_id.as_str()),
                    &column(&rows, |row| row.sandbox.as_str()),
                    &column(&rows, |row| row.node.as_str()),
                    &column(&rows, |row| row.generation),
                    &column(&rows, |row| row.revision),
                    &column(&rows, |row| row.state.as_str()),
                    &column(&rows, |row| row.body.as_str()),
                    &column(&rows, |row| row.checksum),
                ],
            )
            .await?;
        Ok(())
    }

    /// What stood there before has expired.
    async fn write_used(&self, connection: &Connection) -> Result<(), StoreError> {
        if self.used.is_empty() {
            return Ok(());
        }
        let keys = Keys::of(self.used.iter());
        let sql = "DELETE FROM idempotency i
                   USING unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
                   AS w (tenant, principal, name, at)
                   WHERE i.tenant = w.tenant AND i.principal = w.principal AND i.name = w.name
                   AND i.expires_at <= w.at";
        let Keys { tenants, principals, names, times } = &keys;
        connection.execute(sql, &[tenants, principals, names, times]).await?;
        let sql = "INSERT INTO idempotency
                   (tenant, principal, name, request, session_id, expires_at)
                   SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[],
                   $5::text[], $6::bigint[])";
        let requests: Vec<&[u8]> = self.used.iter().map(|used| used.request.as_slice()).collect();
        let sessions: Vec<&str> = self.used.iter().map(|used| used.session.as_str()).collect();
        let ends: Vec<i64> = self.used.iter().map(|used| used.expires_at.as_millis()).collect();
        connection.execute(sql, &[tenants, principals, names, &requests, &sessions, &ends]).await?;
        Ok(())
    }
}

/// Returns what the scope has instead; what of it cannot be read is told as that.
fn bound(row: &SessionRow) -> StoreError {
    match row.clone().read() {
        Ok(current) => StoreError::Bound { current: Box::new(current) },
        Err(damaged) => damaged,
    }
}

fn column<'a, T>(rows: &[&'a SessionRow], value: impl Fn(&'a SessionRow) -> T) -> Vec<T> {
    rows.iter().map(|row| value(row)).collect()
}
