//! What the name of an entry asks for.

use rustix::io::Errno;

use super::error::{Limit, UnpackError, cannot_write, shown};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// What an old union file system kept for itself.
const RESERVED: &[u8] = b".wh..wh.";

const LONGEST_COMPONENT: usize = 255;

/// A name, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked<'name> {
    /// The target itself.
    Root,
    Entry(Place<'name>),
    /// Nothing of the layers below is to be seen at this place.
    Whiteout(Place<'name>),
    /// Nothing of the layers below is to be seen in this directory.
    Opaque(Vec<&'name [u8]>),
    Nothing,
}

/// A directory, and a name in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place<'name> {
    pub(super) parent: Vec<&'name [u8]>,
    pub(super) last: &'name [u8],
}

impl Place<'_> {
    pub(super) fn path(&self) -> Vec<u8> {
        let mut path = self.parent.join(&b'/');
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(self.last);
        path
    }

    pub(super) fn cannot_write(&self, errno: Errno) -> UnpackError {
        cannot_write(&self.path())(errno)
    }
}

pub(super) fn asked(name: &[u8], depth: usize) -> Result<Asked<'_>, UnpackError> {
    let mut parent = components(name, depth)?;
    let Some(last) = parent.pop() else { return Ok(Asked::Root) };
    if parent.iter().any(|component| component.starts_with(WHITEOUT)) {
        return Err(UnpackError::Name(shown(name)));
    }
    if last == OPAQUE {
        return Ok(Asked::Opaque(parent));
    }
    if last.starts_with(RESERVED) {
        return Ok(Asked::Nothing);
    }
    match last.strip_prefix(WHITEOUT) {
        None => Ok(Asked::Entry(Place { parent, last })),
        Some(b"" | b"." | b"..") => Err(UnpackError::Name(shown(name))),
        Some(last) => Ok(Asked::Whiteout(Place { parent, last })),
    }
}

/// Splits the target of a hard link, which is a name in the same archive.
pub(super) fn place(name: &[u8], depth: usize) -> Result<Option<Place<'_>>, UnpackError> {
    let mut parent = components(name, depth)?;
    Ok(parent.pop().map(|last| Place { parent, last }))
}

/// A leading slash means the root of the image, as it does for every program inside it. A step up is
/// refused even where it would stay inside: no honest builder writes one.
fn components(name: &[u8], depth: usize) -> Result<Vec<&[u8]>, UnpackError> {
    let components: Vec<&[u8]> =
        name.split(|byte| *byte == b'/').filter(|it| !matches!(*it, b"" | b".")).collect();
    let is_wrong = |it: &&[u8]| *it == b".." || it.len() > LONGEST_COMPONENT || it.contains(&0);
    if components.iter().any(is_wrong) {
        return Err(UnpackError::Name(shown(name)));
    }
    if components.len() > depth {
        return Err(UnpackError::TooLarge(Limit::Depth(depth)));
    }
    Ok(components)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_is_wanted() {
        let place = |parent: &[&'static str], last: &'static str| Place {
            parent: parent.iter().map(|it| it.as_bytes()).collect(),
            last: last.as_bytes(),
        };
        let rows = [
            ("./", Asked::Root),
            ("/", Asked::Root),
            ("a", Asked::Entry(place(&[], "a"))),
            ("./a//b/./c/", Asked::Entry(place(&["a", "b"], "c"))),
            ("/etc/passwd", Asked::Entry(place(&["etc"], "passwd"))),
            ("a/.wh.b", Asked::Whiteout(place(&["a"], "b"))),
            ("a/.wh..b", Asked::Whiteout(place(&["a"], ".b"))),
            ("a/.wh..wh..opq", Asked::Opaque(vec![b"a"])),
            ("a/.wh..wh.plnk", Asked::Nothing),
        ];
        for (name, expected) in rows {
            assert_eq!(asked(name.as_bytes(), 8).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn names_that_lead_out_or_deceive_are_refused() {
        let long = "a".repeat(256);
        let names = ["..", "a/..", "../a", "a/../../b", "/..", ".wh.", ".wh..", ".wh...", &long];
        for name in names {
            assert!(matches!(asked(name.as_bytes(), 8), Err(UnpackError::Name(_))), "{name}");
        }
        assert!(matches!(asked(b".wh.a/b", 8), Err(UnpackError::Name(_))));
        let deep = asked(b"a/a/a", 2);
        assert!(matches!(deep, Err(UnpackError::TooLarge(Limit::Depth(2)))));
    }
}
