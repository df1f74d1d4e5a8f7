//! When a companion counts as healthy: which check comes when, and what its outcome means. The rules
//! are those that people know from Docker, up to the first answer: nothing would be told of a later
//! change.
//!
//! ```text
//! waiting ──▶ checking ──▶ healthy
//!    ▲           │    └──▶ unhealthy: too many failed in a row, or it takes too long
//!    └───────────┘
//! ```

use std::time::Duration;

use crate::spec::Healthcheck;

const INTERVAL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(30);
const RETRIES: u32 = 3;
const START_INTERVAL: Duration = Duration::from_secs(5);

/// Whatever is asked for, nobody waits longer than this.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// The command that a check runs, and its times, with nothing left open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    pub command: Vec<String>,
    pub timeout: Duration,
    interval: Duration,
    retries: u32,
    start_period: Duration,
    start_interval: Duration,
}

/// What is to be done next. Times are since the companion was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Run the check at this time, or give up at the other if it does not come first.
    Check {
        at: Duration,
        give_up_at: Duration,
    },
    Healthy,
    Unhealthy(Why),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("its check failed {0} times in a row")]
    Failed(u32),
    #[error("it did not become healthy within {} s", .0.as_secs_f64())]
    TooLong(Duration),
}

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// It said so, or took too long, or could not be run.
    Failed,
}

/// How far the checks of one companion have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// When its command was last started.
    started: Duration,
    failed_in_a_row: u32,
}

impl Rules {
    /// Returns nothing if there is nothing to check.
    pub fn of(check: &Healthcheck) -> Option<Self> {
        let (kind, words) = check.test.split_first()?;
        let command = match kind.as_str() {
            "CMD" => words.to_vec(),
            "CMD-SHELL" => {
                let shell = ["/bin/sh".to_owned(), "-c".to_owned()];
                shell.into_iter().chain(words.iter().cloned()).collect()
            }
            _ => return None,
        };
        Some(Self {
            command,
            timeout: check.timeout.unwrap_or(TIMEOUT),
            interval: check.interval.unwrap_or(INTERVAL),
            retries: check.retries.unwrap_or(RETRIES),
            start_period: check.start_period.unwrap_or_default(),
            start_interval: check.start_interval.unwrap_or(START_INTERVAL),
        })
    }

    /// Returns how long a companion may take to become healthy.
    pub fn longest_wait(&self) -> Duration {
        let start = if self.start_period.is_zero() {
            Duration::ZERO
        } else {
            self.start_period.saturating_add(self.start_interval.max(self.timeout))
        };
        let one = self.interval.max(self.timeout);
        start.saturating_add(one.saturating_mul(self.retries.saturating_add(1))).min(LONGEST_WAIT)
    }
}

impl Health {
    /// Says when the first check is. A command that was started again has its start period again,
    /// and nothing against it; the time in which it must become healthy is the same.
    #[must_use]
    pub fn started(&mut self, rules: &Rules, now: Duration) -> Next {
        *self = Self { started: now, failed_in_a_row: 0 };
        self.check_after(rules, now)
    }

    /// Says what comes after a check that began and ended at these times.
    #[must_use]
    pub fn checked(
        &mut self,
        rules: &Rules,
        began: Duration,
        ended: Duration,
        outcome: Outcome,
    ) -> Next {
        match outcome {
            Outcome::Passed => return Next::Healthy,
            // While it starts it may fail as often as it likes.
            Outcome::Failed if self.is_starting(rules, began) => {}
            Outcome::Failed => self.failed_in_a_row = self.failed_in_a_row.saturating_add(1),
        }
        if self.failed_in_a_row >= rules.retries {
            return Next::Unhealthy(Why::Failed(self.failed_in_a_row));
        }
        self.check_after(rules, ended)
    }

    fn is_starting(&self, rules: &Rules, now: Duration) -> bool {
        now < self.started.saturating_add(rules.start_period)
    }

