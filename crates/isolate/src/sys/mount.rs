//! `mount_setattr(2)`.

use std::{
    ffi::CStr,
    os::fd::{AsRawFd, BorrowedFd},
};

use rustix::io::Errno;

use super::check;

pub const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
pub const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
pub const NODEV: u64 = libc::MOUNT_ATTR_NODEV;

/// Sets these attributes on the mount at `path` and on every mount below it.
pub fn set_attributes_recursively(
    dir: BorrowedFd<'_>,
    path: &CStr,
    attributes: u64,
) -> Result<(), Errno> {
    let attr = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_RECURSIVE | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: `path` is a C string and `attr` a live struct of the size passed; the call only
    // reads them.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}
