//! When things were, by a clock that nobody sets.
//!
//! Events carry the time of day, which may be set while the server runs. How long a sandbox was not
//! used, or is in its phase, is measured by the kernel's steady clock instead; only what an earlier
//! server has seen is known by the time of day alone. Time in which the whole machine sleeps does
//! not count.

use std::time::Duration;

use model::{life::Life, transition::Transition, units::Timestamp};
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    used: Instant,
    phase_began: Instant,
}

impl Moments {
    /// Takes over what the time of day says. What seems to lie ahead counts as now.
    pub(super) fn of(life: &Life, now: Timestamp) -> Self {
        let here = Instant::now();
        let ago = |then: Timestamp| {
            let passed = now.as_millis().saturating_sub(then.as_millis());
            let passed = Duration::from_millis(u64::try_from(passed).unwrap_or(0));
            here.checked_sub(passed).unwrap_or(here)
        };
        Self { used: ago(life.last_used_at), phase_began: ago(life.phase_since) }
    }

    /// Follows a step of the sandbox, which was in this life before it.
    pub(super) fn follow(&mut self, before: &Life, transition: &Transition) {
        let now = Instant::now();
        if transition.events().iter().any(|event| event.kind.is_use()) {
            self.used = now;
        }
        let mut phase = before.phase;
        for event in transition.events() {
            if event.phase != phase {
                (self.phase_began, phase) = (now, event.phase);
            }
        }
    }

    /// Notes that it is in use now, though no event says so.
    pub(super) fn note_use(&mut self) {
        self.used = Instant::now();
    }

    pub(super) fn used(&self) -> Instant {
        self.used
    }

    /// Returns when it will not have been used for so long.
    pub(super) fn unused_for(&self, time: Duration) -> Instant {
        later(self.used, time)
    }

    /// Returns when it will have been in its phase for so long.
    pub(super) fn in_phase_for(&self, time: Duration) -> Instant {
        later(self.phase_began, time)
    }
}

/// A time too far off to be said is a year from now, when it is asked for again.
fn later(then: Instant, time: Duration) -> Instant {
    const FAR: Duration = Duration::from_hours(365 * 24);
    then.checked_add(time).unwrap_or_else(|| Instant::now() + FAR)
}

#[cfg(test)]
mod tests {
    use model::event::Event;

    use super::*;

    fn life(at: i64) -> Life {
        let accepted = model::event::EventKind::Accepted;
        let event = Event {
            sequence: model::event::Sequence(1),
            occurred_at: Timestamp::from_millis(at),
            phase: model::life::Phase::Provisioning,
            kind: accepted,
        };
        Life::begin(&event).unwrap()
    }

    /// F34: whatever two clocks say, no time is negative and nothing panics.
    #[test]
    fn f34_no_two_times_of_day_make_a_time_that_cannot_be() {
        let times = [i64::MIN, -1, 0, 1, 1_700_000_000_000, i64::MAX];
        for then in times {
            for now in times {
                let here = Instant::now();
                let moments = Moments::of(&life(then), Timestamp::from_millis(now));
                let end = moments.unused_for(Duration::from_mins(1));
                assert!(end <= Instant::now() + Duration::from_mins(1), "{then} {now}");
                assert!(now > then || end >= here + Duration::from_mins(1), "{then} {now}");
                assert!(moments.in_phase_for(Duration::MAX) > here, "{then} {now}");
            }
        }
    }
}
