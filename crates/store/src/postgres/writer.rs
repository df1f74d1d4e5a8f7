//! The one task that writes. What waits is carried out together; what others did meanwhile is met
//! by trying again.

use std::cell::Cell;

use tokio::sync::{mpsc, oneshot};
use tokio_postgres::{Config, Error, error::SqlState};

use super::{
    batch::{self, Attempt, Outcome, Step, Written},
    keys, reads, retention, schema,
    session::{Session, report},
    sessions, snapshots, tokens,
};
use crate::{
    StoreError,
    command::{BATCH, Command, Reply},
    condition::Condition,
    failpoint, tools,
    watch::Wakeups,
};

/// How often a transaction is tried that another daemon got in the way of.
const TRIES: usize = 5;

pub(super) struct Writer {
    config: Config,
    session: Session,
    wakeups: Wakeups,
}

/// Why nothing of a transaction was kept, or nobody knows.
#[derive(Clone, Debug)]
enum Broken {
    /// Another daemon got in the way, or the connection broke before the commit.
    Again(String),
    Refused(String),
    /// What is to be recorded cannot be.
    Audit(String),
    Full,
    Unclear(String),
    Unreachable(String),
}

impl Broken {
    fn error(&self) -> StoreError {
        match self.clone() {
            Self::Again(report) | Self::Refused(report) => StoreError::Commit { report },
            Self::Audit(report) => StoreError::Audit { report },
            Self::Full => StoreError::Full,
            Self::Unclear(report) => StoreError::Unclear { report },
            Self::Unreachable(report) => StoreError::Unreachable { report },
        }
    }

    /// Judges an error before the commit was sent.
    fn before_commit(error: &StoreError) -> Self {
        match error {
            StoreError::Postgres(error) => Self::of(error),
            StoreError::Unreachable { report } => Self::Unreachable(report.clone()),
            StoreError::Audit { report } => Self::Audit(report.clone()),
            other => Self::Refused(other.to_string()),
        }
    }

    fn of(error: &Error) -> Self {
        let report = report(error);
        let again = [
            &SqlState::UNIQUE_VIOLATION,
            &SqlState::T_R_SERIALIZATION_FAILURE,
            &SqlState::T_R_DEADLOCK_DETECTED,
            // Another statement of the transaction broke, whose answer was not read yet.
            &SqlState::IN_FAILED_SQL_TRANSACTION,
            // The server takes the connection away: to restart, or because we idled too long.
            &SqlState::ADMIN_SHUTDOWN,
            &SqlState::CRASH_SHUTDOWN,
            &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ];
        match error.code() {
            Some(&SqlState::DISK_FULL) => Self::Full,
            Some(code) if again.contains(&code) => Self::Again(report),
            Some(_) => Self::Refused(report),
            None => Self::Again(report),
        }
    }

    /// Judges an error of the commit itself. Only an answer that says so means that nothing was
    /// kept.
    fn at_commit(error: &StoreError) -> Self {
        match error {
            StoreError::Postgres(error) => match error.as_db_error() {
                Some(answer) if answer.severity() == "ERROR" => Self::of(error),
                Some(_) | None => Self::Unclear(report(error)),
            },
            other => Self::Unclear(other.to_string()),
        }
    }
}

/// Waits for what a record is kept with. Whoever waits for one that is not to be is told so here.
async fn reply_if(condition: Option<Condition>, reply: Reply<()>) -> Option<Reply<()>> {
    let Some(condition) = condition else { return Some(reply) };
    match condition.until_met().await {
        Ok(()) => Some(reply),
        Err(error) => {
            // A caller that has gone away needs no answer.
            let _ = reply.send(Err(error));
            None
        }
    }
}

impl Writer {
    pub(super) async fn connect(config: &Config, wakeups: Wakeups) -> Result<Self, StoreError> {
        let session = Session::connect(config).await?;
        schema::prepare(&session).await?;
        Ok(Self { config: config.clone(), session, wakeups })
    }

