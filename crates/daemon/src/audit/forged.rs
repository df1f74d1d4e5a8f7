//! Tokens that nobody gave out. Anybody can show any number of them, so that after the first of a kind they
//! are counted and no more.

use std::sync::atomic::{AtomicU64, Ordering};

use model::audit::{Action, Entry, Outcome};

use crate::tokens::NotGenuine;

/// How many came of each kind since that was last looked at.
#[derive(Debug, Default)]
pub(super) struct Forged([AtomicU64; NotGenuine::ALL.len()]);

impl Forged {
    /// Counts one. Returns how many there were.
    pub(super) fn count(&self, reason: NotGenuine) -> u64 {
        let mut kinds = NotGenuine::ALL.iter().zip(&self.0);
        let counted = kinds.find(|(kind, _)| **kind == reason);
        counted.map_or(0, |(_, count)| count.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes those that were not noted, and begins anew.
    pub(super) fn take(&self) -> impl Iterator<Item = (NotGenuine, u64)> {
        let kinds = NotGenuine::ALL.into_iter().zip(&self.0);
        let more = kinds.map(|(kind, count)| (kind, count.swap(0, Ordering::Relaxed)));
        more.filter_map(|(kind, count)| Some((kind, count.checked_sub(1)?))).filter(|(_, n)| *n > 0)
    }
}

/// Returns what is noted of one.
pub(super) fn entry(reason: NotGenuine) -> Entry {
    let entry = super::entry(Action::Access, Outcome::Denied);
    Entry { reason: Some(reason.to_string()), ..entry }
}
