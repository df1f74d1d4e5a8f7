//! Files in one piece, for those who read and write text rather than streams.

use api::{errors::ErrorCode, files::FileShown};
use engine::sandboxes::files::{Files, OpenFile, Parents, Place};
use model::file::Condition;

use super::{
    Operation,
    errors::{reading, writing},
    operate, place, shown,
};
use crate::{dataplane::access::Access, http::problem::ApiError};

/// How much is read at once.
const PIECE: usize = 256 << 10;

/// How far into a file lines are counted. Whoever wants more of it has commands for that.
const FARTHEST: u64 = 64 << 20;

/// Which lines of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// From 1.
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// How many bytes at most.
    pub(crate) most: usize,
}

/// Lines of a file.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) file: FileShown,
    pub(crate) bytes: Vec<u8>,
    /// How many lines were read, the last of which may be cut.
    pub(crate) count: u64,
    /// Whether the file goes on after them.
    pub(crate) is_cut: bool,
}

/// Reads lines of a file as they are, with their ends.
pub(crate) async fn read(access: &Access, path: &str, range: Range) -> Result<Lines, ApiError> {
    let place = place::of_text(access, path.as_bytes())?;
    operate(access, Operation::read("read", &place), |files| lines(files, &place, range)).await
}

async fn lines(files: Files, place: &Place, range: Range) -> Result<Lines, ApiError> {
    let file = files.open(place).await.map_err(reading)?;
    let shown = shown::file(place.path().as_bytes(), file.stat().kind, Some(file.stat()));
    let mut taken = Taken::new(range);
    let mut at = 0;
    while !taken.is_full() {
        let piece = next(&file, at).await?;
        if piece.is_empty() {
            break;
        }
        at += u64::try_from(piece.len()).unwrap_or(u64::MAX);
        taken.take(&piece);
    }
    let is_cut = taken.is_full() && (taken.is_over || at < file.stat().size);
    let count = taken.count();
    Ok(Lines { file: shown, bytes: taken.bytes, count, is_cut })
}

async fn next(file: &OpenFile, at: u64) -> Result<Vec<u8>, ApiError> {
    if at >= FARTHEST {
        let text = "the lines are too far into the file; take them with exec, e.g. sed -n 10,20p";
        return Err(ApiError::new(ErrorCode::PayloadTooLarge, text));
    }
    file.read_at(at, PIECE, Vec::new()).await.map_err(reading)
}

/// What was taken of a file so far.
struct Taken {
    range: Range,
    /// The line that the next byte is of.
    line: u64,
    bytes: Vec<u8>,
    /// Whether there was more than was taken.
    is_over: bool,
}

impl Taken {
    fn new(range: Range) -> Self {
        Self { range, line: 1, bytes: Vec::new(), is_over: false }
    }

    fn end(&self) -> u64 {
        self.range.first.saturating_add(self.range.count)
    }

    fn is_full(&self) -> bool {
        self.is_over || self.line >= self.end() || self.bytes.len() >= self.range.most
    }

    fn take(&mut self, piece: &[u8]) {
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.is_full() {
                self.is_over = true;
                return;
            }
            if self.line >= self.range.first {
                let room = self.range.most.saturating_sub(self.bytes.len());
                self.bytes.extend(line.iter().take(room));
                self.is_over = line.len() > room;
            }
            self.line += u64::from(line.ends_with(b"\n") && !self.is_over);
        }
    }

    fn count(&self) -> u64 {
        let ends = memchr::memchr_iter(b'\n', &self.bytes).count();
        let has_part = self.bytes.last().is_some_and(|last| *last != b'\n');
        u64::try_from(ends).unwrap_or(u64::MAX).saturating_add(u64::from(has_part))
    }
}

/// Writes a file anew, with the directories on the way.
pub(crate) async fn write(
    access: &Access,
    path: &str,
    bytes: Vec<u8>,
    condition: &Condition,
) -> Result<FileShown, ApiError> {
    let place = place::of_text(access, path.as_bytes())?;
    let stat = operate(access, Operation::write("written", &place), |files| {
        let place = &place;
        async move {
            let mut file = files.write(place, condition, Parents::Make).await.map_err(writing)?;
            file.write(bytes).await.map_err(writing)?;
            file.commit(None).await.map_err(writing)
        }
    })
    .await?;
    Ok(shown::file(place.path().as_bytes(), stat.kind, Some(&stat)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pieces: &[&str], (first, count, most): (u64, u64, usize)) -> (String, u64, bool) {
        let mut taken = Taken::new(Range { first, count, most });
        for piece in pieces {
            taken.take(piece.as_bytes());
        }
        (String::from_utf8(taken.bytes.clone()).unwrap(), taken.count(), taken.is_over)
    }

    #[test]
    fn lines_are_those_that_were_asked_for_however_the_file_comes() {
        let rows: [(&[&str], _, _); 8] = [
            (&["a\nb\nc\n"], (1, 9, 99), ("a\nb\nc\n", 3, false)),
            (&["a\nb\nc"], (2, 9, 99), ("b\nc", 2, false)),
            (&["a\nb\nc\n"], (2, 1, 99), ("b\n", 1, true)),
            (&["a", "a\nb", "b\nc\n"], (2, 1, 99), ("bb\n", 1, true)),
            (&["a\n", "b\n"], (1, 1, 99), ("a\n", 1, true)),
            (&["a\nb\n"], (7, 1, 99), ("", 0, false)),
            (&["aaaa\n"], (1, 1, 2), ("aa", 1, true)),
            (&[], (1, 1, 2), ("", 0, false)),
        ];
        for (pieces, range, (text, count, is_over)) in rows {
            assert_eq!(taken(pieces, range), (text.to_owned(), count, is_over), "{pieces:?}");
        }
    }
}
