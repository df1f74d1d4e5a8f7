//! Sizes as old clients write them: `500m` of a processor, `512Mi` of memory.

use model::units::ByteSize;

/// Reads a part of a processor, in thousandths.
pub(super) fn read_cpu(text: &str) -> Option<u64> {
    let millis = match text.strip_suffix('m') {
        Some(millis) => digits(millis)?,
        None => thousandths(text)?,
    };
    (1..=1_024_000).contains(&millis).then_some(millis)
}

/// Reads a number of bytes.
pub(super) fn read_size(text: &str) -> Option<ByteSize> {
    const UNITS: [(&str, u64); 8] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
    ];
    let unit = UNITS.into_iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let bytes = u128::from(thousandths(number)?) * u128::from(unit) / 1000;
    let bytes = u64::try_from(bytes).ok().filter(|bytes| i64::try_from(*bytes).is_ok())?;
    (bytes > 0).then_some(ByteSize::bytes(bytes))
}

pub(super) fn write_cpu(millicores: u64) -> String {
    format!("{millicores}m")
}

pub(super) fn write_size(size: ByteSize) -> String {
    let bytes = size.as_bytes();
    if bytes.is_multiple_of(1 << 20) { format!("{}Mi", bytes >> 20) } else { bytes.to_string() }
}

/// Reads a decimal number with up to three places, times a thousand.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, places) = text.split_once('.').unwrap_or((text, "0"));
    if places.is_empty() || places.len() > 3 {
        return None;
    }
    let places = digits(&format!("{places:0<3}"))?;
    digits(whole)?.checked_mul(1000)?.checked_add(places)
}

fn digits(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_they_are_meant_and_written_so_that_they_can_be() {
        let rows = [("500m", 500), ("2", 2000), ("0.5", 500), ("1.25", 1250), ("0.001", 1)];
        for (text, expected) in rows {
            assert_eq!(read_cpu(text), Some(expected), "{text}");
            assert_eq!(read_cpu(&write_cpu(expected)), Some(expected));
        }
        let rows = [
            ("512Mi", 512 << 20),
            ("1Gi", 1 << 30),
            ("1.5Gi", 3 << 29),
            ("1000", 1000),
            ("2k", 2000),
            ("1M", 1_000_000),
        ];
        for (text, expected) in rows {
            let expected = ByteSize::bytes(expected);
            assert_eq!(read_size(text), Some(expected), "{text}");
            assert_eq!(read_size(&write_size(expected)), Some(expected));
        }
        for bad in ["", "m", "0", "-1", "+1", "1e3", "1.", ".5", "1.2345", "x", "99999999999999999"]
        {
            assert_eq!(read_cpu(bad), None, "{bad}");
        }
        for bad in ["", "Mi", "0", "-1Mi", "1 Mi", "1mi", "1.Mi", "0.0001", "99999999Ti"] {
            assert_eq!(read_size(bad), None, "{bad}");
        }
    }
}
