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
    /// What the pool takes besides its slots: the runtime that they are forked from.
    pub base_memory: ByteSize,
}

/// What was seen of a pool since it was looked at last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// How many requests wait for a slot right now: they found none.
    pub waiting: usize,
    /// The fewest slots that were ready at any time.
    pub fewest_ready: usize,
}

/// What is left for pools to grow into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    pub memory: ByteSize,
    /// Each takes descriptors of the server, and those are numbered.
    pub slots: usize,
}

impl Pool {
    /// Decides how many there are to be when a request has found none: as many as are in line for
    /// one at this moment, so that the next burst of this size finds them; one more, up to a few times
    /// the least, for a client that comes faster than slots are made; and no more than there is room for.
    pub fn grown(self, in_line: usize, room: Room) -> usize {
        let affordable = room.memory.as_bytes() / self.slot_memory.as_bytes().max(1);
        let affordable = usize::try_from(affordable).unwrap_or(usize::MAX).min(room.slots);
        let for_one_client = (self.size + 1).min(FOR_ONE_CLIENT.saturating_mul(self.least));
        self.size + in_line.max(for_one_client).saturating_sub(self.size).min(affordable)
    }

    /// Decides how many there are to be after a while: half of those that nobody needed go.
    pub fn shrunk(self, seen: Seen) -> usize {
        if seen.waiting > 0 {
            return self.size;
        }
        let surplus = seen.fewest_ready.min(self.size.saturating_sub(self.least));
        self.size - surplus.div_ceil(2)
    }

    /// Returns what all of them take, and what they are forked from.
    pub fn memory(self) -> ByteSize {
        let count = u64::try_from(self.size).unwrap_or(u64::MAX);
        let slots = ByteSize::bytes(self.slot_memory.as_bytes().saturating_mul(count));
        slots.saturating_add(self.base_memory)
    }
}

/// How many times the least a pool grows to for a single client in a loop.
const FOR_ONE_CLIENT: usize = 4;

/// Returns what a tenant's pools may still grow by: its fair share of what there is for all, less what
/// it has, and no more than what is left of all.
pub fn room_of_tenant(all: Room, left: Room, taken: Room, tenants: usize) -> Room {
    let tenants = tenants.max(1);
    let divisor = u64::try_from(tenants).unwrap_or(u64::MAX);
    let share = ByteSize::bytes(all.memory.as_bytes() / divisor);
    Room {
        memory: share.saturating_sub(taken.memory).min(left.memory),
        slots: (all.slots / tenants).saturating_sub(taken.slots).min(left.slots),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(least: usize, size: usize) -> Pool {
        Pool { least, size, slot_memory: ByteSize::mib(4), base_memory: ByteSize::default() }
    }

    #[test]
    fn a_pool_grows_to_the_line_before_it_within_its_room() {
        for (size, in_line, memory, slots, expected) in [
            (1, 1, 8192, 9999, 2),
            (7, 1, 8192, 9999, 8),
            (8, 1, 8192, 9999, 8),
            (8, 8, 8192, 9999, 8),
            (8, 9, 8192, 9999, 9),
            (8, 992, 8192, 9999, 992),
            (0, 3, 8192, 9999, 3),
            (8, 60, 11, 9999, 10),
            (8, 60, 3, 9999, 8),
            (8, 60, 0, 9999, 8),
            (8, 60, 8192, 5, 13),
            (8, 60, 8192, 0, 8),
        ] {
            let room = Room { memory: ByteSize::mib(memory), slots };
            assert_eq!(pool(2, size).grown(in_line, room), expected, "{size} {in_line} {room:?}");
        }
    }

    #[test]
    fn a_load_that_never_ends_does_not_make_a_pool_grow_for_ever() {
        let plenty = Room { memory: ByteSize::mib(8192), slots: 9999 };
        for (in_line, expected) in [(64, 64), (16, 32), (1, 32)] {
            let grown = (0..1000).fold(8, |size, _| pool(8, size).grown(in_line, plenty));
            assert_eq!(grown, expected, "{in_line}");
        }
    }

    #[test]
    fn a_tenant_has_its_share_of_the_room_and_no_more_than_is_left() {
        let room = |memory, slots| Room { memory: ByteSize::mib(memory), slots };
        for (tenants, left, taken, expected) in [
            (0, room(100, 50), room(0, 0), room(100, 50)),
            (1, room(60, 30), room(40, 20), room(60, 30)),
            (2, room(60, 30), room(40, 20), room(10, 5)),
            (2, room(10, 30), room(0, 0), room(10, 25)),
            (4, room(60, 30), room(40, 20), room(0, 0)),
        ] {
            let given = room_of_tenant(room(100, 50), left, taken, tenants);
            assert_eq!(given, expected, "{tenants} {left:?} {taken:?}");
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
