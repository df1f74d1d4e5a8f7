//! The sandbox's own command, if it has one. It is started again whenever it ends; one that keeps
//! ending breaks the sandbox.

use std::time::Duration;

use isolate::supervisor::wire::{Ask as Say, End};
use model::{
    life::{FailureCause, Phase},
    spec::ExecSpec,
};
use tokio::time::Instant;

use super::{Actor, Presence};
use crate::sandboxes::{
    command,
    restarts::{Restarts, how},
};

/// Its name at the supervisor. No exec can have it: theirs begin with a letter or a digit.
pub(in crate::sandboxes) const NAME: &str = "_main-";

/// What is known of the sandbox's own command.
#[derive(Debug, Default)]
pub(super) struct MainProcess {
    /// When it was last started, in milliseconds: each time has a name and files of its own.
    last_start: i64,
    running_since: Option<Instant>,
    restarts: Restarts,
    start_at: Option<Instant>,
}

impl MainProcess {
    /// Returns when it is to be started again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.start_at
    }
}

impl Actor {
    /// Learns that it runs since before this daemon, if this is it.
    pub(super) fn learn_main(&mut self, name: &str, has_ended: bool) {
        if let Some(number) = name.strip_prefix(NAME).and_then(|number| number.parse().ok()) {
            self.main.last_start = self.main.last_start.max(number);
            if !has_ended {
                self.main.running_since = Some(Instant::now());
            }
        }
    }

    /// Starts it, unless it runs or is not to yet.
    pub(super) async fn start_main(&mut self) {
        let is_due = self.main.start_at.is_none_or(|at| at <= Instant::now());
        let has_one = !self.sandbox.spec.command.is_empty();
        if !has_one || !is_due || self.main.running_since.is_some() {
            return;
        }
        self.main.last_start = self.now().as_millis().max(self.main.last_start + 1);
        self.main.start_at = None;
        self.main.running_since = Some(Instant::now());
        let name = format!("{NAME}{}", self.main.last_start);
        let spec = ExecSpec { command: self.sandbox.spec.command.clone(), ..ExecSpec::default() };
        let keep = self.shared.settings.defaults.output.as_bytes();
        match command::start(&self.sandbox, &name, &spec, keep) {
            Ok(start) => self.say(&Say::Start(Box::new(start))).await,
            Err(error) => self.fail(FailureCause::MainProcessCrashed, &error.to_string()).await,
        }
    }

    /// Notes its end, if this is it. Returns whether it is.
    pub(super) async fn main_ended(&mut self, name: &str, end: &End) -> bool {
        if !name.starts_with(NAME) {
            return false;
        }
        let now = Instant::now();
        let ran_for = self.main.running_since.take().map_or(Duration::ZERO, |since| now - since);
        let streak = self.main.restarts.ended(ran_for, now);
        self.main.start_at = Some(streak.start_again_at);
        let is_up = matches!(self.phase(), Phase::Active | Phase::Frozen);
        if is_up && streak.lasts >= self.shared.settings.defaults.crash_window {
            let times = streak.times;
            let message =
                format!("its command has ended {times} times, the last time {}", how(end));
            self.fail(FailureCause::MainProcessCrashed, &message).await;
        }
        true
    }

    /// Starts it again if that is due.
    pub(super) async fn start_main_again(&mut self) {
        let is_up = matches!(self.phase(), Phase::Active);
        if is_up && matches!(self.presence, Presence::Link(_)) && self.main.start_at.is_some() {
            self.start_main().await;
        }
    }
}
