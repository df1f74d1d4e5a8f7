//! The names of content: what a blob or a layer is called is what is in it.

use std::{
    fmt,
    io::{self, Read},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sha256:";

/// A SHA-256 of some content, written `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// What was given is not a digest that can be checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    #[error("the digest {0:?} is not of the kind sha256")]
    Algorithm(String),
    #[error("the digest {0:?} does not have 64 lower-case hexadecimal digits")]
    Digits(String),
}

impl Digest {
    /// Returns the digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the 64 digits alone, which are fit for a file name.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the first byte, by which things can be spread evenly.
    pub(crate) fn first_byte(&self) -> u8 {
        self.0[0]
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let digits =
            text.strip_prefix(PREFIX).ok_or_else(|| DigestError::Algorithm(text.to_owned()))?;
        let wrong = || DigestError::Digits(text.to_owned());
        if digits.len() != 64 {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let (high, low) = (nibble(pair[0]), nibble(pair[1]));
            *byte = high.zip(low).map(|(high, low)| high << 4 | low).ok_or_else(wrong)?;
        }
        Ok(Self(bytes))
    }
}

/// Upper-case digits would give one content two names.
fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PREFIX}{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A digest in the making.
#[derive(Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Hasher")
    }
}

/// Reads through to another reader and keeps the digest and the length of what went by.
#[derive(Debug)]
pub struct HashingReader<R> {
    inner: R,
    hasher: Hasher,
    length: u64,
}

impl<R: Read> HashingReader<R> {
    pub fn new(inner: R) -> Self {
        Self { inner, hasher: Hasher::default(), length: 0 }
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn get_ref(&self) -> &R {
        &self.inner
    }

    /// Returns the digest and the length of what was read so far.
    pub fn finish(self) -> (Digest, u64) {
        (self.hasher.finish(), self.length)
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(buffer.get(..count).unwrap_or_default());
        self.length += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_is_written_as_it_is_read() {
        assert_eq!(EMPTY.parse(), Ok(Digest::of(b"")));
        assert_eq!(Digest::of(b"").to_string(), EMPTY);
    }

    #[test]
    fn what_is_not_a_lower_case_sha256_is_refused() {
        let upper = EMPTY.replace('e', "E");
        let rows = [
            ("", DigestError::Algorithm(String::new())),
            ("sha512:00", DigestError::Algorithm("sha512:00".into())),
            ("sha256:00", DigestError::Digits("sha256:00".into())),
            (upper.as_str(), DigestError::Digits(upper.clone())),
        ];
        for (text, expected) in rows {
            assert_eq!(text.parse::<Digest>(), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_hashing_reader_names_what_went_by() {
        let mut reader = HashingReader::new(&b"some content"[..]);
        io::copy(&mut reader, &mut io::sink()).unwrap();
        assert_eq!(reader.finish(), (Digest::of(b"some content"), 12));
    }
}
