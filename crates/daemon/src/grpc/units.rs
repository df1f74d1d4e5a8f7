//! Times and quantities as the contract spells them: Go's durations, Docker's sizes, cores.

use prost_types::Duration;

/// Reads Go's durations: `300ms`, `1m30s`, `-1.5h`, and `0`, which alone needs no unit.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (is_negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let nanos = if rest == "0" { 0 } else { sum_of_parts(rest)? };
    let nanos = if is_negative { -nanos } else { nanos };
    let whole = i64::try_from(nanos / NANOS).ok()?;
    Some(Duration { seconds: whole, nanos: i32::try_from(nanos % NANOS).ok()? })
}

const NANOS: i128 = 1_000_000_000;

/// Longest first where one ends like another.
const TIME_UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", NANOS),
    ("m", 60 * NANOS),
    ("h", 3600 * NANOS),
];

fn sum_of_parts(text: &str) -> Option<i128> {
    let (mut rest, mut sum) = (text, 0_i128);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let (number, after) = rest.split_at(end);
        let end = after.find(|it: char| it.is_ascii_digit() || it == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let (_, factor) = TIME_UNITS.into_iter().find(|(name, _)| *name == unit)?;
        let part = Decimal::read(number)?.times(u64::try_from(factor).ok()?)?;
        sum = sum.checked_add(i128::from(part)).filter(|sum| *sum <= i128::from(i64::MAX))?;
        rest = after;
    }
    Some(sum)
}

/// Reads Docker's sizes: `1048576`, `512m`, `1.5 GiB`; every unit is a power of 1024.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let end = text.rfind(|it: char| it.is_ascii_digit() || it == '.')? + 1;
    let (number, unit) = text.split_at(end);
    let unit = unit.strip_prefix(' ').unwrap_or(unit).to_ascii_lowercase();
    let power = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        _ => return None,
    };
    Decimal::read(number)?.times(1 << power)
}

/// Reads cores, such as `2` or `0.5`, as thousandths.
pub(crate) fn millicores(text: &str) -> Option<u64> {
    Decimal::read(text)?.times(1000)
}

/// A number with a fraction, without the inexactness of floats.
struct Decimal {
    whole: u64,
    /// Billionths; what is smaller is dropped.
    fraction: u64,
}

impl Decimal {
    /// Reads digits with at most one point among them.
    fn read(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || whole.len() + fraction.len() == 0 {
            return None;
        }
        let billionths = fraction.chars().chain(std::iter::repeat('0')).take(9);
        let billionths: String = billionths.collect();
        let whole = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        Some(Self { whole, fraction: billionths.parse().ok()? })
    }

    /// Multiplies, dropping what is below one.
    fn times(&self, factor: u64) -> Option<u64> {
        let whole = u128::from(self.whole) * u128::from(factor);
        let fraction = u128::from(self.fraction) * u128::from(factor) / 1_000_000_000;
        u64::try_from(whole + fraction).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let rows = [
            ("0", Some((0, 0))),
            ("-0", Some((0, 0))),
            ("5s", Some((5, 0))),
            ("+5s", Some((5, 0))),
            ("1m30s", Some((90, 0))),
            ("1h15m30.918s", Some((4530, 918_000_000))),
            ("1.5h", Some((5400, 0))),
            (".5s", Some((0, 500_000_000))),
            ("1.s", Some((1, 0))),
            ("300ms", Some((0, 300_000_000))),
            ("10us", Some((0, 10_000))),
            ("10µs", Some((0, 10_000))),
            ("10μs", Some((0, 10_000))),
            ("7ns", Some((0, 7))),
            ("-1.5s", Some((-1, -500_000_000))),
            ("", None),
            ("5", None),
            ("s", None),
            (".s", None),
            ("1d", None),
            ("1 s", None),
            ("1s ", None),
            ("1..5s", None),
            ("--1s", None),
            ("3000000h", None),
            ("99999999999999999999s", None),
        ];
        for (text, expected) in rows {
            let read = duration(text).map(|it| (it.seconds, it.nanos));
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn sizes_are_read_as_docker_reads_them() {
        let rows = [
            ("1024", Some(1024)),
            ("1024b", Some(1024)),
            ("512m", Some(512 << 20)),
            ("512M", Some(512 << 20)),
            ("4g", Some(4 << 30)),
            ("4GB", Some(4 << 30)),
            ("4 GiB", Some(4 << 30)),
            ("1.5k", Some(1536)),
            ("0.5", Some(0)),
            ("2t", Some(2 << 40)),
            ("1p", Some(1 << 50)),
            ("", None),
            ("m", None),
            ("-1m", None),
            ("1x", None),
            ("1bb", None),
            ("1mi", None),
            ("1  m", None),
            ("1e3", None),
            ("99999p", None),
        ];
        for (text, expected) in rows {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn cores_are_read_as_thousandths() {
        let rows = [
            ("2", Some(2000)),
            ("0.5", Some(500)),
            ("0.001", Some(1)),
            ("0.0009", Some(0)),
            (".25", Some(250)),
            ("", None),
            (".", None),
            ("-1", None),
            ("NaN", None),
            ("inf", None),
            ("two", None),
        ];
        for (text, expected) in rows {
            assert_eq!(millicores(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: String, near in "[-+.0-9kmgtpbinshuµ ]{0,12}") {
            for text in [text, near] {
                let _ = (duration(&text), bytes(&text), millicores(&text));
            }
        }
    }
}
