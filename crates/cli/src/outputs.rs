//! What a command writes, read from the files that its sandbox keeps on this machine.
//!
//! A file is as long as its stream. When more was written than is kept, the oldest part is a hole.

use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        SeekFrom,
        inotify::{self, CreateFlags, WatchFlags},
        seek,
    },
    io::Errno,
};
use tokio::io::{Interest, unix::AsyncFd};

/// Read at once, so that nobody else waits for long.
const CHUNK: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The next part of a stream: what was too much to be kept, then bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) stream: Stream,
    pub(crate) lost: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Tells of changes in folders.
#[derive(Debug)]
pub(crate) struct Watch {
    changes: AsyncFd<OwnedFd>,
}

impl Watch {
    pub(crate) fn new(folders: &[impl AsRef<Path>]) -> io::Result<Self> {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        for folder in folders {
            inotify::add_watch(&watch, folder.as_ref(), WatchFlags::CREATE | WatchFlags::MODIFY)?;
        }
        #[expect(
            deprecated,
            reason = "an OwnedFd always returns the same descriptor, which is what the unsafe \
                      successor of this function asks for"
        )]
        let changes = AsyncFd::with_interest(watch, Interest::READABLE)?;
        Ok(Self { changes })
    }

    /// Waits until a file was made or written to since the last time. Which it was is not told.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        let mut ready = self.changes.readable().await?;
        let mut told = [0; 4096];
        loop {
            match rustix::io::read(self.changes.get_ref(), &mut told) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        ready.clear_ready();
        Ok(())
    }
}

/// The streams of one command.
#[derive(Debug)]
pub(crate) struct Outputs {
    watch: Watch,
    tails: Vec<Tail>,
}

impl Outputs {
    /// Begins to follow these files, which need not be there yet. Their folders must be.
    pub(crate) fn follow(files: &[(Stream, &Path)]) -> io::Result<Self> {
        let folders: Vec<&Path> = files.iter().filter_map(|(_, path)| path.parent()).collect();
        let watch = Watch::new(&folders)?;
        let tails = files.iter().map(|(stream, path)| Tail::new(*stream, path)).collect();
        Ok(Self { watch, tails })
    }

