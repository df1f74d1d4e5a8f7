//! One process per data directory.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

/// Holds the data directory until dropped, or until the process ends however it ends.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

/// Why the data directory could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{directory} is in use by another ringfence process")]
    InUse { directory: PathBuf },
    #[error("cannot lock {file}")]
    Lock { file: PathBuf, source: io::Error },
}

impl DirectoryLock {
    /// Takes the directory, or says at once that another process has it.
    pub fn take(directory: &Path) -> Result<Self, LockError> {
        let path = directory.join("lock");
        let cannot_lock = |source| LockError::Lock { file: path.clone(), source };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(cannot_lock)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                Err(LockError::InUse { directory: directory.to_owned() })
            }
            Err(error) => Err(cannot_lock(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_holder_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let first = DirectoryLock::take(directory.path()).unwrap();
        let second = DirectoryLock::take(directory.path());
        assert!(matches!(second, Err(LockError::InUse { .. })), "{second:?}");
        drop(first);
        DirectoryLock::take(directory.path()).unwrap();
    }
}
