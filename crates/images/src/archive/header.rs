//! The fixed block before each entry.

use super::{ArchiveError, EntryKind, Modified};

pub(super) const BLOCK: usize = 512;

const POSIX: &[u8] = b"ustar\0";

/// A block whose checksum is right.
#[derive(Debug)]
pub(super) struct Header([u8; BLOCK]);

impl Header {
    pub(super) fn new(block: &[u8; BLOCK]) -> Result<Self, ArchiveError> {
        let header = Self(*block);
        let stated = number(header.field(148, 8), "checksum")?;
        // The checksum counts its own field as blanks. Old programs added signed bytes.
        let others = || block.iter().enumerate().filter(|(at, _)| !(148..156).contains(at));
        let blanks = 8 * i64::from(b' ');
        let unsigned: i64 = others().map(|(_, byte)| i64::from(*byte)).sum();
        let signed: i64 = others().map(|(_, byte)| i64::from(byte.cast_signed())).sum();
        if stated != unsigned + blanks && stated != signed + blanks {
            return Err(ArchiveError::Checksum);
        }
        header.check_numbers()?;
        Ok(header)
    }

    /// Some readers end at a number that is none, even at one that they have no use for.
    fn check_numbers(&self) -> Result<(), ArchiveError> {
        let fields = [
            (100, 8, "mode"),
            (108, 8, "uid"),
            (116, 8, "gid"),
            (124, 12, "size"),
            (136, 12, "mtime"),
        ];
        let device = [(329, 8, "device number"), (337, 8, "device number")];
        for (start, length, what) in fields.into_iter().chain(device) {
            number(self.field(start, length), what)?;
        }
        Ok(())
    }

    pub(super) fn type_flag(&self) -> u8 {
        self.0[156]
    }

    pub(super) fn size(&self) -> Result<u64, ArchiveError> {
        unsigned(self.field(124, 12), "size")
    }

    pub(super) fn uid(&self) -> Result<u64, ArchiveError> {
        unsigned(self.field(108, 8), "uid")
    }

    pub(super) fn gid(&self) -> Result<u64, ArchiveError> {
        unsigned(self.field(116, 8), "gid")
    }

    pub(super) fn mode(&self) -> Result<u32, ArchiveError> {
        let mode = unsigned(self.field(100, 8), "mode")?;
        // Some programs put the kind of the file in the higher bits. They say nothing new.
        Ok((mode & 0o7777) as u32)
    }

    pub(super) fn modified(&self) -> Result<Modified, ArchiveError> {
        let seconds = number(self.field(136, 12), "mtime")?;
        Ok(Modified { seconds, nanoseconds: 0 })
    }

    pub(super) fn name(&self) -> Result<Vec<u8>, ArchiveError> {
        let name = text(self.field(0, 100));
        let prefix = text(self.field(345, 155));
        if prefix.is_empty() {
            return Ok(name.to_vec());
        }
        if self.field(257, 6) != POSIX {
            return Err(ArchiveError::Ambiguous("a prefix in a header that has no place for one"));
        }
        Ok([prefix, b"/", name].concat())
    }

    pub(super) fn kind(
        &self,
        name: &[u8],
        long_target: Option<&[u8]>,
    ) -> Result<EntryKind, ArchiveError> {
        let target = || long_target.unwrap_or_else(|| text(self.field(157, 100))).to_vec();
        let was_directory = text(self.field(0, 100)).ends_with(b"/");
        let kind = match self.type_flag() {
            0 if was_directory != name.ends_with(b"/") => {
                return Err(ArchiveError::Ambiguous(
                    "a directory by one name and a file by another",
                ));
            }
            // Before there was a type for directories, they were files with a slash at the end.
            0 if name.ends_with(b"/") => EntryKind::Directory,
            b'0' | b'7' if name.ends_with(b"/") => {
                return Err(ArchiveError::Ambiguous("a file with the name of a directory"));
            }
            0 | b'0' | b'7' => EntryKind::File,
            b'1' => EntryKind::HardLink { target: target() },
            b'2' => EntryKind::SymbolicLink { target: target() },
            b'3' => EntryKind::CharacterDevice,
            b'4' => EntryKind::BlockDevice,
            b'5' => EntryKind::Directory,
            b'6' => EntryKind::Fifo,
            b'S' => return Err(ArchiveError::Sparse),
            other => return Err(ArchiveError::UnknownType(other)),
        };
        Ok(kind)
    }

    fn field(&self, start: usize, length: usize) -> &[u8] {
        self.0.get(start..start + length).unwrap_or_default()
    }
}

/// Text ends at the first zero byte, or fills its field.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn unsigned(field: &[u8], what: &'static str) -> Result<u64, ArchiveError> {
    let value = number(field, what)?;
    u64::try_from(value).map_err(|_negative| ArchiveError::Number(what))
}

/// Reads octal digits, or the binary form that is marked by the highest bit.
fn number(field: &[u8], what: &'static str) -> Result<i64, ArchiveError> {
    let value = match field.first() {
        Some(0x80 | 0xff) => binary(field),
        _ => octal(text(field)),
    };
    value.ok_or(ArchiveError::Number(what))
}

fn binary(field: &[u8]) -> Option<i64> {
    let (first, rest) = field.split_first()?;
    let start = if *first == 0xff { -1_i128 } else { 0 };
    let value = rest.iter().fold(start, |value, byte| value << 8 | i128::from(*byte));
    i64::try_from(value).ok()
}

fn octal(text: &[u8]) -> Option<i64> {
    let digits = text.trim_ascii();
    digits.iter().try_fold(0_i64, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(i64::from(digit - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_marked_binary() {
        let rows: &[(&[u8], Option<i64>)] = &[
            (b"0000644\0", Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"644\0junk", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"77777777", Some(0o7777_7777)),
            (b"0000648\0", None),
            (b"-000001\0", None),
            (b"6 4\0\0\0\0\0", None),
            (&[0x80, 0, 0, 0, 0x80, 0, 0, 0], Some(0x8000_0000)),
            (&[0xff; 12], Some(-1)),
            (&[0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], None),
            (&[0x81, 0, 0, 0, 0, 0, 0, 0], None),
        ];
        for (field, expected) in rows {
            assert_eq!(number(field, "x").ok(), *expected, "{field:?}");
        }
    }
}
