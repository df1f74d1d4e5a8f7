//! Text from bytes that come in pieces.

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
}
