//! What is noted, on its way to the log.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use model::audit::{Action, Entry, Outcome};
use store::Store;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

use super::{
    forged::{self, Forged},
    sealing::Sealer,
};
use crate::clock;

/// How long an entry waits for others, so that the disk is awaited once for many and those who
/// wait for it are hardly held up.
const GATHER: Duration = Duration::from_secs(1);
/// As many are not waited with.
const MANY: usize = 256;
/// How many are held while the log cannot be written to. Further ones are counted.
const HELD: usize = 4096;

pub(super) enum Message {
    Note(Box<Entry>),
    Settle(oneshot::Sender<()>),
    Close(oneshot::Sender<()>),
}

/// Gathers entries and has them kept.
#[derive(Debug)]
pub(super) struct Keeper {
    store: Store,
    /// How many came when there was no room, told by those who sent them.
    lost: Arc<AtomicU64>,
    forged: Arc<Forged>,
    waiting: Vec<Entry>,
    due: Option<Instant>,
    sealing: Option<Sealing>,
}

/// The sealer, and when it seals next.
#[derive(Debug)]
struct Sealing {
    sealer: Sealer,
    due: Instant,
}

impl Sealing {
    /// Seals at once what an earlier server left unsealed.
    fn new(sealer: Sealer) -> Self {
        Self { sealer, due: Instant::now() }
    }

    async fn seal(&mut self, store: &Store) {
        self.sealer.seal(store).await;
        self.due = Instant::now() + self.sealer.interval();
    }
}

