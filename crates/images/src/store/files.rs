//! Files that are there whole or not at all, and locks that end with their holder.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Serialize, de::DeserializeOwned};

use super::StoreError;

pub(super) fn failed(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::File { path: path.to_owned(), source }
}

/// Makes a folder that nobody else can look into: layers keep the modes of strangers.
pub(super) fn make_folder(path: &Path) -> Result<(), StoreError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed(path))
}

/// Returns a name that no other thing of this process has.
pub(super) fn unique(kind: &str) -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    format!("{kind}-{}", COUNTER.fetch_add(1, Ordering::Relaxed))
}

pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, StoreError> {
    let bytes = fs::read(path).map_err(failed(path))?;
    serde_json::from_slice(&bytes)
        .map_err(|source| StoreError::Damaged { path: path.to_owned(), source })
}

/// Reads a file that need not be there.
pub(super) fn find_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StoreError> {
    match read_json(path) {
        Err(StoreError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// Writes a file through another one in the work folder, so that it survives a crash whole.
pub(super) fn write_json(
    work: &Path,
    path: &Path,
    value: &impl Serialize,
) -> Result<(), StoreError> {
    let bytes = serde_json::to_vec_pretty(value)
        .map_err(|source| StoreError::Damaged { path: path.to_owned(), source })?;
    let unfinished = work.join(unique("file"));
    let write = || {
        fs::write(&unfinished, &bytes)?;
        File::open(&unfinished)?.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().map_err(failed(path))?;
    sync_parent(path)
}

pub(super) fn sync_parent(path: &Path) -> Result<(), StoreError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    File::open(parent).and_then(|it| it.sync_all()).map_err(failed(parent))
}

/// Returns the names in a folder.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, StoreError> {
    let entries = fs::read_dir(folder).map_err(failed(folder))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect::<io::Result<_>>().map_err(failed(folder))
}

/// A lock of a file, which ends when this is dropped or its process dies.
#[derive(Debug)]
pub(super) struct Locked(#[expect(dead_code, reason = "its being open is the lock")] File);

impl Locked {
    /// Waits for the lock.
    pub(super) fn exclusive(path: &Path) -> Result<Self, StoreError> {
        let mut options = File::options();
        let options = options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(path).map_err(failed(path))?;
        lock(&file).map_err(failed(path))?;
        Ok(Self(file))
    }

    /// Takes the lock of a folder unless somebody has it.
    pub(super) fn try_folder(path: &Path) -> Result<Option<Self>, StoreError> {
        let folder = File::open(path).map_err(failed(path))?;
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(folder))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(failed(path)(errno.into())),
        }
    }
}

fn lock(file: &File) -> io::Result<()> {
    loop {
        match flock(file, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            taken => return taken.map_err(io::Error::from),
        }
    }
}
