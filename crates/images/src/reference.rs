//! The names by which callers choose an image.
//!
//! `host`, `dir:PATH`, `tar:PATH`, `oci:PATH[:TAG]`, or a name in a registry. There is no hidden
//! default: an empty name is refused.

pub mod allowed;
pub mod name;

use std::{
    fmt,
    path::{Component, Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use self::name::Name;

/// The longest text that is looked at.
const LONGEST: usize = 4096;

/// Which image is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// The machine's own programs.
    Host,
    /// A directory that is used in place, read-only.
    Directory(PathBuf),
    /// A file: a saved image, or the root file system itself.
    Archive(PathBuf),
    /// A directory in the layout of OCI, and which of its images.
    Layout { path: PathBuf, tag: Option<String> },
    /// An image in a registry.
    Registry(Name),
}

/// What an image is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Host,
    Dir,
    Tar,
    Oci,
    Registry,
}

/// The text names no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    #[error("an image is needed")]
    Empty,
    #[error("the image name is longer than {LONGEST} bytes")]
    TooLong,
    #[error("the image name has a control character or a blank in it")]
    Character,
    #[error("{0:?} is not an absolute path")]
    RelativePath(String),
    #[error("the path {0:?} has `..` in it")]
    ParentInPath(String),
    #[error("{0:?} is not the name of a registry")]
    Registry(String),
    #[error("{0:?} is not the name of a repository: lower-case words with single separators")]
    Repository(String),
    #[error("{0:?} is not a tag")]
    Tag(String),
    #[error(transparent)]
    Digest(#[from] crate::digest::DigestError),
}

impl Reference {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Host => Kind::Host,
            Self::Directory(_) => Kind::Dir,
            Self::Archive(_) => Kind::Tar,
            Self::Layout { .. } => Kind::Oci,
            Self::Registry(_) => Kind::Registry,
        }
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        check_text(text)?;
        if text == "host" {
            return Ok(Self::Host);
        }
        match text.split_once(':') {
            Some(("dir", path)) => Ok(Self::Directory(absolute(path)?)),
            Some(("tar", path)) => Ok(Self::Archive(absolute(path)?)),
            Some(("oci", rest)) => layout(rest),
            _ => Ok(Self::Registry(text.parse()?)),
        }
    }
}

fn check_text(text: &str) -> Result<(), ReferenceError> {
    if text.is_empty() {
        return Err(ReferenceError::Empty);
    }
    if text.len() > LONGEST {
        return Err(ReferenceError::TooLong);
    }
    let is_path = ["dir:", "tar:", "oci:"].iter().any(|kind| text.starts_with(kind));
    let is_wrong = |it: char| it.is_control() || (!is_path && it.is_whitespace());
    if text.contains(is_wrong) {
        return Err(ReferenceError::Character);
    }
    Ok(())
}

/// A relative path would depend on where the server was started.
fn absolute(text: &str) -> Result<PathBuf, ReferenceError> {
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(ReferenceError::RelativePath(text.to_owned()));
    }
    if path.components().any(|it| it == Component::ParentDir) {
        return Err(ReferenceError::ParentInPath(text.to_owned()));
    }
    // Collecting the components drops `.`, doubled and trailing slashes.
    Ok(path.components().collect())
}