    /// Waits for something new. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> io::Result<Piece> {
        loop {
            // A command that writes without end does not keep others from their turn.
            tokio::task::yield_now().await;
            if let Some(piece) = self.read()? {
                return Ok(piece);
            }
            self.watch.changed().await?;
        }
    }

    /// Returns what is new by now, if anything is.
    fn read(&mut self) -> io::Result<Option<Piece>> {
        for tail in &mut self.tails {
            if let Some(piece) = tail.read(u64::MAX)? {
                // The others come first the next time.
                self.tails.rotate_left(1);
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// Hands out all that is there now. Nothing is waited for.
    pub(crate) fn rest(mut self, mut show: impl FnMut(Piece) -> io::Result<()>) -> io::Result<()> {
        for tail in &mut self.tails {
            let end = tail.length()?;
            while let Some(piece) = tail.read(end)? {
                show(piece)?;
            }
        }
        Ok(())
    }
}

/// One file, and how far it was read.
#[derive(Debug)]
struct Tail {
    stream: Stream,
    path: PathBuf,
    file: Option<File>,
    place: u64,
}

impl Tail {
    fn new(stream: Stream, path: &Path) -> Self {
        Self { stream, path: path.to_owned(), file: None, place: 0 }
    }

    fn open(&mut self) -> io::Result<Option<&File>> {
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.file = Some(file),
                // The command is on its way.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.file.as_ref())
    }

    fn length(&mut self) -> io::Result<u64> {
        self.open()?.map_or(Ok(0), |file| Ok(file.metadata()?.len()))
    }

    fn read(&mut self, end: u64) -> io::Result<Option<Piece>> {
        let (stream, place) = (self.stream, self.place);
        let Some(file) = self.open()? else { return Ok(None) };
        let room = usize::try_from(end.saturating_sub(place)).unwrap_or(CHUNK).min(CHUNK);
        let mut bytes = vec![0; room];
        let length = file.read_at(&mut bytes, place)?;
        if length == 0 {
            return Ok(None);
        }
        bytes.truncate(length);
        // Asked after the reading: what is no hole now was none then.
        let kept = kept_from(file, place)?;
        if kept > place {
            self.place = kept;
            return Ok(Some(Piece { stream, lost: kept - place, bytes: Vec::new() }));
        }
        self.place += u64::try_from(length).unwrap_or_default();
        Ok(Some(Piece { stream, lost: 0, bytes }))
    }
}

/// Returns the first place at or after this one that is not in a hole.
fn kept_from(file: &File, place: u64) -> io::Result<u64> {
    match seek(file, SeekFrom::Data(place)) {
        Ok(kept) => Ok(kept),
        Err(Errno::NXIO) => Ok(file.metadata()?.len()),
        // This file system has no holes to tell of.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(place),
        Err(error) => Err(error.into()),
    }
}

/// Makes text of bytes that come in pieces, which may be cut inside a character.
#[derive(Debug, Default)]
pub(crate) struct Text {
    held: Vec<u8>,
}

impl Text {
    /// Returns the whole characters so far. What is none is replaced.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let (mut text, mut done) = (String::new(), 0);
        for chunk in self.held.utf8_chunks() {
            text += chunk.valid();
            done += chunk.valid().len();
            let invalid = chunk.invalid();
            let is_last = done + invalid.len() == self.held.len();
            let is_begun = str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if invalid.is_empty() || (is_last && is_begun) {
                continue;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            done += invalid.len();
        }
        self.held.drain(..done);
        text
    }

    /// Returns what stands for a character that was begun and not ended.
    pub(crate) fn finish(&mut self) -> String {
        let is_whole = std::mem::take(&mut self.held).is_empty();
        if is_whole { String::new() } else { char::REPLACEMENT_CHARACTER.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, io::Write as _};

    use rustix::fs::{FallocateFlags, fallocate};

    use super::*;

    #[test]
    fn text_is_the_same_however_its_bytes_are_cut() {
        let bytes = "aß€😀\u{0}z".as_bytes();
        for cut in 0..=bytes.len() {
            let (first, second) = bytes.split_at(cut);
            let mut text = Text::default();
            let joined = text.push(first) + &text.push(second);
            assert_eq!(joined.as_bytes(), bytes, "cut at {cut}");
        }
        assert_eq!(Text::default().push(b"a\xffb\xc3("), "a\u{fffd}b\u{fffd}(");
        let mut begun = Text::default();
        assert_eq!((begun.push(b"a\xe2\x82"), begun.finish()), ("a".into(), "\u{fffd}".into()));
    }

    #[tokio::test]
    async fn files_are_followed_from_before_they_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.stdout.log");
        let mut outputs = Outputs::follow(&[(Stream::Stdout, &path)]).unwrap();
        assert_eq!(outputs.read().unwrap(), None);
        let mut file = File::create(&path).unwrap();
        for text in ["one", "two"] {
            file.write_all(text.as_bytes()).unwrap();
            let expected = Piece { stream: Stream::Stdout, lost: 0, bytes: text.into() };
            assert_eq!(outputs.next().await.unwrap(), expected);
        }
        file.write_all(b"rest").unwrap();
        let mut rest = Vec::new();
        outputs
            .rest(|piece| {
                rest.extend(piece.bytes);
                Ok(())
            })
            .unwrap();
        assert_eq!(rest, b"rest");
    }

    #[test]
    fn what_was_cut_out_is_told_in_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.stdout.log");
        let mut options = OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).open(&path).unwrap();
        file.write_all(&vec![b'x'; 3 << 20]).unwrap();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, flags, 0, 2 << 20).unwrap();
        let mut tail = Tail::new(Stream::Stdout, &path);
        let gap = Piece { stream: Stream::Stdout, lost: 2 << 20, bytes: Vec::new() };
        assert_eq!(tail.read(u64::MAX).unwrap(), Some(gap));
        let mut kept = 0;
        while let Some(piece) = tail.read(u64::MAX).unwrap() {
            assert!(piece.lost == 0 && piece.bytes.iter().all(|byte| *byte == b'x'));
            kept += piece.bytes.len();
        }
        assert_eq!(kept, 1 << 20);
    }
}