    /// Carries out commands until it is told to close, or nobody is left to send any. Returns whom
    /// to tell that it is closed.
    pub(super) async fn run(
        mut self,
        queue: &mut mpsc::Receiver<Command>,
    ) -> Option<oneshot::Sender<()>> {
        let mut commands = Vec::with_capacity(BATCH);
        while queue.recv_many(&mut commands, BATCH).await > 0 {
            let (mut steps, mut replies, mut close) = (Vec::new(), Vec::new(), None);
            for command in commands.drain(..) {
                match command {
                    Command::CreateSandbox(creation, records, condition, reply) => {
                        let Some(reply) = reply_if(condition, reply).await else { continue };
                        steps.push(Step::Create(creation, records));
                        replies.push(reply);
                    }
                    Command::Record(entries, reply) => {
                        steps.push(Step::Record(entries));
                        replies.push(reply);
                    }
                    Command::Change(transition, reply) => {
                        steps.push(Step::Change(transition));
                        replies.push(reply);
                    }
                    Command::Bind(binding, condition, reply) => {
                        let Some(reply) = reply_if(condition, reply).await else { continue };
                        steps.push(Step::Bind(binding));
                        replies.push(reply);
                    }
                    Command::ForgetKeys(now, reply) => {
                        let forget =
                            async |session: &Session| sessions::forget_keys(session, now).await;
                        tell(reply, self.carry_out(forget).await);
                    }
                    Command::CreateKey(key, hash, records, reply) => {
                        let create = async |session: &Session| {
                            keys::create(session, &key, &hash, &records).await
                        };
                        tell(reply, self.carry_out(create).await);
                    }
                    Command::RevokeKey(id, at, records, reply) => {
                        let revoke = async |session: &Session| {
                            keys::revoke(session, &id, at, &records).await
                        };
                        tell(reply, self.carry_out(revoke).await);
                    }
                    Command::Trim(id, keep, reply) => {
                        let trim =
                            async |session: &Session| retention::trim(session, &id, keep).await;
                        tell(reply, self.carry_out(trim).await);
                    }
                    Command::Purge(before, limit, reply) => {
                        let purge = async |session: &Session| {
                            retention::purge(session, before, limit).await
                        };
                        tell(reply, self.carry_out(purge).await);
                    }
                    Command::RotateKey(sandbox, reply) => {
                        let rotate =
                            async |session: &Session| tokens::rotate(session, &sandbox).await;
                        tell(reply, self.carry_out(rotate).await);
                    }
                    Command::RevokeTokens(revocation, now, reply) => {
                        let revoke = async |session: &Session| {
                            tokens::revoke(session, &revocation, now).await
                        };
                        tell(reply, self.carry_out(revoke).await);
                    }
                    Command::KeepToken(token, now, reply) => {
                        let keep =
                            async |session: &Session| tokens::keep(session, &token, now).await;
                        tell(reply, self.carry_out(keep).await);
                    }
                    Command::CreateSnapshot(new, reply) => {
                        let create =
                            async |session: &Session| snapshots::create(session, &new).await;
                        tell(reply, self.carry_out(create).await);
                    }
                    Command::SettleSnapshot(id, state, at, reply) => {
                        let settle = async |session: &Session| {
                            snapshots::settle(session, &id, &state, at).await
                        };
                        tell(reply, self.carry_out(settle).await);
                    }
                    Command::DeleteSnapshot(tenant, id, reply) => {
                        let delete = async |session: &Session| {
                            snapshots::delete(session, &tenant, &id).await
                        };
                        tell(reply, self.carry_out(delete).await);
                    }
                    Command::Tool(write, reply) => {
                        let carry_out =
                            async |session: &Session| tools::carry_out(session, &write).await;
                        tell(reply, self.carry_out(carry_out).await);
                    }
                    Command::Close(reply) => close = Some(reply),
                }
            }
            if !steps.is_empty() {
                // Large, and mostly not there.
                Box::pin(self.carry_out_steps(steps, replies)).await;
            }
            if close.is_some() {
                return close;
            }
        }
        None
    }

    /// If the audit log cannot be written to, what is to be recorded is refused, and the rest is done.
    async fn carry_out_steps(&mut self, steps: Vec<Step>, replies: Vec<Reply<()>>) {
        let kept = self.keep_steps(&steps).await;
        let is_mixed = steps.iter().any(Step::is_recorded) && !steps.iter().all(Step::is_recorded);
        if let (Err(Broken::Audit(_) | Broken::Refused(_)), true) = (&kept, is_mixed) {
            let both = steps.into_iter().zip(replies);
            let (recorded, others): (Vec<_>, Vec<_>) = both.partition(|(it, _)| it.is_recorded());
            for part in [others, recorded] {
                let (steps, replies): (Vec<_>, Vec<_>) = part.into_iter().unzip();
                let kept = self.keep_steps(&steps).await;
                self.tell_steps(kept, replies).await;
            }
            return;
        }
        self.tell_steps(kept, replies).await;
    }

