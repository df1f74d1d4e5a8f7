//! SQLite. One thread writes: commands queue up for it, and all that wait are carried out in one
//! transaction, so that the disk is awaited once for many (group commit). Each caller is answered
//! only after that transaction is on disk. Other threads read.

mod audit;
mod identity;
mod keys;
mod readers;
mod reads;
mod reserve;
mod sandboxes;
mod schema;
mod sessions;
mod snapshots;
mod tokens;

use std::{fs::OpenOptions, io, os::unix::fs::OpenOptionsExt as _, path::Path, thread};

use model::{
    event::Sequence,
    ids::{ExecId, NodeId, SandboxId, SessionId, Tenant},
    revocation::Standing,
    sandbox::Sandbox,
    scope::Scope,
    session::Session,
    units::Timestamp,
};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot, watch};

use self::{identity::Identity, readers::Readers, reserve::Reserve};
use crate::{
    StoreError,
    audit::{Link, Part, Record},
    command::{BATCH, Command, Commands, Reply},
    failpoint,
    keys::{ApiKey, KeyHash},
    sandboxes::{Events, ExecAt, Filter, Health, Page},
    sessions::KeyName,
    sql,
    tokens::{Changed, Changes, Followers, OpaqueToken},
    tools,
    watch::{Wakeups, Watch},
};

/// The way to the threads.
#[derive(Clone, Debug)]
pub struct Sqlite {
    commands: Commands,
    readers: Readers,
    wakeups: Wakeups,
    followers: Followers,
    /// Set once, when a write went wrong for good: why.
    stopped: watch::Receiver<Option<String>>,
}

