//! Which path a request means, and whether whoever makes it may go there.

use std::collections::HashMap;

use api::errors::ErrorCode;
use axum::http::Uri;
use engine::sandboxes::files::Place;
use model::path::{CleanPath, PathError};

use crate::{dataplane::access::Access, http::problem::ApiError};

/// What the path of a URL begins with before that of a file: `/dp/{sandbox_id}/files/`.
const BEFORE: usize = 4;

/// Parameters that one request may have.
const MOST_PARAMETERS: usize = 32;

/// Reads the path of `/files/{path}`, which is from the root of the sandbox. It is taken from the URL
/// as it was sent and decoded once, since a name is bytes.
pub(super) fn of_url(access: &Access, uri: &Uri) -> Result<Place, ApiError> {
    let mut slashes = uri.path().match_indices('/').skip(BEFORE - 1);
    let start = slashes.next().map_or(uri.path().len(), |(at, _)| at);
    let bytes = decode(uri.path().get(start..).unwrap_or_default(), Plus::Itself)?;
    reachable(access, read(&bytes, "/")?)
}

/// Reads the path of a parameter or a message. One that is relative is from the user's home.
pub(super) fn of_text(access: &Access, text: &[u8]) -> Result<Place, ApiError> {
    reachable(access, read(text, access.sandboxes().home(access.sandbox()))?)
}

fn read(text: &[u8], base: &str) -> Result<CleanPath, ApiError> {
    CleanPath::read(text, base).map_err(refused)
}

pub(super) fn refused(error: PathError) -> ApiError {
    ApiError::new(ErrorCode::InvalidPath, error.to_string())
}

fn reachable(access: &Access, path: CleanPath) -> Result<Place, ApiError> {
    let folder = access.reach().folder_of(path.as_bytes());
    folder.and_then(|folder| Place::new(folder, path)).ok_or_else(|| {
        let text = "the path is not within the folders of the token: ask for one that names it";
        ApiError::new(ErrorCode::Forbidden, text)
    })
}

/// The parameters of a URL. Names are text, values are bytes.
#[derive(Debug)]
pub(super) struct Parameters(HashMap<String, Vec<u8>>);

impl Parameters {
    /// Reads them; one that is not known, or comes twice, is refused.
    pub(super) fn read(uri: &Uri, known: &[&str]) -> Result<Self, ApiError> {
        let refuse = |text: String| ApiError::new(ErrorCode::InvalidRequest, text);
        let mut all = HashMap::new();
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        for pair in pairs.take(MOST_PARAMETERS) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !known.contains(&name) {
                let known = known.join(", ");
                return Err(refuse(format!("a parameter is not known: there are {known}")));
            }
            let value = decode(value, Plus::Blank)?;
            if all.insert(name.to_owned(), value).is_some() {
                return Err(refuse(format!("{name} comes more than once")));
            }
        }
        Ok(Self(all))
    }

    pub(super) fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// Returns a parameter as text.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let text = self.bytes(name).map(std::str::from_utf8).transpose();
        text.map_err(|_not_text| {
            ApiError::new(ErrorCode::InvalidRequest, format!("{name} is not UTF-8"))
        })
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, ApiError> {
        match self.text(name)? {
            None => Ok(default),
            Some("true" | "1") => Ok(true),
            Some("false" | "0") => Ok(false),
            Some(_) => {
                let text = format!("{name} is true or false");
                Err(ApiError::new(ErrorCode::InvalidRequest, text))
            }
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u32>, ApiError> {
        let bad = || ApiError::new(ErrorCode::InvalidRequest, format!("{name} is a number"));
        self.text(name)?.map(|text| text.parse().map_err(|_not_a_number| bad())).transpose()
    }

    /// Returns the place that `path` names.
    pub(super) fn place(&self, access: &Access) -> Result<Place, ApiError> {
        of_text(access, self.bytes("path").unwrap_or_default())
    }

    pub(super) fn mode(&self) -> Result<Option<u32>, ApiError> {
        self.text("mode")?.map(mode).transpose()
    }
}

/// Reads permission bits. Whatever else is set is not.
pub(super) fn mode(text: &str) -> Result<u32, ApiError> {
    let is_octal = !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if is_octal => Ok(mode & 0o777),
        _ => Err(ApiError::new(ErrorCode::InvalidRequest, "mode is octal digits, such as 0644")),
    }
}

/// What a plus sign stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plus {
    Itself,
    Blank,
}

/// Decodes what is written as `%XX`, once.
fn decode(text: &str, plus: Plus) -> Result<Vec<u8>, ApiError> {
    let bad = || ApiError::new(ErrorCode::InvalidPath, "a % is followed by two hexadecimal digits");
    let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let high = digit(bytes.next()).ok_or_else(bad)?;
                let low = digit(bytes.next()).ok_or_else(bad)?;
                u8::try_from(high << 4 | low).map_err(|_never| bad())?
            }
            b'+' if plus == Plus::Blank => b' ',
            byte => byte,
        });
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p01_a_path_is_decoded_exactly_once() {
        let rows: [(&str, &[u8]); 6] = [
            ("%2e%2e%2f", b"../"),
            ("%252e", b"%2e"),
            ("%c0%ae", b"\xc0\xae"),
            ("a+b%2B", b"a+b+"),
            ("%00", b"\0"),
            ("a", b"a"),
        ];
        for (text, expected) in rows {
            assert_eq!(decode(text, Plus::Itself).unwrap(), expected, "{text}");
        }
        assert_eq!(decode("a+b", Plus::Blank).unwrap(), b"a b");
        for bad in ["%", "%2", "%zz", "%+1"] {
            assert!(decode(bad, Plus::Itself).is_err(), "{bad}");
        }
    }

    #[test]
    fn p14_of_a_mode_only_permissions_count() {
        let rows = [("644", 0o644), ("0644", 0o644), ("4755", 0o755), ("777777", 0o777)];
        for (text, expected) in rows {
            assert_eq!(mode(text).unwrap(), expected, "{text}");
        }
        for bad in ["", "-1", "+644", "9", "rw", "0o644", "77777777777777"] {
            assert!(mode(bad).is_err(), "{bad}");
        }
    }
}
