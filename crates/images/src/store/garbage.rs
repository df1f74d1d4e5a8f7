//! What nobody can reach is deleted. Reachability is worked out anew each time from names, from pins
//! and from what the caller says is in use; a counter could be wrong after a crash.

use std::{collections::BTreeSet, fs};

use super::{Store, StoreError, files, removal, session::throw_away};
use crate::digest::Digest;

/// What must stay although no name leads to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct InUse {
    pub images: BTreeSet<Digest>,
    /// Layers under overlays.
    pub layers: BTreeSet<Digest>,
}

/// What was deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Collected {
    pub images: u64,
    pub layers: u64,
    /// Bytes in the files of these layers.
    pub bytes: u64,
}

impl Store {
    /// Deletes what cannot be reached. If anything cannot be read, nothing is deleted.
    pub fn collect(&self, in_use: &InUse) -> Result<Collected, StoreError> {
        let lock = self.lock()?;
        let (images, layers) = self.reachable(in_use)?;
        let mut collected = Collected::default();
        for image in self.all_images()?.iter().filter(|it| !images.contains(&it.id)) {
            let path = self.image_path(image.id);
            fs::remove_file(&path).map_err(files::failed(&path))?;
            collected.images += 1;
        }
        for layer in self.all_layers()?.difference(&layers) {
            let report = self.layer(*layer)?.map(|it| it.report);
            throw_away(&self.0.root, &self.layer_folder(*layer))?;
            collected.layers += 1;
            collected.bytes += report.map_or(0, |it| it.bytes);
        }
        // Deleting takes long, and what is in the trash is nobody's.
        drop(lock);
        self.empty_trash()?;
        Ok(collected)
    }

    pub(super) fn reachable(
        &self,
        in_use: &InUse,
    ) -> Result<(BTreeSet<Digest>, BTreeSet<Digest>), StoreError> {
        let pinned = self.pinned()?;
        let mut images = in_use.images.clone();
        images.extend(self.named_images()?);
        images.extend(pinned.iter().filter_map(|it| it.image));
        let mut layers = in_use.layers.clone();
        layers.extend(pinned.iter().flat_map(|it| it.layers.iter()));
        for image in self.all_images()?.iter().filter(|it| images.contains(&it.id)) {
            layers.extend(image.layers());
        }
        Ok((images, layers))
    }

    pub(super) fn all_layers(&self) -> Result<BTreeSet<Digest>, StoreError> {
        let names = files::names(&self.path("layers"))?;
        // A name that is no digest is not ours to delete.
        Ok(names.iter().filter_map(|name| format!("sha256:{name}").parse().ok()).collect())
    }

    pub(super) fn empty_trash(&self) -> Result<(), StoreError> {
        let trash = self.path("trash");
        removal::empty(&trash).map_err(files::failed(&trash))
    }
}
