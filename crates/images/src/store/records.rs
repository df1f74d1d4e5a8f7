//! Images and their names.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    Store, StoreError,
    files::{self, names},
    session::Pin,
};
use crate::{config::Config, digest::Digest};

/// An image that the store has, with all its layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The digest of its configuration, which names its layers.
    pub id: Digest,
    /// The digest by which a registry knows it.
    pub manifest: Option<Digest>,
    pub config: Config,
    /// Bytes in the files of all layers.
    pub size: u64,
}

/// An image, and what it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub image: Image,
    pub names: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Tag {
    name: String,
    image: Digest,
}

impl Image {
    /// Returns the layers, lowest first.
    pub fn layers(&self) -> &[Digest] {
        &self.config.rootfs.diff_ids
    }
}

impl Store {
    /// Records an image whose layers are there, under a name. The pin then keeps the image as well.
    pub fn add_image(
        &self,
        pin: &mut Pin,
        config: &[u8],
        manifest: Option<Digest>,
        name: &str,
    ) -> Result<Image, StoreError> {
        let id = Digest::of(config);
        let config: Config = serde_json::from_slice(config).map_err(StoreError::Config)?;
        let lock = self.lock()?;
        let mut size = 0;
        for layer in &config.rootfs.diff_ids {
            let layer = self.layer(*layer)?.ok_or(StoreError::MissingLayer(*layer))?;
            size += layer.report.bytes;
        }
        let image = Image { id, manifest, config, size };
        pin.pinned.image = Some(id);
        pin.pinned.layers.extend(image.layers());
        self.write_pin(pin)?;
        let session = &self.0.session.folder;
        files::write_json(session, &self.image_path(id), &image)?;
        let tag = Tag { name: name.to_owned(), image: id };
        files::write_json(session, &self.tag_path(name), &tag)?;
        drop(lock);
        Ok(image)
    }

    pub fn image(&self, id: Digest) -> Result<Option<Image>, StoreError> {
        files::find_json(&self.image_path(id))
    }

    /// Returns the image that a name means.
    pub fn named(&self, name: &str) -> Result<Option<Image>, StoreError> {
        match files::find_json::<Tag>(&self.tag_path(name))? {
            Some(tag) => self.image(tag.image),
            None => Ok(None),
        }
    }

    /// Takes a name away. The image stays until it is collected. Tells whether there was one.
    pub fn remove_name(&self, name: &str) -> Result<bool, StoreError> {
        let path = self.tag_path(name);
        let lock = self.lock()?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            removed => removed.map_err(files::failed(&path))?,
        }
        files::sync_parent(&path)?;
        drop(lock);
        Ok(true)
    }

    /// Returns every image, with its names in order.
    pub fn images(&self) -> Result<Vec<Listed>, StoreError> {
        let lock = self.lock()?;
        let tags = self.tags()?;
        let mut listed = Vec::new();
        for image in self.all_images()? {
            let tags = tags.iter().filter(|tag| tag.image == image.id);
            let mut names: Vec<String> = tags.map(|tag| tag.name.clone()).collect();
            names.sort();
            listed.push(Listed { image, names });
        }
        drop(lock);
        listed.sort_by(|left, right| {
            (&left.names, left.image.id).cmp(&(&right.names, right.image.id))
        });
        Ok(listed)
    }

    /// Returns the images that have a name. The store is locked.
    pub(super) fn named_images(&self) -> Result<Vec<Digest>, StoreError> {
        Ok(self.tags()?.into_iter().map(|tag| tag.image).collect())
    }

    /// Returns every image. The store is locked.
    pub(super) fn all_images(&self) -> Result<Vec<Image>, StoreError> {
        self.records("images")
    }

    fn tags(&self) -> Result<Vec<Tag>, StoreError> {
        self.records("tags")
    }

    fn records<T: serde::de::DeserializeOwned>(&self, folder: &str) -> Result<Vec<T>, StoreError> {
        let folder = self.path(folder);
        names(&folder)?.iter().map(|name| files::read_json(&folder.join(name))).collect()
    }

    pub(super) fn image_path(&self, id: Digest) -> PathBuf {
        self.path("images").join(format!("{}.json", id.hex()))
    }

    /// A name has slashes in it, and its digest has none.
    fn tag_path(&self, name: &str) -> PathBuf {
        self.path("tags").join(format!("{}.json", Digest::of(name.as_bytes()).hex()))
    }
}
