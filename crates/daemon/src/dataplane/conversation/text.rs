//! From the bytes of a stream to pieces that never split a character.

/// One stream, piece by piece.
#[derive(Debug, Default)]
pub(in crate::dataplane) struct Text {
    /// The start of a character whose end has not come yet: at most three bytes.
    tail: Vec<u8>,
}

/// A part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text {
        at: u64,
        text: String,
    },
    /// Not all of it is UTF-8.
    Bytes {
        at: u64,
        bytes: Vec<u8>,
    },
}

impl Text {
    /// Takes the bytes at this place of the stream, the next ones. Nothing comes out while they are
    /// the start of a character.
    pub(super) fn push(&mut self, at: u64, bytes: Vec<u8>) -> Option<Piece> {
        let at = at - u64::try_from(self.tail.len()).unwrap_or_default();
        let mut joined = if self.tail.is_empty() {
            bytes
        } else {
            let mut joined = std::mem::take(&mut self.tail);
            joined.extend(bytes);
            joined
        };
        self.tail = joined.split_off(joined.len() - unfinished(&joined));
        piece(at, joined)
    }

    /// Says that nothing comes after this place that belongs to what came before.
    pub(super) fn finish(&mut self, at: u64) -> Option<Piece> {
        let tail = std::mem::take(&mut self.tail);
        piece(at - u64::try_from(tail.len()).unwrap_or_default(), tail)
    }
}

fn piece(at: u64, bytes: Vec<u8>) -> Option<Piece> {
    if bytes.is_empty() {
        return None;
    }
    Some(match String::from_utf8(bytes) {
        Ok(text) => Piece::Text { at, text },
        Err(error) => Piece::Bytes { at, bytes: error.into_bytes() },
    })
}

/// Returns how many bytes at the end may be the start of a character.
fn unfinished(bytes: &[u8]) -> usize {
    for length in 1..=bytes.len().min(3) {
        let Some(last) = bytes.get(bytes.len() - length..) else { return 0 };
        match last.first() {
            // It begins further to the front.
            Some(0x80..=0xbf) => {}
            Some(0xc2..=0xf4) => {
                let is_start = std::str::from_utf8(last)
                    .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none());
                return if is_start { length } else { 0 };
            }
            _ => return 0,
        }
    }
    0
}

/// Returns bytes as a text of as many bytes: each that belongs to no character is a question mark.
pub(super) fn same_length(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '?'));
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Puts pieces together again, and checks that each is where it says.
    fn join(pieces: impl IntoIterator<Item = Piece>) -> Vec<u8> {
        let mut all = Vec::new();
        for piece in pieces {
            let (at, bytes) = match piece {
                Piece::Text { at, text } => (at, text.into_bytes()),
                Piece::Bytes { at, bytes } => (at, bytes),
            };
            assert_eq!(at, u64::try_from(all.len()).unwrap());
            all.extend(bytes);
        }
        all
    }

    fn cut(bytes: &[u8], lengths: &[usize]) -> Vec<Piece> {
        let (mut text, mut at, mut pieces) = (Text::default(), 0, Vec::new());
        let mut lengths = lengths.iter().copied().cycle();
        while at < bytes.len() {
            let end = bytes.len().min(at + lengths.next().unwrap_or(1).max(1));
            pieces.extend(text.push(u64::try_from(at).unwrap(), bytes[at..end].to_vec()));
            at = end;
        }
        pieces.extend(text.finish(u64::try_from(at).unwrap()));
        pieces
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_wherever_a_stream_is_cut(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            lengths in prop::collection::vec(1..9_usize, 1..9),
        ) {
            prop_assert_eq!(join(cut(&bytes, &lengths)), bytes.clone());
            prop_assert_eq!(same_length(&bytes).len(), bytes.len());
        }

        #[test]
        fn a_text_stays_a_text_wherever_it_is_cut(
            text in "\\PC{0,80}", lengths in prop::collection::vec(1..9_usize, 1..9),
        ) {
            let pieces = cut(text.as_bytes(), &lengths);
            let is_text = |piece: &Piece| matches!(piece, Piece::Text { .. });
            prop_assert!(pieces.iter().all(is_text));
            prop_assert_eq!(same_length(text.as_bytes()), text);
        }
    }
}