    /// The first check comes after a pause too: whatever was started needs a moment.
    fn check_after(&self, rules: &Rules, now: Duration) -> Next {
        let give_up_at = rules.longest_wait();
        if now >= give_up_at {
            return Next::Unhealthy(Why::TooLong(give_up_at));
        }
        let is_starting = self.is_starting(rules, now);
        let pause = if is_starting { rules.start_interval } else { rules.interval };
        Next::Check { at: now.saturating_add(pause), give_up_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(test: &[&str]) -> Healthcheck {
        let test = test.iter().map(ToString::to_string).collect();
        Healthcheck {
            test,
            interval: None,
            timeout: None,
            retries: None,
            start_period: None,
            start_interval: None,
        }
    }

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn rules(interval: u64, timeout: u64, retries: u32, start: u64, start_interval: u64) -> Rules {
        let times = Healthcheck {
            interval: Some(s(interval)),
            timeout: Some(s(timeout)),
            retries: Some(retries),
            start_period: Some(s(start)),
            start_interval: Some(s(start_interval)),
            ..check(&["CMD", "true"])
        };
        Rules::of(&times).unwrap()
    }

    #[test]
    fn a_check_is_a_command_or_a_line_for_the_shell_or_none() {
        let command = |test: &[&str]| Rules::of(&check(test)).map(|rules| rules.command);
        assert_eq!(command(&["CMD", "a", "b c"]), Some(vec!["a".to_owned(), "b c".to_owned()]));
        let shell = ["/bin/sh", "-c", "a && b"].map(str::to_owned).to_vec();
        assert_eq!(command(&["CMD-SHELL", "a && b"]), Some(shell));
        assert_eq!(command(&["NONE"]), None);
        assert_eq!(command(&[]), None);
    }

    #[test]
    fn nobody_waits_longer_than_all_checks_take_and_never_beyond_five_minutes() {
        let rows = [
            (Rules::of(&check(&["CMD", "true"])).unwrap(), s(120)),
            (rules(1, 2, 3, 0, 5), s(8)),
            (rules(2, 1, 3, 0, 5), s(8)),
            (rules(1, 1, 2, 10, 5), s(10 + 5 + 3)),
            (rules(1, 7, 2, 10, 5), s(10 + 7 + 21)),
            (rules(100, 1, 9, 0, 5), s(300)),
            (rules(u64::MAX, u64::MAX, u32::MAX, u64::MAX, u64::MAX), s(300)),
        ];
        for (rules, wait) in rows {
            assert_eq!(rules.longest_wait(), wait, "{rules:?}");
        }
    }

    /// Runs checks that take a second each, and lists when they begin and what comes of them.
    fn run(rules: &Rules, outcomes: &[Outcome]) -> (Vec<u64>, Next) {
        let mut health = Health::default();
        let mut next = health.started(rules, Duration::ZERO);
        let mut began = Vec::new();
        for outcome in outcomes {
            let Next::Check { at, .. } = next else { break };
            began.push(at.as_secs());
            next = health.checked(rules, at, at + s(1), *outcome);
        }
        (began, next)
    }

    #[test]
    fn checks_come_after_each_other_until_one_passes_or_too_many_fail() {
        use Outcome::{Failed, Passed};
        let plain = rules(10, 5, 3, 0, 1);
        let starting = rules(10, 5, 2, 4, 1);
        let rows: [(&Rules, &[Outcome], &[u64], Next); 6] = [
            (&plain, &[Passed], &[10], Next::Healthy),
            (&plain, &[Failed, Passed], &[10, 21], Next::Healthy),
            (&plain, &[Failed; 3], &[10, 21, 32], Next::Unhealthy(Why::Failed(3))),
            (&starting, &[Passed], &[1], Next::Healthy),
            // Those at 1 and 3 do not count; from the fourth second on the pauses are long.
            (&starting, &[Failed, Failed, Passed], &[1, 3, 14], Next::Healthy),
            (&starting, &[Failed; 4], &[1, 3, 14, 25], Next::Unhealthy(Why::Failed(2))),
        ];
        for (rules, outcomes, began, next) in rows {
            assert_eq!(run(rules, outcomes), (began.to_vec(), next), "{outcomes:?}");
        }
    }

    #[test]
    fn a_command_that_is_started_again_begins_anew_but_has_no_more_time() {
        let rules = rules(10, 5, 2, 0, 1);
        let mut health = Health::default();
        let give_up_at = rules.longest_wait();
        assert_eq!(health.started(&rules, s(0)), Next::Check { at: s(10), give_up_at });
        let next = health.checked(&rules, s(10), s(11), Outcome::Failed);
        assert_eq!(next, Next::Check { at: s(21), give_up_at });
        assert_eq!(health.started(&rules, s(12)), Next::Check { at: s(22), give_up_at });
        let next = health.checked(&rules, s(22), s(23), Outcome::Failed);
        assert_eq!(next, Next::Check { at: s(33), give_up_at });
        assert_eq!(health.started(&rules, give_up_at), Next::Unhealthy(Why::TooLong(give_up_at)));
    }
}
