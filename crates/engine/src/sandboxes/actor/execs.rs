//! The commands of a sandbox: what its supervisor says of them, and what is asked of it.

use std::{collections::HashSet, os::fd::OwnedFd};

use isolate::{
    failpoint,
    plan::{Broken, Step},
    supervisor::{
        journal::Record,
        wire::{Ask as Say, End, Known, Refusal, Start, Tell, Whom, Written},
    },
};
use model::{
    exec::{Exec, LostOutput},
    execution::Exit,
    ids::ExecId,
    life::Phase,
    sandbox::Request,
    spec::OnFull,
    transition::{Observation, Transition},
};

use super::{Actor, Presence};
use crate::sandboxes::{SandboxError, attach::minding, command, link::Link, shells};

/// What the supervisor has told since it was connected to.
#[derive(Debug, Default)]
pub(super) struct Execs {
    /// How many it is still going to name; nothing before it has said how many.
    to_come: Option<u32>,
    /// Those that it was asked for or knows.
    known: HashSet<String>,
    has_all: bool,
}

impl Execs {
    /// Whether the supervisor has named everything that it knew.
    pub(super) fn are_known(&self) -> bool {
        self.has_all
    }
}

const KILL: i32 = 9;

impl Actor {
    pub(super) async fn hear(&mut self, tell: Tell, fd: Option<OwnedFd>) {
        self.hang_ups = 0;
        match tell {
            Tell::Welcome { sandbox, execs } => {
                if sandbox != self.sandbox.id.as_str() {
                    tracing::error!(sandbox = %self.sandbox.id, other = sandbox, "not its supervisor");
                    return self.let_go(Presence::Remains);
                }
                // One that was just made has nothing to tell.
                if !self.execs.has_all {
                    self.execs.to_come = Some(execs);
                    self.see_whole_if_all_known().await;
                }
            }
            Tell::Known(known) => self.learn(known).await,
            Tell::Ended { exec, end } => self.exec_ended(&exec, end).await,
            Tell::Refused { exec, why } => self.exec_refused(&exec, why).await,
            Tell::Started { exec, pid } => self.tell_watchers(&exec, Some(pid), None),
            Tell::Output { exec, written } => self.tell_watchers(&exec, None, Some(written)),
            Tell::Input { exec } => self.give_input(&exec, fd),
            // It ends now, which is seen by its silence.
            Tell::Stopped => {}
            // Only whoever asks for a connection is told so.
            Tell::Connecting | Tell::NotConnecting { .. } | Tell::Files | Tell::NoFiles { .. } => {}
        }
    }

    /// Nothing was asked of its supervisor yet, and nobody else could ask: what it says when it
    /// answers is known.
    pub(super) async fn knows_nothing(&mut self) {
        self.execs.to_come = Some(0);
        self.see_whole_if_all_known().await;
    }

