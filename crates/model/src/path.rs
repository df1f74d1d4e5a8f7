//! Paths inside a sandbox, as callers write them.
//!
//! A path is bytes, kept as they are: nothing is decoded, normalised or expanded here, so that `~` and
//! `\` are characters like any other. What a link in it leads to is the business of whoever opens it.

/// The longest path.
pub const LONGEST: usize = 4096;
/// The longest name in it.
pub const LONGEST_NAME: usize = 255;
/// How many names may stand in it.
pub const DEEPEST: usize = 256;

/// A path from the root of a sandbox: no empty name in it, no `.`, no `..`, no control character.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CleanPath(Vec<u8>);

/// Why a path names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("a path must not be empty")]
    Empty,
    #[error("a path must not hold `..`: name what you mean from the root")]
    Up,
    #[error("a path must not hold control characters")]
    Control,
    #[error("a name has at most {LONGEST_NAME} bytes")]
    LongName,
    #[error("a path has at most {LONGEST} bytes")]
    Long,
    #[error("a path has at most {DEEPEST} names")]
    Deep,
}

impl CleanPath {
    /// Reads a path. One that does not begin with a slash is from this base.
    pub fn read(text: &[u8], base: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        let mut path = Self(Vec::new());
        if !text.starts_with(b"/") {
            path.append(base.as_bytes())?;
        }
        path.append(text)?;
        Ok(path)
    }

    /// Returns what is below this path under a relative one.
    pub fn join(&self, text: &[u8]) -> Result<Self, PathError> {
        let mut path = self.clone();
        path.append(text)?;
        Ok(path)
    }

    fn append(&mut self, text: &[u8]) -> Result<(), PathError> {
        if text.len() > LONGEST {
            return Err(PathError::Long);
        }
        if text.iter().any(u8::is_ascii_control) {
            return Err(PathError::Control);
        }
        let names = text.split(|byte| *byte == b'/');
        for name in names.filter(|name| !matches!(*name, b"" | b".")) {
            if name == b".." {
                return Err(PathError::Up);
            }
            if name.len() > LONGEST_NAME {
                return Err(PathError::LongName);
            }
            self.0.push(b'/');
            self.0.extend_from_slice(name);
        }
        let depth = self.0.split(|byte| *byte == b'/').skip(1).count();
        match self.0.len() {
            ..=LONGEST if depth <= DEEPEST => Ok(()),
            ..=LONGEST => Err(PathError::Deep),
            _ => Err(PathError::Long),
        }
    }

    /// Returns it as it is written: `/` for the root, and else without a slash at its end.
    pub fn as_bytes(&self) -> &[u8] {
        if self.0.is_empty() { b"/" } else { &self.0 }
    }

    /// Returns what remains of it below this folder, without a slash at either end.
    pub fn below(&self, folder: &[u8]) -> Option<&[u8]> {
        let folder = folder.strip_suffix(b"/").unwrap_or(folder);
        let rest = self.0.strip_prefix(folder)?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"/") }
    }

    /// Returns its last name. The root has none.
    pub fn name(&self) -> Option<&[u8]> {
        self.0.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty())
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "/home/agbox";

    fn read(text: &str) -> Result<String, PathError> {
        let path = CleanPath::read(text.as_bytes(), HOME)?;
        Ok(String::from_utf8(path.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn p01_a_path_is_from_the_root_or_from_the_base_and_never_goes_up() {
        let rows = [
            ("/abs", "/abs"),
            ("//x", "/x"),
            ("rel", "/home/agbox/rel"),
            ("./", "/home/agbox"),
            ("a/./b", "/home/agbox/a/b"),
            ("a//b", "/home/agbox/a/b"),
            ("/a/", "/a"),
            ("/", "/"),
            ("/a\\b", "/a\\b"),
            ("~", "/home/agbox/~"),
            ("$HOME", "/home/agbox/$HOME"),
            ("%2e%2e%2f", "/home/agbox/%2e%2e%2f"),
            ("/...", "/..."),
            ("/..a", "/..a"),
        ];
        for (text, expected) in rows {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
        for up in ["../x", "a/../../x", "/a/..", "..", "/.."] {
            assert_eq!(read(up), Err(PathError::Up), "{up}");
        }
        let overlong = CleanPath::read(b"/\xc0\xae\xc0\xae/x", HOME).unwrap();
        assert_eq!(overlong.as_bytes(), b"/\xc0\xae\xc0\xae/x");
    }

    #[test]
    fn p02_what_is_too_long_too_deep_or_no_text_is_refused() {
        let rows = [
            ("", PathError::Empty),
            ("/a\0b", PathError::Control),
            ("/a\nb", PathError::Control),
            ("/a\x7fb", PathError::Control),
            (&format!("/{}", "x".repeat(256)), PathError::LongName),
            (&format!("/{}", "x/".repeat(2048)), PathError::Long),
            (&"/x".repeat(257), PathError::Deep),
        ];
        for (text, expected) in rows {
            assert_eq!(read(text), Err(expected), "{text:?}");
        }
        assert!(read(&format!("/{}", "x".repeat(255))).is_ok());
        assert!(read(&"/x".repeat(256)).is_ok());
        // A relative one is as long as it is with its base.
        let long = format!("{}/{}", "x".repeat(255), "y/".repeat(1917));
        assert!(read(&long).is_err());
    }

    #[test]
    fn what_is_below_a_folder_is_known_by_whole_names() {
        let path = CleanPath::read(b"/work/a/b", "/").unwrap();
        assert_eq!(path.below(b"/"), Some(b"work/a/b".as_slice()));
        assert_eq!(path.below(b"/work"), Some(b"a/b".as_slice()));
        assert_eq!(path.below(b"/work/a/b"), Some(b"".as_slice()));
        assert_eq!(path.below(b"/wor"), None);
        assert_eq!(path.below(b"/other"), None);
        assert_eq!(path.name(), Some(b"b".as_slice()));
        let root = CleanPath::read(b"/", "/").unwrap();
        assert_eq!((root.below(b"/"), root.name()), (Some(b"".as_slice()), None));
    }
}
