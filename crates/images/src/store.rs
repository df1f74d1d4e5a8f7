//! Layers and images on disk, each by the name of its content, shared by everybody.
//!
//! ```text
//! store.json          the form of the layers, for good
//! lock                held for moments: pins, new images, deciding what is garbage
//! locks/00 … ff       held while a layer whose digest begins so is made
//! layers/DIGEST/      fs/ and layer.json; appears by one rename, whole; origins.json: where it is from
//! images/DIGEST.json  what an image is
//! tags/DIGEST.json    which image a name of a tenant means
//! work/SESSION/       unfinished things of one process, and its pins; locked while it lives
//! trash/              renamed away, being deleted
//! ```
//!
//! A crash leaves things in `work` and `trash` only. Whoever opens the store next deletes those whose
//! process is gone.

mod files;
mod garbage;
mod layer;
mod proof;
mod quota;
mod records;
pub mod removal;
mod session;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

pub(crate) use self::quota::Room;
use self::{files::Locked, session::Session};
pub use self::{
    garbage::{Collected, InUse},
    layer::{Layer, NewLayer},
    proof::Origin,
    quota::Quota,
    records::{Image, Listed, TenantName},
    session::Pin,
};
use crate::{
    digest::Digest,
    unpack::{Owners, Whiteouts},
};

const VERSION: u32 = 1;

/// How all layers of a store are written. Another form needs another store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Form {
    pub whiteouts: Whiteouts,
    pub owners: Owners,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    version: u32,
    form: Form,
}

/// A directory of images. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    form: Form,
    session: Session,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What stays behind is deleted by whoever opens the store next.
        if session::throw_away(&self.root, &self.session.folder).is_ok() {
            drop(removal::empty(&self.root.join("trash")));
        }
    }
}

/// The store cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot use {path}")]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is not what was written there")]
    Damaged {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("the store at {path} has version {found}; this program knows {VERSION}")]
    Version { path: PathBuf, found: u32 },
    #[error("the layers of the store at {0} are written in another form")]
    Form(PathBuf),
    #[error("the layer is {found}, not {expected}")]
    Mismatch { expected: Digest, found: Digest },
    #[error("the images of the tenant would take more than {most} bytes")]
    TenantFull { most: u64 },
    #[error("there is no room for more images: they take {most} bytes, or the disk is almost full")]
    StoreFull { most: u64 },
    #[error("the image has the layer {0}, which the store has not")]
    MissingLayer(Digest),
    #[error("the configuration of the image cannot be read")]
    Config(#[source] serde_json::Error),
}

impl Store {
    /// Opens a store, and makes it if there is none. What dead processes left is deleted.
    pub fn open(root: &Path, form: Form) -> Result<Self, StoreError> {
        for folder in ["locks", "layers", "images", "tags", "work", "trash"] {
            files::make_folder(&root.join(folder))?;
        }
        let lock = Locked::exclusive(&root.join("lock"))?;
        check_header(root, form)?;
        let session = Session::start(root)?;
        drop(lock);
        let store = Self(Arc::new(Inner { root: root.to_owned(), form, session }));
        store.empty_trash()?;
        Ok(store)
    }

    pub fn form(&self) -> Form {
        self.0.form
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.root.join(name)
    }

    fn lock(&self) -> Result<Locked, StoreError> {
        Locked::exclusive(&self.path("lock"))
    }

    /// Waits until no process makes a layer whose digest begins as this one, and keeps others from it.
    pub fn lock_layer(&self, digest: Digest) -> Result<LayerLock, StoreError> {
        let slot = self.path("locks").join(format!("{:02x}", digest.first_byte()));
        Locked::exclusive(&slot).map(LayerLock)
    }
}

/// Keeps other processes from making the same layer.
#[derive(Debug)]
pub struct LayerLock(#[expect(dead_code, reason = "holding it is its use")] Locked);

fn check_header(root: &Path, form: Form) -> Result<(), StoreError> {
    let path = root.join("store.json");
    let expected = Header { version: VERSION, form };
    if !fs::exists(&path).map_err(files::failed(&path))? {
        return files::write_json(&root.join("work"), &path, &expected);
    }
    let Header { version, form } = files::read_json(&path)?;
    if version != VERSION {
        return Err(StoreError::Version { path: root.to_owned(), found: version });
    }
    if form != expected.form {
        return Err(StoreError::Form(root.to_owned()));
    }
    Ok(())
}
