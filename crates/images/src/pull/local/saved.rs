//! Archives that hold images: what is where in them.

use std::{collections::BTreeMap, fs::File, io, path::Path};

use serde::Deserialize;

use super::{
    super::{Found, PullError},
    Blobs, Part, several, unpack_error,
};
use crate::{
    archive::{Bounds, EntryKind, Reader},
    config::Config,
    digest::Digest,
    unpack::{self, Limits, error::UnpackError},
};

/// An image has at most some hundred layers, with three files each.
const MOST_ENTRIES: usize = 10_000;

const TOP: [&str; 4] = ["manifest.json", "index.json", "oci-layout", "repositories"];

/// The files of an archive, by where they begin and how long they are.
#[derive(Debug, Default)]
pub(super) struct Contents {
    files: BTreeMap<String, (u64, u64)>,
    links: BTreeMap<String, String>,
    /// Which file is which layer, where a saved image says so.
    pub(super) layers: BTreeMap<Digest, String>,
}

impl Contents {
    /// Looks through an archive. Returns `None` if it holds no image but files of a system.
    pub(super) fn of(
        file: &File,
        is_compressed: bool,
        limits: &Limits,
        path: &Path,
    ) -> Result<Option<Self>, PullError> {
        let failed = |source: UnpackError| unpack_error(path, source);
        if is_compressed {
            let reader = unpack::uncompressed(Part::whole(file), limits).map_err(failed)?;
            return Self::read(reader).map_err(failed);
        }
        Self::read(io::BufReader::new(Part::whole(file))).map_err(failed)
    }

    fn read(reader: impl io::Read) -> Result<Option<Self>, UnpackError> {
        let mut archive = Reader::new(Positioned { inner: reader, at: 0 }, Bounds::default());
        let mut contents = Self::default();
        while let Some(entry) = archive.next_entry()? {
            let name = String::from_utf8_lossy(&entry.name);
            let name = name.trim_start_matches("./").trim_end_matches('/').to_owned();
            if !is_of_an_image(&name) || contents.files.len() > MOST_ENTRIES {
                return Ok(None);
            }
            match entry.kind {
                EntryKind::File => {
                    contents.files.insert(name, (archive.get_ref().at, entry.size));
                }
                EntryKind::SymbolicLink { target } | EntryKind::HardLink { target } => {
                    let target = String::from_utf8_lossy(&target);
                    // Old programs link a layer to the same one in the folder beside it.
                    let target = target.trim_start_matches("../").to_owned();
                    contents.links.insert(name, target);
                }
                _ => {}
            }
        }
        let is_image = ["manifest.json", "index.json"].iter().any(|it| contents.find(it).is_some());
        Ok(is_image.then_some(contents))
    }

    pub(super) fn find(&self, name: &str) -> Option<(u64, u64)> {
        let name = self.links.get(name).map_or(name, String::as_str);
        self.files.get(name).copied()
    }
}

/// Image archives have nothing in them but these.
fn is_of_an_image(name: &str) -> bool {
    let first = name.split('/').next().unwrap_or_default();
    let stem = first.split('.').next().unwrap_or_default();
    let is_digest = stem.len() == 64 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.is_empty() || TOP.contains(&name) || first == "blobs" || is_digest
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Finds the image in what `docker save` wrote.
pub(super) fn image_in(blobs: &mut Blobs, path: &Path) -> Result<Found, PullError> {
    let list = blobs.read("manifest.json")?;
    let mut list: Vec<Saved> = serde_json::from_slice(&list).map_err(PullError::Manifest)?;
    let tags: Vec<String> =
        list.iter().flat_map(|it| it.repo_tags.clone().unwrap_or_default()).collect();
    let (Some(saved), true) = (list.pop(), list.is_empty()) else {
        return Err(several(path, &tags));
    };
    let config = blobs.read(&saved.config)?;
    let read: Config = serde_json::from_slice(&config).map_err(PullError::Config)?;
    let diff_ids = read.rootfs.diff_ids;
    if diff_ids.len() != saved.layers.len() {
        return Err(PullError::Layers);
    }
    let layers = blobs.name_layers(diff_ids.into_iter().zip(saved.layers).collect());
    Ok(Found { config, manifest: None, layers })
}

/// Knows how far it has read.
struct Positioned<R> {
    inner: R,
    at: u64,
}

impl<R: io::Read> io::Read for Positioned<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.at += count as u64;
        Ok(count)
    }
}
