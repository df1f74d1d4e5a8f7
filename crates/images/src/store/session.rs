//! What one process has unfinished, and what it keeps from being collected.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    Inner, Store, StoreError,
    files::{self, Locked},
};
use crate::digest::Digest;

/// A folder of this process. Its lock tells others that the process lives.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) folder: PathBuf,
    #[expect(dead_code, reason = "holding it is its use")]
    lock: Locked,
}

impl Session {
    /// Starts a session, and throws away those of processes that are gone. The store is locked.
    pub(super) fn start(root: &Path) -> Result<Self, StoreError> {
        for (folder, lock) in sessions(root)? {
            if lock.is_some() {
                throw_away(root, &folder)?;
            }
        }
        let folder = root.join("work").join(random());
        files::make_folder(&folder)?;
        let lock = Locked::try_folder(&folder)?;
        // The name is new, so nobody else can hold it.
        let lock = lock.ok_or_else(|| busy(&folder))?;
        Ok(Self { folder, lock })
    }
}

fn busy(path: &Path) -> StoreError {
    files::failed(path)(io::ErrorKind::ResourceBusy.into())
}

/// Returns every session, with its lock if its process is gone.
fn sessions(root: &Path) -> Result<Vec<(PathBuf, Option<Locked>)>, StoreError> {
    let work = root.join("work");
    let mut sessions = Vec::new();
    for name in files::names(&work)? {
        let folder = work.join(name);
        if folder.is_dir() {
            let lock = Locked::try_folder(&folder)?;
            sessions.push((folder, lock));
        }
    }
    Ok(sessions)
}

/// Moves something where it is deleted from. It is gone for everybody at once.
pub(super) fn throw_away(root: &Path, path: &Path) -> Result<(), StoreError> {
    fs::rename(path, root.join("trash").join(random())).map_err(files::failed(path))
}

pub(super) fn random() -> String {
    let mut bytes = [0; 12];
    // This source never blocks once the machine is up, and never gives less for so few bytes.
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    let count = filled.unwrap_or_default();
    debug_assert_eq!(count, bytes.len());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Keeps layers, and the image made of them, until it is dropped.
#[derive(Debug)]
pub struct Pin {
    path: PathBuf,
    pub(super) pinned: Pinned,
    /// The session stays alive as long as its pins.
    #[expect(dead_code, reason = "holding it is its use")]
    store: std::sync::Arc<Inner>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Pinned {
    pub(super) layers: Vec<Digest>,
    pub(super) image: Option<Digest>,
}

impl Store {
    /// Keeps layers from being collected, also those that are not there yet.
    pub fn pin(&self, layers: &[Digest]) -> Result<Pin, StoreError> {
        let path = self.0.session.folder.join(format!("{}.json", files::unique("pin")));
        let pinned = Pinned { layers: layers.to_vec(), image: None };
        let pin = Pin { path, pinned, store: self.0.clone() };
        let lock = self.lock()?;
        self.write_pin(&pin)?;
        drop(lock);
        Ok(pin)
    }

    /// Opens a file without a name, for what is only passing through.
    pub(crate) fn scratch_file(&self) -> io::Result<File> {
        let path = self.0.session.folder.join(files::unique("scratch"));
        let mut options = File::options();
        let file = options.create_new(true).read(true).write(true).mode(0o600).open(&path)?;
        fs::remove_file(&path)?;
        Ok(file)
    }

    pub(super) fn write_pin(&self, pin: &Pin) -> Result<(), StoreError> {
        files::write_json(&self.0.session.folder, &pin.path, &pin.pinned)
    }

    /// Returns what live processes keep. The store is locked.
    pub(super) fn pinned(&self) -> Result<Vec<Pinned>, StoreError> {
        let mut pinned = Vec::new();
        for (folder, lock) in sessions(&self.0.root)? {
            if lock.is_some() {
                continue;
            }
            for name in files::names(&folder)? {
                if name.starts_with("pin-") {
                    pinned.extend(files::find_json(&folder.join(name))?);
                }
            }
        }
        Ok(pinned)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // What stays behind is deleted with the session.
        drop(fs::remove_file(&self.path));
    }
}
