//! Who may have a layer that is here already. Layers are shared by their digest, but knowing a digest is
//! no right to the content: a tenant has shown that it may fetch it, or fetches it again.

use serde::{Deserialize, Serialize};

use super::{Store, StoreError, files};
use crate::digest::Digest;

/// Where a layer was fetched from, and as which blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub registry: String,
    pub repository: String,
    pub blob: Digest,
}

/// The most origins of a layer that are remembered. Those beyond are fetched from again.
const MOST_ORIGINS: usize = 64;

impl Store {
    /// Tells whether a tenant may use a layer without fetching it: it has an image with it, or the
    /// manifest that it was just given by the same repository has the very blob that the layer was made
    /// from.
    pub(crate) fn is_proven(
        &self,
        tenant: &str,
        layer: Digest,
        origin: Option<&Origin>,
    ) -> Result<bool, StoreError> {
        let lock = self.lock()?;
        let has_it = self.layers_of(tenant)?.contains(&layer);
        drop(lock);
        if has_it {
            return Ok(true);
        }
        let Some(origin) = origin else { return Ok(false) };
        Ok(self.origins(layer)?.contains(origin))
    }

    /// Notes that a layer was fetched from here and has the right content.
    pub(crate) fn note_origin(&self, layer: Digest, origin: Origin) -> Result<(), StoreError> {
        let lock = self.lock()?;
        let mut origins = self.origins(layer)?;
        if !origins.contains(&origin) && origins.len() < MOST_ORIGINS {
            origins.push(origin);
            let path = self.layer_folder(layer).join("origins.json");
            files::write_json(&self.0.session.folder, &path, &origins)?;
        }
        drop(lock);
        Ok(())
    }

    fn origins(&self, layer: Digest) -> Result<Vec<Origin>, StoreError> {
        let path = self.layer_folder(layer).join("origins.json");
        Ok(files::find_json(&path)?.unwrap_or_default())
    }

    /// Deletes layers that a failed pull has made, unless something needs them by now.
    pub(crate) fn discard(&self, made: &[Digest]) -> Result<(), StoreError> {
        let lock = self.lock()?;
        let (_images, needed) = self.reachable(&super::InUse::default())?;
        for layer in made.iter().filter(|layer| !needed.contains(layer)) {
            super::session::throw_away(&self.0.root, &self.layer_folder(*layer))?;
        }
        drop(lock);
        self.empty_trash()
    }
}
