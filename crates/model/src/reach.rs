//! How far into a sandbox's files somebody may reach: everywhere, or below some folders.
//!
//! Paths are compared as texts. That a link inside one of the folders leads nowhere else is the
//! business of whoever opens the file.

use std::{fmt, str::FromStr};

/// A folder of a sandbox, from its root: no `.`, no `..`, no empty part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Folder(String);

/// Why a text names no folder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a path is absolute, has at most {LONGEST} bytes, and no part that is empty, `.` or `..`")]
pub struct FolderError;

/// Why somebody cannot be confined to these folders.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReachError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("name 1 to {MOST} paths; without the field there is no confinement")]
    Count,
}

/// As long as a path may be at all.
const LONGEST: usize = 4096;
/// Folders that one token can name; it has to fit into a header.
const MOST: usize = 16;

impl Folder {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Tells whether a path is this folder or below it. What is not clean is not.
    pub fn contains(&self, path: &[u8]) -> bool {
        if !is_clean(path) {
            return false;
        }
        match path.strip_prefix(self.0.as_bytes()) {
            Some(rest) => rest.is_empty() || rest.starts_with(b"/") || self.0 == "/",
            None => false,
        }
    }
}

impl FromStr for Folder {
    type Err = FolderError;

    /// A slash at the end changes nothing.
    fn from_str(text: &str) -> Result<Self, FolderError> {
        let trimmed = match text.strip_suffix('/') {
            Some("" | "/") | None => text,
            Some(rest) => rest,
        };
        let is_plain = !trimmed.contains(char::is_control);
        if is_plain && is_clean(trimmed.as_bytes()) {
            Ok(Self(trimmed.to_owned()))
        } else {
            Err(FolderError)
        }
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which files of a sandbox may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    #[default]
    Everywhere,
    Below(Vec<Folder>),
}

impl Reach {
    /// Confines to these folders.
    pub fn below(folders: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, ReachError> {
        let read = folders.into_iter().take(MOST + 1).map(|folder| folder.as_ref().parse());
        let folders: Vec<Folder> = read.collect::<Result<_, _>>()?;
        if (1..=MOST).contains(&folders.len()) {
            Ok(Self::Below(folders))
        } else {
            Err(ReachError::Count)
        }
    }

    /// Tells whether a clean absolute path is within reach. What is not clean never is.
    pub fn contains(&self, path: &[u8]) -> bool {
        match self {
            Self::Everywhere => is_clean(path),
            Self::Below(folders) => folders.iter().any(|folder| folder.contains(path)),
        }
    }

    /// Returns the folder that a path within reach is to be opened beneath: the deepest.
    pub fn folder_of(&self, path: &[u8]) -> Option<&str> {
        match self {
            Self::Everywhere => is_clean(path).then_some("/"),
            Self::Below(folders) => {
                let around = folders.iter().filter(|folder| folder.contains(path));
                around.max_by_key(|folder| folder.0.len()).map(Folder::as_str)
            }
        }
    }

    /// Tells whether all that is within reach is within the other's too.
    pub fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Everywhere) => true,
            (Self::Everywhere, Self::Below(folders)) => folders.iter().any(|it| it.0 == "/"),
            (Self::Below(folders), other) => {
                folders.iter().all(|folder| other.contains(folder.0.as_bytes()))
            }
        }
    }

    /// Returns what is within reach of both.
    #[must_use]
    pub fn narrowed_to(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Everywhere, reach) | (reach, Self::Everywhere) => reach.clone(),
            (Self::Below(ours), Self::Below(theirs)) => {
                let within = |inner: &[Folder], outer: &[Folder]| -> Vec<Folder> {
                    let is_inside = |folder: &&Folder| {
                        outer.iter().any(|outer| outer.contains(folder.0.as_bytes()))
                    };
                    inner.iter().filter(is_inside).cloned().collect()
                };
                let mut both = within(ours, theirs);
                both.extend(within(theirs, ours));
                both.sort();
                both.dedup();
                Self::Below(both)
            }
        }
    }
}

