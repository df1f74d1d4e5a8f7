//! Turns one layer, an archive made by strangers, into a directory.
//!
//! Every path is resolved by the kernel beneath one descriptor and through no symbolic link, so an
//! archive cannot reach outside whatever its entries are called and in whatever order they come. A
//! worker process can run this: it needs a reader, the descriptor, and the right to change owners.
//! The directory is for the kernel's overlay file system; what deletes a file of a layer below is
//! written as overlays want it.

mod entries;
pub mod error;
mod names;
pub(crate) mod stream;
mod tree;

use std::{io::Read, os::fd::BorrowedFd};

use self::{entries::Unpacking, error::UnpackError, stream::Metered};
use crate::{
    archive::{Bounds, Reader},
    digest::Digest,
};

/// How far a layer may go before it is taken for an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Entries, and directories that entries imply.
    pub entries: u64,
    /// Bytes of the archive, uncompressed.
    pub bytes: u64,
    /// How many times larger than its compressed form an archive may be.
    pub ratio: u64,
    /// Up to this size the ratio does not matter: small archives of zeros are common.
    pub ratio_from: u64,
    /// Components of a path.
    pub depth: usize,
    /// Bytes of the names and values of all extended attributes of one entry.
    pub xattrs: usize,
    /// Bytes of the paths of directories, which are held in memory until the end.
    pub directories: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 500_000,
            bytes: 16 << 30,
            ratio: 50,
            ratio_from: 64 << 20,
            depth: 256,
            xattrs: 64 << 10,
            directories: 64 << 20,
        }
    }
}

/// How deletions are written. An overlay understands its own form only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whiteouts {
    /// For overlays mounted by real root: opaque directories by `trusted.overlay.opaque`.
    Trusted,
    /// For overlays mounted with `userxattr` in a user namespace: `user.overlay.opaque`.
    User,
}

/// Whose the files become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owners {
    /// Those of the archive, as they are numbered in the namespace of the caller, who may give files
    /// away. A number that is not below the bound is refused: no sandbox could show it.
    Kept { below: u32 },
    /// The caller, who has no other ids.
    Caller,
}

/// What one layer is turned into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub limits: Limits,
    pub whiteouts: Whiteouts,
    pub owners: Owners,
}

/// What became of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The digest of the uncompressed archive, which is the name of the layer.
    pub diff_id: Digest,
    pub entries: u64,
    /// Bytes in regular files.
    pub bytes: u64,
    pub left_out: LeftOut,
}

/// What a layer had and its directory has not. None of it would work in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct LeftOut {
    /// Devices below `dev`, and named pipes anywhere.
    pub special_files: u64,
    /// Set-user-id and set-group-id bits of files.
    pub set_id_bits: u64,
    /// Extended attributes: file capabilities, access lists, labels, and overlay's own.
    pub xattrs: u64,
}

/// Returns the uncompressed form of an archive, within the limits of size.
pub fn uncompressed(reader: impl Read, limits: &Limits) -> Result<impl Read, UnpackError> {
    Metered::new(reader, limits)
}

/// Unpacks a layer into an empty directory. On an error the directory holds an unknown part of it.
///
/// What is written is not synced; that is for who gives the directory its name.
pub fn unpack(
    reader: impl Read,
    target: BorrowedFd<'_>,
    rules: &Rules,
) -> Result<Report, UnpackError> {
    let metered = Metered::new(reader, &rules.limits)?;
    let mut archive = Reader::new(metered, Bounds::default());
    let mut unpacking = Unpacking::new(target, rules);
    while let Some(entry) = archive.next_entry()? {
        unpacking.add(&entry, &mut archive)?;
    }
    archive.drain()?;
    let (entries, bytes, left_out) = unpacking.finish()?;
    Ok(Report { diff_id: archive.into_inner().into_inner().finish(), entries, bytes, left_out })
}
