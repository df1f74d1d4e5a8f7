//! Files that an execution left in its workspace, kept beyond its end.

use std::os::fd::OwnedFd;

pub use isolate::collect::{Collect, CollectEnd, CollectLimit, MAX_DEPTH, MAX_ENTRIES, OtherKind};

/// Everything that was collected of one execution. It has at most [`MAX_ENTRIES`] descriptors.
#[derive(Debug)]
pub struct CollectedFiles {
    /// In the order that [`Collect`] describes.
    pub entries: Vec<CollectedEntry>,
    pub end: CollectEnd,
}

/// A file, or an entry that is reported without its content.
#[derive(Debug)]
pub struct CollectedEntry {
    /// Relative to the workspace. Hostile code chose it: any byte but zero can be in a name.
    pub path: Vec<u8>,
    pub content: CollectedContent,
}

/// What was at the path of an entry.
#[derive(Debug)]
pub enum CollectedContent {
    /// A regular file. The descriptor can only be read, and nothing can change the file any more. It keeps
    /// the file system of the slot in memory until it is closed. Holes take no memory if they are read,
    /// and do if they are mapped.
    File { size: u64, file: OwnedFd },
    /// A regular file above [`Collect::max_file_bytes`].
    TooLarge { size: u64 },
    /// Not a regular file, or a directory that was not entered.
    Other(OtherKind),
    /// It could not be opened or read, with this error number.
    Unreadable(i32),
}
