//! How many slots wait ahead of their requests.

use crate::units::ByteSize;

/// The slots of one language that wait, as policy sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// How many there are at least, however quiet it is.
    pub least: usize,
    /// How many there are to be.
    pub size: usize,
    /// What one of them takes.
    pub slot_memory: ByteSize,
}

/// What was seen of a pool since it was looked at last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// How many requests wait for a slot right now: they found none.
    pub waiting: usize,
    /// The fewest slots that were ready at any time.
    pub fewest_ready: usize,
}

impl Pool {
    /// Decides how many there are to be when a request has found none: as many more as are waited
    /// for, twice as many at most, and no more than the memory that is left allows.
    pub fn grown(self, waiting: usize, room: ByteSize) -> usize {
        let affordable = room.as_bytes() / self.slot_memory.as_bytes().max(1);
        let more = waiting.min(self.size.max(1));
        self.size + more.min(usize::try_from(affordable).unwrap_or(usize::MAX))
    }

    /// Decides how many there are to be after a while: half of those that nobody needed go.
    pub fn shrunk(self, seen: Seen) -> usize {
        if seen.waiting > 0 {
            return self.size;
        }
        let surplus = seen.fewest_ready.min(self.size.saturating_sub(self.least));
        self.size - surplus.div_ceil(2)
    }

    /// Returns what all of them take.
    pub fn memory(self) -> ByteSize {
        let count = u64::try_from(self.size).unwrap_or(u64::MAX);
        ByteSize::bytes(self.slot_memory.as_bytes().saturating_mul(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(least: usize, size: usize) -> Pool {
        Pool { least, size, slot_memory: ByteSize::mib(4) }
    }

    #[test]
    fn a_pool_grows_by_what_is_missed_at_most_twofold_and_within_its_room() {
        let plenty = ByteSize::mib(1024);
        for (size, waiting, room, expected) in [
            (8, 1, plenty, 9),
            (8, 5, plenty, 13),
            (8, 60, plenty, 16),
            (0, 3, plenty, 1),
            (8, 60, ByteSize::mib(11), 10),
            (8, 60, ByteSize::mib(3), 8),
            (8, 60, ByteSize::bytes(0), 8),
        ] {
            assert_eq!(pool(2, size).grown(waiting, room), expected, "{size} {waiting} {room}");
        }
    }

    #[test]
    fn half_of_what_nobody_needed_goes_but_never_below_the_least() {
        for (size, waiting, fewest_ready, expected) in
            [(64, 0, 60, 36), (64, 0, 0, 64), (64, 3, 60, 64), (9, 0, 9, 8), (8, 0, 8, 8)]
        {
            let seen = Seen { waiting, fewest_ready };
            assert_eq!(pool(8, size).shrunk(seen), expected, "{size} {waiting} {fewest_ready}");
        }
    }

    #[test]
    fn a_quiet_pool_comes_back_to_its_least() {
        let mut size = 300;
        for _ in 0..12 {
            size = pool(8, size).shrunk(Seen { waiting: 0, fewest_ready: size });
        }
        assert_eq!(size, 8);
    }
}
