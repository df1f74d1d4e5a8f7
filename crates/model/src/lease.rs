//! Until when a binding keeps its sandbox. Heartbeats and use move the end, and nothing moves it past
//! the hard one.
//!
//! Times are of a clock that is not set while the server runs; whose it is, is the engine's.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::Timestamp;

/// What an operator gives a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a sandbox is kept for that nobody uses.
    pub lease: Duration,
    /// How long a sandbox is kept at most.
    pub hard_ttl: Duration,
    /// How long a sandbox is kept whose binding was released.
    pub release_grace: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            lease: Duration::from_hours(1),
            hard_ttl: Duration::from_hours(8),
            release_grace: Duration::from_mins(10),
        }
    }
}

/// The ends of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// When it ends unless somebody renews it.
    pub until: Timestamp,
    /// When it ends whatever anybody does.
    pub hard: Timestamp,
}

/// Whether somebody uses the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A command runs, or a client is connected.
    Now,
    Last(Timestamp),
}

/// Why a lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Expired,
    HardTtl,
}

/// What a lease comes to when it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing before this time.
    NotBefore(Timestamp),
    /// Somebody has used the sandbox: it goes on.
    Renew(Lease),
    End(Over),
}

impl Lease {
    /// Begins at this time.
    pub fn begin(now: Timestamp, terms: Terms) -> Self {
        Self { until: now, hard: now.plus(terms.hard_ttl) }.extended(now, terms)
    }

    /// Begins anew for the same sandbox, whose hard end stays where it is.
    #[must_use]
    pub fn again(self, now: Timestamp, terms: Terms) -> Self {
        Self { until: now, hard: self.hard }.extended(now, terms)
    }

    /// Renews it, unless it is over. Nobody can shorten it by that.
    pub fn renew(self, now: Timestamp, terms: Terms) -> Result<Self, Over> {
        if now >= self.hard {
            return Err(Over::HardTtl);
        }
        if now >= self.until {
            return Err(Over::Expired);
        }
        Ok(self.extended(now, terms))
    }

    /// Says what there is to do now.
    pub fn due(self, now: Timestamp, activity: Activity, terms: Terms) -> Due {
        if now >= self.hard {
            return Due::End(Over::HardTtl);
        }
        if now < self.until {
            return Due::NotBefore(self.until);
        }
        let used = match activity {
            Activity::Now => now,
            // What seems to lie ahead counts as now.
            Activity::Last(at) => at.min(now),
        };
        let renewed = self.extended(used, terms);
        if renewed.until > now { Due::Renew(renewed) } else { Due::End(Over::Expired) }
    }

    /// Returns what it comes to if what is being used stays so, and nobody else does anything.
    #[must_use]
    pub fn foreseen(self, now: Timestamp, activity: Activity, terms: Terms) -> Self {
        match activity {
            Activity::Now => Self { until: self.hard, ..self },
            Activity::Last(at) => self.extended(at.min(now), terms),
        }
    }

