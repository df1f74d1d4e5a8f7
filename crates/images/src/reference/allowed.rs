//! Which images an operator lets callers choose.

use std::{collections::BTreeSet, path::Path};

use super::{Kind, Reference, name::Name};

/// What may be chosen. An empty list allows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allowed {
    pub kinds: BTreeSet<Kind>,
    /// `/srv/images` holds for paths, `docker.io/library` for registries, `*` for any registry.
    /// Whole components are compared: `/srv/a` does not allow `/srv/ab`.
    pub prefixes: Vec<String>,
}

/// An operator does not allow this image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("images of the kind {0:?} are not allowed here")]
    Kind(Kind),
    #[error("the image is under none of the allowed prefixes")]
    Prefix,
}

impl Allowed {
    /// Decides over one image by its name alone. A path may still lead elsewhere by symbolic links:
    /// who opens it does so with [`crate::beneath::open`] and [`Self::prefix_of`].
    pub fn check(&self, reference: &Reference) -> Result<(), Refusal> {
        let kind = reference.kind();
        if !self.kinds.contains(&kind) {
            return Err(Refusal::Kind(kind));
        }
        let is_under_one = match reference {
            Reference::Host => true,
            Reference::Directory(path)
            | Reference::Archive(path)
            | Reference::Layout { path, tag: _ } => self.allows_path(path),
            Reference::Registry(name) => self.allows_name(name),
        };
        if is_under_one { Ok(()) } else { Err(Refusal::Prefix) }
    }

    fn allows_path(&self, path: &Path) -> bool {
        self.prefix_of(path).is_some()
    }

    /// Returns the prefix that allows a path.
    pub fn prefix_of(&self, path: &Path) -> Option<&Path> {
        let mut prefixes = self.prefixes.iter().map(Path::new).filter(|it| it.is_absolute());
        prefixes.find(|prefix| path.starts_with(prefix))
    }

    fn allows_name(&self, name: &Name) -> bool {
        let full = format!("{}/{}", name.registry(), name.repository());
        let mut prefixes = self.prefixes.iter().filter(|it| !it.starts_with('/'));
        prefixes.any(|prefix| {
            let rest = full.strip_prefix(prefix.trim_end_matches('/'));
            prefix == "*" || rest.is_some_and(|it| it.is_empty() || it.starts_with('/'))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row<'row> = (&'row [Kind], &'row [&'row str], &'row str, Result<(), Refusal>);

    #[test]
    fn an_image_needs_its_kind_and_a_prefix_on_the_list() {
        use Kind::{Dir, Host, Oci, Registry, Tar};
        let all = [Host, Dir, Tar, Oci, Registry];
        let rows: &[Row<'_>] = &[
            (&[], &["*", "/"], "host", Err(Refusal::Kind(Host))),
            (&[Host], &[], "host", Ok(())),
            (&[Host], &["*"], "python", Err(Refusal::Kind(Registry))),
            (&all, &[], "python", Err(Refusal::Prefix)),
            (&all, &["*"], "python", Ok(())),
            (&all, &["/"], "python", Err(Refusal::Prefix)),
            (&all, &["docker.io"], "python", Ok(())),
            (&all, &["docker.io/"], "python", Ok(())),
            (&all, &["docker.io/lib"], "python", Err(Refusal::Prefix)),
            (&all, &["docker.io/library"], "python", Ok(())),
            (&all, &["docker.io/library/python"], "python:3", Ok(())),
            (&all, &["docker.io/library/python"], "python2", Err(Refusal::Prefix)),
            (&all, &["example.com"], "example.com.evil.org/a", Err(Refusal::Prefix)),
            (&all, &["example.com"], "example.com:5000/a", Err(Refusal::Prefix)),
            (&all, &["*"], "dir:/srv", Err(Refusal::Prefix)),
            (&all, &["/srv/a"], "dir:/srv/a", Ok(())),
            (&all, &["/srv/a/"], "tar:/srv/a/x.tar", Ok(())),
            (&all, &["/srv/a"], "oci:/srv/ab", Err(Refusal::Prefix)),
            (&all, &["srv"], "dir:/srv", Err(Refusal::Prefix)),
            (&[Dir], &["/"], "tar:/x", Err(Refusal::Kind(Tar))),
        ];
        for (kinds, prefixes, text, expected) in rows {
            let allowed = Allowed {
                kinds: kinds.iter().copied().collect(),
                prefixes: prefixes.iter().map(ToString::to_string).collect(),
            };
            let reference = text.parse().expect(text);
            assert_eq!(&allowed.check(&reference), expected, "{prefixes:?} {text}");
        }
    }
}
