//! The shape of a timestamp. Its value is never trusted, so no calendar is needed.

/// Tells whether a text has the shape of an ISO 8601 date and time: a year of four to six digits,
/// seconds up to the leap second, an optional fraction, and a zone or none.
pub(super) fn is_timestamp(text: &str) -> bool {
    read(text.as_bytes()).is_some()
}

fn read(text: &[u8]) -> Option<()> {
    let text = text.strip_prefix(b"+").or_else(|| text.strip_prefix(b"-")).unwrap_or(text);
    let year_digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(4..=6).contains(&year_digits) {
        return None;
    }
    let rest = text.get(year_digits..)?;
    let rest = number(rest, b"-", 1, 12)?;
    let rest = number(rest, b"-", 1, 31)?;
    let rest = number(rest, b"T", 0, 24)?;
    let rest = number(rest, b":", 0, 59)?;
    let rest = number(rest, b":", 0, 60)?;
    zone(fraction(rest)?)
}

/// Reads a separator and a number of two digits within a range; returns what follows.
fn number<'a>(text: &'a [u8], separator: &[u8], min: u8, max: u8) -> Option<&'a [u8]> {
    let text = text.strip_prefix(separator)?;
    let [tens, ones, rest @ ..] = text else { return None };
    if !tens.is_ascii_digit() || !ones.is_ascii_digit() {
        return None;
    }
    let value = (tens - b'0') * 10 + (ones - b'0');
    (min..=max).contains(&value).then_some(rest)
}

fn fraction(text: &[u8]) -> Option<&[u8]> {
    let Some(digits) = text.strip_prefix(b".").or_else(|| text.strip_prefix(b",")) else {
        return Some(text);
    };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if (1..=9).contains(&count) { digits.get(count..) } else { None }
}

fn zone(text: &[u8]) -> Option<()> {
    let (Some(rest), false) =
        (text.strip_prefix(b"+").or_else(|| text.strip_prefix(b"-")), matches!(text, b"" | b"Z"))
    else {
        return matches!(text, b"" | b"Z").then_some(());
    };
    let rest = number(rest, b"", 0, 23)?;
    if rest.is_empty() {
        return Some(());
    }
    let rest = number(rest.strip_prefix(b":").unwrap_or(rest), b"", 0, 59)?;
    rest.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_decides_and_not_the_value() {
        let accepted = [
            "2025-12-27T11:30:00.000Z",
            "2025-12-27T11:30:00Z",
            "2025-12-27T11:30:00.123456789Z",
            "2025-12-27T11:30:00,5Z",
            "2025-12-27T11:30:00.000+01:00",
            "2025-12-27T11:30:00.000-0530",
            "2025-12-27T11:30:00.000+01",
            "2025-12-27T11:30:00.123456",
            "9999-12-31T23:59:60.999Z",
            "2025-02-31T24:00:00Z",
            "100000-01-01T00:00:00.000Z",
            "+100000-01-01T00:00:00.000Z",
        ];
        for text in accepted {
            assert!(is_timestamp(text), "{text}");
        }
        let refused = [
            "",
            "now",
            "2025-12-27",
            "2025-12-27 11:30:00Z",
            "25-12-27T11:30:00Z",
            "2025-13-27T11:30:00Z",
            "2025-12-32T11:30:00Z",
            "2025-12-27T25:30:00Z",
            "2025-12-27T11:60:00Z",
            "2025-12-27T11:30:61Z",
            "2025-12-27T11:30Z",
            "2025-12-27T11:30:00.Z",
            "2025-12-27T11:30:00.0000000000Z",
            "2025-12-27T11:30:00Zz",
            "2025-12-27T11:30:00+1",
            "2025-12-27T11:30:00+01:0",
            "1e5-12-27T11:30:00Z",
            "\u{662}025-12-27T11:30:00Z",
        ];
        for text in refused {
            assert!(!is_timestamp(text), "{text}");
        }
    }
}
