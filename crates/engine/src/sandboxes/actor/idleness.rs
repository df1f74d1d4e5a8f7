//! Looks at whether a sandbox is in use. What counts as use is the table of `model::activity`.
//!
//! Use that has an event (a command, a client, a connection, a file) moves the next look. Only processor time has
//! none: it is read half of the idle time before the decision and at the decision.

use std::time::Duration;

use model::{
    activity::{Clients, Cpu, Facts, Heartbeats, Usage, judge},
    life::{Phase, SuspendReason},
    sandbox::Request,
    spec::Suspend,
};
use tokio::time::Instant;

use super::Actor;

/// How often a sandbox is looked at that is never suspended: its session has to know whether it is in use.
const WITHOUT_IDLE_TIME: Duration = Duration::from_mins(10);

/// How much processor time the sandbox had used at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuSample {
    at: Instant,
    /// Nothing if it cannot be known.
    used: Option<Duration>,
}

impl Actor {
    /// Returns when it is to be looked at.
    pub(super) fn next_look(&self) -> Instant {
        let after = self.idle_time();
        let idle_at = self.idle_at(after);
        match self.valid_sample(idle_at, after) {
            Some(sample) => idle_at.max(later(sample.at, after / 2)),
            None => idle_at.checked_sub(after / 2).unwrap_or(idle_at),
        }
    }

    fn idle_time(&self) -> Duration {
        self.sandbox.spec.idle.map_or(WITHOUT_IDLE_TIME, |idle| idle.after)
    }

    /// Returns when it will not have been used for so long, by everything that has an event.
    fn idle_at(&self, after: Duration) -> Instant {
        let ports = self.door.way.unused_for(after);
        let files = self.shared.files.unused_for(&self.sandbox.id, after);
        let clients = self.door.feeds.unused_for(after);
        let commands = self.moments.unused_for(after);
        [ports, files, clients].into_iter().flatten().fold(commands, Instant::max)
    }

    /// Returns the sample that was taken since the last use.
    fn valid_sample(&self, idle_at: Instant, after: Duration) -> Option<CpuSample> {
        let last_use = idle_at.checked_sub(after);
        self.sample.filter(|sample| last_use.is_none_or(|used| sample.at >= used))
    }

    /// Looks at it: takes a sample of its processor time, or decides whether it is idle.
    pub(super) async fn look(&mut self) {
        let after = self.idle_time();
        if self.phase() != Phase::Active || self.next_look() > Instant::now() {
            return;
        }
        let used = match self.provider().cpu_time(&self.sandbox).await {
            Ok(used) => used,
            Err(error) => {
                tracing::debug!(sandbox = %self.sandbox.id, %error, "cannot read its processor time");
                None
            }
        };
        let sample = CpuSample { at: Instant::now(), used };
        let idle_at = self.idle_at(after);
        let Some(before) = self.valid_sample(idle_at, after) else {
            self.sample = Some(sample);
            return;
        };
        self.sample = Some(sample);
        let facts = Facts {
            clients: if idle_at > sample.at { Clients::Attached } else { Clients::None },
            commands: self.sandbox.life.commands(),
            shells: self.sandbox.life.shells_running(),
            cpu: compare(before, sample),
            heartbeats: Heartbeats::None,
        };
        let then = self.sandbox.spec.idle.map(|idle| idle.then);
        // One that is never suspended is judged as if it were frozen, which takes least from it.
        let consequence = then.unwrap_or(Suspend::Freeze).into();
        match (judge(facts, consequence), then) {
            (Usage::Active, _) => {
                self.moments.note_use();
                self.door.used.send_replace(self.moments.used());
            }
            (Usage::Idle, Some(Suspend::Stop)) => {
                self.ask_ourselves(Request::Stop(SuspendReason::Idle)).await;
            }
            (Usage::Idle, Some(Suspend::Freeze)) => {
                self.ask_ourselves(Request::Freeze(SuspendReason::Idle)).await;
            }
            (Usage::Idle, None) => {}
        }
    }
}

fn compare(before: CpuSample, now: CpuSample) -> Cpu {
    match (before.used, now.used) {
        (Some(before_used), Some(used)) => {
            let within = now.at.saturating_duration_since(before.at);
            Cpu::of(used.saturating_sub(before_used), within)
        }
        (None, _) | (_, None) => Cpu::Unknown,
    }
}

fn later(then: Instant, time: Duration) -> Instant {
    then.checked_add(time).unwrap_or(then)
}
