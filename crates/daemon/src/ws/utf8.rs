//! From the bytes of a stream to texts of bounded size that never split a character.

use api::fathom::MAX_CHUNK_BYTES;

const REPLACEMENT: &str = "\u{FFFD}";

/// Decodes one stream, piece by piece. What is not UTF-8 becomes U+FFFD, and is counted.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The start of a character whose end has not come yet: at most three bytes.
    tail: Vec<u8>,
    /// How many bytes of the stream stand before the tail.
    offset: u64,
    replaced: u64,
}

impl Decoder {
    /// Decodes the next bytes. Calls `tell` with each text and the offset of its first byte.
    pub(super) fn push(&mut self, bytes: &[u8], tell: &mut impl FnMut(&str, u64)) {
        if self.tail.is_empty() {
            return self.decode(bytes, tell);
        }
        let mut joined = std::mem::take(&mut self.tail);
        joined.extend_from_slice(bytes);
        self.decode(&joined, tell);
    }

    /// Says that the stream is over: a character that never became whole is replaced.
    pub(super) fn finish(&mut self, tell: &mut impl FnMut(&str, u64)) {
        if self.tail.is_empty() {
            return;
        }
        let length = count(self.tail.len());
        tell(REPLACEMENT, self.offset);
        self.tail.clear();
        self.offset += length;
        self.replaced += length;
    }

    /// Says that the stream was cut: a character that the cut goes through is left out. Returns how many
    /// bytes of it there were.
    pub(super) fn cut(&mut self) -> u64 {
        let length = count(self.tail.len());
        self.tail.clear();
        length
    }

    /// Returns how many bytes were replaced so far.
    pub(super) fn replaced(&self) -> u64 {
        self.replaced
    }

    fn decode(&mut self, bytes: &[u8], tell: &mut impl FnMut(&str, u64)) {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.split(text, tell),
            Err(_) => self.replace(bytes, tell),
        }
    }

    /// Hands on a text in pieces of at most the largest chunk, cut between characters.
    fn split(&mut self, mut text: &str, tell: &mut impl FnMut(&str, u64)) {
        while !text.is_empty() {
            let cut = text.floor_char_boundary(MAX_CHUNK_BYTES);
            let (piece, rest) = text.split_at(cut);
            tell(piece, self.offset);
            self.offset += count(piece.len());
            text = rest;
        }
    }

    /// Hands on bytes that are not all UTF-8, and keeps a character that may still become whole.
    fn replace(&mut self, bytes: &[u8], tell: &mut impl FnMut(&str, u64)) {
        let mut text = String::with_capacity(bytes.len().min(MAX_CHUNK_BYTES));
        // Bytes of the stream that `text` stands for.
        let mut taken = 0;
        let mut left = bytes.len();
        for chunk in bytes.utf8_chunks() {
            left -= chunk.valid().len() + chunk.invalid().len();
            for character in chunk.valid().chars() {
                if text.len() + character.len_utf8() > MAX_CHUNK_BYTES {
                    self.tell(&mut text, &mut taken, tell);
                }
                text.push(character);
                taken += character.len_utf8();
            }
            if chunk.invalid().is_empty() {
                continue;
            }
            if left == 0 && is_incomplete(chunk.invalid()) {
                self.tail = chunk.invalid().to_vec();
                continue;
            }
            if text.len() + REPLACEMENT.len() > MAX_CHUNK_BYTES {
                self.tell(&mut text, &mut taken, tell);
            }
            text.push_str(REPLACEMENT);
            taken += chunk.invalid().len();
            self.replaced += count(chunk.invalid().len());
        }
        self.tell(&mut text, &mut taken, tell);
    }

    fn tell(&mut self, text: &mut String, taken: &mut usize, tell: &mut impl FnMut(&str, u64)) {
        if !text.is_empty() {
            tell(text, self.offset);
        }
        self.offset += count(*taken);
        text.clear();
        *taken = 0;
    }
}

/// Tells whether more bytes could make a character of these.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes pieces; returns texts with offsets, and how many bytes were replaced.
    fn decode(pieces: &[&[u8]]) -> (Vec<(String, u64)>, u64) {
        let mut decoder = Decoder::default();
        let mut texts = Vec::new();
        let mut tell = |text: &str, offset| texts.push((text.to_owned(), offset));
        for piece in pieces {
            decoder.push(piece, &mut tell);
        }
        decoder.finish(&mut tell);
        (texts, decoder.replaced())
    }

    fn text(texts: &[(String, u64)]) -> String {
        texts.iter().map(|(text, _)| text.as_str()).collect()
    }

    #[test]
    fn w21_a_character_is_never_split() {
        let euro = "€".as_bytes();
        let (texts, replaced) = decode(&[b"a", &euro[..1], &euro[1..2], &euro[2..], b"b"]);
        let expected = [("a".to_owned(), 0), ("€".to_owned(), 1), ("b".to_owned(), 4)];
        assert_eq!((texts.as_slice(), replaced), (expected.as_slice(), 0));
    }

    #[test]
    fn a_character_that_a_cut_goes_through_is_left_out() {
        for (bytes, expected, left_out) in [
            ("a€".as_bytes(), "a€", 0),
            (&"a€".as_bytes()[..3], "a", 2),
            (&b"a\xff"[..], "a\u{FFFD}", 0),
        ] {
            let (mut decoder, mut texts) = (Decoder::default(), String::new());
            let mut tell = |text: &str, _| texts.push_str(text);
            decoder.push(bytes, &mut tell);
            assert_eq!(decoder.cut(), left_out, "{bytes:?}");
            decoder.finish(&mut tell);
            assert_eq!(texts, expected, "{bytes:?}");
        }
    }

    #[test]
    fn w21_what_is_not_utf8_is_replaced_and_counted() {
        let (texts, replaced) = decode(&[b"a\xff\xfeb\xe2\x82", b"c\xf0\x9f"]);
        assert_eq!(text(&texts), "a\u{FFFD}\u{FFFD}b\u{FFFD}c\u{FFFD}");
        assert_eq!(replaced, 6);
        let offsets: Vec<_> = texts.iter().map(|(_, offset)| *offset).collect();
        assert_eq!(offsets, [0, 4, 7]);
    }

    #[test]
    fn w21_large_output_comes_in_pieces_of_the_largest_size() {
        let bytes = "xé".repeat(100_000).into_bytes();
        let (texts, _) = decode(&[&bytes]);
        assert!(texts.iter().all(|(text, _)| text.len() <= MAX_CHUNK_BYTES));
        assert_eq!(texts.len(), bytes.len().div_ceil(MAX_CHUNK_BYTES - 1));
        let invalid = vec![0xff; 100_000];
        let (texts, replaced) = decode(&[&invalid]);
        assert!(texts.iter().all(|(text, _)| text.len() <= MAX_CHUNK_BYTES));
        assert_eq!(replaced, 100_000);
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_decode_as_they_would_in_one(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xe2), Just(0x82), Just(0xac)], 0..200),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            let (texts, replaced) = decode(&pieces);
            prop_assert_eq!(text(&texts), String::from_utf8_lossy(&bytes));
            let good: usize = bytes.utf8_chunks().map(|chunk| chunk.valid().len()).sum();
            prop_assert_eq!(replaced, count(bytes.len() - good));
            for (text, offset) in &texts {
                let at = usize::try_from(*offset).unwrap();
                let here = String::from_utf8_lossy(&bytes[at..]);
                prop_assert!(here.starts_with(text.as_str()));
            }
        }
    }
}
