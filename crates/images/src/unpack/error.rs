//! Why a layer is refused.

use std::io;

use rustix::io::Errno;

use crate::archive::ArchiveError;

/// A layer is hostile, broken, too large, or cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("the layer is not a sound archive")]
    Archive(#[source] ArchiveError),
    #[error("the layer is larger than allowed: {0}")]
    TooLarge(Limit),
    #[error("the layer is compressed in a way that is not supported: {0}")]
    Compression(&'static str),
    #[error("the name {0} in the layer is not allowed")]
    Name(String),
    #[error("the layer has something else than directories on the way to {0}")]
    InTheWay(String),
    #[error("the layer replaces the directory {0}, which has entries")]
    Replaced(String),
    #[error("the layer has the hard link {0} to what is no file of it")]
    HardLink(String),
    #[error("the layer has the device {0}")]
    Device(String),
    #[error("{0} in the layer is not a directory")]
    MountPoint(String),
    #[error("{name} in the layer belongs to {id}; a sandbox has the ids below {below}")]
    Owner { name: String, id: u64, below: u32 },
    #[error("cannot write {name} of the layer")]
    Write {
        name: String,
        #[source]
        source: io::Error,
    },
}

/// The bound that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    #[error("more than {0} entries")]
    Entries(u64),
    #[error("more than {0} bytes")]
    Bytes(u64),
    #[error("more than {0} times its compressed size")]
    Ratio(u64),
    #[error("a path of more than {0} components")]
    Depth(usize),
    #[error("an entry with more than {0} bytes of extended attributes")]
    Xattrs(usize),
    #[error("directories with more than {0} bytes of names")]
    Directories(usize),
}

/// The meter speaks through the archive's reader, which knows input errors only.
impl From<ArchiveError> for UnpackError {
    fn from(error: ArchiveError) -> Self {
        if let ArchiveError::Read(cause) = &error
            && let Some(limit) = limit_in(cause)
        {
            return Self::TooLarge(limit);
        }
        Self::Archive(error)
    }
}

pub(super) fn limit_in(error: &io::Error) -> Option<Limit> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Limit>()).copied()
}

pub(super) fn cannot_write(name: &[u8]) -> impl FnOnce(Errno) -> UnpackError {
    move |errno| UnpackError::Write { name: shown(name), source: errno.into() }
}

/// Returns a name for a message: strangers chose it.
pub(super) fn shown(name: &[u8]) -> String {
    const LONGEST: usize = 200;
    let start = name.get(..LONGEST).unwrap_or(name);
    let more = if name.len() > LONGEST { "…" } else { "" };
    format!("\"{}{more}\"", start.escape_ascii())
}
