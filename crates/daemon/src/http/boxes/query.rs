//! What lists are narrowed and ordered by, and where a page of them begins.

use axum::http::Uri;
use model::listing::{Label, Order, Place, Query, Sort};

use super::from_wire::wrong;
use crate::http::{form::Form, problem::ApiError};

/// What differs from list to list.
pub(super) struct Kind {
    pub(super) statuses: &'static [&'static str],
    sorts: &'static [(&'static str, Sort)],
    usual_limit: u64,
}

impl Kind {
    /// Returns what the list can be ordered by.
    pub(super) fn sort_names(&self) -> Vec<&'static str> {
        self.sorts.iter().map(|(name, _)| *name).collect()
    }
}

pub(super) const BOXES: Kind = Kind {
    statuses: &["provisioning", "ready", "failed", "stopped", "deleting"],
    sorts: &[
        ("created_at", Sort::CreatedAt),
        ("name", Sort::Name),
        ("status", Sort::Status),
        ("stopped_at", Sort::StoppedAt),
        ("idle_ttl_seconds", Sort::Idle),
        ("delete_after_stop_seconds", Sort::KeepStopped),
    ],
    usual_limit: MOST,
};

pub(super) const SNAPSHOTS: Kind = Kind {
    statuses: &["building", "ready", "failed", "deleting"],
    sorts: &[("created_at", Sort::CreatedAt), ("name", Sort::Name), ("status", Sort::Status)],
    usual_limit: 50,
};

/// The most on one page.
pub(super) const MOST: u64 = 500;
/// The most that can be passed over.
pub(super) const MOST_PASSED: u64 = 1_000_000;

/// What somebody wants to see of a list.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) query: Query,
    /// Whether it goes page by page with a cursor, rather than by counting.
    has_cursor: bool,
}

impl Wanted {
    /// Returns where the next page begins, for those who go on with a cursor and for those who count.
    pub(super) fn next(&self, next: Option<&Place>, shown: usize) -> (Option<String>, u64) {
        let offset = match next {
            Some(_) if !self.has_cursor => self.query.offset.saturating_add(shown),
            Some(_) | None => 0,
        };
        (next.map(ToString::to_string), u64::try_from(offset).unwrap_or(0))
    }
}

/// Reads the parameters of a list. Those that are not known are passed over.
pub(super) fn read(uri: &Uri, kind: &Kind, me: &str) -> Result<Wanted, ApiError> {
    let form = Form::of_query(uri.query().unwrap_or_default())
        .ok_or_else(|| wrong("query", "it is not written as a query is"))?;
    let one = |name: &'static str| match form.all(name).count() {
        0 | 1 => Ok(form.all(name).next()),
        _ => Err(wrong(name, "it is there more than once")),
    };
    let number = |name: &'static str, least: u64, most: u64| match one(name)? {
        None => Ok(None),
        Some(text) => match text.parse::<u64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(wrong(name, &format!("must be {least} to {most}"))),
        },
    };
    let limit = number("page_size", 1, MOST)?.or(number("limit", 1, MOST)?);
    let offset = number("offset", 0, MOST_PASSED)?.unwrap_or(0);
    let status = one("status")?;
    if status.is_some_and(|status| !kind.statuses.contains(&status)) {
        return Err(wrong("status", &format!("must be one of {}", kind.statuses.join(", "))));
    }
    let created_by = match one("created_by")? {
        None => None,
        Some("me") => Some(me.to_owned()),
        Some(_) => return Err(wrong("created_by", "must be me")),
    };
    let after = match one("cursor")? {
        None => None,
        Some(text) => {
            Some(text.parse::<Place>().map_err(|no_place| wrong("cursor", &no_place.to_string()))?)
        }
    };
    let sort = match one("sort_by")? {
        None => Sort::default(),
        Some(name) => {
            let found = kind.sorts.iter().find(|(known, _)| *known == name);
            let expected = format!("must be one of {}", kind.sort_names().join(", "));
            found.ok_or_else(|| wrong("sort_by", &expected))?.1
        }
    };
    let order = |name: &'static str| match one(name)? {
        None => Ok(None),
        Some("desc") => Ok(Some(Order::Descending)),
        Some("asc") => Ok(Some(Order::Ascending)),
        Some(_) => Err(wrong(name, "must be asc or desc")),
    };
    let (order, direction) = (order("sort_order")?, order("sort_direction")?);
    let label = |text: &str| match text.split_once('=') {
        None => Label { name: text.to_owned(), value: None },
        Some((name, value)) => Label { name: name.to_owned(), value: Some(value.to_owned()) },
    };
    let has_cursor = after.is_some();
    let query = Query {
        name_contains: one("name_contains")?.map(str::to_lowercase),
        status: status.map(str::to_owned),
        labels: form.all("label").map(label).collect(),
        created_by,
        sort,
        order: order.or(direction).unwrap_or(Order::Descending),
        after,
        offset: usize::try_from(offset).unwrap_or(usize::MAX),
        limit: usize::try_from(limit.unwrap_or(kind.usual_limit)).unwrap_or(usize::MAX),
    };
    Ok(Wanted { query, has_cursor })
}
