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
pub const NOEXEC: u64 = libc::MOUNT_ATTR_NOEXEC;

/// Has the files of a detached mount belong to the users of another user namespace: what user 0
/// owns on disk belongs to that namespace's user 0, and so on. Its programs get no rights of their
/// own, and its devices are none.
pub fn map_users(tree: BorrowedFd<'_>, users: BorrowedFd<'_>) -> Result<(), Errno> {
    let userns_fd = u64::try_from(users.as_raw_fd()).or(Err(Errno::BADF))?;
    let attr_set = libc::MOUNT_ATTR_IDMAP | NOSUID | NODEV;
    set(tree, c"", &libc::mount_attr { attr_set, attr_clr: 0, propagation: 0, userns_fd }, EMPTY)
}

/// Takes away rights of programs and devices on a detached mount.
pub fn make_plain(tree: BorrowedFd<'_>) -> Result<(), Errno> {
    let attr_set = NOSUID | NODEV;
    set(tree, c"", &libc::mount_attr { attr_set, attr_clr: 0, propagation: 0, userns_fd: 0 }, EMPTY)
}

/// Sets these attributes on a detached mount.
pub fn set_attributes(tree: BorrowedFd<'_>, attributes: u64) -> Result<(), Errno> {
    let attr = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    set(tree, c"", &attr, EMPTY)
}

/// Sets these attributes on a detached mount and on every mount below it, and has nothing that is
/// mounted elsewhere from now on show in any of them.
pub fn make_private(tree: BorrowedFd<'_>, attributes: u64) -> Result<(), Errno> {
    let propagation = libc::MS_PRIVATE;
    let attr = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation, userns_fd: 0 };
    set(tree, c"", &attr, EMPTY | libc::AT_RECURSIVE)
}

/// Has the files of a detached mount, and of every mount below it, belong to the users of another
/// user namespace.
pub fn map_users_recursively(tree: BorrowedFd<'_>, users: BorrowedFd<'_>) -> Result<(), Errno> {
    let userns_fd = u64::try_from(users.as_raw_fd()).or(Err(Errno::BADF))?;
    let attr_set = libc::MOUNT_ATTR_IDMAP;
    let attr = libc::mount_attr { attr_set, attr_clr: 0, propagation: 0, userns_fd };
    set(tree, c"", &attr, EMPTY | libc::AT_RECURSIVE)
}

const EMPTY: libc::c_int = libc::AT_EMPTY_PATH;

/// Sets these attributes on the mount at `path` and on every mount below it.
pub fn set_attributes_recursively(
    dir: BorrowedFd<'_>,
    path: &CStr,
    attributes: u64,
) -> Result<(), Errno> {
    let attr = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_RECURSIVE | libc::AT_SYMLINK_NOFOLLOW;
    set(dir, path, &attr, flags)
}

fn set(
    dir: BorrowedFd<'_>,
    path: &CStr,
    attr: &libc::mount_attr,
    flags: libc::c_int,
) -> Result<(), Errno> {
    // SAFETY: `path` is a C string and `attr` a live struct of the size passed; the call only
    // reads them.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            std::ptr::from_ref(attr),
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}
