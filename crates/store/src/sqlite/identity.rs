//! Whether the file that is written is still the file that has the name.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// A file as it was when it was opened.
#[derive(Debug)]
pub(super) struct Identity {
    path: PathBuf,
    inode: Option<(u64, u64)>,
}

impl Identity {
    pub(super) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), inode: inode(path) }
    }

    /// Says what is wrong if another file, or none, has the name now.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.inode.is_some() && inode(&self.path) == self.inode {
            return Ok(());
        }
        Err(format!("{} was removed or replaced", self.path.display()))
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}