impl Sqlite {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let cannot_open = |source| StoreError::Open { path: path.to_owned(), source };
        hide(path)?;
        let mut connection = Connection::open(path).map_err(cannot_open)?;
        connection.set_prepared_statement_cache_capacity(64);
        schema::prepare(&mut connection)?;
        Self::start(connection, path)
    }

    fn start(connection: Connection, path: &Path) -> Result<Self, StoreError> {
        let readers = Readers::open(path)?;
        let (commands, queue) = Commands::channel();
        let (wakeups, (stop, stopped)) = (Wakeups::default(), watch::channel(None));
        let followers = Followers::default();
        let writer = Writer {
            connection,
            identity: Identity::of(path),
            reserve: Reserve::beside(path),
            is_full: false,
            wakeups: wakeups.clone(),
            followers: followers.clone(),
            stop,
        };
        thread::Builder::new()
            .name("store".into())
            .spawn(move || writer.run(queue))
            .map_err(StoreError::Thread)?;
        Ok(Self { commands, readers, wakeups, followers, stopped })
    }

    pub(crate) fn health(&self) -> Health {
        match &*self.stopped.borrow() {
            None => Health::Good,
            Some(report) => Health::ReadOnly { report: report.clone() },
        }
    }

    pub(crate) async fn until_read_only(&self) {
        let mut stopped = self.stopped.clone();
        if stopped.wait_for(Option::is_some).await.is_err() {
            // It was closed in good health.
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn watch(&self, sandbox: SandboxId) -> Watch {
        self.wakeups.watch(sandbox)
    }

    pub(crate) fn follow_tokens(&self) -> Changes {
        self.followers.follow()
    }

    pub(crate) async fn standings(
        &self,
        sandbox: Option<SandboxId>,
    ) -> Result<Vec<(SandboxId, Standing)>, StoreError> {
        self.readers.ask(move |connection| tokens::all(connection, sandbox.as_ref())).await
    }

    pub(crate) async fn opaque_token(
        &self,
        hash: KeyHash,
    ) -> Result<Option<OpaqueToken>, StoreError> {
        self.readers.ask(move |connection| tokens::opaque(connection, &hash)).await
    }

    pub(crate) async fn keys(&self) -> Result<Vec<(ApiKey, KeyHash)>, StoreError> {
        self.readers.ask(keys::all).await
    }

    pub(crate) async fn key_by_hash(&self, hash: KeyHash) -> Result<Option<ApiKey>, StoreError> {
        self.readers.ask(move |connection| keys::by_hash(connection, &hash)).await
    }

    pub(crate) async fn sandbox(&self, id: SandboxId) -> Result<Option<Sandbox>, StoreError> {
        self.readers.ask(move |connection| reads::sandbox(connection, &id)).await
    }

    pub(crate) async fn find(
        &self,
        tenant: Tenant,
        name: String,
    ) -> Result<Option<Sandbox>, StoreError> {
        self.readers.ask(move |connection| reads::find(connection, &tenant, &name)).await
    }

    pub(crate) async fn list(&self, filter: Filter) -> Result<Page, StoreError> {
        self.readers.ask(move |connection| reads::list(connection, &filter)).await
    }

    pub(crate) async fn unfinished(&self, node: NodeId) -> Result<Page, StoreError> {
        self.readers.ask(move |connection| reads::unfinished(connection, &node)).await
    }

    pub(crate) async fn events(
        &self,
        id: SandboxId,
        after: Sequence,
        limit: u32,
    ) -> Result<Events, StoreError> {
        self.readers.ask(move |connection| reads::events(connection, &id, after, limit)).await
    }

    pub(crate) async fn exec(
        &self,
        tenant: Tenant,
        id: ExecId,
    ) -> Result<Option<ExecAt>, StoreError> {
        self.readers.ask(move |connection| reads::exec(connection, &tenant, &id)).await
    }

    pub(crate) async fn running_execs(
        &self,
        tenant: Tenant,
        sandbox: Option<SandboxId>,
    ) -> Result<Vec<ExecAt>, StoreError> {
        let read = move |connection: &Connection| {
            reads::running_execs(connection, &tenant, sandbox.as_ref())
        };
        self.readers.ask(read).await
    }

    pub(crate) async fn session(&self, id: SessionId) -> Result<Option<Session>, StoreError> {
        self.readers.ask(move |connection| sessions::by_id(connection, &id)).await
    }

    pub(crate) async fn session_of(
        &self,
        tenant: Tenant,
        scope: Scope,
    ) -> Result<Option<Session>, StoreError> {
        self.readers.ask(move |connection| sessions::of_scope(connection, &tenant, &scope)).await
    }

    pub(crate) async fn session_with(
        &self,
        sandbox: SandboxId,
    ) -> Result<Option<Session>, StoreError> {
        self.readers.ask(move |connection| sessions::of_sandbox(connection, &sandbox)).await
    }

    pub(crate) async fn unfinished_sessions(
        &self,
        node: NodeId,
    ) -> Result<Vec<Session>, StoreError> {
        self.readers.ask(move |connection| sessions::of_node(connection, &node)).await
    }

    pub(crate) async fn used_key(
        &self,
        name: KeyName,
        now: Timestamp,
    ) -> Result<Option<([u8; 32], SessionId)>, StoreError> {
        self.readers.ask(move |connection| sessions::used_key(connection, &name, now)).await
    }

    pub(crate) async fn audit(&self, part: Part) -> Result<Vec<Record>, StoreError> {
        self.readers.ask(move |connection| audit::read(connection, part)).await
    }

    pub(crate) async fn audit_end(&self) -> Result<Link, StoreError> {
        self.readers.ask(audit::end).await
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.readers.ask(question).await
    }

    pub(crate) async fn close(&self) {
        self.readers.close().await;
        self.commands.close().await;
    }

    pub(crate) fn commands(&self) -> &Commands {
        &self.commands
    }
}

/// Makes the file one that only its owner can read, because specs hold secrets. Its log gets the
/// same rights from SQLite.
fn hide(path: &Path) -> Result<(), StoreError> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(StoreError::Make { path: path.to_owned(), source: error })
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The one thread that writes.
struct Writer {
    connection: Connection,
    identity: Identity,
    reserve: Reserve,
    /// The last that was to be written had no room.
    is_full: bool,
    wakeups: Wakeups,
    followers: Followers,
    stop: watch::Sender<Option<String>>,
}

/// An answer that waits for the commit: sent with the commit's error if that failed.
type Answer = Box<dyn FnOnce(Result<(), StoreError>)>;

/// What a transaction will have done.
#[derive(Default)]
struct Batch {
    answers: Vec<Answer>,
    woken: Vec<(SandboxId, Sequence)>,
    /// Whose tokens have changed.
    tokens: Vec<Changed>,
    close: Option<oneshot::Sender<()>>,
}

/// Why nothing of a transaction was kept.
#[derive(Clone, Debug)]
enum Broken {
    /// It can be tried again.
    Refused(String),
    Full,
    /// The disk can't be trusted after this.
    Stop(String),
}

impl Writer {
    /// Carries out commands until it is told to close, or nobody is left to send any.
    fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        let mut commands = Vec::with_capacity(BATCH);
        while queue.blocking_recv_many(&mut commands, BATCH) > 0 {
            if let Some(closed) = self.commit(&mut commands) {
                queue.close();
                self.finish();
                // Nobody waits any more if the receiver is gone.
                let _ = closed.send(());
                return;
            }
        }
        self.finish();
    }

    fn finish(self) {
        self.wakeups.close();
        if let Err(error) = self.connection.execute_batch("PRAGMA optimize") {
            tracing::warn!(%error, "cannot optimize the store before closing");
        }
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "cannot close the store cleanly");
        }
    }

    /// Carries out a batch in one transaction. Returns whom to tell if it says to close.
    fn commit(&mut self, commands: &mut Vec<Command>) -> Option<oneshot::Sender<()>> {
        // What is only wanted does not take the room of what has to be told: others would fill it meanwhile.
        let is_owed = commands.iter().any(|command| !command.is_new_work());
        if is_owed && self.is_full {
            self.reserve.release();
        }
        if !self.reserve.is_there() {
            refuse_new_work(commands);
        }
        let mut batch = Batch::default();
        let stopped = self.stop.borrow().clone();
        let kept = match stopped {
            Some(report) => Err(Broken::Stop(report)),
            None => keep(&mut self.connection, &self.identity, commands, &mut batch),
        };
        // What was not taken up gets the same answer as what was.
        for command in commands.drain(..) {
            batch.refuse(command);
        }
        match kept {
            Ok(()) => {
                self.is_full = false;
                self.tell(&mut batch);
            }
            Err(broken) => {
                self.is_full = matches!(broken, Broken::Full);
                if self.is_full && is_owed {
                    self.reserve.release();
                }
                self.tell_broken(&mut batch, &broken);
            }
        }
        batch.close
    }

    fn tell(&self, batch: &mut Batch) {
        // Whoever is woken first may take the processor from this thread: those who asked come before
        // those who follow.
        for answer in batch.answers.drain(..) {
            answer(Ok(()));
        }
        for (sandbox, latest) in batch.woken.drain(..) {
            self.wakeups.wake(&sandbox, latest);
        }
        for changed in batch.tokens.drain(..) {
            self.followers.tell(changed);
        }
    }

    fn tell_broken(&self, batch: &mut Batch, broken: &Broken) {
        tracing::error!(reason = ?broken, commands = batch.answers.len(), "cannot commit to the store");
        if let Broken::Stop(report) = broken {
            self.stop.send_if_modified(|stopped| {
                let is_first = stopped.is_none();
                stopped.get_or_insert_with(|| report.clone());
                is_first
            });
        }
        for answer in batch.answers.drain(..) {
            answer(Err(match broken {
                Broken::Refused(report) => StoreError::Commit { report: report.clone() },
                Broken::Full => StoreError::Full,
                Broken::Stop(report) => StoreError::ReadOnly { report: report.clone() },
            }));
        }
    }
}

