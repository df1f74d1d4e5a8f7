//! The file of the server's own keys.
//!
//! One key alone is its 32 bytes, as it is made at the first start. Once it has been changed the file is text: a first
//! line that says so, then a line for each key, the one that signs first: its number, its bytes in hexadecimal,
//! and, of those before it, until when they verify, in milliseconds since 1970.

use std::{fmt::Write as _, path::Path};

use model::units::Timestamp;

use crate::key_file::{self, KeyFileError, LENGTH};

const FIRST_LINE: &str = "ringfence master keys";
const WITHOUT_IT: &str = "which ends all tokens that were given out";

/// A key as it is kept.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::tokens) struct Kept {
    pub(in crate::tokens) number: u32,
    pub(in crate::tokens) key: [u8; LENGTH],
    pub(in crate::tokens) until: Option<Timestamp>,
}

impl Kept {
    /// The first key of a server.
    pub(in crate::tokens) fn first(key: [u8; LENGTH]) -> Self {
        Self { number: 1, key, until: None }
    }
}

/// Returns the key that signs and those before it; at the first start one is made up.
pub(in crate::tokens) fn open(path: &Path) -> Result<(Kept, Vec<Kept>), KeyFileError> {
    let bytes = key_file::open_bytes(path)?;
    let malformed = || KeyFileError::Malformed { path: path.to_owned(), without_it: WITHOUT_IT };
    if let Ok(key) = <[u8; LENGTH]>::try_from(bytes.as_slice()) {
        return Ok((Kept::first(key), Vec::new()));
    }
    let text = str::from_utf8(&bytes).map_err(|_not_text| malformed())?;
    let mut lines = text.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err(malformed());
    }
    let mut keys = lines.map(read).collect::<Option<Vec<_>>>().ok_or_else(malformed)?.into_iter();
    let first = keys.next().filter(|first| first.until.is_none()).ok_or_else(malformed)?;
    Ok((first, keys.collect()))
}

/// Adds a key that signs from now on. Those before it verify until this time, and not at all if there is none.
pub(super) fn add(
    path: &Path,
    new: &Kept,
    previous_until: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), KeyFileError> {
    let (first, mut older) = open(path)?;
    older.retain(|kept| kept.until.is_some_and(|until| now < until));
    let mut keys = vec![new.clone()];
    if let Some(until) = previous_until {
        keys.push(Kept { until: Some(until), ..first });
        keys.extend(older);
    }
    let mut text = format!("{FIRST_LINE}\n");
    for kept in &keys {
        write_line(&mut text, kept);
    }
    key_file::replace(path, text.as_bytes())
}

fn write_line(text: &mut String, kept: &Kept) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{} ", kept.number);
    for byte in kept.key {
        let _ = write!(text, "{byte:02x}");
    }
    if let Some(until) = kept.until {
        let _ = write!(text, " {}", until.as_millis());
    }
    text.push('\n');
}

fn read(line: &str) -> Option<Kept> {
    let mut words = line.split(' ');
    let number = words.next()?.parse().ok()?;
    let digits = words.next()?;
    let until = words.next().map(|text| text.parse().ok().map(Timestamp::from_millis));
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if words.next().is_some() || digits.len() != 2 * LENGTH || !is_hex {
        return None;
    }
    let mut key = [0; LENGTH];
    for (byte, index) in key.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(digits.get(index..index + 2)?, 16).ok()?;
    }
    let until = match until {
        Some(until) => Some(until?),
        None => None,
    };
    Some(Kept { number, key, until })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_millis(hours * 3_600_000)
    }

    fn numbered(number: u32) -> Kept {
        Kept { number, key: [u8::try_from(number).unwrap(); LENGTH], until: None }
    }

    #[test]
    fn keys_are_read_as_they_were_added_and_retired_ones_go() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("tokens.key");
        let (first, older) = open(&path).unwrap();
        assert_eq!((first.number, older.len()), (1, 0));
        add(&path, &numbered(2), Some(at(24)), at(0)).unwrap();
        add(&path, &numbered(3), Some(at(25)), at(1)).unwrap();
        let (third, older) = open(&path).unwrap();
        assert!(third == numbered(3));
        let expected =
            [Kept { until: Some(at(25)), ..numbered(2) }, Kept { until: Some(at(24)), ..first }];
        assert!(older == expected);
        // The first is over by then.
        add(&path, &numbered(4), Some(at(48)), at(24)).unwrap();
        assert_eq!(open(&path).unwrap().1.len(), 2);
        // In an emergency none stays.
        add(&path, &numbered(6), None, at(24)).unwrap();
        let (last, older) = open(&path).unwrap();
        assert!(last == numbered(6) && older.is_empty());
    }

    #[test]
    fn a_file_of_keys_that_is_not_as_we_write_it_is_refused() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("tokens.key");
        let hex = "ab".repeat(LENGTH);
        for text in [
            String::new(),
            "short".to_owned(),
            format!("{FIRST_LINE}\n"),
            format!("2 {hex}\n"),
            format!("{FIRST_LINE}\n2 {hex} 5\n"),
            format!("{FIRST_LINE}\n2 {hex}\n1 {hex} x\n"),
            format!("{FIRST_LINE}\n2 {hex}\n1 {hex} 5 5\n"),
            format!("{FIRST_LINE}\n2 {}\n", "é".repeat(LENGTH)),
            format!("{FIRST_LINE}\n2 {}\n", "+f".repeat(LENGTH)),
            format!("{FIRST_LINE}\n-2 {hex}\n"),
        ] {
            key_file::replace(&path, text.as_bytes()).unwrap();
            assert!(matches!(open(&path), Err(KeyFileError::Malformed { .. })), "{text:?}");
        }
    }
}
