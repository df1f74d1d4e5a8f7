//! Files and folders of the machine that callers name.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use ::images::{beneath, pull::open_in};
use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fstat};

use super::ImageError;

/// A file or folder that was opened, with whosever rights.
#[derive(Debug)]
pub(super) struct Opened {
    name: String,
    fd: OwnedFd,
    stat: Stat,
}

/// By which a file is known again, as long as nobody wrote to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    written: (i64, u64),
    changed: (i64, u64),
}

/// Opens what a name says, beneath what is allowed, unless the caller has opened it already.
pub(super) async fn open(
    name: &str,
    path: &Path,
    opened: Option<OwnedFd>,
    prefix: Option<PathBuf>,
) -> Result<Opened, ImageError> {
    let (path, owned_name) = (path.to_owned(), name.to_owned());
    let opening = move || {
        let fd = match (opened, prefix) {
            (Some(fd), _) => fd,
            (None, Some(prefix)) => beneath::open(&prefix, &path)?,
            (None, None) => return Err(io::ErrorKind::PermissionDenied.into()),
        };
        let stat = fstat(&fd)?;
        Ok(Opened { name: owned_name, fd, stat })
    };
    let opened = tokio::task::spawn_blocking(opening).await.map_err(io::Error::other);
    opened.and_then(|opened| opened).map_err(|error| unreadable(name, &error))
}

fn unreadable(name: &str, error: &io::Error) -> ImageError {
    ImageError::Unreadable { image: name.to_owned(), message: error.to_string() }
}

impl Opened {
    pub(super) fn folder(self) -> Result<OwnedFd, ImageError> {
        self.expect(FileType::Directory, "it is not a directory")?;
        Ok(self.fd)
    }

    /// Returns a file that can go to the worker: one that it can read, and nothing else. A folder
    /// would lead it to all of the machine.
    pub(super) fn file(self) -> Result<(OwnedFd, Stamp), ImageError> {
        self.expect(FileType::RegularFile, "it is not a file")?;
        let flags = fcntl_getfl(&self.fd).map_err(|errno| unreadable(&self.name, &errno.into()))?;
        if flags & OFlags::RWMODE != OFlags::RDONLY || flags.contains(OFlags::PATH) {
            return Err(self.refused("it is not open for reading alone"));
        }
        let stamp = Stamp::of(&self.stat);
        Ok((self.fd, stamp))
    }

    /// Returns the folder of a layout, and the stamp of its index.
    pub(super) fn layout(self) -> Result<(OwnedFd, Stamp), ImageError> {
        self.expect(FileType::Directory, "it is not a directory")?;
        let index =
            open_in(&self.fd, "index.json").map_err(|error| unreadable(&self.name, &error))?;
        let stat = fstat(&index).map_err(|errno| unreadable(&self.name, &errno.into()))?;
        Ok((self.fd, Stamp::of(&stat)))
    }

    fn expect(&self, kind: FileType, otherwise: &str) -> Result<(), ImageError> {
        let found = FileType::from_raw_mode(self.stat.st_mode);
        if found == kind { Ok(()) } else { Err(self.refused(otherwise)) }
    }

    fn refused(&self, message: &str) -> ImageError {
        ImageError::Refused { image: self.name.clone(), message: message.to_owned() }
    }
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            written: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}
