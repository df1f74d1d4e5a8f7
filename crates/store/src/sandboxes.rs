//! What is asked of the store about sandboxes, and what it answers.

use std::{collections::BTreeMap, fmt, str::FromStr};

use model::{
    event::{Event, Sequence},
    exec::Exec,
    ids::{SandboxId, Tenant},
    life::Phase,
    sandbox::Sandbox,
    transition::Creation,
    units::Timestamp,
};

use crate::{
    StoreError,
    row::{EventRow, ExecRow, Head, Whole, sequence},
};

/// The most that one answer holds, whatever is asked for.
pub const PAGE: u32 = 1000;

/// Which sandboxes to list, newest first.
#[derive(Clone, Debug)]
pub struct Filter {
    pub tenant: Tenant,
    /// Every one of them must be there.
    pub labels: BTreeMap<String, String>,
    pub phases: Phases,
    pub after: Option<Cursor>,
    /// At most [`PAGE`].
    pub limit: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phases {
    /// All but the deleted.
    Undeleted,
    All,
    Only(Vec<Phase>),
}

impl Phases {
    pub(crate) fn names(&self) -> Vec<&'static str> {
        match self {
            Self::All => Phase::ALL.map(Phase::name).into(),
            Self::Only(phases) => phases.iter().map(|phase| phase.name()).collect(),
            Self::Undeleted => {
                let undeleted = Phase::ALL.into_iter().filter(|phase| !phase.is_terminal());
                undeleted.map(Phase::name).collect()
            }
        }
    }
}

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub sandboxes: Vec<Sandbox>,
    /// Ids, as far as they can be read, of rows that do not fit their checksum. The rest is good.
    pub damaged: Vec<String>,
    /// Where to go on; nothing at the end.
    pub next: Option<Cursor>,
}

impl Page {
    /// Reads rows, of which at most so many were asked for. Damaged ones are named and do not hide
    /// the others.
    pub(crate) fn of(rows: Vec<Whole>, limit: u32) -> Result<Self, StoreError> {
        let mut page = Self::default();
        let is_full = u32::try_from(rows.len()).is_ok_and(|count| count >= limit);
        page.next = rows.last().filter(|_| is_full).map(|row| Cursor::of(&row.head));
        for row in rows {
            page.add(row.head.id.clone(), row.read())?;
        }
        Ok(page)
    }

    /// Adds a record, or the name of one that is damaged.
    fn add(&mut self, id: String, read: Result<Sandbox, StoreError>) -> Result<(), StoreError> {
        match read {
            Ok(sandbox) => self.sandboxes.push(sandbox),
            Err(StoreError::Damaged { .. } | StoreError::Row { .. }) => self.damaged.push(id),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// A place in a list. Callers hand it back and look no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub(crate) created_at: Timestamp,
    pub(crate) id: String,
}

impl Cursor {
    pub(crate) fn of(head: &Head) -> Self {
        Self { created_at: Timestamp::from_millis(head.created_at), id: head.id.clone() }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.created_at.as_millis(), self.id)
    }
}

impl FromStr for Cursor {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let (millis, id) = text.split_once('.').ok_or(StoreError::Cursor)?;
        let millis = millis.parse().map_err(|_not_a_number| StoreError::Cursor)?;
        let id: SandboxId = id.parse().map_err(|_not_an_id| StoreError::Cursor)?;
        Ok(Self { created_at: Timestamp::from_millis(millis), id: id.into() })
    }
}

/// Events that follow each other, and what else there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    pub events: Vec<Event>,
    /// The first that is kept.
    pub earliest: Sequence,
    /// The last there is, from the same moment.
    pub latest: Sequence,
}

impl Events {
    /// Reads rows that must follow each other. A hole is damage.
    pub(crate) fn of(
        sandbox: &SandboxId,
        after: Sequence,
        rows: &[EventRow],
        earliest: Sequence,
        latest: Sequence,
    ) -> Result<Self, StoreError> {
        let mut events: Vec<Event> = Vec::with_capacity(rows.len());
        for row in rows {
            let event = row.read(sandbox)?;
            let before = events.last().map_or(after, |event| event.sequence);
            if event.sequence != before.next() {
                let report = format!("sandbox {sandbox} has no event {}", before.next());
                return Err(StoreError::Damaged { report });
            }
            events.push(event);
        }
        if events.is_empty() && after < latest {
            let report = format!("sandbox {sandbox} has no event {}", after.next());
            return Err(StoreError::Damaged { report });
        }
        Ok(Self { events, earliest, latest })
    }
}

/// An exec, and the last event of its sandbox at the same moment: who subscribes from there misses
/// nothing of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecAt {
    pub exec: Exec,
    pub latest: Sequence,
}

impl ExecAt {
    pub(crate) fn of(row: ExecRow, latest: i64) -> Result<Self, StoreError> {
        Ok(Self { exec: row.read()?, latest: sequence(latest) })
    }
}

/// Whether the store still takes writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Good,
    ReadOnly { report: String },
}

/// Refuses labels that not every backend can look for. Other texts are kept as JSON, which has a
/// way to write them.
pub(crate) fn check_labels(creation: &Creation) -> Result<(), StoreError> {
    let mut labels = creation.sandbox().spec.labels.iter();
    if labels.any(|(name, value)| name.contains('\0') || value.contains('\0')) {
        return Err(StoreError::Label);
    }
    Ok(())
}

/// Checks that events after this one can be told, and none is missing.
pub(crate) fn check_range(
    asked: Sequence,
    earliest: Sequence,
    latest: Sequence,
) -> Result<(), StoreError> {
    if asked.next() < earliest || asked > latest {
        return Err(StoreError::OutOfRange { asked, earliest, latest });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is() {
        let id = SandboxId::from_random([3; 16]);
        let cursor = Cursor { created_at: Timestamp::from_millis(17), id: id.to_string() };
        assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        for bad in ["", ".", "17", "17.sb_x", "x.sb_", "17.'; DROP TABLE events"] {
            assert!(matches!(bad.parse::<Cursor>(), Err(StoreError::Cursor)), "{bad}");
        }
    }
}