    fn extended(self, from: Timestamp, terms: Terms) -> Self {
        let until = from.plus(terms.lease).max(self.until).min(self.hard);
        Self { until, ..self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TERMS: Terms = Terms {
        lease: Duration::from_secs(100),
        hard_ttl: Duration::from_secs(1000),
        release_grace: Duration::from_secs(10),
    };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn lease(until: i64, hard: i64) -> Lease {
        Lease { until: at(until), hard: at(hard) }
    }

    #[test]
    fn an_end_is_foreseen_from_the_last_use() {
        for (activity, end) in [
            (Activity::Last(at(0)), 100),
            (Activity::Last(at(5)), 105),
            // What seems to lie ahead counts as now.
            (Activity::Last(at(90)), 150),
            (Activity::Now, 1000),
        ] {
            let foreseen = lease(100, 1000).foreseen(at(50), activity, TERMS);
            assert_eq!(foreseen, lease(end, 1000), "{activity:?}");
        }
        assert_eq!(lease(100, 102).foreseen(at(50), Activity::Last(at(5)), TERMS), lease(102, 102));
    }

    /// F70: at its very end a lease is over.
    #[test]
    fn f70_a_heartbeat_renews_or_comes_too_late_and_never_both() {
        let begun = Lease::begin(at(0), TERMS);
        assert_eq!(begun, lease(100, 1000));
        let end = at(100).as_millis();
        for (now, expected) in [
            (at(0), Ok(lease(100, 1000))),
            (at(60), Ok(lease(160, 1000))),
            (
                Timestamp::from_millis(end - 1),
                Ok(Lease { until: Timestamp::from_millis(end + 99_999), hard: at(1000) }),
            ),
            (at(100), Err(Over::Expired)),
            (Timestamp::from_millis(end + 1), Err(Over::Expired)),
            (at(1000), Err(Over::HardTtl)),
        ] {
            assert_eq!(begun.renew(now, TERMS), expected, "{now:?}");
            let is_over = matches!(begun.due(now, Activity::Last(at(-1000)), TERMS), Due::End(_));
            assert_eq!(is_over, expected.is_err(), "{now:?}");
        }
    }

    #[test]
    fn a_sandbox_in_use_is_kept_and_never_past_the_hard_end() {
        let rows = [
            (99, Activity::Last(at(0)), Due::NotBefore(at(100))),
            (100, Activity::Last(at(0)), Due::End(Over::Expired)),
            (100, Activity::Last(at(1)), Due::Renew(lease(101, 1000))),
            (100, Activity::Last(at(5000)), Due::Renew(lease(200, 1000))),
            (100, Activity::Now, Due::Renew(lease(200, 1000))),
            (950, Activity::Now, Due::Renew(lease(1000, 1000))),
            (1000, Activity::Now, Due::End(Over::HardTtl)),
        ];
        for (now, activity, expected) in rows {
            assert_eq!(lease(100, 1000).due(at(now), activity, TERMS), expected, "{now}");
        }
        assert_eq!(lease(100, 150).again(at(90), TERMS), lease(150, 150));
    }

    #[derive(Clone, Copy, Debug)]
    enum Deed {
        Heartbeat,
        TakeBack,
        Look(bool),
    }

    fn deed() -> impl Strategy<Value = (i64, Deed)> {
        let deed = prop_oneof![
            Just(Deed::Heartbeat),
            Just(Deed::TakeBack),
            any::<bool>().prop_map(Deed::Look)
        ];
        (0_i64..200, deed)
    }

    proptest! {
        /// F71, I12: whatever is done and when, no sandbox outlives its hard end, and no end moves
        /// backwards.
        #[test]
        fn f71_hostile_heartbeats_never_carry_a_lease_past_its_hard_end(
            deeds in proptest::collection::vec(deed(), 0..200),
        ) {
            let (mut now, mut lease) = (0, Lease::begin(at(0), TERMS));
            for (passed, deed) in deeds {
                now += passed;
                let next = match deed {
                    Deed::Heartbeat => lease.renew(at(now), TERMS),
                    Deed::TakeBack if now < 1000 => Ok(lease.again(at(now), TERMS)),
                    Deed::TakeBack => Err(Over::HardTtl),
                    Deed::Look(is_used) => {
                        let activity = if is_used { Activity::Now } else { Activity::Last(at(0)) };
                        match lease.due(at(now), activity, TERMS) {
                            Due::NotBefore(until) => {
                                prop_assert_eq!(until, lease.until);
                                Ok(lease)
                            }
                            Due::Renew(renewed) => Ok(renewed),
                            Due::End(over) => Err(over),
                        }
                    }
                };
                let Ok(next) = next else { continue };
                prop_assert!(now < 1000, "alive at {now}");
                prop_assert!(next.until <= at(1000) && next.hard == at(1000));
                prop_assert!(matches!(deed, Deed::TakeBack) || next.until >= lease.until);
                lease = next;
            }
        }

        /// F34: no clock makes it panic.
        #[test]
        fn f34_any_times_at_all_can_be_looked_at(now: i64, until: i64, hard: i64, used: i64) {
            let [now, until, hard, used] = [now, until, hard, used].map(Timestamp::from_millis);
            let lease = Lease { until, hard };
            let _ = lease.renew(now, TERMS);
            let _ = lease.due(now, Activity::Last(used), TERMS);
            prop_assert!(lease.again(now, TERMS).until <= hard);
        }
    }
}
