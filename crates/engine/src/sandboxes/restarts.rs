//! When a command that is to run for ever is started again after it ended.

use std::time::Duration;

use isolate::{plan::Exit, supervisor::wire::End};
use tokio::time::Instant;

/// How long to wait before it is started again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Once it has run for this long, what was before is forgotten.
const STEADY: Duration = Duration::from_secs(30);

/// How often a command has ended, and since when.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    /// When it first ended of those times that belong together, and how often it has since.
    ended: Option<(Instant, u32)>,
}

/// A command that keeps ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Streak {
    pub(super) lasts: Duration,
    pub(super) times: u32,
    pub(super) start_again_at: Instant,
}

impl Restarts {
    /// Notes one more end.
    pub(super) fn ended(&mut self, ran_for: Duration, now: Instant) -> Streak {
        let (first, times) = match self.ended {
            Some((first, times)) if ran_for < STEADY => (first, times.saturating_add(1)),
            _ => (now, 1),
        };
        self.ended = Some((first, times));
        let pause = FIRST_PAUSE.saturating_mul(1 << times.saturating_sub(1).min(16));
        Streak { lasts: now - first, times, start_again_at: now + pause.min(LONGEST_PAUSE) }
    }
}

/// Says how a command ended.
pub(super) fn how(end: &End) -> String {
    match end {
        End::Exited { exit: Exit::Code(code), .. } => format!("with code {code}"),
        End::Exited { exit: Exit::Signal(signal), .. } => format!("by signal {signal}"),
        End::TimedOut { .. } => "at the end of its time".to_owned(),
        End::NotStarted(broken) => format!("before it began ({broken})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound_and_a_steady_run_forgets_them() {
        let start = Instant::now();
        let mut restarts = Restarts::default();
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let streak = restarts.ended(Duration::ZERO, now);
            pauses.push((streak.start_again_at - now).as_millis());
            now = streak.start_again_at;
        }
        assert_eq!(pauses[..4], [100, 200, 400, 800]);
        assert_eq!(pauses[10..], [30_000, 30_000]);
        let streak = restarts.ended(STEADY, now);
        let first = Streak { lasts: Duration::ZERO, times: 1, start_again_at: now + FIRST_PAUSE };
        assert_eq!(streak, first);
    }
}