/// A colon in the last component begins the tag.
fn layout(text: &str) -> Result<Reference, ReferenceError> {
    let full = absolute(text)?.to_string_lossy().into_owned();
    let (path, tag) = match full.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (full.as_str(), None),
    };
    if let Some(tag) = tag.filter(|tag| !name::is_tag(tag)) {
        return Err(ReferenceError::Tag(tag.to_owned()));
    }
    Ok(Reference::Layout { path: absolute(path)?, tag: tag.map(str::to_owned) })
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => formatter.write_str("host"),
            Self::Directory(path) => write!(formatter, "dir:{}", path.display()),
            Self::Archive(path) => write!(formatter, "tar:{}", path.display()),
            Self::Layout { path, tag: None } => write!(formatter, "oci:{}", path.display()),
            Self::Layout { path, tag: Some(tag) } => {
                write!(formatter, "oci:{}:{tag}", path.display())
            }
            Self::Registry(name) => fmt::Display::fmt(name, formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<String, ReferenceError> {
        text.parse::<Reference>().map(|it| format!("{:?} {it}", it.kind()))
    }

    #[test]
    fn a_name_is_brought_into_its_full_form() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let rows = [
            ("host", "Host host".to_owned()),
            ("dir:/srv//root/./", "Dir dir:/srv/root".to_owned()),
            ("tar:/a b.tar", "Tar tar:/a b.tar".to_owned()),
            ("oci:/srv/layout", "Oci oci:/srv/layout".to_owned()),
            ("oci:/srv/layout:v1", "Oci oci:/srv/layout:v1".to_owned()),
            ("oci:/srv/a:b/c", "Oci oci:/srv/a:b/c".to_owned()),
            ("python", "Registry docker.io/library/python:latest".to_owned()),
            ("python:3.12", "Registry docker.io/library/python:3.12".to_owned()),
            ("team/tool", "Registry docker.io/team/tool:latest".to_owned()),
            ("index.docker.io/python", "Registry docker.io/library/python:latest".to_owned()),
            ("localhost/python", "Registry localhost/python:latest".to_owned()),
            ("localhost:5000/a/b:t", "Registry localhost:5000/a/b:t".to_owned()),
            ("127.0.0.1:5000/a", "Registry 127.0.0.1:5000/a:latest".to_owned()),
            ("[::1]:5000/a", "Registry [::1]:5000/a:latest".to_owned()),
            ("Example.com/a__b/c-d.e", "Registry example.com/a__b/c-d.e:latest".to_owned()),
            (&format!("x@{digest}"), format!("Registry docker.io/library/x@{digest}")),
            (&format!("x:t@{digest}"), format!("Registry docker.io/library/x:t@{digest}")),
        ];
        for (text, expected) in rows {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_name_is_said() {
        use ReferenceError as E;
        let repository = |it: &str| Err(E::Repository(it.into()));
        let rows = [
            ("", Err(E::Empty)),
            ("a b", Err(E::Character)),
            ("a\n", Err(E::Character)),
            ("dir:", Err(E::RelativePath(String::new()))),
            ("dir:images/a", Err(E::RelativePath("images/a".into()))),
            ("tar:/a/../b", Err(E::ParentInPath("/a/../b".into()))),
            ("oci:/a:", Err(E::Tag(String::new()))),
            ("oci:/a:.x", Err(E::Tag(".x".into()))),
            ("Python", repository("Python")),
            ("a//b", repository("a//b")),
            ("a/../b", repository("a/../b")),
            ("a/", repository("a/")),
            ("-a", repository("-a")),
            ("a___b", repository("a___b")),
            ("example.com/", repository("")),
            ("example.com:0/a", Err(E::Registry("example.com:0".into()))),
            ("example.com:99999/a", Err(E::Registry("example.com:99999".into()))),
            ("exa_mple.com/a", Err(E::Registry("exa_mple.com".into()))),
            ("user@example.com/a", Err(E::Registry("user@example.com".into()))),
            ("a:", Err(E::Tag(String::new()))),
            ("a:b:c", repository("a:b")),
            ("a@sha256:00", Err(crate::digest::DigestError::Digits("sha256:00".into()).into())),
        ];
        for (text, expected) in rows {
            assert_eq!(read(text), expected, "{text:?}");
        }
        assert_eq!(read(&"a".repeat(LONGEST + 1)), Err(E::TooLong));
        // It is longer when it is written out.
        assert!(read(&"a".repeat(255 - "library/".len())).is_ok());
        let longer = "a".repeat(255);
        assert_eq!(read(&longer), repository(&longer));
    }

    proptest! {
        #[test]
        fn the_full_form_names_the_same_image(text in "[a-z:/@.]{0,24}|(dir|tar|oci):/[a-z:/.]{0,12}") {
            if let Ok(reference) = text.parse::<Reference>() {
                prop_assert_eq!(reference.to_string().parse(), Ok(reference));
            }
        }
    }
}
