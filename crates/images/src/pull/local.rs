//! Images in files: layouts of OCI, saved images, and root file systems as archives.

mod blobs;
mod saved;

use std::{
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{FileExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use serde_json::json;

pub(super) use self::blobs::{Blobs, Part};
use self::saved::Contents;
use super::{
    Found, Listener, PullError, Pulled, Puller, Settings,
    layers::Source,
    manifest::{self, Descriptor, Document},
};
use crate::{
    digest::Digest,
    store::{Store, TenantName},
    unpack,
};

/// How tools write down which name an image in a layout has.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Opens a part of a layout by its name in there.
pub type Opener = Arc<dyn Fn(&str) -> io::Result<File> + Send + Sync>;

/// Opens a part of a layout. It may come from a stranger, so its links lead nowhere; and what is no
/// file is none of its parts.
pub fn open_in(folder: &impl AsFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let rooted = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = File::from(openat2(folder, name, flags, Mode::empty(), rooted)?);
    let is_file = file.metadata()?.is_file();
    if is_file { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

impl Puller {
    /// Brings in an image of a layout whose parts somebody opens, perhaps with other rights than ours.
    pub async fn pull_layout(
        &self,
        open: Opener,
        tag: Option<&str>,
        name: &TenantName,
        listener: &Listener,
    ) -> Result<Pulled, PullError> {
        let (path, tag) = (PathBuf::from(&name.name), tag.map(str::to_owned));
        let found = self.blocking(move |_store| {
            let blobs = Blobs::opened_by(open, &path);
            let found = image_in(&blobs, &path, tag.as_deref())?;
            Ok((blobs, found))
        });
        let (blobs, found) = found.await?;
        self.install(found, &Source::Local(Arc::new(blobs)), name, listener).await
    }

    /// Finds out what an archive is that somebody opened, and brings it in.
    pub async fn pull_archive(
        &self,
        file: File,
        name: &TenantName,
        listener: &Listener,
    ) -> Result<Pulled, PullError> {
        let path = PathBuf::from(&name.name);
        let settings = self.0.settings.clone();
        let found = self.blocking(move |store| in_archive(store, file, &path, &settings));
        let (blobs, found) = found.await?;
        self.install(found, &Source::Local(Arc::new(blobs)), name, listener).await
    }
}

fn in_archive(
    store: &Store,
    file: File,
    path: &Path,
    settings: &Settings,
) -> Result<(Blobs, Found), PullError> {
    check_file(&file, path)?;
    let mut start = [0; 4];
    let count = file.read_at(&mut start, 0).map_err(read_error(path))?;
    let is_compressed = unpack::stream::is_compressed(start.get(..count).unwrap_or_default());
    let Some(contents) = Contents::of(&file, is_compressed, &settings.limits, path)? else {
        return root_file_system(file, path, settings);
    };
    // A saved image is read in no particular order, which a compressed file does not allow.
    let file = if is_compressed { expand(store, &file, settings, path)? } else { file };
    let mut blobs = Blobs::in_archive(file, contents, path);
    let found = if blobs.has("index.json") {
        image_in(&blobs, path, None)?
    } else {
        saved::image_in(&mut blobs, path)?
    };
    Ok((blobs, found))
}

fn expand(store: &Store, file: &File, settings: &Settings, path: &Path) -> Result<File, PullError> {
    let mut scratch = store.scratch_file().map_err(PullError::Scratch)?;
    let mut reader = unpack::uncompressed(Part::whole(file), &settings.limits)
        .map_err(|source| unpack_error(path, source))?;
    io::copy(&mut reader, &mut scratch).map_err(read_error(path))?;
    Ok(scratch)
}

/// Makes an image of an archive that is nothing but files.
fn root_file_system(
    file: File,
    path: &Path,
    settings: &Settings,
) -> Result<(Blobs, Found), PullError> {
    let mut reader = unpack::uncompressed(Part::whole(&file), &settings.limits)
        .map_err(|source| unpack_error(path, source))?;
    let (diff_id, _) = hashed(&mut reader).map_err(read_error(path))?;
    drop(reader);
    let config = json!({
        "os": "linux",
        "architecture": manifest::architecture(),
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    });
    let (blobs, layer) = Blobs::one(file, diff_id);
    let config = config.to_string().into_bytes();
    Ok((blobs, Found { config, manifest: None, layers: vec![layer] }))
}

/// Finds the image in a layout.
fn image_in(blobs: &Blobs, path: &Path, tag: Option<&str>) -> Result<Found, PullError> {
    let index = blobs.read("index.json")?;
    let Document::Index(index) = manifest::read(&index)? else {
        return Err(PullError::NotAnImage { path: path.to_owned(), why: "its index is none" });
    };
    let mut descriptor = choose(&index, path, tag)?.clone();
    for _ in 0..3 {
        let bytes = blobs.read_checked(&descriptor)?;
        match manifest::read(&bytes)? {
            Document::Index(index) => descriptor = manifest::pick(&index)?.clone(),
            Document::Image(manifest) => {
                let config = blobs.read_checked(&manifest.config)?;
                let digest = Some(descriptor.digest);
                return Ok(Found { config, manifest: digest, layers: manifest.layers });
            }
        }
    }
    Err(PullError::NotAnImage { path: path.to_owned(), why: "its indexes lead on and on" })
}

/// Chooses by tag; without one there must be nothing to choose, but for the kind of machine.
fn choose<'index>(
    index: &'index [Descriptor],
    path: &Path,
    tag: Option<&str>,
) -> Result<&'index Descriptor, PullError> {
    let name_of = |it: &Descriptor| it.annotations.get(REF_NAME).cloned();
    if let Some(tag) = tag {
        // Some tools write the tag alone and some the whole name.
        let fits = |name: String| name == tag || name.ends_with(&format!(":{tag}"));
        let found = index.iter().find(|it| name_of(it).is_some_and(fits));
        let why = "it has no image of that tag";
        return found.ok_or_else(|| PullError::NotAnImage { path: path.to_owned(), why });
    }
    let mut tags: Vec<String> = index.iter().filter_map(name_of).collect();
    tags.sort();
    tags.dedup();
    match index {
        [only] => Ok(only),
        _ if tags.len() > 1 => Err(several(path, &tags)),
        _ => manifest::pick(index),
    }
}

fn several(path: &Path, tags: &[String]) -> PullError {
    PullError::Several { path: path.to_owned(), tags: tags.join(", ") }
}

pub(super) fn open_folder(path: &Path) -> Result<OwnedFd, PullError> {
    let flags = OFlags::DIRECTORY.bits().cast_signed();
    let folder = File::options().read(true).custom_flags(flags).open(path);
    Ok(folder.map_err(read_error(path))?.into())
}

/// Opens a file without waiting for anybody, as opening a pipe would.
pub(super) fn open_file(path: &Path) -> Result<File, PullError> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    File::options().read(true).custom_flags(flags).open(path).map_err(read_error(path))
}

fn check_file(file: &File, path: &Path) -> Result<(), PullError> {
    if !file.metadata().map_err(read_error(path))?.is_file() {
        return Err(PullError::NotAnImage { path: path.to_owned(), why: "it is not a file" });
    }
    Ok(())
}

fn hashed(reader: &mut impl Read) -> io::Result<(Digest, u64)> {
    let mut reader = crate::digest::HashingReader::new(reader);
    io::copy(&mut reader, &mut io::sink())?;
    Ok(reader.finish())
}

fn read_error(path: &Path) -> impl FnOnce(io::Error) -> PullError {
    move |source| PullError::Read { path: path.to_owned(), source }
}

fn unpack_error(path: &Path, source: unpack::error::UnpackError) -> PullError {
    read_error(path)(io::Error::other(source))
}
