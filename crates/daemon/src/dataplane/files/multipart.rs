//! The one file of a form, as it comes in.
//!
//! RFC 7578 as far as uploads use it: parts one after the other, of which one is named `file`. Where it
//! says that the file is to be is never looked at. Nothing is kept but what may be the beginning of the
//! line that ends the part.

use api::errors::ErrorCode;
use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memmem;

use super::upload::Incoming;
use crate::http::problem::ApiError;

/// What may stand before a part's bytes.
const MOST_HEAD: usize = 8 << 10;
/// Parts that a form may have.
const MOST_PARTS: usize = 16;
/// The longest line that parts are divided by, as RFC 2046 has it.
const LONGEST_BOUNDARY: usize = 70;
/// What a form may have around its file.
pub(super) const MOST_AROUND: u64 = 64 << 10;

/// A form that is being read.
pub(super) struct Multipart {
    body: Incoming,
    /// A line feed and the line between parts.
    line: Vec<u8>,
    buffer: BytesMut,
    is_over: bool,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Start,
    File,
    End,
}

pub(super) fn is_multipart(kind: &str) -> bool {
    kind.trim_start().get(..10).is_some_and(|kind| kind.eq_ignore_ascii_case("multipart/"))
}

impl Multipart {
    pub(super) fn new(body: Incoming, kind: &str) -> Result<Self, ApiError> {
        let boundary = boundary(kind).ok_or_else(|| {
            refuse("a form is multipart/form-data and names a boundary of 1 to 70 characters")
        })?;
        let line = format!("\r\n--{boundary}").into_bytes();
        // So that the first line between parts looks like all others.
        let buffer = BytesMut::from(&b"\r\n"[..]);
        Ok(Self { body, line, buffer, is_over: false, at: At::Start })
    }

    /// Returns more of the file; nothing when all of it was there, and the form is whole.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        match self.at {
            At::Start => {
                self.find_file().await?;
                self.at = At::File;
            }
            At::File => {}
            At::End => return Ok(None),
        }
        if let Some(bytes) = self.bytes().await? {
            return Ok(Some(bytes));
        }
        self.at = At::End;
        self.pass_rest().await?;
        Ok(None)
    }

    /// Goes to where the bytes of the file begin.
    async fn find_file(&mut self) -> Result<(), ApiError> {
        let mut passed = 0;
        for _ in 0..MOST_PARTS {
            while let Some(bytes) = self.bytes().await? {
                passed += bytes.len();
                if passed > MOST_HEAD {
                    return Err(refuse("the part named file comes first in a form"));
                }
            }
            match self.head().await? {
                Head::File => return Ok(()),
                Head::Other => {}
                Head::End => return Err(refuse("the form has no part named file")),
            }
        }
        Err(refuse("the form has too many parts"))
    }

    /// Sees that nothing comes after the file that matters.
    async fn pass_rest(&mut self) -> Result<(), ApiError> {
        let mut passed = 0;
        for _ in 0..MOST_PARTS {
            match self.head().await? {
                Head::End => return Ok(()),
                Head::File => return Err(refuse("the form has more than one part named file")),
                Head::Other => {}
            }
            while let Some(bytes) = self.bytes().await? {
                passed += bytes.len();
                if passed > MOST_HEAD {
                    return Err(refuse("the part named file is the only large one of a form"));
                }
            }
        }
        Err(refuse("the form has too many parts"))
    }

    /// Returns more of the part; nothing at its end, behind which it is then.
    async fn bytes(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            if let Some(at) = memmem::find(&self.buffer, &self.line) {
                if at > 0 {
                    return Ok(Some(self.buffer.split_to(at).freeze()));
                }
                self.buffer.advance(self.line.len());
                return Ok(None);
            }
            // The last bytes may be the beginning of the line.
            let sure = self.buffer.len().saturating_sub(self.line.len());
            if sure > 0 {
                return Ok(Some(self.buffer.split_to(sure).freeze()));
            }
            self.more().await?;
        }
    }

    /// Reads what stands before a part's bytes, or that there is none.
    async fn head(&mut self) -> Result<Head, ApiError> {
        loop {
            if self.buffer.starts_with(b"--") {
                return Ok(Head::End);
            }
            if let Some(end) = memmem::find(&self.buffer, b"\r\n\r\n") {
                if end > MOST_HEAD {
                    return Err(refuse("what stands before a part is too long"));
                }
                let mut head = self.buffer.split_to(end + 4);
                head.truncate(end);
                // An empty part may end at once: its end begins with the last line feed.
                return read_head(&head);
            }
            if self.buffer.len() > MOST_HEAD {
                return Err(refuse("what stands before a part is too long"));
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Result<(), ApiError> {
        let more = if self.is_over { None } else { self.body.next().await? };
        let Some(bytes) = more else {
            self.is_over = true;
            return Err(refuse("the form breaks off before its last line"));
        };
        self.buffer.extend_from_slice(&bytes);
        Ok(())
    }
}

/// What comes after a line between parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    File,
    Other,
    End,
}

fn read_head(head: &[u8]) -> Result<Head, ApiError> {
    let head =
        std::str::from_utf8(head).map_err(|_not_text| refuse("a part's head is not text"))?;
    let mut is_file = false;
    for line in head.split("\r\n").filter(|line| !line.trim().is_empty()) {
        let (name, value) =
            line.split_once(':').ok_or_else(|| refuse("a part's head is broken"))?;
        if name.eq_ignore_ascii_case("content-type") && is_multipart(value) {
            return Err(refuse("a form in a form is not taken"));
        }
        if name.eq_ignore_ascii_case("content-disposition") {
            is_file = value.split(';').any(|part| {
                let part = part.trim();
                part == "name=\"file\"" || part == "name=file"
            });
        }
    }
    Ok(if is_file { Head::File } else { Head::Other })
}

/// Reads the line between parts out of the type of a body.
fn boundary(kind: &str) -> Option<&str> {
    let (form, rest) = kind.split_once(';')?;
    if !form.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let parameter = |part: &'_ str| -> Option<(usize, usize)> {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then_some((name.len() + 1, value.len()))
    };
    let found = rest.split(';').find_map(|part| {
        let (start, length) = parameter(part)?;
        part.get(start..start + length)
    })?;
    let found = found.trim();
    let bare = found.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(found);
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
    let is_whole = (1..=LONGEST_BOUNDARY).contains(&bare.len()) && bare.bytes().all(is_good);
    is_whole.then_some(bare)
}

fn refuse(text: &'static str) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p15_a_form_names_the_line_between_its_parts() {
        let rows = [
            ("multipart/form-data; boundary=abc", Some("abc")),
            ("Multipart/Form-Data; charset=x; BOUNDARY=\"a b\"", Some("a b")),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary=", None),
            ("multipart/form-data; boundary=\"\"", None),
            ("multipart/mixed; boundary=abc", None),
            ("multipart/form-data; boundary=a\"b", None),
        ];
        for (kind, expected) in rows {
            assert_eq!(boundary(kind), expected, "{kind}");
        }
        assert_eq!(boundary(&format!("multipart/form-data; boundary={}", "x".repeat(71))), None);
    }
}
