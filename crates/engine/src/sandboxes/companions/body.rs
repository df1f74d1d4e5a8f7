//! One companion.

mod checks;

use std::{sync::Arc, time::Duration};

use isolate::{
    sandbox::companion_name,
    supervisor::wire::{Ask as Say, End, Tell, Whom},
};
use model::{
    health::{Health, Rules},
    life::CompanionState,
    sandbox::Sandbox,
    spec::{Companion, ExecSpec},
};
use tokio::{
    select,
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};

use super::{News, Wish, run_of};
use crate::sandboxes::{
    Shared,
    actor::{GRACE, LAST_WAIT, MAIN, chain},
    clock, command,
    link::Link,
    machine::{self, Found, MachineError},
    restarts::{Restarts, how},
};
use checks::Check;

pub(super) struct Body {
    shared: Arc<Shared>,
    sandbox: Sandbox,
    number: usize,
    companion: Companion,
    /// The companion in the words for a sandbox.
    like_a_sandbox: Sandbox,
    /// Its own command, and how its programs are run.
    run: ExecSpec,
    wish: watch::Receiver<Wish>,
    tell: mpsc::Sender<News>,
    /// Since when it is to become healthy.
    since: Instant,
    check: Check,
    rules: Option<Rules>,
    health: Health,
    main: Main,
    last_name: i64,
    has_started: bool,
    has_failed: bool,
}

/// What is known of the companion's command.
#[derive(Debug, Default)]
struct Main {
    running: Option<(String, Instant)>,
    restarts: Restarts,
    start_at: Option<Instant>,
}

/// Why a companion is not attended to any longer.
enum Over {
    /// It was stopped, or cannot be, or nobody wants to know.
    Done,
    /// Its supervisor says nothing more.
    Lost,
}

impl Body {
    /// Returns nothing if there is no such companion.
    pub(super) fn new(
        shared: Arc<Shared>,
        sandbox: Sandbox,
        number: usize,
        told: Option<CompanionState>,
        wish: watch::Receiver<Wish>,
        tell: mpsc::Sender<News>,
    ) -> Option<Self> {
        let companion = sandbox.spec.companions.get(number)?.clone();
        let rules = companion.healthcheck.as_ref().and_then(Rules::of);
        let check = if told.is_some() { Check::Over } else { Check::Down };
        let spec = machine::as_sandbox(&companion);
        let like_a_sandbox = Sandbox { spec, ..sandbox.clone() };
        let run = run_of(&sandbox, &companion, shared.machine.has_users());
        let since = Instant::now();
        let (health, main) = (Health::default(), Main::default());
        let has_failed = told == Some(CompanionState::Failed);
        Some(Self {
            shared,
            sandbox,
            number,
            companion,
            like_a_sandbox,
            run,
            wish,
            tell,
            since,
            check,
            rules,
            health,
            main,
            last_name: 0,
            has_started: false,
            has_failed,
        })
    }

    /// Attends to the companion until it is stopped or let go.
    pub(super) async fn run(mut self) {
        let mut let_go = self.wish.clone();
        select! {
            biased;
            // Its sender is gone.
            () = let_go_of(&mut let_go) => {}
            () = self.attend() => {}
        }
    }

    async fn attend(&mut self) {
        let mut not_before = Instant::now();
        loop {
            let mut stop = self.wish.clone();
            let found = async {
                sleep_until(not_before).await;
                self.find().await
            };
            let found = select! {
                biased;
                // Whatever is half made is ended with the rest.
                () = stop_wished(&mut stop) => return,
                found = found => found,
            };
            let link = match found {
                Ok(link) => link,
                Err(error) if error.is_our_own_end() => return,
                Err(error) => return self.fail(chain(&error)).await,
            };
            match self.serve(&link).await {
                Over::Done => return,
                Over::Lost => not_before = self.lost(),
            }
        }
    }

    /// Notes that nothing of it runs. Returns when it may be made again.
    fn lost(&mut self) -> Instant {
        let now = Instant::now();
        let ran_for = self.main.running.take().map_or(Duration::ZERO, |(_, since)| now - since);
        self.main.start_at = None;
        if !matches!(self.check, Check::Over) {
            self.check = Check::Down;
        }
        self.main.restarts.ended(ran_for, now).start_again_at
    }

    /// Finds its supervisor, or has it made.
    async fn find(&self) -> Result<Link, MachineError> {
        let machine = &self.shared.machine;
        let name = self.name();
        let defaults = self.shared.settings.defaults;
        let found = machine.open(&name, &self.companion.resources, defaults).await?;
        if let Found::Link(link) = found {
            return Ok(link);
        }
        // There may be remains.
        machine.end(&name).await?;
        machine.make_companion(&self.sandbox, self.number, &self.companion, defaults).await
    }

    fn name(&self) -> String {
        companion_name(self.sandbox.id.as_str(), self.number)
    }

    async fn serve(&mut self, link: &Link) -> Over {
        let mut wish = self.wish.clone();
        let mut to_come = None;
        loop {
            let deadline = self.deadline();
            let time_is_up = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            select! {
                biased;
                () = stop_wished(&mut wish) => {
                    let_end(link).await;
                    return Over::Done;
                }
                told = link.next() => match told {
                    Ok(Some((tell, _))) => self.hear(link, tell, &mut to_come).await,
                    Ok(None) | Err(_) => return Over::Lost,
                },
                () = time_is_up => self.time_is_up(link).await,
            }
        }
    }