impl Keeper {
    pub(super) fn new(
        store: Store,
        sealer: Option<Sealer>,
        lost: Arc<AtomicU64>,
        forged: Arc<Forged>,
    ) -> Self {
        let sealing = sealer.map(Sealing::new);
        Self { store, lost, forged, waiting: Vec::new(), due: None, sealing }
    }

    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        loop {
            let seals_at = self.sealing.as_ref().map(|sealing| sealing.due);
            let message = match self.due.into_iter().chain(seals_at).min() {
                Some(due) => timeout_at(due, queue.recv()).await,
                None => Ok(queue.recv().await),
            };
            match message {
                Ok(Some(Message::Note(entry))) => {
                    self.take(*entry);
                    if self.waiting.len() == MANY {
                        self.keep().await;
                    }
                }
                Err(_elapsed) => self.keep_or_seal().await,
                Ok(Some(Message::Settle(settled))) => {
                    self.keep().await;
                    // Whoever has gone away needs no answer.
                    let _ = settled.send(());
                }
                Ok(Some(Message::Close(closed))) => {
                    queue.close();
                    while let Some(message) = queue.recv().await {
                        self.take_last(message);
                    }
                    self.keep().await;
                    self.seal().await;
                    let _ = closed.send(());
                    return;
                }
                Ok(None) => return self.keep().await,
            }
        }
    }

    async fn keep_or_seal(&mut self) {
        let now = Instant::now();
        if self.due.is_some_and(|due| due <= now) {
            self.keep().await;
        }
        if self.sealing.as_ref().is_some_and(|sealing| sealing.due <= now) {
            self.seal().await;
        }
    }

    async fn seal(&mut self) {
        if let Some(sealing) = &mut self.sealing {
            sealing.seal(&self.store).await;
        }
    }

    fn take_last(&mut self, message: Message) {
        match message {
            Message::Note(entry) => self.take(*entry),
            // They learn that it has ended.
            Message::Settle(_) | Message::Close(_) => {}
        }
    }

    /// Refusals and reads that are alike become one record, so that they cannot fill the disk.
    fn take(&mut self, entry: Entry) {
        self.due.get_or_insert_with(|| Instant::now() + GATHER);
        let may_be_joined = entry.outcome == Outcome::Denied || entry.action.is_joined();
        if may_be_joined && let Some(like) = self.waiting.iter_mut().find(|it| it.is_like(&entry)) {
            let more = entry.count.unwrap_or(1);
            like.count = Some(like.count.unwrap_or(1).saturating_add(more));
        } else if self.waiting.len() < HELD {
            self.waiting.push(entry);
        } else {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has everything kept that waits; what cannot be is tried again later.
    async fn keep(&mut self) {
        let counted = Arc::clone(&self.forged);
        for (reason, count) in counted.take() {
            let count = (count > 1).then_some(count);
            self.take(Entry { count, ..forged::entry(reason) });
        }
        self.due = None;
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let mut entries = self.waiting.clone();
        if lost > 0 {
            let entry = Entry::new(clock::timestamp(), Action::AuditLost, Outcome::Failed);
            entries.push(Entry { count: Some(lost), ..entry });
        }
        if entries.is_empty() {
            return;
        }
        match self.store.record(entries).await {
            Ok(()) => self.waiting.clear(),
            Err(error) => {
                tracing::error!(%error, waiting = self.waiting.len(), lost, "cannot write the audit log");
                self.lost.fetch_add(lost, Ordering::Relaxed);
                self.due = Some(Instant::now() + GATHER);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use store::audit::{Order, Part, Record};

    use super::{super::Audit, *};
    use crate::tokens::NotGenuine;
    use engine::tasks::Tasks;

    async fn records(store: &Store) -> Vec<Record> {
        let part = Part { order: Order::OldestFirst, beyond: None, limit: 1000 };
        store.audit(part).await.unwrap()
    }

    fn noted(action: Action, outcome: Outcome) -> Entry {
        Entry::new(clock::timestamp(), action, outcome)
    }

    #[tokio::test]
    async fn what_is_noted_is_kept_in_order_and_alike_refusals_are_one() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("s.db")).unwrap();
        let tasks = Tasks::default();
        let audit = Audit::open(store.clone(), None, &tasks);
        audit.note(noted(Action::ExecStart, Outcome::Granted));
        audit.note(noted(Action::ExecStart, Outcome::Granted));
        for _ in 0..500 {
            audit.note(noted(Action::Access, Outcome::Denied));
        }
        audit.note(noted(Action::FileWrite, Outcome::Granted));
        audit.settle().await;
        let kept = records(&store).await;
        let kept: Vec<_> = kept.iter().map(|it| (it.action.as_str(), it.count)).collect();
        let expected = [
            ("exec.start", None),
            ("exec.start", None),
            ("access", Some(500)),
            ("file.write", None),
        ];
        assert_eq!(kept, expected);
        audit.note(noted(Action::ShellOpen, Outcome::Granted));
        audit.close().await;
        tasks.join().await;
        assert_eq!(records(&store).await.len(), 5);
        audit.note(noted(Action::ShellOpen, Outcome::Granted));
    }

    #[tokio::test]
    async fn of_many_forged_tokens_the_first_is_noted_and_the_rest_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("s.db")).unwrap();
        let tasks = Tasks::default();
        let audit = Audit::open(store.clone(), None, &tasks);
        for _ in 0..10_000 {
            audit.note_forged(NotGenuine::Signature);
        }
        audit.note_forged(NotGenuine::Form);
        audit.settle().await;
        audit.note_forged(NotGenuine::Signature);
        audit.close().await;
        tasks.join().await;
        let kept = records(&store).await;
        let kept: Vec<_> = kept.iter().map(|it| (it.reason.as_deref(), it.count)).collect();
        let (signature, form) = ("its signature is wrong", "its form is not that of a token");
        let expected =
            [(Some(signature), Some(10_000)), (Some(form), None), (Some(signature), None)];
        assert_eq!(kept, expected);
    }

    /// F78.
    #[tokio::test]
    async fn what_cannot_be_kept_waits_and_beyond_the_bound_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.db");
        let store = Store::open(&path).unwrap();
        let tamper = |sql: &str| {
            let sqlite = std::process::Command::new("python3")
                .args([
                    "-c",
                    "import sqlite3,sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])",
                ])
                .args([path.to_str().unwrap(), sql])
                .status();
            assert!(sqlite.unwrap().success());
        };
        let lost = Arc::<AtomicU64>::default();
        let mut keeper = Keeper::new(store.clone(), None, lost, Arc::default());
        tamper("ALTER TABLE audit RENAME TO away");
        for _ in 0..HELD + 7 {
            keeper.take(noted(Action::ExecStart, Outcome::Granted));
        }
        keeper.keep().await;
        assert!(keeper.waiting.len() == HELD && keeper.due.is_some());
        tamper("ALTER TABLE away RENAME TO audit");
        keeper.keep().await;
        assert!(keeper.waiting.is_empty() && keeper.due.is_none());
        let last = Part { order: Order::NewestFirst, beyond: None, limit: 1 };
        let last = store.audit(last).await.unwrap().remove(0);
        assert_eq!((last.action.as_str(), last.count), ("audit.lost", Some(7)));
        assert_eq!(last.sequence, u64::try_from(HELD).unwrap() + 1);
    }
}
