//! One stream of an exec, kept in a file.
//!
//! A byte is in the file at its place in the stream. When more was written than is to be kept, the
//! oldest part is cut out of the file, which stays as long as the stream: places never change, and
//! a reader is told from where on there is something. What somebody wants to read is not cut out:
//! while it takes all the room, nothing more is taken from whoever writes.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};

use super::wire::Stored;

/// Cut out at once, and so kept beyond what is asked for: a cut costs as much as writing.
const STEP: u64 = 1 << 20;

/// As much as a pipe holds.
pub(super) const CHUNK: usize = 64 << 10;

/// The largest pipe there can be, in chunks.
const MOST_CHUNKS: usize = (1 << 20) / CHUNK;

/// A stream and its file.
#[derive(Debug)]
pub(super) struct Output {
    /// Where it comes from, until it is at its end.
    source: Option<OwnedFd>,
    file: OwnedFd,
    keep: u64,
    /// What somebody wants to read, from there on.
    wanted: Option<u64>,
    stored: Stored,
    is_lost: bool,
}

/// What became of a look at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pumped {
    Some,
    Nothing,
    End,
}

impl Output {
    pub(super) fn new(source: Option<OwnedFd>, file: OwnedFd, keep: u64) -> Self {
        Self { source, file, keep, wanted: None, stored: Stored::default(), is_lost: false }
    }

    /// Returns where more comes from, unless there is no room for it.
    pub(super) fn source(&self) -> Option<&OwnedFd> {
        self.source.as_ref().filter(|_| !self.is_full())
    }

    /// Says from where on it is wanted, if it is.
    pub(super) fn want(&mut self, from: Option<u64>) {
        self.wanted = from;
        self.cut();
    }

    fn is_full(&self) -> bool {
        let wanted = self.wanted.map(|from| from.max(self.stored.start));
        wanted.is_some_and(|from| self.stored.end.saturating_sub(from) >= self.keep)
    }

    pub(super) fn stored(&self) -> Stored {
        self.stored
    }

    /// Takes one chunk of what is there.
    pub(super) fn pump(&mut self, buffer: &mut [u8]) -> Pumped {
        let Some(source) = &self.source else { return Pumped::End };
        match rustix::io::read(source, &mut *buffer) {
            Ok(0) => self.end(),
            Ok(length) => {
                self.store(buffer.get(..length).unwrap_or_default());
                Pumped::Some
            }
            Err(Errno::AGAIN | Errno::INTR) => Pumped::Nothing,
            Err(_) => self.end(),
        }
    }

    /// Takes what is in the pipe by now. Who goes on writing adds nothing: it is a pipe's worth.
    pub(super) fn take_rest(&mut self, buffer: &mut [u8]) {
        for _ in 0..MOST_CHUNKS {
            if self.pump(buffer) != Pumped::Some {
                break;
            }
        }
    }

    /// Gives the source away, if somebody may still write to it.
    pub(super) fn take_source(&mut self) -> Option<OwnedFd> {
        self.source.take()
    }

    fn end(&mut self) -> Pumped {
        self.source = None;
        Pumped::End
    }

    /// Keeps nothing of what is still to come.
    pub(super) fn lose(&mut self) {
        self.is_lost = true;
    }

    /// After a byte that could not be kept none is: a file has no gap but at its beginning.
    fn store(&mut self, mut bytes: &[u8]) {
        while self.stored.lost == 0 && !self.is_lost && !bytes.is_empty() {
            match rustix::io::pwrite(&self.file, bytes, self.stored.end) {
                Ok(0) => break,
                Ok(written) => {
                    self.stored.end += u64::try_from(written).unwrap_or_default();
                    bytes = bytes.get(written..).unwrap_or_default();
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.stored.lost += u64::try_from(bytes.len()).unwrap_or_default();
        self.cut();
    }

    fn cut(&mut self) {
        let Stored { start, end, .. } = self.stored;
        if end - start < self.keep.saturating_add(STEP) {
            return;
        }
        let until = self.wanted.map_or(end - self.keep, |from| from.min(end - self.keep));
        let length = until.saturating_sub(start) / STEP * STEP;
        if length == 0 {
            return;
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A file system that cannot cut keeps what there is.
        if fallocate(&self.file, flags, start, length).is_ok() {
            self.stored.start += length;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Read as _, Write as _},
        os::unix::fs::{FileExt as _, MetadataExt as _},
    };

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    fn output(keep: u64, file: File) -> (Output, File) {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        (Output::new(Some(read), file.into(), keep), File::from(write))
    }

    #[test]
    fn bytes_are_in_the_file_at_their_place_in_the_stream() {
        let file = tempfile::tempfile().unwrap();
        let mut kept = file.try_clone().unwrap();
        let (mut output, mut source) = output(1 << 30, file);
        let mut buffer = vec![0; CHUNK];
        assert_eq!(output.pump(&mut buffer), Pumped::Nothing);
        source.write_all(b"one").unwrap();
        assert_eq!(output.pump(&mut buffer), Pumped::Some);
        source.write_all(b"two").unwrap();
        drop(source);
        output.take_rest(&mut buffer);
        assert_eq!(output.stored(), Stored { start: 0, end: 6, lost: 0 });
        let mut text = String::new();
        kept.read_to_string(&mut text).unwrap();
        assert_eq!(text, "onetwo");
        assert!(output.source().is_none());
    }

    #[test]
    fn what_is_too_much_goes_from_the_beginning_and_the_rest_stays_where_it_is() {
        let file = tempfile::tempfile().unwrap();
        let kept = file.try_clone().unwrap();
        let (mut output, _source) = output(2 << 20, file);
        for number in 0..160_u8 {
            output.store(&vec![number; CHUNK]);
        }
        let stored = output.stored();
        assert_eq!((stored.end, stored.lost), (10 << 20, 0));
        assert!((2 << 20..=3 << 20).contains(&(stored.end - stored.start)), "{stored:?}");
        assert!(kept.metadata().unwrap().blocks() * 512 <= 4 << 20);
        for place in [stored.start, stored.end - 1] {
            let mut byte = [0];
            kept.read_exact_at(&mut byte, place).unwrap();
            assert_eq!(u64::from(byte[0]), place >> 16);
        }
    }

    #[test]
    fn what_somebody_wants_stays_and_whoever_writes_waits_meanwhile() {
        let (mut output, _source) = output(2 << 20, tempfile::tempfile().unwrap());
        output.want(Some(0));
        for number in 0..32_u8 {
            assert!(output.source().is_some(), "{number}");
            output.store(&vec![number; CHUNK]);
        }
        assert!(output.source().is_none());
        // A pipe's worth that was in it when its writer ended is kept in any case.
        output.store(&vec![0; 1 << 20]);
        assert_eq!(output.stored(), Stored { start: 0, end: 3 << 20, lost: 0 });
        output.want(Some((1 << 20) + 1));
        assert_eq!(output.stored().start, 1 << 20);
        assert!(output.source().is_some());
        output.want(None);
        for number in 0..32_u8 {
            output.store(&vec![number; CHUNK]);
        }
        assert!(output.source().is_some());
        assert!(output.stored().start > 1 << 20);
    }

    #[test]
    fn what_the_disk_does_not_take_is_counted() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (mut output, _source) = output(1 << 30, full);
        output.store(b"abc");
        output.store(b"de");
        assert_eq!(output.stored(), Stored { start: 0, end: 0, lost: 5 });
    }
}
