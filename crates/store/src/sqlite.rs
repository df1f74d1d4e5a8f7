//! SQLite on one thread of its own. Commands queue up for it; all that wait are carried out in
//! one transaction, so that the disk is awaited once for many (group commit), and each caller is
//! answered only after that transaction is on disk.

mod keys;
mod schema;

use std::{path::Path, thread, time::SystemTime};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use crate::{
    StoreError,
    keys::{ApiKey, KeyHash, KeyId, Revocation},
};

/// Callers wait when this many commands are queued.
const QUEUE: usize = 1024;
/// The most commands in one transaction.
const BATCH: usize = 1024;

/// The way to the thread.
#[derive(Clone, Debug)]
pub struct Sqlite {
    commands: mpsc::Sender<Command>,
}

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

#[derive(Debug)]
enum Command {
    CreateKey(ApiKey, KeyHash, Reply<()>),
    Keys(Reply<Vec<(ApiKey, KeyHash)>>),
    KeyByHash(KeyHash, Reply<Option<ApiKey>>),
    RevokeKey(KeyId, SystemTime, Reply<Revocation>),
    Close(oneshot::Sender<()>),
}

impl Sqlite {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let cannot_open = |source| StoreError::Open { path: path.to_owned(), source };
        let mut connection = Connection::open(path).map_err(cannot_open)?;
        schema::prepare(&mut connection)?;
        let (commands, queue) = mpsc::channel(QUEUE);
        thread::Builder::new()
            .name("store".into())
            .spawn(move || write(connection, queue))
            .map_err(StoreError::Thread)?;
        Ok(Self { commands })
    }

    pub(crate) async fn create_key(&self, key: ApiKey, hash: KeyHash) -> Result<(), StoreError> {
        self.ask(|reply| Command::CreateKey(key, hash, reply)).await
    }

    pub(crate) async fn keys(&self) -> Result<Vec<(ApiKey, KeyHash)>, StoreError> {
        self.ask(Command::Keys).await
    }

    pub(crate) async fn key_by_hash(&self, hash: KeyHash) -> Result<Option<ApiKey>, StoreError> {
        self.ask(|reply| Command::KeyByHash(hash, reply)).await
    }

    pub(crate) async fn revoke_key(
        &self,
        id: KeyId,
        at: SystemTime,
    ) -> Result<Revocation, StoreError> {
        self.ask(|reply| Command::RevokeKey(id, at, reply)).await
    }

    pub(crate) async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.commands.send(Command::Close(reply)).await.is_ok() {
            // An error means that the thread has ended, which is what is asked for.
            let _ = closed.await;
        }
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_closed| StoreError::Closed)?;
        answer.await.map_err(|_closed| StoreError::Closed)?
    }
}

/// Carries out commands until it is told to close, or nobody is left to send any.
fn write(mut connection: Connection, mut queue: mpsc::Receiver<Command>) {
    let mut batch = Vec::with_capacity(BATCH);
    while queue.blocking_recv_many(&mut batch, BATCH) > 0 {
        if let Some(closed) = commit(&mut connection, &mut batch) {
            queue.close();
            finish(connection);
            // Nobody waits any more if the receiver is gone.
            let _ = closed.send(());
            return;
        }
    }
    finish(connection);
}

fn finish(connection: Connection) {
    if let Err(error) = connection.execute_batch("PRAGMA optimize") {
        tracing::warn!(%error, "cannot optimize the store before closing");
    }
    if let Err((_, error)) = connection.close() {
        tracing::warn!(%error, "cannot close the store cleanly");
    }
}

/// An answer that waits for the commit: sent with the commit's error if that failed.
type Answer = Box<dyn FnOnce(Result<(), StoreError>)>;

/// Carries out a batch in one transaction. Returns whom to tell if it says to close.
fn commit(connection: &mut Connection, batch: &mut Vec<Command>) -> Option<oneshot::Sender<()>> {
    let mut answers: Vec<Answer> = Vec::with_capacity(batch.len());
    let mut close = None;
    let committed = (|| {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for command in batch.drain(..) {
            match command {
                Command::CreateKey(key, hash, reply) => {
                    answers.push(hold(reply, keys::create(&transaction, &key, &hash)));
                }
                Command::Keys(reply) => answers.push(hold(reply, keys::all(&transaction))),
                Command::KeyByHash(hash, reply) => {
                    answers.push(hold(reply, keys::by_hash(&transaction, &hash)));
                }
                Command::RevokeKey(id, at, reply) => {
                    answers.push(hold(reply, keys::revoke(&transaction, &id, at)));
                }
                Command::Close(reply) => close = Some(reply),
            }
        }
        transaction.commit()
    })();
    // Without a transaction the batch is dropped here, and its callers see a closed store.
    batch.clear();
    let failed = committed.err().map(|error| {
        tracing::error!(%error, commands = answers.len(), "cannot commit to the store");
        error.to_string()
    });
    for answer in answers {
        match &failed {
            None => answer(Ok(())),
            Some(report) => answer(Err(StoreError::Commit { report: report.clone() })),
        }
    }
    close
}

/// Keeps a command's answer until its transaction is on disk.
fn hold<T: 'static>(reply: Reply<T>, result: Result<T, StoreError>) -> Answer {
    Box::new(move |committed| {
        // A caller that has gone away needs no answer.
        let _ = reply.send(committed.and(result));
    })
}
