//! Histories on disk: one JSON object a line, written as it happens.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    path::Path,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use crate::entry::{Entry, Time, What};

/// Writes a history. Shared by all clients of a run.
#[derive(Debug)]
pub struct Recorder {
    origin: Instant,
    file: Mutex<File>,
}

impl Recorder {
    /// Begins a history in a new file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).open(path)?;
        Ok(Self { origin: Instant::now(), file: Mutex::new(file) })
    }

    /// Returns the time at which a call starts.
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// Writes down what ended just now. The end is taken and the line written under one lock, so
    /// that lines stand in the order of their ends; and the line is with the kernel before this
    /// returns, so that a recorder that is killed has lost nothing.
    pub fn record(
        &self,
        client: u32,
        life: Option<u32>,
        start: Time,
        what: What,
    ) -> io::Result<Time> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.now();
        let entry = Entry { client, life, start, end, what };
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        file.write_all(&line)?;
        Ok(end)
    }
}

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read the history")]
    File(#[from] io::Error),
    #[error("line {line} is no entry of a history")]
    Line {
        line: usize,
        #[source]
        cause: serde_json::Error,
    },
    #[error("line {line} is longer than {LONGEST} bytes")]
    TooLong { line: usize },
}

/// The longest line that is read: a replay of some hundred thousand events.
const LONGEST: u64 = 256 << 20;

/// Gives every entry of a file to a function, with the number of its line. A last line without its
/// end is what a killed recorder leaves, and is passed over.
pub fn read(path: &Path, mut each: impl FnMut(usize, &Entry)) -> Result<(), ReadError> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let length = io::Read::take(&mut file, LONGEST).read_until(b'\n', &mut text)?;
        if text.last() != Some(&b'\n') {
            if u64::try_from(length).is_ok_and(|length| length == LONGEST) {
                return Err(ReadError::TooLong { line });
            }
            break;
        }
        let entry =
            serde_json::from_slice(&text).map_err(|cause| ReadError::Line { line, cause })?;
        each(line, &entry);
    }
    Ok(())
}
