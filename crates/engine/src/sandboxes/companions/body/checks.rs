//! Whether a companion is healthy, and how that is told.

use isolate::supervisor::wire::{End, UNKEPT};
use model::health::{Next, Outcome};
use tokio::time::Instant;

use super::{Body, kill};
use crate::sandboxes::{
    companions::{News, What},
    link::Link,
};

/// Where the checks are.
#[derive(Debug)]
pub(super) enum Check {
    /// Nothing is to be found out any more.
    Over,
    /// Its command does not run.
    Down,
    Waiting {
        at: Instant,
    },
    Running {
        name: String,
        began: Instant,
        /// None: it was too slow, and is being killed.
        until: Option<Instant>,
    },
}

impl Body {
    pub(super) fn is_check(&self, exec: &str) -> bool {
        matches!(&self.check, Check::Running { name, .. } if name == exec)
    }

    /// Its command runs, or it has none and lives.
    pub(super) async fn started(&mut self) {
        if !matches!(self.check, Check::Down) {
            return;
        }
        match &self.rules {
            None => self.healthy().await,
            Some(rules) => {
                let next = self.health.started(rules, self.since.elapsed());
                if !std::mem::replace(&mut self.has_started, true) {
                    self.say(What::Started).await;
                }
                self.go_on(next).await;
            }
        }
    }

    async fn go_on(&mut self, next: Next) {
        match next {
            Next::Check { at, give_up_at } => {
                self.check = Check::Waiting { at: self.since + at.min(give_up_at) };
            }
            Next::Healthy => self.healthy().await,
            Next::Unhealthy(why) => self.fail(why.to_string()).await,
        }
    }

    async fn healthy(&mut self) {
        self.check = Check::Over;
        self.say(What::Healthy).await;
    }

    pub(super) async fn fail(&mut self, message: String) {
        self.check = Check::Over;
        if !self.has_failed {
            self.has_failed = true;
            self.say(What::Failed(message)).await;
        }
    }

    async fn say(&self, what: What) {
        // Whoever wanted to know may be gone.
        let _ = self.tell.send(News { number: self.number, what }).await;
    }

    pub(super) async fn checked(&mut self, end: &End) {
        let (Check::Running { began, .. }, Some(rules)) = (&self.check, &self.rules) else {
            return;
        };
        let passed = matches!(end, End::Exited { exit: isolate::plan::Exit::Code(0), .. });
        let outcome = if passed { Outcome::Passed } else { Outcome::Failed };
        let (began, ended) = (*began - self.since, self.since.elapsed());
        let next = self.health.checked(rules, began, ended, outcome);
        if self.main.running.is_none() && !self.run.command.is_empty() && !passed {
            return self.check = Check::Down;
        }
        self.go_on(next).await;
    }

    pub(super) fn check_deadline(&self) -> Option<Instant> {
        match &self.check {
            Check::Over => None,
            Check::Down => self.give_up_at(),
            Check::Waiting { at } => Some(*at),
            Check::Running { until, .. } => *until,
        }
    }

    fn give_up_at(&self) -> Option<Instant> {
        self.rules.as_ref().map(|rules| self.since + rules.longest_wait())
    }

    /// Does what is due about the checks.
    pub(super) async fn tend_check(&mut self, link: &Link, now: Instant) {
        let is_late = self.give_up_at().is_some_and(|at| at <= now);
        match &mut self.check {
            Check::Down | Check::Waiting { .. } if is_late => {
                let Some(rules) = &self.rules else { return };
                let next = self.health.started(rules, self.since.elapsed());
                self.go_on(next).await;
            }
            Check::Waiting { at } if *at <= now => self.run_check(link).await,
            Check::Running { name, until, .. } if until.is_some_and(|until| until <= now) => {
                *until = None;
                let name = name.clone();
                kill(link, &name).await;
            }
            Check::Over | Check::Down | Check::Waiting { .. } | Check::Running { .. } => {}
        }
    }

    async fn run_check(&mut self, link: &Link) {
        let Some(rules) = self.rules.clone() else { return };
        let name = self.new_name(UNKEPT);
        let began = Instant::now();
        let until = Some(began + rules.timeout);
        self.check = Check::Running { name: name.clone(), began, until };
        self.ask_for(link, &name, rules.command).await;
    }
}
