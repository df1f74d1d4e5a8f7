//! Bytes that arrive in pieces, as text.

/// Turns pieces of bytes into text. A character that a piece ends in the middle of waits for the next piece;
/// bytes that are not UTF-8 become U+FFFD.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The beginning of a character: at most three bytes.
    waiting: Vec<u8>,
}

impl Decoder {
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        self.waiting.extend_from_slice(bytes);
        let whole = self.waiting.len() - incomplete(&self.waiting);
        let rest = self.waiting.split_off(whole);
        let text = String::from_utf8_lossy(&self.waiting).into_owned();
        self.waiting = rest;
        text
    }

    /// Returns what is left at the end.
    pub(super) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.waiting)).into_owned()
    }
}

/// Returns how many bytes at the end are the beginning of a character.
fn incomplete(bytes: &[u8]) -> usize {
    let tail = bytes.get(bytes.len().saturating_sub(3)..).unwrap_or_default();
    (1..=tail.len())
        .rev()
        .find(|length| {
            let end = tail.get(tail.len() - length..).unwrap_or_default();
            std::str::from_utf8(end)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_character_that_is_cut_waits_for_the_rest_of_it() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.push("a😀".as_bytes().split_at(3).0), "a");
        assert_eq!(decoder.push("a😀".as_bytes().split_at(3).1), "😀");
        assert_eq!(decoder.push(b"\xff\xe5"), "\u{fffd}");
        assert_eq!(decoder.finish(), "\u{fffd}");
        assert_eq!(decoder.finish(), "");
    }

    proptest! {
        #[test]
        fn pieces_give_the_text_of_the_whole(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xe2), Just(0x82), Just(0xac), Just(0xf0), Just(0x9f)], 0..60),
            cuts in prop::collection::vec(0usize..60, 0..6),
        ) {
            let (mut decoder, mut text) = (Decoder::default(), String::new());
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut from = 0;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                text.push_str(&decoder.push(&bytes[from..cut]));
                from = cut;
            }
            text.push_str(&decoder.finish());
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
