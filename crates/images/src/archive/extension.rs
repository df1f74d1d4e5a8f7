//! What stands before an entry and overrides its header: long names, and records of the PAX form.

use super::{ArchiveError, Modified};

const XATTR: &[u8] = b"SCHILY.xattr.";
const SPARSE: &[u8] = b"GNU.sparse.";

/// The records that change how the archive is read, or what becomes of an entry.
const MEANT_FOR_ONE_ENTRY: [&[u8]; 6] = [b"path", b"linkpath", b"size", b"uid", b"gid", b"mtime"];

/// What was said ahead of one entry.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    pub(super) name: Option<Vec<u8>>,
    pub(super) target: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) modified: Option<Modified>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    has_records: bool,
}

impl Extensions {
    pub(super) fn is_empty(&self) -> bool {
        self.name.is_none() && self.target.is_none() && !self.has_records
    }

    pub(super) fn add_long_name(&mut self, name: Vec<u8>) -> Result<(), ArchiveError> {
        set_once(&mut self.name, name)
    }

    pub(super) fn add_long_target(&mut self, target: Vec<u8>) -> Result<(), ArchiveError> {
        set_once(&mut self.target, target)
    }

    pub(super) fn add_records(&mut self, text: &[u8]) -> Result<(), ArchiveError> {
        if self.has_records {
            return Err(ArchiveError::Ambiguous("two extended headers for one entry"));
        }
        self.has_records = true;
        for record in Records(text) {
            let (key, value) = record?;
            self.add_record(key, value)?;
        }
        Ok(())
    }

    fn add_record(&mut self, key: &[u8], value: &[u8]) -> Result<(), ArchiveError> {
        match key {
            b"path" => set_once(&mut self.name, name(value)?),
            b"linkpath" => set_once(&mut self.target, name(value)?),
            b"size" => set_once(&mut self.size, decimal(value, "size")?),
            b"uid" => set_once(&mut self.uid, decimal(value, "uid")?),
            b"gid" => set_once(&mut self.gid, decimal(value, "gid")?),
            b"mtime" => set_once(&mut self.modified, time(value)?),
            _ if key.starts_with(SPARSE) => Err(ArchiveError::Sparse),
            _ => {
                if let Some(xattr) = key.strip_prefix(XATTR) {
                    self.xattrs.push((xattr.to_vec(), value.to_vec()));
                }
                Ok(())
            }
        }
    }
}

/// Refuses a header for the whole archive that would change its entries. Some programs know such
/// headers and some do not. Comments, which is what they are used for, are no matter.
pub(super) fn check_global(text: &[u8]) -> Result<(), ArchiveError> {
    for record in Records(text) {
        let (key, _) = record?;
        if MEANT_FOR_ONE_ENTRY.contains(&key) || key.starts_with(XATTR) || key.starts_with(SPARSE) {
            return Err(ArchiveError::Ambiguous("a global header changes entries"));
        }
    }
    Ok(())
}

fn set_once<T>(place: &mut Option<T>, value: T) -> Result<(), ArchiveError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(ArchiveError::Ambiguous("something is said twice about one entry")),
    }
}

fn name(value: &[u8]) -> Result<Vec<u8>, ArchiveError> {
    if value.is_empty() || value.contains(&0) {
        return Err(ArchiveError::Extension);
    }
    Ok(value.to_vec())
}

fn decimal(value: &[u8], what: &'static str) -> Result<u64, ArchiveError> {
    let digits = value.iter().all(u8::is_ascii_digit);
    let text = str::from_utf8(value).ok().filter(|_| digits);
    text.and_then(|it| it.parse().ok()).ok_or(ArchiveError::Number(what))
}

/// Reads seconds with a fraction, perhaps negative.
fn time(value: &[u8]) -> Result<Modified, ArchiveError> {
    let wrong = || ArchiveError::Number("mtime");
    let (sign, digits) = match value.strip_prefix(b"-") {
        Some(digits) => (-1, digits),
        None => (1, value),
    };
    let mut parts = digits.splitn(2, |byte| *byte == b'.');
    let seconds = decimal(parts.next().unwrap_or_default(), "mtime")?;
    let seconds = i64::try_from(seconds).map_err(|_large| wrong())? * sign;
    let fraction = fraction(parts.next().unwrap_or_default()).ok_or_else(wrong)?;
    if sign < 0 && fraction > 0 {
        // The fraction counts away from the second, and the kernel's counts up from it.
        return Ok(Modified { seconds: seconds - 1, nanoseconds: 1_000_000_000 - fraction });
    }
    Ok(Modified { seconds, nanoseconds: fraction })
}

/// Reads nine digits after the point and leaves out the rest.
fn fraction(digits: &[u8]) -> Option<u32> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let padded = digits.iter().copied().chain(std::iter::repeat(b'0')).take(9);
    Some(padded.fold(0, |value, digit| value * 10 + u32::from(digit - b'0')))
}

/// Records are `LENGTH KEY=VALUE` and a line feed; the length counts all of it.
struct Records<'text>(&'text [u8]);

impl<'text> Iterator for Records<'text> {
    type Item = Result<(&'text [u8], &'text [u8]), ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = split_record(self.0);
        // After an ill-formed record there is no telling where the next one begins.
        self.0 = record.map_or(&[][..], |(_, _, rest)| rest);
        Some(record.map(|(key, value, _)| (key, value)).ok_or(ArchiveError::Extension))
    }
}

type Split<'text> = (&'text [u8], &'text [u8], &'text [u8]);

fn split_record(text: &[u8]) -> Option<Split<'_>> {
    let blank = text.iter().take(20).position(|byte| *byte == b' ')?;
    let length = decimal(text.get(..blank)?, "length").ok()?;
    let length = usize::try_from(length).ok()?;
    let record = text.get(blank + 1..length)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    let key = record.get(..equals).filter(|key| !key.is_empty() && !key.contains(&0))?;
    Some((key, record.get(equals + 1..)?, text.get(length..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_may_be_before_1970_and_have_fractions() {
        let rows = [
            (&b"0"[..], Some((0, 0))),
            (b"12.5", Some((12, 500_000_000))),
            (b"12.1234567899", Some((12, 123_456_789))),
            (b"-1", Some((-1, 0))),
            (b"-1.25", Some((-2, 750_000_000))),
            (b"", None),
            (b"1.x", None),
            (b"99999999999999999999", None),
            (b"+1", None),
        ];
        for (text, expected) in rows {
            let read = time(text).ok().map(|it| (it.seconds, it.nanoseconds));
            assert_eq!(read, expected, "{text:?}");
        }
    }

    #[test]
    fn ill_formed_records_are_refused() {
        let wrong: [&[u8]; 8] = [
            b"10 a=b\n",
            b"6 a=b",
            b"x a=b\n",
            b"5 ab\n",
            b"5 =b\n",
            b"0 a=b\n",
            b"99999999999999999999999 a=b\n",
            b"6 a=b\n6 a=b",
        ];
        for text in wrong {
            let read: Result<Vec<_>, _> = Records(text).collect();
            assert!(matches!(read, Err(ArchiveError::Extension)), "{text:?}");
        }
    }

    #[test]
    fn a_value_may_hold_any_byte() {
        let read: Vec<_> = Records(b"10 a=\0\n=\n\n").map(Result::unwrap).collect();
        assert_eq!(read, [(&b"a"[..], &b"\0\n=\n"[..])]);
    }
}
