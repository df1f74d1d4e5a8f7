//! Files that a program left below [`WORKSPACE`](crate::plan::WORKSPACE), as init hands them to the daemon.
//!
//! After [`Report::Exited`](crate::wire::Report), init sends one packet with a [`CollectReport`] for each entry and a
//! last one with the [`CollectEnd`]. Every task of the program has begun to exit at that point, so
//! nothing can change the files any more. Links are never followed.

use serde::{Deserialize, Serialize};

/// Upper bound of [`Collect::max_entries`].
pub const MAX_ENTRIES: u32 = 1000;

/// Upper bound of [`Collect::max_depth`]: every path fits in a packet.
pub const MAX_DEPTH: u32 = 64;

/// What to collect once a program has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collect {
    /// Relative paths of files. They come first, in this order. A directory at such a path is
    /// reported and not entered.
    pub files: Vec<String>,
    /// Relative paths of folders, which are collected with everything below them. They come after the files,
    /// in this order; the entries of each are sorted by the bytes of their paths.
    pub folders: Vec<String>,
    /// How many entries are visited, directories among them. At most [`MAX_ENTRIES`] count.
    pub max_entries: u32,
    /// How many levels of directories are entered; a folder of the request is the first level. At most
    /// [`MAX_DEPTH`] count.
    pub max_depth: u32,
    /// Size in bytes of the largest file that is handed over. Holes count.
    pub max_file_bytes: u64,
    /// Size in bytes of all files together that are handed over. Holes count.
    pub max_total_bytes: u64,
}

/// One packet about collected files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollectReport {
    Entry(ReportedEntry),
    End(CollectEnd),
}

/// An entry below the workspace. Directories that were read have none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedEntry {
    /// Relative to the workspace. Any byte but zero can be in it.
    pub path: Vec<u8>,
    pub content: ReportedContent,
}

/// What is at the path of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportedContent {
    /// A regular file with its size in bytes. A descriptor to read it comes with the packet.
    File { size: u64 },
    /// A regular file above [`Collect::max_file_bytes`].
    TooLarge { size: u64 },
    /// Not a regular file. A directory is reported if it was not entered: it is below
    /// [`Collect::max_depth`], or at the path of a file.
    Other(OtherKind),
    /// It cannot be opened or read, with this error number.
    Unreadable(i32),
}

/// The kinds of entries that are reported without their content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OtherKind {
    Directory,
    SymbolicLink,
    Fifo,
    Socket,
    Device,
    Unknown,
}

/// How a collection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollectEnd {
    /// Every entry was either handed over or reported with the reason why not.
    Complete,
    /// This limit was reached. What comes later in the order is missing.
    Limit(CollectLimit),
    /// The workspace cannot be opened, with this error number.
    Failed(i32),
    /// Init is gone or took too long. Entries may be missing. Only the daemon uses this.
    Lost,
}

/// The limits that end a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollectLimit {
    Entries,
    TotalBytes,
}
