//! Fetches one blob into a file without a name, and checks it on the way.

use std::{fs::File, io::Write as _};

use bytes::Bytes;
use tokio::{sync::mpsc, task::JoinHandle};

use super::{
    Listener, PullError,
    layers::Stop,
    manifest::Descriptor,
    registry::{ATTEMPTS, Registry},
    tell,
};
use crate::{
    digest::{Digest, Hasher},
    store::Store,
};

/// Pieces that wait for the disk.
const QUEUE: usize = 16;

/// How often a connection may break while the blob still grows.
const MOST_PARTS: u32 = 50;

enum Step {
    Piece(Bytes),
    /// The registry began anew, and so must the file.
    Restart,
}

/// Takes what is fetched to the disk, on a thread that may wait for it.
struct Writer {
    steps: mpsc::Sender<Step>,
    done: JoinHandle<std::io::Result<(File, Digest)>>,
}

impl Writer {
    fn start(store: &Store) -> Self {
        let (steps, receiver) = mpsc::channel(QUEUE);
        let store = store.clone();
        let done = tokio::task::spawn_blocking(move || write(&store, receiver));
        Self { steps, done }
    }

    /// Tells whether the writer still takes steps. If not, its end says why.
    async fn send(&self, step: Step) -> bool {
        self.steps.send(step).await.is_ok()
    }

    async fn finish(self) -> Result<(File, Digest), PullError> {
        drop(self.steps);
        let done = self.done.await.map_err(|error| PullError::Stopped(error.to_string()))?;
        done.map_err(PullError::Scratch)
    }
}

fn write(store: &Store, mut steps: mpsc::Receiver<Step>) -> std::io::Result<(File, Digest)> {
    let mut file = store.scratch_file()?;
    let mut hasher = Hasher::default();
    while let Some(step) = steps.blocking_recv() {
        match step {
            Step::Piece(bytes) => {
                hasher.update(&bytes);
                file.write_all(&bytes)?;
            }
            Step::Restart => {
                file.set_len(0)?;
                std::io::Seek::rewind(&mut file)?;
                hasher = Hasher::default();
            }
        }
    }
    std::io::Seek::rewind(&mut file)?;
    Ok((file, hasher.finish()))
}

/// What ended a part of a blob.
enum Ended {
    Answer,
    Writer,
}

/// A blob on its way.
pub(super) struct Fetch<'pull> {
    pub(super) registry: &'pull Registry<'pull>,
    pub(super) blob: &'pull Descriptor,
    pub(super) layer: Digest,
    pub(super) listener: &'pull Listener,
    pub(super) stop: &'pull Stop,
}

impl Fetch<'_> {
    /// Returns the whole blob, with the digest that it must have.
    pub(super) async fn to_file(&self, store: &Store) -> Result<File, PullError> {
        let writer = Writer::start(store);
        self.fetch(&writer).await?;
        let (file, found) = writer.finish().await?;
        let expected = self.blob.digest;
        if found == expected { Ok(file) } else { Err(PullError::Digest { expected, found }) }
    }

    /// Goes on where a broken connection left off. A registry that gives nothing is asked a few
    /// times, one that gives something a good many.
    async fn fetch(&self, writer: &Writer) -> Result<(), PullError> {
        let (mut received, mut fruitless, mut parts) = (0, 0, 0);
        loop {
            let before = received;
            let broken = match self.part(writer, &mut received).await {
                // Why the writer takes no more is told when it is finished.
                Ok(Ended::Writer) => return Ok(()),
                Ok(Ended::Answer) if received == self.blob.size => return Ok(()),
                Ok(Ended::Answer) => self.wrong_size(received),
                Err(error) if error.is_passing() => error,
                Err(error) => return Err(error),
            };
            parts += 1;
            fruitless = if received > before { 0 } else { fruitless + 1 };
            if fruitless >= ATTEMPTS || parts >= MOST_PARTS {
                return Err(broken);
            }
        }
    }

    /// Fetches from where we are until the answer ends.
    async fn part(&self, writer: &Writer, received: &mut u64) -> Result<Ended, PullError> {
        let what = format!("blobs/{}", self.blob.digest);
        let mut answer = self.registry.get(&what, *received).await?;
        let continues = format!("bytes {received}-");
        let is_rest = answer.status() == 206
            && answer.header("content-range").is_some_and(|it| it.starts_with(&continues));
        if *received > 0 && !is_rest {
            *received = 0;
            if !writer.send(Step::Restart).await {
                return Ok(Ended::Writer);
            }
        }
        while let Some(piece) = answer.next().await? {
            self.stop.check().map_err(PullError::Scratch)?;
            *received += piece.len() as u64;
            if *received > self.blob.size {
                return Err(self.wrong_size(*received));
            }
            if !writer.send(Step::Piece(piece)).await {
                return Ok(Ended::Writer);
            }
            self.tell(*received);
        }
        Ok(Ended::Answer)
    }

    fn tell(&self, done: u64) {
        tell(self.listener, self.layer, done, self.blob.size);
    }

    fn wrong_size(&self, found: u64) -> PullError {
        let what = format!("the blob {}", self.blob.digest);
        PullError::Size { what, expected: self.blob.size, found }
    }
}
