//! Layers: directories that appear whole, under the name of their content.

use std::{
    fs::{self, File},
    os::fd::{AsFd as _, BorrowedFd},
    path::PathBuf,
};

use super::{Store, StoreError, files, session::throw_away};
use crate::{
    digest::Digest,
    unpack::{Limits, Report, Rules},
};

/// A layer that the store has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The directory for an overlay. Nobody may write to it.
    pub path: PathBuf,
    pub report: Report,
}

/// A layer in the making. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct NewLayer {
    store: Store,
    folder: PathBuf,
    target: File,
}

impl Store {
    /// Returns the layer with this digest of its uncompressed archive.
    pub fn layer(&self, diff_id: Digest) -> Result<Option<Layer>, StoreError> {
        let folder = self.layer_folder(diff_id);
        let report = files::find_json(&folder.join("layer.json"))?;
        Ok(report.map(|report| Layer { path: folder.join("fs"), report }))
    }

    /// Begins a layer: an empty directory to unpack into.
    pub fn begin_layer(&self) -> Result<NewLayer, StoreError> {
        let folder = self.0.session.folder.join(files::unique("layer"));
        files::make_folder(&folder)?;
        let path = folder.join("fs");
        fs::create_dir(&path).map_err(files::failed(&path))?;
        // What an image says nothing about is like any root: everybody may look into it.
        let mode = rustix::fs::Mode::from_raw_mode(0o755);
        rustix::fs::chmod(&path, mode).map_err(|errno| files::failed(&path)(errno.into()))?;
        let target = File::open(&path).map_err(files::failed(&path))?;
        Ok(NewLayer { store: self.clone(), folder, target })
    }

    /// Returns the rules by which layers of this store are unpacked.
    pub fn rules(&self, limits: Limits) -> Rules {
        let form = self.form();
        Rules { limits, whiteouts: form.whiteouts, owners: form.owners }
    }

    pub(super) fn layer_folder(&self, diff_id: Digest) -> PathBuf {
        self.path("layers").join(diff_id.hex())
    }
}

impl NewLayer {
    /// The directory to unpack into, for this process or for a worker.
    pub fn target(&self) -> BorrowedFd<'_> {
        self.target.as_fd()
    }

    /// Gives the layer its name, if its content is what was expected. It is on disk before it has
    /// the name, so that no crash leaves a part of it that looks whole.
    pub fn commit(self, report: &Report, expected: Digest) -> Result<Layer, StoreError> {
        let found = report.diff_id;
        if found != expected {
            return Err(StoreError::Mismatch { expected, found });
        }
        let record = self.folder.join("layer.json");
        files::write_json(&self.store.0.session.folder, &record, report)?;
        rustix::fs::syncfs(&self.target)
            .map_err(|errno| files::failed(&self.folder)(errno.into()))?;
        let path = self.store.layer_folder(expected);
        match fs::rename(&self.folder, &path) {
            // Another process was first. Both have the same content.
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {}
            renamed => renamed.map_err(files::failed(&path))?,
        }
        files::sync_parent(&path)?;
        Ok(Layer { path: path.join("fs"), report: *report })
    }
}

impl Drop for NewLayer {
    fn drop(&mut self) {
        if self.folder.exists() && throw_away(&self.store.0.root, &self.folder).is_ok() {
            // What stays in the trash is deleted the next time.
            drop(self.store.empty_trash());
        }
    }
}
