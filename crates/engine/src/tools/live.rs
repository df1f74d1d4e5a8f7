//! The progress of a run, followed by any number of clients from any point.
//!
//! ```text
//! sequence 1: queued   2: running   3 … n: output   n + 1: finished
//! ```
//!
//! Output is numbered by the bytes of its text, stdout and stderr together, so a client that has seen a sequence can
//! go on after it. Followers read from one log and hold nothing up.

use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{
    execution::{StopReason, Stream},
    tool::run::{MAX_STREAM_BYTES, RunStatus, ToolRun},
    units::Timestamp,
};
use tokio::sync::{mpsc, watch};

use super::utf8::Decoder;

/// The sequence of `running`. Output follows it.
const RUNNING: u64 = 2;
/// The most bytes of one event.
const MAX_EVENT: usize = 16 * 1024;

/// A run that this server carries out.
#[derive(Debug)]
pub struct LiveRun {
    log: Mutex<Log>,
    changed: watch::Sender<u64>,
    cancel: mpsc::Sender<StopReason>,
}

#[derive(Debug)]
struct Log {
    run: ToolRun,
    phase: Phase,
    text: String,
    /// Where in the text the pieces of each stream end.
    pieces: Vec<(Stream, usize)>,
    stdout: Kept,
    stderr: Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Queued,
    Running,
    Finished,
}

/// How much of a stream is kept.
#[derive(Debug, Default)]
struct Kept {
    decoder: Decoder,
    bytes: usize,
    truncated: bool,
}

/// One step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressEvent {
    pub sequence: u64,
    pub progress: Progress,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    Queued,
    Running,
    Output {
        stream: Stream,
        text: String,
    },
    /// The run has ended, and the store has all of it.
    Finished,
}

/// What a run wrote.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Streams {
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) stdout_truncated: bool,
    pub(super) stderr_truncated: bool,
}

impl LiveRun {
    pub(super) fn new(run: ToolRun) -> (Self, mpsc::Receiver<StopReason>) {
        let (cancel, cancelled) = mpsc::channel(1);
        let log = Log {
            run,
            phase: Phase::Queued,
            text: String::new(),
            pieces: Vec::new(),
            stdout: Kept::default(),
            stderr: Kept::default(),
        };
        let (changed, _) = watch::channel(log.latest());
        (Self { log: Mutex::new(log), changed, cancel }, cancelled)
    }

    /// Returns the run as it is now.
    pub fn run(&self) -> ToolRun {
        self.log().run.clone()
    }

