//! Users on the host that nobody else has, two for each slot: one for init, one for user code.

/// A range of user and group ids that belong to this server alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    pub first: u32,
    pub count: u32,
}

impl IdRange {
    /// Far above what distributions and container engines hand out.
    pub const DEFAULT: Self = Self { first: 0x7000_0100, count: 0x0002_0000 };

    /// The user that the daemon has, if none was made for it.
    pub const DAEMON: u32 = 0x7000_0000;
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
    fn every_slot_has_a_pair_of_its_own_until_it_gives_it_back() {
        let mut ids = Ids::new(Some(IdRange { first: 98, count: 6 }));
        assert_eq!((ids.take(), ids.take(), ids.take()), (Some(100), Some(102), None));
        ids.give_back(100);
        assert_eq!((ids.take(), ids.take()), (Some(100), None));
    }
}
