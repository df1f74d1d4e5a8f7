//! The loop device over a file: the one that is there, or a new one.

use std::{
    fs,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{CWD, Mode, OFlags, fstat, openat},
    io::Errno,
};

use super::{DiskError, ground::failed};
use crate::sys::loops::{
    Backing, backing, configure, encode_device, free_number, take_size_of_file,
};

/// A device that is held open: it stays while this, or a mount of it, is there.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) path: String,
    fd: OwnedFd,
}

/// Others on the machine may take the device that was free, but hardly this often in a row.
const TRIES: usize = 64;

impl Device {
    /// Returns the device over this file. A file never gets a second one: two file systems that
    /// do not know of each other would write into it.
    pub(super) fn over(file: BorrowedFd<'_>) -> Result<Self, DiskError> {
        let device = match Self::existing(file)? {
            Some(device) => device,
            None => Self::new(file)?,
        };
        device.take_size_of_file()?;
        Ok(device)
    }

    /// Finds the device over this file, which may be mounted in a namespace that we do not see.
    pub(super) fn existing(file: BorrowedFd<'_>) -> Result<Option<Self>, DiskError> {
        let found = fstat(file).map_err(failed("look at", "the file of a loop device"))?;
        let wanted = Backing { device: encode_device(found.st_dev), inode: found.st_ino };
        let blocks = fs::read_dir("/sys/block").map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            failed("list", "/sys/block")(errno)
        })?;
        for block in blocks.filter_map(Result::ok) {
            let name = block.file_name().to_string_lossy().into_owned();
            // Those that are over a file have this folder.
            if !name.starts_with("loop") || !block.path().join("loop").exists() {
                continue;
            }
            // Not for writing: devices of others may not allow that.
            let device = match Self::open(&name, OFlags::RDONLY) {
                Ok(device) => device,
                // It is going.
                Err(Errno::NXIO) => continue,
                // It might be over this very file.
                Err(errno) => return Err(failed("open", &name)(errno)),
            };
            if backing(device.fd.as_fd()) == Ok(wanted) {
                return Ok(Some(device));
            }
        }
        Ok(None)
    }

    fn new(file: BorrowedFd<'_>) -> Result<Self, DiskError> {
        let path = "/dev/loop-control";
        let control = openat(CWD, path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed("open", path))?;
        for _ in 0..TRIES {
            let number = free_number(control.as_fd()).map_err(failed("find", "a loop device"))?;
            let name = format!("loop{number}");
            let device = Self::open(&name, OFlags::RDWR).map_err(failed("open", &name))?;
            match configure(device.fd.as_fd(), file) {
                Ok(()) => return Ok(device),
                Err(Errno::BUSY) => {}
                Err(errno) => return Err(failed("configure", &name)(errno)),
            }
        }
        Err(failed("take", "a loop device")(Errno::BUSY))
    }

    fn open(name: &str, access: OFlags) -> Result<Self, Errno> {
        let path = format!("/dev/{name}");
        let fd = openat(CWD, &path, access | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { path, fd })
    }

    /// Lets the device be as large as its file.
    pub(super) fn take_size_of_file(&self) -> Result<(), DiskError> {
        take_size_of_file(self.fd.as_fd()).map_err(failed("resize", &self.path))
    }
}
