//! The log as it is read: by pages, those records that somebody wants.

use std::path::Path;

use api::{audit::AuditPage, errors::ErrorCode};
use model::audit::{Action, Outcome};
use serde::Deserialize;
use store::{
    Store, StoreError,
    audit::{Order, PAGE, Part, Record},
    lock::DirectoryLock,
};

use super::Audit;
use crate::{
    http::problem::ApiError,
    keys::{KeyError, store_file},
};

/// What a page has, if nobody says.
const USUAL: u32 = 100;

/// Which records somebody wants. Unknown names are refused, because they might be meant to confine.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wanted {
    /// `desc`, newest first, unless it is `asc`.
    pub order: Option<String>,
    pub cursor: Option<String>,
    pub limit: Option<u32>,
    pub action: Option<String>,
    pub outcome: Option<String>,
    pub actor: Option<String>,
    pub key_id: Option<String>,
    pub tenant: Option<String>,
    pub scope: Option<String>,
    pub session: Option<String>,
    pub sandbox: Option<String>,
    pub jti: Option<String>,
    pub request_id: Option<String>,
}

impl Wanted {
    /// Returns where to read, or what is wrong with the question.
    fn part(&self) -> Result<(Order, Option<u64>), ApiError> {
        let invalid = |message| ApiError::new(ErrorCode::InvalidRequest, message);
        let order = match self.order.as_deref() {
            None | Some("desc") => Order::NewestFirst,
            Some("asc") => Order::OldestFirst,
            Some(_) => return Err(invalid("order is asc or desc")),
        };
        if self.action.as_deref().is_some_and(|name| Action::named(name).is_none()) {
            return Err(invalid("there is no such action"));
        }
        if self.outcome.as_deref().is_some_and(|name| Outcome::named(name).is_none()) {
            return Err(invalid("outcome is granted, denied or failed"));
        }
        let place = |text: &str| text.strip_prefix(mark(order))?.parse().ok();
        match self.cursor.as_deref().map(place) {
            None => Ok((order, None)),
            Some(Some(beyond)) => Ok((order, Some(beyond))),
            Some(None) => Err(invalid("cursor is not one that this route gave")),
        }
    }

    fn limit(&self) -> usize {
        usize::try_from(self.limit.unwrap_or(USUAL).clamp(1, PAGE)).unwrap_or(1)
    }

    fn matches(&self, record: &Record) -> bool {
        let is = |wanted: &Option<String>, found: Option<&String>| {
            wanted.as_ref().is_none_or(|wanted| found == Some(wanted))
        };
        is(&self.action, Some(&record.action))
            && is(&self.outcome, Some(&record.outcome))
            && is(&self.actor, record.actor_id.as_ref())
            && is(&self.key_id, record.key_id.as_ref())
            && is(&self.tenant, record.tenant.as_ref())
            && is(&self.scope, record.scope.as_ref())
            && is(&self.session, record.session.as_ref())
            && is(&self.sandbox, record.sandbox.as_ref())
            && is(&self.jti, record.jti.as_ref())
            && is(&self.request_id, record.request_id.as_ref())
    }
}

/// A cursor of one order is no good for the other.
const fn mark(order: Order) -> &'static str {
    match order {
        Order::OldestFirst => "up.",
        Order::NewestFirst => "down.",
    }
}

/// Reads one page. It looks at a bounded number of records, whatever is wanted: a page may be empty
/// and yet say where to go on.
async fn read(store: &Store, wanted: &Wanted, tenant: Option<&str>) -> Result<AuditPage, ApiError> {
    let (order, beyond) = wanted.part()?;
    let found = store.audit(Part { order, beyond, limit: PAGE }).await.map_err(shown)?;
    let is_all = found.len() < usize::try_from(PAGE).unwrap_or(usize::MAX);
    let limit = wanted.limit();
    let (mut records, mut last) = (Vec::new(), None);
    let mut rest = found.into_iter();
    while records.len() < limit {
        let Some(record) = rest.next() else { break };
        last = Some(record.sequence);
        let is_told = tenant.is_none_or(|tenant| record.tenant.as_deref() == Some(tenant));
        if is_told && wanted.matches(&record) {
            records.push(to_wire(&record)?);
        }
    }
    let is_over = is_all && rest.next().is_none();
    let next_cursor = last.filter(|_| !is_over).map(|last| format!("{}{last}", mark(order)));
    let checkpoint = store.audit_end().await?.to_string();
    Ok(AuditPage { records, next_cursor, checkpoint })
}

/// The record that does not fit is named: that is what admins look for.
fn shown(error: StoreError) -> ApiError {
    match error {
        StoreError::Damaged { report } => {
            tracing::error!(report, "the audit log was changed");
            ApiError::new(ErrorCode::InternalError, report)
        }
        error => error.into(),
    }
}

/// Both sides write the same fields in the same order.
fn to_wire(record: &Record) -> Result<api::audit::AuditRecord, ApiError> {
    serde_json::from_str(&record.line()?).map_err(|error| ApiError::internal(&error))
}

impl Audit {
    /// Returns records, with all that was noted before: of one tenant, or of all.
    pub(crate) async fn read(
        &self,
        wanted: &Wanted,
        tenant: Option<&str>,
    ) -> Result<AuditPage, ApiError> {
        self.settle().await;
        read(&self.0.store, wanted, tenant).await
    }
}

/// Reads the log while no daemon runs: takes the data directory for itself.
#[derive(Debug)]
pub struct Offline {
    store: Store,
    _lock: DirectoryLock,
}

impl Offline {
    pub fn open(data: &Path) -> Result<Self, KeyError> {
        let lock = DirectoryLock::take(data)?;
        Ok(Self { store: Store::open(&store_file(data))?, _lock: lock })
    }

    /// Returns records as lines of JSON, and where to go on, as the route for admins does; or says
    /// why not.
    pub async fn read(&self, wanted: &Wanted) -> Result<(Vec<String>, Option<String>), String> {
        let page = read(&self.store, wanted, None).await;
        let page = page.map_err(|error| error.message().to_owned())?;
        let lines = page.records.iter().map(serde_json::to_string).collect::<Result<_, _>>();
        Ok((lines.map_err(|error| error.to_string())?, page.next_cursor))
    }

    pub async fn close(self) {
        self.store.close().await;
    }
}
