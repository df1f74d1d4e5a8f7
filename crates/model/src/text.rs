//! Text that people read: which characters it may have.

/// The longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// Why a text is not accepted as a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "names have 1 to {MAX_NAME_BYTES} bytes, without control characters, line separators and characters that are \
     invisible or change the direction of writing"
)]
pub struct NameError;

/// Checks a name that people read in tables, logs and terminals, such as that of a key, an actor or a tenant.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let is_good = (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.contains(is_deceptive);
    if is_good { Ok(()) } else { Err(NameError) }
}

/// Tells whether a character controls a terminal, ends a line, is invisible, or changes the direction of writing, so that
/// a text with it may look like another.
pub fn is_deceptive(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_character_that_deceives_a_reader() {
        let longest = "x".repeat(MAX_NAME_BYTES);
        for good in ["ada", "Ada Lovelace, größer 北", "key-1_2.3:4/5", "שלום", "😀", &longest]
        {
            assert_eq!(check_name(good), Ok(()), "{good:?}");
        }
        let too_long = "x".repeat(MAX_NAME_BYTES + 1);
        for bad in [
            "",
            "a\nb",
            "a\0",
            "\u{1b}[31m",
            "a\u{7f}",
            "a\u{85}",
            "a\u{2028}b",
            "a\u{2029}b",
            "\u{202e}nimda",
            "a\u{202a}",
            "a\u{2066}b",
            "a\u{200b}b",
            "a\u{200f}b",
            "a\u{61c}b",
            "\u{feff}a",
            "a\u{e0041}",
            "a\u{3164}",
            "a\u{ad}b",
            &too_long,
        ] {
            assert_eq!(check_name(bad), Err(NameError), "{bad:?}");
        }
    }
}