/// Answers those who want more of a disk that is full, and leaves those who end something or tell
/// what has happened.
fn refuse_new_work(commands: &mut Vec<Command>) {
    for command in commands.extract_if(.., |command| command.is_new_work()) {
        let mut batch = Batch::default();
        batch.refuse(command);
        for answer in batch.answers {
            answer(Err(StoreError::Full));
        }
    }
}

/// Carries out commands in one transaction and puts it on disk.
fn keep(
    connection: &mut Connection,
    identity: &Identity,
    commands: &mut Vec<Command>,
    batch: &mut Batch,
) -> Result<(), Broken> {
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|error| Broken::by(&error, At::Statement))?;
    for command in commands.drain(..) {
        batch.carry_out(&transaction, command)?;
    }
    failpoint::pass("s.pre_fsync").map_err(Broken::Stop)?;
    transaction.commit().map_err(|error| Broken::by(&error, At::Commit))?;
    // A file that is no longer under its name is found by nobody after a restart.
    identity.check().map_err(Broken::Stop)?;
    failpoint::pass("s.post_fsync_pre_ack").map_err(Broken::Stop)
}

impl Batch {
    fn carry_out(&mut self, transaction: &Transaction<'_>, command: Command) -> Result<(), Broken> {
        match command {
            Command::CreateKey(key, hash, records, reply) => {
                let create = || keys::create(transaction, &key, &hash);
                self.hold(reply, audit::recorded(transaction, &records, create))
            }
            Command::RevokeKey(id, at, records, reply) => {
                let revoked = keys::revoke(transaction, &id, at, &records);
                // It is about tokens of any sandbox.
                self.tokens.push(Changed::Everything);
                self.hold(reply, revoked)
            }
            Command::Record(entries, reply) => {
                self.hold(reply, audit::recorded(transaction, &entries, || Ok(())))
            }
            Command::CreateSandbox(creation, records, condition, reply) => {
                let create = || sandboxes::create(transaction, &creation);
                let created = audit::recorded_if(transaction, &records, condition, create);
                let sandbox = creation.into_sandbox();
                self.wake_if(&created, sandbox.id, sandbox.life.sequence);
                self.hold(reply, created)
            }
            Command::Change(transition, reply) => {
                let changed = sandboxes::change(transaction, &transition);
                let latest = transition.life().sequence;
                self.wake_if(&changed, transition.sandbox().clone(), latest);
                self.hold(reply, changed)
            }
            Command::Bind(binding, condition, reply) => {
                let bind = || sessions::bind(transaction, &binding);
                let bound = audit::recorded_if(transaction, &binding.records, condition, bind);
                if let Some(creation) = binding.creation {
                    let sandbox = creation.into_sandbox();
                    self.wake_if(&bound, sandbox.id, sandbox.life.sequence);
                }
                self.hold(reply, bound)
            }
            Command::ForgetKeys(now, reply) => {
                self.hold(reply, sessions::forget_keys(transaction, now))
            }
            Command::Trim(id, keep_from, reply) => {
                self.hold(reply, sandboxes::trim(transaction, &id, keep_from))
            }
            Command::Purge(before, limit, reply) => {
                let purged = sandboxes::purge(transaction, before, limit);
                for sandbox in purged.iter().flatten() {
                    self.woken.push((sandbox.clone(), Sequence::ZERO));
                }
                self.hold(reply, purged)
            }
            Command::RotateKey(sandbox, reply) => {
                let rotated = tokens::rotate(transaction, &sandbox);
                self.tokens.push(Changed::Sandbox(sandbox));
                self.hold(reply, rotated)
            }
            Command::RevokeTokens(revocation, now, reply) => {
                let revoked = tokens::revoke(transaction, &revocation, now);
                self.tokens.push(Changed::Sandbox(revocation.sandbox));
                self.hold(reply, revoked)
            }
            Command::KeepToken(token, now, reply) => {
                self.hold(reply, tokens::keep(transaction, &token, now))
            }
            Command::CreateSnapshot(new, reply) => {
                self.hold(reply, snapshots::create(transaction, &new))
            }
            Command::SettleSnapshot(id, state, at, reply) => {
                self.hold(reply, snapshots::settle(transaction, &id, state, at))
            }
            Command::DeleteSnapshot(tenant, id, reply) => {
                self.hold(reply, snapshots::delete(transaction, &tenant, &id))
            }
            Command::Tool(write, reply) => {
                let connection: &Connection = transaction;
                let written = sql::at_once(tools::carry_out(connection, &write));
                self.hold(reply, written)
            }
            Command::Close(reply) => {
                self.close = Some(reply);
                Ok(())
            }
        }
    }

