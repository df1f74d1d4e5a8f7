//! Files of a sandbox: what is known of them, what may be asked for, how a text in one is edited.

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStat {
    pub kind: FileKind,
    pub size: u64,
    /// The permission bits.
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    pub modified: FileTime,
    /// Names this version of the file: whatever changes it changes this. Fit for an `ETag`.
    pub tag: String,
}

/// A time, since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileTime {
    pub seconds: i64,
    pub nanos: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
    Unknown,
}

impl FileKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Device => "device",
            Self::Unknown => "unknown",
        }
    }
}

/// What has to be so for a file to be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// It has to be there, as one of these.
    pub is: Option<Tags>,
    /// It must not be there, or as none of these.
    pub is_not: Option<Tags>,
}

/// Versions of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tags {
    Any,
    These(Vec<String>),
}

impl Condition {
    /// It has to be this version.
    pub fn is(tag: &str) -> Self {
        Self { is: Some(Tags::These(vec![tag.to_owned()])), is_not: None }
    }

    pub fn is_any(&self) -> bool {
        self.is.is_none() && self.is_not.is_none()
    }
}

/// Something that has happened to a file, with its path from where it was watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileEvent {
    Created {
        path: Vec<u8>,
        is_directory: bool,
    },
    Changed {
        path: Vec<u8>,
    },
    Deleted {
        path: Vec<u8>,
        is_directory: bool,
    },
    /// More has happened than can be told: whoever wants to know looks anew.
    Overflow,
    /// What was watched is gone.
    Gone,
}

/// Why a text is not edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("old_string must not be empty")]
    Empty,
    #[error("old_string and new_string are the same")]
    Same,
    #[error("old_string does not stand in the file")]
    NotFound,
    #[error(
        "old_string stands in the file {0} times: add context until it is unique, or set replace_all"
    )]
    NotUnique(usize),
}

/// How often a text may stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occurrences {
    One,
    All,
}

/// Puts one text in the place of another. Returns the new text and how often that was done.
pub fn edit(
    text: &[u8],
    old: &[u8],
    new: &[u8],
    which: Occurrences,
) -> Result<(Vec<u8>, usize), EditError> {
    if old.is_empty() {
        return Err(EditError::Empty);
    }
    if old == new {
        return Err(EditError::Same);
    }
    let found = places(text, old);
    match (found.len(), which) {
        (0, _) => return Err(EditError::NotFound),
        (1, _) | (_, Occurrences::All) => {}
        (count, Occurrences::One) => return Err(EditError::NotUnique(count)),
    }
    let mut edited = Vec::with_capacity(text.len());
    let mut from = 0;
    for at in &found {
        edited.extend_from_slice(text.get(from..*at).unwrap_or_default());
        edited.extend_from_slice(new);
        from = at + old.len();
    }
    edited.extend_from_slice(text.get(from..).unwrap_or_default());
    Ok((edited, found.len()))
}

/// Finds a text from left to right, without overlaps.
fn places(text: &[u8], wanted: &[u8]) -> Vec<usize> {
    let finder = memchr::memmem::Finder::new(wanted);
    finder.find_iter(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_edited_where_it_is_meant() {
        let rows = [
            ("a b c", "b", "x", Occurrences::One, Ok(("a x c", 1))),
            ("a b b", "b", "x", Occurrences::One, Err(EditError::NotUnique(2))),
            ("a b b", "b", "xy", Occurrences::All, Ok(("a xy xy", 2))),
            ("aaa", "aa", "b", Occurrences::All, Ok(("ba", 1))),
            ("abc", "x", "y", Occurrences::All, Err(EditError::NotFound)),
            ("abc", "", "y", Occurrences::All, Err(EditError::Empty)),
            ("abc", "b", "b", Occurrences::One, Err(EditError::Same)),
            ("abc", "b", "", Occurrences::One, Ok(("ac", 1))),
        ];
        for (text, old, new, which, expected) in rows {
            let edited = edit(text.as_bytes(), old.as_bytes(), new.as_bytes(), which);
            let edited = edited.map(|(text, count)| (String::from_utf8(text).unwrap(), count));
            let expected = expected.map(|(text, count)| (text.to_owned(), count));
            assert_eq!(edited, expected, "{text} {old} {new}");
        }
    }
}
