//! Why something cannot be done with a file.

use std::io;

use isolate::files::wire::{Fault, Why};
use model::file::EditError;

use crate::sandboxes::SandboxError;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("there is no such file or directory")]
    NotFound,
    #[error("it is neither a regular file nor a directory")]
    NotRegular,
    /// Clients look for these words.
    #[error("it is a directory")]
    IsDirectory,
    #[error("a part of the path is not a directory")]
    NotADirectory,
    #[error("the user of the sandbox may not do that")]
    Denied,
    #[error("a symbolic link is there, and nothing is written through one: name what it leads to")]
    Symlink,
    #[error("symbolic links lead in a circle, or to what is not a file")]
    Loop,
    #[error("a symbolic link leads out of the folders that this is confined to")]
    Outside,
    #[error("something is there already")]
    Exists,
    #[error("the directory is not empty: remove it recursively, or what is in it first")]
    NotEmpty,
    /// With the version that is there, if anything is.
    #[error("it is not the version that was named")]
    Precondition { current: Option<String> },
    #[error("the sandbox has no space left on its disk")]
    NoSpace,
    #[error("the kernel does not take this path or pattern")]
    InvalidPath,
    #[error("others change the same, or it is in use or on another file system: try again")]
    Conflict,
    #[error("too much is being done with the files of this sandbox: try again later")]
    TooMany,
    #[error("it is larger than {most} bytes")]
    TooLarge { most: u64 },
    #[error("the announced length and the body differ")]
    Cut,
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error("it took too long and was given up")]
    Late,
    #[error("the process that works on the sandbox's files has ended: try again")]
    Lost,
    #[error("the sandbox was started by an older server: stop it and resume it to use its files")]
    Old,
    #[error("the kernel cannot do it")]
    Kernel(#[source] io::Error),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

impl From<Fault> for FileError {
    fn from(fault: Fault) -> Self {
        match fault.why {
            Why::NotFound => Self::NotFound,
            Why::NotRegular => Self::NotRegular,
            Why::IsDirectory => Self::IsDirectory,
            Why::NotADirectory => Self::NotADirectory,
            Why::Denied => Self::Denied,
            Why::Symlink => Self::Symlink,
            Why::Loop => Self::Loop,
            Why::Outside => Self::Outside,
            Why::Exists => Self::Exists,
            Why::NotEmpty => Self::NotEmpty,
            Why::Precondition => Self::Precondition { current: fault.there.map(|it| it.tag()) },
            Why::NoSpace => Self::NoSpace,
            Why::InvalidPath => Self::InvalidPath,
            Why::Conflict => Self::Conflict,
            Why::TooMany => Self::TooMany,
            Why::Other(errno) => Self::Kernel(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Of reading and writing what is open. The other errors do not come up there.
impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Self::NoSpace,
            _ => Self::Kernel(error),
        }
    }
}