    async fn tell_steps(&mut self, kept: Result<Written, Broken>, replies: Vec<Reply<()>>) {
        match kept {
            Ok(Written { outcomes, woken, .. }) => {
                for (sandbox, latest) in woken {
                    self.wakeups.wake(&sandbox, latest);
                }
                for (reply, outcome) in replies.into_iter().zip(outcomes) {
                    tell(reply, self.settle(outcome).await);
                }
            }
            Err(broken) => {
                tracing::error!(reason = ?broken, commands = replies.len(), "cannot commit to the database");
                for reply in replies {
                    tell(reply, Err(broken.error()));
                }
            }
        }
    }

    /// Keeps steps. If it is unclear whether they were kept, the next try finds out: it takes the same
    /// locks, and then sees their events or does them.
    async fn keep_steps(&mut self, steps: &[Step]) -> Result<Written, Broken> {
        let recorded = Cell::new(None);
        let first = async |session: &Session| {
            let written = batch::write(session, steps, Attempt::First).await?;
            recorded.set(written.recorded);
            Ok(written)
        };
        let report = match self.keep(first).await {
            Err(Broken::Unclear(report)) => report,
            known => return known,
        };
        let attempt = Attempt::AfterUnclear(recorded.get());
        let again = async |session: &Session| batch::write(session, steps, attempt).await;
        self.keep(again).await.map_err(|_still| Broken::Unclear(report))
    }

    async fn settle(&self, outcome: Outcome) -> Result<(), StoreError> {
        match outcome {
            Outcome::Done => Ok(()),
            Outcome::Refused(error) => Err(error),
            Outcome::Stale(sandbox) => match reads::sandbox(&self.session, &sandbox).await? {
                Some(current) => Err(StoreError::Stale { current: Box::new(current) }),
                None => Err(StoreError::NotFound { what: "the sandbox" }),
            },
        }
    }

    /// Carries out one command in a transaction of its own.
    async fn carry_out<T>(
        &mut self,
        work: impl AsyncFn(&Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let refusable = async |session: &Session| {
            session.run("BEGIN").await?;
            match work(session).await {
                // A refusal wrote nothing, so that there is nothing in committing it either.
                Err(
                    refusal @ (StoreError::Conflict { .. }
                    | StoreError::TooMany { .. }
                    | StoreError::NotFound { .. }
                    | StoreError::Damaged { .. }),
                ) => Ok(Err(refusal)),
                Ok(value) => Ok(Ok(value)),
                Err(error) => Err(error),
            }
        };
        self.keep(refusable).await.unwrap_or_else(|broken| Err(broken.error()))
    }

    /// Lets a transaction be begun and filled, and commits it; from the beginning again if another
    /// daemon got in the way or the connection turns out to be broken.
    async fn keep<T>(
        &mut self,
        work: impl AsyncFn(&Session) -> Result<T, StoreError>,
    ) -> Result<T, Broken> {
        let mut last = Broken::Refused(String::new());
        for _ in 0..TRIES {
            last = match self.try_once(&work).await {
                Ok(value) => return Ok(value),
                Err(broken) => broken,
            };
            if !matches!(last, Broken::Again(_)) {
                break;
            }
        }
        Err(last)
    }

    async fn try_once<T>(
        &mut self,
        work: &impl AsyncFn(&Session) -> Result<T, StoreError>,
    ) -> Result<T, Broken> {
        if self.session.is_closed() {
            let connecting = Session::connect(&self.config).await;
            self.session = connecting.map_err(|error| Broken::before_commit(&error))?;
        }
        let value = match work(&self.session).await {
            Ok(value) => value,
            Err(error) => {
                let broken = Broken::before_commit(&error);
                self.roll_back().await;
                return Err(broken);
            }
        };
        if let Err(broken) = self.commit().await {
            self.roll_back().await;
            return Err(broken);
        }
        failpoint::pass("s.post_fsync_pre_ack").map_err(Broken::Unclear)?;
        Ok(value)
    }

    async fn commit(&self) -> Result<(), Broken> {
        failpoint::pass("s.pre_fsync").map_err(Broken::Refused)?;
        self.session.run("COMMIT").await.map_err(|error| Broken::at_commit(&error))
    }

    /// Leaves the transaction. If even that fails the connection is gone, and with it all it had
    /// begun.
    async fn roll_back(&self) {
        if self.session.is_closed() {
            return;
        }
        if let Err(error) = self.session.run("ROLLBACK").await {
            tracing::warn!(%error, "the connection to the database broke");
        }
    }
}

fn tell<T>(reply: Reply<T>, answer: Result<T, StoreError>) {
    // A caller that has gone away needs no answer.
    let _ = reply.send(answer);
}
