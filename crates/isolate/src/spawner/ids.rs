//! Users on the host that nobody else has: two for each slot, one for init and one for user code,
//! and a block for each sandbox.

use std::collections::BTreeMap;

use crate::{identity::SANDBOX_USERS, plan::Identity};

/// A range of user and group ids that belong to this server alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    pub first: u32,
    pub count: u32,
}

impl IdRange {
    /// Far above what distributions and container engines hand out.
    pub const DEFAULT: Self = Self { first: 0x7000_0100, count: 0x0002_0000 };

    /// Who files of images and sandboxes belong to on disk: what user 0 inside owns belongs to the
    /// first of these, and so on. No process has these users but the one that unpacks images, so
    /// that no program on disk can give anybody the rights of a user of the machine.
    pub const ON_DISK: Self = Self { first: 0x5fff_0000, count: SANDBOX_USERS };

    /// The user that the daemon has, if none was made for it.
    pub const DAEMON: u32 = 0x7000_0000;
}

/// Returns which users slots have with this range.
pub(super) fn identity_in(range: Option<IdRange>) -> Identity {
    if range.is_some() { Identity::Apart } else { Identity::Shared }
}

/// The users of sandboxes, in blocks. A sandbox and its companions share one: it is free when the
/// last of them has given it back.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    used: BTreeMap<u32, usize>,
}

impl Blocks {
    /// Below those of slots, and as far from what others hand out.
    const FIRST: u32 = 0x6000_0000;
    const COUNT: u32 = 0x0fff;

    /// Takes a block: the number of its first id.
    pub(super) fn take(&mut self) -> Option<u32> {
        let mut all = (0..Self::COUNT).map(|block| Self::FIRST + block * SANDBOX_USERS);
        let free = all.find(|first| !self.used.contains_key(first))?;
        self.take_this(free);
        Some(free)
    }

    /// Takes the block that a sandbox has since before this spawner, or that its companion shares.
    pub(super) fn take_this(&mut self, first: u32) {
        *self.used.entry(first).or_default() += 1;
    }

    pub(super) fn give_back(&mut self, first: u32) {
        match self.used.get_mut(&first) {
            Some(users) if *users > 1 => *users -= 1,
            Some(_) | None => drop(self.used.remove(&first)),
        }
    }
}

/// The pairs of ids that are free.
#[derive(Debug)]
pub(super) struct Ids {
    range: Option<IdRange>,
    free: Vec<u32>,
    unused: u32,
}

impl Ids {
    pub(super) fn new(range: Option<IdRange>) -> Self {
        // The first pair is for those that slots are forked from.
        Self { range, free: Vec::new(), unused: 1 }
    }

    /// Takes a pair: the number of its first id. Without a range all slots share one user.
    pub(super) fn take(&mut self) -> Option<u32> {
        let Some(range) = self.range else { return Some(0) };
        if let Some(id) = self.free.pop() {
            return Some(id);
        }
        let next = range.first.checked_add(self.unused.checked_mul(2)?)?;
        if next.checked_add(2)? > range.first.checked_add(range.count)? {
            return None;
        }
        self.unused += 1;
        Some(next)
    }

    pub(super) fn give_back(&mut self, id: u32) {
        if self.range.is_some() {
            self.free.push(id);
        }
    }

    pub(super) fn range(&self) -> Option<IdRange> {
        self.range
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_nobody_elses_until_it_is_given_back() {
        let mut blocks = Blocks::default();
        blocks.take_this(Blocks::FIRST);
        let (one, other) = (blocks.take().unwrap(), blocks.take().unwrap());
        assert_eq!(
            (one, other),
            (Blocks::FIRST + SANDBOX_USERS, Blocks::FIRST + 2 * SANDBOX_USERS)
        );
        blocks.give_back(one);
        assert_eq!(blocks.take(), Some(one));
        // A companion has it too, and may be the last.
        blocks.take_this(one);
        blocks.give_back(one);
        assert_ne!(blocks.take(), Some(one));
        blocks.give_back(one);
        assert_eq!(blocks.take(), Some(one));
        const { assert!(Blocks::FIRST + Blocks::COUNT * SANDBOX_USERS <= IdRange::DAEMON) };
    }

    #[test]
    fn every_slot_has_a_pair_of_its_own_until_it_gives_it_back() {
        let mut ids = Ids::new(Some(IdRange { first: 98, count: 6 }));
        assert_eq!((ids.take(), ids.take(), ids.take()), (Some(100), Some(102), None));
        ids.give_back(100);
        assert_eq!((ids.take(), ids.take()), (Some(100), None));
    }
}
