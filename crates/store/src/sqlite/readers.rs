//! Threads that read, each with a connection of its own, so that no reader waits for a writer.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::{mpsc, oneshot};

use crate::StoreError;

const THREADS: usize = 2;
/// Callers wait when a thread has this many questions.
const QUEUE: usize = 256;

type Question = Box<dyn FnOnce(&Connection) + Send>;

enum Message {
    Ask(Question),
    Close(oneshot::Sender<()>),
}

/// The way to the threads.
#[derive(Clone, Debug)]
pub(super) struct Readers {
    queues: Arc<[mpsc::Sender<Message>]>,
    turn: Arc<AtomicUsize>,
}

impl Readers {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let queues = (0..THREADS).map(|_| start(path)).collect::<Result<Arc<[_]>, _>>()?;
        Ok(Self { queues, turn: Arc::default() })
    }

    /// Answers from what was committed when the question is taken up.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let question: Question = Box::new(move |connection| {
            // A caller that has gone away needs no answer.
            let _ = reply.send(question(connection));
        });
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % THREADS;
        let queue = self.queues.get(turn).ok_or(StoreError::Closed)?;
        queue.send(Message::Ask(question)).await.map_err(|_closed| StoreError::Closed)?;
        answer.await.map_err(|_closed| StoreError::Closed)?
    }

    pub(super) async fn close(&self) {
        for queue in self.queues.iter() {
            let (reply, closed) = oneshot::channel();
            if queue.send(Message::Close(reply)).await.is_ok() {
                // An error means that the thread has ended, which is what is asked for.
                let _ = closed.await;
            }
        }
    }
}

fn start(path: &Path) -> Result<mpsc::Sender<Message>, StoreError> {
    let cannot_open = |source| StoreError::Open { path: path.to_owned(), source };
    // Opened for writing all the same: a reader may be the one that has to recover the log.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(cannot_open)?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA busy_timeout = 5000;")?;
    connection.set_prepared_statement_cache_capacity(64);
    let (sender, queue) = mpsc::channel(QUEUE);
    thread::Builder::new()
        .name("store-read".into())
        .spawn(move || answer(connection, queue))
        .map_err(StoreError::Thread)?;
    Ok(sender)
}

fn answer(connection: Connection, mut queue: mpsc::Receiver<Message>) {
    while let Some(message) = queue.blocking_recv() {
        match message {
            Message::Ask(question) => question(&connection),
            Message::Close(closed) => {
                queue.close();
                drop(connection);
                // Nobody waits any more if the receiver is gone.
                let _ = closed.send(());
                return;
            }
        }
    }
}
