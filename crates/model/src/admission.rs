//! Who may run now, who waits, and who is told to come back later.

use crate::units::ByteSize;

/// How many executions there may be, for one connection and for the whole server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    pub running_per_client: usize,
    pub queued_per_client: usize,
    pub running: usize,
    pub queued: usize,
    /// What code, stdin and env of all of them may take together.
    pub held: ByteSize,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            running_per_client: 16,
            queued_per_client: 1024,
            running: 64,
            queued: 16_384,
            held: ByteSize::mib(256),
        }
    }
}

/// How many there are right now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub running: usize,
    pub queued: usize,
}

/// The server, or this client's share of it, is full. Trying later may work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Overloaded {
    #[error("this connection has {0} executions waiting already; wait for some to end")]
    Client(usize),
    #[error("the server has {0} executions waiting already; try again later")]
    Server(usize),
    #[error("the server holds {0} of code and input already; try again later")]
    Held(ByteSize),
}

/// One part in this many of every capacity of the server is kept for tenants that use none of it: no
/// tenant can keep another from starting.
const RESERVED_PART: u64 = 8;

/// Returns how much of a capacity may be in use for a tenant to get more of it. `own` is what the tenant
/// uses of it already.
fn open_to(all: u64, own: u64) -> u64 {
    if own == 0 { all } else { all - all / RESERVED_PART }
}

fn has_room(all: usize, own: usize, used: usize) -> bool {
    let [all, own, used] = [all, own, used].map(|count| u64::try_from(count).unwrap_or(u64::MAX));
    used < open_to(all, own)
}

impl Capacity {
    /// Decides whether one more execution may wait for its turn.
    pub fn admit(&self, client: Load, tenant: Load, server: Load) -> Result<(), Overloaded> {
        if client.queued >= self.queued_per_client && client.running >= self.running_per_client {
            return Err(Overloaded::Client(client.queued));
        }
        if !has_room(self.queued, tenant.queued, server.queued) {
            return Err(Overloaded::Server(server.queued));
        }
        Ok(())
    }

    /// Decides whether the server can hold code and input of this size besides what it holds of this
    /// tenant and of all. One that does not fit keeps no smaller one out.
    pub fn hold(
        &self,
        asked: ByteSize,
        of_tenant: ByteSize,
        of_all: ByteSize,
    ) -> Result<(), Overloaded> {
        let most = open_to(self.held.as_bytes(), of_tenant.as_bytes());
        if of_all.saturating_add(asked).as_bytes() > most {
            return Err(Overloaded::Held(of_all));
        }
        Ok(())
    }

    /// Decides whether a waiting execution of this client of this tenant may start.
    pub fn may_start(&self, client: Load, tenant: Load, server: Load) -> bool {
        client.running < self.running_per_client
            && has_room(self.running, tenant.running, server.running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Capacity = Capacity {
        running_per_client: 2,
        queued_per_client: 3,
        running: 4,
        queued: 5,
        held: ByteSize::bytes(10),
    };

    fn load(running: usize, queued: usize) -> Load {
        Load { running, queued }
    }

    #[test]
    fn a_full_client_is_refused_and_a_full_server_too() {
        assert_eq!(SMALL.admit(load(2, 2), load(2, 2), load(4, 4)), Ok(()));
        assert_eq!(SMALL.admit(load(2, 3), load(2, 3), load(4, 4)), Err(Overloaded::Client(3)));
        assert_eq!(SMALL.admit(load(1, 0), load(1, 0), load(4, 5)), Err(Overloaded::Server(5)));
    }

    #[test]
    fn code_and_input_are_held_up_to_the_byte() {
        let rows = [
            (0, 0, true),
            (10, 0, true),
            (11, 0, false),
            (4, 6, true),
            (5, 6, false),
            (0, 10, true),
            (1, 10, false),
            (u64::MAX, 10, false),
        ];
        for (asked, held, fits) in rows {
            let held = ByteSize::bytes(held);
            let expected = if fits { Ok(()) } else { Err(Overloaded::Held(held)) };
            let judged = SMALL.hold(ByteSize::bytes(asked), ByteSize::default(), held);
            assert_eq!(judged, expected, "{asked} {held}");
        }
    }

    #[test]
    fn an_execution_starts_when_its_client_and_the_server_have_room() {
        assert!(SMALL.may_start(load(1, 9), load(1, 9), load(3, 9)));
        assert!(!SMALL.may_start(load(2, 0), load(2, 0), load(3, 0)));
        assert!(!SMALL.may_start(load(0, 0), load(0, 0), load(4, 0)));
    }

    #[test]
    fn an_eighth_of_every_capacity_is_kept_for_tenants_that_use_none_of_it() {
        let capacity = Capacity {
            running_per_client: 99,
            running: 64,
            queued: 80,
            held: ByteSize::bytes(800),
            ..Capacity::default()
        };
        let one = load(1, 1);
        for (tenant, running, starts) in
            [(one, 55, true), (one, 56, false), (load(0, 9), 56, true), (load(0, 9), 64, false)]
        {
            let server = load(running, 9);
            assert_eq!(capacity.may_start(load(0, 1), tenant, server), starts, "{server:?}");
        }
        for (tenant, queued, is_admitted) in
            [(one, 69, true), (one, 70, false), (load(9, 0), 70, true), (load(9, 0), 80, false)]
        {
            let server = load(64, queued);
            assert_eq!(capacity.admit(one, tenant, server).is_ok(), is_admitted, "{server:?}");
        }
        for (own, held, fits) in [(1, 690, true), (1, 691, false), (0, 691, true), (0, 791, false)]
        {
            let [asked, own, held] = [10, own, held].map(ByteSize::bytes);
            assert_eq!(capacity.hold(asked, own, held).is_ok(), fits, "{own} {held}");
        }
    }
}