    /// Returns the event after this sequence, as soon as there is one. `None` after the last.
    pub async fn next(&self, after: u64) -> Option<ProgressEvent> {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            {
                let log = self.log();
                if let Some(event) = log.after(after) {
                    return Some(event);
                }
                if log.phase == Phase::Finished {
                    return None;
                }
            }
            changed.changed().await.ok()?;
        }
    }

    /// Returns the run once it has ended.
    pub async fn finished(&self) -> ToolRun {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            {
                let log = self.log();
                if log.phase == Phase::Finished {
                    return log.run.clone();
                }
            }
            if changed.changed().await.is_err() {
                return self.run();
            }
        }
    }

    pub(super) fn cancel(&self) {
        // A full channel holds an earlier request to cancel.
        let _ = self.cancel.try_send(StopReason::Cancelled);
    }

    pub(super) fn started(&self, at: Timestamp) {
        self.change(|log| {
            log.run.status = RunStatus::Running;
            log.run.started_at = Some(at);
            log.phase = Phase::Running;
        });
    }

    pub(super) fn write(&self, stream: Stream, bytes: &[u8]) {
        self.change(|log| log.write(stream, bytes));
    }

    pub(super) fn finish(&self, run: ToolRun) {
        self.change(|log| {
            log.run = run;
            log.phase = Phase::Finished;
        });
    }

    /// Returns what stdout and stderr have so far.
    pub fn written(&self) -> (String, String) {
        let Streams { stdout, stderr, .. } = self.log().streams();
        (stdout, stderr)
    }

    /// Returns what was written, once everything was.
    pub(super) fn streams(&self) -> Streams {
        let mut log = self.log();
        log.write_rest();
        log.streams()
    }

    fn change(&self, change: impl FnOnce(&mut Log)) {
        let latest = {
            let mut log = self.log();
            change(&mut log);
            log.latest()
        };
        self.changed.send_replace(latest);
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        // No code panics while it holds the lock, so a poisoned one is as good as any.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn streams(&self) -> Streams {
        let mut streams = Streams {
            stdout_truncated: self.stdout.truncated,
            stderr_truncated: self.stderr.truncated,
            ..Streams::default()
        };
        let mut from = 0;
        for (stream, to) in &self.pieces {
            let piece = self.text.get(from..*to).unwrap_or_default();
            match stream {
                Stream::Stdout => streams.stdout.push_str(piece),
                Stream::Stderr => streams.stderr.push_str(piece),
            }
            from = *to;
        }
        streams
    }

    fn latest(&self) -> u64 {
        let written = u64::try_from(self.text.len()).unwrap_or(u64::MAX);
        match self.phase {
            Phase::Queued => 1,
            Phase::Running => RUNNING + written,
            Phase::Finished => RUNNING + written + 1,
        }
    }

    fn after(&self, sequence: u64) -> Option<ProgressEvent> {
        if sequence >= self.latest() {
            return None;
        }
        let Some(seen) = sequence.checked_sub(RUNNING) else {
            return Some(self.before_output(sequence));
        };
        let from = usize::try_from(seen).unwrap_or(usize::MAX);
        if from >= self.text.len() {
            return Some(ProgressEvent { sequence: self.latest(), progress: Progress::Finished });
        }
        Some(self.output(from))
    }

    /// A run that is cancelled while it is queued has no step `running`; its numbers stay.
    fn before_output(&self, sequence: u64) -> ProgressEvent {
        match (sequence, self.phase) {
            (0, _) => ProgressEvent { sequence: 1, progress: Progress::Queued },
            (_, Phase::Finished) if self.run.started_at.is_none() => {
                ProgressEvent { sequence: self.latest(), progress: Progress::Finished }
            }
            _ => ProgressEvent { sequence: RUNNING, progress: Progress::Running },
        }
    }

    /// Returns output from this place on: of one stream, and no more than an event holds. A place inside a
    /// character, which no event names, begins with the next one.
    fn output(&self, from: usize) -> ProgressEvent {
        let index = self.pieces.partition_point(|(_, end)| *end <= from);
        let (stream, end) =
            self.pieces.get(index).copied().unwrap_or((Stream::Stdout, self.text.len()));
        let from = self.text.ceil_char_boundary(from);
        let to = self.text.floor_char_boundary(end.min(from + MAX_EVENT));
        let text = self.text.get(from..to).unwrap_or_default().to_owned();
        let sequence = RUNNING + u64::try_from(to).unwrap_or(u64::MAX);
        ProgressEvent { sequence, progress: Progress::Output { stream, text } }
    }

    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let text = self.kept(stream).decoder.push(bytes);
        self.append(stream, &text);
    }

    fn write_rest(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let text = self.kept(stream).decoder.finish();
            self.append(stream, &text);
        }
    }

    fn append(&mut self, stream: Stream, text: &str) {
        let kept = self.kept(stream);
        let room = text.floor_char_boundary(MAX_STREAM_BYTES - kept.bytes);
        kept.truncated |= room < text.len();
        kept.bytes += room;
        if room == 0 {
            return;
        }
        self.text.push_str(text.get(..room).unwrap_or_default());
        let end = self.text.len();
        match self.pieces.last_mut() {
            Some((last, last_end)) if *last == stream => *last_end = end,
            Some(_) | None => self.pieces.push((stream, end)),
        }
    }

    fn kept(&mut self, stream: Stream) -> &mut Kept {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

#[cfg(test)]
mod tests;
