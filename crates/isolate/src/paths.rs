//! Paths of the machine that a sandbox is given: mounts that show inside, and copies that are made
//! once. Whose rights they are opened with is decided by the spawner, never by who asks.

use serde::{Deserialize, Serialize};

/// What of the machine a sandbox is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paths {
    pub mounts: Vec<HostMount>,
    pub copies: Vec<HostCopy>,
    /// Files and folders that its images are in.
    pub images: Vec<String>,
    /// The folder that its root is made of.
    pub root: Option<String>,
}

impl Paths {
    pub fn count(&self) -> usize {
        self.mounts.len() + self.copies.len() + self.images.len() + usize::from(self.root.is_some())
    }
}

/// A file, folder or socket of the machine that shows inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMount {
    pub source: String,
    pub target: String,
    pub access: Access,
    pub need: Need,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    ReadOnly,
    Writable,
}

/// Whether a sandbox can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Need {
    Required,
    /// Left out if it is not there.
    Optional,
}

/// A file or folder of the machine that is copied in when the sandbox is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCopy {
    pub source: String,
    pub target: String,
    /// What is left out: by its path below the source, or by its name alone.
    pub exclude: Vec<String>,
}

/// Whose rights paths are opened with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum With {
    /// Those of whoever is at the other end of the connection that comes along, by the kernel's word.
    Peer,
    /// The daemon's own, and only beneath these folders.
    Daemon { beneath: Vec<String> },
}

/// The most mounts and copies of one sandbox: what a packet carries beside everything else.
pub const MAX_PATHS: usize = 64;

/// How long all texts about the paths of one sandbox may be together. They travel in one packet.
pub const MAX_TEXT: usize = 16 * 1024;

/// What a source turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Folder,
    /// A file or a socket.
    File,
}

/// Where init is to attach a mount that comes along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    pub target: String,
    pub kind: Kind,
}

/// Where init is to put a copy of the tree that comes along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BringIn {
    pub target: String,
    pub kind: Kind,
    pub exclude: Vec<String>,
}

/// Why a path cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Problem {
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    System(i32),
    #[error("it is a symbolic link; name what it leads to")]
    Link,
    #[error("it is neither a file, a folder nor a Unix socket")]
    Kind,
    #[error("it is no folder")]
    NoFolder,
    #[error("only files and folders can be copied")]
    NotCopied,
    #[error("it is not beneath a path that the operator allows with agbox.host_paths")]
    NotAllowed,
    #[error(
        "it is on a file system whose owners cannot be mapped to those of a sandbox; copy it in \
         instead"
    )]
    Unmapped,
    #[error("the link {0:?} in it leads out of it; exclude it, or have .gitignore name it")]
    LinkOutside(String),
    #[error("{0:?} in it is neither a file, a folder nor a link; exclude it")]
    Special(String),
    #[error("{0:?} in it cannot be copied: {error}", error = std::io::Error::from_raw_os_error(*.1))]
    Inside(String, i32),
    #[error("it has more than {MAX_ENTRIES} files, or is deeper than {MAX_DEPTH} folders")]
    TooMany,
    #[error("it is larger than {} GiB", MAX_BYTES >> 30)]
    TooLarge,
}

/// What one copy may hold at most.
pub const MAX_ENTRIES: u64 = 1_000_000;
pub const MAX_BYTES: u64 = 64 << 30;
pub const MAX_DEPTH: usize = 128;

/// A path that a sandbox cannot have, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct NoPath {
    /// The source on the machine, or the target inside if that is where it went wrong.
    pub path: String,
    pub problem: Problem,
}

impl From<rustix::io::Errno> for Problem {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::System(errno.raw_os_error())
    }
}
