//! The companions of a sandbox, as its task sees them: begun once its supervisor is there, with it while it is
//! ready, and told of once.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use isolate::supervisor::wire::{Ask as Say, End, Whom};
use model::{life::Phase, spec::ExecSpec, transition::Observation};
use tokio::time::Instant;

use super::{Actor, Presence};
use crate::sandboxes::{
    command,
    companions::{Companions, News, What},
    restarts::how,
};

/// What is run in the sandbox when a companion is healthy is named so.
const NAME: &str = "_post-";

/// How long a sandbox waits for its companions to start before it is ready without them.
const STARTED_WITHIN: Duration = Duration::from_secs(5);

/// How long each of those commands may take.
const DONE_WITHIN: Duration = Duration::from_mins(5);

/// The companions of a sandbox that is up, and the commands that run on their behalf.
#[derive(Debug, Default)]
pub(super) struct Beside {
    pub(super) companions: Option<Companions>,
    running: HashMap<String, PostStart>,
    last_name: i64,
    /// Those that have started or failed, by number.
    started: HashSet<usize>,
    /// When the sandbox is ready even if some have not; nothing if it does not wait for them.
    pub(super) ready_at: Option<Instant>,
}

/// One of the commands that a healthy companion has run in the sandbox.
#[derive(Clone, Copy, Debug)]
struct PostStart {
    number: usize,
    step: usize,
    until: Option<Instant>,
}

impl Beside {
    /// Returns when a command has taken too long, or the sandbox has waited for long enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.running.values().filter_map(|post| post.until).chain(self.ready_at).min()
    }

    pub(super) async fn next(&mut self) -> News {
        match &mut self.companions {
            Some(companions) => companions.next().await,
            None => std::future::pending().await,
        }
    }
}

impl Actor {
    /// Has them as the phase wants them.
    pub(super) fn tend_companions(&mut self) {
        if self.sandbox.spec.companions.is_empty() {
            return;
        }
        match (&self.presence, self.phase()) {
            (
                Presence::Link(_),
                Phase::Provisioning | Phase::Resuming | Phase::Active | Phase::Frozen,
            ) => {
                if self.beside.companions.is_none() && self.execs.are_known() {
                    let companions = Companions::begin(&self.shared, &self.sandbox);
                    self.beside.companions = Some(companions);
                }
            }
            (_, Phase::Stopping | Phase::Stopped | Phase::Failed) => {
                if let Some(companions) = &self.beside.companions {
                    companions.stop();
                }
            }
            // Whoever removes them lets go of them first.
            (_, Phase::Deleting | Phase::Terminated) => {}
            (
                Presence::Unknown | Presence::Remains | Presence::None | Presence::Foreign { .. },
                _,
            ) => {}
        }
    }

    /// Has a sandbox whose supervisor is there become ready: at once, or when its companions have started.
    pub(super) async fn be_ready_after_companions(&mut self) {
        self.beside.ready_at = Some(Instant::now() + STARTED_WITHIN);
        self.be_ready_if_companions_started().await;
    }

    async fn be_ready_if_companions_started(&mut self) {
        let Some(ready_at) = self.beside.ready_at else { return };
        let told = &self.sandbox.life.companions;
        let mut companions = self.sandbox.spec.companions.iter().enumerate();
        let have_started = companions.all(|(number, companion)| {
            self.beside.started.contains(&number) || told.contains_key(&companion.name)
        });
        if have_started || ready_at <= Instant::now() {
            self.beside.ready_at = None;
            self.see(Observation::Ready).await;
        }
    }

    pub(super) async fn hear_of_companion(&mut self, News { number, what }: News) {
        match what {
            What::Started => {}
            What::Healthy => self.run_post_start(number, 0).await,
            What::Failed(message) => self.companion_failed(number, message).await,
        }
        self.beside.started.insert(number);
        self.be_ready_if_companions_started().await;
    }

    async fn companion_failed(&mut self, number: usize, message: String) {
        let Some(companion) = self.sandbox.spec.companions.get(number) else { return };
        let name = companion.name.clone();
        tracing::warn!(sandbox = %self.sandbox.id, companion = name, "a companion failed");
        self.see(Observation::CompanionFailed { name, message }).await;
    }

    /// Runs the next command that a companion has asked for; after the last it is ready.
    async fn run_post_start(&mut self, number: usize, step: usize) {
        let Some(companion) = self.sandbox.spec.companions.get(number) else { return };
        let Some(line) = companion.post_start_on_primary.get(step).cloned() else {
            let name = companion.name.clone();
            return self.see(Observation::CompanionReady { name }).await;
        };
        self.beside.last_name = self.now().as_millis().max(self.beside.last_name + 1);
        let name = format!("{NAME}{}", self.beside.last_name);
        let command = ["/bin/sh".to_owned(), "-c".to_owned(), line].to_vec();
        let spec = ExecSpec { command, ..ExecSpec::default() };
        let keep = self.shared.settings.defaults.output.as_bytes();
        match command::start(&self.sandbox, &name, &spec, keep) {
            Ok(start) => {
                let until = Some(Instant::now() + DONE_WITHIN);
                self.beside.running.insert(name, PostStart { number, step, until });
                self.say(&Say::Start(Box::new(start))).await;
            }
            Err(error) => self.companion_failed(number, error.to_string()).await,
        }
    }

    /// Notes the end of such a command, if this is one. Returns whether it is.
    pub(super) async fn post_start_ended(&mut self, exec: &str, end: &End) -> bool {
        let Some(PostStart { number, step, .. }) = self.beside.running.remove(exec) else {
            return exec.starts_with(NAME);
        };
        if matches!(end, End::Exited { exit: isolate::plan::Exit::Code(0), .. }) {
            Box::pin(self.run_post_start(number, step + 1)).await;
        } else {
            let message = format!("post_start_on_primary[{step}] ended {}", how(end));
            self.companion_failed(number, message).await;
        }
        true
    }

    pub(super) async fn post_start_refused(&mut self, exec: &str, why: &str) {
        if let Some(PostStart { number, step, .. }) = self.beside.running.remove(exec) {
            let message = format!("post_start_on_primary[{step}] was not started: {why}");
            self.companion_failed(number, message).await;
        }
    }

    /// Ends such a command of a server before this one: its companion has it run again.
    pub(super) async fn learn_post_start(&mut self, exec: &str) {
        if exec.starts_with(NAME) && !self.beside.running.contains_key(exec) {
            self.kill_named(exec).await;
        }
    }

    /// Does what is due because time has passed.
    pub(super) async fn companions_are_late(&mut self) {
        self.be_ready_if_companions_started().await;
        let now = Instant::now();
        let mut late = Vec::new();
        for (name, post) in &mut self.beside.running {
            if post.until.is_some_and(|until| until <= now) {
                post.until = None;
                late.push(name.clone());
            }
        }
        for name in late {
            self.kill_named(&name).await;
        }
    }

    async fn kill_named(&mut self, exec: &str) {
        const KILL: i32 = 9;
        self.say(&Say::Signal { exec: exec.to_owned(), signal: KILL, whom: Whom::All }).await;
    }
}