    fn wake_if(&mut self, done: &Result<(), StoreError>, sandbox: SandboxId, latest: Sequence) {
        if done.is_ok() {
            self.woken.push((sandbox, latest));
        }
    }

    /// Keeps an answer until its transaction is on disk. A refusal leaves the transaction as it
    /// was; any other error spoils all of it.
    fn hold<T: 'static>(
        &mut self,
        reply: Reply<T>,
        result: Result<T, StoreError>,
    ) -> Result<(), Broken> {
        let spoiled = match &result {
            Ok(_)
            | Err(
                StoreError::Conflict { .. }
                | StoreError::TooMany { .. }
                | StoreError::NotFound { .. }
                | StoreError::Stale { .. }
                | StoreError::Bound { .. }
                | StoreError::KeyUsed
                | StoreError::Unmet
                | StoreError::Damaged { .. }
                | StoreError::Audit { .. },
            ) => Ok(()),
            Err(StoreError::Database(error)) => Err(Broken::by(error, At::Statement)),
            Err(other) => Err(Broken::Refused(other.to_string())),
        };
        self.answers.push(Box::new(move |committed| {
            // A caller that has gone away needs no answer.
            let _ = reply.send(committed.and(result));
        }));
        spoiled
    }

    /// Keeps the place of a command that was not carried out.
    fn refuse(&mut self, command: Command) {
        fn held<T: 'static>(reply: Reply<T>) -> Answer {
            Box::new(move |broken| {
                let _ = reply.send(Err(broken.err().unwrap_or(StoreError::Closed)));
            })
        }
        self.answers.push(match command {
            Command::CreateKey(_, _, _, reply)
            | Command::CreateSandbox(_, _, _, reply)
            | Command::Record(_, reply)
            | Command::Change(_, reply)
            | Command::Bind(_, _, reply)
            | Command::ForgetKeys(_, reply)
            | Command::Trim(_, _, reply)
            | Command::RevokeTokens(_, _, reply)
            | Command::CreateSnapshot(_, reply)
            | Command::SettleSnapshot(_, _, _, reply)
            | Command::DeleteSnapshot(_, _, reply)
            | Command::KeepToken(_, _, reply) => held(reply),
            Command::RotateKey(_, reply) => held(reply),
            Command::RevokeKey(_, _, _, reply) => held(reply),
            Command::Purge(_, _, reply) => held(reply),
            Command::Tool(_, reply) => held(reply),
            Command::Close(reply) => {
                self.close = Some(reply);
                return;
            }
        });
    }
}

/// Where an error came up.
#[derive(Clone, Copy)]
enum At {
    Statement,
    Commit,
}

impl Broken {
    fn by(error: &rusqlite::Error, at: At) -> Self {
        match (error.sqlite_error_code(), at) {
            (Some(ErrorCode::DiskFull), _) => Self::Full,
            (Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked), _) => {
                Self::Refused(error.to_string())
            }
            (
                Some(
                    ErrorCode::SystemIoFailure
                    | ErrorCode::DatabaseCorrupt
                    | ErrorCode::NotADatabase
                    | ErrorCode::ReadOnly
                    | ErrorCode::CannotOpen,
                ),
                _,
            )
            | (_, At::Commit) => Self::Stop(error.to_string()),
            (_, At::Statement) => Self::Refused(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