fn is_clean(path: &[u8]) -> bool {
    if path == b"/" {
        return true;
    }
    let is_part = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.contains(&0);
    match path.strip_prefix(b"/") {
        Some(rest) => path.len() <= LONGEST && rest.split(|byte| *byte == b'/').all(is_part),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_folder_contains_itself_and_what_is_below_it() {
        let rows = [
            ("/a", "/a", true),
            ("/a", "/a/b", true),
            ("/a", "/a/b/c", true),
            ("/a", "/ab", false),
            ("/a", "/", false),
            ("/a", "/b/a", false),
            ("/a/b", "/a", false),
            ("/", "/", true),
            ("/", "/etc/passwd", true),
            ("/a", "/a/../b", false),
            ("/a", "/a/..", false),
            ("/a", "/a/./b", false),
            ("/a", "/a//b", false),
            ("/a", "/a/", false),
            ("/a", "a/b", false),
            ("/a", "", false),
            ("/a", "/a/\0", false),
            ("/a", "/a/...", true),
        ];
        for (folder, path, expected) in rows {
            let folder: Folder = folder.parse().unwrap();
            assert_eq!(folder.contains(path.as_bytes()), expected, "{folder} {path:?}");
        }
        assert!("/a".parse::<Folder>().unwrap().contains(b"/a/\xff"));
    }

    #[test]
    fn folders_are_absolute_and_clean() {
        for (text, kept) in [("/", "/"), ("/a/", "/a"), ("/a b/c", "/a b/c")] {
            assert_eq!(text.parse::<Folder>().unwrap().as_str(), kept);
        }
        let long = format!("/{}", "x".repeat(LONGEST));
        for bad in ["", "a", "./a", "//", "/a//", "/a/../b", "/..", "/a/.", "/a\nb", "/\0", &long] {
            assert_eq!(bad.parse::<Folder>(), Err(FolderError), "{bad:?}");
        }
        assert_eq!(Reach::below([""; 0]), Err(ReachError::Count));
        assert_eq!(Reach::below(["/a"; 17]), Err(ReachError::Count));
        assert_eq!(Reach::below(["/a", "b"]), Err(ReachError::Folder(FolderError)));
    }

    #[test]
    fn a_path_is_opened_beneath_the_deepest_folder_around_it() {
        let reach = Reach::below(["/a", "/a/b", "/c"]).unwrap();
        assert_eq!(reach.folder_of(b"/a/b/x"), Some("/a/b"));
        assert_eq!(reach.folder_of(b"/a/x"), Some("/a"));
        assert_eq!(reach.folder_of(b"/x"), None);
        assert_eq!(Reach::Everywhere.folder_of(b"/x"), Some("/"));
        assert_eq!(Reach::Everywhere.folder_of(b"/x/.."), None);
    }

    fn path() -> impl Strategy<Value = String> {
        proptest::collection::vec(proptest::sample::select(&["a", "b", "ab", "..", ""][..]), 0..4)
            .prop_map(|parts| format!("/{}", parts.join("/")))
    }

    fn reach() -> impl Strategy<Value = Reach> {
        proptest::collection::vec(path(), 0..4).prop_map(|paths| {
            let folders: Vec<Folder> = paths.iter().filter_map(|path| path.parse().ok()).collect();
            if folders.is_empty() { Reach::Everywhere } else { Reach::Below(folders) }
        })
    }

    proptest! {
        #[test]
        fn narrowing_never_widens(one in reach(), other in reach(), path in path()) {
            let path = path.as_bytes();
            let expected = one.contains(path) && other.contains(path);
            prop_assert_eq!(one.narrowed_to(&other).contains(path), expected);
        }

        #[test]
        fn what_is_within_reaches_nothing_else(one in reach(), other in reach(), path in path()) {
            let path = path.as_bytes();
            prop_assert!(!one.is_within(&other) || !one.contains(path) || other.contains(path));
            prop_assert!(one.narrowed_to(&other).is_within(&other));
            prop_assert!(one.is_within(&one));
        }
    }
}
