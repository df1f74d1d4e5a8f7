//! Images and their names.

use std::{collections::BTreeSet, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    Store, StoreError,
    files::{self, names},
    quota::Quota,
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
    /// Stores of earlier versions had no tenants: their names are the first tenant's.
    #[serde(default = "first_tenant")]
    tenant: String,
    name: String,
    image: Digest,
}

/// The tenant that every server has.
const FIRST_TENANT: &str = "default";

fn first_tenant() -> String {
    FIRST_TENANT.to_owned()
}

/// What an image is called, and by which tenant. Tenants do not see each other's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantName {
    pub tenant: String,
    pub name: String,
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
        TenantName { tenant, name }: &TenantName,
        quota: Quota,
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
        let mut layers = self.layers_of(tenant)?;
        layers.extend(image.layers());
        quota.check(self.cost(&layers)?)?;
        pin.pinned.image = Some(id);
        pin.pinned.layers.extend(image.layers());
        self.write_pin(pin)?;
        let session = &self.0.session.folder;
        files::write_json(session, &self.image_path(id), &image)?;
        let tag = Tag { tenant: tenant.clone(), name: name.clone(), image: id };
        files::write_json(session, &self.tag_path(tenant, name), &tag)?;
        drop(lock);
        Ok(image)
    }

    pub fn image(&self, id: Digest) -> Result<Option<Image>, StoreError> {
        files::find_json(&self.image_path(id))
    }

    /// Returns the image that a name of a tenant means.
    pub fn named(&self, tenant: &str, name: &str) -> Result<Option<Image>, StoreError> {
        match files::find_json::<Tag>(&self.tag_path(tenant, name))? {
            Some(tag) => self.image(tag.image),
            None => Ok(None),
        }
    }

    /// Returns an image that a tenant has a name for.
    pub fn image_of(&self, tenant: &str, id: Digest) -> Result<Option<Image>, StoreError> {
        let lock = self.lock()?;
        let has_it = self.tags()?.iter().any(|tag| tag.tenant == tenant && tag.image == id);
        drop(lock);
        if has_it { self.image(id) } else { Ok(None) }
    }

    /// Returns the layers of all images that a tenant has names for. The store is locked.
    pub(super) fn layers_of(&self, tenant: &str) -> Result<BTreeSet<Digest>, StoreError> {
        let tags = self.tags()?;
        let ids: BTreeSet<Digest> =
            tags.iter().filter(|tag| tag.tenant == tenant).map(|tag| tag.image).collect();
        let mut layers = BTreeSet::new();
        for id in ids {
            layers.extend(self.image(id)?.iter().flat_map(Image::layers));
        }
        Ok(layers)
    }

    /// Takes a name away. The image stays until it is collected. Tells whether there was one.
    pub fn remove_name(&self, tenant: &str, name: &str) -> Result<bool, StoreError> {
        let path = self.tag_path(tenant, name);
        let lock = self.lock()?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            removed => removed.map_err(files::failed(&path))?,
        }
        files::sync_parent(&path)?;
        drop(lock);
        Ok(true)
    }

    /// Returns every image that a tenant has a name for, with its names of it in order.
    pub fn images(&self, tenant: &str) -> Result<Vec<Listed>, StoreError> {
        let lock = self.lock()?;
        let tags = self.tags()?;
        let mut listed = Vec::new();
        for image in self.all_images()? {
            let tags = tags.iter().filter(|tag| tag.image == image.id && tag.tenant == tenant);
            let mut names: Vec<String> = tags.map(|tag| tag.name.clone()).collect();
            if !names.is_empty() {
                names.sort();
                listed.push(Listed { image, names });
            }
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

    /// A name has slashes in it, and its digest has none. The first tenant's names are where stores
    /// of earlier versions have them; no name has a zero in it.
    fn tag_path(&self, tenant: &str, name: &str) -> PathBuf {
        let key = match tenant {
            FIRST_TENANT => name.to_owned(),
            _ => format!("{tenant}\0{name}"),
        };
        self.path("tags").join(format!("{}.json", Digest::of(key.as_bytes()).hex()))
    }
}