    async fn hear(&mut self, link: &Link, tell: Tell, to_come: &mut Option<u32>) {
        match tell {
            Tell::Welcome { execs, .. } => *to_come = Some(execs),
            Tell::Known(known) => {
                if let Some(left) = to_come {
                    *left = left.saturating_sub(1);
                }
                match known.end {
                    Some(end) => self.ended(link, &known.exec, end).await,
                    None if known.exec.starts_with(MAIN) => {
                        self.main.running = Some((known.exec, Instant::now()));
                    }
                    // A check of the server before this one.
                    None if !self.is_check(&known.exec) => kill(link, &known.exec).await,
                    None => {}
                }
                if known.pid.is_some() && to_come.is_none() {
                    self.started().await;
                }
            }
            Tell::Started { exec, .. } => {
                if self.main.running.as_ref().is_some_and(|(main, _)| *main == exec) {
                    self.started().await;
                }
            }
            Tell::Ended { exec, end } => self.ended(link, &exec, end).await,
            Tell::Refused { exec, .. } => self.refused(&exec).await,
            Tell::Output { .. } | Tell::Input { .. } | Tell::Stopped => {}
            Tell::Connecting | Tell::NotConnecting { .. } | Tell::Files | Tell::NoFiles { .. } => {}
        }
        if *to_come == Some(0) {
            *to_come = None;
            let is_running = self.main.running.is_some();
            if self.run.command.is_empty() || is_running {
                self.started().await;
            } else {
                self.start(link).await;
            }
        }
    }

    /// Each time has a name and files of its own.
    fn new_name(&mut self, prefix: &str) -> String {
        self.last_name = clock::now().as_millis().max(self.last_name + 1);
        format!("{prefix}{}", self.last_name)
    }

    async fn start(&mut self, link: &Link) {
        let name = self.new_name(MAIN);
        self.main.start_at = None;
        self.main.running = Some((name.clone(), Instant::now()));
        self.ask_for(link, &name, self.run.command.clone()).await;
    }

    async fn ask_for(&mut self, link: &Link, name: &str, command: Vec<String>) {
        let spec = ExecSpec { command, ..self.run.clone() };
        let keep = self.shared.settings.defaults.output.as_bytes();
        match command::start(&self.like_a_sandbox, name, &spec, keep) {
            // A supervisor that is gone is seen as such by the next read.
            Ok(start) => _ = link.ask(&Say::Start(Box::new(start))).await,
            Err(error) => self.fail(error.to_string()).await,
        }
    }

    async fn ended(&mut self, link: &Link, exec: &str, end: End) {
        if self.main.running.as_ref().is_some_and(|(main, _)| main == exec) {
            self.main_ended(&end).await;
        } else if self.is_check(exec) {
            self.checked(&end).await;
        }
        // What is not heard is forgotten with the supervisor.
        let _ = link.ask(&Say::Forget { exec: exec.to_owned() }).await;
    }

    async fn main_ended(&mut self, end: &End) {
        let now = Instant::now();
        let ran_for = self.main.running.take().map_or(Duration::ZERO, |(_, since)| now - since);
        if matches!(end, End::NotStarted(_)) {
            // Another time would be no better.
            return self.fail(format!("its command ended {}", how(end))).await;
        }
        let streak = self.main.restarts.ended(ran_for, now);
        self.main.start_at = Some(streak.start_again_at);
        if matches!(self.check, Check::Waiting { .. }) {
            self.check = Check::Down;
        }
        if streak.lasts >= self.shared.settings.defaults.crash_window {
            let (times, how) = (streak.times, how(end));
            self.fail(format!("its command has ended {times} times, the last time {how}")).await;
        }
    }

    async fn refused(&mut self, exec: &str) {
        if self.is_check(exec) || exec.starts_with(MAIN) {
            self.fail("its supervisor starts nothing".to_owned()).await;
        }
    }

    /// Returns when something is to be done although nothing happens.
    fn deadline(&self) -> Option<Instant> {
        [self.check_deadline(), self.main.start_at].into_iter().flatten().min()
    }

    async fn time_is_up(&mut self, link: &Link) {
        let now = Instant::now();
        if self.main.start_at.is_some_and(|at| at <= now) {
            self.start(link).await;
        }
        self.tend_check(link, now).await;
    }
}

/// Returns when nobody wants to know of the companion any more.
async fn let_go_of(wish: &mut watch::Receiver<Wish>) {
    while wish.changed().await.is_ok() {}
}

/// Returns when the companion is to be stopped. Whoever is let go of is not.
async fn stop_wished(wish: &mut watch::Receiver<Wish>) {
    if wish.wait_for(|wish| *wish == Wish::Stop).await.map(drop).is_err() {
        std::future::pending::<()>().await;
    }
}

async fn kill(link: &Link, exec: &str) {
    const KILL: i32 = 9;
    let signal = Say::Signal { exec: exec.to_owned(), signal: KILL, whom: Whom::All };
    // A supervisor that is gone is seen as such by the next read.
    let _ = link.ask(&signal).await;
}

/// Asks its processes to end, and waits until they have or have had their time.
async fn let_end(link: &Link) {
    if link.ask(&Say::Stop { grace: GRACE }).await.is_err() {
        return;
    }
    let gone = async { while let Ok(Some(_)) = link.next().await {} };
    // Whoever is left is killed.
    let _ = timeout(GRACE + LAST_WAIT, gone).await;
}
