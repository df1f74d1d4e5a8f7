//! The executions of one connection: which there are, and which there ever were.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    hash::{BuildHasher as _, RandomState},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use api::{errors::ErrorCode, fathom::Execute};
use engine::executions::Event;
use futures_util::Stream;
use model::execution::StopReason;
use tokio::sync::mpsc;

use super::telling::Telling;
use crate::auth::ExecutionPlace;

/// Ids that one connection may use up. After that it has to be opened anew.
const MAX_IDS: usize = 1_000_000;
/// Source, input and variables that may wait for their turn on one connection.
const MAX_WAITING_BYTES: usize = 64 << 20;

type Stop = Box<dyn Fn(StopReason) + Send + Sync>;

#[derive(Debug, Default)]
pub(super) struct Book {
    open: HashMap<Arc<str>, Entry>,
    /// Keyed hashes of all ids ever used: eight bytes each, and nobody can aim at a collision.
    used: HashSet<u64>,
    hasher: RandomState,
    waiting_bytes: usize,
}

struct Entry {
    stop: Stop,
    cancelled: bool,
    telling: Telling,
    /// What it counts for while it waits.
    bytes: usize,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("cancelled", &self.cancelled).finish_non_exhaustive()
    }
}

/// Why an execution is not taken.
pub(super) type Refusal = (ErrorCode, &'static str);

impl Book {
    /// Decides whether this connection may have one more execution, of this id and size.
    pub(super) fn check(&self, id: &str, bytes: usize) -> Result<(), Refusal> {
        if self.used.contains(&self.hasher.hash_one(id)) {
            return Err((
                ErrorCode::InvalidRequest,
                "duplicate id: it is in use, or was used before on this connection",
            ));
        }
        if self.used.len() >= MAX_IDS {
            return Err((
                ErrorCode::SandboxOverloaded,
                "this connection has used up its ids; open a new one",
            ));
        }
        if self.waiting_bytes + bytes > MAX_WAITING_BYTES {
            return Err((
                ErrorCode::SandboxOverloaded,
                "too much code and input is waiting on this connection; wait for some to start",
            ));
        }
        Ok(())
    }

    /// Enters an accepted execution.
    pub(super) fn open(&mut self, id: Arc<str>, bytes: usize, stop: Stop, telling: Telling) {
        self.used.insert(self.hasher.hash_one(&*id));
        self.waiting_bytes += bytes;
        self.open.insert(id, Entry { stop, cancelled: false, telling, bytes });
    }

    /// Asks for an end. Tells whether there was such an execution that nobody had cancelled yet.
    pub(super) fn cancel(&mut self, id: &str) -> bool {
        match self.open.get_mut(id) {
            Some(entry) if !entry.cancelled => {
                entry.cancelled = true;
                (entry.stop)(StopReason::Cancelled);
                true
            }
            Some(_) | None => false,
        }
    }

    pub(super) fn stop_all(&self, reason: StopReason) {
        for entry in self.open.values() {
            (entry.stop)(reason);
        }
    }

    /// Notes an event, and puts it into frames.
    pub(super) fn tell(
        &mut self,
        id: &str,
        ts: &str,
        event: &Event,
        send: &mut impl FnMut(String),
    ) {
        let Some(entry) = self.open.get_mut(id) else { return };
        entry.telling.tell(id, ts, event, send);
        // Whatever it is, the execution waits no more.
        self.waiting_bytes -= std::mem::take(&mut entry.bytes);
        match event {
            Event::Ended(_) | Event::Broken { .. } => {
                self.open.remove(id);
            }
            Event::Started | Event::Output { .. } => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}

/// Returns what an execution weighs while it waits.
pub(super) fn weight(execute: &Execute) -> usize {
    let env: usize = execute.env.iter().map(|(key, value)| key.len() + value.len()).sum();
    execute.code.len() + execute.stdin.as_ref().map_or(0, String::len) + env
}

/// The events of one execution under its id. Ends after the last one; an execution that is lost
/// without a last event is told as broken, so that no client waits for ever.
#[derive(Debug)]
pub(super) struct Events {
    id: Arc<str>,
    receiver: mpsc::Receiver<Event>,
    is_over: bool,
    /// Its place among the executions of its tenant.
    place: Option<ExecutionPlace>,
}

impl Events {
    pub(super) fn new(id: Arc<str>, receiver: mpsc::Receiver<Event>) -> Self {
        Self { id, receiver, is_over: false, place: None }
    }

    /// Holds a place until the execution is over.
    pub(super) fn with_place(self, place: ExecutionPlace) -> Self {
        Self { place: Some(place), ..self }
    }
}

impl Stream for Events {
    type Item = (Arc<str>, Event);

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        self.receiver.poll_recv(context).map(|event| {
            let event = event.unwrap_or_else(|| Event::Broken { message: "lost".into() });
            self.is_over = matches!(event, Event::Ended(_) | Event::Broken { .. });
            if self.is_over {
                self.place = None;
            }
            Some((Arc::clone(&self.id), event))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::StreamExt as _;

    use super::*;

    /// Opens an execution whose stop reasons are noted.
    fn open(book: &mut Book, id: &str, bytes: usize) -> Arc<Mutex<Vec<StopReason>>> {
        let stops = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&stops);
        let stop = Box::new(move |reason| noted.lock().unwrap().push(reason));
        book.open(id.into(), bytes, stop, Telling::default());
        stops
    }

    fn end(book: &mut Book, id: &str) {
        let broken = Event::Broken { message: String::new() };
        book.tell(id, "t", &broken, &mut |_| {});
    }

    #[test]
    fn w06_an_id_is_used_once_while_running_and_after() {
        let mut book = Book::default();
        assert_eq!(book.check("a", 1), Ok(()));
        open(&mut book, "a", 1);
        assert_eq!(book.check("a", 1).unwrap_err().0, ErrorCode::InvalidRequest);
        end(&mut book, "a");
        assert!(book.is_empty());
        assert_eq!(book.check("a", 1).unwrap_err().0, ErrorCode::InvalidRequest);
        assert_eq!(book.check("b", 1), Ok(()));
    }

    #[test]
    fn w16_an_execution_is_cancelled_once_while_it_runs() {
        let mut book = Book::default();
        let stops = open(&mut book, "a", 1);
        let cancelled = ["b", "a", "a"].map(|id| book.cancel(id));
        assert_eq!(cancelled, [false, true, false]);
        end(&mut book, "a");
        assert!(!book.cancel("a"));
        assert_eq!(*stops.lock().unwrap(), [StopReason::Cancelled]);
    }

    #[test]
    fn what_waits_is_bounded_and_what_runs_does_not_count() {
        let mut book = Book::default();
        open(&mut book, "a", MAX_WAITING_BYTES);
        assert_eq!(book.check("b", 1).unwrap_err().0, ErrorCode::SandboxOverloaded);
        book.tell("a", "t", &Event::Started, &mut |_| {});
        assert_eq!(book.check("b", MAX_WAITING_BYTES), Ok(()));
        assert_eq!(
            book.check("b", MAX_WAITING_BYTES + 1).unwrap_err().0,
            ErrorCode::SandboxOverloaded
        );
    }

    #[tokio::test]
    async fn an_execution_that_is_lost_is_told_as_broken_once() {
        let (sender, receiver) = mpsc::channel(1);
        sender.send(Event::Started).await.unwrap();
        drop(sender);
        let events: Vec<_> =
            Events::new("a".into(), receiver).map(|(_, event)| event).collect().await;
        assert_eq!(events, [Event::Started, Event::Broken { message: "lost".into() }]);
    }
}
