//! `ioctl(2)` with one struct, whose size is part of the request.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::check;

/// Which way the struct goes, as seen from us.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Write = 1,
    Read = 2,
    Both = 3,
}

/// A request as the kernel's `_IOW`, `_IOR` and `_IOWR` build it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) way: Way,
    pub(super) family: u8,
    pub(super) number: u8,
}

impl Request {
    /// Carries out the request. `T` is a struct of the kernel's: plain numbers, for which every
    /// pattern of bits is a value.
    pub(super) fn call<T: Copy>(
        self,
        fd: BorrowedFd<'_>,
        argument: &mut T,
    ) -> Result<libc::c_long, Errno> {
        let request = (self.way as libc::Ioctl) << 30
            | (size_of::<T>() as libc::Ioctl) << 16
            | libc::Ioctl::from(self.family) << 8
            | libc::Ioctl::from(self.number);
        // SAFETY: the request names the size of `T`, and the kernel touches as many bytes of
        // `argument`, which is live and ours alone.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut *argument) }.into())
    }
}
