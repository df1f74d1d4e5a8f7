//! The one request to an ext4 that we make.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::ioctl::{Request, Way};

/// Lets a mounted file system have this many blocks. It cannot become smaller.
pub fn resize(anywhere: BorrowedFd<'_>, blocks: u64) -> Result<(), Errno> {
    let mut blocks = blocks;
    Request { way: Way::Write, family: b'f', number: 16 }.call(anywhere, &mut blocks).map(drop)
}
