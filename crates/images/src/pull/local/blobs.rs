//! Blobs in a folder or in an archive, each a part of some file.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    super::{
        PullError,
        manifest::{self, Descriptor},
    },
    Opener, hashed, read_error,
    saved::Contents,
};
use crate::digest::Digest;

/// Where the parts of an image are.
pub(in crate::pull) struct Blobs {
    place: Place,
    path: PathBuf,
}

enum Place {
    Layout(Opener),
    Archive {
        file: Arc<File>,
        contents: Contents,
    },
    /// One layer, which is all of a file.
    One(Arc<File>),
}

impl Blobs {
    pub(super) fn opened_by(open: Opener, path: &Path) -> Self {
        Self { place: Place::Layout(open), path: path.to_owned() }
    }

    pub(super) fn in_archive(file: File, contents: Contents, path: &Path) -> Self {
        let place = Place::Archive { file: Arc::new(file), contents };
        Self { place, path: path.to_owned() }
    }

    /// Returns a source of one layer, and how to ask for it.
    pub(super) fn one(file: File, digest: Digest) -> (Self, Descriptor) {
        let place = Place::One(Arc::new(file));
        (Self { place, path: PathBuf::new() }, descriptor(digest))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.part(name).is_ok()
    }

    /// Reads a small part.
    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>, PullError> {
        let part = self.part(name)?;
        let limit = manifest::LARGEST;
        let mut bytes = Vec::new();
        part.take(limit + 1).read_to_end(&mut bytes).map_err(read_error(&self.path))?;
        if bytes.len() as u64 > limit {
            return Err(PullError::TooLarge { what: name.to_owned(), limit });
        }
        Ok(bytes)
    }

    pub(super) fn read_checked(&self, blob: &Descriptor) -> Result<Vec<u8>, PullError> {
        let bytes = self.read(&name_of(blob.digest))?;
        manifest::check_digest(blob.digest, &bytes)?;
        Ok(bytes)
    }

    /// Opens a layer. Its blob is checked, where it has a digest of its own; what it unpacks to is
    /// checked in any case.
    pub(in crate::pull) fn open(&self, blob: &Descriptor) -> Result<Part, PullError> {
        match &self.place {
            Place::One(file) => Ok(Part::whole_of(file)),
            Place::Archive { file, contents } if contents.layers.contains_key(&blob.digest) => {
                let name = contents.layers.get(&blob.digest).map_or("", String::as_str);
                part_of(file, contents, name).ok_or_else(|| self.missing())
            }
            Place::Archive { .. } | Place::Layout(_) => {
                let part = self.part(&name_of(blob.digest))?;
                let (found, size) = hashed(&mut part.clone()).map_err(read_error(&self.path))?;
                if size != blob.size {
                    let what = format!("the blob {}", blob.digest);
                    return Err(PullError::Size { what, expected: blob.size, found: size });
                }
                if found != blob.digest {
                    return Err(PullError::Digest { expected: blob.digest, found });
                }
                Ok(part)
            }
        }
    }

    /// Says which file of a saved image is which layer, and returns how to ask for them.
    pub(super) fn name_layers(&mut self, layers: Vec<(Digest, String)>) -> Vec<Descriptor> {
        let asked = layers.iter().map(|(digest, _)| descriptor(*digest)).collect();
        if let Place::Archive { contents, .. } = &mut self.place {
            contents.layers = layers.into_iter().collect();
        }
        asked
    }

    fn part(&self, name: &str) -> Result<Part, PullError> {
        match &self.place {
            Place::Layout(open) => {
                let file = open(name).map_err(read_error(&self.path.join(name)))?;
                Ok(Part::whole_of(&Arc::new(file)))
            }
            Place::Archive { file, contents } => {
                part_of(file, contents, name).ok_or_else(|| self.missing())
            }
            Place::One(_) => Err(self.missing()),
        }
    }

    fn missing(&self) -> PullError {
        PullError::NotAnImage { path: self.path.clone(), why: "a part of it is missing" }
    }
}

fn part_of(file: &Arc<File>, contents: &Contents, name: &str) -> Option<Part> {
    let (at, left) = contents.find(name)?;
    Some(Part { file: file.clone(), at, left })
}

fn descriptor(digest: Digest) -> Descriptor {
    Descriptor { digest, size: 0, platform: None, annotations: BTreeMap::new() }
}

fn name_of(digest: Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// A part of a file. Several can be read at once.
#[derive(Debug, Clone)]
pub(in crate::pull) struct Part {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Part {
    pub(in crate::pull) fn whole_of(file: &Arc<File>) -> Self {
        Self { file: file.clone(), at: 0, left: u64::MAX }
    }

    /// Reads a file from its start, wherever others have come to in it.
    pub(super) fn whole(file: &File) -> impl Read {
        struct Whole<'file>(&'file File, u64);
        impl Read for Whole<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let count = self.0.read_at(buffer, self.1)?;
                self.1 += count as u64;
                Ok(count)
            }
        }
        Whole(file, 0)
    }
}

impl Read for Part {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read_at(buffer.get_mut(..most).unwrap_or_default(), self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}