    /// Refuses what cannot be done in this sandbox, whatever it is doing.
    pub(super) fn check(&self, request: &Request) -> Result<(), SandboxError> {
        self.check_understood(request)?;
        match request {
            Request::StartExec { spec, .. } => {
                command::check(&self.sandbox, spec, self.provider().no_root())
            }
            Request::Adjust(adjustment) => match adjustment.applied_to(&self.sandbox) {
                Some((adjusted, _)) => {
                    command::check_run(&adjusted.spec, self.provider().no_root())
                }
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Learns of a command that was there before this daemon.
    async fn learn(&mut self, known: Known) {
        self.execs.known.insert(known.exec.clone());
        self.learn_main(&known.exec, known.end.is_some());
        match (known.end, known.exec.parse::<ExecId>()) {
            (Some(end), _) => self.exec_ended(&known.exec, end).await,
            // Somebody cancelled it, and its processes were not killed any more.
            (None, Ok(id)) if !self.sandbox.life.running.contains_key(&id) => {
                self.kill_exec(&id).await;
            }
            (None, Ok(id)) => self.mind_again(&id, known.pid, known.written),
            (None, Err(_)) => self.learn_post_start(&known.exec).await,
        }
        if let Some(to_come) = &mut self.execs.to_come {
            *to_come = to_come.saturating_sub(1);
        }
        self.see_whole_if_all_known().await;
    }

    /// Once everything is known the sandbox is ready, or waits for its companions alone, and commands that were
    /// accepted and never reached the supervisor are started.
    async fn see_whole_if_all_known(&mut self) {
        if self.execs.to_come != Some(0) {
            return;
        }
        self.execs.to_come = None;
        self.execs.has_all = true;
        failpoint::pass("c.ready_handshake");
        match self.phase() {
            Phase::Provisioning | Phase::Resuming => self.be_ready_after_companions().await,
            Phase::Frozen => self.freeze_again().await,
            _ => {}
        }
        failpoint::pass("c.active_event");
        self.start_main().await;
        self.see_ends_in_journal().await;
        let missing: Vec<ExecId> = self
            .sandbox
            .life
            .running
            .keys()
            .filter(|exec| !self.execs.known.contains(exec.as_str()))
            .cloned()
            .collect();
        for id in missing {
            if let Ok(Some(found)) = self.shared.store.exec(&self.sandbox.tenant, &id).await {
                self.start_exec(&found.exec).await;
            } else {
                let message = "its record cannot be read".to_owned();
                let exit_code = None;
                self.see(Observation::ExecNotStarted { exec: id, message, exit_code }).await;
            }
        }
    }

    /// What stood still before is to do so now. With the freezer of v2 it still does.
    async fn freeze_again(&mut self) {
        if let Err(error) = self.freeze_bodies().await {
            tracing::warn!(sandbox = %self.sandbox.id, %error, "cannot freeze it again");
            self.see(Observation::Thawed).await;
        }
    }

    /// Returns what has the supervisor do everything for a command that is about to be accepted, but let it
    /// begin. If it is not accepted, or the supervisor cannot, nothing is lost.
    pub(super) fn announcement(&self, step: &Transition) -> Option<(&Link, Say)> {
        let Presence::Link(link) = &self.presence else { return None };
        let exec = step.started().filter(|_| link.is_of_this_build())?;
        let start = self.in_words_of_supervisor(exec).ok()?;
        Some((link, Say::Prepare(Box::new(start))))
    }

    fn in_words_of_supervisor(&self, exec: &Exec) -> Result<Start, SandboxError> {
        let keep = self.shared.settings.defaults.output.as_bytes();
        command::start(&self.sandbox, exec.id.as_str(), &exec.spec, keep)
    }

    pub(super) async fn start_exec(&mut self, exec: &Exec) {
        failpoint::pass("e.row");
        self.execs.known.insert(exec.id.to_string());
        let feed = self.door.feeds.announce(&exec.id);
        let waits = exec.spec.on_full == OnFull::Wait;
        if waits {
            feed.hold();
        }
        if waits || exec.spec.unattended.is_some() {
            minding::begin(&self.shared, exec, &feed);
        }
        shells::keep_if_shell(&self.shared, exec, &feed);
        let start = match self.in_words_of_supervisor(exec) {
            Ok(start) => start,
            Err(error) => {
                let (exec, message) = (exec.id.clone(), error.to_string());
                let exit_code = None;
                return self.see(Observation::ExecNotStarted { exec, message, exit_code }).await;
            }
        };
        let Presence::Link(link) = &self.presence else { return };
        if let Err(error) = link.ask(&Say::Start(Box::new(start))).await {
            // When the supervisor is found again it does not know it, and is asked again.
            tracing::warn!(sandbox = %self.sandbox.id, exec = %exec.id, %error, "not asked for");
        }
        failpoint::pass("e.asked");
    }

    pub(super) async fn kill_exec(&mut self, exec: &ExecId) {
        let say = Say::Signal { exec: exec.to_string(), signal: KILL, whom: Whom::All };
        self.say(&say).await;
    }

    pub(super) async fn say(&mut self, say: &Say) {
        let Presence::Link(link) = &self.presence else { return };
        if let Err(error) = link.ask(say).await {
            tracing::debug!(sandbox = %self.sandbox.id, %error, "the supervisor does not listen");
        }
    }

    /// Whoever wrote it removes it; if it does not live, whoever may remove everything.
    pub(super) async fn clear_output(&mut self, exec: &ExecId) {
        if matches!(self.presence, Presence::Link(_)) {
            return self.say(&Say::Clear { exec: exec.to_string() }).await;
        }
        if let Err(error) = self.shared.machine.clear_output(&self.sandbox.id, exec).await {
            tracing::warn!(sandbox = %self.sandbox.id, %exec, %error, "cannot remove its output");
        }
    }

    /// Keeps the end of a command, and lets the supervisor forget it.
    async fn exec_ended(&mut self, exec: &str, end: End) {
        if !self.main_ended(exec, &end).await
            && !self.post_start_ended(exec, &end).await
            && let Ok(id) = exec.parse::<ExecId>()
            && self.sandbox.life.running.contains_key(&id)
        {
            self.keep_end(id, end).await;
        }
        // What was not kept must not be forgotten: the next server asks for it.
        if self.is_over {
            return;
        }
        self.say(&Say::Forget { exec: exec.to_owned() }).await;
        self.execs.known.remove(exec);
    }

    async fn keep_end(&mut self, exec: ExecId, end: End) {
        failpoint::pass("e.exit_seen");
        self.tell_last(&exec, &end);
        if has_output(&end)
            && let Err(error) = self.shared.machine.sync_outputs(&self.sandbox.id, &exec).await
        {
            if error.kind() == std::io::ErrorKind::Interrupted {
                return self.is_over = true;
            }
            tracing::error!(sandbox = %self.sandbox.id, %exec, %error, "output may not be on disk");
        }
        failpoint::pass("e.log_synced");
        let observation = match end {
            // By a signal of ours; one that ended by itself meanwhile has a code of its own.
            End::Exited { exit: isolate::plan::Exit::Signal(_), written, .. }
                if self.is_time_over() =>
            {
                Observation::ExecTimedOut { exec, lost: lost(&written) }
            }
            End::Exited { exit, written, .. } => {
                let exit = exit_of(exit);
                match lost(&written) {
                    lost if lost.total() == 0 => Observation::ExecExited { exec, exit },
                    lost => Observation::ExecExitedCut { exec, exit, lost },
                }
            }
            End::TimedOut { written, .. } => {
                Observation::ExecTimedOut { exec, lost: lost(&written) }
            }
            End::NotStarted(broken) => {
                let (message, exit_code) = not_started(broken);
                Observation::ExecNotStarted { exec, message, exit_code }
            }
        };
        self.see(observation).await;
        failpoint::pass("e.terminal_event");
    }

    async fn exec_refused(&mut self, exec: &str, why: Refusal) {
        let message = match why {
            // Only of a command that was to be signalled; its end says the rest.
            Refusal::NoSuchExec => return self.give_input(exec, None),
            Refusal::TooManyExecs => "too many commands run in the sandbox",
            Refusal::BadId => "its id cannot name a file",
            Refusal::Stopping => "the sandbox is being stopped",
        };
        self.post_start_refused(exec, message).await;
        if let Ok(exec) = exec.parse::<ExecId>() {
            let message = message.to_owned();
            let exit_code = None;
            self.see(Observation::ExecNotStarted { exec, message, exit_code }).await;
        }
    }

    /// Takes from the journal of a supervisor how commands ended that nobody was told of.
    pub(super) async fn see_ends_in_journal(&mut self) {
        if self.sandbox.life.running.keys().all(|id| self.execs.known.contains(id.as_str())) {
            return;
        }
        for record in self.shared.machine.journal(&self.sandbox.id).await {
            if let Record::Ended { exec, end } = record
                && let Ok(id) = exec.parse::<ExecId>()
                && !self.execs.known.contains(&exec)
                && self.sandbox.life.running.contains_key(&id)
            {
                self.keep_end(id, end).await;
            }
        }
    }
}

/// What was written and could not be kept.
fn lost(written: &Written) -> LostOutput {
    LostOutput { stdout: written.stdout.lost, stderr: written.stderr.lost }
}

/// The exit codes that shells have for programs that cannot be executed.
const CANNOT_EXECUTE: i32 = 126;
const NOT_FOUND: i32 = 127;

/// Says why a command did not begin, and with which exit code if the fault is the command's own.
fn not_started(broken: Broken) -> (String, Option<i32>) {
    let why = std::io::Error::from_raw_os_error(broken.errno);
    match (broken.step, why.kind()) {
        (Step::Exec, std::io::ErrorKind::NotFound) => {
            ("command not found".to_owned(), Some(NOT_FOUND))
        }
        (Step::Exec, _) => (format!("the program cannot be executed: {why}"), Some(CANNOT_EXECUTE)),
        (Step::Directory, _) => {
            (format!("cannot enter the working directory: {why}"), Some(CANNOT_EXECUTE))
        }
        _ => (broken.to_string(), None),
    }
}

/// Whether there is anything that has to be on disk before the end is told.
fn has_output(end: &End) -> bool {
    match end {
        End::Exited { written, .. } | End::TimedOut { written, .. } => {
            written.stdout.end > 0 || written.stderr.end > 0
        }
        End::NotStarted(_) => false,
    }
}

fn exit_of(exit: isolate::plan::Exit) -> Exit {
    match exit {
        isolate::plan::Exit::Code(code) => Exit::Code(code),
        isolate::plan::Exit::Signal(signal) => Exit::Signal(signal),
    }
}
