//! What is asked of the store about sessions, and how they are laid out in rows.

use std::fmt;

use model::{
    audit::Entry,
    ids::{SessionId, Tenant},
    lease::Lease,
    scope::{Scope, ScopeKind},
    session::{Session, State, Step},
    token::Generation,
    transition::Creation,
    units::Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::{
    StoreError,
    row::{check, checksum, decode, encode},
};

/// What is kept in one piece: a step of the bindings of a scope, the sandbox that it is about if that is
/// new, the key of the request if it has one, and what the audit log says of it.
#[derive(Clone, Debug)]
pub struct Binding {
    pub step: Option<Step>,
    pub creation: Option<Creation>,
    pub used: Option<UsedKey>,
    pub records: Vec<Entry>,
}

/// The key of a request that was carried out, so that it is carried out once.
#[derive(Clone, PartialEq, Eq)]
pub struct UsedKey {
    pub name: KeyName,
    /// Tells one request from another.
    pub request: [u8; 32],
    pub session: SessionId,
    pub used_at: Timestamp,
    pub expires_at: Timestamp,
}

/// A name that a caller gave a request, and whose it is.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyName {
    pub tenant: Tenant,
    pub principal: String,
    pub name: String,
}

/// What a caller calls his requests is his own.
impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyName").field("principal", &self.principal).finish_non_exhaustive()
    }
}

impl fmt::Debug for UsedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsedKey").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Binding {
    pub fn of(step: Step) -> Self {
        Self { step: Some(step), creation: None, used: None, records: Vec::new() }
    }

    /// Returns the binding that goes on or ends.
    pub(crate) fn changed(&self) -> Option<&Session> {
        self.step.as_ref().and_then(Step::changed)
    }

    /// Returns the binding that begins.
    pub(crate) fn begun(&self) -> Option<&Session> {
        self.step.as_ref().and_then(Step::begun)
    }
}

/// A row of `sessions`.
#[derive(Clone, Debug)]
pub(crate) struct SessionRow {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) scope_type: String,
    pub(crate) scope_id: String,
    pub(crate) sandbox: String,
    pub(crate) node: String,
    pub(crate) generation: i64,
    pub(crate) revision: i64,
    pub(crate) state: String,
    pub(crate) body: String,
    pub(crate) checksum: i64,
}

/// The columns of [`SessionRow`], in its order.
pub(crate) const SESSION: &str = "id, tenant, scope_type, scope_id, sandbox_id, node, generation, \
                                  revision, state, body, checksum";

/// What stands in `body`. Fields are only ever added.
#[derive(Debug, Serialize, Deserialize)]
struct Body {
    state: State,
    lease: Lease,
    created_by: String,
    created_at: Timestamp,
}

impl SessionRow {
    pub(crate) fn new(session: &Session) -> Result<Self, StoreError> {
        let state = match session.state {
            State::Live => "live",
            State::Released { .. } => "released",
            State::Ended(_) => "ended",
        };
        let body = Body {
            state: session.state,
            lease: session.lease,
            created_by: session.created_by.clone(),
            created_at: session.created_at,
        };
        let mut row = Self {
            id: session.id.to_string(),
            tenant: session.tenant.to_string(),
            scope_type: session.scope.kind.name().to_owned(),
            scope_id: session.scope.id.to_string(),
            sandbox: session.sandbox.to_string(),
            node: session.node.to_string(),
            generation: signed(session.generation.0),
            revision: signed(session.revision),
            state: state.to_owned(),
            body: encode("a session", &body)?,
            checksum: 0,
        };
        row.checksum = row.sum();
        Ok(row)
    }

    fn sum(&self) -> i64 {
        checksum(&[
            self.id.as_bytes(),
            self.tenant.as_bytes(),
            self.scope_type.as_bytes(),
            self.scope_id.as_bytes(),
            self.sandbox.as_bytes(),
            self.node.as_bytes(),
            &self.generation.to_be_bytes(),
            &self.revision.to_be_bytes(),
            self.state.as_bytes(),
            self.body.as_bytes(),
        ])
    }

    pub(crate) fn read(self) -> Result<Session, StoreError> {
        check(self.checksum, self.sum(), || format!("the row of session {}", self.id))?;
        let not_understood = || StoreError::Row { table: "sessions" };
        let Body { state, lease, created_by, created_at } = decode("sessions", &self.body)?;
        Ok(Session {
            id: self.id.parse().map_err(|_not_an_id| not_understood())?,
            tenant: self.tenant.parse().map_err(|_not_a_name| not_understood())?,
            scope: Scope {
                kind: ScopeKind::named(&self.scope_type).ok_or_else(not_understood)?,
                id: self.scope_id.parse().map_err(|_not_an_id| not_understood())?,
            },
            sandbox: self.sandbox.parse().map_err(|_not_an_id| not_understood())?,
            node: self.node.parse().map_err(|_not_a_name| not_understood())?,
            generation: Generation(u64::try_from(self.generation).unwrap_or(0)),
            revision: u64::try_from(self.revision).unwrap_or(0),
            state,
            lease,
            created_by,
            created_at,
        })
    }
}

/// Generations and revisions stay far below what a signed column holds.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::sessions::session;

    /// F23: what a released version wrote is read by every later one.
    #[test]
    fn a_row_is_written_as_it_always_was() {
        let session = session(1, "thr_1");
        let row = SessionRow::new(&session).unwrap();
        let body = r#"{"state":"live","lease":{"until":3601000,"hard":28801000},"created_by":"key_1","created_at":1000}"#;
        assert_eq!(row.body, body);
        assert_eq!(row.read().unwrap(), session);
    }

    /// F14.
    #[test]
    fn a_changed_row_is_told() {
        let row = SessionRow::new(&session(1, "thr_1")).unwrap();
        let changes: [fn(&mut SessionRow); 4] = [
            |row| row.state = "ended".to_owned(),
            |row| row.generation += 1,
            |row| row.sandbox.push('x'),
            |row| row.body = row.body.replace("live", "Live"),
        ];
        for change in changes {
            let mut row = row.clone();
            change(&mut row);
            assert!(matches!(row.read(), Err(StoreError::Damaged { .. })));
        }
    }
}
